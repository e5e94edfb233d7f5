//! Every field of a configuration, each declared once: its meaning, type, bounds, default, and the source of the default.
//!
//! Reading a file, `--set`, `sidelong-lab sim explain`, the page in `docs/sim.md` and the values of a [`Scenario`] follow
//! this table. A source is *measured*, *published*, or an *estimate*, which is to be swept.
//!
//! It is a macro, not a serde struct: a field of a configuration is a list of values to sweep, a field of a scenario is one
//! of them, and bounds, help and sources are asked for by name.

use std::path::PathBuf;

use sidelong_config::{AdmissionRule, Balance, Configuration, Protocol, Service};
use sidelong_layout::vocabulary;
use sidelong_policy::cache::store::Eviction;
use sidelong_rams::protocol::Protocol as CacheProtocol;

use crate::model::Model;

/// A field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its table in the file.
    pub section: &'static str,
    /// Its key there; it carries the unit.
    pub key: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// Its default in the profile `rams`, and in `today`.
    pub default: [&'static str; 2],
    /// Its meaning.
    pub what: &'static str,
    /// The source of the default.
    pub source: &'static str,
}

impl Field {
    /// Whether it is a field of `model`.
    pub(crate) fn is_of(&self, model: Model) -> bool {
        match self.section {
            "sites" | "admission" | "reconfig" => model == Model::Reconfig,
            "run" => model == Model::Cache || self.key != "warmup",
            // Both models use the number of nodes.
            _ => model == Model::Cache || self.key == "nodes",
        }
    }
}

/// What a field may be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    /// A whole number within bounds.
    Whole(u64, u64),
    /// A number within bounds.
    Number(f64, f64),
    /// One of some words.
    Word(&'static [&'static str]),
    /// A path, from the configuration's directory.
    Path,
}

/// The profiles: hardware of Gu and Wang 2004, and of today.
pub const PROFILES: [&str; 2] = ["rams", "today"];

/// Most requests of one run, which take 400 MB.
pub const REQUESTS_MAX: u64 = 100_000_000;

vocabulary! {
    /// `workload.kind`: the source of requests.
    Source {
        /// Drawn by Zipf's law.
        #[default]
        Zipf = "zipf",
        /// A log.
        Trace = "trace",
        /// The built-in WorldCup98 sample.
        Sample = "sample",
    }
}

vocabulary! {
    /// `workload.arrivals`: when requests arrive.
    ArrivalKind {
        /// When clients have their answers.
        #[default]
        Closed = "closed",
        /// At random.
        Poisson = "poisson",
        /// When the log has them.
        Trace = "trace",
    }
}

vocabulary! {
    /// `sites.demand`: how the load of the sites changes.
    DemandKind {
        /// One site is busy after the other.
        #[default]
        Bursts = "bursts",
        /// Some sites are busy at a time, and then others.
        Steps = "steps",
        /// Requests come at random, whatever becomes of them.
        Open = "open",
    }
}

vocabulary! {
    /// `reconfig.moves_by`: what moves depend on, if edges use targets.
    MovesBy {
        /// The state of the targets.
        #[default]
        Target = "target",
        /// Load alone.
        Load = "load",
    }
}

const OURS: &str = "our choice";
const LIVE: &str = "as the live system has it";
const UNSAID: &str = "Gu and Wang do not say: estimate";

