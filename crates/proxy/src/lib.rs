//! The HTTP data path of the edge: one thread a core, HTTP/1 and HTTP/2, TLS.
//!
//! It knows nothing of sites and nodes. A [`Service`] decides which connections and requests are served and at which server;
//! this crate parses, forwards, retries, and holds clients and servers to their limits. Each thread has a runtime and
//! connections of its own, and shares nothing on a request's path but what the service shares.
//!
//! HTTP/1 is framed here, around the parser `httparse`, and HTTP/2 by `h2`: the two that hyper is made of. Hyper's own
//! HTTP/1 server cannot pass on informational responses, accepts line ends that servers read differently, and keeps a buffer
//! for each idle connection.
#![forbid(unsafe_code)]

mod alarm;
mod answer;
mod body;
mod buffer;
mod client;
mod clients;
mod date;
mod duplex;
mod exchange;
mod fields;
mod forwarding;
mod free_list;
#[cfg(fuzzing)]
pub mod fuzz;
mod h1;
mod h2;
mod io;
mod listener;
mod pool;
mod proxy_protocol;
mod pump;
mod request;
mod response;
mod server;
mod service;
mod settings;
mod socket;
mod stored;
mod trust;
mod upstream;
mod websocket;
mod wire;
mod worker;

pub use answer::Answer;
pub use forwarding::Forwarding;
pub use listener::Listener;
pub use pool::{Address, Server, ServerId, is_local};
pub use pump::{CUT_CHECK, SEND_RATE_MIN};
pub use request::{Request, Version};
pub use server::{HTTP_PROTOCOLS, Proxy, Stop};
pub use service::{Failure, LINE_BYTES_MAX, Limits, Outcome, Refusal, RefusedHead, Service, Visit};
pub use settings::{Settings, SharedSettings};
