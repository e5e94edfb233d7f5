//! The report and the figure of F1.

use sidelong_figure::{Axis, Line, Panel};

use super::load::{BURST, Load, PROXIES_MAX, SLOWDOWN, TARGET, TIMES};
use super::{By, Fronts, Proxy, Row, find};
use crate::drawing::{Drawing, legend};
use crate::setup::EDGES;
use crate::story::{Story, number};

type Column = (&'static str, fn(&Row) -> String);

/// The columns that each load has, and those of some.
const BEFORE: [Column; 4] = [
    ("clients connect to", |row| row.proxy.program().name().to_owned()),
    ("chosen by", told),
    ("requests/s", |row| format!("{:.0}", row.requests_per_s)),
    ("p50, ms", |row| number(Some(row.p50_ms), 1)),
];
const AFTER: [Column; 6] = [
    ("p99, ms", |row| number(Some(row.p99_ms), 1)),
    ("CPU of a request, us", |row| number(Some(row.cpu_us), 1)),
    ("requests/s of a core", |row| format!("{:.0}", row.per_core())),
    ("a front, % of a CPU", |row| number(row.front_cpu.map(|share| share * 100.0), 1)),
    ("wrong-site requests", |row| count(row.misdirected)),
    ("errors", |row| row.errors.to_string()),
];
const PROXIES: Column = ("proxies", |row| row.case.proxies.to_string());
const GOODPUT: Column = ("goodput", |row| number(row.goodput, 2));
const MOVES: [Column; 3] = [
    ("moves", |row| row.moves.to_string()),
    ("a move, p50 ms", |row| number(row.move_ms.map(|took| took.p50), 2)),
    ("load step to first request on a moved node, p50 ms", |row| number(row.step_ms.map(|took| took.p50), 1)),
];

fn told(row: &Row) -> String {
    match row.by {
        By::Own => row.proxy.own_method().to_owned(),
        By::Sidelong => row.proxy.led_by().to_owned(),
        By::Shared => format!("{}, one pool", row.proxy.own_method()),
    }
}

fn count(count: Option<u64>) -> String {
    count.map_or_else(|| number(None, 0), |count| count.to_string())
}

fn columns(load: Load) -> Vec<Column> {
    let (first, more): (&[Column], &[Column]) = match load {
        Load::Bursts => (&[], &MOVES),
        Load::Equal | Load::Slow => (&[PROXIES], &[]),
        Load::Overload => (&[], &[GOODPUT]),
        Load::Instant => (&[], &[]),
    };
    [first, &BEFORE, &AFTER[..1], more, &AFTER[1..]].concat()
}

pub(super) fn tell(study: &Fronts, rows: &[Row], story: &mut Story) {
    story.paragraph(
        "Each proxy as it is led by Sidelong, beside itself by its own best method; by turns. A front leads each proxy: HAProxy by \
         weights or, through its Lua, by the choice of each request, and the others by that choice. CPU time is that of the proxy. What its front takes beside it does not \
         grow with requests, and has a column of its own; the edge does a front's work in its own process.",
    );
    for (_, why) in &study.missing {
        story.paragraph(&format!("Not measured: {why}."));
    }
    story.checks();
    for load in Load::ALL {
        let of_load = || rows.iter().filter(|row| row.case.load == load);
        if of_load().next().is_none() {
            continue;
        }
        story.heading(load.title());
        story.paragraph(&about(load));
        let (titles, cells): (Vec<_>, Vec<_>) = columns(load).into_iter().unzip();
        story.table(&titles, of_load().map(|row| cells.iter().map(|cell| cell(row)).collect()));
    }
    story.how(&format!("The bursts: {}", study.settings.describe()));
}

fn about(load: Load) -> String {
    match load {
        Load::Bursts => format!(
            "Bursts of {BURST} requests for three sites in turn, on eight nodes behind {EDGES} proxies. By its own method a proxy \
             chooses among the servers that the site has at the start; one pool has all servers. Every node can serve every site at \
             any time here, which is the best case for a pool that all share; a site has no floor there, and no site's flood is kept \
             from another."
        ),
        Load::Equal => "Four servers of two workers each, 5 ms a request on average (exponential), and eight clients, dealt out to \
                        the proxies."
            .to_owned(),
        Load::Slow => format!(
            "The same, but one server takes {SLOWDOWN} times as long as the cluster file says. Neither the proxies nor Sidelong are \
             told."
        ),
        Load::Overload => format!(
            "Requests at {TIMES} times the rate that four servers can answer at 20 ms a request, behind one proxy; 99 of 100 answers \
             are to come within {} ms. Goodput is what came in time, of what the servers can answer. By its own method a proxy \
             rejects nobody, and HAProxy by weights rejects nobody either.",
            TARGET.as_millis()
        ),
        Load::Instant => "Four servers that answer at once behind one proxy of one thread, and 16 clients: what a request costs the \
                          proxy. Proxy, servers and clients share the machine's CPUs, so that requests/s are those of all together."
            .to_owned(),
    }
}

pub(super) fn draw(rows: &[Row]) -> Drawing {
    let panel = |title: &str, y: &str, (load, proxies): (Load, u16), figure: fn(&Row) -> Option<f64>| {
        let (all, chosen) = match load.has_sites() {
            true => (&By::ALL[..], "by its own method, led, one pool"),
            false => (&By::ALL[..2], "by its own method, led"),
        };
        let line = |proxy: Proxy| {
            let at =
                |(by, x): (&By, u32)| Some((f64::from(x), figure(find(rows, load, proxies, (proxy, *by))?)?));
            Line::new(proxy.style().bars(), all.iter().zip(1..).filter_map(at).collect())
        };
        let lines: Vec<_> = Proxy::ALL.into_iter().map(line).collect();
        Panel {
            title: title.to_owned(),
            x: Axis { label: by, ..Axis::counting(chosen, all.len() as u32) },
            y: Axis::from_zero(y, lines.iter().map(Line::most).fold(0.0, f64::max)),
            lines,
        }
    };
    let panels = vec![
        panel("bursts, three sites", "requests/s", (Load::Bursts, EDGES), |row| Some(row.requests_per_s)),
        panel("one slow server, 4 proxies", "p99, ms", (Load::Slow, PROXIES_MAX), |row| Some(row.p99_ms)),
        panel("ten times the load", "goodput", (Load::Overload, 1), |row| row.goodput),
        panel("what a request costs", "CPU of the proxy, us", (Load::Instant, 1), |row| Some(row.cpu_us)),
    ];
    let style = |proxy: Proxy| (proxy.name(), proxy.style().bars());
    Drawing { panels, legend: legend(Proxy::ALL.map(style)), ..Drawing::default() }
}

/// Names who chooses, by their place on the axis.
fn by(place: f64) -> String {
    let name = Axis::counted(&By::ALL, place).map(|by| match by {
        By::Own => "own",
        By::Sidelong => "led",
        By::Shared => "pool",
    });
    name.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::load::Extent;
    use super::super::tests::{fronts, rows};
    use super::*;

    #[test]
    fn each_load_has_a_table_with_its_columns() {
        let mut story = Story::default();
        tell(&fronts(Extent::FULL), &rows(), &mut story);
        let tables = crate::markdown::tables(&story.markdown(&[]).0);
        let titles: Vec<_> = tables.iter().map(|table| &*table.title).collect();
        assert_eq!(titles[0], "Targets");
        assert_eq!(titles[1..], Load::ALL.map(Load::title));
        for (table, load) in tables[1..].iter().zip(Load::ALL) {
            assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
            assert_eq!(table.columns.contains(&"goodput".to_owned()), load == Load::Overload);
        }
        assert_eq!(tables[1].rows[1][..3], ["nginx", "Sidelong, choice", "2350"].map(str::to_owned));
        assert_eq!(tables[1].rows[7][..2], ["haproxy", "Sidelong, weights"].map(str::to_owned));
    }

    #[test]
    fn the_figure_has_a_bar_for_each_proxy() {
        let drawing = draw(&rows());
        assert_eq!(drawing.panels.len(), 4);
        let bars = |panel: &Panel| panel.lines.iter().map(|line| line.points.len()).sum::<usize>();
        assert_eq!(drawing.panels.iter().map(bars).collect::<Vec<_>>(), [15, 10, 10, 10]);
        assert_eq!([1.0, 2.0, 3.0].map(by), ["own", "led", "pool"]);
    }
}
