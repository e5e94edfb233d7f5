//! The report of C1-C4.

use super::{ANSWER_US_PER_KIB, MEMORY_MB, Of, REQUEST_US, REQUESTS, Rams, Row, Varied};
use crate::check::Verdict;
use crate::sim::SWEEPS;
use crate::story::{Story, number};
use crate::study::Study as _;

const UNKNOWNS: &str = "For which values of the unknowns it comes out";

pub(super) fn tell(study: &Rams, rows: &[Row], report: &mut Story) {
    let Rams { site, requests, traces, varied, of, quick } = study;
    let (of, quick) = (*of, *quick);
    report.heading("What Gu and Wang 2004 say");
    report.paragraph(match of {
        Of::Traces => {
            "\"All propagated update protocols of RAMS except the aggressive update protocol achieve a much less average \
             response time, more than 50%, in two traces compared with that of RPC baseline system.\" (4.1)"
        }
        Of::Response => {
            "\"RAMS outperforms RPC base line system in terms of the average request response time, with RDMA with \
             accumulated propagate strategy achieving the best for all sized clusters.\" (4.1)"
        }
        Of::Throughput => {
            "\"An average two factor of improvement of system throughput is achieved in all propagated update protocols of \
             RAMS versus RPC baseline system. Again, RDMA with sender initiated propagate strategy performs the best.\" (4.1)"
        }
        Of::Failures => {
            "\"Three propagated update protocols significantly reduce the RDMA read failure rate by up to 75% compared with \
             the lazy protocol [...]. With increasing the number of nodes in the cluster, the RDMA read failure rate \
             increased accordingly.\" (4.2)"
        }
    });
    report.checks();
    let is_missed = study.checks(rows).iter().any(|check| check.verdict == Verdict::Missed);
    if !varied.is_empty() {
        unknowns(report, varied);
    } else if quick && is_missed {
        report.heading(UNKNOWNS);
        report.paragraph("Left out by `--quick`: the runs that vary what the paper does not print.");
    }
    report.heading("Measured");
    let first = if of == Of::Traces { "trace" } else { "nodes" };
    let columns = [
        first,
        "protocol",
        "response, ms",
        "p99, ms",
        "requests/s",
        "disk reads a request",
        "reads that fail, %",
        "bytes for updates a request",
    ];
    report.table(
        &columns,
        rows.iter().map(|row| {
            let place = if of == Of::Traces { row.case.clone() } else { row.nodes.to_string() };
            let figures = [
                number(Some(row.figures.response_ms_mean), 3),
                number(Some(row.figures.response_ms_p99), 2),
                number(Some(row.figures.requests_per_s), 0),
                number(Some(row.figures.disk_rate), 4),
                number(Some(100.0 * row.figures.read_failure_rate), 3),
                number(Some(row.figures.update_bytes_per_request), 1),
            ];
            [place, row.protocol.clone()].into_iter().chain(figures).collect()
        }),
    );
    report.heading("What differs from the paper");
    let names: Vec<&str> = traces.iter().map(|(name, _)| name.as_str()).collect();
    report.list([
        "Traces: UCB and the other two are not named with their dates, and are not ours to ship.".to_owned(),
        format!("Traces here: {}.", if of == Of::Traces { names.join(", ") } else { "Zipf's law, as below".to_owned() }),
        "The points of the figures: the text gives the factors above, and those are compared.".to_owned(),
        "What the paper does not print: memory of a node, size of the site, CPU of a request and of its answer, how often a rate is taken. \
         `docs/sim.md` has each figure and its source."
            .to_owned(),
    ]);
    let about = match of {
        Of::Traces => {
            "64 nodes with 64 MB each; each log from its start again until there were enough requests."
                .to_owned()
        }
        _ => format!("{requests} requests of\n\n```toml\n{site}```"),
    };
    let about = format!("Simulated by `sidelong sim run`, in the profile `rams`. {about}");
    report.how(&about);
    report.how(SWEEPS);
}

fn unknowns(report: &mut Story, varied: &[Varied]) {
    report.heading(UNKNOWNS);
    report.paragraph(
        &format!(
            "Memory of a node of {} MB, CPU of a request of {} µs, and CPU for 1,024 bytes of its answer of {} µs, each with \
             each, and {REQUESTS} requests. Nothing above was changed by it.",
            MEMORY_MB.join(", "),
            REQUEST_US.join(", "),
            ANSWER_US_PER_KIB.join(", ")
        ),
    );
    report.table(
        &["what", "holds for", ""],
        varied.iter().map(|varied| {
            let cases = match varied.holds_for.len() {
                0 => "none".to_owned(),
                held if held == varied.of => "all".to_owned(),
                _ => varied.holds_for.join("; "),
            };
            vec![varied.what.clone(), cases, format!("{} of {}", varied.holds_for.len(), varied.of)]
        }),
    );
}
