//! Enums of words that no lower crate acts on.

use sidelong_layout::vocabulary;

vocabulary! {
    /// `cluster.fabric`: how one process reaches the memory of another.
    Fabric {
        /// Shared memory if all parts run on one machine. With a secret, for several machines: verbs on a machine with a
        /// device, otherwise TCP.
        #[default]
        Auto = "auto",
        /// POSIX shared memory, files in the run directory.
        Shm = "shm",
        /// TCP to a server thread of the target, which is two-sided.
        Tcp = "tcp",
        /// RDMA (InfiniBand or RoCE).
        Verbs = "verbs",
    }
}

vocabulary! {
    /// `verbs.completion`: how a process learns that its operations are done.
    Completion {
        /// It polls: the shortest wait, at the cost of a CPU.
        #[default]
        Polling = "polling",
        /// It sleeps until the device wakes it.
        Events = "events",
    }
}

vocabulary! {
    /// `baseline.configuration`: what happens to nodes when the load shifts (Balaji et al. 2004, 4.3).
    Configuration {
        /// They move to the site that needs them.
        #[default]
        Reconfigured = "reconfigured",
        /// They stay at their first site.
        Rigid = "rigid",
        /// They stay, and each site starts with as many as reconfiguration could ever give it.
        OverProvisioned = "over-provisioned",
    }
}

vocabulary! {
    /// `baseline.by`: which parts read the load and move nodes (Balaji et al. 2004, 3.1).
    MovedBy {
        /// The edges: load-balancer-based reconfiguration.
        #[default]
        Edge = "edge",
        /// The loaded nodes themselves: server-based reconfiguration, the paper's baseline.
        Server = "server",
    }
}

vocabulary! {
    /// `edge.forwarded`: by which fields servers are told of a request's client and scheme.
    Forwarded {
        /// X-Forwarded-For and X-Forwarded-Proto, which most servers know.
        #[default]
        XForwarded = "x-forwarded",
        /// Forwarded (RFC 7239).
        Forwarded = "forwarded",
        /// Both.
        Both = "both",
    }
}

vocabulary! {
    /// `front.proxy`: the proxy that a front controls.
    Proxy {
        /// nginx, whose module chooses a node for each request.
        #[default]
        Nginx = "nginx",
        /// Apache httpd, whose balancer method chooses a node for each request.
        Httpd = "httpd",
        /// Envoy, whose load-balancing policy chooses a node for each request.
        Envoy = "envoy",
        /// HAProxy, which the front gives weights by its Runtime API, and may choose a node for each request.
        Haproxy = "haproxy",
        /// Any program that uses the C library.
        Library = "library",
        /// None: the kernel sends each TCP connection to a site's address to a node.
        Connect = "connect",
    }
}

vocabulary! {
    /// `front.by`: how the proxy is controlled.
    ControlledBy {
        /// It asks the front's memory for the server of each request or, without a proxy, of each connection.
        #[default]
        Choose = "choose",
        /// HAProxy sends requests by weights that the front sets.
        Weights = "weights",
    }
}

vocabulary! {
    /// `node.service`: how long a worker of the built-in origin holds a request.
    Service {
        /// For `service_ms`, waiting.
        #[default]
        Fixed = "fixed",
        /// For a time from an exponential distribution with the mean `service_ms`, waiting.
        Exponential = "exponential",
        /// It uses `service_ms` of CPU time on average. Each path takes the same time on every request, and the times of
        /// paths are distributed exponentially. `cpu_share` limits such a node to its part of the machine.
        Burn = "burn",
        /// No emulated time: the machine is the limit.
        None = "none",
    }
}

vocabulary! {
    /// `workload.kind`: what the requests ask for.
    WorkloadKind {
        /// The objects of a log, in order, repeatedly.
        #[default]
        Trace = "trace",
        /// One object of `file_bytes`.
        SingleFile = "single-file",
        /// `objects` objects of `file_bytes`, the k-th most popular with probability ~ k^-alpha.
        Zipf = "zipf",
    }
}

vocabulary! {
    /// `workload.mode`: when a client sends its next request.
    LoadMode {
        /// When the last one is answered, as in Balaji et al. 2004.
        #[default]
        Closed = "closed",
        /// At its time, regardless of answers: `rate` requests/s over all edges.
        Open = "open",
    }
}
