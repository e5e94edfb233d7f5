//! What the screens of `up` and `top` share: the terminal, the colours, and the drawing of a node's site and load.
//!
//! A screen uses the terminal's own background and text colour, dark or light. If NO_COLOR is set it uses no others.

use std::fs::File;
use std::io::IsTerminal as _;
use std::os::fd::AsFd as _;
use std::sync::LazyLock;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Cell};
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use sidelong_layout::{NodeState, Ownership, SiteId};

use crate::failure::Failure;

/// Okabe and Ito's colours, which can be told apart with any kind of colour vision, without the yellow, which is unreadable on
/// white. Each site has one of them.
const SITE_COLOURS: [Color; 6] = [
    Color::Rgb(86, 180, 233),
    Color::Rgb(230, 159, 0),
    Color::Rgb(0, 158, 115),
    Color::Rgb(204, 121, 167),
    Color::Rgb(213, 94, 0),
    Color::Rgb(0, 114, 178),
];
/// Whether NO_COLOR is set (no-color.org).
pub(crate) static PLAIN: LazyLock<bool> =
    LazyLock::new(|| std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()));

/// The terminal, in raw mode and on an alternate screen until this is dropped or the program panics.
pub(crate) struct Terminal {
    /// `Some` until this is dropped.
    terminal: Option<DefaultTerminal>,
    /// The file that crossterm 0.29 reads keys from.
    keys: File,
}

impl Terminal {
    pub(crate) fn open() -> Result<Self, Failure> {
        let stdin = std::io::stdin();
        let keys = if stdin.is_terminal() {
            File::from(stdin.as_fd().try_clone_to_owned()?)
        } else {
            File::open("/dev/tty")?
        };
        Ok(Terminal { terminal: Some(ratatui::try_init()?), keys })
    }

    /// Whether standard output is a terminal.
    pub(crate) fn is_there() -> bool {
        std::io::stdout().is_terminal()
    }

    pub(crate) fn draw(&mut self, page: impl FnOnce(&mut Frame<'_>)) -> Result<(), Failure> {
        if let Some(terminal) = &mut self.terminal {
            terminal.draw(page)?;
        }
        Ok(())
    }

    /// The next key within `wait`; `None` if there is none, or something else happened, such as a change of size.
    ///
    /// # Errors
    /// If the terminal is gone: its window was closed, or its connection broke.
    pub(crate) fn key(&mut self, wait: Duration) -> Result<Option<KeyEvent>, Failure> {
        if self.is_gone(wait)? {
            return Err(Failure::new("the terminal is gone"));
        }
        if !event::poll(Duration::ZERO)? {
            return Ok(None);
        }
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => Ok(Some(key)),
            _ => Ok(None),
        }
    }

    /// Waits for a key, and returns whether the terminal is gone. Crossterm would read its end of file for ever.
    fn is_gone(&self, wait: Duration) -> Result<bool, Failure> {
        let mut keys = [PollFd::new(&self.keys, PollFlags::IN)];
        match poll(&mut keys, Some(&Timespec::try_from(wait)?)) {
            // A signal.
            Err(Errno::INTR) => return Ok(false),
            found => _ = found?,
        }
        Ok(keys[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.is_gone(Duration::ZERO).unwrap_or(true) {
            // Ratatui would panic: it cannot print that it cannot restore the terminal.
            std::mem::forget(self.terminal.take());
        } else {
            ratatui::restore();
        }
    }
}

/// Whether the key is Ctrl-C, which raw mode does not turn into a signal.
pub(crate) fn is_interrupt(key: &KeyEvent) -> bool {
    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL)
}

fn unless_plain(colour: Color) -> Color {
    if *PLAIN { Color::Reset } else { colour }
}

/// The colour of the `site`-th site.
pub(crate) fn colour(site: usize) -> Color {
    unless_plain(SITE_COLOURS[site % SITE_COLOURS.len()])
}

/// The style of alarms.
pub(crate) fn alarm() -> Style {
    Style::new().fg(unless_plain(Color::Red)).bold()
}

pub(crate) fn block(title: &str) -> Block<'static> {
    let border = Style::new().fg(unless_plain(Color::DarkGray));
    Block::bordered().border_type(BorderType::Rounded).border_style(border).title(format!(" {title} "))
}

pub(crate) fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).right_aligned())
}

/// A site's name in its colour; `names` are those of all sites.
pub(crate) fn site_name(names: &[String], site: SiteId) -> Span<'static> {
    let name = names.get(site.index()).cloned().unwrap_or_default();
    Span::styled(name, Style::new().fg(colour(site.index())))
}

/// The site that a node serves, or the two that it moves between; that it is held, or pinned to its site.
pub(crate) fn whose(names: &[String], ownership: Option<Ownership>) -> Line<'static> {
    let Some(Ownership { state, site, next, .. }) = ownership else { return Line::from("-".dim()) };
    Line::from(match (state, site, next) {
        (NodeState::Held, ..) => vec!["held".dim()],
        (_, None, None) => vec!["-".dim()],
        (_, None, Some(next)) => vec!["→ ".into(), site_name(names, next)],
        (NodeState::Changing, Some(site), Some(next)) => {
            vec![site_name(names, site), " → ".into(), site_name(names, next), " changing".dim()]
        }
        (_, Some(site), Some(next)) => vec![site_name(names, site), " → ".into(), site_name(names, next)],
        (NodeState::Draining, Some(site), None) => vec![site_name(names, site), " → held".into()],
        (NodeState::Pinned, Some(site), None) => vec![site_name(names, site), " pinned".dim()],
        (_, Some(site), None) => vec![site_name(names, site)],
    })
}

