//! The protocol of moves.

use sidelong_layout::vocabulary;

vocabulary! {
    /// The words of memory, and the order in which a move changes them: `reconfig.protocol` of the cluster file.
    Protocol {
        /// Leases, sequences, budgets, draining and repair ([`Move`](crate::Move)).
        #[default]
        Lease = "lease",
        /// The protocol as published in Balaji et al. 2004 (3.1.2), for comparison: the lock of a dead holder stays
        /// taken ([`PaperMove`](crate::PaperMove)).
        Paper = "paper",
    }
}
