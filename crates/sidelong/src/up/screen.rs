//! The live page on a terminal.

use std::cmp::Reverse;
use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use sidelong_layout::{NodeId, SiteId};

use sidelong_harness::up::{Happened, Seen};

use super::Status;
use crate::failure::Failure;
use crate::page::{
    Terminal, alarm, block, colour, fitting, fitting_line, is_interrupt, load_bar, right, whose,
};
use crate::top::Documents;

/// Width of a node's load bar, in cells; full is all workers busy and as many requests waiting.
const BAR: usize = 24;

/// The page on its terminal.
pub(super) struct Screen {
    terminal: Terminal,
}

impl Screen {
    pub(super) fn open() -> Result<Self, Failure> {
        Ok(Screen { terminal: Terminal::open()? })
    }

    pub(super) fn draw(&mut self, status: &Status<'_>) -> Result<(), Failure> {
        self.terminal.draw(|frame| page(frame, status))
    }

    /// Whether someone pressed q, Esc or Ctrl-C.
    pub(super) fn wants_to_quit(&mut self) -> Result<bool, Failure> {
        while let Some(key) = self.terminal.key(Duration::ZERO)? {
            if is_interrupt(&key) || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn page(frame: &mut Frame<'_>, status: &Status<'_>) {
    let sites = status.cluster.sites.len() as u16 + 3;
    let nodes = status.cluster.nodes.len() as u16 + 3;
    let rows_of = |count: usize| if count == 0 { 0 } else { count as u16 + 3 };
    let (documents, caches) = (rows_of(status.documents.len()), rows_of(status.caches.len()));
    let parts = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(sites),
        Constraint::Length(nodes),
        Constraint::Length(documents),
        Constraint::Length(caches),
        Constraint::Min(3),
    ]);
    let [head, top, middle, low, lower, bottom] = parts.areas(frame.area());
    heading(frame, head, status);
    site_table(frame, top, status);
    node_table(frame, middle, status);
    if documents > 0 {
        let titles = ("documents", "edge");
        figures(frame, low, titles, &status.documents, |edge| &edge.edge, &DOCUMENTS);
    }
    if caches > 0 {
        figures(frame, lower, ("caches", "cache"), &status.caches, |cache| &cache.name, &CACHE);
    }
    happenings(frame, bottom, status);
}

fn heading(frame: &mut Frame<'_>, area: Rect, status: &Status<'_>) {
    let total = status.live.map(|live| live.total);
    let figure = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let age = status.monitor.age_max();
    let age = figure(age.map(|age| format!("{:.1} ms", age.as_secs_f64() * 1e3)));
    let pieces = vec![
        (3, vec![" sidelong ".bold().reversed(), "  ".into()]),
        (6, vec![format!("{}  ", status.cluster.name).bold()]),
        (4, vec![format!("{:.0} s", status.elapsed.as_secs_f64()).into(), "  │  ".dim()]),
        (1, vec![figure(total.map(|total| format!("{:.0} requests/s", total.requests_per_s))).bold()]),
        (7, vec![format!("  p50 {}", figure(total.map(|total| format!("{:.1} ms", total.p50_ms)))).into()]),
        (2, vec![format!("  p99 {}", figure(total.map(|total| format!("{:.1} ms", total.p99_ms)))).into()]),
        (5, vec!["  │  ".dim(), format!("{} moves", status.moves).bold()]),
        (0, vec!["  │  ".dim(), errors(total.map_or(0, |total| total.errors))]),
        (8, vec!["  │  view ".dim(), age.into()]),
    ];
    let first = fitting_line(pieces, usize::from(area.width));
    let note = status.notes.join("; ");
    let second = Line::from(vec![" q quits   ".dim(), note.dim()]);
    frame.render_widget(Paragraph::new(vec![first, second]), area);
}

fn errors(count: u64) -> Span<'static> {
    let text = format!("{count} errors");
    if count == 0 { text.dim() } else { Span::styled(text, alarm()) }
}

