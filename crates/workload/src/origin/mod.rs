//! The origin server of one node: real files or bodies of any size, served at a configured capacity.
//!
//! [`serve`] runs it on a listener until its shutdown resolves, and then drains. What it does at any moment can be
//! read from [`OriginGauges`], at no cost to it.
//!
//! | path | answer |
//! |---|---|
//! | `/healthz` | 200, without taking a worker |
//! | `/o/<id>/<bytes>` | a body of that many bytes |
//! | anything else | the file under [`OriginConfig::root`], or 404 |
//!
//! Where [`OriginConfig::documents`] is set, files may change, and are answered with validators: conditions and ranges apply.
//!
//! Where [`OriginConfig::body`] is set, it is the answer to every path but `/healthz`.
//!
//! The *rate* of a saturated origin is exact, as its workers are free when the book says so. Each single *response* is up
//! to a millisecond or two late, which is what tokio's timers are. Where requests burn CPU time ([`ServiceTime::Burn`])
//! the machine is the limit, and what it gives to this process.

mod answer;
mod book;
mod burn;
mod config;
mod connections;
mod content;
mod documents;
mod files;
mod gauges;
mod serve;
mod workers;

pub use config::{NODE_HEADER, OriginConfig, OriginError, ServiceTime};
pub use documents::{Current, DocumentChange, Documents};
pub use gauges::OriginGauges;
pub use serve::{Drained, serve};
