//! How A3 to A5, which judge single requests, make their runs, and the figures of these requests over time.
//!
//! Beside the slides' closed loop, in which a waiting client sends nothing, there is an open loop: requests come at a fixed
//! rate, below the server's capacity and, in bursts, above it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use sidelong_config::{ClusterFile, LoadMode, RateEntry};
use sidelong_figure::statistics::mean;
use sidelong_figure::{Axis, Line, Panel, Style};

use super::{CLIENTS_AT_ONE_LOAD, LoadPoint, PERIOD, SINGLE, START, System, cluster_file};
use crate::bench::Bench;
use crate::error::Result;
use crate::up::{Fate, Request};

/// Length of the interval that one point of a figure covers.
pub(super) const INTERVAL_S: f64 = 0.1;
/// The start is not judged, because connections are still being made.
pub(super) const SETTLED_S: f64 = 0.5;

/// Offered load between bursts and in bursts, relative to the capacity.
const RATES: [f64; 2] = [0.5, 2.0];
/// The first burst begins after this time, and each of the others as long after the one before. Half a second at twice the
/// capacity leaves half a second of work, which takes a second to finish beside the rest.
const BURST_EVERY: Duration = Duration::from_secs(2);
const FIRST_BURST: Duration = Duration::from_secs(1);
const BURST: Duration = Duration::from_millis(500);
/// Few enough clients that no request is rejected, and many more than workers: the answers show the capacity.
const CLIENTS_OF_CAPACITY: u32 = 40;
/// Runs that find the capacity. The best one counts, because other work can only lower it.
const RUNS_OF_CAPACITY: u32 = 3;
const TIME_OF_CAPACITY: Duration = Duration::from_secs(1);

/// How requests follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Loop {
    Closed,
    Open,
}

impl Loop {
    pub(super) const ALL: [Loop; 2] = [Loop::Closed, Loop::Open];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Loop::Closed => "closed",
            Loop::Open => "open",
        }
    }

    /// The title of a panel.
    pub(super) fn title(self, letter: char, clients: u32) -> String {
        match self {
            Loop::Closed => format!("({letter}) closed loop, {clients} clients"),
            Loop::Open => format!("({letter}) open loop, bursts of twice what can be done"),
        }
    }
}

/// Settings that all runs of an experiment share.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Ready {
    /// The server's share of the CPU, or the reason why it has none.
    pub(super) cpus: Option<f64>,
    pub(super) without: Option<String>,
    /// Requests/s that it answered to few clients, from which the open loops are set. `None` before that run.
    pub(super) capacity_per_s: Option<f64>,
    pub(super) run_s: f64,
    #[serde(skip)]
    pub(super) time: Duration,
    #[serde(skip)]
    pub(super) loads: Vec<(Loop, u32)>,
}

impl Ready {
    pub(super) fn new(bench: &mut Bench<'_>, loads: Vec<(Loop, u32)>, time: Duration) -> Result<Ready> {
        let (cpus, without) = super::shares(bench)?;
        (0..RUNS_OF_CAPACITY).for_each(|_| bench.expect_for(TIME_OF_CAPACITY + START));
        Ok(Ready { cpus, without, capacity_per_s: None, run_s: time.as_secs_f64(), time, loads })
    }

    /// The durations of the runs of a repetition.
    pub(super) fn plan(&self) -> Vec<Duration> {
        vec![self.time + START; self.loads.len() * System::ALL.len()]
    }

    /// Runs all systems under all loads in turns, so that a drift of the machine affects all of them. Passes each run to
    /// `seen`.
    pub(super) fn watch_all(
        &mut self,
        bench: &mut Bench<'_>,
        mut seen: impl FnMut(&Ready, Watched) -> Result<()>,
    ) -> Result<()> {
        let capacity_per_s = match self.capacity_per_s {
            Some(known) => known,
            None => self.see_capacity(bench)?,
        };
        self.capacity_per_s = Some(capacity_per_s);
        for &(kind, clients) in &self.loads {
            for system in System::ALL {
                seen(self, self.watch(bench, capacity_per_s, kind, clients, system)?)?;
            }
        }
        Ok(())
    }

    /// Measures the capacity of the server on this machine.
    fn see_capacity(&self, bench: &mut Bench<'_>) -> Result<f64> {
        let mut capacity_per_s: f64 = 0.0;
        for run in 1..=RUNS_OF_CAPACITY {
            let name = format!("capacity-{run}");
            bench.begin(&name);
            let place = LoadPoint { demand: SINGLE, clients: CLIENTS_OF_CAPACITY };
            let file = cluster_file(&bench.ground, place, System::None, self.cpus, TIME_OF_CAPACITY);
            let (summary, _) = bench.up(&name, "what the server can do", &file, TIME_OF_CAPACITY + START)?;
            capacity_per_s = capacity_per_s.max(summary.requests_per_s);
            bench.end();
        }
        Ok(capacity_per_s)
    }

