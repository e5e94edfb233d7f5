//! `report.md` as a study writes it for one repetition, and how several become one, with medians in place of figures.

use sidelong_figure::statistics::Median;

use crate::check::Check;
use crate::markdown::{HEADING, table, targets};
use crate::series::MISSING;
pub(crate) use crate::series::number;

/// A report of one repetition, as it is written.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Story {
    parts: Vec<Part>,
    /// What the frame adds behind the machine.
    how: Vec<Part>,
}

#[derive(Clone, PartialEq, Debug)]
enum Part {
    Text(String),
    List(Vec<String>),
    Table { columns: Vec<String>, rows: Vec<Vec<String>> },
    Checks,
}

impl Story {
    pub(crate) fn heading(&mut self, text: &str) {
        self.paragraph(&format!("{HEADING}{text}"));
    }

    pub(crate) fn paragraph(&mut self, text: &str) {
        self.parts.push(Part::Text(text.to_owned()));
    }

    pub(crate) fn list(&mut self, items: impl IntoIterator<Item = String>) {
        self.parts.push(Part::List(items.into_iter().collect()));
    }

    pub(crate) fn table(&mut self, columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
        let columns = columns.iter().map(|&column| column.to_owned()).collect();
        self.parts.push(Part::Table { columns, rows: rows.into_iter().collect() });
    }

    /// Puts the targets here.
    pub(crate) fn checks(&mut self) {
        self.parts.push(Part::Checks);
    }

    /// Adds a paragraph on how it was measured, at the end of the report.
    pub(crate) fn how(&mut self, text: &str) {
        self.how.push(Part::Text(text.to_owned()));
    }

    /// The report as Markdown: the body, and the part on how it was measured.
    pub(crate) fn markdown(&self, checks: &[Check]) -> (String, String) {
        let text =
            |parts: &[Part]| parts.iter().map(|part| format!("\n{}\n", part.markdown(checks))).collect();
        (text(&self.parts), text(&self.how))
    }
}

impl Part {
    fn markdown(&self, checks: &[Check]) -> String {
        match self {
            Part::Text(text) => text.clone(),
            Part::List(items) => items.iter().map(|item| format!("- {item}")).collect::<Vec<_>>().join("\n"),
            Part::Table { columns, rows } => table(columns, rows),
            Part::Checks => targets(checks),
        }
    }
}

/// Merges the stories of the repetitions. Figures that differ become their median, in a table with its interval.
pub(crate) fn merge(stories: Vec<Story>) -> Story {
    let mut stories = stories.into_iter();
    let Some(mut first) = stories.next() else { return Story::default() };
    let others: Vec<Story> = stories.collect();
    let merge = |part: &mut Part, others: Vec<&Part>| {
        if !others.is_empty() {
            part.take_in(&others);
        }
    };
    for (at, part) in first.parts.iter_mut().enumerate() {
        merge(part, others.iter().filter_map(|story| story.parts.get(at)).collect());
    }
    for (at, part) in first.how.iter_mut().enumerate() {
        merge(part, others.iter().filter_map(|story| story.how.get(at)).collect());
    }
    first
}

impl Part {
    /// Becomes the median of itself and those of `others` that have the same form.
    fn take_in(&mut self, others: &[&Part]) {
        match self {
            Part::Text(text) => {
                let others = others
                    .iter()
                    .filter_map(|part| if let Part::Text(text) = part { Some(text) } else { None });
                *text = middle(&[text.clone()].iter().chain(others).collect::<Vec<_>>(), false);
            }
            Part::List(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    let others = others.iter().filter_map(|part| match part {
                        Part::List(items) => items.get(at),
                        _ => None,
                    });
                    *item = middle(&[item.clone()].iter().chain(others).collect::<Vec<_>>(), false);
                }
            }
            Part::Table { rows, .. } => {
                let same = |part: &&&Part| matches!(part, Part::Table { rows: others, .. } if others.len() == rows.len());
                let tables: Vec<_> = others.iter().filter(same).collect();
                for (line, row) in rows.iter_mut().enumerate() {
                    for (at, cell) in row.iter_mut().enumerate() {
                        let others = tables.iter().filter_map(|part| match part {
                            Part::Table { rows, .. } => rows.get(line)?.get(at),
                            _ => None,
                        });
                        *cell = middle(&[cell.clone()].iter().chain(others).collect::<Vec<_>>(), true);
                    }
                }
            }
            Part::Checks => (),
        }
    }
}

