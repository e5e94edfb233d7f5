//! Request traces: read from the logs of real servers, described by their statistics, or generated from a seed.
//!
//! - [`Reader`] streams the [`Request`]s of a WorldCup98 or Common Log Format log, compressed or not, and accounts
//!   for every record that it could not use; [`Trace`] holds a whole log in memory.
//! - [`summarise`] (or a [`Tally`]) turns any number of requests into a [`Summary`]: rates, Zipf exponents, burstiness.
//! - [`Workload`] answers "what does request `i` ask for?" for any `i`, from any thread, without a lock; [`Bursts`]
//!   answers "of which site?".
//!
//! ```
//! use std::sync::Arc;
//! use sidelong_trace::{Object, Workload, sample};
//!
//! let trace = sample();
//! let summary = trace.summarise(0)?;
//! assert_eq!((summary.requests, summary.objects), (10_000, 1_244));
//!
//! let workload = Workload::Trace(Arc::new(trace.spread()));
//! let Object { id, bytes } = workload.object(12_345);
//! # let _ = (id, bytes);
//! # Ok::<(), sidelong_trace::Error>(())
//! ```
//!
//! Nothing here asks a clock or a global random generator: the same bytes and the same seed give the same requests.
//! What is read comes from outside, so every line, table and count has a limit, and no input panics.
//! The load generator, the simulator and the lab stand on this crate; it knows none of them.
#![forbid(unsafe_code)]

mod broken;
mod bursts;
mod clf;
mod error;
mod fit;
mod names;
mod reader;
mod request;
mod sample;
mod summary;
mod trace;
pub mod wc98;
mod workload;
mod zipf;

pub use broken::{BROKEN_FIRST_MAX, Broken, BrokenAt, Flaw};
pub use bursts::Bursts;
pub use clf::{LINE_BYTES_MAX, Line};
pub use error::{Error, Result};
pub use fit::{LSQ_COUNT_MIN, zipf_alpha_lsq, zipf_alpha_mle};
pub use names::{NAME_BYTES_MAX, NAMES_MAX};
pub use reader::{Format, Reader};
pub use request::{Method, Request};
pub use sample::{SAMPLE, SAMPLE_NOTICE, sample};
pub use summary::{DISTINCT_MAX, SECONDS_MAX, Summary, Tally, summarise};
pub use trace::{REQUESTS_MAX, Trace};
pub use workload::{Object, Workload};
pub use zipf::{OBJECTS_MAX, Sizes, Zipf};
