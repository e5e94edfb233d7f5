//! A client of [etcd](https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/), 3.4 and newer, over its JSON gateway: entries,
//! transactions, leases, watches, authentication, TLS. It blocks, and each wait is bounded. Nothing here knows what the entries mean.
//!
//! Why the gateway: the gRPC clients need protoc at build time and some thirty crates more.
#![forbid(unsafe_code)]

mod access;
mod entry;
mod error;
mod http1;
mod watch;
mod wire;

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub use access::Access;
pub use entry::Entry;
pub use error::{Error, Result};
pub use sidelong_rest::{Endpoint, EndpointError};
pub use watch::{Change, Watch};

use http1::Failed;
use sidelong_rest as rest;
use wire::Text;

/// Longest wait for one endpoint's answer. etcd itself gives a request up after 5 s and two elections (`server/etcdserver`,
/// `ReqTimeout`).
const ANSWER_MAX: Duration = Duration::from_secs(8);
/// Likewise for one of several to answer what may be asked twice, in two rounds: a server that has just started takes requests before it knows
/// a leader.
const READ_MAX: [Duration; 2] = [Duration::from_millis(500), ANSWER_MAX];

/// A client, and what it has learned: which endpoint answered last, and its token.
#[derive(Debug)]
pub struct Client {
    runtime: rest::Blocking,
    access: Access,
    /// The endpoint that is asked first.
    first: usize,
    token: Option<String>,
}

/// Which keys are meant.
#[derive(Clone, Copy, Debug)]
pub enum Keys<'a> {
    /// This one.
    One(&'a str),
    /// All that begin so.
    Under(&'a str),
}

/// What was found, at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The newest revision of all that it holds.
    pub revision: u64,
    /// The entries, by key.
    pub entries: Vec<Entry>,
}

