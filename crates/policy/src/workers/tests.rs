use proptest::prelude::*;
use sidelong_layout::{Ownership, SiteId};

use super::*;
use crate::index::Capacity;

const SCAN: Duration = Duration::from_millis(1);
/// How long a worker holds a request.
const SERVICE_S: f64 = 0.02;

/// A server whose answers follow Little's law, as its node is seen.
#[derive(Clone, Copy)]
struct Server {
    workers: f64,
    /// Whether each holds a connection, so that others wait to be accepted.
    holds: bool,
    cpu_permille: u16,
    has_record: bool,
}

const GUNICORN: Server = Server { workers: 4.0, holds: true, cpu_permille: 100, has_record: true };
/// Behind a server that accepts whatever comes.
const PHP_FPM: Server = Server { workers: 5.0, holds: false, ..GUNICORN };

#[derive(Default)]
struct Bench {
    learner: Learner,
    answers: f64,
}

impl Bench {
    fn view(&self, server: Server, in_flight: u32) -> NodeView {
        let queued = (f64::from(in_flight) - server.workers).max(0.0) as u32;
        let hot = Hot {
            valid: valid::CONNECTIONS | valid::CPU,
            connections: in_flight,
            queued: if server.holds { queued } else { 0 },
            cpu_permille: server.cpu_permille,
            ..Hot::default()
        };
        NodeView {
            ownership: Some(Ownership::serving(SiteId::new(0), 1)),
            load: server.has_record.then_some(hot),
            up: true,
            dead: false,
            capacity: Capacity { workers: 2, ..Capacity::default() },
            in_flight,
        }
    }

    fn scan(&mut self, server: Server, in_flight: u32) {
        self.answers += f64::from(in_flight).min(server.workers) / SERVICE_S * SCAN.as_secs_f64();
        let traffic = Traffic { in_flight, answers: self.answers as u64, up: true };
        self.learner.see(&self.view(server, in_flight), &traffic, SCAN);
    }

    /// Scans with so many requests in flight, for so long each.
    fn with(&mut self, server: Server, in_flight: impl IntoIterator<Item = u32>, ms: u64) -> Workers {
        for in_flight in in_flight {
            (0..ms).for_each(|_| self.scan(server, in_flight));
        }
        self.learner.workers()
    }
}

/// Within a factor of 1.5.
fn is_about(found: Workers, workers: f64) -> bool {
    matches!(found, Workers::Learned(found) if (1.0 / 1.5..=1.5).contains(&(f64::from(found) / workers)))
}

#[test]
fn workers_that_hold_a_connection_show_in_the_accept_queue() {
    for workers in [1, 2, 4, 8, 64] {
        let server = Server { workers: f64::from(workers), ..GUNICORN };
        let mut bench = Bench::default();
        assert_eq!(bench.with(server, [1], 1_000), Workers::Unknown, "no request has waited");
        assert_eq!(bench.with(server, [workers + 1], 1_000), Workers::Learned(workers));
        assert_eq!(bench.with(server, [1], 10_000), Workers::Learned(workers), "and it is not forgotten");
    }
}

#[test]
fn a_restart_with_half_or_twice_as_many_is_noticed() {
    let mut bench = Bench::default();
    for (workers, expected) in [(8.0, 8), (4.0, 4), (16.0, 16), (1.0, 1)] {
        let server = Server { workers, ..GUNICORN };
        assert_eq!(bench.with(server, [40], 4_000), Workers::Learned(expected));
    }
}

#[test]
fn a_queue_for_a_moment_is_no_lack_of_workers() {
    let mut bench = Bench::default();
    let asynchronous = Server { workers: f64::INFINITY, ..GUNICORN };
    for _ in 0..100 {
        bench.with(asynchronous, [2], 45);
        // Connections come faster than it accepts.
        bench.with(Server { workers: 30.0, ..GUNICORN }, [32], 5);
    }
    assert_eq!(bench.learner.queue.workers(), None);
}

