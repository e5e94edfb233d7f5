//! A3 to A5: response times, rejections and late answers, over time and in all (Lai et al. 2008, "Instant performance", "QoS
//! analysis"). The same runs, of which each experiment judges and shows another side.

use std::time::Duration;

use serde_json::{Value, json};

use super::watch::{self, INTERVAL_S, LATE_MS, LONG_MS, SETTLED_S};
use super::{CLIENTS_AT_ONE_LOAD, PERIOD, SYSTEM, System};
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::experiment::Experiment;
use crate::measure::{Case, Dimension, Measure, Word};
use crate::samples::Samples;
use crate::series::Series;

/// The duration of a run of A3 and A4, in whole bursts, in full and quick.
const TIMES: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(4)];
/// A5's numbers of clients in the closed loop, those of A2 in full, and the duration of a run.
const CLIENTS: [&[u32]; 2] = [&[40, 120, 200, 280, 360, 440, 520], &[280, 520]];
const TIMES_BY_CLIENTS: [Duration; 2] = [Duration::from_secs(8), Duration::from_secs(3)];

/// Largest share that counts as "almost no such requests".
const ALMOST_NONE: f64 = 0.01;
/// Correlation from which one series explains at least half of the variance of the other (the root of 0.5).
const FOLLOWS: f64 = 0.7;
/// Clients count as served at the target while at most this share of the answers is later.
const LATE_MAX: f64 = 0.1;

pub(crate) const A3: Experiment = Experiment::new(
    "A3",
    "Lai et al. 2008, instant performance",
    "response time over time: no, TCP and one-sided admission control",
    Design {
        charts: &[
            over_time("(a) closed loop, 400 clients", "mean_ms", "closed/400/*/*").limit(LONG_MS, PUBLISHED),
            over_time("(b) open loop, bursts of twice what can be done", "mean_ms", "open/400/*/*")
                .limit(LONG_MS, PUBLISHED),
        ],
        conclude: |samples| {
            derive(samples);
            responses(samples)
        },
        ..AT_ONE_LOAD
    },
);

pub(crate) const A4: Experiment = Experiment::new(
    "A4",
    "Lai et al. 2008, instant performance",
    "rejections over time: no, TCP and one-sided admission control",
    Design {
        charts: &[
            over_time("(a) closed loop, 400 clients", "rejected_part", "closed/400/*/*"),
            over_time("(b) open loop, bursts of twice what can be done", "rejected_part", "open/400/*/*"),
        ],
        conclude: |samples| {
            derive(samples);
            drops(samples)
        },
        ..AT_ONE_LOAD
    },
);

pub(crate) const A5: Experiment = Experiment::new(
    "A5",
    "Lai et al. 2008, QoS analysis",
    "answers later than promised: no, TCP and one-sided admission control",
    Design {
        cases: &["closed/40,120,200,280,360,440,520/*/all", "open/400/*/all"],
        charts: &[
            Chart::lines("(a) closed loop", "late_part", "clients", "system").linear().of("closed/*/*/all"),
            over_time("(b) closed loop, 520 clients", "late_part", "closed/520/*/*"),
            over_time("(c) open loop, in bursts", "late_part", "open/400/*/*"),
        ],
        settings: |quick| settings(TIMES_BY_CLIENTS[usize::from(quick)]),
        run: |bench| {
            let (clients, time) = (bench.either(CLIENTS), bench.either(TIMES_BY_CLIENTS));
            watch::run(bench, clients, time)
        },
        conclude: |samples| {
            derive(samples);
            in_time(samples)
        },
        ..AT_ONE_LOAD
    },
);

const PUBLISHED: &str = "192 ms, the published mean with 520 clients and no admission control";