/// Merges texts that differ only in their figures: each figure becomes the median. If the words differ, the most frequent
/// text is taken, with its count.
fn middle(texts: &[&String], is_cell: bool) -> String {
    if texts.iter().all(|text| *text == texts[0]) {
        return texts[0].clone();
    }
    let split: Vec<_> = texts.iter().map(|text| figures(text)).collect();
    // A dash is a figure that was not measured.
    let known: Vec<_> =
        split.iter().zip(texts).filter(|(_, text)| !is_cell || text.as_str() != MISSING).collect();
    let Some((first, _)) = known.first() else { return texts[0].clone() };
    if known.iter().any(|((words, _), _)| *words != first.0) {
        let count = |text: &String| texts.iter().filter(|other| **other == text).count();
        let most = texts.iter().rev().max_by_key(|text| count(text)).expect("there are some");
        return format!("{most} (in {} of {} repetitions)", count(most), texts.len());
    }
    let mut told = first.0[0].clone();
    for (at, word) in first.0[1..].iter().enumerate() {
        let figures: Vec<&str> = known.iter().map(|((_, figures), _)| figures[at].as_str()).collect();
        told.push_str(&median_of(&figures, is_cell && first.0.len() == 2));
        told.push_str(word);
    }
    told
}

/// The median of figures as they are written, with the decimals of the first.
fn median_of(figures: &[&str], with_interval: bool) -> String {
    let digits = figures[0].split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let values: Vec<f64> = figures.iter().filter_map(|figure| figure.parse().ok()).collect();
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), y| (low.min(*y), high.max(*y)));
    match Median::of(values) {
        Some(Median { median, .. }) if low == high || !with_interval => format!("{median:.digits$}"),
        Some(Median { median, interval: Some((from, to)), .. }) => {
            format!("{median:.digits$} [{from:.digits$}, {to:.digits$}]")
        }
        Some(Median { median, .. }) => format!("{median:.digits$} ({low:.digits$} to {high:.digits$})"),
        None => figures[0].to_owned(),
    }
}

/// Splits a text into its figures and the words around them, which are one more.
fn figures(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut words, mut figures) = (vec![String::new()], Vec::new());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let before = words.last().and_then(|word| word.chars().last());
        let begins =
            next.is_ascii_digit() && !before.is_some_and(|c| c.is_alphanumeric() || c == '.' || c == ',');
        if begins {
            let whole = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let decimals = rest[whole..].strip_prefix('.').map_or(0, |after| {
                let count = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
                if count > 0 { count + 1 } else { 0 }
            });
            let (figure, after) = rest.split_at(whole + decimals);
            let word = words.last_mut().expect("there is one from the start");
            let minus = word.ends_with('-') && (word.len() == 1 || word.ends_with(" -"));
            figures.push(if minus {
                word.pop();
                format!("-{figure}")
            } else {
                figure.to_owned()
            });
            words.push(String::new());
            rest = after;
        } else {
            words.last_mut().expect("there is one from the start").push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    (words, figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn middle_of(texts: &[&str], is_cell: bool) -> String {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        middle(&texts.iter().collect::<Vec<_>>(), is_cell)
    }

    #[test]
    fn figures_become_medians_and_words_stay() {
        let told = middle_of(
            &[
                "R10 has 1.07 of rigid at 512.",
                "R10 has 1.21 of rigid at 512.",
                "R10 has 1.13 of rigid at 512.",
            ],
            false,
        );
        assert_eq!(told, "R10 has 1.13 of rigid at 512.");
        assert_eq!(middle_of(&["5.0 / 9", "7.0 / 9"], true), "6.0 / 9");
        assert_eq!(middle_of(&["-3", "-1"], false), "-2");
    }

    #[test]
    fn a_cell_has_its_interval_or_says_the_range() {
        assert_eq!(middle_of(&["997", "1001", "1010"], true), "1001 (997 to 1010)");
        assert_eq!(middle_of(&["1", "2", "3", "4", "5", "6"], true), "4 [1, 6]");
        assert_eq!(middle_of(&["997", "–", "999"], true), "998 (997 to 999)");
        assert_eq!(middle_of(&["997", "997"], true), "997");
    }

    #[test]
    fn what_most_say_is_said_with_how_many() {
        assert_eq!(middle_of(&["holds", "does NOT hold", "holds"], true), "holds (in 2 of 3 repetitions)");
    }
}
