//! Request traces: read in the formats that others publish, described by their statistics, converted, or generated
//! from a seed.
//!
//! - [`Reader`] streams the [`Request`]s of a trace in any [`Format`], compressed or not, and accounts for every record
//!   that it could not use; [`Reader::spread`] puts them in order; [`Trace`] holds a whole one in memory.
//! - [`summarise`] (or a [`Tally`]) turns any number of requests into a [`Summary`]: rates, Zipf exponents, burstiness.
//! - [`Writer`] writes them, above all in the compact format, which is read fastest; [`Synthetic`] makes them.
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

mod arrivals;
mod broken;
mod bursts;
mod clf;
mod compact;
mod csv;
mod error;
mod fit;
mod format;
mod keys;
mod names;
mod oracle;
mod reader;
mod recognise;
mod request;
mod sample;
mod sampled;
mod source;
mod spread;
mod summary;
mod synthetic;
mod text;
mod trace;
mod twitter;
mod ucb;
pub mod wc98;
mod workload;
mod writer;
mod zipf;

pub use arrivals::Arrivals;
pub use broken::{BROKEN_FIRST_MAX, Broken, BrokenAt, Flaw};
pub use bursts::Bursts;
pub use clf::Line;
pub use compact::BLOCK_REQUESTS;
pub use csv::Columns;
pub use error::{Error, Result};
pub use fit::{LSQ_COUNT_MIN, zipf_alpha_lsq, zipf_alpha_mle};
pub use format::{Format, Stamps};
pub use names::{NAME_BYTES_MAX, NAMES_MAX};
pub use reader::{Known, Reader};
pub use request::{Method, Request};
pub use sample::{SAMPLE, SAMPLE_NOTICE, sample};
pub use sampled::SAMPLED_MAX;
pub use spread::{AHEAD_REQUESTS, SECOND_REQUESTS_MAX, Spread};
pub use summary::{SECONDS_MAX, Summary, Tally, summarise};
pub use synthetic::Synthetic;
pub use text::LINE_BYTES_MAX;
pub use trace::{REQUESTS_MAX, Trace};
pub use workload::{Object, Workload};
pub use writer::{WRITER_OBJECTS_MAX, Writer, Written};
pub use zipf::{OBJECTS_MAX, Sizes, Zipf};
