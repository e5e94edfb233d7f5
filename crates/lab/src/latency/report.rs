//! The report of move-latency.

use super::{BURST, Case, PAUSE, Row};
use crate::report::Settings;
use crate::story::{Story, number};

pub(super) fn tell(settings: &Settings, rows: &[Row], report: &mut Story) {
    report.paragraph(&format!(
        "From the moment at which the load generator begins a burst for a site to that at which an edge sends the first \
         request to a node that moved to the site since. Bursts of {BURST} requests go to three sites in turn; a site that is \
         not loaded is left with the one node of its floor, so every burst is a load step that moves nodes. From rest, there \
         are {} ms between the last answer's burst and the next. Busy, there are none: the nodes that are to move have a queue \
         for their old site, and serve the new one when it is done.",
        PAUSE.as_millis()
    ));
    report.checks();
    report.heading("Measured");
    let columns = [
        "case",
        "bursts",
        "load steps that moved a node",
        "p50, ms",
        "p99, ms",
        "most, ms",
        "moves",
        "requests/s",
        "errors",
    ];
    report.table(
        &columns,
        rows.iter().map(|row| {
            let steps = row.step_to_first_request_ms;
            vec![
                format!("{}: {}", row.case.name(), row.case.describe()),
                row.bursts.to_string(),
                steps.map_or(0, |steps| steps.count).to_string(),
                number(steps.map(|steps| steps.p50), 2),
                number(steps.map(|steps| steps.p99), 2),
                number(steps.map(|steps| steps.max), 2),
                row.moves.to_string(),
                format!("{:.0}", row.requests_per_s),
                row.errors.to_string(),
            ]
        }),
    );
    report.heading("What it is made of");
    report.list([
        format!(
            "the nodes' records show the load: up to {} ms after it is there (`load.period_ms`)",
            settings.record_period_ms
        ),
        format!(
            "it must stay high for T = {} ms, as seen every S = {} ms",
            settings.history_ms, settings.sensitivity_ms
        ),
        "the move: lock, reserve, drain, serve, by compare-and-swap; a node without requests acknowledges at its next tick"
            .to_owned(),
        "the edges see the new word at their next scan, S apart".to_owned(),
        "the next request of the site that is routed goes there, which in a closed loop waits for an answer: those that came \
         first are at the one node that the site had"
            .to_owned(),
    ]);
    report.paragraph(&format!("The case \"{}\" is reported, and not judged.", Case::Busy.name()));
    let errors: u64 = rows.iter().map(|row| row.errors).sum();
    report.how(&format!("{} {errors} requests failed in all runs.", settings.describe()));
}
