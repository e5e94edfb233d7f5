//! Soft QoS: how the promise to a site stands, and what follows from it for moves.
//!
//! Behind an edge that turns work away, load says little: the queue is short *because* requests were turned away. What
//! counts is what is offered: the work that nodes do, over the part of clients that are let in. (Not over counted
//! requests: a client that is turned away and asks again at once would count again and again, while the part stays what
//! it is.) It is averaged, as work is, and compared with what nodes can do:
//!
//! ```text
//!   0                   low                      FITS                FITS (1 + margin)
//!   |--------------------|------------------------|------------------------|-----------> offered / capacity
//!   | spares what idles  | spares to full equals, | keeps what it has      | full: takes what equals spare,
//!   |                    | if its queue allows    | takes of lower ones    | asks if it turns work away
//! ```
//! An equal spares a node only where what remains of it is at most at FITS, and only to one that was full without the
//! node. So on the same load neither can ask for it back, nor the other give it. A less important site gets its node back
//! when the other idles on the whole.

use super::Settings;
use super::account::Site;

/// From this part of a budget on a site asks for a node: half of where edges begin to turn away.
const ASK: f64 = crate::admission::REJECTS_ABOVE / 2.0;
/// A site whose offered work is at most this part of what its nodes can do holds its target: what comes at random is left
/// room for.
const FITS: f64 = 0.7;
/// Above this part of clients let in, on average, next to nobody is turned away.
const ADMITTED_ALL: f64 = 0.99;
/// Below this part of clients let in, what is offered need not be known: it is too much anyhow.
const ADMITTED_MIN: f64 = 1.0 / 16.0;

/// How the promise to a site stands, as admission sees it at the same look.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Standing {
    /// Queue delay over its budget; 1.0 is all of it. `None` without a target, or where nothing is known: moves then go by
    /// the site's load alone.
    pub strain: Option<f64>,
    /// The part of its clients that is let in, 0 to 1.
    pub admitted: f64,
    /// The part of the pool, 0 to 1, up to which it gives nodes only to sites below their floors.
    pub share: f64,
}

impl Default for Standing {
    /// Of a site that nothing was promised.
    fn default() -> Self {
        Standing { strain: None, admitted: 1.0, share: 0.0 }
    }
}

/// What is remembered of it from look to look.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Strain {
    /// Whether the site has a target, of which enough is known.
    pub(super) is_known: bool,
    /// Whether its queue is in danger, and whether some of its clients are turned away.
    is_asking: bool,
    is_rejecting: bool,
    // These are averaged.
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
    /// After a look, which is that `part` of the average.
    pub(super) fn keep(&mut self, standing: &Standing, site: &Site, part: f64) {
        let strain = standing.strain.unwrap_or(0.0);
        self.is_known = standing.strain.is_some();
        self.is_asking = strain >= ASK;
        self.is_rejecting = standing.admitted < 1.0;
        self.strain += (strain - self.strain) * part;
        self.busy += (site.busy - self.busy) * part;
        self.admitted += (standing.admitted - self.admitted) * part;
    }

    /// Whether a site with a target is to have another node: its queue comes close to where edges turn away, or is short
    /// only because they do.
    pub(super) fn asks(&self, site: &Site, settings: &Settings) -> bool {
        self.is_asking || self.admitted < ADMITTED_ALL && self.is_full(site, settings)
    }

    /// Whether the site's nodes are too few for what is offered.
    pub(super) fn is_full(&self, site: &Site, settings: &Settings) -> bool {
        self.offered_with(site, 0.0) >= FITS * (1.0 + settings.margin)
    }

    /// Whether it is worth the node of a less important site that has work, too.
    pub(super) fn deserves_busy(&self, site: &Site) -> bool {
        !self.is_known || self.is_rejecting || self.offered_with(site, 0.0) >= FITS
    }

    /// Whether it is worth the idle node of another site. A queue that is long for a moment is what its budget is for, and
    /// no reason for equals to trade their idle nodes.
    pub(super) fn deserves_idle(&self, site: &Site, settings: &Settings) -> bool {
        let offered = self.offered_with(site, 0.0);
        !self.is_known || self.is_rejecting || offered >= low(settings) * (1.0 + settings.margin)
    }

    /// Whether a site that is idle at the moment, and without `rate`, is so on the whole.
    pub(super) fn idles_without(&self, site: &Site, settings: &Settings, rate: f64) -> bool {
        !self.is_known || self.offered_with(site, -rate) < low(settings)
    }

    /// Whether a site holds its target without `rate`, as far as its queue and what is offered foresee.
    pub(super) fn holds_without(&self, site: &Site, rate: f64) -> bool {
        // The same queue at fewer nodes.
        let strain = site.with_work(self.strain * site.rate).load_with(-rate);
        self.offered_with(site, -rate) <= FITS && strain < ASK
    }

    /// What is offered, whether let in or not, over what the site's nodes can do, with `rate` more of them or less.
    pub(super) fn offered_with(&self, site: &Site, rate: f64) -> f64 {
        site.with_work(self.busy / self.admitted.max(ADMITTED_MIN)).load_with(rate)
    }
}

/// A site is idle that is offered less than this part of what its nodes can do; never so much that it would miss one at once.
fn low(settings: &Settings) -> f64 {
    settings.low.min(FITS)
}
