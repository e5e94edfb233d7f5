//! M3: how long it takes to sample a node while threads keep its CPU busy (Vaidyanathan et al. 2006, 5.1.1), and how long
//! it takes until a load step is seen.

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Scheme;

use super::{Schemes, close, drawing, load, panel};
use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::figure::Axis;
use crate::results::load::{Found, Placement, Steps, Times};
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::{Fixed, Table};

const THREADS: &[u32] = &[1, 2, 4, 8, 16, 32, 64];
const THREADS_QUICK: &[u32] = &[1, 64];
/// Thread counts at which load steps are made.
const STEPS_AT: &[u32] = &[1, 4, 16, 64];
/// Seconds of samples, and of steps.
const TIMES: [u64; 2] = [5, 30];
const TIMES_QUICK: [u64; 2] = [2, 6];
/// Target for one-sided schemes: the p50 at 64 threads over the p50 at one.
const RATIO_MAX: f64 = 1.2;
/// A figure has grown if its ratio is above this.
const GROWTH_MIN: f64 = RATIO_MAX;
/// Target for rdma-sync's p99 from a step to its being seen, at 64 threads, in us.
const SEEN_US_MAX: f64 = 1000.0;
/// Target for the ratio of socket-sync's p99 to it.
const SEEN_RATIO_MIN: f64 = 20.0;
const MOST: u32 = 64;

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    scheme: Scheme,
    background_threads: u32,
    placement: Placement,
    latency: Times,
    /// `None` if no steps were made.
    step: Option<Steps>,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    scheme: Scheme,
    background_threads: u32,
    latency_us_p50: Option<Fixed<3>>,
    latency_us_p99: Option<Fixed<3>>,
    latency_us_max: Option<Fixed<3>>,
}

/// A line of `steps.csv`.
#[derive(Debug, Serialize)]
struct StepLine {
    scheme: Scheme,
    background_threads: u32,
    seen_us_p50: Option<Fixed<3>>,
    seen_us_p99: Option<Fixed<3>>,
    seen_us_max: Option<Fixed<3>>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let (threads, [seconds_of_samples, seconds_of_steps]) =
        if bench.options.quick { (THREADS_QUICK, TIMES_QUICK) } else { (THREADS, TIMES) };
    let schemes = Schemes::here(bench)?;
    let steps = bench.table("steps.csv")?;
    study::run(bench, Latency { schemes, threads, seconds_of_samples, seconds_of_steps, steps })
}

#[derive(Serialize)]
struct Latency {
    schemes: Schemes,
    threads: &'static [u32],
    seconds_of_samples: u64,
    seconds_of_steps: u64,
    #[serde(skip)]
    steps: Table,
}

impl Study for Latency {
    type Row = Row;
    type Line = TableLine;

