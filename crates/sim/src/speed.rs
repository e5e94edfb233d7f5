//! Benchmarks of the simulator, for `sidelong-lab run sim-speed` and `cargo bench`.
//!
//! Nothing here reads a clock: a [`Case`] is prepared, and its caller runs and measures it.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng as _;

use crate::Time;
use crate::cluster::{Cluster, Setup};
use crate::config::Config;
use crate::engine::{Model, Queue, Server, run};
use crate::measures::Outcome;

/// Most nodes of a cluster, as in `cluster.nodes`.
const NODES_MAX: u32 = 10_000;

/// Something to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    /// The hold model: each popped event is pushed again some time later, with a fixed number pending.
    Hold {
        /// Number of pending events.
        pending: usize,
    },
    /// Random arrivals at one server, which they use 70 % of the time; each leaves by an event.
    Line,
    /// The cluster of Gu and Wang 2004: 20,000 objects by Zipf's law (540 MB), LRU, requests at random, 500/s a node.
    Cluster {
        /// Number of nodes.
        nodes: u32,
        /// Memory of a node.
        memory_mb: u32,
    },
}

/// The work that was done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Work {
    /// Requests answered; none in the hold model.
    pub requests: u64,
    /// Events and arrivals.
    pub events: u64,
    /// The outcome of a cluster.
    pub outcome: Option<Outcome>,
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Case, String> {
        let words: Vec<&str> = text.split('-').collect();
        let number = |word: &str| word.parse::<u32>().ok().filter(|number| *number > 0);
        let case = match words[..] {
            ["hold", pending] => number(pending).map(|pending| Case::Hold { pending: pending as usize }),
            ["line"] => Some(Case::Line),
            ["cluster", nodes, memory_mb] => {
                let nodes = number(nodes).filter(|nodes| *nodes <= NODES_MAX);
                nodes.zip(number(memory_mb)).map(|(nodes, memory_mb)| Case::Cluster { nodes, memory_mb })
            }
            _ => None,
        };
        case.ok_or_else(|| "expected hold-PENDING, line or cluster-NODES-MB".to_owned())
    }
}

impl Case {
    /// Draws the input for `count` requests (events, in the hold model), and returns the function to be measured.
    pub fn prepare(self, count: u64) -> Box<dyn FnOnce() -> Work> {
        match self {
            Case::Hold { pending } => hold(pending, count),
            Case::Line => line(count),
            Case::Cluster { nodes, memory_mb } => {
                let setup = cluster(nodes, memory_mb, count);
                Box::new(move || {
                    let requests = setup.requests.len() as u64;
                    let outcome = Cluster::run(setup);
                    Work { requests, events: outcome.events, outcome: Some(outcome) }
                })
            }
        }
    }
}

/// Delays with a mean of 1 ms, drawn beforehand so that drawing does not count.
fn delays_ns() -> Vec<u64> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut draw = || -> f64 { Exp1.sample(&mut random) };
    (0..1 << 16).map(|_| (draw() * 1e6) as u64).collect()
}

fn hold(pending: usize, count: u64) -> Box<dyn FnOnce() -> Work> {
    let delays_ns = delays_ns();
    let delay = move |i: u64| delays_ns[i as usize & (delays_ns.len() - 1)];
    let mut queue = Queue::new();
    (0..pending as u64).for_each(|i| queue.push(Time::from_ns(delay(i * 7)), i));
    let mut turn = move |from: u64, to: u64| {
        for i in from..to {
            let Some((now, event)) = queue.pop() else { return };
            queue.push(now.after_ns(delay(i)), event);
        }
    };
    // Until the queue has found its width.
    let before = 4 * pending as u64;
    turn(0, before);
    Box::new(move || {
        turn(before, before + count);
        Work { requests: 0, events: count, outcome: None }
    })
}

/// One server; each request leaves by an event.
#[derive(Default)]
struct Line {
    server: Server,
    in_system_ns: u64,
}

impl Model for Line {
    type Arrival = u64;
    type Event = u64;

    fn arrive(&mut self, now: Time, service_ns: u64, queue: &mut Queue<u64>) {
        queue.push(self.server.serve(now, service_ns), now.as_ns());
    }

    fn happen(&mut self, now: Time, came_ns: u64, _queue: &mut Queue<u64>) {
        self.in_system_ns += now.as_ns() - came_ns;
    }
}

fn line(count: u64) -> Box<dyn FnOnce() -> Work> {
    let delays_ns = delays_ns();
    Box::new(move || {
        let at = |i: u64| delays_ns[i as usize & (delays_ns.len() - 1)];
        let mut now_ns = 0;
        let arrivals = (0..count).map(|i| {
            now_ns += at(i);
            // From another place in the same random numbers.
            (Time::from_ns(now_ns), at(i * 31 + 7) * 7 / 10)
        });
        let mut line = Line::default();
        let events = run(&mut line, &mut Queue::new(), arrivals);
        assert!(line.in_system_ns > 0, "requests take time");
        Work { requests: count, events, outcome: None }
    })
}

fn cluster(nodes: u32, memory_mb: u32, requests: u64) -> Setup {
    let sets = [
        format!("nodes={nodes}"),
        format!("memory_mb={memory_mb}"),
        format!("requests={requests}"),
        "protocol=lazy".to_owned(),
        "objects=20000".to_owned(),
        "arrivals=poisson".to_owned(),
        "rate_per_node=500".to_owned(),
    ];
    let config = Config::parse("", "speed", Path::new(""), &sets).expect("fields of the table");
    let point = config.points().remove(0);
    let requests = Arc::new(point.requests().expect("no file is read"));
    point.setup(requests).expect("requests need no times")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_run_that_was_asked_for() {
        let run = |case: Case| (case.prepare(10_000))();
        assert_eq!(run(Case::Hold { pending: 64 }), Work { requests: 0, events: 10_000, outcome: None });
        assert_eq!(run(Case::Line), Work { requests: 10_000, events: 20_000, outcome: None });
        let work = run(Case::Cluster { nodes: 16, memory_mb: 64 });
        assert!(work.requests == 10_000 && work.events > 10_000 && work.outcome.is_some());
        assert_eq!("cluster-16-64".parse(), Ok(Case::Cluster { nodes: 16, memory_mb: 64 }));
        for wrong in ["hold-0", "hold", "line-1", "cluster-16", "cluster-99999-64", ""] {
            assert!(wrong.parse::<Case>().is_err(), "{wrong}");
        }
    }
}
