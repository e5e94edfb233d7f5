//! How A3 to A5, which judge single requests, make their runs, and the figures of these requests, over time and in all.
//!
//! Beside the slides' closed loop, in which a waiting client sends nothing, there is an open loop: requests come at a fixed
//! rate, below the server's capacity and, in bursts, above it.

use std::collections::BTreeMap;
use std::time::Duration;

use sidelong_config::{ClusterFile, LoadMode, RateEntry};
use sidelong_figure::statistics::{mean, quantile};

use super::{CLIENTS_AT_ONE_LOAD, LoadPoint, SINGLE, START, System, cluster_file, shares};
use crate::bench::Bench;
use crate::error::Result;
use crate::up::{Fate, Request};

/// Length of the interval that one point of a figure covers.
pub(super) const INTERVAL_S: f64 = 0.1;
/// The start is not judged, because connections are still being made.
pub(super) const SETTLED_S: f64 = 0.5;

/// A very long response, which the slides do not define: longer than their mean without admission at the most clients.
pub(super) const LONG_MS: f64 = 192.0;
/// The target, which the slides do not give: between the means at the most clients with one-sided admission (105 ms) and
/// without admission (192 ms).
pub(super) const LATE_MS: f64 = 150.0;

/// Offered load between bursts and in bursts, relative to the capacity.
pub(super) const RATES: [f64; 2] = [0.5, 2.0];
/// The first burst begins after this time, and each of the others as long after the one before. Half a second at twice the
/// capacity leaves half a second of work, which takes a second to finish beside the rest.
pub(super) const BURST_EVERY: Duration = Duration::from_secs(2);
const FIRST_BURST: Duration = Duration::from_secs(1);
pub(super) const BURST: Duration = Duration::from_millis(500);
/// Few enough clients that no request is rejected, and many more than workers: the answers show the capacity.
pub(super) const CLIENTS_OF_CAPACITY: u32 = 40;
/// Runs that find the capacity. The best one counts, because other work can only lower it.
pub(super) const RUNS_OF_CAPACITY: u32 = 3;
const TIME_OF_CAPACITY: Duration = Duration::from_secs(1);

/// Runs all systems for `time` each, in turns: in the closed loop with each number of `clients`, and in the open one.
pub(super) fn run(bench: &mut Bench<'_>, clients: &[u32], time: Duration) -> Result<()> {
    let closed = clients.iter().map(|clients| ("closed", *clients));
    let loads: Vec<(&str, u32)> = closed.chain([("open", CLIENTS_AT_ONE_LOAD)]).collect();
    let cpus = shares(bench)?;
    (0..RUNS_OF_CAPACITY).for_each(|_| bench.expect_for(TIME_OF_CAPACITY + START));
    let mut capacity_per_s = 0.0;
    bench.rounds(&vec![time + START; loads.len() * System::ALL.len()], |bench| {
        if bench.repetition == 1 {
            capacity_per_s = capacity(bench, cpus)?;
            bench.set("capacity_per_s", capacity_per_s.round());
        }
        for (kind, clients) in &loads {
            bench.in_turn(&System::ALL, |bench, system| {
                let (word, run_s) = (system.word(), time.as_secs_f64());
                let place = LoadPoint { demand: SINGLE, clients: *clients };
                let mut file = cluster_file(&bench.ground, place, system, cpus, time);
                if *kind == "open" {
                    open(&mut file, capacity_per_s, time);
                }
                let name = bench.name(format!("{kind}-{clients}-{word}"));
                let about = format!("{kind} loop, {clients} clients, admission: {word}");
                bench.begin(&name);
                let (_, mut requests) = bench.up_by_request(&[], &name, &about, &file, time + START)?;
                bench.end();
                requests.sort_by(|a, b| a.due_s.total_cmp(&b.due_s));
                bench.sample(&format!("{kind}/{clients}/{word}/all"), of_run(&requests, run_s))?;
                intervals(&requests, run_s).try_for_each(|(t_s, requests)| {
                    bench.sample(&format!("{kind}/{clients}/{word}/{t_s:.2}"), figures(requests))
                })
            })?;
        }
        Ok(())
    })
}

/// The capacity of the server on this machine, in requests/s.
fn capacity(bench: &mut Bench<'_>, cpus: Option<f64>) -> Result<f64> {
    let mut capacity_per_s: f64 = 0.0;
    for run in 1..=RUNS_OF_CAPACITY {
        let name = format!("capacity-{run}");
        bench.begin(&name);
        let place = LoadPoint { demand: SINGLE, clients: CLIENTS_OF_CAPACITY };
        let file = cluster_file(&bench.ground, place, System::None, cpus, TIME_OF_CAPACITY);
        let (summary, _) = bench.up(&name, "what the server can do", &file, TIME_OF_CAPACITY + START)?;
        capacity_per_s = capacity_per_s.max(summary.requests_per_s);
        bench.end();
    }
    Ok(capacity_per_s)
}

