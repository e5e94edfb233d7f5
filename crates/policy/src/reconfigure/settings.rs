//! Settings of a reconfigurer.

use std::time::Duration;

use sidelong_layout::SiteId;

use crate::SettingsError;
use crate::index::Weights;

/// Settings of a reconfigurer. Loads are those of [`Reconfigurer::load`](super::Reconfigurer::load): 1.0 is all workers
/// busy.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReconfigureSettings {
    /// T: how long a load must stay high before a move, and low before the site counts as idle (Balaji et al. 2004,
    /// 3.1.3). A site whose changes take longer waits that long instead (`cost.rs`).
    pub history: Duration,
    /// S: the interval between two scans (Balaji et al. 2004, 3.1.4). The caller keeps it; a call after less than half
    /// of it is ignored. Half, so that a timer that was late last time loses no scan.
    pub sensitivity: Duration,
    /// After a move neither of its sites takes or gives for this long. A site that takes because its load is high, or
    /// gives because it is low, waits for T in any case. A site whose changes take longer gives none for that long.
    pub settle: Duration,
    /// A site with more load needs a node, if it has no target.
    pub high: f64,
    /// A site that would have less load even without the node can spare it.
    pub low: f64,
    /// Between sites of equal priority: the part of the donor's load by which the receiver's must exceed it.
    pub margin: f64,
    /// Between busy sites of equal priority, loads are averaged over about this long (exponentially weighted), because
    /// the requests of a moment are no reason to move a busy node. Idle nodes move after T.
    pub average: Duration,
    /// Weights for nodes whose record does not tell how busy the workers are.
    pub weights: Weights,
    /// The only receiver, if set. Server-based reconfiguration (Balaji et al. 2004, 3.1) uses one reconfigurer for each
    /// site.
    pub only: Option<SiteId>,
}

impl Default for ReconfigureSettings {
    /// Balaji et al. give no values of T and S. Vaidyanathan et al. (2006, 5.2.3) find that finer is better down to a
    /// millisecond: so S = 1 ms, and T of two scans, so that a single outlier moves nothing. High means queueing, low
    /// half of that. A margin of a quarter over 50 ms is ours: it keeps two busy sites with random arrivals from
    /// trading nodes (tests/it/bursts.rs).
    fn default() -> Self {
        ReconfigureSettings {
            history: Duration::from_millis(2),
            sensitivity: Duration::from_millis(1),
            settle: Duration::from_millis(2),
            high: 1.0,
            low: 0.5,
            margin: 0.25,
            average: Duration::from_millis(50),
            weights: Weights::SYSTEM,
            only: None,
        }
    }
}

impl ReconfigureSettings {
    /// Checks the settings.
    ///
    /// # Errors
    /// If a figure is not a number, or an idle site would count as loaded.
    pub fn check(&self) -> Result<(), SettingsError> {
        SettingsError::if_zero("sensitivity", self.sensitivity.is_zero())?;
        SettingsError::unless_figure("high", self.high)?;
        SettingsError::unless_figure("low", self.low)?;
        SettingsError::unless_figure("margin", self.margin)?;
        if self.low > self.high {
            return Err(SettingsError::Order { less: "low", more: "high" });
        }
        self.weights.check()
    }
}
