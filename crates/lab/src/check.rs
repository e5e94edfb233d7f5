//! Targets, and whether they are met.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use sidelong_figure::statistics::Median;

use crate::series::{Series, number};

/// How a target, or a whole experiment, came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The target is reached.
    Met,
    /// It is not.
    Missed,
    /// The figure cannot be trusted: it lies beyond what is possible, or other work took the machine.
    Invalid,
    /// The run that would tell was left out.
    NotMeasured,
}

impl Verdict {
    /// The verdict as one word.
    pub const fn word(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "MISSED",
            Verdict::Invalid => "INVALID",
            Verdict::NotMeasured => "not measured",
        }
    }

    /// The verdict of an experiment. One invalid check makes it invalid, because what it would have shown is unknown.
    pub(crate) fn of(checks: &[Check]) -> Verdict {
        let any = |verdict| checks.iter().any(|check| check.verdict == verdict);
        let order = [Verdict::Invalid, Verdict::Missed, Verdict::Met];
        order.into_iter().find(|verdict| any(*verdict)).unwrap_or(Verdict::NotMeasured)
    }
}

/// A target and what was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Check {
    /// What is compared.
    pub what: String,
    /// What it must reach.
    pub target: String,
    /// The measured figure; the median of several repetitions. `None` if the run was left out (`quick`).
    pub measured: Option<f64>,
    /// The interval that contains the median of all repetitions with 95 % confidence. `None` for fewer than six.
    pub interval: Option<(f64, f64)>,
    /// Whether the target is reached.
    pub verdict: Verdict,
    /// The measured figures of the repetitions.
    #[serde(skip)]
    series: Series,
    #[serde(skip)]
    limit: Limit,
    /// The range that a measurement can show at all.
    #[serde(skip)]
    possible: RangeInclusive<f64>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Check {
    /// A check that the figure is at least `target`: the median of the repetitions in which it was possible. No figure here is below 0;
    /// [`Check::possible`] narrows the range.
    pub(crate) fn at_least(what: impl Into<String>, target: f64, measured: impl Into<Series>) -> Check {
        Check::new(what.into(), format!("at least {target}"), Limit::AtLeast(target), measured.into())
    }

    /// A check that the figure is at most `target`.
    pub(crate) fn at_most(what: impl Into<String>, target: f64, measured: impl Into<Series>) -> Check {
        Check::new(what.into(), format!("at most {target}"), Limit::AtMost(target), measured.into())
    }

    fn new(what: String, target: String, limit: Limit, series: Series) -> Check {
        let (verdict, possible) = (Verdict::NotMeasured, 0.0..=f64::INFINITY);
        Check { what, target, measured: None, interval: None, verdict, series, limit, possible }.judged()
    }

    /// The same check under another name.
    pub(crate) fn named(self, name: impl FnOnce(&str) -> String) -> Check {
        Check { what: name(&self.what), ..self }
    }

    /// The same check where the set-up allows no figure outside `possible`.
    pub(crate) fn possible(self, possible: RangeInclusive<f64>) -> Check {
        Check { possible, ..self }.judged()
    }

    fn judged(mut self) -> Check {
        let is_possible = |value: &f64| self.possible.contains(value);
        let possible = Median::of(self.series.known().filter(is_possible).collect());
        let median = possible.or_else(|| self.series.median());
        (self.measured, self.interval) = (median.map(|m| m.median), median.and_then(|m| m.interval));
        self.verdict = match (self.measured, self.limit) {
            (None, _) => Verdict::NotMeasured,
            _ if possible.is_none() => Verdict::Invalid,
            (Some(value), Limit::AtLeast(least)) if value >= least => Verdict::Met,
            (Some(value), Limit::AtMost(most)) if value <= most => Verdict::Met,
            _ => Verdict::Missed,
        };
        self
    }

    /// The check of a measurement that cannot be trusted.
    pub(crate) fn invalid(self) -> Check {
        let verdict = if self.measured.is_some() { Verdict::Invalid } else { self.verdict };
        Check { verdict, ..self }
    }

    /// Whether the figure lies outside what a measurement can show.
    pub(crate) fn is_impossible(&self) -> bool {
        self.measured.is_some() && !self.series.known().any(|value| self.possible.contains(&value))
    }

    /// The verdict as one word.
    pub fn verdict(&self) -> &'static str {
        self.verdict.word()
    }

    /// The measured figure as a table shows it.
    pub fn figure(&self, digits: usize) -> String {
        let measured = number(self.measured, digits);
        let bracket =
            |(low, high)| format!(" [{}, {}]", number(Some(low), digits), number(Some(high), digits));
        measured + &self.interval.map_or(String::new(), bracket)
    }
}

/// The outcome of an experiment.
pub(crate) struct Conclusion {
    pub(crate) checks: Vec<Check>,
    pub(crate) verdict: Verdict,
    pub(crate) invalid: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_neither_met_nor_missed() {
        let check = |measured| Check::at_least("ratio", 1.9, Some(measured)).possible(0.0..=2.5);
        assert_eq!(
            [1.0, 2.0, 4.58, -1.0, f64::NAN].map(|value| check(value).verdict()),
            ["MISSED", "met", "INVALID", "INVALID", "INVALID"]
        );
        assert_eq!(Check::at_most("time", 1.0, Some(-0.1)).verdict(), "INVALID", "no time is below 0");
        assert_eq!(check(2.0).invalid().verdict(), "INVALID");
        assert_eq!(Check::at_least("left out", 1.0, None).invalid().verdict(), "not measured");
    }

    #[test]
    fn an_experiment_is_as_its_worst_check() {
        let [met, missed] = [2.0, 1.0].map(|value| Check::at_least("", 1.5, Some(value)));
        let invalid = met.clone().invalid();
        let left_out = Check::at_least("", 1.5, None);
        assert_eq!(Verdict::of(&[met.clone(), left_out.clone()]), Verdict::Met);
        assert_eq!(Verdict::of(&[met.clone(), missed.clone()]), Verdict::Missed);
        assert_eq!(Verdict::of(&[met, missed, invalid]), Verdict::Invalid);
        assert_eq!(Verdict::of(&[left_out]), Verdict::NotMeasured);
    }

    #[test]
    fn the_median_of_the_repetitions_is_judged() {
        let of = |values: &[f64]| {
            let series = Series(values.iter().copied().map(Some).collect());
            Check::at_least("", 1.5, series).possible(0.0..=4.0)
        };
        let check = of(&[1.0, 2.0, 3.0]);
        assert_eq!((check.measured, check.interval, check.verdict()), (Some(2.0), None, "met"));
        assert_eq!(of(&[1.0, 2.0, 9.0]).measured, Some(1.5), "what cannot be does not count");
        let check = of(&[5.0, 9.0]);
        assert_eq!((check.measured, check.verdict()), (Some(7.0), "INVALID"));
        assert_eq!(of(&[1.0, 2.0, 3.0, 2.0, 2.0, 1.0]).interval, Some((1.0, 3.0)));
    }
}
