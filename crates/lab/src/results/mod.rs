//! The output of `sidelong-lab perf` and `sidelong up` with `--json`. The program that writes it and the lab that reads it
//! share one struct. An unknown field is an error, not a zero.

pub use sidelong_perf::load::results as load;
pub use sidelong_perf::results as perf;
pub mod up;