    /// Runs `system` under a load.
    fn watch(
        &self,
        bench: &mut Bench<'_>,
        capacity_per_s: f64,
        kind: Loop,
        clients: u32,
        system: System,
    ) -> Result<Watched> {
        let name = bench.name(format!("{}-{clients}-{}", kind.word(), system.word()));
        bench.begin(&name);
        let mut file =
            cluster_file(&bench.ground, LoadPoint { demand: SINGLE, clients }, system, self.cpus, self.time);
        if kind == Loop::Open {
            open(&mut file, capacity_per_s, self.time);
        }
        let about = format!("{} loop, {clients} clients, admission: {}", kind.word(), system.word());
        let (_, mut requests) = bench.up_by_request(&[], &name, &about, &file, self.time + START)?;
        bench.end();
        requests.sort_by(|a, b| a.due_s.total_cmp(&b.due_s));
        Ok(Watched { kind, clients, system, round: bench.repetition, requests })
    }
}

/// A run and all of its completed requests, in the order in which they were due.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Watched {
    pub(super) kind: Loop,
    pub(super) clients: u32,
    pub(super) system: System,
    /// Counted from 1.
    pub(super) round: u32,
    pub(super) requests: Vec<Request>,
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

/// The outcome of the requests that were due in one interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Interval {
    /// The middle of the interval.
    pub(super) t_s: f64,
    pub(super) offered: u64,
    pub(super) answered: u64,
    pub(super) turned_away: u64,
    /// Mean and maximum over the answered requests, and how many were late. `None` without an answer.
    pub(super) mean_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
    pub(super) late: u64,
}

impl Interval {
    /// The rejected share of the requests that were due.
    pub(super) fn drop_rate(&self) -> f64 {
        self.turned_away as f64 / self.offered.max(1) as f64
    }

    /// The late share of the answered requests.
    pub(super) fn unsatisfied(&self) -> Option<f64> {
        (self.answered > 0).then(|| self.late as f64 / self.answered as f64)
    }
}

impl Watched {
    /// The requests that are judged.
    pub(super) fn settled(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| request.due_s >= SETTLED_S)
    }

    /// Response times of the answered requests, ascending.
    pub(super) fn times_ms(&self) -> Vec<f64> {
        let answered = self.settled().filter(|request| request.fate == Fate::Answered);
        let mut times: Vec<f64> = answered.map(|request| request.response_ms).collect();
        times.sort_by(f64::total_cmp);
        times
    }

    pub(super) fn mean_ms(&self) -> Option<f64> {
        mean(&self.times_ms())
    }

    pub(super) fn turned_away(&self) -> usize {
        self.count(Fate::TurnedAway)
    }

    pub(super) fn failed(&self) -> usize {
        self.count(Fate::Failed)
    }

    fn count(&self, fate: Fate) -> usize {
        self.settled().filter(|request| request.fate == fate).count()
    }

    /// The intervals of `run_s` in which requests were due. An answer after `late_ms` is late.
    pub(super) fn intervals(&self, run_s: f64, late_ms: f64) -> Vec<Interval> {
        // In whole microseconds, as the file has them.
        let us = |seconds: f64| (seconds * 1e6).round() as u64;
        let number = |request: &Request| us(request.due_s) / us(INTERVAL_S);
        let within = |requests: &&[Request]| requests[0].due_s < run_s;
        let interval = |requests: &[Request]| {
            let count = |fate| requests.iter().filter(|request| request.fate == fate).count() as u64;
            let answered = requests.iter().filter(|request| request.fate == Fate::Answered);
            let times: Vec<f64> = answered.map(|request| request.response_ms).collect();
            let any = !times.is_empty();
            Interval {
                t_s: (number(&requests[0]) as f64 + 0.5) * INTERVAL_S,
                offered: requests.len() as u64,
                answered: count(Fate::Answered),
                turned_away: count(Fate::TurnedAway),
                mean_ms: mean(&times),
                max_ms: any.then(|| times.iter().copied().fold(0.0, f64::max)),
                late: times.iter().filter(|ms| **ms > late_ms).count() as u64,
            }
        };
        self.requests.chunk_by(|a, b| number(a) == number(b)).filter(within).map(interval).collect()
    }

    /// Streaks of consecutive requests to one edge that were all rejected, or all answered.
    pub(super) fn streaks(&self, fate: Fate) -> Streaks {
        let mut edges: BTreeMap<&str, Vec<&Request>> = BTreeMap::new();
        for request in self.settled().filter(|request| request.fate != Fate::Failed) {
            edges.entry(&request.edge).or_default().push(request);
        }
        let mut streaks = Streaks::default();
        for requests in edges.values_mut() {
            requests.sort_by(|a, b| a.sent_s.total_cmp(&b.sent_s));
            for streak in requests.chunk_by(|a, b| a.fate == b.fate).filter(|streak| streak[0].fate == fate) {
                let took_ms = (streak[streak.len() - 1].sent_s - streak[0].sent_s) * 1e3;
                streaks.count += 1;
                streaks.requests += streak.len();
                streaks.longest = streaks.longest.max(streak.len());
                streaks.longest_ms = streaks.longest_ms.max(took_ms);
            }
        }
        streaks
    }
}

