//! The report of sim-speed.

use super::{Row, Speed};
use crate::story::{Story, number};

pub(super) fn tell(study: &Speed, rows: &[Row], report: &mut Story) {
    let cluster_requests = study.cluster_requests;
    let missing = study.peers.as_ref().map_or(&[][..], |peers| &peers.missing);
    report.paragraph(
        "Each engine runs in a process of its own, on one thread, and times what it simulates by its own CPU time; what it \
         draws or reads before does not count. A request of M/M/1 is two events, whatever an engine makes of it. \
         libCacheSim simulates one LRU cache and no network: it is the mark for what looking things up costs.",
    );
    report.checks();
    report.heading("Measured");
    let million = |rate: Option<f64>| number(rate.map(|rate| rate / 1e6), 2);
    let percent = |part: Option<f64>| number(part.map(|part| 100.0 * part), 1);
    report.table(
        &[
            "engine",
            "nodes",
            "million requests/s",
            "million events/s",
            "million events/s by the clock",
            "answered at once, %",
            "one-sided reads, % of requests",
        ],
        rows.iter().map(|row| {
            vec![
                row.engine.clone(),
                row.nodes.to_string(),
                million(row.requests_per_s),
                million(Some(row.events_per_s)),
                million(Some(row.wall_events_per_s)),
                percent(row.here_rate),
                percent(row.read_rate),
            ]
        }),
    );
    if !missing.is_empty() {
        report.heading("What is missing");
        report.list(missing.iter().map(|missing| format!("{missing}.")));
    }
    let about = format!(
        "Each engine begins a round in its turn. The cluster is that of Gu and Wang 2004, in the profile `rams`: {cluster_requests} \
         requests at 500/s a node for 20,000 objects (540 MB) by Zipf's law, LRU, lazy updates, from empty caches on. \
         M/M/1 is at a load of 0.7; the hold model has exponential delays.",
    );
    let files =
        "What each engine printed in the last round is in `runs/`, and the others' programs are in `peers/`.";
    report.how(&about);
    report.how(files);
}
