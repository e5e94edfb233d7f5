//! M4: how much slower an application on the node gets while the node is sampled, by granularity (Vaidyanathan et al. 2006,
//! 5.1.2).

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Scheme;

use super::{START, Schemes, close, drawing, load, panel};
use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::figure::Axis;
use crate::results::load::{Placement, Slowdown};
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;

/// Granularities in ms.
const GRANULARITIES: &[u32] = &[1, 4, 16, 64, 256, 1024];
const GRANULARITIES_QUICK: &[u32] = &[1, 64];
/// Seconds of the application in all.
const SECONDS: u64 = 20;
const SECONDS_QUICK: u64 = 4;
/// Target for rdma-sync at the finest granularity, beyond the cost of its events.
const DELAY_MAX: f64 = 1.01;
const FINEST: u32 = 1;

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    scheme: Scheme,
    granularity_ms: u32,
    #[serde(flatten)]
    placement: Placement,
    #[serde(flatten)]
    found: Slowdown,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    scheme: Scheme,
    granularity_ms: u32,
    normalized_delay: Fixed<5>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let quick = bench.options.quick;
    let (granularities_ms, seconds) =
        if quick { (GRANULARITIES_QUICK, SECONDS_QUICK) } else { (GRANULARITIES, SECONDS) };
    let schemes = Schemes::here(bench)?;
    study::run(bench, Slowdowns { schemes, granularities_ms, seconds, quick })
}

#[derive(Serialize)]
struct Slowdowns {
    schemes: Schemes,
    granularities_ms: &'static [u32],
    seconds: u64,
    #[serde(skip)]
    quick: bool,
}

impl Slowdowns {
    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds) + 10 * START
    }
}

impl Study for Slowdowns {
    type Row = Row;
    type Line = TableLine;

