//! The keys: which rows are shown, in which order, and whether the page is frozen. No I/O.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::column::Column;
use super::look::Look;
use crate::page::is_interrupt;

/// The longest filter, in characters.
const FILTER_MAX: usize = 64;

/// The current mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Mode {
    #[default]
    Browse,
    /// Choosing a column.
    Sort,
    /// Typing a filter.
    Filter,
    Help,
}

/// What a key asks the caller to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wish {
    Nothing,
    /// Freeze the page, or continue.
    Freeze,
    Quit,
}

/// The state that the keys have set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Controls {
    pub(super) sort: Column,
    pub(super) most_first: bool,
    pub(super) filter: String,
    pub(super) mode: Mode,
    /// The first row shown, and the number of rows that fitted on the last page.
    top: usize,
    room: usize,
}

impl Controls {
    pub(super) fn new(sort: Column, filter: &str) -> Self {
        let filter = filter.chars().take(FILTER_MAX).collect();
        let mut controls = Controls { sort, most_first: false, filter, mode: Mode::Browse, top: 0, room: 1 };
        controls.sort_by(sort);
        controls
    }

    pub(super) fn key(&mut self, key: &KeyEvent) -> Wish {
        if is_interrupt(key) {
            return Wish::Quit;
        }
        match self.mode {
            Mode::Filter => self.edit(key),
            Mode::Help => self.mode = Mode::Browse,
            Mode::Sort => match key.code {
                KeyCode::Left | KeyCode::Up => self.step(-1),
                KeyCode::Right | KeyCode::Down | KeyCode::Tab => self.step(1),
                KeyCode::Enter | KeyCode::Esc | KeyCode::F(6) | KeyCode::Char('s') => {
                    self.mode = Mode::Browse
                }
                _ => return self.browse(key),
            },
            Mode::Browse => return self.browse(key),
        }
        Wish::Nothing
    }

    fn browse(&mut self, key: &KeyEvent) -> Wish {
        match key.code {
            KeyCode::Char('q') | KeyCode::F(10) => return Wish::Quit,
            KeyCode::Char(' ' | 'z') => return Wish::Freeze,
            KeyCode::F(6) | KeyCode::Char('s') => self.mode = Mode::Sort,
            KeyCode::Char('<' | ',') => self.step(-1),
            KeyCode::Char('>' | '.') => self.step(1),
            KeyCode::Char('I') => self.most_first = !self.most_first,
            KeyCode::Char('P') => self.sort_by(Column::Cpu),
            KeyCode::Char('M') => self.sort_by(Column::Memory),
            KeyCode::Char('N') => self.sort_by(Column::Node),
            KeyCode::Char('/' | '\\') | KeyCode::F(3 | 4) => self.mode = Mode::Filter,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up | KeyCode::Char('k') => self.top = self.top.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.top = self.top.saturating_add(1),
            KeyCode::PageUp => self.top = self.top.saturating_sub(self.room),
            KeyCode::PageDown => self.top = self.top.saturating_add(self.room),
            KeyCode::Home | KeyCode::Char('g') => self.top = 0,
            KeyCode::End | KeyCode::Char('G') => self.top = usize::MAX,
            _ => {}
        }
        Wish::Nothing
    }

    fn edit(&mut self, key: &KeyEvent) {
        match key.code {
            KeyCode::Enter => self.mode = Mode::Browse,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Browse;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => self.filter.clear(),
            KeyCode::Char(char) if self.filter.chars().count() < FILTER_MAX => self.filter.push(char),
            _ => {}
        }
        self.top = 0;
    }

    fn step(&mut self, by: isize) {
        let count = Column::ALL.len();
        let at = Column::ALL.iter().position(|column| *column == self.sort).unwrap_or(0);
        self.sort_by(Column::ALL[at.wrapping_add_signed(by).wrapping_add(count) % count]);
    }

    fn sort_by(&mut self, column: Column) {
        self.sort = column;
        self.most_first = !column.begins_with_least();
        self.top = 0;
    }

    /// The nodes to show, all of them, in order.
    pub(super) fn rows(&self, look: &Look) -> Vec<usize> {
        let filter = self.filter.to_lowercase();
        let mut rows: Vec<_> = (0..look.nodes.len()).filter(|row| is_meant(look, *row, &filter)).collect();
        self.sort.sort(look, &mut rows, self.most_first);
        rows
    }

    /// The part of `rows` that fits, and where it begins. The page never scrolls past the end.
    pub(super) fn window<'r>(&mut self, rows: &'r [usize], room: usize) -> (usize, &'r [usize]) {
        self.room = room.max(1);
        self.top = self.top.min(rows.len().saturating_sub(room));
        (self.top, &rows[self.top..rows.len().min(self.top + room)])
    }
}

/// Whether the name, a site, or the state of a node contains `filter`, which is in lower case.
fn is_meant(look: &Look, row: usize, filter: &str) -> bool {
    let row = &look.nodes[row];
    let next = row.ownership.and_then(|ownership| ownership.next).map(|next| next.index());
    let site = row.ownership.map(|_| look.site_name(row.site()));
    let next = next.map(|next| look.site_name(Some(next)));
    let texts = [Some(row.name.as_str()), site, next, Some(row.status.word()), Some(row.state())];
    filter.is_empty() || texts.into_iter().flatten().any(|text| text.to_lowercase().contains(filter))
}