/// Streaks of one kind at all edges.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub(super) struct Streaks {
    pub(super) count: usize,
    /// Requests in all streaks.
    pub(super) requests: usize,
    pub(super) longest: usize,
    pub(super) longest_ms: f64,
}

impl Streaks {
    /// The mean length of a streak, in requests.
    pub(super) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.requests as f64 / self.count as f64)
    }
}

/// The share of `sorted` values above `limit`.
pub(super) fn above(sorted: &[f64], limit: f64) -> Option<f64> {
    let above = sorted.len() - sorted.partition_point(|value| *value <= limit);
    (!sorted.is_empty()).then(|| above as f64 / sorted.len() as f64)
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

/// A panel of figures over time with a line for each system.
pub(super) fn over_time(
    title: String,
    y_title: &str,
    run_s: f64,
    points: impl Fn(System) -> Vec<(f64, f64)>,
    limit: Option<f64>,
) -> Panel {
    let systems = System::ALL.map(|system| Line::new(system.style().bare(), points(system)));
    let top = systems.iter().flat_map(|line| &line.points).map(|(_, y)| *y).fold(0.0, f64::max);
    let target = limit.map(|limit| Line::new(Style::TARGET, vec![(0.0, limit), (run_s, limit)]));
    Panel {
        title,
        x: Axis::from_zero("time (s)", run_s),
        y: Axis::from_zero(y_title, top.max(limit.unwrap_or(0.0))),
        lines: systems.into_iter().chain(target).collect(),
    }
}

/// Describes the server, the edges and the loads for the report.
pub(super) fn describe(ready: &Ready) -> String {
    let held = match (ready.cpus, &ready.without) {
        (Some(cpus), _) => format!("held to {cpus} of a CPU by a control group (20 ms periods)"),
        (None, why) => format!("held to nothing ({})", why.as_deref().unwrap_or("no control groups")),
    };
    let [base, burst] = RATES;
    format!(
        "One server, {held}, four edges of one thread, scans and records {} ms apart, all as in A2. Runs of {} s, the systems \
         in turns; the first {SETTLED_S} s of each are not judged. Open loop: {base} of the {:.0} requests/s that the server answered to {CLIENTS_OF_CAPACITY} clients in the \
         best of {RUNS_OF_CAPACITY} runs, and {burst} times as many for {} s of every {} s, from {CLIENTS_AT_ONE_LOAD} \
         addresses; response times run from when a request was due.",
        PERIOD.as_millis(),
        ready.run_s,
        ready.capacity_per_s.unwrap_or(0.0),
        BURST.as_secs_f64(),
        BURST_EVERY.as_secs(),
    )
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

    fn watched(requests: Vec<Request>) -> Watched {
        Watched { kind: Loop::Open, clients: 1, system: System::Tcp, round: 1, requests }
    }

    #[test]
    fn intervals_are_of_what_was_due_in_them() {
        let requests = vec![
            request(10, "e", Fate::Answered, 100.0),
            request(90, "e", Fate::Answered, 200.0),
            request(95, "e", Fate::TurnedAway, 1.0),
            request(310, "e", Fate::Failed, 1.0),
            request(999, "e", Fate::Answered, 1.0),
        ];
        let intervals = watched(requests).intervals(1.9, 150.0);
        let [first, second] = intervals[..] else { panic!("{intervals:?}") };
        assert!((first.t_s - 1.05).abs() < 1e-9 && (second.t_s - 1.35).abs() < 1e-9);
        assert_eq!((first.offered, first.answered, first.turned_away, first.late), (3, 2, 1, 1));
        assert_eq!((first.mean_ms, first.max_ms), (Some(150.0), Some(200.0)));
        assert_eq!((first.unsatisfied(), first.drop_rate()), (Some(0.5), 1.0 / 3.0));
        assert_eq!((second.unsatisfied(), second.mean_ms, second.offered), (None, None, 1));
    }

    #[test]
    fn streaks_are_of_one_edge_and_failures_do_not_end_them() {
        use Fate::{Answered, Failed, TurnedAway};
        let fates = [TurnedAway, TurnedAway, Answered, TurnedAway, Failed, TurnedAway, TurnedAway, Answered];
        let at_one = fates.iter().zip(0..).map(|(fate, n)| request(2 * n, "one", *fate, 1.0));
        let at_two = (0..8).map(|n| request(2 * n + 1, "two", Answered, 1.0));
        let watched = watched(at_one.chain(at_two).collect());
        let drops = watched.streaks(TurnedAway);
        assert_eq!((drops.count, drops.requests, drops.longest, drops.mean()), (2, 5, 3, Some(2.5)));
        assert!((drops.longest_ms - 6.0).abs() < 1e-6, "{drops:?}");
        assert_eq!(watched.streaks(Answered).longest, 8);
        assert_eq!(watched.turned_away(), 5);
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
    fn values_above_a_limit_are_counted() {
        assert_eq!(above(&[1.0, 2.0, 3.0, 4.0], 3.0), Some(0.25));
        assert_eq!(above(&[], 3.0), None);
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
