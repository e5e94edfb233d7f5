//! The report of A7 and A8.

use super::plan::{BURST, BURST_EVERY, BURST_LASTS, HIGH_CLIENTS, LOW_CLIENTS, STEP, STEP_LASTS};
use super::{
    CAPACITY_PER_S, Figures, HIGH_PER_S, NODES, Overload, ROTATION, Row, SERVICE, Servers, TARGET, THRESHOLD,
    WORKERS,
};
use crate::story::{Story, number};

pub(super) fn tell(settings: &Overload, rows: &[Row], report: &mut Story) {
    let extent = &settings.extent;
    report.checks();
    report.heading("Measured");
    report.table(
        &[
            "load",
            "system",
            "goodput",
            "p99, ms",
            "rejected: knows after, p99, ms",
            "settled after, ms",
            "Jain",
            "high: answered",
            "high: p99, ms",
            "rejected",
            "failed",
        ],
        rows.iter().map(cells),
    );
    report.paragraph(&format!(
        "Goodput: answers within {} ms of when they were due, of those that all servers together could give, or that were \
         asked for where that is less. All times run from when a request was due. Jain: his index of the parts that the clients of the lower priority were answered of what \
         each asked for. p99: of both sites' answers. `high`: the higher \
         priority, which is asked for {HIGH_PER_S} requests/s all the time, 0.9 of the one server that is its share; empty where a \
         system knows of no priorities. Settled: from when on each window of 50 ms has 0.85 of what could be answered in it \
         in time, and its p99 within the target, all steps (or the ends of all bursts) laid one over another; {} where that is never.",
        TARGET.as_millis(),
        STEP_LASTS.as_millis(),
    ));
    if !settings.peers.is_empty() {
        report.heading("What they were told");
        let told = settings.peers.iter().map(|(name, version, told)| format!("{name} ({version}): {told}."));
        let ours = format!(
            "ours: one edge of one thread; p99 target {} ms for each site; one server for the higher priority, three for the \
             other, none moved.",
            TARGET.as_millis()
        );
        report.list([ours].into_iter().chain(told));
        report.paragraph("None of them sends a request again by itself in these forms, and no client does.");
    }
    if !settings.missing.is_empty() {
        report.heading("What is missing");
        let how = |missing: &crate::peers::Missing| format!("{}: {}", missing.peer.word(), missing.how);
        report.list(settings.missing.iter().map(how));
        report.paragraph(&format!("These {} have no rows.", settings.missing.len()));
    }
    report.heading("The machine");
    report.paragraph(
        "Client, systems and servers share it. Where it had little to spare, figures are of it as much as of the system.",
    );
    report.table(
        &["system", "CPUs in use, of all", "its own CPU time, s", "not sent for want of room"],
        settings.machine.iter().map(|of| {
            vec![
                of.system.word().to_owned(),
                number((of.runs > 0).then(|| of.busy / f64::from(of.runs)), 2),
                number(Some(of.front_cpu_s), 1),
                of.dropped.to_string(),
            ]
        }),
    );
    let how = format!(
        "{NODES} {} of {WORKERS} workers that hold a request for {} ms by waiting: {CAPACITY_PER_S} requests/s; an open loop: \
         {HIGH_CLIENTS} clients of the higher priority at equal distances, {LOW_CLIENTS} of the lower, each a Poisson process, of \
         addresses of their own; {} s for each load; {} steps from {} to {} of the capacity, each {} ms; {} bursts of {} for {} ms from \
         {} each {} ms. Runs of {:.0} s, the systems in turns, started anew for each. `rotation_s` {}, by which \
         each client has its turns within what is measured. The rule of Lai et al. 2008 by a threshold of {THRESHOLD}.",
        match settings.servers {
            Servers::Builtin => "servers",
            Servers::Gunicorn => "gunicorns",
        },
        SERVICE.as_millis(),
        extent.steady.as_secs(),
        extent.steps,
        STEP[0],
        STEP[1],
        STEP_LASTS.as_millis(),
        extent.bursts,
        BURST[1],
        BURST_LASTS.as_millis(),
        BURST[0],
        BURST_EVERY.as_millis(),
        settings.run_s,
        ROTATION.as_secs(),
    );
    let failed: u64 = rows.iter().map(|row| row.figures.failed).sum();
    report.how(&format!("{how} {failed} requests failed."));
}

fn cells(row: &Row) -> Vec<String> {
    let of = |of: fn(&Figures) -> Option<f64>, digits| number(of(&row.figures), digits);
    let high = |value: String| if row.system.has_priorities() { value } else { String::new() };
    let part = |count: fn(&Figures) -> u64| {
        let (asked, count) = (row.figures.asked, count(&row.figures));
        number((asked > 0).then(|| count as f64 / asked as f64), 3)
    };
    vec![
        row.offered_load.clone(),
        row.system.word().to_owned(),
        of(|figures| figures.goodput, 3),
        of(|figures| figures.p99_ms, 1),
        of(|figures| figures.reject_ms, 2),
        of(|figures| figures.recovery_ms, 0),
        of(|figures| figures.fairness, 3),
        high(of(|figures| figures.high_answered, 4)),
        high(of(|figures| figures.high_p99_ms, 1)),
        part(|figures| figures.turned_away),
        part(|figures| figures.failed),
    ]
}
