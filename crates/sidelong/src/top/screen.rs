//! The page: a line on the cluster, its sites, the latest moves, and as many nodes as fit.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Wrap};
use sidelong_edge::DocumentStatus;
use sidelong_layout::SiteId;

use super::asking::Admitted;
use super::column::{Column, age, short};
use super::controls::{Controls, Mode};
use super::look::{Look, NodeRow, SiteRow, Status};
use crate::page::{alarm, colour, fitting, fitting_line, load_bar, right, site_name, whose};

/// Width of a site's load bar, in cells.
const BAR: usize = 12;
/// Longest name that is not cut.
const NAME_MAX: usize = 20;
/// Most moves shown, on a page of any height.
const MOVES_SHOWN: u16 = 6;

const HELP: &[&str] = &[
    "F6 s        choose the column to sort by: ← and → move, Enter confirms",
    "< >         sort by the previous, next column;  P by cpu%, M by mem%, N in file order",
    "I           reverse the order",
    "/ F4        filter nodes by name, site or state; Esc clears the filter",
    "Space z     freeze the page, or continue; scans go on meanwhile",
    "↑ ↓ PgUp PgDn Home End   scroll",
    "q F10       quit",
    "",
    "run         threads that run or wait     conns  open connections to the node's server",
    "queue       requests that wait           busy   busy workers, of all or as learned",
    "net/s       bytes per second, in and out age    of the figures when they were read",
    "state       fresh; never (nothing published yet); stale or torn (not used); gone",
];

/// Draws `look`; `frozen` tells since when the page is frozen, if it is.
pub(super) fn page(frame: &mut Frame<'_>, look: &Look, controls: &mut Controls, frozen: Option<Duration>) {
    let height = frame.area().height;
    let sites = (look.sites.len() as u16).min((height / 4).max(1)) + 1;
    let moves = (height / 10).clamp(1, MOVES_SHOWN);
    let parts = Layout::vertical([
        Constraint::Length(2 + u16::from(look.documents.is_some())),
        Constraint::Length(sites),
        Constraint::Length(moves),
        Constraint::Min(0),
        Constraint::Length(1),
    ]);
    let [head, top, middle, table, foot] = parts.areas(frame.area());
    heading(frame, head, look, frozen);
    site_table(frame, top, look);
    latest_moves(frame, middle, look);
    let rows = controls.rows(look);
    if controls.mode == Mode::Help {
        frame.render_widget(
            Paragraph::new(HELP.iter().map(|line| Line::from(*line)).collect::<Vec<_>>()),
            table,
        );
        footer(frame, foot, controls, String::new());
    } else {
        let (first, shown) = controls.window(&rows, usize::from(table.height.saturating_sub(1)));
        node_table(frame, table, look, controls, shown);
        let of = if rows.len() == look.nodes.len() { "" } else { " meant" };
        let last = first + shown.len();
        let range = format!("{}–{last} of {}{of}", (first + 1).min(last), rows.len());
        footer(frame, foot, controls, range);
    }
}

fn heading(frame: &mut Frame<'_>, area: Rect, look: &Look, frozen: Option<Duration>) {
    let totals = &look.totals;
    let width = usize::from(area.width);
    let fresh = look.count(Status::Fresh);
    let all_fresh = fresh == look.nodes.len();
    let nodes = format!("{fresh} of {} nodes fresh", look.nodes.len());
    let first = vec![
        (2, vec![" sidelong top ".bold().reversed(), " ".into()]),
        (3, vec![look.cluster.clone().bold(), "  ".into()]),
        (4, vec![format!("{} over {}", look.scheme, look.fabric).dim(), "  │ ".dim()]),
        (0, vec![if all_fresh { nodes.into() } else { Span::styled(nodes, alarm()) }]),
        (1, vec![" │ ".dim(), format!("{} moves", look.moves).bold()]),
    ];
    let figure = |rank, name: &'static str, text: String| {
        (rank, vec![name.dim(), " ".into(), text.bold(), "  ".into()])
    };
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let mut second = vec![
        figure(1, "req/s", short(totals.requests_per_s.round() as u64)),
        figure(4, "busy", format!("{}/{}", short(totals.busy), short(totals.workers))),
        figure(2, "queue", short(totals.queued)),
        figure(5, "conns", short(totals.connections)),
        figure(6, "run", or_none(totals.run_queue.map(short))),
        figure(3, "cpu%", or_none(totals.cpu_percent().map(|cpu| format!("{cpu:.1}")))),
        figure(7, "oldest", or_none(totals.age_max.map(age))),
    ];
    if let Some(since) = frozen {
        let text = format!(" FROZEN {:.0} s ", since.as_secs_f64());
        second.insert(0, (0, vec![text.bold().reversed(), " ".into()]));
    }
    let third = look.documents.as_ref().map(|documents| {
        let percent = |count: fn(&DocumentStatus) -> u64| {
            or_none(documents.percent(count).map(|percent| format!("{percent:.1} %")))
        };
        let failed = documents.total.map(|total| short(total.failed_reads));
        vec![
            figure(
                0,
                "documents/s",
                or_none(documents.requests_per_s().map(|rate| short(rate.round() as u64))),
            ),
            figure(1, "from memory", percent(|of| of.memory)),
            figure(4, "after a wait", percent(|of| of.memory_after_wait)),
            figure(2, "from nodes", percent(|of| of.server)),
            figure(5, "MiB/s", or_none(documents.mib_per_s().map(|rate| format!("{rate:.1}")))),
            figure(3, "failed reads", or_none(failed)),
        ]
    });
    let lines = [first, second].into_iter().chain(third).map(|pieces| fitting_line(pieces, width));
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), area);
}

