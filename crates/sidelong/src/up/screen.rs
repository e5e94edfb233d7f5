//! The live page on a terminal.

use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Cell, Paragraph, Row, Table};
use sidelong_layout::{NodeId, NodeState, SiteId};

use super::Status;
use crate::failure::Failure;

/// Okabe and Ito's colours, which people with any kind of colour vision tell apart. A site has one throughout.
const SITE_COLOURS: [Color; 7] = [
    Color::Rgb(86, 180, 233),
    Color::Rgb(230, 159, 0),
    Color::Rgb(0, 158, 115),
    Color::Rgb(204, 121, 167),
    Color::Rgb(240, 228, 66),
    Color::Rgb(213, 94, 0),
    Color::Rgb(0, 114, 178),
];
/// Width of a node's load bar, in cells; full is all workers busy and as many requests waiting.
const BAR: usize = 24;

/// The terminal, in raw mode until this is dropped.
pub(super) struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    pub(super) fn open() -> Result<Self, Failure> {
        Ok(Screen { terminal: ratatui::try_init()? })
    }

    pub(super) fn draw(&mut self, status: &Status<'_>) -> Result<(), Failure> {
        self.terminal.draw(|frame| page(frame, status))?;
        Ok(())
    }

    /// Whether someone pressed q, Esc or Ctrl-C, which in raw mode is a key.
    pub(super) fn wants_to_quit(&mut self) -> Result<bool, Failure> {
        while event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()? {
                let interrupt =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
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
    if count == 0 { text.dim() } else { text.red().bold() }
}

fn site_table(frame: &mut Frame<'_>, area: Rect, status: &Status<'_>) {
    let rows = status.cluster.sites.iter().enumerate().map(|(index, site)| {
        let live = status.live.map(|live| live.sites[index]).unwrap_or_default();
        let nodes = status.monitor.serving(SiteId::new(index));
        Row::new([
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
        ])
    });
    let widths = [
        Constraint::Length(12),
        Constraint::Min(24),
        Constraint::Length(9),
        Constraint::Length(11),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(8),
    ];
    let head = ["site", "nodes", "", "", "", "", ""];
    let mut head: Vec<_> = head.into_iter().map(Cell::from).collect();
    for (cell, name) in head[2..].iter_mut().zip(["floor–top", "requests/s", "p50 ms", "p99 ms", "errors"])
    {
        *cell = right(name.to_owned());
    }
    let table = Table::new(rows, widths).header(Row::new(head).dim()).block(block("sites"));
    frame.render_widget(table, area);
}

fn node_table(frame: &mut Frame<'_>, area: Rect, status: &Status<'_>) {
    let rows = (0..status.cluster.nodes.len()).map(|index| {
        let node = NodeId::new(index);
        let name = Cell::from(status.cluster.nodes[index].name.clone());
        let ownership = status.monitor.ownership(node);
        let site = ownership.and_then(|ownership| ownership.site);
        let site_cell = match (ownership.map(|o| o.state), site) {
            (Some(NodeState::Serving), Some(site)) => Cell::from(site_name(status, site)),
            (Some(NodeState::Draining), Some(site)) => {
                let next = ownership.and_then(|o| o.next).map(|next| site_name(status, next));
                let next = next.unwrap_or_default();
                Cell::from(Line::from(vec![site_name(status, site), " → ".into(), next]))
            }
            _ => Cell::from("-".dim()),
        };
        let Some(hot) = status.monitor.hot(node) else {
            return Row::new([name, site_cell, Cell::from("no fresh record".red())]);
        };
        let age = status.monitor.age(node).unwrap_or_default().as_secs_f64() * 1e3;
        Row::new([
            name,
            site_cell,
            Cell::from(load_bar(hot.busy, hot.queued, u32::from(hot.workers), site)),
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

/// Busy workers in the site's colour, waiting requests in red behind them.
fn load_bar(busy: u32, queued: u32, workers: u32, site: Option<SiteId>) -> Line<'static> {
    let cells = |requests: u32| (requests as usize * BAR).div_ceil(workers.max(1) as usize * 2);
    let busy_cells = cells(busy.min(workers)).min(BAR);
    let queued_cells = cells(queued).min(BAR - busy_cells);
    let style = Style::new().fg(site.map_or(Color::Gray, |site| colour(site.index())));
    Line::from(vec![
        Span::styled("█".repeat(busy_cells), style),
        "▒".repeat(queued_cells).red(),
        "·".repeat(BAR - busy_cells - queued_cells).dim(),
    ])
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

fn block(title: &str) -> Block<'static> {
    let border = Style::new().fg(Color::DarkGray);
    Block::bordered().border_type(BorderType::Rounded).border_style(border).title(format!(" {title} "))
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

fn site_name(status: &Status<'_>, site: SiteId) -> Span<'static> {
    let name = status.cluster.sites[site.index()].name.clone();
    Span::styled(name, Style::new().fg(colour(site.index())))
}

fn colour(site: usize) -> Color {
    SITE_COLOURS[site % SITE_COLOURS.len()]
}
