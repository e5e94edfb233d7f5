//! Why etcd could not be used, and what to do about it.

use std::io;

use sidelong_rest::{self as rest, EndpointError};

use crate::http1::{Failed, Refusal};

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why etcd could not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No endpoint answered.
    #[error("no etcd endpoint can be used: {failures}")]
    Unreachable {
        /// Each endpoint, and what is wrong with it.
        failures: String,
    },
    /// One endpoint did not answer, or not as etcd does.
    #[error("{endpoint} {failure}")]
    Endpoint {
        /// It.
        endpoint: String,
        /// What is wrong, as the rest of a sentence.
        failure: String,
    },
    /// The answer to a change did not come: nobody knows whether it took effect.
    #[error("{endpoint} did not say whether it has made the change: look, and try again")]
    Doubtful {
        /// The endpoint.
        endpoint: String,
    },
    /// etcd refused the request.
    #[error("etcd at {endpoint} refuses: {message}{remedy}")]
    Refused {
        /// The endpoint.
        endpoint: String,
        /// etcd's words.
        message: String,
        /// What to do, as the rest of the sentence; it may be empty.
        remedy: &'static str,
    },
    /// What happened since the revision from which a watch was to tell is no longer known: read anew.
    #[error("etcd has forgotten what changed before revision {since}")]
    Compacted {
        /// The first revision that it knows.
        since: u64,
    },
    /// A watch was begun, and nothing is heard of it.
    #[error(
        "{endpoint} says nothing of a watch: a proxy between may hold its answers back. Have it pass /v3/watch on as it comes"
    )]
    Unheard {
        /// The endpoint.
        endpoint: String,
    },
    /// A key is not UTF-8.
    #[error("etcd has a key there that is not text: somebody else has written it")]
    Key,
    /// An address of an endpoint cannot be used.
    #[error(transparent)]
    Address(#[from] EndpointError),
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] sidelong_tls::TlsError),
    /// No descriptor is left.
    #[error("cannot begin to ask etcd: {0}")]
    Descriptors(io::Error),
}

impl Failed {
    pub(crate) fn of(self, endpoint: String) -> Error {
        let failure = match self {
            Failed::Refused(Refusal { code, message }) => {
                return Error::Refused { endpoint, remedy: remedy(code, &message), message };
            }
            Failed::Doubtful => return Error::Doubtful { endpoint },
            Failed::Asked(rest::Failed::Answer(why)) => {
                format!(
                    "does not answer as etcd 3.4 and newer do ({why}): is it etcd, with its gateway at /v3?"
                )
            }
            Failed::Asked(failed) if is_of_certificates(&failed) => format!("{failed}{CERTIFICATES}"),
            Failed::Asked(failed) => failed.to_string(),
        };
        Error::Endpoint { endpoint, failure }
    }
}

/// Whether one side has refused the other's certificate, and the connection has not merely ended.
fn is_of_certificates(failed: &rest::Failed) -> bool {
    match failed {
        rest::Failed::Tls(error) => error.kind() == io::ErrorKind::InvalidData,
        // A server refuses a client's certificate once the connection is there (RFC 8446, 4.4.2.4).
        rest::Failed::Cut(why) => why.contains("fatal alert"),
        _ => false,
    }
}

/// What to do about a refusal, by its code of gRPC and etcd's words (`api/v3rpc/rpctypes/error.go`).
fn remedy(code: u32, message: &str) -> &'static str {
    let says = |words: &str| message.contains(words);
    match code {
        3 | 8 if says("too large") || says("larger than max") => {
            ": etcd takes 1.5 MB at once (--max-request-bytes); comments and lists of servers count"
        }
        8 => ": compact and defragment it, clear its alarm, or give it a larger --quota-backend-bytes",
        3 if says("authentication failed") || says("user name is empty") => CREDENTIALS,
        16 => CREDENTIALS,
        7 => ": grant the user read and write of the keys under its prefix",
        9 if says("not enabled") => {
            ": take user and password_file out of [etcd], or enable its authentication"
        }
        14 => ": has it lost its quorum? `etcdctl endpoint status --cluster` tells",
        _ => "",
    }
}

const CERTIFICATES: &str = ": check ca, certificate and key in [etcd]";
const CREDENTIALS: &str = ": check user and password_file in [etcd]";