    fn plan(&self) -> Vec<Duration> {
        vec![self.time(); self.granularities_ms.len() * self.schemes.all.len()]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Slowdowns>) -> Result<()> {
        for &granularity_ms in self.granularities_ms {
            for &scheme in &self.schemes.all {
                let name = bench.name(format!("{granularity_ms}ms-{scheme}"));
                bench.begin(&name);
                let (granularity, time_s) = (granularity_ms.to_string(), self.seconds.to_string());
                let mut arguments = vec!["slowdown", "--scheme", scheme.as_str()];
                arguments.extend(["--granularity", &granularity, "--for", &time_s]);
                arguments.extend(self.quick.then_some("--quick"));
                let (placement, found) = load(bench, &name, &arguments, self.time())?;
                rows.push(self, Row { scheme, granularity_ms, placement, found })?;
                bench.end();
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { scheme, granularity_ms, ref found, .. } = *row;
        vec![TableLine { scheme, granularity_ms, normalized_delay: Fixed(found.normalized_delay) }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        // Sampling makes nothing faster. A tenth is allowed for other differences between runs.
        let of = |what: &str, ratio| {
            Bound::new(
                format!("{}, {} ms: {what}", row.scheme, row.granularity_ms),
                ratio,
                0.9..=f64::INFINITY,
            )
        };
        vec![of("delay", row.found.normalized_delay), of("delay by sampling", row.found.sampling)]
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

fn find(rows: &[Row], scheme: Scheme, granularity_ms: u32) -> Option<&Slowdown> {
    let row = rows.iter().find(|row| row.scheme == scheme && row.granularity_ms == granularity_ms)?;
    Some(&row.found)
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let delay = |scheme| find(rows, scheme, FINEST).map(|found| found.normalized_delay);
    // The slowest of the others, all of which must be present.
    let others: Option<Vec<f64>> =
        [Scheme::SocketSync, Scheme::RdmaAsync, Scheme::RdmaSync].map(delay).into_iter().collect();
    let worst = others.and_then(|others| others.into_iter().reduce(f64::max));
    vec![
        Check::at_most(
            format!("an application while rdma-sync is sampled each {FINEST} ms / while nobody samples"),
            DELAY_MAX,
            find(rows, Scheme::RdmaSync, FINEST).map(|found| found.sampling),
        ),
        Check::at_least(
            format!(
                "its delay by socket-async / by the worst of the other three, at {FINEST} ms: it is the worst"
            ),
            1.0,
            delay(Scheme::SocketAsync).zip(worst).map(|(worst, other)| worst / other),
        ),
    ]
}

fn draw(study: &Slowdowns, rows: &[Row]) -> Drawing {
    let schemes = &study.schemes;
    let x = ("granularity (ms)", study.granularities_ms);
    let y = |title: &'static str| {
        move |values: &[f64]| {
            let (least, most) = values.iter().fold((1.0f64, 1.0f64), |(l, m), y| (l.min(*y), m.max(*y)));
            Axis::between(title, least - 0.005, most + 0.01)
        }
    };
    let panels = [
        panel("(a) sampled", x, y("time / time without monitoring"), schemes, |scheme, granularity| {
            find(rows, scheme, granularity).map(|found| found.normalized_delay)
        }),
        panel(
            "(b) what the samples add",
            x,
            y("time / time with a node not sampled"),
            schemes,
            |scheme, granularity| find(rows, scheme, granularity).map(|found| found.sampling),
        ),
    ];
    drawing(schemes, panels)
}

fn tell(settings: &Slowdowns, rows: &[Row], report: &mut Story) {
    report.heading("The paper beside ours");
    report.paragraph(
        "Vaidyanathan et al. 2006, 5.1.2: \"the application performance degrades significantly when Socket-Async, Socket-Sync and RDMA-Async schemes are \
         running in the background at smaller granularity such as 1 ms and 4 ms\"; Socket-Async \"affects the application \
         performance significantly in comparison with other schemes\", RDMA-Async less than Socket-Sync, and \"there is no \
         performance degradation with RDMA-Sync\". It prints no figures of Figure 4.",
    );
    let delay = |scheme, granularity| find(rows, scheme, granularity).map(|found| found.normalized_delay);
    let coarsest = settings.granularities_ms.last().copied().unwrap_or(FINEST);
    let paper = |scheme| match scheme {
        Scheme::SocketAsync => "the most",
        Scheme::SocketSync => "less",
        Scheme::RdmaAsync => "less than that",
        Scheme::ERdmaSync => "– (not in Figure 4)",
        _ => "none",
    };
    report.table(
        &["", "slows down, by the paper", "at 1 ms", &format!("at {coarsest} ms")],
        settings.schemes.all.iter().map(|scheme| {
            let at = |granularity| number(delay(*scheme, granularity), 4);
            vec![scheme.to_string(), paper(*scheme).to_owned(), at(FINEST), at(coarsest)]
        }),
    );
    let order = [Scheme::SocketAsync, Scheme::SocketSync, Scheme::RdmaAsync, Scheme::RdmaSync];
    let delays: Option<Vec<f64>> = order.iter().map(|scheme| delay(*scheme, FINEST)).collect();
    let holds = report.holds(delays.map(|delays| delays.is_sorted_by(|worse, better| worse >= better)));
    report.paragraph(&format!(
        "The paper's order at 1 ms, socket-async, socket-sync, rdma-async, rdma-sync: {holds}."
    ));
    report.checks();
    report.heading("Measured");
    report.table(
        &[
            "granularity, ms",
            "scheme",
            "delay",
            "for keeping the record",
            "for the samples",
            "alone, ms",
            "rounds",
        ],
        rows.iter().map(|row| {
            let Slowdown { rounds, alone_ms, normalized_delay, kept, sampling, .. } = &row.found;
            let [a, b, c] = [normalized_delay, kept, sampling].map(|ratio| number(Some(*ratio), 4));
            let head = [row.granularity_ms.to_string(), row.scheme.to_string()];
            head.into_iter().chain([a, b, c, format!("{alone_ms:.1}"), rounds.to_string()]).collect()
        }),
    );
    report.paragraph(
        "The application is floating-point work of known length on the node's CPU. In each round it runs alone, beside a node that \
         nobody samples, and beside one that is sampled, in turns; figures are medians of the ratios within a round. \
         Threads that refresh the record do so as often as it is sampled. Under rdma-sync and e-rdma-sync nothing of ours \
         runs on the node, and what stands under \"for keeping the record\" is the cost of the kernel's events: its programs at each \
         switch and wake-up, and its timer each millisecond.",
    );
    let describe = rows.first().map(|row| row.placement.describe()).unwrap_or_default();
    let how = format!("{describe} {} s of the application for each row, at least.", settings.seconds);
    close(report, &settings.schemes, &[], &how);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scheme: Scheme, normalized_delay: f64, sampling: f64) -> Row {
        let placement = Placement { node_cpu: Some(0), this_cpu: Some(1) };
        let kept = normalized_delay / sampling;
        let found = Slowdown { rounds: 3, alone_ms: 500.0, normalized_delay, kept, sampling };
        Row { scheme, granularity_ms: 1, placement, found }
    }

    #[test]
    fn samples_are_judged_without_the_cost_of_events() {
        let mut rows = vec![
            row(Scheme::SocketAsync, 1.2, 1.1),
            row(Scheme::SocketSync, 1.1, 1.1),
            row(Scheme::RdmaAsync, 1.05, 1.0),
        ];
        let verdicts = |rows: &[Row]| checks(rows).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&rows), ["not measured", "not measured"]);
        rows.push(row(Scheme::RdmaSync, 1.03, 1.0));
        assert_eq!(verdicts(&rows), ["met", "met"]);
        rows[1].found.normalized_delay = 1.3;
        rows[3].found.sampling = 1.02;
        assert_eq!(verdicts(&rows), ["MISSED", "MISSED"]);
    }
}