fn site_table(frame: &mut Frame<'_>, area: Rect, look: &Look) {
    let room = usize::from(area.height.saturating_sub(1));
    let hidden = look.sites.len().saturating_sub(room);
    // The last line tells how many nodes do not fit.
    let shown = if hidden > 0 { room.saturating_sub(1) } else { room };
    let names = look.site_names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let name = names.clamp(4, NAME_MAX);
    let columns = SiteColumn::fit(look, name, usize::from(area.width));
    let mut rows: Vec<_> = look
        .sites
        .iter()
        .enumerate()
        .take(shown)
        .map(|(index, site)| Row::new(site_row(look, index, site, &columns)))
        .collect();
    if hidden > 0 {
        rows.push(Row::new([Cell::from(format!("{} more", look.sites.len() - shown).dim())]));
    }
    let widths = std::iter::once(name).chain(columns.iter().map(|column| column.width()));
    let widths = widths.map(|width| Constraint::Length(width as u16));
    let titles = columns.iter().map(|column| right(column.title().to_owned()));
    let head = std::iter::once(Cell::from("site")).chain(titles);
    frame.render_widget(Table::new(rows, widths).header(Row::new(head).dim()), area);
}

/// A figure of a site, beside its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SiteColumn {
    Nodes,
    Bounds,
    Bar,
    Load,
    Busy,
    Queue,
    Rate,
    Moving,
    Admitted,
    Rejected,
    Target,
    Why,
}

impl SiteColumn {
    const ALL: [SiteColumn; 12] = [
        SiteColumn::Nodes,
        SiteColumn::Bounds,
        SiteColumn::Bar,
        SiteColumn::Load,
        SiteColumn::Busy,
        SiteColumn::Queue,
        SiteColumn::Rate,
        SiteColumn::Moving,
        SiteColumn::Admitted,
        SiteColumn::Rejected,
        SiteColumn::Target,
        SiteColumn::Why,
    ];
    /// Shown only if requests may be rejected.
    const OF_ADMISSION: [SiteColumn; 4] =
        [SiteColumn::Admitted, SiteColumn::Rejected, SiteColumn::Target, SiteColumn::Why];
    /// The order in which they are dropped on a narrow page.
    const DROPPED_FIRST: [SiteColumn; 12] = [
        SiteColumn::Why,
        SiteColumn::Bar,
        SiteColumn::Bounds,
        SiteColumn::Moving,
        SiteColumn::Busy,
        SiteColumn::Queue,
        SiteColumn::Admitted,
        SiteColumn::Rate,
        SiteColumn::Rejected,
        SiteColumn::Target,
        SiteColumn::Load,
        SiteColumn::Nodes,
    ];

