//! The cost of mod_sidelong to httpd: CPU time per request compared with an httpd without it, and a connection closed
//! at accept compared with one that is served, in alternating rounds.
//!
//! `cargo bench -p sidelong --bench httpd`

#[allow(dead_code, unused_imports, reason = "shared with the tests")]
#[path = "../tests/it/support/mod.rs"]
mod support;

use std::time::Duration;

use nix::time::ClockId;
use sidelong_figure::statistics;
use support::httpd::{CLOSED, Httpd, OPEN, Verdicts};
use support::{Client, Cluster, try_get};

const ROUNDS: usize = 31;
/// Requests on one connection in a round, and connections.
const REQUESTS: u32 = 20_000;
const CONNECTIONS: u32 = 2_000;
/// Time for a worker to finish what is counted.
const SETTLE: Duration = Duration::from_millis(20);

fn main() {
    let [with, without] = [(); 2].map(|()| Cluster::new(&[("alpha", 1)]));
    let verdicts = Verdicts::new(&with, &["alpha"]);
    let Some(bare) = Httpd::start(&without, None, &["alpha"], "MaxKeepAliveRequests 0") else { return };
    let Some(httpd) = Httpd::start(&with, Some(&verdicts), &["alpha"], "MaxKeepAliveRequests 0") else {
        return;
    };
    let requests = |server: &Httpd| {
        used_us(server, REQUESTS, || {
            let mut client = Client::connect(server.address);
            for _ in 0..REQUESTS {
                assert_eq!(client.ask("GET", "alpha.test", "/file").unwrap().status, 200);
            }
        })
    };
    let connections = |decision: u64| {
        verdicts.decide(0, decision);
        used_us(&httpd, CONNECTIONS, || {
            for _ in 0..CONNECTIONS {
                assert_eq!(try_get(httpd.address, "alpha.test", "/file").is_ok(), decision == OPEN);
            }
        })
    };
    pairs("a request: with mod_sidelong, without", || (requests(&httpd), requests(&bare)));
    pairs("a connection: closed at accept, served", || (connections(CLOSED), connections(OPEN)));
}

/// CPU time of the server for each of `count` requests, in us.
fn used_us(server: &Httpd, count: u32, ask: impl FnOnce()) -> f64 {
    let before = cpu_ns(server);
    ask();
    std::thread::sleep(SETTLE);
    (cpu_ns(server) - before) as f64 / f64::from(count) / 1000.0
}

/// CPU time used by the serving processes, in ns.
fn cpu_ns(httpd: &Httpd) -> u64 {
    let parent = httpd.server.pid().as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let used = |pid: &str| {
        // MAKE_PROCESS_CPUCLOCK of include/linux/posix-timers.h, of the kind CPUCLOCK_SCHED.
        ClockId::from_raw(!pid.parse::<i32>().unwrap() << 3 | 2).now()
    };
    // A process that has ended meanwhile had nothing to do.
    let times = children.split_whitespace().filter_map(|pid| used(pid).ok());
    times.map(|time| Duration::from(time).as_nanos() as u64).sum()
}

fn pairs(what: &str, mut pair: impl FnMut() -> (f64, f64)) {
    pair();
    let rounds: Vec<_> = (0..ROUNDS).map(|_| pair()).collect();
    let median = |of: fn(&(f64, f64)) -> f64| {
        statistics::median(rounds.iter().map(of).collect()).expect("there are rounds")
    };
    println!(
        "CPU time of {what}: {:.2} us, {:.2} us; median ratio of {ROUNDS} pairs {:.3}",
        median(|pair| pair.0),
        median(|pair| pair.1),
        median(|pair| pair.0 / pair.1)
    );
}