fn site_table(frame: &mut Frame<'_>, area: Rect, status: &Status<'_>) {
    let columns = SiteColumn::fit(status, usize::from(area.width.saturating_sub(BORDERS)));
    let rows = status.cluster.sites.entries().enumerate().map(|(index, (slot, site))| {
        let live = status.live.map(|live| live.sites[index]).unwrap_or_default();
        let nodes = status.monitor.serving(SiteId::new(slot));
        let name = Cell::from(site.name.clone()).style(Style::new().fg(colour(index)).bold());
        let nodes = Cell::from(Line::from(vec![
            Span::styled("■ ".repeat(nodes), Style::new().fg(colour(index))),
            Span::from(nodes.to_string()).bold(),
        ]));
        let admissions = status.admissions;
        let is_missed = admissions.is_missed(index);
        let cell = |column: &SiteColumn| match column {
            SiteColumn::Bounds => right(format!("{}–{}", site.floor, site.ceiling)),
            SiteColumn::Rate => right(format!("{:.0}", live.requests_per_s)),
            SiteColumn::P50 => right(format!("{:.1}", live.p50_ms)),
            SiteColumn::P99 => right(format!("{:.1}", live.p99_ms)),
            SiteColumn::Errors => right(live.errors.to_string()),
            SiteColumn::Rejected => right(status.rejected_per_s(index).to_string()),
            SiteColumn::Why => right(admissions.why(index).unwrap_or("").to_owned()),
            SiteColumn::Target if is_missed => right("missed".to_owned()).style(alarm()),
            SiteColumn::Target => right(if site.target.is_some() { "met" } else { "-" }.to_owned()),
        };
        Row::new([name, nodes].into_iter().chain(columns.iter().map(cell)))
    });
    let names = ["site", "nodes"].into_iter().map(Cell::from);
    let head = names.chain(columns.iter().map(|column| right(column.title().to_owned())));
    let widths = columns.iter().map(|column| Constraint::Length(column.width() as u16));
    let widths =
        [Constraint::Length(SITE as u16), Constraint::Min(squares(status) as u16)].into_iter().chain(widths);
    let table = Table::new(rows, widths).header(Row::new(head).dim()).block(block("sites"));
    frame.render_widget(table, area);
}

/// Width of a block's borders, left and right.
const BORDERS: u16 = 2;
/// Width of a site's name.
const SITE: usize = 12;
/// Width of a node's name.
const NODE: usize = 8;
/// Width of the two sites that a node moves between.
const SITES_BETWEEN: usize = 17;
/// Most cells for a site's nodes, a square each.
const SQUARES_MAX: usize = 24;

/// Room for all nodes at one site, up to a limit.
fn squares(status: &Status<'_>) -> usize {
    (2 * status.cluster.nodes.len() + 2).clamp("nodes".len(), SQUARES_MAX)
}

/// A figure of a site, beside its name and nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SiteColumn {
    Bounds,
    Rate,
    P50,
    P99,
    Errors,
    Rejected,
    Why,
    Target,
}

impl SiteColumn {
    const ALL: [SiteColumn; 8] = [
        SiteColumn::Bounds,
        SiteColumn::Rate,
        SiteColumn::P50,
        SiteColumn::P99,
        SiteColumn::Errors,
        SiteColumn::Rejected,
        SiteColumn::Why,
        SiteColumn::Target,
    ];
    /// The order in which they are dropped on a narrow page.
    const DROPPED_FIRST: [SiteColumn; 8] = [
        SiteColumn::Bounds,
        SiteColumn::Why,
        SiteColumn::P50,
        SiteColumn::Rejected,
        SiteColumn::Target,
        SiteColumn::P99,
        SiteColumn::Rate,
        SiteColumn::Errors,
    ];

