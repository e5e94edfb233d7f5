//! QA: sessions of the auction that get through whole while more persons come than can be served. A person leaves at the first
//! rejection, so that what was spent on the session is lost.
//!
//! Each run has servers, and data, of its own. The systems take turns. What all servers together can serve is measured first, so that the
//! load is as high for those of any machine.

mod stage;

use std::time::{Duration, Instant};

use serde_json::json;
use sidelong_figure::Style;
use sidelong_workload::walk::{Completion, End, INTERACTIONS_MEAN, Interaction};

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::peers::{self, Found, Peer};
use crate::samples::Samples;
use stage::{Load, Ran};

const NODES: usize = 2;
const WORKERS: u16 = 2;
/// CPUs of each node. With all of them busy, two thirds of a machine of two CPUs are left to the systems and to the persons.
const SHARE: f64 = 0.3;
/// The target: 99 of 100 answers begin within this time, the longest that does not interrupt a person's train of thought (Nielsen,
/// Usability Engineering, 1993, 5.5).
const TARGET: Duration = Duration::from_secs(1);
/// A person who gets no page within this time leaves.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of RUBiS's think times: a session takes some seconds.
const THINK_FACTOR: f64 = 0.02;
/// Longer than a person thinks (70 s at most, by the factor).
const VISIT: Duration = Duration::from_secs(5);
/// Requests that are worth more: forms, and the pages on the way to a bid or a purchase.
const WORTH_MORE: [&str; 3] = ["POST /", "/items/*/bid", "/items/*/buy"];

/// To find what the servers can serve: more persons than that, who leave at nothing and could ask for 1,000 requests/s. All begin at the
/// first page, which costs little, so that it takes some of their sessions until the mix is the usual one.
const PERSONS: u32 = 150;
const CAPACITY_TIME: Duration = Duration::from_secs(14);
const CAPACITY_SETTLE: Duration = Duration::from_secs(7);
/// Sessions that arrive, in those that could be served; in full and quick.
const LOADS: [&[u32]; 2] = [&[1, 2], &[JUDGED]];
/// The load that is judged.
const JUDGED: u32 = 2;
/// How long sessions arrive until it is measured: longer than one of them takes, as queues are full only then. And are measured, in full
/// and quick.
const SETTLE: Duration = Duration::from_secs(12);
const TIMES: [Duration; 2] = [Duration::from_secs(40), Duration::from_secs(14)];
/// Time to make the data, and to start and end a run.
const START: Duration = Duration::from_secs(10);

/// The target.
const RATIO_MIN: f64 = 1.2;
/// How late the load itself may be, at the 99th percentile.
const LAG_MS_MAX: f64 = 100.0;

/// A system under test. Those of ours differ in what is rejected last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    None,
    Peer(Peer),
    /// Clients are admitted or rejected, and nothing is rejected last.
    ByClient,
    /// Clients on a visit are.
    ByVisit,
    /// Requests that are worth more are.
    ByPriority,
    /// Both are.
    Ours,
}

/// Others that limit requests.
const PEERS: [Peer; 3] = [Peer::Haproxy, Peer::EnvoyAdaptive, Peer::EnvoyAdmission];
const OURS: [System; 4] = [System::ByClient, System::ByVisit, System::ByPriority, System::Ours];

impl System {
    const fn word(self) -> &'static str {
        match self {
            System::None => "none",
            System::Peer(peer) => peer.word(),
            System::ByClient => "by-client",
            System::ByVisit => "by-visit",
            System::ByPriority => "by-priority",
            System::Ours => "ours",
        }
    }
}

