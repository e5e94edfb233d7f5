//! The report of edge-overhead.

use super::{Overhead, Proxy, Row, figure, ratio};
use crate::story::{Story, number};

pub(super) fn tell(study: &Overhead, rows: &[Row], report: &mut Story) {
    report.paragraph(
        "Everything that the edge does for a request beyond what Pingora does shows in the distance between the two: the site \
         by Host, the choice of a node by the view, health, limits on headers, bodies and connections, x-forwarded-for, \
         metrics; and the watch thread on the same CPU, which scans the cluster every millisecond.",
    );
    report.checks();

    report.heading("Measured");
    let medians = |of: fn(&super::Turn) -> f64, digits| {
        let [bare, edge] = [Proxy::Bare, Proxy::Edge].map(|proxy| number(figure(rows, proxy, of), digits));
        [bare, edge, number(ratio(rows, of), 3)]
    };
    let figures = [
        ("requests/s", medians(|turn| turn.requests_per_s, 0)),
        ("CPU a request, µs", medians(|turn| turn.cpu_us_per_request, 2)),
        ("p50, ms", medians(|turn| turn.p50_ms, 3)),
        ("p99, ms", medians(|turn| turn.p99_ms, 3)),
        ("share of its CPU", medians(|turn| turn.cpu_busy, 3)),
    ];
    let line = |(what, figures): (&str, [String; 3])| [vec![what.to_owned()], figures.to_vec()].concat();
    report.table(&["", "bare proxy", "edge", "edge / bare proxy"], figures.map(line));
    report.paragraph("The last column is the median of the ratios, each within a round.");

    report.paragraph(
        "Both proxies are up all the time. While one has its turn the other is stopped (SIGSTOP), so that its watch thread \
         does not take CPU from the one that is measured; each pays for its own threads. Either is Pingora of the same \
         version in the same program, with the same allocator, and has connections to the server that are kept.",
    );
    report.how(&study.describe());
}
