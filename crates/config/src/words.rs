//! The words that a key may be set to, each set an enum.

/// Declares an enum whose variants are written as the given words in the file and in results.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every value, in the order of their description.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word in the file.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

words! {
    /// `cluster.fabric`: how one process reaches the memory of another.
    Fabric {
        /// Shared memory where all parts run on one machine; where they do not (the file has a secret), verbs on a
        /// machine with a device, else TCP.
        #[default]
        Auto = "auto",
        /// POSIX shared memory, files in the run directory.
        Shm = "shm",
        /// A server thread on the target: two-sided, and honest about it.
        Tcp = "tcp",
        /// RDMA: InfiniBand or RoCE, by a program that was built with it.
        Verbs = "verbs",
    }
}

words! {
    /// `verbs.completion`: how a process learns that its operations are done.
    Completion {
        /// It looks, over and over: the shortest wait, and a CPU for it.
        #[default]
        Polling = "polling",
        /// It sleeps until the device wakes it.
        Events = "events",
    }
}

words! {
    /// `load.scheme`: how load gets from a node to an edge (M 3.1, 3.2, 5.2).
    Scheme {
        /// The best that the machine can do, named in the log.
        #[default]
        Auto = "auto",
        /// A thread on the node keeps the record, a second one answers TCP requests for it.
        SocketAsync = "socket-async",
        /// The node's thread fills the record in on each TCP request.
        SocketSync = "socket-sync",
        /// A thread on the node keeps the record, the edge reads it one-sidedly.
        RdmaAsync = "rdma-async",
        /// The kernel keeps the record, the edge reads it one-sidedly. Refused at start where eBPF cannot be had.
        RdmaSync = "rdma-sync",
        /// The same with pending interrupts and run queues a CPU in the index. Refused likewise.
        ERdmaSync = "e-rdma-sync",
    }
}

words! {
    /// `balance.policy`: which node of a site gets the next request.
    BalancePolicy {
        /// The least weighted load index (M 5.2.1, after IBM WebSphere).
        #[default]
        Weighted = "weighted",
        /// Each in turn.
        RoundRobin = "round-robin",
        /// The fewest requests that the edges have under way there.
        LeastConnections = "least-connections",
        /// The better of two, by the weighted load index.
        PowerOfTwo = "power-of-two",
        /// The least weighted load index as it was at the last look, whatever was sent since: M's front end, to compare
        /// with.
        LastLook = "last-look",
    }
}

words! {
    /// `admission.rule`: by what a site is overloaded, so that some of its requests are turned away.
    AdmissionRule {
        /// Its target is in danger. Sites without a target turn nobody away.
        #[default]
        Target = "target",
        /// The load index of every node that serves it is above `threshold`: A's weighted score, to compare with.
        Paper = "paper",
        /// Nothing: everybody is let in, whatever is promised.
        None = "none",
    }
}

words! {
    /// `reconfig.configuration`: what becomes of nodes as the load shifts (R 4.3).
    Configuration {
        /// They move to the site that needs them.
        #[default]
        Reconfigured = "reconfigured",
        /// They stay where they started.
        Rigid = "rigid",
        /// They stay, and every site has from the start as many as reconfiguration could ever give it.
        OverProvisioned = "over-provisioned",
    }
}

words! {
    /// `reconfig.by`: who looks at the load and moves nodes (R 3.1).
    MovedBy {
        /// The edges: R's load-balancer-based reconfiguration.
        #[default]
        Edge = "edge",
        /// The loaded nodes themselves: R's baseline.
        Server = "server",
    }
}

words! {
    /// `reconfig.protocol`: the words and the order in which a move changes them.
    Protocol {
        /// Locks with leases and sequences, budgets, recovery.
        #[default]
        Lease = "lease",
        /// R 3.1.2 as printed, which experiments compare with: a dead holder's lock stays taken.
        Paper = "paper",
    }
}

words! {
    /// `node.service`: how long a worker of the built-in origin holds a request. It waits, unless it is told to burn.
    Service {
        /// `service_ms` each.
        #[default]
        Fixed = "fixed",
        /// Drawn from an exponential distribution with the mean `service_ms`.
        Exponential = "exponential",
        /// CPU time, `service_ms` on average: a request takes what its path takes each time, and paths differ as an
        /// exponential distribution does. `cpu_share` holds such nodes to what they are to have of the machine.
        Burn = "burn",
        /// No time of its own: the machine is the limit.
        None = "none",
    }
}

words! {
    /// `workload.kind`: what the requests ask for.
    WorkloadKind {
        /// The objects of a log, in its order, over and over.
        #[default]
        Trace = "trace",
        /// One object of `file_bytes`.
        SingleFile = "single-file",
        /// `objects` objects of `file_bytes`, the k-th most popular with probability ~ k^-alpha.
        Zipf = "zipf",
    }
}

words! {
    /// `workload.mode`: when a client sends its next request.
    LoadMode {
        /// When the last is answered, as R's sixteen threads on each load-balancer do.
        #[default]
        Closed = "closed",
        /// At its time, whatever the answers: `rate` requests/s over all edges.
        Open = "open",
    }
}
