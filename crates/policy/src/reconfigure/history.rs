//! What is remembered of a site from look to look (R 3.1.3).

use std::time::Duration;

use super::{Settings, Standing, account::Site, standing::Strain};
use crate::Time;

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct History {
    /// Since when its load is high, or its target in danger.
    high: Option<Time>,
    /// Since when its load is low, and known.
    low: Option<Time>,
    /// When its last move will have taken effect on its load.
    settled: Time,
    /// Its work, averaged. Work does not change by moves, so this goes on through them.
    pub(super) work: f64,
    /// How its promise stands, averaged likewise.
    pub(super) strain: Strain,
}

impl History {
    /// After a look, `passed` after the one before.
    pub(super) fn keep(
        &mut self,
        site: &Site,
        standing: &Standing,
        settings: &Settings,
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

    /// Whether the site could do with another node by this look.
    pub(super) fn is_high(&self, settings: &Settings, site: &Site) -> bool {
        match self.strain.is_known {
            true => self.strain.asks(site, settings),
            false => site.load() > settings.high,
        }
    }

    /// After a move to or from the site.
    pub(super) fn restart(&mut self, settings: &Settings, now: Time) {
        *self = History { high: None, low: None, settled: now.after(settings.settle), ..*self };
    }

    pub(super) fn is_settled(&self, now: Time) -> bool {
        now >= self.settled
    }

    pub(super) fn was_high(&self, settings: &Settings, now: Time) -> bool {
        self.high.is_some_and(|since| now.since(since) >= settings.history)
    }

    pub(super) fn was_low(&self, settings: &Settings, now: Time) -> bool {
        self.low.is_some_and(|since| now.since(since) >= settings.history)
    }
}
