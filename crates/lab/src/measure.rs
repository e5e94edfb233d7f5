//! What an experiment declares of its figures: what varies from case to case, and what is measured in each. The tables, rows.csv, what is
//! plausible, and the axes of figures come of these declarations.
//!
//! A **case** has one word of each dimension, joined by slashes: `neighbour/busy`. A **pattern** has, at the place of each word, `*`, a
//! word, or some words: `neighbour/*`, `*/idle,busy`.

use std::ops::RangeInclusive;

use sidelong_figure::Style;

/// What varies from case to case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dimension {
    /// The name, which is also its column in rows.csv.
    pub(crate) name: &'static str,
    /// The heading of its column in tables.
    pub(crate) label: &'static str,
    /// The words that it has. Cases may have others, such as the name of a trace.
    pub(crate) words: &'static [Word],
}

/// A word of a dimension, as cases and rows.csv have it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) word: &'static str,
    /// The word for people.
    pub(crate) label: &'static str,
    /// The word where there is little room: under an axis.
    short: &'static str,
    /// How a line or bar is drawn that stands for it.
    pub(crate) style: Style,
}

impl Word {
    pub(crate) const fn new(word: &'static str, label: &'static str, style: Style) -> Word {
        Word { word, label, short: label, style }
    }

    /// The same word with another name under an axis.
    pub(crate) const fn short(self, short: &'static str) -> Word {
        Word { short, ..self }
    }

    /// A word that no line stands for.
    pub(crate) const fn plain(word: &'static str, label: &'static str) -> Word {
        Word::new(word, label, Style::PAPER)
    }
}

impl Dimension {
    pub(crate) const fn new(name: &'static str, label: &'static str, words: &'static [Word]) -> Dimension {
        Dimension { name, label, words }
    }

    /// A word for people. A word that is not declared stands for itself.
    pub(crate) fn label_of<'a>(&self, word: &'a str) -> &'a str {
        self.find(word).map_or(word, |word| word.label)
    }

    /// A word where there is little room. A word that is not declared stands for itself.
    pub(crate) fn short_of<'a>(&self, word: &'a str) -> &'a str {
        self.find(word).map_or(word, |word| word.short)
    }

    pub(crate) fn find(&self, word: &str) -> Option<&'static Word> {
        self.words.iter().find(|known| known.word == word)
    }
}

/// What is measured in each case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measure {
    /// The name, which is also its column in rows.csv.
    pub(crate) name: &'static str,
    /// The heading of its column in tables, with the unit, and the title of its axis.
    pub(crate) label: &'static str,
    /// Decimals in rows.csv. `None` for a measure that is computed of others.
    pub(crate) csv: Option<usize>,
    /// Decimals in tables and sentences.
    pub(crate) decimals: usize,
    /// The range that the set-up allows, by the case and its other figures in the same repetition.
    pub(crate) possible: fn(&Case<'_>) -> RangeInclusive<f64>,
}

impl Measure {
    /// A measure that is taken, with its decimals in rows.csv and in tables. No figure is below 0, unless [`Measure::possible`] allows it.
    pub(crate) const fn new(name: &'static str, label: &'static str, [csv, decimals]: [usize; 2]) -> Measure {
        Measure { csv: Some(csv), ..Measure::derived(name, label, decimals) }
    }

    /// A measure that is computed of others, such as a ratio. It has no column in rows.csv.
    pub(crate) const fn derived(name: &'static str, label: &'static str, decimals: usize) -> Measure {
        Measure { name, label, csv: None, decimals, possible: |_| 0.0..=f64::INFINITY }
    }

    /// The same measure in another range.
    pub(crate) const fn possible(self, possible: fn(&Case<'_>) -> RangeInclusive<f64>) -> Measure {
        Measure { possible, ..self }
    }
}

/// The figures of a case in one repetition.
pub(crate) struct Case<'a> {
    pub(crate) name: &'a str,
    pub(crate) figure: &'a dyn Fn(&str) -> Option<f64>,
}

impl Case<'_> {
    pub(crate) fn is(&self, pattern: &str) -> bool {
        is_like(self.name, pattern)
    }

    /// The most that a figure can be that is at most another one.
    pub(crate) fn most(&self, measure: &str) -> f64 {
        (self.figure)(measure).unwrap_or(f64::INFINITY)
    }
}

/// Whether a pattern covers a case.
pub(crate) fn is_like(case: &str, pattern: &str) -> bool {
    let covers = |(word, pattern): (&str, &str)| pattern == "*" || pattern.split(',').any(|one| one == word);
    case.split('/').count() == pattern.split('/').count()
        && case.split('/').zip(pattern.split('/')).all(covers)
}

/// The cases of a pattern over the declared words. The last word varies fastest.
pub(crate) fn expand(pattern: &str, dimensions: &[Dimension]) -> Vec<String> {
    let mut cases = vec![String::new()];
    for (at, part) in pattern.split('/').enumerate() {
        let words: Vec<&str> = match part {
            "*" => dimensions[at].words.iter().map(|word| word.word).collect(),
            part => part.split(',').collect(),
        };
        let join = |case: &String, word: &str| {
            if at == 0 { word.to_owned() } else { format!("{case}/{word}") }
        };
        cases = cases.iter().flat_map(|case| words.iter().map(move |word| join(case, word))).collect();
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_cover_cases() {
        const WORDS: &[Word] = &[Word::plain("a", "A"), Word::plain("b", "Bee").short("B")];
        let dimensions = [Dimension::new("x", "", WORDS), Dimension::new("y", "", WORDS)];
        assert_eq!(expand("*/b,c", &dimensions), ["a/b", "a/c", "b/b", "b/c"]);
        assert_eq!(expand("*", &dimensions), ["a", "b"]);
        let covered = |pattern| ["a/b", "a/c", "b/b"].map(|case| is_like(case, pattern));
        assert_eq!(covered("*/*"), [true; 3]);
        assert_eq!(covered("a/c,b"), [true, true, false]);
        assert_eq!(covered("*/b"), [true, false, true]);
        assert_eq!(covered("*"), [false; 3], "it has another number of dimensions");
        assert_eq!(["a", "b", "z"].map(|word| dimensions[0].label_of(word)), ["A", "Bee", "z"]);
        assert_eq!(["a", "b", "z"].map(|word| dimensions[0].short_of(word)), ["A", "B", "z"]);
    }
}