const AT_ONE_LOAD: Design = Design {
    repeat: [3, 3],
    dimensions: &[
        Dimension::new("loop", "loop", &[Word::plain("closed", "closed"), Word::plain("open", "open")]),
        Dimension::new("clients", "clients", &[]),
        SYSTEM,
        // The middle of an interval, or the whole run.
        Dimension::new("t_s", "time (s)", &[Word::plain("all", "all")]),
    ],
    cases: &["*/400/*/all"],
    measures: &[
        Measure::new("requests", "requests", [0, 0]),
        Measure::new("answered", "answers", [0, 0]).possible(of_all),
        Measure::new("rejected", "rejected", [0, 0]).possible(of_all),
        Measure::new("failed", "failed", [0, 0]).possible(of_all),
        Measure::derived("rejected_part", "rejected, of all", 3),
        Measure::new("mean_ms", "mean response, ms", [3, 0]).possible(|case| 0.0..=case.most("max_ms")),
        Measure::new("p99_ms", "p99, ms", [3, 0]).possible(|case| 0.0..=case.most("max_ms")),
        Measure::new("max_ms", "longest, ms", [3, 0]),
        Measure::new("long", "over 192 ms", [0, 0]).possible(of_answered),
        Measure::derived("long_part", "of them over 192 ms", 4),
        Measure::new("late", "later than 150 ms", [0, 0]).possible(of_answered),
        Measure::derived("late_part", "later than 150 ms, of those answered", 3),
        Measure::new("in_time_per_s", "answers in time/s", [1, 0]),
        Measure::derived("clients_served", "clients with at most a tenth later", 0),
        Measure::new("follows", "follows the load", [4, 2]).possible(|_| -1.0..=1.0),
        Measure::new("drops_mean", "streaks of drops: mean", [2, 1]),
        Measure::new("drops_longest", "longest", [0, 0]),
        Measure::new("drops_longest_ms", "longest, ms", [1, 1]),
        Measure::new("accepted_mean", "of acceptance: mean", [2, 1]),
        Measure::new("accepted_longest", "longest", [0, 0]),
        Measure::new("accepted_longest_ms", "longest, ms", [1, 1]),
    ],
    settings: |quick| settings(TIMES[usize::from(quick)]),
    template: include_str!("requests.md"),
    run: |bench| {
        let time = bench.either(TIMES);
        watch::run(bench, &[CLIENTS_AT_ONE_LOAD], time)
    },
    ..Design::DEFAULT
};

/// A panel of a measure over time.
const fn over_time(title: &'static str, measure: &'static str, cases: &'static str) -> Chart {
    Chart::lines(title, measure, "t_s", "system").linear().bare().of(cases)
}

fn of_all(case: &Case<'_>) -> std::ops::RangeInclusive<f64> {
    0.0..=case.most("requests")
}

fn of_answered(case: &Case<'_>) -> std::ops::RangeInclusive<f64> {
    0.0..=case.most("answered")
}

fn settings(time: Duration) -> Value {
    let [base, burst] = watch::RATES;
    json!({
        "run_s": time.as_secs_f64(),
        "interval_s": INTERVAL_S,
        "settled_s": SETTLED_S,
        "period_ms": PERIOD.as_millis(),
        "held": null,
        // Requests/s that the server answered to few clients, from which the open loop is set.
        "capacity_per_s": null,
        "clients_of_capacity": watch::CLIENTS_OF_CAPACITY,
        "runs_of_capacity": watch::RUNS_OF_CAPACITY,
        "base": base,
        "burst": burst,
        "burst_s": watch::BURST.as_secs_f64(),
        "burst_every_s": watch::BURST_EVERY.as_secs(),
        "addresses": CLIENTS_AT_ONE_LOAD,
        "long_ms": LONG_MS,
        "late_ms": LATE_MS,
    })
}

fn derive(samples: &mut Samples) {
    for (part, of, all) in [
        ("rejected_part", "rejected", "requests"),
        ("long_part", "long", "answered"),
        ("late_part", "late", "answered"),
    ] {
        samples.derive(part, "*/*/*/*", |samples, case| &samples[case][of] / &samples[case][all]);
    }
}

/// A figure of a whole run.
fn of<'a>(samples: &'a Samples, place: &str, system: &str, measure: &str) -> &'a Series {
    &samples[format!("{place}/{system}/all")][measure]
}

/// Lai et al. 2008: "NoAC: many requests served with very long time; AC-RDMA: almost no such requests".
fn responses(samples: &Samples) -> Vec<Check> {
    let places = ["closed", "open"].into_iter().flat_map(|kind| ["one-sided", "ours"].map(|of| (kind, of)));
    let check = |(kind, system)| {
        let what = format!("{kind} loop, {system}: answers that took more than {LONG_MS} ms");
        let long = of(samples, &format!("{kind}/400"), system, "long_part");
        Check::at_most(what, ALMOST_NONE, long).possible(0.0..=1.0)
    };
    places.map(check).collect()
}

/// Lai et al. 2008: "AC-RDMA: closely reflects the instantaneous changing load on web servers. AC-TCP/IP: longer streak of continuous
/// drops or acceptance".
fn drops(samples: &Samples) -> Vec<Check> {
    let follow = ["one-sided", "ours"].map(|system| {
        let what = format!("open loop, {system}: drop rate with what is offered, correlation");
        Check::at_least(what, FOLLOWS, of(samples, "open/400", system, "follows")).possible(-1.0..=1.0)
    });
    let streaks = ["closed", "open"].into_iter().flat_map(|kind| {
        [("drops", "drops_mean"), ("acceptance", "accepted_mean")].map(|(name, mean)| {
            let what = format!("{kind} loop, mean streak of {name}: tcp / one-sided");
            let mean = |system| of(samples, &format!("{kind}/400"), system, mean);
            Check::at_least(what, 1.0, mean("tcp") / mean("one-sided"))
        })
    });
    follow.into_iter().chain(streaks).collect()
}

