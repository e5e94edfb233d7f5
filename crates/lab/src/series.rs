//! Figures over the repetitions, and what is claimed of them. Arithmetic is elementwise, so that a ratio is one of figures of the same
//! repetition. A median is taken when a series is shown or judged, and never before.

use std::borrow::Borrow;
use std::ops::{Add, Div, Mul, Sub};

use sidelong_figure::statistics::Median;

/// What stands for a figure that was not measured.
pub(crate) const MISSING: &str = "–";

/// A number of a report with `digits` decimals, or a dash.
pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    match value {
        None => MISSING.to_owned(),
        Some(value) if value.is_infinite() => "∞".to_owned(),
        Some(value) => format!("{value:.digits$}"),
    }
}

/// The sum of some figures. `None` if there are none.
pub(crate) fn sum(values: Vec<f64>) -> Option<f64> {
    values.into_iter().reduce(|all, one| all + one)
}

/// The largest of some figures. `None` if there are none.
pub(crate) fn most(values: Vec<f64>) -> Option<f64> {
    values.into_iter().reduce(f64::max)
}

/// The smallest of some figures. `None` if there are none.
pub(crate) fn least(values: Vec<f64>) -> Option<f64> {
    values.into_iter().reduce(f64::min)
}

/// A figure of each repetition, in their order. `None` where it was not measured.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Series(pub(crate) Vec<Option<f64>>);

impl Series {
    /// The figures that were measured.
    pub(crate) fn known(&self) -> impl Iterator<Item = f64> {
        self.0.iter().copied().flatten()
    }

    /// The figure of a repetition, from 0.
    pub(crate) fn at(&self, repetition: usize) -> Option<f64> {
        self.0.get(repetition).copied().flatten()
    }

    /// The median of the figures that were measured.
    pub(crate) fn median(&self) -> Option<Median> {
        Median::of(self.known().collect())
    }

    /// The series of what `apply` makes of each figure.
    pub(crate) fn map(&self, apply: impl Fn(f64) -> f64) -> Series {
        Series(self.0.iter().map(|value| value.map(&apply)).collect())
    }

    /// What `apply` makes of the figures of both in each repetition.
    fn zip<T>(&self, other: &Series, apply: impl Fn(f64, f64) -> T) -> Vec<Option<T>> {
        let count = self.0.len().max(other.0.len());
        (0..count).map(|index| Some(apply(self.at(index)?, other.at(index)?))).collect()
    }

    /// The series of what `apply` makes of the figures of both in a repetition. A figure that is no number counts as not measured.
    pub(crate) fn with(&self, other: &Series, apply: impl Fn(f64, f64) -> f64) -> Series {
        Series(
            self.zip(other, apply).into_iter().map(|value| value.filter(|value| !value.is_nan())).collect(),
        )
    }

    /// The larger figure of each repetition. It is missing if one is.
    pub(crate) fn max(&self, other: &Series) -> Series {
        self.with(other, f64::max)
    }

    /// The smaller figure of each repetition. It is missing if one is.
    pub(crate) fn min(&self, other: &Series) -> Series {
        self.with(other, f64::min)
    }

    /// What `of` makes of the figures that some series have in each repetition.
    pub(crate) fn combine(all: &[&Series], of: impl Fn(Vec<f64>) -> Option<f64>) -> Series {
        let count = all.iter().map(|series| series.0.len()).max().unwrap_or(0);
        Series(
            (0..count).map(|index| of(all.iter().filter_map(|series| series.at(index)).collect())).collect(),
        )
    }

    /// This series, and `other` where a figure is missing.
    pub(crate) fn or(&self, other: &Series) -> Series {
        let count = self.0.len().max(other.0.len());
        Series((0..count).map(|index| self.at(index).or(other.at(index))).collect())
    }

    /// In which repetitions a figure is as it is to be.
    pub(crate) fn holds(&self, is_so: impl Fn(f64) -> bool) -> Claim {
        Claim(self.0.iter().map(|value| value.map(&is_so)).collect())
    }

    /// In which repetitions a figure is at least that of `other`.
    pub(crate) fn at_least(&self, other: &Series) -> Claim {
        Claim(self.zip(other, |one, other| one >= other))
    }

    /// The median with `digits` decimals, as a sentence has it.
    pub(crate) fn shown(&self, digits: usize) -> String {
        number(self.median().map(|median| median.median), digits)
    }

    /// The median with its interval of 95 %, or with the range of too few repetitions, as a cell of a table has it.
    pub(crate) fn cell(&self, digits: usize) -> String {
        let Some(Median { median, interval, .. }) = self.median() else { return MISSING.to_owned() };
        let shown = |value| number(Some(value), digits);
        let (low, high) = self.known().fold((f64::MAX, f64::MIN), |(low, high), y| (low.min(y), high.max(y)));
        match interval {
            _ if shown(low) == shown(high) => shown(low),
            Some((from, to)) => format!("{} [{}, {}]", shown(median), shown(from), shown(to)),
            None => format!("{} ({} to {})", shown(median), shown(low), shown(high)),
        }
    }
}

/// The series of one repetition.
impl From<Option<f64>> for Series {
    fn from(value: Option<f64>) -> Series {
        Series(vec![value])
    }
}