/// The same clients, each at its own address, at rates around `capacity_per_s` for `time`.
fn open(file: &mut ClusterFile, capacity_per_s: f64, time: Duration) {
    let rate = |at, of: f64| RateEntry { at, per_s: (of * capacity_per_s).round() };
    let bursts = (0..).map(|n| FIRST_BURST + BURST_EVERY * n).take_while(|at| *at < time);
    let [base, burst] = RATES;
    let steps = bursts.flat_map(|at| [rate(at, burst), rate(at + BURST, base)]);
    let rates: Vec<_> = [rate(Duration::ZERO, base)].into_iter().chain(steps).collect();
    for site in &mut file.sites {
        site.rates.clone_from(&rates);
    }
    if let Some(workload) = &mut file.workload {
        (workload.mode, workload.addresses) = (LoadMode::Open, CLIENTS_AT_ONE_LOAD);
    }
}

/// The figures of a run, from when it has settled.
fn of_run(requests: &[Request], run_s: f64) -> Vec<(&'static str, f64)> {
    let settled = &requests[requests.partition_point(|request| request.due_s < SETTLED_S)..];
    let mut all = figures(settled);
    let in_time =
        settled.iter().filter(|request| request.fate == Fate::Answered && request.response_ms <= LATE_MS);
    all.push(("in_time_per_s", in_time.count() as f64 / (run_s - SETTLED_S)));
    let offered = |requests: &[Request]| {
        let rejected = requests.iter().filter(|request| request.fate == Fate::Rejected).count();
        (requests.len() as f64, rejected as f64 / requests.len() as f64)
    };
    let settled_intervals = intervals(requests, run_s).filter(|(t_s, _)| *t_s >= SETTLED_S);
    let pairs: Vec<_> = settled_intervals.map(|(_, requests)| offered(requests)).collect();
    all.extend(correlation(&pairs).map(|follows| ("follows", follows)));
    for (fate, names) in [
        (Fate::Rejected, ["drops_mean", "drops_longest", "drops_longest_ms"]),
        (Fate::Answered, ["accepted_mean", "accepted_longest", "accepted_longest_ms"]),
    ] {
        all.extend(streaks(settled, fate).into_iter().flat_map(|streaks| names.into_iter().zip(streaks)));
    }
    all
}

/// The figures of some requests.
fn figures(requests: &[Request]) -> Vec<(&'static str, f64)> {
    let count = |fate| requests.iter().filter(|request| request.fate == fate).count() as f64;
    let answered = requests.iter().filter(|request| request.fate == Fate::Answered);
    let mut times_ms: Vec<f64> = answered.map(|request| request.response_ms).collect();
    times_ms.sort_by(f64::total_cmp);
    let after = |limit| (times_ms.len() - times_ms.partition_point(|ms| *ms <= limit)) as f64;
    let counts = [
        ("requests", requests.len() as f64),
        ("answered", count(Fate::Answered)),
        ("rejected", count(Fate::Rejected)),
        ("failed", count(Fate::Failed)),
        ("long", after(LONG_MS)),
        ("late", after(LATE_MS)),
    ];
    let times = [
        ("mean_ms", mean(&times_ms)),
        ("p99_ms", quantile(&times_ms, 0.99)),
        ("max_ms", quantile(&times_ms, 1.0)),
    ];
    let times = times.into_iter().filter_map(|(name, ms)| Some((name, ms?)));
    counts.into_iter().chain(times).collect()
}

/// The intervals of `run_s` in which requests were due, by their middle. Requests are in the order in which they were due.
fn intervals(requests: &[Request], run_s: f64) -> impl Iterator<Item = (f64, &[Request])> {
    // In whole microseconds, as the file has them.
    let us = |seconds: f64| (seconds * 1e6).round() as u64;
    let number = move |request: &Request| us(request.due_s) / us(INTERVAL_S);
    let all = requests.chunk_by(move |a, b| number(a) == number(b));
    let within = all.filter(move |requests| requests[0].due_s < run_s);
    within.map(move |requests| ((number(&requests[0]) as f64 + 0.5) * INTERVAL_S, requests))
}

/// Streaks of consecutive requests to one edge that were all rejected, or all answered: their mean and longest length in
/// requests, and their longest duration in ms. `None` if there is none.
fn streaks(requests: &[Request], fate: Fate) -> Option<[f64; 3]> {
    let mut edges: BTreeMap<&str, Vec<&Request>> = BTreeMap::new();
    for request in requests.iter().filter(|request| request.fate != Fate::Failed) {
        edges.entry(&request.edge).or_default().push(request);
    }
    let (mut lengths, mut longest_ms) = (Vec::new(), 0.0_f64);
    for requests in edges.values_mut() {
        requests.sort_by(|a, b| a.sent_s.total_cmp(&b.sent_s));
        for streak in requests.chunk_by(|a, b| a.fate == b.fate).filter(|streak| streak[0].fate == fate) {
            lengths.push(streak.len() as f64);
            longest_ms = longest_ms.max((streak[streak.len() - 1].sent_s - streak[0].sent_s) * 1e3);
        }
    }
    Some([mean(&lengths)?, lengths.into_iter().fold(0.0, f64::max), longest_ms])
}

