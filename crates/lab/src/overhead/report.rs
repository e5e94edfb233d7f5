//! The report of edge-overhead, and its figure.

use sidelong_figure::{Axis, Line, Panel, Style};

use super::case::{Against, Case, TARGETS, Target};
use super::{Overhead, Proxy, Row, figure, to_nginx};
use crate::drawing::{Drawing, legend};
use crate::story::{Story, number};

pub(super) fn tell(study: &Overhead, rows: &[Row], report: &mut Story) {
    report.paragraph(
        "Three proxies before the same server: the edge with its choice of a node, admission and metrics; nginx and HAProxy as \
         Debian has them, each with one thread, kept connections to the server, and x-forwarded-for. HAProxy is shown and not \
         judged.",
    );
    report.checks();

    report.heading("Measured");
    let line = |target: &Target| {
        let of = |proxy| number(figure(rows, target.case, proxy, target.figure), 2);
        let mut cells = vec![target.case.title().to_owned(), target.what.to_owned()];
        cells.extend(Proxy::ALL.map(of));
        cells.push(number(to_nginx(rows, target, Proxy::Edge), 3));
        cells.push(number(to_nginx(rows, target, Proxy::Haproxy), 3));
        cells
    };
    let columns = ["case", "", "edge", "nginx", "HAProxy", "edge / nginx", "HAProxy / nginx"];
    report.table(&columns, TARGETS.iter().map(line));
    report.paragraph(
        "The ratios are medians of the ratios, each within a round. In the figure one above 4 is drawn at 4. An error is also a request \
         of the open loop that was not sent, because 256 were under way.",
    );

    report.heading("Load");
    let line = |row: &Row| {
        let turn = row.found.turn()?;
        Some(vec![
            row.case.title().to_owned(),
            row.proxy.name().to_owned(),
            number(Some(turn.requests_per_s), 0),
            number(Some(turn.cpu_busy), 3),
        ])
    };
    // The order of the turns differs from round to round.
    let mut ordered: Vec<&Row> = rows.iter().collect();
    ordered.sort_by_key(|row| (row.case as usize, row.proxy as usize));
    report.table(
        &["case", "proxy", "requests/s served", "share of its CPU"],
        ordered.into_iter().filter_map(line),
    );
    report.paragraph(
        "Where a proxy leaves much of its CPU idle, the load and the server limited the requests. Its CPU time for a request is \
         judged nevertheless. It then also has the cost of more waits.",
    );

    report.paragraph(
        "All processes are up all the time, and what has no part in a turn is stopped (SIGSTOP), so that no watch thread takes CPU \
         time from the proxy that is measured; each pays for its own threads. The server is a built-in node without service time: it \
         makes bodies of any size from memory, and its record is what the edge chooses and admits by.",
    );
    report.how(&describe(study));
}

fn describe(study: &Overhead) -> String {
    let Overhead { turn_s, connections, idle_connections, proxy_cpu, load_cpus, .. } = study;
    let others = load_cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    format!(
        "In each round and case a turn of {turn_s} s for each proxy, in changing order, on CPU {proxy_cpu}; the load and the server \
         on CPU {others}. Closed loops of {connections} connections unless the case says another number; over HTTP/2 each has one \
         request at a time. CPU time is that of all threads of the proxy, user and system, over the requests that ended. The open \
         loop has Poisson arrivals at half of the lesser rate at which the edge and nginx answered the closed loop for 1 KB in that \
         round, the same for all, after a ramp of 0.3 s, and takes three turns' time. TLS is 1.3 with a key on P-256; no session is resumed. Memory is the growth of \
         the resident set by {idle_connections} connections that have each carried one request, in new processes, measured once. \
         Where an edge is to reject, a node is kept busy, and `admission.rule = \"paper\"` has a threshold of 0; the client of a \
         rejected request asks again at once. nginx has `proxy_buffers 8 64k`, in its favour."
    )
}

