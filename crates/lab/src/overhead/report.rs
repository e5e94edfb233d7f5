//! `report.md` of edge-overhead.

use super::{Proxy, Row, Settings, ratios, turns};
use crate::check::median;
use crate::report::{Markdown, Outcome, number};

pub(super) fn markdown(outcome: &Outcome<'_, Row, Settings>) -> String {
    let rows = outcome.rows;
    let mut report = Markdown::new(outcome.experiment, outcome.quick);
    report.paragraph(
        "Everything that the edge does for a request beyond what Pingora does shows in the distance between the two: the site \
         by Host, the choice of a node by the view, health, limits on headers, bodies and connections, x-forwarded-for, \
         metrics; and the watch thread on the same CPU, which looks at the cluster every millisecond.",
    );
    report.checks(outcome.checks);

    report.heading("Medians of the rounds");
    let medians = |figure: fn(&super::Turn) -> f64, digits| {
        let of = |proxy| median(turns(rows, proxy, figure));
        let ratio = median(ratios(rows, figure));
        [number(of(Proxy::Bare), digits), number(of(Proxy::Edge), digits), number(ratio, 3)]
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

    report.heading("Measured");
    let columns = ["round", "proxy", "requests/s", "p50, ms", "p99, ms", "CPU a request, µs", "errors"];
    report.table(
        &columns,
        rows.iter().map(|row| {
            let turn = &row.turn;
            vec![
                row.round.to_string(),
                row.proxy.name().to_owned(),
                format!("{:.0}", turn.requests_per_s),
                format!("{:.3}", turn.p50_ms),
                format!("{:.3}", turn.p99_ms),
                format!("{:.2}", turn.cpu_us_per_request),
                turn.errors.to_string(),
            ]
        }),
    );
    report.paragraph(
        "Both proxies are up all the time. While one has its turn the other is stopped (SIGSTOP), so that its watch thread \
         does not take CPU from the one that is measured; each pays for its own threads. Either is Pingora of the same \
         version in the same program, with the same allocator, and has connections to the server that are kept.",
    );
    let errors = rows.iter().map(|row| row.turn.errors).sum();
    report.close(outcome, &outcome.settings.describe(), errors)
}