    fn title(self) -> &'static str {
        match self {
            SiteColumn::Nodes => "nodes",
            SiteColumn::Bounds => "floor–top",
            SiteColumn::Bar => "",
            SiteColumn::Load => "load",
            SiteColumn::Busy => "busy",
            SiteColumn::Queue => "queue",
            SiteColumn::Rate => "req/s",
            SiteColumn::Moving => "moving",
            SiteColumn::Admitted => "admitted",
            SiteColumn::Rejected => "reject/s",
            SiteColumn::Target => "target",
            SiteColumn::Why => "why",
        }
    }

    fn width(self) -> usize {
        match self {
            SiteColumn::Bar => BAR,
            SiteColumn::Nodes | SiteColumn::Load | SiteColumn::Queue | SiteColumn::Rate => 6,
            SiteColumn::Busy => 9,
            SiteColumn::Moving => 7,
            SiteColumn::Why => "all-overloaded".len(),
            _ => self.title().chars().count(),
        }
    }

    /// The columns that fit on a page of `width` beside names as wide as `name`.
    fn fit(look: &Look, name: usize, width: usize) -> Vec<SiteColumn> {
        let mut columns = SiteColumn::ALL.to_vec();
        columns.retain(|column| !look.admitted.is_empty() || !SiteColumn::OF_ADMISSION.contains(column));
        fitting(columns, &SiteColumn::DROPPED_FIRST, width.saturating_sub(name), SiteColumn::width)
    }
}

fn site_row(look: &Look, index: usize, site: &SiteRow, columns: &[SiteColumn]) -> Vec<Cell<'static>> {
    let sums = &site.sums;
    let style = Style::new().fg(colour(index));
    let admitted = look.admitted.get(index).cloned().unwrap_or_default();
    let Admitted { standing, rejected_per_s, why } = &admitted;
    let or_none = |text: Option<String>| right(text.unwrap_or_else(|| "-".to_owned()));
    let cell = |column: &SiteColumn| match column {
        SiteColumn::Nodes => right(site.serving.to_string()),
        SiteColumn::Bounds => right(format!("{}–{}", site.floor, site.ceiling)),
        SiteColumn::Bar => Cell::from(load_bar(sums.busy, sums.queued, sums.workers, BAR, style)),
        SiteColumn::Load => or_none(sums.load().map(|load| format!("{load:.2}"))),
        SiteColumn::Busy => right(format!("{}/{}", short(sums.busy), short(sums.workers))),
        SiteColumn::Queue => right(short(sums.queued)),
        SiteColumn::Rate => right(short(sums.requests_per_s.round() as u64)),
        SiteColumn::Moving => right(moving(site)),
        SiteColumn::Admitted => {
            or_none(standing.admitted_ratio.map(|ratio| format!("{:.0} %", 100.0 * ratio)))
        }
        SiteColumn::Rejected => or_none(rejected_per_s.map(|rate| short(rate.round() as u64))),
        SiteColumn::Target if standing.met == Some(false) => right("missed".to_owned()).style(alarm()),
        SiteColumn::Target => or_none(standing.met.map(|_| "met".to_owned())),
        SiteColumn::Why => right(why.clone().unwrap_or_default()),
    };
    let name = Cell::from(site_name(&look.site_names, SiteId::new(index)).bold());
    std::iter::once(name).chain(columns.iter().map(cell)).collect()
}

/// Nodes moving to the site and away from it.
fn moving(site: &SiteRow) -> String {
    match (site.coming, site.leaving) {
        (0, 0) => String::new(),
        (coming, 0) => format!("+{coming}"),
        (0, leaving) => format!("-{leaving}"),
        (coming, leaving) => format!("+{coming} -{leaving}"),
    }
}

fn latest_moves(frame: &mut Frame<'_>, area: Rect, look: &Look) {
    let latest = look.moved.iter().rev().take(area.height.into());
    let mut lines: Vec<_> = latest
        .map(|moved| {
            let site = |site: Option<usize>| match site {
                Some(site) => site_name(&look.site_names, SiteId::new(site)),
                None => "free".dim(),
            };
            Line::from(vec![
                format!("{:>6} ago  ", age(look.elapsed.saturating_sub(moved.at))).dim(),
                format!("{} moved ", look.nodes[moved.node].name).into(),
                site(moved.from),
                " → ".into(),
                site(moved.to),
                moved.why.as_ref().map_or_else(String::new, |why| format!(": {why}")).dim(),
            ])
        })
        .collect();
    if lines.is_empty() {
        lines.push(Line::from(format!("no move seen in {}", age(look.elapsed)).dim()));
    }
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }), area);
}

fn node_table(frame: &mut Frame<'_>, area: Rect, look: &Look, controls: &Controls, shown: &[usize]) {
    let columns = fit(look, shown, usize::from(area.width));
    let head = columns.iter().map(|(column, _)| {
        let title = Span::from(column.title());
        let title = if *column == controls.sort { title.bold().not_reversed() } else { title };
        match column.is_text() {
            true => Cell::from(title),
            false => Cell::from(Line::from(title).right_aligned()),
        }
    });
    let rows = shown.iter().map(|row| {
        let row = &look.nodes[*row];
        Row::new(columns.iter().map(|(column, _)| cell(*column, look, row)))
    });
    let widths = columns.iter().map(|(_, width)| Constraint::Length(*width as u16));
    frame.render_widget(Table::new(rows, widths).header(Row::new(head).reversed()), area);
}

