//! The class of each key of a cluster file: how a change of it reaches the parts that read it.

use Class::*;

/// How a key's change reaches the parts that read it.
#[derive(Clone, Copy)]
pub(super) enum Class {
    /// They take it over while they run.
    Live,
    /// As `Live`, unless it turns admission on or off, for which edges and fronts are built differently.
    Target,
    /// As `Live`. In the baseline in which nodes decide on moves, they restart.
    Policy,
    /// As `Live`, unless the edge begins to speak TLS, or ceases to: then it restarts.
    Certificates,
    /// The part whose entry has the key restarts; of an entry of several nodes, all of them.
    Own,
    /// That part and the movers restart.
    OwnAndMovers,
    /// As `OwnAndMovers`. In a cluster whose nodes may go to other machines, that part restarts, and the fronts, whose proxies know
    /// its server by its address. Edges take it over.
    Place,
    /// As `Place`, unless the node's server becomes foreign or stops being so.
    Server,
    /// That edge restarts. Agents that tell its connections from those of others take its address over, or restart where there is no roster.
    EdgeAddress,
    /// As `Movers`; of agents as `EdgeAddress`.
    FrontAddress,
    /// The nodes restart.
    Nodes,
    /// The edges restart.
    Edges,
    /// The movers restart: the edges and fronts.
    Movers,
    /// The caches restart.
    Caches,
    /// All parts but the caches restart.
    All,
    /// As `All`, unless it gives the cluster its first command or takes its last.
    Command,
    /// It comes or goes while the parts run, unless the cluster is one whose members must stay the same.
    Member(&'static str),
    /// It comes or goes while the parts run, if they share a machine.
    CacheMember(&'static str),
    /// All parts must be stopped.
    Stop(&'static str),
}

pub(super) const REACH: &str = "parts find and reach each other by it";
pub(super) const BOARD: &str = "it has the board, by which all move nodes";
pub(super) const STAYS: &str =
    "others may wait for its requests: add one under another name, and have this one leave";
pub(super) const TAKEN: &str = "another node is there until it restarts";
const IDENTITY: &str = "parts that differ in it refuse each other";
const SITES: &str = "all parts must have the same sites";
const NODES: &str = "all parts must have the same nodes";
const FRONTS: &str = "all parts must have the same edges and fronts";
const CACHES: &str = "all parts must have the same caches";
pub(super) const COMMANDS: &str = "all parts must agree on whether moves run commands";
pub(super) const ADMISSION: &str = "edges and fronts are built for admission by targets, or without it";
pub(super) const FOREIGN: &str = "all parts must agree on which servers are foreign";

/// The class of each key. `*` stands for any one name.
const CLASSES: &[(&str, Class)] = &[
    ("cluster.*", Stop(REACH)),
    ("etcd", Stop(REACH)),
    ("etcd.*", Live),
    ("verbs.*", Stop(REACH)),
    ("load.scheme", All),
    ("load.period_ms", All),
    ("load.proc_period_ms", Nodes),
    ("load.stale_ms", All),
    ("balance.policy", Movers),
    ("balance.weights.*", Policy),
    ("admission.rule", Movers),
    ("admission.rotation_s", Movers),
    ("reconfig.history_ms", Policy),
    ("reconfig.sensitivity_ms", Movers),
    ("reconfig.settle_ms", Movers),
    ("reconfig.high", Policy),
    ("reconfig.low", Policy),
    ("reconfig.lease_ms", Movers),
    ("reconfig.drain_ms_max", Policy),
    ("reconfig.command_ms_max", All),
    ("baseline.*", Stop("all parts must follow the same design")),
    ("limits.connections_per_client_max", Edges),
    // Histories are opened at start.
    ("limits.history_bytes_max", All),
    ("limits.header_bytes_max", Live),
    ("limits.client_header_timeout_ms", Live),
    ("limits.client_body_timeout_ms", Live),
    ("limits.response_timeout_ms", Live),
    ("limits.idle_timeout_ms", Live),
    ("limits.connections_max", Live),
    ("limits.body_bytes_max", Live),
    ("limits.connect_timeout_ms", Live),
    ("limits.retries", Live),
    ("ganglia.*", Edges),
    // The caches, and the documents that edges read in nodes' memory.
    ("cache.eviction", Stop(IDENTITY)),
    ("cache.item_bytes_max", Stop(IDENTITY)),
    ("cache.fresh_ms", Caches),
    ("cache.documents", Stop(IDENTITY)),
    ("cache.document_memory_mb", Stop(IDENTITY)),
    ("cache.document_max_age_s", Nodes),
    ("cache.peer", CacheMember("the order of caches numbers them")),
    ("cache.peer.*", CacheMember(CACHES)),
    ("cache.peer.*.listen", Own),
    ("cache.peer.*.fabric_listen", Caches),
    ("cache.peer.*.verbs_listen", Caches),
    ("cache.peer.*.admin", Own),
    ("cache.peer.*.memory_mb", Stop(IDENTITY)),
    ("cache.peer.*.clients_max", Own),
    ("site", Member("the order of sites numbers them")),
    ("site.*", Member(SITES)),
    ("site.*.hosts", Live),
    ("site.*.connect", Movers),
    // Of a cluster that starts.
    ("site.*.nodes", Live),
    ("site.*.floor", Live),
    ("site.*.ceiling", Live),
    ("site.*.priority", Live),
    ("site.*.response_ms_p99", Target),
    ("site.*.queue_ms_max", Target),
    ("site.*.rejected_last", Live),
    ("site.*.visit_s", Live),
    ("site.*.share", Live),
    ("site.*.on_enter", Command),
    ("site.*.on_leave", Command),
    ("site.*.drain", Live),
    ("node", Member("the order of nodes numbers them")),
    ("node.*", Member(NODES)),
    ("node.*.count", Member(NODES)),
    ("node.*.listen", Server),
    ("node.*.server", Server),
    ("node.*.serves", Server),
    ("node.*.serves.*", Server),
    ("node.*.fabric_listen", Place),
    ("node.*.admin", Own),
    ("node.*.workers", OwnAndMovers),
    // A node's speed beside the others' follows from its service time, which it has unless it serves files.
    ("node.*.service", OwnAndMovers),
    ("node.*.service_ms", OwnAndMovers),
    ("node.*.root", OwnAndMovers),
    ("node.*.slowdown", Own),
    ("node.*.queue_depth_max", Own),
    // The default of `cpus`.
    ("node.*.cpu_share", OwnAndMovers),
    ("node.*.cpus", Policy),
    ("node.*.net_mbit", Policy),
    // Whether a node has one decides by which scheme its load is read.
    ("node.*.cgroup", OwnAndMovers),
    ("node.*.unit", Own),
    ("node.*.pid_file", Own),
    ("node.*.exclusive", Own),
    ("node.*.http2", Movers),
    ("node.*.ready", Command),
    ("node.*.ready.*", Command),
    ("edge", Member("the order of edges numbers them")),
    ("edge.*", Member(FRONTS)),
    ("edge.*.listen", EdgeAddress),
    ("edge.*.fabric_listen", All),
    ("edge.*.admin", Own),
    ("edge.*.tls", Certificates),
    ("edge.*.client_ca", Certificates),
    ("edge.*.trusted_proxies", Live),
    ("edge.*.proxy_protocol", Own),
    ("edge.*.forwarded", Live),
    ("edge.*.via", Live),
    ("edge.*.access_log", Live),
    ("edge.*.threads", Own),
    ("front", Member("the order of fronts numbers them")),
    ("front.*", Member(FRONTS)),
    ("front.*.proxy", Own),
    ("front.*.dir", Own),
    ("front.*.group", Own),
    ("front.*.by", Own),
    ("front.*.socket", Own),
    ("front.*.backends", Live),
    ("front.*.backends.*", Live),
    ("front.*.add_servers", Live),
    ("front.*.cgroup", Own),
    ("front.*.fabric_listen", FrontAddress),
    ("front.*.admin", Own),
];

/// The class of a key.
pub(super) fn class(key: &str) -> Option<Class> {
    CLASSES.iter().find(|(pattern, _)| is_of(key, pattern)).map(|(_, class)| *class)
}

fn is_of(key: &str, pattern: &str) -> bool {
    let (names, wanted) = (key.split('.'), pattern.split('.'));
    let has_name = |(name, wanted)| wanted == "*" || name == wanted;
    names.clone().count() == wanted.clone().count() && names.zip(wanted).all(has_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::ENTRIES;
    use crate::file::ClusterFile;

    /// The fields of the table that `text` ends with, as serde names them where it finds an unknown one; none if it is no table.
    fn fields(text: &str) -> Vec<String> {
        let Err(error) = toml::from_str::<ClusterFile>(&format!("{text}\nunknown = 1\n")) else {
            return Vec::new();
        };
        let Some(("", expected)) = error.message().split_once("unknown field `unknown`, expected") else {
            return Vec::new();
        };
        expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    /// Finds the keys below `key`, whose table `text` ends with.
    fn keys(key: &str, text: &str, found: &mut Vec<String>) {
        for field in fields(text) {
            let key = if key.is_empty() { field } else { format!("{key}.{field}") };
            let table = key.replace(".*", "");
            found.push(key.clone());
            if ENTRIES.contains(&&*key) {
                found.push(format!("{key}.*"));
                keys(&format!("{key}.*"), &format!("{text}\n[[{table}]]"), found);
            } else {
                keys(&key, &format!("{text}\n[{table}]"), found);
            }
        }
    }

    #[test]
    fn each_key_has_one_class() {
        let mut found = Vec::new();
        keys("", "", &mut found);
        assert!(found.len() > 150, "{found:?}");
        for (pattern, _) in CLASSES {
            let is_used = |key: &String| is_of(key, pattern) || *pattern == format!("{key}.*");
            assert!(found.iter().any(is_used), "{pattern}");
        }
        for key in found {
            let is_section = !key.contains('.') && !ENTRIES.contains(&&*key) && key != "etcd";
            // Tables that are never left out, compared by their keys.
            let is_always_there = is_section || key == "balance.weights";
            let is_for_load = key.starts_with("workload.") || key == "site.*.alpha" || key == "site.*.rates";
            // An array, which is compared as a whole.
            let is_in_array = key.starts_with("edge.*.tls.");
            let is_name = key.ends_with(".*.name");
            let is_compared = !(is_always_there || is_for_load || is_in_array || is_name);
            let classes = CLASSES.iter().filter(|(pattern, _)| is_of(&key, pattern)).count();
            assert_eq!(classes, usize::from(is_compared), "{key}");
        }
    }
}
