//! What a check finds.

use std::fmt;

use crate::error::Error;

/// Something to mend.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Problem {
    path: String,
    line: usize,
    what: String,
}

impl Problem {
    /// `line` counts from 1. `what` says what is wrong and how to mend it.
    pub(super) fn new(path: &str, line: usize, what: impl Into<String>) -> Problem {
        Problem { path: path.into(), line, what: what.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

pub(super) type Found = Result<Vec<Problem>, Error>;

/// Problems as they are printed, for the tests of checks.
#[cfg(test)]
pub(super) fn printed(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(Problem::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_can_be_jumped_to() {
        assert_eq!(
            Problem::new("a/b.rs", 7, "too long: split it").to_string(),
            "a/b.rs:7: too long: split it"
        );
    }
}