/// The panels: figures as multiples of nginx's in two, and memory.
pub(super) fn draw(rows: &[Row]) -> Drawing {
    let of_panels = TARGETS.iter().filter(|target| panel_of(target).is_some_and(|panel| panel < MEMORY));
    let ratios = of_panels.flat_map(|target| Proxy::ALL.map(|proxy| drawn(rows, target, proxy)));
    let most = ratios.flatten().fold(1.0, f64::max);
    let ratios = || Axis::from_zero("times nginx's", most);
    let kb = shown(MEMORY).flat_map(|target| Proxy::ALL.map(|proxy| drawn(rows, target, proxy)));
    let panel = |number: usize, title: &str, under: &str, label, y| {
        let x = Axis {
            title: under.to_owned(),
            range: 0.5..shown(number).count() as f64 + 0.5,
            ticks: (1..=shown(number).count()).map(|at| at as f64).collect(),
            label,
            names: Vec::new(),
        };
        Panel { title: title.to_owned(), x, y, lines: lines(rows, number) }
    };
    let kb: Vec<f64> = kb.flatten().chain([0.0, 1.0]).collect();
    let mut memory = Axis::powers_of_ten("KB", kb.iter().copied());
    // Up to the greatest, not to the next power: its label would be in the title.
    memory.range.end = kb.iter().copied().fold(0.0, f64::max) + 0.15;
    memory.ticks.retain(|tick| *tick <= memory.range.end);
    Drawing {
        panels: vec![
            panel(
                0,
                "(a) CPU time of a request",
                "bodies; log; 1,024 clients; new connections",
                |x| short(0, x),
                ratios(),
            ),
            panel(
                1,
                "(b) CPU time over TLS; response times",
                "TLS: kept, new, HTTP/2; half of capacity",
                |x| short(1, x),
                ratios(),
            ),
            panel(MEMORY, "(c) memory of an idle connection", "", |x| short(MEMORY, x), memory),
        ],
        legend: legend([("edge", Style::OURS), ("nginx", Style::BASELINE), ("HAProxy", Style::THIRD)]),
        dashed: Some("target of the edge"),
        ..Drawing::default()
    }
}

/// Greatest ratio of the figure. One that is greater is drawn here: one slow turn would flatten all others.
const RATIO_MAX: f64 = 4.0;
/// The panel of memory, the last one.
const MEMORY: usize = 2;

/// The panel in which a target's figure is, if any.
fn panel_of(target: &Target) -> Option<usize> {
    match target.against {
        Against::Nginx(_) => Some(usize::from(target.case.is_secure() || target.case == Case::Half)),
        Against::Itself(_) => Some(MEMORY),
        Against::Own(..) => None,
    }
}

fn shown(panel: usize) -> impl Iterator<Item = &'static Target> {
    TARGETS.iter().filter(move |target| panel_of(target) == Some(panel))
}

/// What stands under position `x` of a panel.
fn short(panel: usize, x: f64) -> String {
    shown(panel)
        .nth((x as usize).saturating_sub(1))
        .map_or_else(String::new, |target| target.short.to_owned())
}

/// A figure as its panel shows it.
fn drawn(rows: &[Row], target: &Target, proxy: Proxy) -> Option<f64> {
    if panel_of(target) == Some(MEMORY) {
        return figure(rows, target.case, proxy, target.figure).map(f64::log10);
    }
    to_nginx(rows, target, proxy).map(|ratio| ratio.min(RATIO_MAX))
}

/// A point for each proxy, which no line joins, because cases are no series; and the target as a dash.
fn lines(rows: &[Row], panel: usize) -> Vec<Line> {
    let mut lines = Vec::new();
    for (target, x) in shown(panel).zip(1..) {
        let x = f64::from(x);
        let limit = match target.against {
            Against::Nginx(at_most) | Against::Own(_, at_most) => at_most,
            Against::Itself(at_most) => at_most.log10(),
        };
        lines.push(Line::new(Style::TARGET, vec![(x - 0.4, limit), (x + 0.4, limit)]));
    }
    for (proxy, style) in
        [(Proxy::Nginx, Style::BASELINE), (Proxy::Haproxy, Style::THIRD), (Proxy::Edge, Style::OURS)]
    {
        for (target, x) in shown(panel).zip(1..) {
            let point = drawn(rows, target, proxy).map(|y| (f64::from(x), y));
            lines.push(Line::new(style, point.into_iter().collect()));
        }
    }
    lines
}
