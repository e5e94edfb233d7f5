//! The frame around every experiment.
//!
//! A [`Study`] provides its runs, their rows, the range that is possible for each figure, its targets, its drawing and its
//! report. The frame does the rest: it repeats the runs, watches the other load of the machine, writes rows.csv as they
//! end, and at the end result.json, figure.svg and report.md.
//!
//! A repetition is **invalid** if a figure of one of its runs is impossible, or if other work took the machine during one.
//! It is not judged. If no repetition is valid, everything that was measured is shown and marked as invalid.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serialize;

use crate::bench::Bench;
pub(crate) use crate::check::Conclusion;
use crate::check::{self, Check};
use crate::drawing::{self, Drawing};
use crate::error::{Error, Result};
use crate::markdown;
use crate::publish::{self, Findings};
use crate::story::{self, Story};
use crate::table::Table;

/// What one experiment has of its own. It serializes to the settings in `result.json`.
pub(crate) trait Study: Serialize + Sized {
    /// The figures of one run, or of one point of the drawing. `result.json` has them.
    type Row: Serialize;
    /// A line of `rows.csv`. Its fields are the columns.
    type Line: Serialize;

    /// The default number of repetitions, in full and quick.
    const REPEAT: [u32; 2] = [1, 1];
    /// Whether other work on the machine changes the figures. It does not change a simulation.
    const NEEDS_THE_MACHINE: bool = true;

    /// The planned duration of each run of a repetition.
    fn plan(&self) -> Vec<Duration>;

    /// Makes the runs of a repetition.
    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Self>) -> Result<()>;

    /// The lines of `rows.csv` for a row.
    fn lines(&self, row: &Self::Row) -> Vec<Self::Line>;

    /// The range that the set-up allows for each figure of a row.
    fn bounds(&self, row: &Self::Row) -> Vec<Bound>;

    /// Judges the rows of a repetition by the targets.
    fn checks(&self, rows: &[Self::Row]) -> Vec<Check>;

    /// Draws the rows of a repetition.
    fn draw(&self, rows: &[Self::Row]) -> Drawing;

    /// Writes the report on the rows of a repetition.
    fn tell(&self, rows: &[Self::Row], story: &mut Story);
}

/// A figure, and the range that is possible for it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Bound {
    what: String,
    found: f64,
    possible: RangeInclusive<f64>,
}

impl Bound {
    pub(crate) fn new(what: impl Into<String>, found: f64, possible: RangeInclusive<f64>) -> Bound {
        Bound { what: what.into(), found, possible }
    }

    /// A time, a rate or a count: 0 or more.
    pub(crate) fn not_below_zero(what: impl Into<String>, found: f64) -> Bound {
        Bound::new(what, found, 0.0..=f64::INFINITY)
    }

    /// Why it is impossible, if it is.
    pub(crate) fn broken(&self) -> Option<String> {
        let Bound { what, found, possible } = self;
        (!possible.contains(found)).then(|| {
            let number = |value: f64| (value * 1e3).round() / 1e3;
            let (from, to) = (number(*possible.start()), number(*possible.end()));
            format!("{what} is {}, possible is {from} to {to}", number(*found))
        })
    }
}

/// The rows of a repetition as they come.
pub(crate) struct Rows<S: Study> {
    rows: Vec<S::Row>,
    table: Table,
}

impl<S: Study> Rows<S> {
    /// Keeps a row and writes its lines.
    pub(crate) fn push(&mut self, study: &S, row: S::Row) -> Result<()> {
        self.push_lines(study.lines(&row), row)
    }

    /// Keeps a row and writes the given lines for it.
    pub(crate) fn push_lines(&mut self, lines: Vec<S::Line>, row: S::Row) -> Result<()> {
        lines.iter().try_for_each(|line| self.table.write(line))?;
        self.keep(row);
        Ok(())
    }

    /// Keeps a row that has no line in `rows.csv`.
    pub(crate) fn keep(&mut self, row: S::Row) {
        self.rows.push(row);
    }
}

