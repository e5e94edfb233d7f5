//! An experiment: what it is called, where it was published, and how it is carried out.

use std::fmt;

use serde::Serialize;

use crate::bench::Bench;
use crate::check::Conclusion;
use crate::design::Design;
use crate::error::Result;

/// What stands in place of a figure for an experiment that was not published elsewhere.
pub(crate) const OWN: &str = "Sidelong's own";

/// An experiment that can be run: a published one, or one of Sidelong's own.
#[derive(Serialize)]
pub struct Experiment {
    /// The identifier: the letter of the paper and the number of the figure, or a name for Sidelong's own.
    pub id: &'static str,
    /// Where it was published, or that it is Sidelong's own.
    pub figure: &'static str,
    /// What it measures.
    pub title: &'static str,
    #[serde(skip)]
    pub(crate) design: Design,
}

impl Experiment {
    /// A declared experiment.
    pub(crate) const fn new(
        id: &'static str,
        figure: &'static str,
        title: &'static str,
        design: Design,
    ) -> Experiment {
        Experiment { id, figure, title, design }
    }

    pub(crate) fn carry_out(&self, bench: &mut Bench<'_>) -> Result<Conclusion> {
        self.design.carry_out(bench)
    }
}

impl fmt::Debug for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id)
    }
}