/// The columns that fit into `room` cells, each `width` cells wide with a space before it. On a narrow page, the
/// columns of `dropped_first` are dropped in that order. A column that stays is never cut.
pub(crate) fn fitting<C: Copy + PartialEq>(
    mut columns: Vec<C>,
    dropped_first: &[C],
    room: usize,
    width: impl Fn(C) -> usize,
) -> Vec<C> {
    for dropped in dropped_first {
        if columns.iter().map(|column| 1 + width(*column)).sum::<usize>() > room {
            columns.retain(|column| column != dropped);
        }
    }
    columns
}

/// Spans that are shown together or not at all, and their rank: on a narrow line the highest rank is dropped first.
pub(crate) type Piece = (u8, Vec<Span<'static>>);

/// A line of at most `width` cells: the pieces of the lowest ranks that fit.
pub(crate) fn fitting_line(mut pieces: Vec<Piece>, width: usize) -> Line<'static> {
    let taken = |pieces: &[Piece]| pieces.iter().flat_map(|(_, spans)| spans).map(Span::width).sum::<usize>();
    while taken(&pieces) > width {
        let Some(last) = (0..pieces.len()).max_by_key(|index| pieces[*index].0) else { break };
        pieces.remove(last);
    }
    Line::from_iter(pieces.into_iter().flat_map(|(_, spans)| spans))
}

/// A bar of `width` cells: busy workers in `style`, then queued requests as an alarm. It is full if all workers are busy and
/// as many requests are queued.
pub(crate) fn load_bar(busy: u64, queued: u64, workers: u64, width: usize, style: Style) -> Line<'static> {
    let cells = |requests: u64| {
        let all = workers.max(1).saturating_mul(2);
        usize::try_from(requests.saturating_mul(width as u64).div_ceil(all)).unwrap_or(usize::MAX)
    };
    let busy_cells = cells(busy.min(workers)).min(width);
    let queued_cells = cells(queued).min(width - busy_cells);
    Line::from(vec![
        Span::styled("█".repeat(busy_cells), style),
        Span::styled("▒".repeat(queued_cells), alarm()),
        "·".repeat(width - busy_cells - queued_cells).dim(),
    ])
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Not a test: what the test below runs on a terminal.
    #[test]
    fn panics_on_a_page() {
        if std::env::var_os("SIDELONG_TEST_PANIC").is_none() {
            return;
        }
        let mut terminal = Terminal::open().unwrap();
        terminal.draw(|_| panic!("a page that cannot be drawn")).unwrap();
    }

    #[test]
    fn a_panic_leaves_the_terminal_as_it_was() {
        let program = std::env::current_exe().unwrap();
        let test = format!("{} --exact page::tests::panics_on_a_page --nocapture", program.display());
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--flush", "--command", &test, "/dev/null"]);
        script.env("TERM", "xterm").env("SIDELONG_TEST_PANIC", "1").stdin(std::process::Stdio::null());
        let Ok(done) = script.output() else {
            use std::io::Write as _;
            writeln!(
                std::io::stderr(),
                "SKIPPED: panic on a page: no `script` program, which lends a terminal"
            )
            .unwrap();
            return;
        };
        let out = String::from_utf8_lossy(&done.stdout);
        let (_, after) = out.split_once("\x1b[?1049h").unwrap_or_else(|| panic!("{out:?}"));
        let (_, said) = after.split_once("\x1b[?1049l").unwrap_or_else(|| panic!("{out:?}"));
        assert!(said.contains("a page that cannot be drawn"), "the reason is left on the terminal: {out:?}");
    }

    #[test]
    fn the_most_important_pieces_of_a_line_stay_whole() {
        let line = |width| {
            let pieces = [(1, "requests "), (3, "moves "), (0, "errors "), (2, "p99")];
            let pieces = pieces.map(|(rank, text)| (rank, vec![Span::from(text)]));
            fitting_line(pieces.to_vec(), width).to_string()
        };
        assert_eq!(line(25), "requests moves errors p99");
        assert_eq!(line(24), "requests errors p99");
        assert_eq!(line(18), "requests errors ");
        assert_eq!(line(7), "errors ");
        assert_eq!(line(6), "");
    }

    #[test]
    fn columns_go_one_by_one_until_the_others_fit() {
        let fit = |room| fitting(vec![3, 4, 5], &[4, 3, 5], room, |width| width);
        assert_eq!([fit(15), fit(14), fit(9), fit(5)], [vec![3, 4, 5], vec![3, 5], vec![5], vec![]]);
    }

    #[test]
    fn bars_are_as_wide_as_they_should_whatever_is_in_them() {
        for (busy, queued, workers) in
            [(0, 0, 0), (1, 0, 2), (2, 9, 2), (9, 0, 2), (u64::MAX, u64::MAX, u64::MAX)]
        {
            for width in [0, 1, 12] {
                let bar = load_bar(busy, queued, workers, width, Style::new());
                assert_eq!(bar.width(), width, "{busy} {queued} {workers}");
            }
        }
    }
}