/// A copy.
impl From<&Series> for Series {
    fn from(series: &Series) -> Series {
        series.clone()
    }
}

macro_rules! elementwise {
    ($($operator:ident $method:ident $apply:expr;)*) => {$(
        impl<T: Borrow<Series>> $operator<T> for &Series {
            type Output = Series;
            fn $method(self, other: T) -> Series {
                self.with(other.borrow(), $apply)
            }
        }
        impl<T: Borrow<Series>> $operator<T> for Series {
            type Output = Series;
            fn $method(self, other: T) -> Series {
                self.with(other.borrow(), $apply)
            }
        }
        impl $operator<f64> for &Series {
            type Output = Series;
            fn $method(self, other: f64) -> Series {
                self.with(&Series(vec![Some(other); self.0.len()]), $apply)
            }
        }
        impl $operator<f64> for Series {
            type Output = Series;
            fn $method(self, other: f64) -> Series {
                $operator::$method(&self, other)
            }
        }
    )*};
}

elementwise! {
    Add add |one, other| one + other;
    Sub sub |one, other| one - other;
    Mul mul |one, other| one * other;
    // There is no ratio to nothing.
    Div div |one, other| if other == 0.0 { f64::NAN } else { one / other };
}

/// Something that each repetition confirms or refutes. `None` where that was not measured.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Claim(pub(crate) Vec<Option<bool>>);

impl Claim {
    /// Where both hold. Not measured where one was not.
    pub(crate) fn and(&self, other: &Claim) -> Claim {
        let both = |(one, other): (&Option<bool>, &Option<bool>)| Some((*one)? && (*other)?);
        Claim(self.0.iter().zip(&other.0).map(both).collect())
    }

    /// What a report says of it, in bold.
    pub(crate) fn text(&self) -> String {
        let count = self.0.iter().flatten().count();
        match self.0.iter().flatten().filter(|holds| **holds).count() {
            0 if count == 0 => "not measured".to_owned(),
            0 => "**it does not hold**".to_owned(),
            all if all == count => "**it holds**".to_owned(),
            some => format!("**it holds in {some} of {count} repetitions**"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series<const N: usize>(values: [f64; N]) -> Series {
        Series(values.map(|value| Some(value).filter(|value| !value.is_nan())).into())
    }

    #[test]
    fn arithmetic_is_of_the_same_repetition() {
        let (one, other) = (series([4.0, 9.0, 1.0]), series([2.0, 3.0, 0.0]));
        assert_eq!((&one / &other).0, [Some(2.0), Some(3.0), None], "there is no ratio to nothing");
        assert_eq!(&one + &other * 10.0, series([24.0, 39.0, 1.0]));
        assert_eq!(&one - series([1.0, f64::NAN, 1.0]), series([3.0, f64::NAN, 0.0]));
        assert_eq!([one.max(&other), one.min(&other)], [[4.0, 9.0, 1.0], [2.0, 3.0, 0.0]].map(series));
        assert_eq!(
            Series::combine(&[&one, &other], sidelong_figure::statistics::median),
            series([3.0, 6.0, 0.5])
        );
        assert_eq!(series([f64::NAN, 1.0]).or(&one), series([4.0, 1.0, 1.0]));
        assert_eq!((&one / Series::default()).0, [None; 3]);
        // The median of ratios is not the ratio of medians.
        let ratio = series([1.0, 2.0, 9.0]) / series([1.0, 4.0, 3.0]);
        assert_eq!(ratio.median().unwrap().median, 1.0);
    }

    #[test]
    fn a_cell_has_its_interval_or_says_the_range() {
        assert_eq!(series([997.0, 1001.0, 1010.0]).cell(0), "1001 (997 to 1010)");
        assert_eq!(series([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).cell(1), "3.5 [1.0, 6.0]");
        assert_eq!(series([997.0, f64::NAN, 999.0]).cell(0), "998 (997 to 999)");
        assert_eq!(series([997.1, 996.9]).cell(0), "997", "what looks alike has no range");
        assert_eq!(series([1.0, f64::INFINITY]).shown(1), "∞");
        assert_eq!([series([f64::NAN]).cell(0), Series::default().shown(2)], ["–", "–"]);
        assert_eq!(series([997.0, 1001.0, 1010.0]).shown(1), "1001.0");
    }

    #[test]
    fn a_claim_says_in_how_many_repetitions_it_holds() {
        let claim = series([1.0, 2.0, f64::NAN]).at_least(&series([1.0, 3.0, 1.0]));
        assert_eq!(claim.0, [Some(true), Some(false), None]);
        assert_eq!(claim.text(), "**it holds in 1 of 2 repetitions**");
        let text = |holds: &[Option<bool>]| Claim(holds.to_vec()).text();
        assert_eq!(text(&[Some(true), None]), "**it holds**");
        assert_eq!(text(&[Some(false)]), "**it does not hold**");
        assert_eq!(text(&[None]), "not measured");
        assert_eq!(
            claim.and(&Claim(vec![Some(false), Some(true), Some(true)])).0,
            [Some(false), Some(false), None]
        );
    }
}