pub(crate) const QA: Experiment = Experiment::new(
    "QA",
    OWN,
    "whole sessions of the auction at twice the load: Sidelong, HAProxy, Envoy",
    Design {
        repeat: [3, 1],
        dimensions: &[
            // In what all servers together can serve; and what that is.
            Dimension::new("offered_load", "load", &[]),
            Dimension::new(
                "system",
                "system",
                &[
                    Word::new("none", "none", Style::series(0)),
                    Word::new("haproxy", "haproxy", Style::series(1)),
                    Word::new("envoy-adaptive", "envoy-adaptive", Style::series(2)),
                    Word::new("envoy-admission", "envoy-admission", Style::series(3)),
                    Word::new("by-client", "by-client", Style::series(4)),
                    Word::new("by-visit", "by-visit", Style::series(5)),
                    Word::new("by-priority", "by-priority", Style::series(6)),
                    Word::new("ours", "ours", Style::series(7)),
                ],
            ),
        ],
        cases: &["1,2/*", "capacity/none"],
        measures: &[
            Measure::new("seconds", "s", [1, 0]),
            Measure::new("begun", "sessions begun", [0, 0]),
            // That got through whole, that an error or a rejection ended, and those of them whose first page it was.
            Measure::new("whole", "whole", [0, 0]),
            Measure::new("left", "left", [0, 0])
                .possible(|case| 0.0..=case.most("rejected") + case.most("failed")),
            Measure::new("left_at_first", "left at the first page", [0, 0])
                .possible(|case| 0.0..=case.most("left")),
            // Bids and purchases that were stored.
            Measure::new("bids", "bids", [0, 0]),
            Measure::new("requests", "requests", [0, 0]),
            Measure::new("rejected", "rejected", [0, 0]),
            Measure::derived("begun_per_s", "sessions begun/s", 2),
            Measure::derived("whole_per_s", "whole/s", 2),
            Measure::derived("whole_part", "whole, of those begun", 3),
            Measure::derived("at_first_part", "left at the first page, of those that left", 3),
            Measure::derived("bids_per_s", "bids and purchases/s", 2),
            Measure::derived("answered_per_s", "requests/s answered", 1),
            // Of requests that were answered.
            Measure::new("p99_ms", "p99, ms", [1, 0]),
            Measure::derived("rejected_part", "rejected, of all requests", 3),
            Measure::new("failed", "failed", [0, 0])
                .possible(|case| 0.0..=case.most("requests") - case.most("rejected")),
            Measure::new("lag_ms", "the load's own delay, p99, ms", [1, 1]).possible(|_| 0.0..=LAG_MS_MAX),
            Measure::new("sessions_per_s", "sessions/s that can be served", [2, 1]),
        ],
        charts: &[
            Chart::bars("(a) sessions that got through whole", "whole_per_s", "offered_load", "system")
                .of("1,2/*"),
            Chart::bars("(b) bids and purchases", "bids_per_s", "offered_load", "system").of("1,2/*"),
            Chart::bars("(c) answered requests", "p99_ms", "offered_load", "system").of("1,2/*"),
        ],
        settings: |quick| {
            json!({
                "run_s": TIMES[usize::from(quick)].as_secs_f64(),
                "settle_s": SETTLE.as_secs(),
                "nodes": NODES,
                "workers": WORKERS,
                "share": SHARE,
                "persons": PERSONS,
                "think_factor": THINK_FACTOR,
                "patience_s": PATIENCE.as_secs(),
                "target_ms": TARGET.as_millis(),
                "visit_s": VISIT.as_secs(),
                "worth_more": WORTH_MORE.join(", "),
                // What the others were told, and those that are not here.
                "told": [],
                "missing": [],
            })
        },
        template: include_str!("sessions.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (loads, time) = (bench.either(LOADS), bench.either(TIMES));
    let peers::Looked { here, missing } = peers::find(bench, &PEERS)?;
    bench.set("missing", missing);
    let here = here.into_iter().map(|(peer, found)| (System::Peer(peer), Some(found)));
    let ours = OURS.map(|system| (system, None));
    let systems: Vec<(System, Option<Found>)> =
        [(System::None, None)].into_iter().chain(here).chain(ours).collect();
    let plan =
        [CAPACITY_TIME + START].into_iter().chain(vec![SETTLE + time + START; loads.len() * systems.len()]);
    bench.rounds(&plan.collect::<Vec<_>>(), |bench| {
        let name = bench.name("capacity");
        bench.begin(&name);
        let requests_per_s = capacity(bench, &name)?;
        bench.end();
        let sessions_per_s = requests_per_s / INTERACTIONS_MEAN;
        bench.sample("capacity/none", [("sessions_per_s", sessions_per_s)])?;
        let place = stage::place(bench, requests_per_s);
        let told = systems.iter().filter_map(|(system, found)| match (system, found) {
            (System::Peer(peer), Some(found)) => Some(peer.told(found, &place)),
            _ => None,
        });
        bench.set("told", told.collect::<Vec<_>>());
        for load in loads {
            for (system, found) in &systems {
                let name = bench.name(format!("{load}-{}", system.word()));
                bench.begin(&name);
                let per_s = f64::from(*load) * sessions_per_s;
                let walk = Load::Arrive { per_s, time: SETTLE + time };
                let ran = stage::run(bench, *system, found.as_ref(), &place, &name, walk)?;
                bench.end();
                bench.sample(&format!("{load}/{}", system.word()), figures(&ran, time))?;
            }
        }
        Ok(())
    })
}

/// What happened in the time that is measured.
fn figures(ran: &Ran, time: Duration) -> Vec<(&'static str, f64)> {
    let window = ran.began + SETTLE..ran.began + SETTLE + time;
    let within: Vec<_> = ran.completions.iter().filter(|done| window.contains(&done_at(done))).collect();
    let count = |is: &dyn Fn(&Completion) -> bool| within.iter().filter(|done| is(done)).count() as f64;
    let is_answered = |done: &Completion| done.error.is_none();
    let is_rejected = |done: &Completion| done.error.is_some_and(|error| error.is_overload());
    let is_bid = |done: &Completion| {
        let is_one = matches!(done.interaction, Interaction::StoreBid | Interaction::StoreBuyNow);
        is_one && is_answered(done) && !done.is_against_rules
    };
    let mut times: Vec<Duration> =
        within.iter().filter(|done| is_answered(done)).map(|done| done.time).collect();
    times.sort_unstable();
    let mut figures = vec![
        ("seconds", time.as_secs_f64()),
        ("begun", count(&|done| done.is_first)),
        ("whole", count(&|done| done.end == Some(End::Whole))),
        ("left", count(&|done| done.end == Some(End::Left))),
        ("left_at_first", count(&|done| done.end == Some(End::Left) && done.is_first)),
        ("bids", count(&is_bid)),
        ("requests", within.len() as f64),
        ("rejected", count(&is_rejected)),
        ("failed", count(&|done| !is_answered(done) && !is_rejected(done))),
        ("lag_ms", ran.lag_ms),
    ];
    let p99 = times.get(times.len() * 99 / 100).map(|time| time.as_secs_f64() * 1e3);
    figures.extend(p99.map(|ms| ("p99_ms", ms)));
    figures
}

/// What all servers together can serve, in requests/s, of the mix that sessions have if none is cut short.
fn capacity(bench: &Bench<'_>, name: &str) -> Result<f64> {
    let walk = Load::Stay { persons: PERSONS, time: CAPACITY_TIME };
    let ran = stage::run(bench, System::None, None, &stage::place(bench, 1.0), name, walk)?;
    let within = ran.began + CAPACITY_SETTLE..ran.began + CAPACITY_TIME;
    let answered =
        ran.completions.iter().filter(|done| done.error.is_none() && within.contains(&done_at(done)));
    Ok(answered.count() as f64 / (within.end - within.start).as_secs_f64())
}

fn done_at(done: &Completion) -> Instant {
    done.sent_at + done.time
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    for (part, of, all) in [
        ("begun_per_s", "begun", "seconds"),
        ("whole_per_s", "whole", "seconds"),
        ("whole_part", "whole", "begun"),
        ("at_first_part", "left_at_first", "left"),
        ("bids_per_s", "bids", "seconds"),
        ("rejected_part", "rejected", "requests"),
    ] {
        samples.derive(part, "*/*", |samples, case| &samples[case][of] / &samples[case][all]);
    }
    samples.derive("answered_per_s", "*/*", |samples, case| {
        let figures = &samples[case];
        (&figures["requests"] - &figures["rejected"] - &figures["failed"]) / &figures["seconds"]
    });
    let check = |peer: Peer| {
        let whole = |system| &samples[format!("{JUDGED}/{system}")]["whole_per_s"];
        let what = format!("whole sessions at {JUDGED} times the load: ours / {}", peer.word());
        Check::at_least(what, RATIO_MIN, whole("ours") / whole(peer.word()))
    };
    PEERS.map(check).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use sidelong_workload::client::ErrorKind;

    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn what_happens_in_the_window_is_counted() {
        let began = Instant::now();
        let done = |at_s: f64, interaction, end| Completion {
            interaction,
            is_first: interaction == Interaction::Home,
            sent_at: began + Duration::from_secs_f64(SETTLE.as_secs_f64() + at_s),
            time: Duration::from_millis(500),
            error: None,
            is_against_rules: false,
            end,
        };
        let failed = |error, at_s| Completion {
            error: Some(error),
            end: Some(End::Left),
            ..done(at_s, Interaction::ViewItem, None)
        };
        let completions = vec![
            done(-0.6, Interaction::Home, None),
            done(-0.4, Interaction::Home, None),
            done(1.0, Interaction::StoreBid, Some(End::Whole)),
            Completion { is_against_rules: true, ..done(2.0, Interaction::StoreBid, None) },
            done(3.0, Interaction::StoreBuyNow, Some(End::Marred)),
            failed(ErrorKind::Unavailable, 4.0),
            failed(ErrorKind::Rejected, 4.0),
            failed(ErrorKind::Timeout, 4.0),
            done(9.6, Interaction::StoreBid, Some(End::Whole)),
        ];
        let ran = Ran { completions, began, lag_ms: 2.0 };
        let figures = BTreeMap::from_iter(figures(&ran, Duration::from_secs(10)));
        let counts = ["begun", "whole", "left", "left_at_first", "bids", "requests", "rejected", "failed"];
        assert_eq!(counts.map(|name| figures[name]), [1.0, 1.0, 3.0, 0.0, 2.0, 7.0, 2.0, 1.0]);
        assert_eq!((figures["p99_ms"], figures["seconds"]), (500.0, 10.0));
    }

    #[test]
    fn ours_is_judged_against_each_limiter_at_the_judged_load() {
        let verdicts = judged(&QA, |samples| {
            for (case, whole) in [
                ("1/ours", 10.0),
                ("2/ours", 60.0),
                ("2/by-client", 10.0),
                ("2/haproxy", 50.0),
                ("2/envoy-adaptive", 51.0),
            ] {
                samples.put(case, [("whole", whole), ("seconds", 10.0)]);
            }
        });
        assert_eq!(verdicts, ["met", "MISSED", "not measured"]);
        let words = PEERS.map(Peer::word);
        assert_eq!(words, ["haproxy", "envoy-adaptive", "envoy-admission"], "as they are declared");
    }
}