/// What must hold for a transaction to take effect.
#[derive(Clone, Copy, Debug)]
pub enum If<'a> {
    /// The key was last changed at that revision.
    Unchanged(&'a str, u64),
    /// There is no such key.
    Absent(&'a str),
}

/// What a transaction does.
#[derive(Clone, Copy, Debug)]
pub enum Then<'a> {
    /// Stores a value; it goes with the lease, if there is one.
    Put {
        /// Its key.
        key: &'a str,
        /// What it will hold.
        value: &'a [u8],
        /// See [`Client::grant`].
        lease: Option<i64>,
    },
    /// Removes a key.
    Delete(&'a str),
}

impl Client {
    /// A client that has asked nobody yet.
    ///
    /// # Errors
    /// If a certificate or a password cannot be read, or the process has no descriptor left.
    pub fn new(access: Access) -> Result<Self> {
        let runtime = rest::Blocking::new().map_err(Error::Descriptors)?;
        Ok(Client { runtime, access, first: 0, token: None })
    }

    /// Reads entries.
    ///
    /// # Errors
    /// If no endpoint answers, or it refuses.
    pub fn get(&mut self, keys: Keys<'_>) -> Result<Found> {
        self.get_within(keys, &READ_MAX)
    }

    /// Reads entries where to go on without them is better than to wait: each endpoint has half a second.
    ///
    /// # Errors
    /// If none answers by then, or it refuses.
    pub fn get_soon(&mut self, keys: Keys<'_>) -> Result<Found> {
        self.get_within(keys, &READ_MAX[..1])
    }

    fn get_within(&mut self, keys: Keys<'_>, rounds: &[Duration]) -> Result<Found> {
        let found: wire::Range = self.ask("kv/range", &keys.request(), false, rounds)?;
        let entries = found.kvs.into_iter().map(Entry::try_from).collect::<Result<_>>()?;
        Ok(Found { revision: found.header.revision.0, entries })
    }

    /// Does all of `then` if all of `when` holds; otherwise nothing. Returns the revision that this made, or `None`.
    ///
    /// # Errors
    /// As [`get`](Self::get). After [`Error::Doubtful`] it may have taken effect.
    pub fn transact(&mut self, when: &[If<'_>], then: &[Then<'_>]) -> Result<Option<u64>> {
        let compare: Vec<_> = when.iter().map(If::request).collect();
        let success: Vec<_> = then.iter().map(Then::request).collect();
        let done: wire::Transacted =
            self.write("kv/txn", &json!({ "compare": compare, "success": success }))?;
        Ok(done.succeeded.then_some(done.header.revision.0))
    }

    /// A lease that ends after so many seconds, unless it is [kept](Self::keep). Entries that were put with it go with it.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn grant(&mut self, seconds: u64) -> Result<i64> {
        let granted: wire::Granted = self.write("lease/grant", &json!({ "TTL": seconds.to_string() }))?;
        Ok(granted.id.0)
    }

    /// Keeps a lease for as long again; false if it has ended.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn keep(&mut self, lease: i64) -> Result<bool> {
        let kept: wire::Streamed<wire::Kept> =
            self.read("lease/keepalive", &json!({ "ID": lease.to_string() }))?;
        Ok(kept.result.ttl.0 > 0)
    }

    /// Changes of these keys, from that revision on.
    ///
    /// # Errors
    /// As [`get`](Self::get), and if nothing is heard of the watch although the request was taken.
    pub fn watch(&mut self, keys: Keys<'_>, from: u64) -> Result<Watch<'_>> {
        let mut create = keys.request();
        create["start_revision"] = from.to_string().into();
        let request = json!({ "create_request": create });
        let answer = self.first_that(&READ_MAX, |client, at, longest| {
            let asked = client.access.open(at, "watch", client.token.as_deref(), &request);
            let begun = client.runtime.block_on(async { tokio::time::timeout(longest, asked).await });
            begun.unwrap_or(Err(rest::Failed::Silent.into()))
        })?;
        Watch::new(&self.runtime, answer, self.access.endpoints()[self.first].to_string())
    }

    /// What an endpoint answers to what may be asked twice.
    fn read<T: DeserializeOwned>(&mut self, path: &str, request: &Value) -> Result<T> {
        self.ask(path, request, false, &READ_MAX)
    }

    /// What an endpoint answers to what may be asked once.
    fn write<T: DeserializeOwned>(&mut self, path: &str, request: &Value) -> Result<T> {
        self.ask(path, request, true, &READ_MAX[1..])
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        path: &str,
        request: &Value,
        is_write: bool,
        rounds: &[Duration],
    ) -> Result<T> {
        self.first_that(rounds, |client, at, longest| client.once(at, path, request, is_write, longest))
    }

    /// The answer of the first endpoint that has one, beginning with the one that answered last. In each round all are asked, each for so long.
    fn first_that<T>(
        &mut self,
        rounds: &[Duration],
        ask: impl Fn(&mut Self, usize, Duration) -> http1::Outcome<T>,
    ) -> Result<T> {
        let count = self.access.endpoints().len();
        let mut failures = Vec::new();
        let first = self.first;
        for longest in rounds {
            failures.clear();
            let mut is_silent = false;
            for at in (first..first + count).map(|at| at % count) {
                match self.with_token(at, *longest, |client| ask(client, at, *longest)) {
                    Ok(answer) => {
                        self.first = at;
                        return Ok(answer);
                    }
                    Err(failed) if failed.is_final() => return Err(self.error_of(at, failed)),
                    Err(failed) => {
                        is_silent |= failed.is_silent();
                        failures.push(self.error_of(at, failed).to_string());
                    }
                }
            }
            // To wait longer helps only where nothing was heard.
            if !is_silent {
                break;
            }
        }
        Err(Error::Unreachable { failures: failures.join("; ") })
    }

    /// Asks once more with a new token, if there is a user and the old one has ended.
    fn with_token<T>(
        &mut self,
        at: usize,
        longest: Duration,
        ask: impl Fn(&mut Self) -> http1::Outcome<T>,
    ) -> http1::Outcome<T> {
        let Some((user, password)) = self.access.user().cloned() else { return ask(self) };
        if self.token.is_some() {
            match ask(self) {
                Err(Failed::Refused(refusal)) if refusal.has_bad_token() => {}
                other => return other,
            }
        }
        let request = json!({ "name": user, "password": password });
        self.token = None;
        let authenticated: wire::Authenticated =
            self.once(at, "auth/authenticate", &request, false, longest)?;
        self.token = Some(authenticated.token);
        ask(self)
    }

    fn once<T: DeserializeOwned>(
        &mut self,
        at: usize,
        path: &str,
        request: &Value,
        is_write: bool,
        longest: Duration,
    ) -> http1::Outcome<T> {
        let asked = self.access.ask(at, path, self.token.as_deref(), request);
        let answered = self.runtime.block_on(async { tokio::time::timeout(longest, asked).await });
        match answered.unwrap_or(Err(rest::Failed::Silent.into())) {
            // It may have been carried out.
            Err(Failed::Asked(rest::Failed::Silent | rest::Failed::Cut(_))) if is_write => {
                Err(Failed::Doubtful)
            }
            Err(Failed::Refused(refusal)) if is_write && refusal.is_doubtful() => Err(Failed::Doubtful),
            Err(failed) => Err(failed),
            Ok(body) => serde_json::from_slice(&body).map_err(Failed::strange),
        }
    }

    fn error_of(&self, at: usize, failed: Failed) -> Error {
        failed.of(self.access.endpoints()[at].to_string())
    }
}

impl Keys<'_> {
    fn request(self) -> Value {
        match self {
            Keys::One(key) => json!({ "key": Text(key.as_bytes()) }),
            // As etcd has it, from the first key to the end.
            Keys::Under("") => json!({ "key": Text(&[0]), "range_end": Text(&[0]) }),
            Keys::Under(prefix) => {
                json!({ "key": Text(prefix.as_bytes()), "range_end": Text(&after_all_of(prefix)) })
            }
        }
    }
}

/// The first key after all that begin with `prefix`, which is UTF-8: no byte of it is 255.
fn after_all_of(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    end.last_mut().into_iter().for_each(|last| *last += 1);
    end
}

impl If<'_> {
    fn request(&self) -> Value {
        let (key, revision) = match self {
            If::Unchanged(key, revision) => (key, *revision),
            If::Absent(key) => (key, 0),
        };
        json!({ "target": "MOD", "result": "EQUAL", "key": Text(key.as_bytes()), "mod_revision": revision.to_string() })
    }
}

impl Then<'_> {
    fn request(&self) -> Value {
        match self {
            Then::Put { key, value, lease } => json!({ "request_put": {
                "key": Text(key.as_bytes()),
                "value": Text(value),
                "lease": lease.unwrap_or(0).to_string(),
            }}),
            Then::Delete(key) => json!({ "request_delete_range": { "key": Text(key.as_bytes()) } }),
        }
    }
}
