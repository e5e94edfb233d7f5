//! The control endpoint: where a process tells others of its cluster how to reach its regions, and sets up with them what
//! needs both sides. One thread for each process that offers regions, plain TCP, no moves and no load: those go one-sided.
//!
//! | part | what it is |
//! |---|---|
//! | `secret` | the cluster's secret, and what is made of it: proofs, and seals on messages |
//! | `wire` | frames to bytes and back |
//! | `cause` | why one side refuses the other, counted |
//! | `dialogue` | the endpoint's half of one session, without I/O |
//! | `endpoint` | the thread: sockets, readiness, time |
//! | `session` | the asking side |
//! | `directory` | [`Directory`](crate::Directory) by asking whoever offers the name |
//!
//! A session opens with a challenge each way. Whoever asks sends a nonce; the endpoint answers with its own; then the
//! asking side, and after it the endpoint, proves to know the secret by an HMAC-SHA256 over protocol version, its role
//! and both nonces. What follows is sealed by keys of this session and direction, and numbered. So neither a set-up nor
//! a message is worth anything a second time, to another peer, or sent back to its sender.
//!
//! Messages are authentic, not hidden: whoever reads the traffic reads the keys in it, which for the data path itself
//! is so anyway. Between machines the network is trusted or tunnelled.

mod cause;
mod dialogue;
mod directory;
mod endpoint;
mod secret;
mod session;
mod wire;

pub use cause::{Cause, Refusals};
pub use dialogue::Answers;
pub use directory::ControlDirectory;
pub use endpoint::Endpoint;
pub use secret::{SECRET_BYTES_MAX, SECRET_BYTES_MIN, Secret};
pub use session::Session;
pub use wire::{BODY_BYTES_MAX, FIND};