/// Lai et al. 2008: "With the same requirement of QoS (e.g., response time), AC-RDMA can serve more clients than the other two systems".
fn in_time(samples: &mut Samples) -> Vec<Check> {
    for system in System::ALL.map(System::word) {
        samples.derive("clients_served", &format!("closed/520/{system}/all"), |samples, _| {
            Series((0..samples.repetitions()).map(|at| clients_served(samples, system, at)).collect())
        });
    }
    [
        ("clients served at the target", "closed/520", "clients_served"),
        ("closed loop, 520 clients, answers in time", "closed/520", "in_time_per_s"),
        ("open loop, 400 clients, answers in time", "open/400", "in_time_per_s"),
    ]
    .into_iter()
    .flat_map(|(what, place, measure)| {
        ["tcp", "none"].map(|other| {
            let ratio = of(samples, place, "one-sided", measure) / of(samples, place, other, measure);
            Check::at_least(format!("{what}: one-sided / {other}"), 1.0, ratio)
        })
    })
    .collect()
}

/// The number of clients at which the share of late answers reaches [`LATE_MAX`], interpolated between those that were run.
/// The largest number that was run if it never does.
fn clients_served(samples: &Samples, system: &str, repetition: usize) -> Option<f64> {
    let (mut clients, mut below) = (0.0, 0.0);
    for case in samples.cases(&format!("closed/*/{system}/all")) {
        let at = |measure: &str| samples[case][measure].at(repetition);
        if at("requests").is_none() {
            continue; // Quick runs leave it out.
        }
        let (more, late): (f64, f64) = (case.split('/').nth(1)?.parse().ok()?, at("late_part")?);
        if late > LATE_MAX {
            return Some(clients + (more - clients) * (LATE_MAX - below) / (late - below));
        }
        (clients, below) = (more, late);
    }
    (clients > 0.0).then_some(clients)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn long_answers_and_streaks_are_judged() {
        let run = |samples: &mut Samples, case: &str, long: f64, streak: f64, follows: f64| {
            let counts = [("requests", 200.0), ("answered", 100.0), ("long", long)];
            let means = [("drops_mean", streak), ("accepted_mean", streak), ("follows", follows)];
            samples.put(&format!("{case}/all"), counts.into_iter().chain(means));
        };
        let fill = |long, streak, follows| {
            move |samples: &mut Samples| {
                for kind in ["closed", "open"] {
                    run(samples, &format!("{kind}/400/one-sided"), long, streak, follows);
                    run(samples, &format!("{kind}/400/tcp"), 90.0, 2.0, 0.0);
                }
            }
        };
        assert_eq!(judged(&A3, fill(1.0, 2.0, 0.7)), ["met", "not measured", "met", "not measured"]);
        assert_eq!(judged(&A3, fill(2.0, 2.0, 0.7))[0], "MISSED");
        assert_eq!(judged(&A4, fill(0.0, 2.0, 0.7)), ["met", "not measured", "met", "met", "met", "met"]);
        assert_eq!(judged(&A4, fill(0.0, 3.0, 0.6))[0..3], ["MISSED", "not measured", "MISSED"]);
    }

    #[test]
    fn clients_are_served_until_too_many_wait_too_long() {
        let mut served = Vec::new();
        let verdicts = judged(&A5, |samples| {
            for (system, late) in [
                ("none", [Some(20.0), Some(100.0), Some(100.0)]),
                ("tcp", [Some(0.0), Some(20.0), Some(50.0)]),
                ("one-sided", [Some(0.0), None, Some(5.0)]),
            ] {
                for (clients, late) in [40, 120, 520].into_iter().zip(late) {
                    let figures = late.map(|late| {
                        let in_time = ("in_time_per_s", 100.0 - late);
                        [("requests", 200.0), ("answered", 100.0), ("late", late), in_time]
                    });
                    let case = format!("closed/{clients}/{system}/all");
                    samples.put(&case, figures.into_iter().flatten());
                }
            }
            let mut samples = samples.clone();
            derive(&mut samples);
            served = ["none", "tcp", "one-sided", "ours"].map(|of| clients_served(&samples, of, 0)).into();
        });
        assert_eq!(served, [Some(20.0), Some(80.0), Some(520.0), None], "as many as there were");
        assert_eq!(verdicts, ["met", "met", "met", "not measured", "not measured", "not measured"]);
    }
}
