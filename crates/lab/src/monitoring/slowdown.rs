//! M4: how much slower an application on the node gets by being looked at, by granularity (M 5.1.2).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelong_config::Scheme;

use super::{Placement, START, Schemes, legend, load, panel};
use crate::bench::Bench;
use crate::check::Check;
use crate::error::Result;
use crate::figure::{self, Axis};
use crate::machine::Machine;
use crate::report::{Markdown, Outcome, number};

/// In ms.
const GRANULARITIES: &[u32] = &[1, 4, 16, 64, 256, 1024];
const GRANULARITIES_QUICK: &[u32] = &[1, 64];
/// Seconds of the application in all.
const SECONDS: u64 = 20;
const SECONDS_QUICK: u64 = 4;
/// Issue 4: rdma-sync's looks at the finest, beyond the cost of its events.
const DELAY_MAX: f64 = 1.01;
const FINEST: u32 = 1;

/// What `perf load slowdown` prints, as far as it is used.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Slowdown {
    rounds: u64,
    alone_ms: f64,
    normalized_delay: f64,
    /// With a node at which nobody looks, over alone.
    kept: f64,
    /// Looked at over that.
    looks: f64,
    #[serde(flatten)]
    placement: Placement,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    scheme: Scheme,
    granularity_ms: u32,
    #[serde(flatten)]
    found: Slowdown,
}