/// Whether more requests wait than the server works on.
fn is_long(row: &NodeRow) -> bool {
    let queues = row.connections.zip(row.workers);
    queues.is_some_and(|(connections, workers)| connections.queued > u32::from(workers.all))
}

fn cell(column: Column, look: &Look, row: &NodeRow) -> Cell<'static> {
    let text = column.text(look, row);
    match column {
        Column::Site => Cell::from(whose(&look.site_names, row.ownership)),
        Column::Node => Cell::from(text),
        Column::State if row.status == Status::Fresh => right(text).dim(),
        Column::State => right(text).style(alarm()),
        Column::Queue if is_long(row) => right(text).bold(),
        _ => right(text),
    }
}

/// The columns that fit on a page of `width`, and the width of each: no figure of the rows shown is cut.
fn fit(look: &Look, shown: &[usize], width: usize) -> Vec<(Column, usize)> {
    let longest =
        |names: &mut dyn Iterator<Item = &String>| names.map(|name| name.chars().count()).max().unwrap_or(0);
    let node = longest(&mut look.nodes.iter().map(|node| &node.name));
    let site = longest(&mut look.site_names.iter());
    let wanted = |column: Column| match column {
        Column::Node => node.clamp(column.width(), NAME_MAX),
        Column::Site => site.clamp(column.width(), NAME_MAX),
        _ => {
            let texts = shown.iter().map(|row| column.text(look, &look.nodes[*row]).chars().count());
            texts.fold(column.width(), usize::max)
        }
    };
    // The first column has no space before it.
    let kept = fitting(Column::ALL.to_vec(), &Column::DROPPED_FIRST, width + 1, wanted);
    let mut columns: Vec<_> = kept.into_iter().map(|column| (column, wanted(column))).collect();
    let taken = columns.iter().map(|(_, width)| width + 1).sum::<usize>();
    // The rest goes to nodes between two sites, then to all columns alike.
    let spare = (width + 1).saturating_sub(taken);
    let between = (site + " → ".chars().count()).min(spare);
    let each = ((spare - between) / columns.len()).min(4);
    for (column, width) in &mut columns {
        *width += each + if *column == Column::Site { between } else { 0 };
    }
    columns
}

