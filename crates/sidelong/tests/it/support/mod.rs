//! Shared by the tests of the program, beside what `sidelong_testing` has for all tests.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

mod hosts;
pub mod httpd;
pub mod proxies;
mod terminal;
pub mod thousand;

pub use hosts::HostsFile;
pub use sidelong_testing::{
    Client, Cluster, Done, PATIENCE, Part, Running, STALE_MAX, SetOnDrop, SteadyLoad, auction, caches,
    eventually, foreign, get, has_rdma, histories, lasting, may_open, memcached, metrics, overload, run,
    run_lab, servers, skipped, steady_load, stop_whole, try_get, until_it_succeeds, words,
};
pub use terminal::Terminal;

/// The number in an environment variable, by which a step of CI says how far a test goes.
pub fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable)
        .map_or(otherwise, |value| value.parse().unwrap_or_else(|_| panic!("{variable}={value}")))
}