    fn title(self) -> &'static str {
        match self {
            SiteColumn::Bounds => "floor–top",
            SiteColumn::Rate => "requests/s",
            SiteColumn::P50 => "p50 ms",
            SiteColumn::P99 => "p99 ms",
            SiteColumn::Errors => "errors",
            SiteColumn::Rejected => "rejected/s",
            SiteColumn::Why => "why",
            SiteColumn::Target => "target",
        }
    }

    fn width(self) -> usize {
        match self {
            SiteColumn::Why => "all-overloaded".len(),
            SiteColumn::Target => "missed".len(),
            SiteColumn::Errors | SiteColumn::P50 | SiteColumn::P99 => 8,
            _ => self.title().chars().count(),
        }
    }

    /// The columns that fit on a page of `width`.
    fn fit(status: &Status<'_>, width: usize) -> Vec<SiteColumn> {
        let of_admission = [SiteColumn::Rejected, SiteColumn::Why, SiteColumn::Target];
        let mut columns = SiteColumn::ALL.to_vec();
        columns.retain(|column| status.cluster.has_admission() || !of_admission.contains(column));
        let room = width.saturating_sub(SITE + 1 + squares(status));
        fitting(columns, &SiteColumn::DROPPED_FIRST, room, SiteColumn::width)
    }
}

fn node_table(frame: &mut Frame<'_>, area: Rect, status: &Status<'_>) {
    let names = status.cluster.sites.map(|site| site.name.clone()).to_vec();
    let columns = NodeColumn::fit(usize::from(area.width.saturating_sub(BORDERS)));
    let rows = status.cluster.nodes.entries().map(|(slot, node)| {
        let (node, name) = (NodeId::new(slot), Cell::from(node.name.clone()));
        let ownership = status.monitor.ownership(node);
        let Some(hot) = status.monitor.hot(node) else {
            let stale = Cell::from(Span::styled("no fresh record", alarm()));
            let site = columns.contains(&NodeColumn::Site).then(|| Cell::from(whose(&names, ownership)));
            return Row::new([name].into_iter().chain(site).chain([stale]));
        };
        let site = ownership.and_then(|ownership| ownership.site);
        let style = Style::new().fg(site.map_or(Color::Reset, |site| colour(site.index())));
        let age = status.monitor.age(node).unwrap_or_default().as_secs_f64() * 1e3;
        let cpu = status.monitor.cpu_permille(node);
        let cell = |column: &NodeColumn| match column {
            NodeColumn::Site => Cell::from(whose(&names, ownership)),
            NodeColumn::Load => {
                Cell::from(load_bar(hot.busy.into(), hot.queued.into(), hot.workers.into(), BAR, style))
            }
            NodeColumn::Busy => right(format!("{}/{}", hot.busy, hot.workers)),
            NodeColumn::Queued => right(hot.queued.to_string()),
            NodeColumn::Connections => right(hot.connections.to_string()),
            NodeColumn::Cpu => {
                right(cpu.map_or_else(|| "-".to_owned(), |cpu| format!("{:.1}", f64::from(cpu) / 10.0)))
            }
            NodeColumn::Served => right(hot.served.to_string()),
            NodeColumn::Age => right(format!("{age:.1}")),
        };
        Row::new([name].into_iter().chain(columns.iter().map(cell)))
    });
    let widths = columns.iter().map(|column| Constraint::Length(column.width() as u16));
    let widths = [Constraint::Length(NODE as u16)].into_iter().chain(widths);
    let titles = columns.iter().map(|column| match column {
        NodeColumn::Site | NodeColumn::Load => Cell::from(column.title()),
        _ => right(column.title().to_owned()),
    });
    let head = [Cell::from("node")].into_iter().chain(titles);
    let table = Table::new(rows, widths).header(Row::new(head).dim()).block(block("nodes"));
    frame.render_widget(table, area);
}

/// A figure of a node, beside its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NodeColumn {
    Site,
    Load,
    Busy,
    Queued,
    Connections,
    Cpu,
    Served,
    Age,
}

