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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_even_numbers_are_between() {
        assert_eq!(median(vec![3.0, 1.0]), Some(2.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![]), None);
    }
}
