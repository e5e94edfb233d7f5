//! Dual update counters (Balaji et al. 2004, 3.1.2): one high-load event is answered by one reconfiguration.
//!
//! All edges of a site see the same overload at about the same time. Each keeps a local counter beside a shared one,
//! which every reconfiguration raises. An edge that finds the shared one ahead knows that another edge has just acted,
//! takes note, and does nothing this time. [`Move`](crate::Move) uses the sequence of the site's lock as the shared
//! counter, which costs nothing and cannot be missed. [`PaperMove`](crate::PaperMove) has a word for each edge, as
//! published.

/// The local update counter of an edge for a site.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct UpdateCounter {
    local: u64,
}

impl UpdateCounter {
    /// A counter that has seen the shared one at `local`.
    pub const fn new(local: u64) -> Self {
        UpdateCounter { local }
    }

    /// Whether nothing was reconfigured since the last call. If something was, it takes note: the next call with the
    /// same `shared` returns true.
    pub const fn may_reconfigure(&mut self, shared: u64) -> bool {
        let equal = self.local == shared;
        self.local = shared;
        equal
    }

    /// Takes note of the shared counter after a change of its own.
    pub const fn note(&mut self, shared: u64) {
        self.local = shared;
    }
}
