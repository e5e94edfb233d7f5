//! Soft QoS: how well the promise to a site is kept, and the consequences for moves.
//!
//! Behind an edge that rejects requests, load says little: the queue is short *because* requests were rejected. What
//! counts is what is offered: the work that nodes do, over the part of clients that are admitted. (Not over counted
//! requests: a client that is rejected and asks again at once would count again and again, while the part stays what
//! it is.) It is averaged, as work is, and compared with what nodes can do:
//!
//! ```text
//!   0                   low                      FITS                FITS (1 + margin)
//!   |--------------------|------------------------|------------------------|-----------> offered / capacity
//!   | spares what idles  | spares to full equals, | keeps what it has      | full: takes what equals spare,
//!   |                    | if its queue allows    | takes of lower ones    | asks if it rejects work
//! ```
//! An equal spares a node only where what remains of it is at most at FITS, and only to one that was full without the
//! node. So on the same load neither can ask for it back, nor the other give it. A less important site gets its node back
//! when the other idles on the whole.

use super::account::Site;
use super::settings::ReconfigureSettings;
use crate::cluster::Standing;

/// From this part of a budget on, a site asks for a node: half of where edges start to reject.
const ASK: f64 = crate::admission::REJECTS_ABOVE / 2.0;
/// A site whose offered work is at most this part of its capacity meets its target; the rest is room for random
/// arrivals.
const FITS: f64 = 0.7;
/// If on average more than this part of clients is admitted, almost no request is rejected.
const ADMITTED_ALL: f64 = 0.99;
/// If less than this part of clients is admitted, the offered work need not be known: it is too much in any case.
const ADMITTED_MIN: f64 = 1.0 / 16.0;

/// What is remembered of it between scans.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Strain {
    /// Whether the site has a target and enough is known of it.
    pub(super) is_known: bool,
    /// Whether its queue is in danger, and whether some of its clients are rejected.
    is_asking: bool,
    is_rejecting: bool,
    // Averages.
    strain: f64,
    busy: f64,
    admitted: f64,
}

impl Default for Strain {
    fn default() -> Self {
        let (strain, busy, admitted) = (0.0, 0.0, 1.0);
        Strain { is_known: false, is_asking: false, is_rejecting: false, strain, busy, admitted }
    }
}

impl Strain {
    /// Updates it after a scan, which contributes `part` to the averages.
    pub(super) fn keep(&mut self, standing: &Standing, site: &Site, part: f64) {
        let strain = standing.strain.unwrap_or(0.0);
        self.is_known = standing.strain.is_some();
        self.is_asking = strain >= ASK;
        self.is_rejecting = standing.admitted < 1.0;
        self.strain += (strain - self.strain) * part;
        self.busy += (site.busy - self.busy) * part;
        self.admitted += (standing.admitted - self.admitted) * part;
    }

    /// Whether a site with a target should get another node: its queue approaches the point where edges reject, or is
    /// short only because they do.
    pub(super) fn asks(&self, site: &Site, settings: &ReconfigureSettings) -> bool {
        self.is_asking || self.admitted < ADMITTED_ALL && self.is_full(site, settings)
    }

    /// Whether the site's nodes are too few for the offered work.
    pub(super) fn is_full(&self, site: &Site, settings: &ReconfigureSettings) -> bool {
        self.offered_with(site, 0.0) >= FITS * (1.0 + settings.margin)
    }

    /// Whether it should get a busy node of a less important site.
    pub(super) fn deserves_busy(&self, site: &Site) -> bool {
        !self.is_known || self.is_rejecting || self.offered_with(site, 0.0) >= FITS
    }

    /// Whether it should get an idle node of another site. A budget absorbs a queue that is long for a moment, so
    /// equals do not trade idle nodes for it.
    pub(super) fn deserves_idle(&self, site: &Site, settings: &ReconfigureSettings) -> bool {
        let offered = self.offered_with(site, 0.0);
        !self.is_known || self.is_rejecting || offered >= low(settings) * (1.0 + settings.margin)
    }

    /// Whether a site that is idle at the moment stays idle on average without `rate`.
    pub(super) fn idles_without(&self, site: &Site, settings: &ReconfigureSettings, rate: f64) -> bool {
        !self.is_known || self.offered_with(site, -rate) < low(settings)
    }

    /// Whether a site meets its target without `rate`, as far as its queue and the offered work tell.
    pub(super) fn holds_without(&self, site: &Site, rate: f64) -> bool {
        // The same queue on fewer nodes.
        let strain = site.with_work(self.strain * site.rate).load_with(-rate);
        self.offered_with(site, -rate) <= FITS && strain < ASK
    }

    /// Offered work, admitted or not, relative to the capacity of the site's nodes plus `rate`, which may be negative.
    pub(super) fn offered_with(&self, site: &Site, rate: f64) -> f64 {
        site.with_work(self.busy / self.admitted.max(ADMITTED_MIN)).load_with(rate)
    }
}

/// A site is idle if its offered work is less than this part of its capacity; never so much that it would miss one node
/// at once.
fn low(settings: &ReconfigureSettings) -> f64 {
    settings.low.min(FITS)
}
