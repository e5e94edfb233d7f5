//! Every field of a configuration: what it may be, what it is where nobody says, and where that figure comes from.
//!
//! This table is all there is to know of the fields: reading a file, `--set`, `sidelong sim explain` and the page in
//! `docs/sim.md` follow it. Marks: *measured*, *published*, or *estimate* for what nobody published, which is to be swept.

/// A field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its table in the file.
    pub section: &'static str,
    /// Its key there; it carries the unit.
    pub key: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it is where nobody says, in the profile `rams` and in `today`.
    pub default: [&'static str; 2],
    /// What it is.
    pub what: &'static str,
    /// Where the default comes from.
    pub source: &'static str,
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
    /// A file, from the configuration's directory.
    Path,
}

/// The profiles: hardware of C's time, and of today.
pub const PROFILES: [&str; 2] = ["rams", "today"];

/// Requests of one run at most: 400 MB of them.
pub const REQUESTS_MAX: u64 = 100_000_000;

const fn both(
    section: &'static str,
    key: &'static str,
    kind: Kind,
    default: &'static str,
    what: &'static str,
    source: &'static str,
) -> Field {
    Field { section, key, kind, default: [default, default], what, source }
}

const fn hardware(
    key: &'static str,
    kind: Kind,
    default: [&'static str; 2],
    what: &'static str,
    source: &'static str,
) -> Field {
    Field { section: "hardware", key, kind, default, what, source }
}

const fn sites(
    key: &'static str,
    kind: Kind,
    default: &'static str,
    what: &'static str,
    source: &'static str,
) -> Field {
    both("sites", key, kind, default, what, source)
}

const fn reconfig(
    key: &'static str,
    kind: Kind,
    default: &'static str,
    what: &'static str,
    source: &'static str,
) -> Field {
    both("reconfig", key, kind, default, what, source)
}

const fn admission(
    key: &'static str,
    kind: Kind,
    default: &'static str,
    what: &'static str,
    source: &'static str,
) -> Field {
    both("admission", key, kind, default, what, source)
}

const OURS: &str = "our choice";
const LIVE: &str = "as the live system has it";
const MS: Kind = Kind::Number(0.001, 1e6);
const UNSAID: &str = "C does not say: estimate";
const US: Kind = Kind::Number(0.0, 1e6);
const US_PER_KIB: Kind = Kind::Number(0.0, 1e4);
const MB_PER_S: Kind = Kind::Number(0.5, 1e6);

/// All of them. The first vary slowest in a sweep, so that runs of one workload come together.
pub const FIELDS: &[Field] = &[
    both(
        "workload",
        "kind",
        Kind::Word(&["zipf", "trace", "sample"]),
        "zipf",
        "where requests come from: drawn by Zipf's law, a log, or the built-in WorldCup98 sample",
        OURS,
    ),
    both("workload", "trace", Kind::Path, "", "the log, in a format that `sidelong trace info` reads", OURS),
    both(
        "workload",
        "requests",
        Kind::Whole(1, REQUESTS_MAX),
        "1000000",
        "requests of a run; a log that is shorter begins again",
        OURS,
    ),
    both("workload", "objects", Kind::Whole(1, 16_777_216), "100000", "zipf: objects", OURS),
    both(
        "workload",
        "alpha",
        Kind::Number(0.0, 10.0),
        "0.9",
        "zipf: exponent",
        "published: Breslau et al., INFOCOM 1999, 0.64-0.83 for proxies, more for servers",
    ),
    both(
        "workload",
        "size_bytes_median",
        Kind::Whole(1, 1 << 32),
        "11580",
        "zipf: sizes are log-normal with this median",
        "published: Barford and Crovella, SIGMETRICS 1998",
    ),
    both(
        "workload",
        "size_sigma",
        Kind::Number(0.001, 10.0),
        "1.318",
        "zipf: standard deviation of the logarithm of sizes",
        "published: the same",
    ),
    both(
        "workload",
        "size_bytes_max",
        Kind::Whole(1, 4_294_967_295),
        "1048576",
        "zipf: larger objects have this size",
        OURS,
    ),
    both(
        "workload",
        "arrivals",
        Kind::Word(&["closed", "poisson", "trace"]),
        "closed",
        "requests come when clients have their answers, at random, or when the log has them",
        OURS,
    ),
    both(
        "workload",
        "clients_per_node",
        Kind::Whole(1, 100_000),
        "8",
        "closed: clients for each node",
        UNSAID,
    ),
    both(
        "workload",
        "think_ms",
        Kind::Number(0.0, 1e7),
        "0",
        "closed: from an answer to the client's next request",
        UNSAID,
    ),
    both(
        "workload",
        "rate_per_node",
        Kind::Number(1e-6, 1e9),
        "100",
        "poisson: requests a second for each node",
        UNSAID,
    ),
    both(
        "workload",
        "speed",
        Kind::Number(1e-6, 1e9),
        "1",
        "trace: how many times as fast as the log has it",
        OURS,
    ),
    both(
        "run",
        "seed",
        Kind::Whole(0, u64::MAX >> 1),
        "1",
        "of what is drawn and of where objects lie; runs that differ in it alone are one point",
        OURS,
    ),
    both(
        "run",
        "model",
        Kind::Word(&["cache", "reconfig"]),
        "cache",
        "what is simulated: the cooperative cache, or a data-center whose nodes move between sites",
        OURS,
    ),
    both(
        "run",
        "warmup",
        Kind::Number(0.0, 0.99),
        "0.2",
        "part of the requests that come before those that are measured",
        OURS,
    ),
    both("cluster", "nodes", Kind::Whole(1, 10_000), "64", "nodes, of both models", "published: C 4.1"),
    both(
        "cluster",
        "dispatcher",
        Kind::Word(&["round-robin", "least-connections", "power-of-two"]),
        "round-robin",
        "which node gets a request: each in turn, or by the requests that each has, as the live balance policies choose",
        "published: C 3.2",
    ),
    both(
        "cluster",
        "protocol",
        Kind::Word(&["rpc", "lazy", "aggressive", "sender", "receiver", "accumulated", "ledger"]),
        "sender",
        "how references are kept up to date",
        "published: C 2.2; ledger is ours",
    ),
    both(
        "cluster",
        "eviction",
        Kind::Word(&["lru", "sieve", "s3-fifo"]),
        "lru",
        "which objects go",
        "published: C keeps the most recently used",
    ),
    both(
        "cluster",
        "memory_mb",
        Kind::Number(0.001, 1e7),
        "64",
        "memory of a node for its two caches, in 10^6 bytes",
        UNSAID,
    ),
    both(
        "cluster",
        "outgoing_part",
        Kind::Number(0.001, 0.999),
        "0.5",
        "part of it for objects that the node is home to; the rest is for what it read",
        UNSAID,
    ),
    both(
        "cluster",
        "references_max",
        Kind::Whole(1, 1 << 30),
        "65536",
        "references that a node keeps",
        UNSAID,
    ),
    both(
        "cluster",
        "threshold",
        Kind::Number(0.0, 1.0),
        "0.1",
        "sender, receiver, accumulated: part of the reads that may fail",
        "published: C 2.2.2",
    ),
    both(
        "cluster",
        "sample_reads",
        Kind::Whole(1, 1 << 30),
        "100",
        "the same: reads over which that part is taken",
        UNSAID,
    ),
    both(
        "cluster",
        "changes_max",
        Kind::Whole(1, 1 << 24),
        "4096",
        "the same: changes that a home remembers",
        UNSAID,
    ),
    both(
        "cluster",
        "carried_max",
        Kind::Whole(1, 1_000),
        "16",
        "ledger: notes that a message carries, either way",
        OURS,
    ),
    both(
        "cluster",
        "notes_max",
        Kind::Whole(0, 1_000),
        "0",
        "ledger: notes that a read takes along; with 0, messages alone carry them",
        OURS,
    ),
    hardware(
        "cores",
        Kind::Whole(1, 1_024),
        ["1", "8"],
        "cores of a node",
        "published: C 3.2, one Pentium 4 of 2 GHz; today: estimate",
    ),
    hardware(
        "request_us",
        US,
        ["60", "10"],
        "CPU for a client's request without its bytes",
        "estimate, such that RPC takes more than half of the CPU as Carrera et al., HPCA 2002, measured",
    ),
    hardware(
        "answer_us_per_kib",
        US_PER_KIB,
        ["10", "0.3"],
        "CPU for 1,024 bytes of the answer",
        "estimate, the same",
    ),
    hardware(
        "post_us",
        US,
        ["1.5", "0.1"],
        "CPU to start a one-sided read",
        "published: VIA 2-3 us a message and side; today 0.2 us with its completion",
    ),
    hardware("completion_us", US, ["1.5", "0.1"], "CPU to learn of its end", "published: the same"),
    hardware(
        "message_us",
        US,
        ["2.5", "0.5"],
        "CPU for a message over the fast network, either side",
        "published: VIA 2-3 us; today: estimate",
    ),
    hardware(
        "change_us",
        US,
        ["0.2", "0.05"],
        "CPU for a change that a message tells of",
        "estimate: a lookup in memory",
    ),
    hardware(
        "rpc_us",
        US,
        ["17.5", "5"],
        "CPU for a message of RPC, either side",
        "published: 84 us there and back (TCP over cLAN), less the wire, over four sides; today 3-10 us",
    ),
    hardware(
        "rpc_us_per_kib",
        US_PER_KIB,
        ["13.6", "0.3"],
        "CPU for 1,024 bytes of it, either side",
        "published: 37.6 MB/s (TCP over cLAN) through both sides; today 6-14 us at 16 KiB",
    ),
    hardware(
        "pin_us",
        US,
        ["10", "0"],
        "CPU to pin an object that was loaded, for others to read",
        "estimate: VIA registers a few pages in this time; today memory is registered once",
    ),
    hardware(
        "wire_us",
        US,
        ["5", "0.89"],
        "from NIC to NIC through the switch, one way",
        "published: a small read takes 14 us (VIA/cLAN, cautious), today 2 us, less the other parts",
    ),
    hardware(
        "rpc_wire_us",
        US,
        ["7", "5"],
        "the same for RPC, with interrupts",
        "published: as rpc_us; today 30 us there and back",
    ),
    hardware(
        "nic_us",
        US,
        ["1", "0.02"],
        "NIC for each operation",
        "estimate; today 50 million operations a second",
    ),
    hardware(
        "link_mb_per_s",
        MB_PER_S,
        ["100", "12500"],
        "bandwidth of NICs and of the switch's ports, in 10^6 bytes a second",
        "published: VIA/cLAN 88-110; today 100 Gb/s",
    ),
    hardware(
        "disk_us",
        US,
        ["12670", "85"],
        "disk for each access",
        "published: IBM 75GXP, 8.5 ms seek and 4.17 ms half turn; today NVMe 70-100 us",
    ),
    hardware(
        "disk_mb_per_s",
        MB_PER_S,
        ["37", "3000"],
        "disk for its bytes, in 10^6 bytes a second",
        "published: IBM 75GXP; today: estimate",
    ),
    hardware(
        "disk_depth",
        Kind::Whole(1, 4_096),
        ["1", "32"],
        "accesses that the disk does at once",
        "published: one arm; today: estimate",
    ),
    sites(
        "sites",
        Kind::Whole(1, 4_095),
        "3",
        "sites, to which the nodes are dealt out evenly",
        "published: R 4.3.1, 3:3:2",
    ),
    sites(
        "configuration",
        Kind::Word(&["rigid", "reconfigured", "over-provisioned"]),
        "reconfigured",
        "whether nodes move; over-provisioned: each site has what reconfiguration could give it at most",
        "published: R 4.3",
    ),
    sites("floor", Kind::Whole(1, 16_383), "1", "nodes that each site is guaranteed", LIVE),
    sites(
        "priority_levels",
        Kind::Whole(1, 255),
        "1",
        "sites have the priorities from 0 to one less than this in turn",
        OURS,
    ),
    sites(
        "workers",
        Kind::Whole(1, 4_096),
        "2",
        "requests that a node serves at a time",
        "as the lab's R10 has it",
    ),
    sites("service_ms", MS, "5", "for each of which it takes this long", "as the lab's R10 has it"),
    sites(
        "service",
        Kind::Word(&["fixed", "exponential"]),
        "fixed",
        "whether that is the time or its mean",
        "as the lab's R10 has it",
    ),
    sites("slow_part", Kind::Number(0.0, 1.0), "0", "part of the nodes that are slower", OURS),
    sites(
        "slow_sites",
        Kind::Whole(0, 4_095),
        "0",
        "of so many sites, the first, all nodes are slower, and no others; 0: slow_part of each site's",
        OURS,
    ),
    sites("slow_factor", Kind::Number(1.0, 100.0), "2", "by how much: they take so many times as long", OURS),
    sites(
        "path_ms",
        Kind::Number(0.0, 1e4),
        "1",
        "of a request, all but queue and service: client, edge, network, timers; half before the node, half after",
        "estimate; S1 measures it first",
    ),
    sites(
        "demand",
        Kind::Word(&["bursts", "steps", "open"]),
        "bursts",
        "bursts: one site after the other; steps: some sites are busy at a time, and then others; open: requests come at \
         random, whatever becomes of them",
        "published: R 4.3.1; steps and open are our choice",
    ),
    sites(
        "burst",
        Kind::Whole(1, 1 << 32),
        "512",
        "bursts: requests of each",
        "published: R 4.3.1, 512 to 16384",
    ),
    sites("asked", Kind::Whole(1, 1 << 40), "12288", "bursts: requests of a run", OURS),
    sites(
        "clients_per_edge",
        Kind::Whole(1, 100_000),
        "16",
        "bursts: clients, in a closed loop",
        "published: R 4",
    ),
    sites("steps", Kind::Whole(1, 10_000), "4", "steps: how many", OURS),
    sites("step_ms", MS, "400", "steps: how long each lasts", OURS),
    sites(
        "busy_one_in",
        Kind::Whole(1, 4_095),
        "4",
        "steps: of so many sites one is busy, at each step the next; at least one",
        OURS,
    ),
    sites(
        "busy_clients",
        Kind::Number(0.0, 1e4),
        "6",
        "steps: clients in a closed loop, for each node that a busy site began with",
        OURS,
    ),
    sites("idle_clients", Kind::Number(0.0, 1e4), "0.2", "steps: the same of the other sites", OURS),
    sites(
        "offered",
        Kind::Number(0.0, 1e3),
        "1",
        "open: requests that come in a second, over what the nodes that their site began with can serve",
        OURS,
    ),
    sites(
        "offered_high",
        Kind::Number(0.0, 1e3),
        "0.8",
        "open: the same of sites of the highest priority, where there are several",
        OURS,
    ),
    sites("open_ms", MS, "4000", "open: for how long", OURS),
    sites(
        "surge",
        Kind::Number(0.0, 1e3),
        "0",
        "open: what comes for the last site from surge_ms on in place of the above; 0: nothing changes",
        OURS,
    ),
    sites("surge_ms", MS, "1000", "open: when that begins", OURS),
    sites(
        "askers",
        Kind::Whole(1, 65_536),
        "2000",
        "open: clients of each site, each with its own address",
        OURS,
    ),
    admission(
        "admission",
        Kind::Word(&["none", "target", "paper"]),
        "none",
        "whom edges let in: everybody; whom they can serve in time; nobody while all nodes of a site are overloaded (A)",
        OURS,
    ),
    admission(
        "queue_ms_max",
        MS,
        "20",
        "target: how long who is let in may wait for a worker; goodput is what waited no longer",
        OURS,
    ),
    admission(
        "overload_threshold",
        Kind::Number(0.001, 1e4),
        "1",
        "paper: the load index above which a node is overloaded; 1 is all in use",
        LIVE,
    ),
    admission(
        "share",
        Kind::Number(0.0, 1.0),
        "0",
        "of the pool: up to which a site gives way to no other",
        LIVE,
    ),
    admission(
        "rotation_s",
        Kind::Number(0.001, 1e6),
        "30",
        "within this time each client of an overloaded site is let in for a while",
        LIVE,
    ),
    reconfig(
        "reconfig_protocol",
        Kind::Word(&["lease", "paper"]),
        "lease",
        "how nodes are moved: with leases, budgets and draining, or as R prints it",
        "published: R 3.1.2; lease is ours",
    ),
    reconfig(
        "balancers",
        Kind::Whole(1, 1_024),
        "2",
        "edges: each balances, looks and moves",
        "as the lab's R10 has it",
    ),
    reconfig(
        "balance",
        Kind::Word(&["weighted", "round-robin", "least-connections", "power-of-two", "last-look"]),
        "weighted",
        "which node of its site gets a request",
        LIVE,
    ),
    reconfig(
        "moves_by",
        Kind::Word(&["target", "load"]),
        "target",
        "where edges go by targets: by what moves go, how these stand or load alone",
        LIVE,
    ),
    reconfig("sensitivity_ms", MS, "1", "S: between two looks", LIVE),
    reconfig("history_ms", Kind::Number(0.0, 1e6), "2", "T: how long a load must stay high", LIVE),
    reconfig(
        "settle_ms",
        Kind::Number(0.0, 1e6),
        "2",
        "after a move neither of its sites takes or gives for this long",
        LIVE,
    ),
    reconfig("high", Kind::Number(0.001, 1e3), "1", "a site with more load than this needs a node", LIVE),
    reconfig(
        "low",
        Kind::Number(0.0, 1e3),
        "0.5",
        "a site that would have less without a node can spare it",
        LIVE,
    ),
    reconfig("lease_ms", MS, "50", "a lock that was not renewed for two of these is taken over", LIVE),
    reconfig("drain_ms_max", MS, "500", "a node has this long to finish its old site's requests", LIVE),
    reconfig("period_ms", MS, "1", "how often a node keeps its record and looks at its word", LIVE),
    reconfig(
        "op_us_min",
        Kind::Number(0.001, 1e6),
        "1",
        "an operation is on its way so long, and its answer again, at least",
        "fabric's simulated network; today 2 us for a small read there and back",
    ),
    reconfig("op_us_max", Kind::Number(0.001, 1e6), "3", "and at most", "the same"),
    reconfig(
        "loss_permille",
        Kind::Whole(0, 999),
        "0",
        "operations that are lost, half of them after they took effect",
        OURS,
    ),
    reconfig(
        "late_permille",
        Kind::Whole(0, 999),
        "0",
        "operations that take effect after they were given up",
        OURS,
    ),
    reconfig(
        "crash_ms",
        Kind::Number(0.0, 1e9),
        "0",
        "mean time after which a balancer is due to die, at an operation of its next move that is drawn; 0: never",
        OURS,
    ),
    reconfig("back_ms", Kind::Number(0.0, 1e9), "30", "mean time until it is back, in another life", OURS),
    reconfig("thrash_ms", MS, "100", "H: a node that moves back within this time counts as thrash", OURS),
];

impl Field {
    /// As `--set`, reports and messages name it.
    pub fn name(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }
}

/// The field `name`, which is a key alone where only one field has it.
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