#[test]
fn a_server_that_is_kept_from_running_does_not_lack_workers() {
    let mut bench = Bench::default();
    let asynchronous = Server { workers: f64::INFINITY, ..GUNICORN };
    for _ in 0..20 {
        // For a third of a second it neither accepts nor answers. Then it does all at once.
        for _ in 0..330 {
            let view = bench.view(Server { workers: 2.0, ..GUNICORN }, 32);
            let traffic = Traffic { in_flight: 32, answers: bench.answers as u64, up: true };
            bench.learner.see(&view, &traffic, SCAN);
        }
        bench.answers += 30.0;
        bench.with(asynchronous, [32], 20);
    }
    assert_eq!(bench.learner.queue.workers(), None);
}

#[test]
fn the_rest_of_two_requests_is_not_one_that_was_alone() {
    let mut bench = Bench::default();
    let mut answered = 0;
    let mut see = |bench: &mut Bench, in_flight: u32, scans: u64| {
        for _ in 0..scans {
            let traffic = Traffic { in_flight, answers: answered, up: true };
            bench.learner.see(&bench.view(PHP_FPM, in_flight), &traffic, SCAN);
        }
        answered += u64::from(in_flight > 0);
    };
    // Two clients in step: both are answered after 20 ms, one of them a moment before the other.
    for _ in 0..200 {
        see(&mut bench, 2, 20);
        see(&mut bench, 1, 1);
        see(&mut bench, 0, 1);
    }
    bench.answers = answered as f64;
    assert!(is_about(bench.with(PHP_FPM, [20], 4_000), 5.0), "{:?}", bench.learner);
}

#[test]
fn a_server_that_accepts_all_is_learned_by_contrast() {
    let mut bench = Bench::default();
    // In flight are as many as ever, so nothing tells how many of them wait.
    assert_eq!(bench.with(PHP_FPM, [16], 100), Workers::Unknown);
    let mut bench = Bench::default();
    assert!(is_about(bench.with(PHP_FPM, [1, 2, 4, 8, 16, 32, 4, 12], 2_000), 5.0), "{:?}", bench.learner);
    // Also without a record.
    let remote = Server { has_record: false, ..PHP_FPM };
    let mut bench = Bench::default();
    assert!(is_about(bench.with(remote, [1, 2, 4, 8, 16, 32, 4, 12], 2_000), 5.0), "{:?}", bench.learner);
}

/// Once it had too many requests, and no time with few to compare with. Its site must not seem to need it for good.
#[test]
fn under_light_load_the_short_time_is_not_looked_for_without_end() {
    let server = Server { workers: 8.0, ..PHP_FPM };
    for few in 2..6 {
        let mut bench = Bench::default();
        bench.with(server, [12, 40], 1_500);
        assert!(bench.learner.knee.descends, "{:?}", bench.learner);
        bench.with(server, [few], 10_000);
        let mut view = bench.view(server, few);
        bench.learner.apply(&mut view);
        assert!(view.capacity.workers > few, "{few} of 8: {:?}", bench.learner);
        // It was seen with few, so now it is known.
        assert!(is_about(bench.with(server, [40], 4_000), 8.0), "{:?}", bench.learner);
    }
}

#[test]
fn a_server_whose_requests_do_not_wait_is_not_bound() {
    let asynchronous = Server { workers: f64::INFINITY, holds: false, ..GUNICORN };
    let mut bench = Bench::default();
    assert_eq!(bench.with(asynchronous, [1, 2, 3], 1_000), Workers::Unknown);
    assert_eq!(bench.with(asynchronous, [8, 16, 64], 2_000), Workers::NotBound);
    assert!(bench.learner.at_a_time() >= Some(50), "{:?}", bench.learner);
    // One whose CPU is full works on no more, but not for want of workers.
    let busy = Server { workers: 3.0, holds: false, cpu_permille: 990, has_record: true };
    let mut bench = Bench::default();
    assert_eq!(bench.with(busy, [1, 2, 4, 8, 16, 32], 2_000), Workers::NotBound);
    let at_a_time = bench.learner.at_a_time().unwrap();
    assert!((2..=4).contains(&at_a_time), "{at_a_time}");
}

