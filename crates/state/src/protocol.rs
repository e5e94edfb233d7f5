//! The protocol of moves, and what becomes of requests that outlast a drain.

use sidelong_layout::vocabulary;

vocabulary! {
    /// The words of memory, and the order in which a move changes them: `baseline.protocol` of the cluster file.
    Protocol {
        /// Leases, sequences, budgets, draining and repair ([`Move`](crate::Move)).
        #[default]
        Lease = "lease",
        /// The protocol as published in Balaji et al. 2004 (3.1.2), for comparison: the lock of a dead holder stays
        /// taken ([`PaperMove`](crate::PaperMove)).
        Paper = "paper",
    }
}

vocabulary! {
    /// What becomes of a site's requests that have not ended when a node that leaves the site has drained for
    /// `reconfig.drain_ms_max`: `site.drain` of the cluster file.
    Drain {
        /// They go on. The move is rolled back, and the node stays with the site.
        #[default]
        Wait = "wait",
        /// The edges cut them, and the move goes on.
        Cut = "cut",
    }
}
