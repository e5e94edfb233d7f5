//! Dual update counters (R 3.1.2): one high-load event is answered by one reconfiguration.
//!
//! All edges of a site see the same overload at about the same time. Each keeps a local counter beside a shared one
//! that every reconfiguration raises; an edge that finds the shared one ahead knows that another has just acted, takes
//! note, and leaves it at that this time. [`Move`](crate::Move) takes the sequence of the site's lock for the shared
//! counter, which costs nothing and cannot be missed; [`PaperMove`](crate::PaperMove) has a word for each edge, as
//! printed.

/// The local update counter of an edge for a site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct UpdateCounter {
    local: u64,
}

impl UpdateCounter {
    /// One that has seen the shared counter at `local`.
    pub const fn new(local: u64) -> Self {
        UpdateCounter { local }
    }

    /// Whether nothing was reconfigured since the last look. If something was, takes note of it: the next call with
    /// the same `shared` says yes.
    pub const fn may_reconfigure(&mut self, shared: u64) -> bool {
        let equal = self.local == shared;
        self.local = shared;
        equal
    }

    /// Takes note of the shared counter after a change of one's own.
    pub const fn note(&mut self, shared: u64) {
        self.local = shared;
    }
}