/// All runs, made once.
struct Repetition<R> {
    rows: Vec<R>,
    /// The reasons why it cannot be trusted; empty if it can.
    invalid: Vec<String>,
}

/// A row of `result.json`.
#[derive(Serialize)]
struct Told<'a, R> {
    #[serde(skip_serializing_if = "Option::is_none")]
    repetition: Option<u32>,
    #[serde(flatten)]
    row: &'a R,
}

/// Runs a study and writes its files.
pub(crate) fn run<S: Study>(bench: &mut Bench<'_>, mut study: S) -> Result<Conclusion> {
    let repeat = bench.options.repeat.unwrap_or(S::REPEAT[usize::from(bench.options.quick)]).max(1);
    bench.repetitions = repeat;
    for _ in 0..repeat {
        study.plan().into_iter().for_each(|time| bench.expect_for(time));
    }
    let mut rows = Rows { rows: Vec::new(), table: bench.table("rows.csv")? };
    let mut repetitions = Vec::with_capacity(repeat as usize);
    for repetition in 1..=repeat {
        bench.repetition = repetition;
        study.run(bench, &mut rows)?;
        let rows = std::mem::take(&mut rows.rows);
        let mut invalid = bench.take_spoilt();
        if !S::NEEDS_THE_MACHINE {
            invalid.clear();
        }
        invalid.extend(rows.iter().flat_map(|row| study.bounds(row)).filter_map(|bound| bound.broken()));
        repetitions.push(Repetition { rows, invalid });
    }
    conclude(bench, &study, &repetitions)
}

fn conclude<S: Study>(bench: &Bench<'_>, study: &S, all: &[Repetition<S::Row>]) -> Result<Conclusion> {
    let Judged { repetitions, checks, invalid } = judge(study, all);
    let is_invalid = repetitions.iter().any(|repetition| !repetition.invalid.is_empty());
    let drawings = repetitions.iter().map(|repetition| study.draw(&repetition.rows)).collect();
    let svg = drawing::draw(&publish::title(bench, is_invalid), drawings)?;
    let stories = repetitions.iter().map(|repetition| {
        let mut story = Story::default();
        study.tell(&repetition.rows, &mut story);
        story
    });
    let (told, how) = story::merge(stories.collect()).markdown(&checks);
    let tables = markdown::tables(&told);
    let text = format!("{told}\n## How it was measured\n\n{}\n{how}", publish::machine(bench));
    let several = all.len() > 1;
    let told = |(number, of)| {
        let of: &Repetition<S::Row> = of;
        of.rows.iter().map(move |row| Told { repetition: several.then_some(number), row })
    };
    let rows = (1..).zip(all).flat_map(told);
    let failed =
        |error: serde_json::Error| Error::Output { path: "result.json".into(), found: error.to_string() };
    let rows = rows.map(serde_json::to_value).collect::<serde_json::Result<_>>().map_err(failed)?;
    let settings = serde_json::to_value(study).map_err(failed)?;
    publish::publish(bench, Findings { checks, invalid, svg, text, tables, settings, rows })
}

/// The judged repetitions and their checks.
struct Judged<'a, R> {
    /// The valid repetitions, or all if none is valid.
    repetitions: Vec<&'a Repetition<R>>,
    checks: Vec<Check>,
    /// The reasons why others are invalid, with their numbers.
    invalid: Vec<String>,
}