impl Row {
    fn csv(&self) -> String {
        format!("{},{},{:.5}", self.scheme, self.granularity_ms, self.found.normalized_delay)
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Settings {
    schemes: Schemes,
    granularities_ms: Vec<u32>,
    seconds: u64,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    let quick = bench.options.quick;
    let (granularities, seconds) =
        if quick { (GRANULARITIES_QUICK, SECONDS_QUICK) } else { (GRANULARITIES, SECONDS) };
    let schemes = Schemes::here(bench)?;
    let time = Duration::from_secs(seconds) + 10 * START;
    granularities.iter().flat_map(|_| &schemes.all).for_each(|_| bench.expect_for(time));
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let mut rows = Vec::new();
    for &granularity_ms in granularities {
        for &scheme in &schemes.all {
            let name = format!("{granularity_ms}ms-{scheme}");
            bench.begin(&name);
            let (granularity, time_s) = (granularity_ms.to_string(), seconds.to_string());
            let mut arguments = vec![
                "slowdown",
                "--scheme",
                scheme.as_str(),
                "--granularity",
                &granularity,
                "--for",
                &time_s,
            ];
            arguments.extend(quick.then_some("--quick"));
            let row = Row { scheme, granularity_ms, found: load(bench, &name, &arguments, time)? };
            table.rows([row.csv()])?;
            rows.push(row);
            bench.end();
        }
    }
    let checks = checks(&rows);
    bench.write("figure.svg", &draw(bench, &schemes, granularities, &rows)?)?;
    let machine = Machine::here();
    let settings = Settings { schemes, granularities_ms: granularities.to_vec(), seconds };
    let outcome = Outcome::new(bench, &machine, settings, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &markdown(&outcome))?;
    Ok(checks)
}

fn find(rows: &[Row], scheme: Scheme, granularity_ms: u32) -> Option<&Slowdown> {
    let row = rows.iter().find(|row| row.scheme == scheme && row.granularity_ms == granularity_ms)?;
    Some(&row.found)
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let delay = |scheme| find(rows, scheme, FINEST).map(|found| found.normalized_delay);
    // The worst of the others, all of which must be there.
    let others: Option<Vec<f64>> =
        [Scheme::SocketSync, Scheme::RdmaAsync, Scheme::RdmaSync].map(delay).into_iter().collect();
    let worst = others.and_then(|others| others.into_iter().reduce(f64::max));
    vec![
        Check::at_most(
            format!("an application while rdma-sync is looked at each {FINEST} ms / while nobody looks"),
            DELAY_MAX,
            find(rows, Scheme::RdmaSync, FINEST).map(|found| found.looks),
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

fn draw(bench: &Bench<'_>, schemes: &Schemes, granularities: &[u32], rows: &[Row]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let x = ("granularity (ms)", granularities);
    let y = |title: &'static str| {
        move |values: &[f64]| {
            let (least, most) = values.iter().fold((1.0f64, 1.0f64), |(l, m), y| (l.min(*y), m.max(*y)));
            Axis::between(title, least - 0.005, most + 0.01)
        }
    };
    let panels = [
        panel("(a) looked at", x, y("time / time without monitoring"), schemes, |scheme, granularity| {
            find(rows, scheme, granularity).map(|found| found.normalized_delay)
        }),
        panel(
            "(b) what the looks add",
            x,
            y("time / time with a node not looked at"),
            schemes,
            |scheme, granularity| find(rows, scheme, granularity).map(|found| found.looks),
        ),
    ];
    Ok(figure::draw(&title, &panels, &legend(schemes))?)
}

fn markdown(outcome: &Outcome<'_, Row, Settings>) -> String {
    let (rows, settings) = (outcome.rows, &outcome.settings);
    let mut report = Markdown::new(outcome.experiment, outcome.quick);
    report.heading("The paper beside ours");
    report.paragraph(
        "M 5.1.2: \"the application performance degrades significantly when Socket-Async, Socket-Sync and RDMA-Async schemes are \
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
    report.paragraph(&match delays {
        None => "The order of the four cannot be told: not all of them were to be had.".to_owned(),
        Some(delays) if delays.is_sorted_by(|worse, better| worse >= better) => {
            "The paper's order **holds** at 1 ms: socket-async, socket-sync, rdma-async, rdma-sync."
                .to_owned()
        }
        Some(_) => {
            "The paper's order (socket-async, socket-sync, rdma-async, rdma-sync) does **not** hold at 1 ms."
                .to_owned()
        }
    });
    report.checks(outcome.checks);
    report.heading("Measured");
    report.table(
        &[
            "granularity, ms",
            "scheme",
            "delay",
            "for keeping the record",
            "for the looks",
            "alone, ms",
            "rounds",
        ],
        rows.iter().map(|row| {
            let Slowdown { rounds, alone_ms, normalized_delay, kept, looks, .. } = &row.found;
            let [a, b, c] = [normalized_delay, kept, looks].map(|ratio| number(Some(*ratio), 4));
            let head = [row.granularity_ms.to_string(), row.scheme.to_string()];
            head.into_iter().chain([a, b, c, format!("{alone_ms:.1}"), rounds.to_string()]).collect()
        }),
    );
    report.paragraph(
        "The application is floating-point work of known length on the node's CPU. In each round it runs alone, beside a node at \
         which nobody looks, and beside one that is looked at, in turns; figures are medians of the ratios within a round. \
         Threads that refresh the record do so as often as it is looked at. Under rdma-sync and e-rdma-sync nothing of ours \
         runs on the node, and what stands under \"for keeping the record\" is the cost of the kernel's events: its programs at each \
         switch and wake-up, and its timer each millisecond.",
    );
    let describe = rows.first().map(|row| row.found.placement.describe()).unwrap_or_default();
    let how = format!("{describe} {} s of the application for each row, at least.", settings.seconds);
    report.close_beside_m(outcome, &settings.schemes.refused, &[], &how)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scheme: Scheme, normalized_delay: f64, looks: f64) -> Row {
        let placement = Placement { node_cpu: Some(0), this_cpu: Some(1) };
        let kept = normalized_delay / looks;
        let found = Slowdown { rounds: 3, alone_ms: 500.0, normalized_delay, kept, looks, placement };
        Row { scheme, granularity_ms: 1, found }
    }

    #[test]
    fn looks_are_judged_without_the_cost_of_events() {
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
        rows[3].found.looks = 1.02;
        assert_eq!(verdicts(&rows), ["MISSED", "MISSED"]);
    }

    #[test]
    fn a_row_has_the_columns() {
        assert_eq!(row(Scheme::SocketSync, 1.25, 1.0).csv(), "socket-sync,1,1.25000");
    }
}
