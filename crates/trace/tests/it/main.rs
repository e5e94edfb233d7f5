//! Readers and converters of traces.

mod figures;
mod shared;
