//! `sidelong`: what an operator runs.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    sidelong::operate()
}
