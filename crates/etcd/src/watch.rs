//! A watch: changes as they happen, one JSON object a line.

use std::time::Duration;

use http::Response;
use hyper::body::Incoming;
use sidelong_rest::{self as rest, Lines};
use tokio::runtime::Runtime;

use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::http1::Failed;
use crate::wire;

/// etcd says at once that a watch has begun. Where nothing comes within this time, something holds its answers back.
const CREATED_MAX: Duration = Duration::from_secs(3);

/// A watch that has begun. It ends when it is dropped.
#[derive(Debug)]
pub struct Watch<'a> {
    runtime: &'a Runtime,
    lines: Lines,
    endpoint: String,
}

/// A change of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It was stored.
    Put(Entry),
    /// It was removed, or its lease has ended.
    Deleted(String),
}

impl<'a> Watch<'a> {
    pub(crate) fn new(runtime: &'a Runtime, answer: Response<Incoming>, endpoint: String) -> Result<Self> {
        let mut watch = Watch { runtime, lines: Lines::of(answer), endpoint };
        match watch.line(CREATED_MAX)? {
            Some(said) if said.created => Ok(watch),
            Some(said) => watch.heard(said).and(Err(watch.strange("a watch that was not begun"))),
            None => Err(Error::Unheard { endpoint: watch.endpoint }),
        }
    }

    /// What is heard within `wait`; it may be nothing.
    ///
    /// # Errors
    /// If the connection ends, or what was asked for is no longer known ([`Error::Compacted`]). Watch anew then.
    pub fn next(&mut self, wait: Duration) -> Result<Vec<Change>> {
        self.line(wait)?.map_or(Ok(Vec::new()), |said| self.heard(said))
    }

    fn heard(&self, said: wire::Watched) -> Result<Vec<Change>> {
        if said.compact_revision.0 > 0 {
            return Err(Error::Compacted { since: said.compact_revision.0 });
        }
        if said.canceled {
            return Err(self.strange(&format!("the watch was cancelled: {}", said.cancel_reason)));
        }
        let change = |event: wire::Event| {
            let entry = Entry::try_from(event.kv)?;
            Ok(match event.what.as_deref() {
                Some("DELETE") => Change::Deleted(entry.key),
                _ => Change::Put(entry),
            })
        };
        said.events.into_iter().map(change).collect()
    }

    /// The next line; `None` if it has not come within `wait`.
    fn line(&mut self, wait: Duration) -> Result<Option<wire::Watched>> {
        let Some(line) = self.lines.next(self.runtime, wait).map_err(|failed| self.ended(&failed))? else {
            return Ok(None);
        };
        let said: wire::Streamed<wire::Watched> =
            serde_json::from_slice(&line).map_err(|error| self.strange(&error.to_string()))?;
        Ok(Some(said.result))
    }

    fn ended(&self, failed: &rest::Failed) -> Error {
        Error::Endpoint { endpoint: self.endpoint.clone(), failure: failed.to_string() }
    }

    fn strange(&self, why: &str) -> Error {
        Failed::strange(why).of(self.endpoint.clone())
    }
}
