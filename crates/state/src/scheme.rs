//! The schemes: how a load record is kept and read.

use sidelong_layout::vocabulary;

vocabulary! {
    /// How load gets from a node to an edge (Vaidyanathan et al. 2006, 3.1, 3.2, 5.2): `load.scheme` of the cluster
    /// file.
    Scheme {
        /// The best scheme that the machine supports, named in the log. It is resolved before anything is read.
        #[default]
        Auto = "auto",
        /// A thread on the node keeps the record; a second one answers TCP requests for it (Vaidyanathan et al. 2006,
        /// 3.1.1).
        SocketAsync = "socket-async",
        /// A thread on the node makes the record at each TCP request (Vaidyanathan et al. 2006, 3.1.2).
        SocketSync = "socket-sync",
        /// A thread on the node keeps the record; the edge reads it one-sidedly (Vaidyanathan et al. 2006, 3.2.1).
        RdmaAsync = "rdma-async",
        /// The kernel keeps the record, at its own events; the edge reads it one-sidedly (Vaidyanathan et al. 2006,
        /// 3.2.2). Refused at start where eBPF does not work.
        RdmaSync = "rdma-sync",
        /// The kernel keeps the record, with pending interrupts and run queues by CPU in the index (Vaidyanathan et al. 2006,
        /// 5.2.1). Refused at start where eBPF does not work.
        ERdmaSync = "e-rdma-sync",
    }
}

impl Scheme {
    /// Whether the kernel of the node keeps the record.
    pub const fn is_kept_by_kernel(self) -> bool {
        matches!(self, Scheme::RdmaSync | Scheme::ERdmaSync)
    }

    /// Whether a node's record is read from its memory, rather than requested.
    pub const fn is_one_sided(self) -> bool {
        matches!(self, Scheme::RdmaAsync | Scheme::RdmaSync | Scheme::ERdmaSync)
    }

    /// Whether a thread on the node keeps the record.
    pub const fn is_kept_by_thread(self) -> bool {
        matches!(self, Scheme::SocketAsync | Scheme::RdmaAsync)
    }
}
