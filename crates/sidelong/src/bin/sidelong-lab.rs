//! `sidelong-lab`: experiments, simulations, traces and measurements, and all that `sidelong` does.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    sidelong::research()
}
