//! Shared by the tests of the program, beside what `sidelong_testing` has for all tests.
#![allow(unreachable_pub, reason = "a test binary exports nothing")]

pub mod httpd;
pub mod proxies;
mod terminal;
pub mod thousand;

pub use sidelong_testing::{
    Client, Cluster, Done, PATIENCE, Part, Running, STALE_MAX, SetOnDrop, auction, caches, eventually,
    foreign, get, has_rdma, histories, may_open, memcached, metrics, overload, run, run_lab, servers,
    skipped, stop_whole, try_get, until_it_succeeds, words,
};
pub use terminal::Terminal;
