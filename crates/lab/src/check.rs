//! Targets, and whether they are met.

use serde::Serialize;

/// A target and what was measured.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Check {
    /// What is compared.
    pub what: String,
    /// What it must reach.
    pub target: String,
    /// What it reached. None where the run that would tell was left out (`quick`).
    pub measured: Option<f64>,
    /// Whether that is enough. None with `measured`.
    pub holds: Option<bool>,
}

impl Check {
    pub(crate) fn at_least(what: impl Into<String>, target: f64, measured: Option<f64>) -> Check {
        Check {
            what: what.into(),
            target: format!("at least {target}"),
            measured,
            holds: measured.map(|value| value >= target),
        }
    }

    pub(crate) fn at_most(what: impl Into<String>, target: f64, measured: Option<f64>) -> Check {
        Check {
            what: what.into(),
            target: format!("at most {target}"),
            measured,
            holds: measured.map(|value| value <= target),
        }
    }

    /// In one word, and plainly.
    pub fn verdict(&self) -> &'static str {
        match self.holds {
            Some(true) => "met",
            Some(false) => "MISSED",
            None => "not measured",
        }
    }
}

/// Of an even number of values the one in the middle of both. None of none.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (below, above) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some(f64::midpoint(values[below], values[above]))
}

/// Of `sorted` values the least that a part `quantile` of them does not exceed: by nearest rank, so that it is one of them, the
/// last for 1. None of none.
pub(crate) fn quantile(sorted: &[f64], quantile: f64) -> Option<f64> {
    let rank = (sorted.len() as f64 * quantile).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_value_that_so_many_do_not_exceed() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        let of = |part| quantile(&values, part);
        assert_eq!([0.0, 0.5, 0.99, 0.991, 1.0].map(of), [1.0, 100.0, 198.0, 199.0, 200.0].map(Some));
        assert_eq!(quantile(&[7.0], 0.99), Some(7.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn medians_of_even_numbers_are_between() {
        assert_eq!(median(vec![3.0, 1.0]), Some(2.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![]), None);
    }
}
