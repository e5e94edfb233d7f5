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