#[test]
fn slower_requests_are_not_taken_for_a_queue_for_long() {
    let mut bench = Bench::default();
    bench.with(PHP_FPM, [1, 2, 4], 1_000);
    // Each takes three times as long, which shows when one is alone.
    let slower = |bench: &mut Bench, in_flight: u32| {
        for k in 0..3_000 {
            let before = bench.answers;
            bench.scan(PHP_FPM, in_flight);
            bench.answers = before + if k % 3 == 0 { bench.answers - before } else { 0.0 };
        }
    };
    [1, 2, 4].into_iter().for_each(|in_flight| slower(&mut bench, in_flight));
    assert!(bench.learner.at_a_time() >= Some(3), "{:?}", bench.learner);
}

#[test]
fn what_was_learned_takes_the_place_of_what_the_file_says() {
    let mut bench = Bench::default();
    bench.with(GUNICORN, [9], 1_000);
    let mut view = bench.view(GUNICORN, 9);
    // The agent was told that there are two.
    set_workers(view.load.as_mut().unwrap(), 2, 9);
    bench.learner.apply(&mut view);
    let hot = view.load.unwrap();
    assert_eq!((view.capacity.workers, hot.workers, hot.busy, hot.queued), (4, 4, 4, 5));
    assert_ne!(hot.valid & valid::WORKERS, 0);

    let asynchronous = Server { workers: f64::INFINITY, holds: false, ..GUNICORN };
    let mut bench = Bench::default();
    bench.with(asynchronous, [1, 8, 16, 64], 2_000);
    let mut view = bench.view(asynchronous, 16);
    set_workers(view.load.as_mut().unwrap(), 2, 9);
    bench.learner.apply(&mut view);
    assert_eq!(view.load.unwrap().valid & valid::WORKERS, 0);
}

proptest! {
    /// Workers are between two requests now and then, and the kernel's two counts are of two moments.
    #[test]
    fn the_accept_queue_tells_within_a_factor_of_one_and_a_half(
        workers in 1_u32..65,
        more in 1_u32..100,
        idle in proptest::collection::vec(0_u32..4, 40),
        skew in proptest::collection::vec(0_u32..2, 40),
    ) {
        let mut learner = Learner::default();
        for k in 0..2_000 {
            // As a keeper samples, every 50 ms.
            let idle = idle[k / 50].min(workers / 3);
            let queued = more + idle;
            let connections = workers + more + skew[k / 50];
            let bench = Bench::default();
            let mut view = bench.view(GUNICORN, workers + more);
            let hot = view.load.as_mut().unwrap();
            (hot.connections, hot.queued) = (connections, queued);
            let answers = k as u64 * u64::from(workers) / 20;
            let traffic = Traffic { in_flight: workers + more, answers, up: true };
            learner.see(&view, &traffic, SCAN);
        }
        let found = learner.workers();
        // One more by the skew is a factor of 2 where there is one worker; only whole numbers are told.
        prop_assert!(
            is_about(found, f64::from(workers)) || found == Workers::Learned(workers + 1),
            "{found:?} of {workers}"
        );
    }

    #[test]
    fn whatever_is_seen_at_least_one_is_worked_on(
        scans in proptest::collection::vec((any::<u32>(), any::<u32>(), any::<u32>(), any::<u64>(), 0_u64..100), 1..200),
    ) {
        let mut learner = Learner::default();
        for (connections, queued, in_flight, answers, ms) in scans {
            let mut view = Bench::default().view(GUNICORN, in_flight);
            let hot = view.load.as_mut().unwrap();
            (hot.connections, hot.queued) = (connections, queued);
            let traffic = Traffic { in_flight, answers, up: true };
            learner.see(&view, &traffic, Duration::from_millis(ms));
            learner.apply(&mut view);
            prop_assert!(view.capacity.workers >= 1);
            prop_assert!(learner.workers() != Workers::Learned(0));
        }
    }
}
