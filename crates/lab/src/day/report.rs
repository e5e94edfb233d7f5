//! The report of DA.

use super::{Day, LATE, NODES_EACH, PEAK_NODES, POOL, Row, SHARE, SITES, WORKERS, in_time, late, of};
use crate::setup::CONFIGURATIONS;
use crate::story::{Story, number};

pub(super) fn tell(study: &Day, rows: &[Row], report: &mut Story) {
    report.paragraph(&format!(
        "Three sites of {NODES_EACH} nodes each get the rates of three days of WorldCup98 by UTC: {} those of 15 June, {} of 29 June, and \
         {} of 7 July 1998, which peak at about 14, 16 and 21 h. A peak asks for {PEAK_NODES} nodes. Rigid: nodes stay. \
         Reconfigured: they move by load. Over-provisioned: each site has as many as it could ever get.",
        SITES[0], SITES[1], SITES[2]
    ));
    report.checks();
    report.heading("Measured");
    report.table(
        &["configuration", "node-hours", "requests", "late", "in time, %", "failed or rejected", "moves"],
        CONFIGURATIONS.iter().map(|configuration| {
            let all = |figure: fn(&Row) -> u64| of(rows, *configuration).map(figure).sum::<u64>();
            let first = of(rows, *configuration).next();
            vec![
                configuration.to_string(),
                number(first.map(|row| row.node_hours), 0),
                all(|row| row.requests).to_string(),
                number(late(rows, *configuration).map(|late| late as f64), 0),
                number(in_time(rows, *configuration).map(|share| 100.0 * share), 2),
                all(|row| row.failed).to_string(),
                number(first.map(|row| row.moves as f64), 0),
            ]
        }),
    );
    report.table(
        &["site", "configuration", "requests", "late", "failed or rejected"],
        SITES.iter().flat_map(|site| {
            CONFIGURATIONS.iter().filter_map(move |configuration| {
                let row = of(rows, *configuration).find(|row| row.site == *site)?;
                Some(vec![
                    (*site).to_owned(),
                    configuration.to_string(),
                    row.requests.to_string(),
                    row.late.to_string(),
                    row.failed.to_string(),
                ])
            })
        }),
    );
    let capacity: Vec<String> = study
        .pages_per_s_per_node
        .iter()
        .map(|[auction, files, api]| format!("{auction:.0}, {files:.0} and {api:.0}"))
        .collect();
    report.paragraph(&format!(
        "An answer is late {} ms after its request was due; what fails or is rejected counts as late. Requests for files and JSON arrive \
         independently of each other. So do persons, each of whom stays for some pages: a peak of the auction comes later than its \
         persons, and is flatter.",
        LATE.as_millis()
    ));
    report.how(&format!(
        "`up --demo auction` on {POOL} gunicorns, {} when over-provisioned, of {WORKERS} synchronous workers, each in a control group with \
         {SHARE} of a CPU; SQLite; a day in {} s. A node served {} requests/s of {}, {} and {}, by a run with more than it could \
         serve before each repetition.",
        super::nodes(sidelong_config::Configuration::OverProvisioned),
        study.day_s,
        capacity.join("; "),
        SITES[0],
        SITES[1],
        SITES[2],
    ));
}