fn judge<'a, S: Study>(study: &S, all: &'a [Repetition<S::Row>]) -> Judged<'a, S::Row> {
    let number = |number: u32| if all.len() > 1 { format!("repetition {number}, ") } else { String::new() };
    let why = |(at, repetition): (u32, &Repetition<S::Row>)| {
        repetition.invalid.iter().map(|why| format!("{}{why}", number(at))).collect::<Vec<_>>()
    };
    let mut invalid: Vec<String> = (1..).zip(all).flat_map(why).collect();
    let valid: Vec<_> = all.iter().filter(|repetition| repetition.invalid.is_empty()).collect();
    let none_is_valid = valid.is_empty();
    let repetitions = if none_is_valid { all.iter().collect() } else { valid };
    let mut checks =
        check::merge(repetitions.iter().map(|repetition| study.checks(&repetition.rows)).collect());
    if none_is_valid {
        checks = checks.into_iter().map(Check::invalid).collect();
    }
    let impossible = checks.iter().filter(|check| check.is_impossible());
    invalid.extend(impossible.map(|check| format!("{}: {} is not possible", check.what, check.figure(2))));
    Judged { repetitions, checks, invalid }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rates, whose ratio is at most 2.5.
    #[derive(Serialize)]
    struct Rates;

    #[derive(Serialize, Clone, Copy)]
    struct Rate {
        rate: f64,
    }

    impl Study for Rates {
        type Row = Rate;
        type Line = Rate;

        fn plan(&self) -> Vec<Duration> {
            Vec::new()
        }
        fn run(&mut self, _: &mut Bench<'_>, _: &mut Rows<Rates>) -> Result<()> {
            Ok(())
        }
        fn lines(&self, row: &Rate) -> Vec<Rate> {
            vec![*row]
        }
        fn bounds(&self, row: &Rate) -> Vec<Bound> {
            vec![Bound::new("rate", row.rate, 0.0..=3200.0)]
        }
        fn checks(&self, rows: &[Rate]) -> Vec<Check> {
            let ratio = Some(rows[1].rate / rows[0].rate);
            vec![Check::at_least("ratio", 1.9, ratio).possible(0.0..=2.5)]
        }
        fn draw(&self, _: &[Rate]) -> Drawing {
            Drawing::default()
        }
        fn tell(&self, _: &[Rate], _: &mut Story) {}
    }

    /// A repetition with these two rates, and the reasons why it is invalid.
    fn repetition(rates: [f64; 2], spoilt: &[&str]) -> Repetition<Rate> {
        let rows: Vec<Rate> = rates.map(|rate| Rate { rate }).into();
        let mut invalid: Vec<String> = spoilt.iter().map(|why| (*why).to_owned()).collect();
        invalid.extend(rows.iter().flat_map(|row| Rates.bounds(row)).filter_map(|bound| bound.broken()));
        Repetition { rows, invalid }
    }

    fn judged(repetitions: &[Repetition<Rate>]) -> (&'static str, Option<f64>, Vec<String>) {
        let judged = judge(&Rates, repetitions);
        (judged.checks[0].verdict(), judged.checks[0].measured, judged.invalid)
    }

    #[test]
    fn a_figure_that_cannot_be_is_invalid() {
        assert_eq!(judged(&[repetition([1000.0, 2000.0], &[])]).0, "met");
        let (verdict, measured, why) = judged(&[repetition([500.0, 2290.0], &[])]);
        assert_eq!((verdict, measured), ("INVALID", Some(4.58)));
        assert_eq!(why, ["ratio: 4.58 is not possible"]);
        let (verdict, _, why) = judged(&[repetition([2000.0, 4000.0], &[])]);
        assert_eq!(verdict, "INVALID");
        assert_eq!(why, ["rate is 4000, possible is 0 to 3200"]);
    }

    #[test]
    fn a_spoilt_machine_makes_a_repetition_invalid() {
        let spoilt = || repetition([1000.0, 1000.0], &["run a: other processes took 40 %"]);
        let (verdict, _, why) = judged(&[spoilt()]);
        assert_eq!((verdict, why[0].as_str()), ("INVALID", "run a: other processes took 40 %"));
        let (verdict, measured, why) = judged(&[spoilt(), repetition([1000.0, 2000.0], &[])]);
        assert_eq!((verdict, measured), ("met", Some(2.0)), "the other is judged");
        assert_eq!(why, ["repetition 1, run a: other processes took 40 %"]);
    }
}
