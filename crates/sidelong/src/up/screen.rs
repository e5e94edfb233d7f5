//! The live page on a terminal.

use std::time::Duration;

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use sidelong_layout::{NodeId, SiteId};

use super::Status;
use crate::failure::Failure;
use crate::page::{Terminal, alarm, block, colour, fitting, is_interrupt, load_bar, right, whose};

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
    let parts = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(sites),
        Constraint::Length(nodes),
        Constraint::Min(3),
    ]);
    let [head, top, middle, bottom] = parts.areas(frame.area());
    heading(frame, head, status);
    site_table(frame, top, status);
    node_table(frame, middle, status);
    happenings(frame, bottom, status);
}

fn heading(frame: &mut Frame<'_>, area: Rect, status: &Status<'_>) {
    let total = status.live.map(|live| live.total);
    let figure = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let age = status.monitor.age_max();
    let age = figure(age.map(|age| format!("{:.1} ms", age.as_secs_f64() * 1e3)));
    let line = Line::from(vec![
        " sidelong ".bold().reversed(),
        format!("  {}  ", status.cluster.name).bold(),
        format!("{:.0} s", status.elapsed.as_secs_f64()).into(),
        "  │  ".dim(),
        figure(total.map(|total| format!("{:.0} requests/s", total.requests_per_s))).bold(),
        format!("  p50 {}", figure(total.map(|total| format!("{:.1} ms", total.p50_ms)))).into(),
        format!("  p99 {}", figure(total.map(|total| format!("{:.1} ms", total.p99_ms)))).into(),
        "  │  ".dim(),
        format!("{} moves", status.moves).bold(),
        "  │  ".dim(),
        errors(total.map_or(0, |total| total.errors)),
        "  │  view ".dim(),
        age.into(),
    ]);
    let note = status.notes.join("; ");
    let second = Line::from(vec![" q quits   ".dim(), note.dim()]);
    frame.render_widget(Paragraph::new(vec![line, second]), area);
}

fn errors(count: u64) -> Span<'static> {
    let text = format!("{count} errors");
    if count == 0 { text.dim() } else { Span::styled(text, alarm()) }
}

fn site_table(frame: &mut Frame<'_>, area: Rect, status: &Status<'_>) {
    let columns = SiteColumn::fit(status, usize::from(area.width.saturating_sub(BORDERS)));
    let rows = status.cluster.sites.iter().enumerate().map(|(index, site)| {
        let live = status.live.map(|live| live.sites[index]).unwrap_or_default();
        let nodes = status.monitor.serving(SiteId::new(index));
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

/// Of a block, left and right.
const BORDERS: u16 = 2;
/// Width of a site's name.
const SITE: usize = 12;
/// Width of a site's nodes, a square each, at most.
const SQUARES_MAX: usize = 24;

/// Room for all nodes at one site, within reason.
fn squares(status: &Status<'_>) -> usize {
    (2 * status.cluster.nodes.len() + 2).clamp("nodes".len(), SQUARES_MAX)
}

/// What is told of a site, beside its name and nodes.
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
    /// In this order, where there is no room.
    const LEFT_OUT: [SiteColumn; 4] =
        [SiteColumn::Bounds, SiteColumn::Why, SiteColumn::P50, SiteColumn::Errors];

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

    /// Those that a page of `width` has room for.
    fn fit(status: &Status<'_>, width: usize) -> Vec<SiteColumn> {
        let of_admission = [SiteColumn::Rejected, SiteColumn::Why, SiteColumn::Target];
        let mut columns = SiteColumn::ALL.to_vec();
        columns.retain(|column| status.cluster.has_admission() || !of_admission.contains(column));
        let room = width.saturating_sub(SITE + 1 + squares(status));
        fitting(columns, &SiteColumn::LEFT_OUT, room, SiteColumn::width)
    }
}

fn node_table(frame: &mut Frame<'_>, area: Rect, status: &Status<'_>) {
    let names: Vec<_> = status.cluster.sites.iter().map(|site| site.name.clone()).collect();
    let rows = (0..status.cluster.nodes.len()).map(|index| {
        let node = NodeId::new(index);
        let name = Cell::from(status.cluster.nodes[index].name.clone());
        let ownership = status.monitor.ownership(node);
        let site = ownership.and_then(|ownership| ownership.site);
        let style = Style::new().fg(site.map_or(Color::Reset, |site| colour(site.index())));
        let site_cell = Cell::from(whose(&names, ownership));
        let Some(hot) = status.monitor.hot(node) else {
            return Row::new([name, site_cell, Cell::from(Span::styled("no fresh record", alarm()))]);
        };
        let age = status.monitor.age(node).unwrap_or_default().as_secs_f64() * 1e3;
        Row::new([
            name,
            site_cell,
            Cell::from(load_bar(hot.busy.into(), hot.queued.into(), hot.workers.into(), BAR, style)),
            right(format!("{}/{}", hot.busy, hot.workers)),
            right(hot.queued.to_string()),
            right(hot.connections.to_string()),
            right(format!("{:.1}", f64::from(hot.cpu_permille) / 10.0)),
            right(hot.served.to_string()),
            right(format!("{age:.1}")),
        ])
    });
    let widths = [
        Constraint::Length(8),
        Constraint::Length(17),
        Constraint::Length(BAR as u16 + 1),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Length(10),
        Constraint::Length(7),
    ];
    let mut head: Vec<_> = ["node", "site", "load"].into_iter().map(Cell::from).collect();
    let names = ["busy", "queued", "conns", "CPU %", "served", "age ms"];
    head.extend(names.into_iter().map(|name| right(name.to_owned())));
    let table = Table::new(rows, widths).header(Row::new(head).dim()).block(block("nodes"));
    frame.render_widget(table, area);
}

fn happenings(frame: &mut Frame<'_>, area: Rect, status: &Status<'_>) {
    let room = area.height.saturating_sub(2) as usize;
    let latest = status.happened.iter().rev().take(room).map(|(at, text)| {
        Line::from(vec![format!("{:>8.2} s  ", at.as_secs_f64()).dim(), text.clone().into()])
    });
    let title = match status.monitor.draining() {
        0 => "what happened, latest first".to_owned(),
        draining => format!("what happened, latest first ({draining} moving)"),
    };
    frame.render_widget(Paragraph::new(latest.collect::<Vec<_>>()).block(block(&title)), area);
}
