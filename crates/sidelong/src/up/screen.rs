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
use crate::page::{Terminal, alarm, block, colour, is_interrupt, load_bar, right, whose};

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
    let rows = status.cluster.sites.iter().enumerate().map(|(index, site)| {
        let live = status.live.map(|live| live.sites[index]).unwrap_or_default();
        let nodes = status.monitor.serving(SiteId::new(index));
        let mut cells = vec![
            Cell::from(site.name.clone()).style(Style::new().fg(colour(index)).bold()),
            Cell::from(Line::from(vec![
                Span::styled("■ ".repeat(nodes), Style::new().fg(colour(index))),
                Span::from(nodes.to_string()).bold(),
            ])),
            right(format!("{}–{}", site.floor, site.ceiling)),
            right(format!("{:.0}", live.requests_per_s)),
            right(format!("{:.1}", live.p50_ms)),
            right(format!("{:.1}", live.p99_ms)),
            right(live.errors.to_string()),
        ];
        if status.cluster.has_admission() {
            cells.push(rejected(status.rejected_per_s(index), status.admissions.is_missed(index)));
        }
        Row::new(cells)
    });
    let mut widths = vec![
        Constraint::Length(12),
        Constraint::Min(24),
        Constraint::Length(9),
        Constraint::Length(11),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(8),
    ];
    let mut names = vec!["floor–top", "requests/s", "p50 ms", "p99 ms", "errors"];
    if status.cluster.has_admission() {
        names.push("rejected/s");
        widths.push(Constraint::Length(11));
    }
    let mut head: Vec<_> = ["site", "nodes"].into_iter().map(Cell::from).collect();
    head.extend(names.into_iter().map(|name| right(name.to_owned())));
    let table = Table::new(rows, widths).header(Row::new(head).dim()).block(block("sites"));
    frame.render_widget(table, area);
}

/// In another colour while the target is missed all the same.
fn rejected(per_s: u64, is_missed: bool) -> Cell<'static> {
    let cell = right(per_s.to_string());
    if is_missed { cell.style(alarm()) } else { cell }
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