fn footer(frame: &mut Frame<'_>, area: Rect, controls: &Controls, range: String) {
    let key = |key: &'static str| key.bold();
    let arrow = if controls.most_first { "▼" } else { "▲" };
    let sort = format!(" sort: {} {arrow}  ", controls.sort.title());
    let line = match controls.mode {
        Mode::Filter => Line::from(vec![
            "filter: ".into(),
            controls.filter.clone().bold(),
            "▏".into(),
            "  Enter keeps it, Esc clears it".dim(),
        ]),
        Mode::Sort => Line::from(vec![sort.bold(), "← → move, Enter confirms".dim()]),
        Mode::Help => Line::from("any key goes back".dim()),
        Mode::Browse => {
            let filter = match controls.filter.as_str() {
                "" => " filter  ".into(),
                filter => format!(" filter: {filter}  ").bold(),
            };
            let keys = [key("?"), " help  ".into(), key("F6"), sort.into(), key("/"), filter];
            let more = [key("Space"), " freeze  ".into(), key("q"), " quit".into()];
            Line::from(keys.into_iter().chain(more).collect::<Vec<_>>())
        }
    };
    let parts = Layout::horizontal([Constraint::Min(0), Constraint::Length(range.chars().count() as u16)]);
    let [left, end] = parts.areas(area);
    frame.render_widget(Paragraph::new(line), left);
    frame.render_widget(Paragraph::new(range.dim()), end);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::look::Workers;
    use super::super::look::tests::{look_at, serving};
    use super::*;

    fn draw(width: u16, height: u16, look: &Look, controls: &mut Controls) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| page(frame, look, controls, None)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn everything_stands_in_eighty_by_twenty_four() {
        let look = look_at(&["alpha", "beta", "gamma"], &[serving(0), serving(1), serving(2)]);
        let text = draw(80, 24, &look, &mut Controls::new(Column::Node, ""));
        for column in Column::ALL {
            assert!(text.contains(column.title()), "{column:?}: {text}");
        }
        for word in ["sidelong top", "alpha", "n1", "n3", "fresh", "moves", "q quit", "1–3 of 3"] {
            assert!(text.contains(word), "{word:?}: {text}");
        }
    }

    #[test]
    fn who_is_rejected_and_whether_targets_are_held_stands_in_eighty_columns() {
        use crate::status::Standing;
        let mut look = look_at(&["alpha", "beta"], &[serving(0), serving(1)]);
        let held = Standing { admitted_ratio: Some(1.0), met: Some(true), ..Standing::default() };
        let missed = Standing { admitted_ratio: Some(0.25), met: Some(false), rejected: 90, ..held.clone() };
        let (rejected_per_s, why) = (Some(30.0), Some("over-target".to_owned()));
        look.admitted = vec![
            Admitted { standing: held, rejected_per_s: Some(0.0), why: None },
            Admitted { standing: missed, rejected_per_s, why },
        ];
        let row = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.trim_start_matches('"').starts_with(name)).unwrap();
            line.to_owned()
        };
        let narrow = draw(80, 24, &look, &mut Controls::new(Column::Node, ""));
        for (name, words) in
            [("site", ["admitted", "reject/s", "target"]), ("alpha", ["100 %", " 0 ", "met"])]
        {
            assert!(words.iter().all(|word| row(&narrow, name).contains(word)), "{name}: {narrow}");
        }
        let words = ["25 %", " 30 ", "missed"];
        assert!(words.iter().all(|word| row(&narrow, "beta").contains(word)), "{narrow}");
        let wide = draw(120, 24, &look, &mut Controls::new(Column::Node, ""));
        assert!(
            row(&wide, "beta").contains("over-target") && row(&wide, "site").contains("floor–top"),
            "{wide}"
        );
    }

    /// Everything on a narrow page is on a wide one too: words and figures are dropped as a whole.
    #[test]
    fn nothing_is_cut_on_a_narrow_page() {
        use crate::status::Standing;
        let mut look = look_at(&["alpha", "beta"], &[serving(0), serving(1)]);
        let standing = Standing { admitted_ratio: Some(1.0), met: Some(true), ..Standing::default() };
        let admitted =
            Admitted { standing, rejected_per_s: Some(1234.0), why: Some("all-overloaded".to_owned()) };
        look.admitted = vec![admitted; 2];
        look.nodes[1].cpu_permille = Some(1000);
        look.nodes[0].workers = look.nodes[0].workers.map(|workers| Workers { busy: 10_000, ..workers });
        let words = |width| -> Vec<String> {
            let text = draw(width, 30, &look, &mut Controls::new(Column::Node, ""));
            // The last line lists keys, and is cut at its end.
            let lines = text.lines().map(|line| line.trim_matches('"')).take(29);
            lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
        };
        let all = words(300);
        assert!(["100", "100.0", "10000/2"].iter().all(|word| all.iter().any(|one| one == word)), "{all:?}");
        for width in 24..300 {
            let cut: Vec<_> = words(width).into_iter().filter(|word| !all.contains(word)).collect();
            assert_eq!(cut, [""; 0], "at {width} columns");
        }
    }

    #[test]
    fn a_page_of_any_size_is_drawn() {
        let look = look_at(&["alpha"; 40], &[serving(0); 3]);
        for (width, height) in [(1, 1), (3, 40), (20, 5), (40, 10), (80, 24), (81, 7), (300, 120)] {
            for mode in [Mode::Browse, Mode::Sort, Mode::Filter, Mode::Help] {
                let mut controls = Controls::new(Column::Cpu, "");
                controls.mode = mode;
                let _ = draw(width, height, &look, &mut controls);
            }
        }
    }

    #[test]
    fn ten_thousand_nodes_scroll() {
        use ratatui::crossterm::event::{KeyCode, KeyEvent};
        let look = look_at(&["alpha"], &[serving(0); 10_000]);
        let mut controls = Controls::new(Column::Node, "");
        let mut seen = String::new();
        for (key, first, range) in [
            (None, "n1 ", "of 10000"),
            (Some(KeyCode::End), "n10000 ", "–10000 of 10000"),
            (Some(KeyCode::PageUp), "n9980 ", "of 10000"),
            (Some(KeyCode::Home), "n1 ", "of 10000"),
            (Some(KeyCode::Down), "n2 ", "of 10000"),
        ] {
            if let Some(key) = key {
                controls.key(&KeyEvent::from(key));
            }
            let text = draw(80, 24, &look, &mut controls);
            assert!(text.contains(first) && text.contains(range), "{first} {range}: {text}");
            assert_ne!(text, seen);
            seen = text;
        }
    }
}
