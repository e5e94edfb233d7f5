//! What is remembered of a site between scans (Balaji et al. 2004, 3.1.3).

use std::time::Duration;

use super::account::Site;
use super::cost::{Cost, Failures};
use super::settings::ReconfigureSettings;
use super::strain::Strain;
use crate::Time;
use crate::cluster::Standing;

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct History {
    /// Since when its load is high, or its target in danger.
    high: Option<Time>,
    /// Since when its load is low, and known.
    low: Option<Time>,
    /// When it was last part of a move.
    moved: Option<Time>,
    /// What its moves cost.
    pub(super) cost: Cost,
    /// Moves to it that its nodes' commands did not make.
    pub(super) failures: Failures,
    /// Its work, averaged. Moves do not change the work, so the average continues through them.
    pub(super) work: f64,
    /// How well its promise is kept, averaged likewise.
    pub(super) strain: Strain,
}

impl History {
    /// Updates it after a scan, `passed` after the previous one.
    pub(super) fn keep(
        &mut self,
        site: &Site,
        standing: &Standing,
        settings: &ReconfigureSettings,
        passed: Option<Duration>,
        now: Time,
    ) {
        let share = passed.map_or(1.0, |passed| {
            passed.as_secs_f64() / (passed + settings.average).as_secs_f64().max(f64::MIN_POSITIVE)
        });
        self.work += (site.work - self.work) * share;
        self.strain.keep(standing, site, share);
        let load = site.load();
        self.high = self.is_high(settings, site).then(|| self.high.unwrap_or(now));
        self.low = (load < settings.low && !site.unknown).then(|| self.low.unwrap_or(now));
    }

    /// Whether, by this scan, the site needs another node.
    pub(super) fn is_high(&self, settings: &ReconfigureSettings, site: &Site) -> bool {
        match self.strain.is_known {
            true => self.strain.asks(site, settings),
            false => site.load() > settings.high,
        }
    }

    /// Restarts it after a move to or from the site.
    pub(super) fn restart(&mut self, now: Time) {
        *self = History { high: None, low: None, moved: Some(now), ..*self };
    }

    /// Whether its last move has affected its load.
    pub(super) fn is_settled(&self, settings: &ReconfigureSettings, now: Time) -> bool {
        self.moved.is_none_or(|at| now.since(at) >= settings.settle)
    }

    /// Whether it may give a node away, too: what its last move brought has served for as long as moves take.
    pub(super) fn may_give(&self, settings: &ReconfigureSettings, now: Time) -> bool {
        self.moved.is_none_or(|at| now.since(at) >= settings.settle.max(self.cost.time(now)))
    }

    pub(super) fn was_high(&self, settings: &ReconfigureSettings, now: Time) -> bool {
        self.high.is_some_and(|since| now.since(since) >= settings.history.max(self.cost.time(now)))
    }

    /// How long its load has been high, or low.
    pub(super) fn lasted(&self, is_high: bool, now: Time) -> Option<Duration> {
        let since = if is_high { self.high } else { self.low };
        since.map(|since| now.since(since))
    }

    pub(super) fn was_low(&self, settings: &ReconfigureSettings, now: Time) -> bool {
        self.low.is_some_and(|since| now.since(since) >= settings.history.max(self.cost.time(now)))
    }
}