/// The correlation of two series (Pearson), -1 to 1. `None` if one of them is constant.
pub(super) fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let count = pairs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let sums = pairs.iter().map(|pair| (pair.0 - x, pair.1 - y));
    let (xx, yy, xy) =
        sums.fold((0.0, 0.0, 0.0), |(xx, yy, xy), (dx, dy)| (xx + dx * dx, yy + dy * dy, xy + dx * dy));
    (xx > 0.0 && yy > 0.0).then(|| xy / (xx * yy).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::SHARE;
    use crate::setup::Ground;

    fn request(due_ms: u32, edge: &str, fate: Fate, response_ms: f64) -> Request {
        let due_s = 1.0 + f64::from(due_ms) / 1e3;
        Request { due_s, sent_s: due_s, site: "a".into(), edge: edge.into(), fate, response_ms }
    }

    #[test]
    fn figures_are_of_what_was_due_in_an_interval() {
        let requests = [
            request(10, "e", Fate::Answered, 100.0),
            request(90, "e", Fate::Answered, 200.0),
            request(95, "e", Fate::Rejected, 1.0),
            request(310, "e", Fate::Failed, 1.0),
            request(999, "e", Fate::Answered, 1.0),
        ];
        let intervals: Vec<_> = intervals(&requests, 1.9).collect();
        let [first, second] = intervals[..] else { panic!("{intervals:?}") };
        assert!((first.0 - 1.05).abs() < 1e-9 && (second.0 - 1.35).abs() < 1e-9);
        let of_first = figures(first.1);
        let counts = [("answered", 2.0), ("rejected", 1.0), ("failed", 0.0), ("long", 1.0), ("late", 1.0)];
        assert_eq!((of_first[0], &of_first[1..6]), (("requests", 3.0), &counts[..]));
        assert_eq!(of_first[6..], [("mean_ms", 150.0), ("p99_ms", 200.0), ("max_ms", 200.0)]);
        assert_eq!((figures(second.1)[0], figures(second.1).len()), (("requests", 1.0), 6), "no times");
        let of_run = BTreeMap::from_iter(of_run(&requests, 2.5));
        assert_eq!((of_run["requests"], of_run["in_time_per_s"]), (5.0, 1.0));
    }

    #[test]
    fn streaks_are_of_one_edge_and_failures_do_not_end_them() {
        use Fate::{Answered, Failed, Rejected};
        let fates = [Rejected, Rejected, Answered, Rejected, Failed, Rejected, Rejected, Answered];
        let at_one = fates.iter().zip(0..).map(|(fate, n)| request(2 * n, "one", *fate, 1.0));
        let at_two = (0..8).map(|n| request(2 * n + 1, "two", Answered, 1.0));
        let requests: Vec<_> = at_one.chain(at_two).collect();
        let [mean, longest, longest_ms] = streaks(&requests, Rejected).unwrap();
        assert_eq!((mean, longest), (2.5, 3.0));
        assert!((longest_ms - 6.0).abs() < 1e-6, "{longest_ms}");
        assert_eq!(streaks(&requests, Answered).unwrap()[1], 8.0);
        assert_eq!(streaks(&requests[8..], Rejected), None);
    }

    #[test]
    fn what_goes_together_is_found_to() {
        let rising = [(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)];
        assert!((correlation(&rising).unwrap() - 1.0).abs() < 1e-9);
        assert!((correlation(&rising.map(|(x, y)| (x, -y))).unwrap() + 1.0).abs() < 1e-9);
        assert_eq!(correlation(&rising.map(|(x, _)| (x, 1.0))), None);
        assert_eq!(correlation(&[]), None);
    }

    #[test]
    fn the_open_loop_bursts_above_what_can_be_done() {
        let ground = Ground { name: "lab-a3".into(), port: 20_000, root: None };
        let (place, time) = (LoadPoint { demand: SINGLE, clients: 400 }, Duration::from_secs(4));
        let mut file = cluster_file(&ground, place, System::OneSided, Some(SHARE), time);
        open(&mut file, 1000.0, time);
        let steps: Vec<_> =
            file.sites[0].rates.iter().map(|rate| (rate.at.as_millis(), rate.per_s)).collect();
        assert_eq!(steps, [(0, 500.0), (1000, 2000.0), (1500, 500.0), (3000, 2000.0), (3500, 500.0)]);
        assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "run.toml").unwrap(), file);
    }
}