impl NodeColumn {
    const ALL: [NodeColumn; 8] = [
        NodeColumn::Site,
        NodeColumn::Load,
        NodeColumn::Busy,
        NodeColumn::Queued,
        NodeColumn::Connections,
        NodeColumn::Cpu,
        NodeColumn::Served,
        NodeColumn::Age,
    ];
    /// The order in which they are dropped on a narrow page.
    const DROPPED_FIRST: [NodeColumn; 8] = [
        NodeColumn::Age,
        NodeColumn::Served,
        NodeColumn::Connections,
        NodeColumn::Load,
        NodeColumn::Cpu,
        NodeColumn::Queued,
        NodeColumn::Busy,
        NodeColumn::Site,
    ];

    fn title(self) -> &'static str {
        match self {
            NodeColumn::Site => "site",
            NodeColumn::Load => "load",
            NodeColumn::Busy => "busy",
            NodeColumn::Queued => "queued",
            NodeColumn::Connections => "conns",
            NodeColumn::Cpu => "CPU %",
            NodeColumn::Served => "served",
            NodeColumn::Age => "age ms",
        }
    }

    fn width(self) -> usize {
        match self {
            NodeColumn::Site => SITES_BETWEEN,
            NodeColumn::Load => BAR + 1,
            NodeColumn::Busy | NodeColumn::Queued | NodeColumn::Connections | NodeColumn::Age => 7,
            NodeColumn::Cpu => 6,
            NodeColumn::Served => 10,
        }
    }

    /// The columns that fit on a page of `width`.
    fn fit(width: usize) -> Vec<NodeColumn> {
        let room = width.saturating_sub(NODE);
        fitting(NodeColumn::ALL.to_vec(), &NodeColumn::DROPPED_FIRST, room, NodeColumn::width)
    }
}

/// A figure of something, beside its name.
struct Figure<T> {
    title: &'static str,
    /// On a narrow page the figure with the most is dropped first.
    rank: u8,
    /// What is shown; a dash for what is not known.
    of: fn(&T) -> Option<String>,
}

const CACHE: [Figure<Seen>; 8] = [
    Figure { title: "gets/s", rank: 0, of: |cache| whole(cache.per_s("cmd_get")) },
    Figure { title: "own hits %", rank: 3, of: |cache| tenths(cache.percent_own()) },
    Figure { title: "neighbour %", rank: 2, of: |cache| tenths(cache.percent("neighbour_hits")) },
    Figure { title: "miss %", rank: 1, of: |cache| tenths(cache.percent("get_misses")) },
    Figure { title: "items", rank: 7, of: |cache| count(cache.now("curr_items")) },
    Figure { title: "MiB", rank: 5, of: |cache| tenths(cache.now("bytes").map(mib)) },
    Figure { title: "evictions", rank: 6, of: |cache| count(cache.grown("evictions")) },
    Figure { title: "failed reads", rank: 4, of: |cache| count(cache.grown("neighbour_read_failures")) },
];

const DOCUMENTS: [Figure<Documents>; 7] = [
    Figure { title: "requests/s", rank: 0, of: |edge| whole(edge.requests_per_s()) },
    Figure { title: "memory %", rank: 1, of: |edge| tenths(edge.percent(|of| of.memory)) },
    Figure { title: "after a wait %", rank: 4, of: |edge| tenths(edge.percent(|of| of.memory_after_wait)) },
    Figure { title: "node %", rank: 2, of: |edge| tenths(edge.percent(|of| of.server)) },
    Figure { title: "MiB/s", rank: 5, of: |edge| tenths(edge.mib_per_s()) },
    Figure { title: "MiB", rank: 6, of: |edge| tenths(edge.total.map(|total| mib(total.memory_bytes))) },
    Figure { title: "failed reads", rank: 3, of: |edge| count(edge.total.map(|total| total.failed_reads)) },
];

fn whole(figure: Option<f64>) -> Option<String> {
    figure.map(|figure| format!("{figure:.0}"))
}

fn tenths(figure: Option<f64>) -> Option<String> {
    figure.map(|figure| format!("{figure:.1}"))
}