/// Declares the sections of a file, each as a struct, and the table of all their fields. A field is
/// `key: type [min, max] = default, source;` or, where the profiles differ, `= rams | today, source;`.
macro_rules! fields {
    ($($section:ident: $Section:ident {$(
        $(#[doc = $what:literal])+
        $key:ident: $type:ident $([$min:expr, $max:expr])? = $default:literal $(| $today:literal)?, $source:expr;
    )+})+) => {
        $(
            #[doc = concat!("`[", stringify!($section), "]`, one value for each field.")]
            #[derive(Clone, PartialEq, Debug)]
            pub struct $Section {$(
                $(#[doc = $what])+
                pub $key: $type,
            )+}
        )+

        /// The parameters of one run: a value for each field.
        #[derive(Clone, PartialEq, Debug)]
        pub struct Scenario {$(
            #[doc = concat!("`[", stringify!($section), "]`.")]
            pub $section: $Section,
        )+}

        impl Scenario {
            /// Parses a usable value for each field, in the order of [`FIELDS`].
            pub(crate) fn read(values: &[String]) -> Option<Scenario> {
                let mut values = values.iter();
                Some(Scenario {$(
                    $section: $Section {$($key: values.next()?.parse().ok()?,)+},
                )+})
            }
        }

        /// All fields. In a sweep the first vary slowest, so that runs of one workload come together.
        pub const FIELDS: &[Field] = &[$($(Field {
            section: stringify!($section),
            key: stringify!($key),
            kind: fields!(@kind $type $($min, $max)?),
            default: [concat!($default), fields!(@today $default $($today)?)],
            what: concat!($($what),+).trim_ascii(),
            source: $source,
        },)+)+];
    };
    (@kind f64 $min:expr, $max:expr) => { Kind::Number($min, $max) };
    (@kind PathBuf) => { Kind::Path };
    (@kind $word:ident) => { Kind::Word($word::WORDS) };
    (@kind $whole:ident $min:expr, $max:expr) => { Kind::Whole($min, $max) };
    (@today $default:literal) => { concat!($default) };
    (@today $default:literal $today:literal) => { concat!($today) };
}

fields! {
    workload: Workload {
        /// source of requests: drawn by Zipf's law, a log, or the built-in WorldCup98 sample
        kind: Source = "zipf", OURS;
        /// the log, in a format that `sidelong-lab trace info` reads
        trace: PathBuf = "", OURS;
        /// requests of a run; a log that is shorter begins again
        requests: usize [1, REQUESTS_MAX] = 1_000_000, OURS;
        /// zipf: objects
        objects: u32 [1, 16_777_216] = 100_000, OURS;
        /// zipf: exponent
        alpha: f64 [0.0, 10.0] = 0.9, "published: Breslau et al., INFOCOM 1999, 0.64-0.83 for proxies, more for servers";
        /// zipf: sizes are log-normal with this median
        size_bytes_median: u64 [1, 1 << 32] = 11_580, "published: Barford and Crovella, SIGMETRICS 1998";
        /// zipf: standard deviation of the logarithm of sizes
        size_sigma: f64 [0.001, 10.0] = 1.318, "published: the same";
        /// zipf: larger objects have this size
        size_bytes_max: u64 [1, 4_294_967_295] = 1_048_576, OURS;
        /// when requests arrive: when clients have their answers, at random, or at the log's times
        arrivals: ArrivalKind = "closed", OURS;
        /// closed: clients for each node
        clients_per_node: u32 [1, 100_000] = 8, UNSAID;
        /// closed: from an answer to the client's next request
        think_ms: f64 [0.0, 1e7] = 0, UNSAID;
        /// poisson: requests a second for each node
        rate_per_node: f64 [1e-6, 1e9] = 100, UNSAID;
        /// trace: speed-up over the log's times
        speed: f64 [1e-6, 1e9] = 1, OURS;
    }
    run: Run {
        /// seed of random numbers and of the objects' homes; runs that differ only in it are one point
        seed: u64 [0, u64::MAX >> 1] = 1, OURS;
        /// the model: the cooperative cache, or a data-center whose nodes move between sites
        model: Model = "cache", OURS;
        /// part of the requests that is not measured, at the start
        warmup: f64 [0.0, 0.99] = 0.2, OURS;
    }
    cluster: Cluster {
        /// nodes, of both models
        nodes: u32 [1, 10_000] = 64, "published: Gu and Wang, 4.1";
        /// which node gets a request: a live balance policy, by the requests that each node has
        dispatcher: Balance = "round-robin", "published: Gu and Wang, 3.2";
        /// how references are kept up to date
        protocol: CacheProtocol = "sender", "published: Gu and Wang, 2.2; ledger is ours";
        /// which objects go
        eviction: Eviction = "lru", "published: Gu and Wang keep the most recently used";
        /// memory of a node's two caches, in 10^6 bytes
        memory_mb: f64 [0.001, 1e7] = 64, UNSAID;
        /// part of it for objects whose home the node is; the rest is for objects that it read
        outgoing_part: f64 [0.001, 0.999] = 0.5, UNSAID;
        /// references that a node keeps
        references_max: u32 [1, 1 << 30] = 65_536, UNSAID;
        /// sender, receiver, accumulated: part of the reads that may fail
        threshold: f64 [0.0, 1.0] = 0.1, "published: Gu and Wang, 2.2.2";
        /// the same: reads over which that part is measured
        sample_reads: u32 [1, 1 << 30] = 100, UNSAID;
        /// the same: changes that a home remembers
        changes_max: u32 [1, 1 << 24] = 4096, UNSAID;
        /// ledger: notes that a message carries, either way
        carried_max: u32 [1, 1_000] = 16, OURS;
        /// ledger: notes that a read carries; with 0, only messages carry them
        notes_max: u32 [0, 1_000] = 0, OURS;
    }
    hardware: Hardware {
        /// cores of a node
        cores: usize [1, 1_024] = 1 | 8, "published: Gu and Wang, 3.2, one Pentium 4 of 2 GHz; today: estimate";
        /// CPU for a client's request without its bytes
        request_us: f64 [0.0, 1e6] = 60 | 10, "estimate, such that RPC takes more than half of the CPU as Carrera et al., HPCA 2002, measured";
        /// CPU for 1,024 bytes of the answer
        answer_us_per_kib: f64 [0.0, 1e4] = 10 | 0.3, "estimate, the same";
        /// CPU to start a one-sided read
        post_us: f64 [0.0, 1e6] = 1.5 | 0.1, "published: VIA 2-3 us a message and side; today 0.2 us with its completion";
        /// CPU to take its completion
        completion_us: f64 [0.0, 1e6] = 1.5 | 0.1, "published: the same";
        /// CPU for a message over the fast network, either side
        message_us: f64 [0.0, 1e6] = 2.5 | 0.5, "published: VIA 2-3 us; today: estimate";
        /// CPU for each change in a message
        change_us: f64 [0.0, 1e6] = 0.2 | 0.05, "estimate: a lookup in memory";
        /// CPU for a message of RPC, either side
        rpc_us: f64 [0.0, 1e6] = 17.5 | 5, "published: 84 us there and back (TCP over cLAN), less the wire, over four sides; today 3-10 us";
        /// CPU for 1,024 bytes of it, either side
        rpc_us_per_kib: f64 [0.0, 1e4] = 13.6 | 0.3, "published: 37.6 MB/s (TCP over cLAN) through both sides; today 6-14 us at 16 KiB";
        /// CPU to pin an object that was loaded, for others to read
        pin_us: f64 [0.0, 1e6] = 10 | 0, "estimate: VIA registers a few pages in this time; today memory is registered once";
        /// from NIC to NIC through the switch, one way
        wire_us: f64 [0.0, 1e6] = 5 | 0.89, "published: a small read takes 14 us (VIA/cLAN, cautious), today 2 us, less the other parts";
        /// the same for RPC, with interrupts
        rpc_wire_us: f64 [0.0, 1e6] = 7 | 5, "published: as rpc_us; today 30 us there and back";
        /// NIC time for each operation
        nic_us: f64 [0.0, 1e6] = 1 | 0.02, "estimate; today 50 million operations a second";
        /// bandwidth of NICs and of the switch's ports, in 10^6 bytes a second
        link_mb_per_s: f64 [0.5, 1e6] = 100 | 12_500, "published: VIA/cLAN 88-110; today 100 Gb/s";
        /// disk time for each access
        disk_us: f64 [0.0, 1e6] = 12_670 | 85, "published: IBM 75GXP, 8.5 ms seek and 4.17 ms half turn; today NVMe 70-100 us";
        /// bandwidth of the disk, in 10^6 bytes a second
        disk_mb_per_s: f64 [0.5, 1e6] = 37 | 3000, "published: IBM 75GXP; today: estimate";
        /// accesses that the disk makes at once
        disk_depth: usize [1, 4_096] = 1 | 32, "published: one arm; today: estimate";
    }
    sites: Sites {
        /// sites, with an equal number of nodes
        sites: usize [1, 4_095] = 3, "published: Balaji et al., 4.3.1, 3:3:2";
        /// whether nodes move; over-provisioned: each site has the most that reconfiguration could give it
        configuration: Configuration = "reconfigured", "published: Balaji et al., 4.3";
        /// nodes that each site is guaranteed
        floor: usize [1, 16_383] = 1, LIVE;
        /// sites have the priorities 0 to one less than this, in turn
        priority_levels: u8 [1, 255] = 1, OURS;
        /// requests that a node serves at once
        workers: u32 [1, 4_096] = 2, "as the lab's R10 has it";
        /// service time of a request, or its mean
        service_ms: f64 [0.001, 1e6] = 5, "as the lab's R10 has it";
        /// whether service times are fixed or exponentially distributed
        service: Service = "fixed", "as the lab's R10 has it";
        /// part of the nodes that are slower
        slow_part: f64 [0.0, 1.0] = 0, OURS;
        /// all nodes of this many sites are slower, from the first, and no others; 0: slow_part of each site's nodes
        slow_sites: usize [0, 4_095] = 0, OURS;
        /// factor of the service time of slower nodes
        slow_factor: f64 [1.0, 100.0] = 2, OURS;
        /// time of a request outside the node (client, edge, network, timers), half before it and half after
        path_ms: f64 [0.0, 1e4] = 1, "estimate; S1 measures it first";
        /// bursts: one site after the other; steps: some sites are busy at a time, then others; open: requests arrive
        /// at random
        demand: DemandKind = "bursts", "published: Balaji et al., 4.3.1; steps and open are our choice";
        /// bursts: requests of each
        burst: u64 [1, 1 << 32] = 512, "published: Balaji et al., 4.3.1, 512 to 16384";
        /// bursts: requests of a run
        asked: u64 [1, 1 << 40] = 12_288, OURS;
        /// bursts: clients, in a closed loop
        clients_per_edge: usize [1, 100_000] = 16, "published: Balaji et al., 4";
        /// steps: number of steps
        steps: u64 [1, 10_000] = 4, OURS;
        /// steps: duration of each
        step_ms: f64 [0.001, 1e6] = 400, OURS;
        /// steps: one in this many sites is busy, at each step the next; at least one
        busy_one_in: usize [1, 4_095] = 4, OURS;
        /// steps: clients in a closed loop, for each node that a busy site began with
        busy_clients: f64 [0.0, 1e4] = 6, OURS;
        /// steps: the same of the other sites
        idle_clients: f64 [0.0, 1e4] = 0.2, OURS;
        /// open: rate of requests, relative to the capacity of the site's first nodes
        offered: f64 [0.0, 1e3] = 1, OURS;
        /// open: the same for sites of the highest priority, if there are several
        offered_high: f64 [0.0, 1e3] = 0.8, OURS;
        /// open: duration
        open_ms: f64 [0.001, 1e6] = 4000, OURS;
        /// open: rate for the last site from surge_ms on; 0: no change
        surge: f64 [0.0, 1e3] = 0, OURS;
        /// open: start of the surge
        surge_ms: f64 [0.001, 1e6] = 1000, OURS;
        /// open: clients of each site, each with its own address
        askers: u32 [1, 65_536] = 2000, OURS;
    }
    admission: Admission {
        /// which requests are admitted: all (none); those that can be served in time (target); none while all nodes of
        /// a site are overloaded (paper)
        admission: AdmissionRule = "none", OURS;
        /// target: how long an admitted request may wait for a worker; goodput counts requests that waited no longer
        queue_ms_max: f64 [0.001, 1e6] = 20, OURS;
        /// paper: the load index above which a node is overloaded; 1 is all in use
        overload_threshold: f64 [0.001, 1e4] = 1, LIVE;
        /// part of the pool that no other site can take from a site
        share: f64 [0.0, 1.0] = 0, LIVE;
        /// within this time each client of an overloaded site is admitted for a while
        rotation_s: f64 [0.001, 1e6] = 30, LIVE;
    }
    reconfig: Reconfig {
        /// protocol of moves: with leases, budgets and draining, or as published
        reconfig_protocol: Protocol = "lease", "published: Balaji et al., 3.1.2; lease is ours";
        /// edges: each balances, scans and moves nodes
        balancers: usize [1, 1_024] = 2, "as the lab's R10 has it";
        /// which node of its site gets a request
        balance: Balance = "weighted", LIVE;
        /// with targets: whether moves go by the targets or by load alone
        moves_by: MovesBy = "target", LIVE;
        /// S: interval between two scans
        sensitivity_ms: f64 [0.001, 1e6] = 1, LIVE;
        /// T: how long a site's load must stay high before a node moves to it
        history_ms: f64 [0.0, 1e6] = 2, LIVE;
        /// after a move neither of its sites takes or gives a node for this long
        settle_ms: f64 [0.0, 1e6] = 2, LIVE;
        /// a site with more load than this needs a node
        high: f64 [0.001, 1e3] = 1, LIVE;
        /// a site that would have less without a node can spare it
        low: f64 [0.0, 1e3] = 0.5, LIVE;
        /// a lock that was not renewed for two leases is taken over
        lease_ms: f64 [0.001, 1e6] = 50, LIVE;
        /// a node has this long to finish its old site's requests
        drain_ms_max: f64 [0.001, 1e6] = 500, LIVE;
        /// how often a node publishes its record and reads its word
        period_ms: f64 [0.001, 1e6] = 1, LIVE;
        /// least time of an operation on the network, each way
        op_us_min: f64 [0.001, 1e6] = 1, "fabric's simulated network; today 2 us for a small read there and back";
        /// most time of an operation on the network, each way
        op_us_max: f64 [0.001, 1e6] = 3, "the same";
        /// operations that are lost, half of them after they took effect
        loss_permille: u32 [0, 999] = 0, OURS;
        /// operations that take effect after they timed out
        late_permille: u32 [0, 999] = 0, OURS;
        /// mean time until an edge dies, at a random operation of its next move; 0: never
        crash_ms: f64 [0.0, 1e9] = 0, OURS;
        /// mean time until it is back
        back_ms: f64 [0.0, 1e9] = 30, OURS;
        /// mean time until a node leaves the cluster; 0: never
        leave_ms: f64 [0.0, 1e9] = 0, OURS;
        /// mean time until it joins again
        join_ms: f64 [0.0, 1e9] = 30, OURS;
        /// H: a node that moves back within this time counts as thrashing
        thrash_ms: f64 [0.001, 1e6] = 100, OURS;
    }
}

impl Field {
    /// As `--set`, reports and messages name it.
    pub fn name(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }
}

/// The index of the field `name`, which may be a key alone if only one field has it.
pub(crate) fn find(name: &str) -> Option<usize> {
    FIELDS.iter().position(|field| field.key == name || field.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_found() {
        for (i, field) in FIELDS.iter().enumerate() {
            assert_eq!(find(field.key), Some(i));
            assert_eq!(find(&field.name()), Some(i));
        }
        assert_eq!(find("nods"), None);
    }
}