    fn plan(&self) -> Vec<Duration> {
        let time = |threads: &u32| {
            let steps = if STEPS_AT.contains(threads) { self.seconds_of_steps } else { 0 };
            Duration::from_secs(self.seconds_of_samples + steps)
        };
        self.threads.iter().flat_map(|threads| vec![time(threads); self.schemes.all.len()]).collect()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Latency>) -> Result<()> {
        for &threads in self.threads {
            // The schemes take turns, so that a drift of the machine affects all of them.
            for scheme in self.schemes.all.clone() {
                let name = bench.name(format!("{threads}-{scheme}"));
                bench.begin(&name);
                let [samples, steps] = [self.seconds_of_samples, self.seconds_of_steps];
                let (placement, latency) = measure(bench, "latency", scheme, threads, samples, &name)?;
                let step = STEPS_AT.contains(&threads).then(|| -> Result<Steps> {
                    Ok(measure(bench, "step", scheme, threads, steps, &name)?.1)
                });
                let step = step.transpose()?;
                if let Some(step) = &step {
                    let [seen_us_p50, seen_us_p99, seen_us_max] = fixed(&step.times);
                    let background_threads = threads;
                    self.steps.write(StepLine {
                        scheme,
                        background_threads,
                        seen_us_p50,
                        seen_us_p99,
                        seen_us_max,
                    })?;
                }
                rows.push(self, Row { scheme, background_threads: threads, placement, latency, step })?;
                bench.end();
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { scheme, background_threads, .. } = *row;
        let [latency_us_p50, latency_us_p99, latency_us_max] = fixed(&row.latency);
        vec![TableLine { scheme, background_threads, latency_us_p50, latency_us_p99, latency_us_max }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |(what, times): (&str, &Times)| {
            let Times { p50_us: Some(p50), p99_us: Some(p99), max_us: Some(max), .. } = *times else {
                return Vec::new();
            };
            let what = format!("{what} by {}, {} threads, us", row.scheme, row.background_threads);
            vec![
                Bound::new(format!("{what}: p50"), p50, 0.0..=p99),
                Bound::new(format!("{what}: p99"), p99, p50..=max),
            ]
        };
        let step = row.step.as_ref().map(|step| ("a step seen", &step.times));
        [("a sample", &row.latency)].into_iter().chain(step).flat_map(of).collect()
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(self, rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        tell(self, rows, story);
    }
}

/// The output of `perf load` for a measurement of `seconds`.
fn measure<T: TryFrom<Found>>(
    bench: &Bench<'_>,
    measure: &str,
    scheme: Scheme,
    threads: u32,
    seconds: u64,
    name: &str,
) -> Result<(Placement, T)> {
    let (count, time) = (threads.to_string(), seconds.to_string());
    let arguments = [measure, "--scheme", scheme.as_str(), "--background", &count, "--for", &time];
    load(bench, &format!("{measure}-{name}"), &arguments, Duration::from_secs(seconds))
}

fn fixed(times: &Times) -> [Option<Fixed<3>>; 3] {
    [times.p50_us, times.p99_us, times.max_us].map(|us| us.map(Fixed))
}

fn find(rows: &[Row], scheme: Scheme, threads: u32) -> Option<&Row> {
    rows.iter().find(|row| row.scheme == scheme && row.background_threads == threads)
}

/// The ratio of a figure of the samples at 64 threads to that at one.
fn growth(rows: &[Row], scheme: Scheme, figure: fn(&Times) -> Option<f64>) -> Option<f64> {
    let at = |threads| find(rows, scheme, threads).and_then(|row| figure(&row.latency));
    Some(at(MOST)? / at(1).filter(|one| *one > 0.0)?)
}

fn seen(rows: &[Row], scheme: Scheme, threads: u32, figure: fn(&Times) -> Option<f64>) -> Option<f64> {
    find(rows, scheme, threads)?.step.as_ref().and_then(|step| figure(&step.times))
}

/// The p99 from a step to its being seen at 64 threads. A step that was never seen took longer than any other.
fn seen_p99(rows: &[Row], scheme: Scheme) -> Option<f64> {
    let step = find(rows, scheme, MOST)?.step.as_ref()?;
    if step.unseen * 100 > step.times.samples { Some(f64::INFINITY) } else { step.times.p99_us }
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let flat = [Scheme::RdmaAsync, Scheme::RdmaSync, Scheme::ERdmaSync].map(|scheme| {
        let what = format!("a sample by {scheme}, p50: {MOST} busy threads / 1");
        Check::at_most(what, RATIO_MAX, growth(rows, scheme, |times| times.p50_us))
    });
    let growing = [Scheme::SocketAsync, Scheme::SocketSync].map(|scheme| {
        let what = format!("a sample by {scheme}, mean: {MOST} busy threads / 1: it grows");
        Check::at_least(what, GROWTH_MIN, growth(rows, scheme, |times| times.mean_us))
    });
    let ours = seen_p99(rows, Scheme::RdmaSync);
    let sockets = seen_p99(rows, Scheme::SocketSync);
    let step = [
        Check::at_most(
            format!("load step to its being seen by rdma-sync, p99 at {MOST} threads, µs"),
            SEEN_US_MAX,
            ours,
        ),
        Check::at_least(
            format!("the same by socket-sync / by rdma-sync, p99 at {MOST} threads"),
            SEEN_RATIO_MIN,
            sockets.zip(ours.filter(|us| *us > 0.0)).map(|(sockets, ours)| sockets / ours),
        ),
    ];
    flat.into_iter().chain(growing).chain(step).collect()
}

fn draw(study: &Latency, rows: &[Row]) -> Drawing {
    let schemes = &study.schemes;
    let x = ("busy threads on the node's CPU", study.threads);
    let log = |title: &'static str| move |values: &[f64]| Axis::powers_of_ten(title, values.iter().copied());
    let sample = panel("(a) a sample", x, log("mean (µs)"), schemes, |scheme, threads| {
        Some(find(rows, scheme, threads)?.latency.mean_us?.log10())
    });
    let step = panel("(b) from a step to its being seen", x, log("p50 (µs)"), schemes, |scheme, threads| {
        Some(seen(rows, scheme, threads, |times| times.p50_us)?.log10())
    });
    drawing(schemes, [sample, step])
}

fn tell(settings: &Latency, rows: &[Row], report: &mut Story) {
    report.heading("The paper beside ours");
    report.paragraph(
        "Vaidyanathan et al. 2006, 5.1.1: \"the monitoring latency of both Socket-Async and Socket-Sync increase linearly with the increase in the \
         background load. On the other hand, the monitoring latency of RDMA-Async and RDMA-Sync scheme which use one-side \
         communication, stays the same without getting affected by the background load.\" It prints no figures of Figure 3.",
    );
    let paper = |scheme| match scheme {
        Scheme::SocketAsync | Scheme::SocketSync => "increases linearly",
        Scheme::ERdmaSync => "– (not in Figure 3)",
        _ => "stays the same",
    };
    let lines = settings.schemes.all.iter().map(|scheme| {
        let at = |threads, figure: fn(&Times) -> Option<f64>| {
            number(find(rows, *scheme, threads).and_then(|row| figure(&row.latency)), 3)
        };
        let grown = growth(rows, *scheme, |times| times.mean_us);
        vec![
            scheme.to_string(),
            paper(*scheme).to_owned(),
            at(1, |times| times.p50_us),
            at(MOST, |times| times.p50_us),
            number(growth(rows, *scheme, |times| times.p50_us), 2),
            at(1, |times| times.mean_us),
            at(MOST, |times| times.mean_us),
            number(grown, 2),
            report.holds(is_as_published(rows, *scheme)).to_owned(),
        ]
    });
    let lines: Vec<_> = lines.collect();
    report.table(
        &[
            "",
            "paper",
            "1 thread, p50, µs",
            "64, p50",
            "64 / 1",
            "1 thread, mean",
            "64, mean",
            "64 / 1",
            "its shape",
        ],
        lines,
    );
    report.checks();

    report.heading("Samples");
    report.table(
        &[
            "busy threads",
            "scheme",
            "samples",
            "p50, µs",
            "p99, µs",
            "most, µs",
            "mean, µs",
            "without a record",
        ],
        rows.iter().map(|row| times_line(row, &row.latency, row.latency.unusable)),
    );
    report.paragraph(
        "A sample each millisecond, taken as an edge takes it; if one takes longer, the next follows at once. A busy thread \
         computes on 64 KB for some 100 µs and then sends a message of 1 KB over a TCP connection of its own, to itself: it \
         never sleeps. One-sided samples are judged by their p50, as all other work of the machine falls to the sampling \
         side's CPU and shows in the tail; sockets by their mean, as there are many samples while the node has its turn and few \
         while it waits.",
    );
    report.heading("From a load step to its being seen");
    let stepped = rows.iter().filter_map(|row| Some((row, row.step.as_ref()?)));
    report.table(
        &["busy threads", "scheme", "steps", "p50, µs", "p99, µs", "most, µs", "mean, µs", "not seen"],
        stepped.map(|(row, step)| times_line(row, &step.times, step.unseen)),
    );
    report.paragraph(
        "Four threads that sleep on the node's CPU are woken by the sampling side, which then samples again and again, without \
         a pause, until the record shows all of them beside the busy ones. T is 50 ms, as the paper's (5), for the schemes in which \
         a thread refreshes the record. The paper has no such figure.",
    );
    let unclear: u64 = rows.iter().filter_map(|row| Some(row.step.as_ref()?.unclear)).sum();
    let describe = rows.first().map(|row| row.placement.describe()).unwrap_or_default();
    let how = format!(
        "{describe} The record is the machine's. {} s of samples and {} s of steps each; {unclear} steps were left out because the \
         record showed as many threads before.",
        settings.seconds_of_samples, settings.seconds_of_steps,
    );
    close(report, &settings.schemes, &[], &how);
}

/// Whether a scheme's samples behave as in the paper.
fn is_as_published(rows: &[Row], scheme: Scheme) -> Option<bool> {
    match scheme {
        Scheme::SocketAsync | Scheme::SocketSync => {
            growth(rows, scheme, |times| times.mean_us).map(|growth| growth >= GROWTH_MIN)
        }
        _ => growth(rows, scheme, |times| times.p50_us).map(|growth| growth <= RATIO_MAX),
    }
}

fn times_line(row: &Row, times: &Times, last: u64) -> Vec<String> {
    let Times { samples, p50_us, p99_us, max_us, mean_us, .. } = times;
    let us = [p50_us, p99_us, max_us, mean_us].map(|us| number(*us, 2));
    let head = [row.background_threads.to_string(), row.scheme.to_string(), samples.to_string()];
    head.into_iter().chain(us).chain([last.to_string()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(us: f64) -> Times {
        Times {
            samples: 100,
            p50_us: Some(us),
            p99_us: Some(2.0 * us),
            max_us: Some(3.0 * us),
            mean_us: Some(us),
            unusable: 0,
        }
    }

    fn row(scheme: Scheme, threads: u32, us: f64, seen_us: f64) -> Row {
        let placement = Placement { node_cpu: Some(0), this_cpu: Some(1) };
        let step = Some(Steps { threads: 4, unseen: 0, unclear: 0, times: times(seen_us) });
        Row { scheme, background_threads: threads, placement, latency: times(us), step }
    }

    #[test]
    fn one_sided_is_to_stay_and_sockets_to_grow() {
        let rows = [
            row(Scheme::SocketSync, 1, 40.0, 80.0),
            row(Scheme::SocketSync, 64, 7000.0, 50_000.0),
            row(Scheme::RdmaSync, 1, 0.2, 20.0),
            row(Scheme::RdmaSync, 64, 0.21, 100.0),
        ];
        let verdicts = |rows: &[Row]| checks(rows).iter().map(Check::verdict).collect::<Vec<_>>();
        let not = "not measured";
        assert_eq!(verdicts(&rows), [not, "met", not, not, "met", "met", "met"]);
        assert_eq!(checks(&rows)[6].measured, Some(500.0));
        let slow = [row(Scheme::RdmaSync, 1, 0.2, 20.0), row(Scheme::RdmaSync, 64, 0.3, 600.0)];
        assert_eq!(verdicts(&slow), [not, "MISSED", not, not, not, "MISSED", not]);
    }

    #[test]
    fn steps_that_are_not_seen_are_no_fast_ones() {
        let mut blind = row(Scheme::RdmaSync, 64, 0.2, 1.0);
        blind.step.as_mut().unwrap().unseen = 2;
        assert_eq!(seen_p99(&[blind], Scheme::RdmaSync), Some(f64::INFINITY));
    }
}
