//! The report and the figure of K2.

use super::stage::SETTLE;
use super::{Case, Neighbours, Row, Way, find, home_ms, idle_ms};
use crate::drawing::{Drawing, legend};
use crate::figure::{Axis, Line, Panel};
use crate::story::{Story, number};

pub(super) fn tell(study: &Neighbours, rows: &[Row], story: &mut Story) {
    story.paragraph(
        "Two caches of a cluster, memcached with one thread, and nutcracker in front of memcached share one CPU. A client on another \
         CPU asks the first cache, memcached or nutcracker over loopback, one request at a time. The home of an item is the first cache \
         (own) or the second (neighbour's). For a get the first cache reads the home's memory. It hands a set to the home. Over Unix \
         sockets the client asks another memcached, and a cache that belongs to no cluster.",
    );
    if let Some(why) = study.missing {
        story.paragraph(&format!("Not measured: {why}."));
    }
    story.checks();
    story.heading("Measured");
    let columns = [
        "",
        "",
        "p50, µs",
        "p99, µs",
        "requests/s",
        "CPU of the server that is asked, µs a request",
        "of the server behind it",
        "found nothing",
    ];
    let cells = |row: &Row| {
        vec![
            row.case.name(),
            row.way.name().to_owned(),
            number(Some(row.p50_us), 1),
            number(Some(row.p99_us), 1),
            number(Some(row.requests_per_s), 0),
            number(Some(row.cpu_us), 2),
            number(row.behind_cpu_us, 3),
            row.misses.to_string(),
        ]
    };
    let shown = Case::ALL.into_iter().flat_map(|case| case.ways().iter().map(move |way| (case, *way)));
    story.table(&columns, shown.filter_map(|(case, way)| find(rows, case, way)).map(cells));
    story.heading("The home of what others read");
    story.paragraph(
        "The CPU time of the second cache while the first one reads its items, in ms for a million of them; and what it takes in the \
         same time while nobody reads them. The difference is judged.",
    );
    let columns =
        ["", "reads/s", "CPU of the home, ms for a million", "in the same time when idle", "for the reads"];
    let of_home = |case: Case| {
        let row = find(rows, case, Way::Neighbour);
        vec![
            case.name(),
            number(row.map(|row| row.requests_per_s), 0),
            number(row.and_then(Row::behind_ms), 2),
            number(idle_ms(rows, case), 2),
            number(home_ms(rows, case), 2),
        ]
    };
    story.table(&columns, Case::GETS.map(of_home));
    story.how(&format!(
        "In each round a turn of {} s for each way and case, the order alternating; one client with one connection, {} items of each \
         home, which are stored anew before each case. The second cache runs idle beside the first while that is asked for its own \
         items. CPU time is counted until {} s after a turn, because a home counts the reads of its items ten times a second. \
         nutcracker has its defaults, one pool of one server, and connects at its start. Both CPUs are kept awake, as in K1.",
        study.turn_s,
        study.items,
        SETTLE.as_secs_f64(),
    ));
}

pub(super) fn draw(rows: &[Row]) -> Drawing {
    let panel = |title: &str, y: &str, figure: fn(&Row) -> f64| {
        let line = |way: Way| {
            let point = |(at, case): (u32, Case)| Some((f64::from(at), figure(find(rows, case, way)?)));
            Line::new(way.style().bars(), (1..).zip(Case::ALL).filter_map(point).collect())
        };
        let lines: Vec<_> = Way::ALL.map(line).into();
        Panel {
            title: title.to_owned(),
            x: Axis { label: case, ..Axis::counting("one request at a time", Case::ALL.len() as u32) },
            y: Axis::from_zero(y, lines.iter().map(Line::most).fold(0.0, f64::max)),
            lines,
        }
    };
    Drawing {
        panels: vec![
            panel("half are answered within", "p50, µs", |row| row.p50_us),
            panel("99 of 100 are answered within", "p99, µs", |row| row.p99_us),
            panel("what a request costs all servers", "CPU time, µs", |row| {
                row.cpu_us + row.behind_cpu_us.unwrap_or(0.0)
            }),
        ],
        legend: legend(Way::ALL.map(|way| (way.name(), way.style().bars()))),
        ..Drawing::default()
    }
}

/// Names a case by its place on the axis.
fn case(at: f64) -> String {
    Axis::counted(&Case::ALL, at).map_or(String::new(), |case| case.short())
}
