//! The report of QA.

use super::{
    NODES, PATIENCE, PERSONS, Row, SETTLE, SHARE, Sessions, TARGET, THINK_FACTOR, VISIT, WORKERS, WORTH_MORE,
};
use crate::story::{Story, number};

pub(super) fn tell(study: &Sessions, rows: &[Row], report: &mut Story) {
    report.paragraph(
        "Persons arrive at an auction however many are there, and leave at the first error or rejection. A session is whole if its person \
         leaves for another reason. Sessions/s that got through whole are what a site earns by; what was answered before a rejection was \
         answered for nothing.",
    );
    report.checks();
    report.heading("Measured");
    report.table(
        &[
            "load",
            "system",
            "sessions begun/s",
            "whole/s",
            "whole, of those begun",
            "left at the first page, of those that left",
            "bids and purchases/s",
            "requests/s answered",
            "p99, ms",
            "rejected, of all requests",
            "failed",
        ],
        rows.iter().map(cells),
    );
    report.paragraph(
        "by-client: Sidelong's admission as it is, by the client's address. by-visit: clients that were admitted before are \
         rejected last (`visit_s`). by-priority: requests that are worth more are (`rejected_last`). ours: both. p99: of requests that were \
         answered, to the last byte.",
    );
    report.heading("What they were told");
    let told = study.told.iter().map(|(name, version, told)| format!("{name} ({version}): {told}."));
    let ours = format!(
        "ours: one edge; p99 target {} ms; visit_s {}; rejected_last {}; {} workers at each server; else defaults.",
        TARGET.as_millis(),
        VISIT.as_secs(),
        WORTH_MORE.join(", "),
        WORKERS
    );
    report.list([ours].into_iter().chain(told));
    if !study.missing.is_empty() {
        report.heading("What is missing");
        report.list(study.missing.iter().map(|missing| format!("{}: {}", missing.peer.word(), missing.how)));
    }
    let capacity: Vec<_> = study.sessions_per_s.iter().map(|per_s| format!("{per_s:.1}")).collect();
    report.how(&format!(
        "`up --demo auction` without a load, anew for each run: {NODES} gunicorns of {WORKERS} synchronous workers, each in a control group with {SHARE} of a \
         CPU, SQLite. The load 1 is what they can serve, {} sessions/s: by {PERSONS} persons who leave at nothing, before each repetition. \
         Each session has an address of its own, {THINK_FACTOR} of RUBiS's think times, and leaves after {} s without a page. Runs of {} s after {} s that \
         do not count, the systems in turns, with the same arrivals for all.",
        capacity.join("; "),
        PATIENCE.as_secs(),
        study.run_s,
        SETTLE.as_secs(),
    ));
}

fn cells(row: &Row) -> Vec<String> {
    let part = |count: u64, all: u64| number((all > 0).then(|| count as f64 / all as f64), 3);
    let answered = row.requests - row.rejected - row.failed;
    vec![
        row.offered_load.to_string(),
        row.system.word().to_owned(),
        number(Some(row.per_s(row.begun)), 2),
        number(Some(row.per_s(row.whole)), 2),
        part(row.whole, row.begun),
        part(row.left_at_first, row.left),
        number(Some(row.per_s(row.bids)), 2),
        number(Some(row.per_s(answered)), 1),
        number(row.p99_ms, 0),
        part(row.rejected, row.requests),
        row.failed.to_string(),
    ]
}