fn count(count: Option<u64>) -> Option<String> {
    count.map(|count| count.to_string())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// A table of the figures that fit, with a row for each of `all`.
fn figures<T>(
    frame: &mut Frame<'_>,
    area: Rect,
    (title, of_one): (&str, &'static str),
    all: &[T],
    name: fn(&T) -> &str,
    figures: &[Figure<T>],
) {
    let room = usize::from(area.width.saturating_sub(BORDERS)).saturating_sub(NODE);
    let width = |index: usize| figures[index].title.len().max(8);
    let mut dropped_first: Vec<_> = (0..figures.len()).collect();
    dropped_first.sort_by_key(|index| Reverse(figures[*index].rank));
    let columns = fitting((0..figures.len()).collect(), &dropped_first, room, width);
    let rows = all.iter().map(|one| {
        let cell = |index: &usize| right((figures[*index].of)(one).unwrap_or_else(|| "–".to_owned()));
        Row::new([Cell::from(name(one).to_owned())].into_iter().chain(columns.iter().map(cell)))
    });
    let widths = columns.iter().map(|index| Constraint::Length(width(*index) as u16));
    let widths = [Constraint::Length(NODE as u16)].into_iter().chain(widths);
    let titles = columns.iter().map(|index| right(figures[*index].title.to_owned()));
    let head = [Cell::from(of_one)].into_iter().chain(titles);
    let table = Table::new(rows, widths).header(Row::new(head).dim()).block(block(title));
    frame.render_widget(table, area);
}

fn happenings(frame: &mut Frame<'_>, area: Rect, status: &Status<'_>) {
    let room = area.height.saturating_sub(2) as usize;
    let latest = latest(status.happened, room).into_iter().map(|happened| {
        let at = format!("{:>8.2} s  ", happened.at.as_secs_f64());
        Line::from(vec![at.dim(), happened.text.clone().into()])
    });
    let title = match status.monitor.draining() {
        0 => "what happened, latest first".to_owned(),
        draining => format!("what happened, latest first ({draining} moving)"),
    };
    frame.render_widget(Paragraph::new(latest.collect::<Vec<_>>()).block(block(&title)), area);
}

/// The latest events, newest first. Routine events come in dozens, so the others keep half of the room.
fn latest(happened: &[Happened], room: usize) -> Vec<&Happened> {
    let all = happened.len();
    let other = happened.iter().filter(|happened| !happened.is_routine).count();
    let mut routine_left = room - other.min(room.div_ceil(2));
    let mut other_left = room - (all - other).min(routine_left);
    let is_kept = |happened: &&Happened| {
        let left = if happened.is_routine { &mut routine_left } else { &mut other_left };
        let is_kept = *left > 0;
        *left = left.saturating_sub(1);
        is_kept
    };
    happened.iter().rev().filter(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_else_happened_stays_among_routine_events() {
        let of = |moves: &[bool]| -> Vec<Happened> {
            let happened = |(index, is_routine): (usize, &bool)| Happened {
                at: Duration::from_secs(index as u64),
                text: String::new(),
                is_routine: *is_routine,
            };
            moves.iter().enumerate().map(happened).collect()
        };
        let shown = |moves: &[bool], room| -> Vec<u64> {
            latest(&of(moves), room).iter().map(|happened| happened.at.as_secs()).collect()
        };
        let burst = [false, false, true, true, true, true];
        assert_eq!(shown(&burst, 3), [5, 1, 0], "half of three, rounded up, is for the others");
        assert_eq!(shown(&burst, 4), [5, 4, 1, 0]);
        assert_eq!(shown(&burst, 9), [5, 4, 3, 2, 1, 0]);
        assert_eq!(
            shown(&[true, true, false, false, false], 4),
            [4, 3, 1, 0],
            "routine events have their half as well"
        );
        assert_eq!(shown(&[false; 5], 4), [4, 3, 2, 1]);
        assert_eq!(shown(&[true; 5], 2), [4, 3]);
        assert_eq!(shown(&burst, 0), [0; 0]);
    }
}
