//! Checks of a cluster file. Each names the key, what it found there, and what it expected.

mod cache;
mod expect;
mod front;
mod node;
mod site;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use sidelong_layout::{EDGES_MAX, NODES_MAX, SITES_MAX};
use sidelong_policy::admission::AdmissionRule;
use sidelong_policy::balance::Balance;
use sidelong_state::{Drain, Protocol, Scheme};

use crate::cluster::Node;
use crate::file::{ClusterFile, EdgeEntry, FrontEntry, NodeEntry, SiteEntry};
use crate::lines::At;
use crate::secret::{SECRET_BYTES_MAX, SECRET_BYTES_MIN};
use crate::sections::{
    Admission, Balancing, Baseline, Etcd, Ganglia, Limits, Load, Reconfig, Verbs, Workload,
};
use crate::words::{Configuration, Fabric, LoadMode, MovedBy, Service, WorkloadKind};
use cache::{cache, cache_peers};
use expect::{
    Addresses, Check, HOUR, MICROS_10, MILLI, MINUTE, NAME_BYTES_MAX, Seen, excerpt, expect, is_text, millis,
    ms, name, port, within,
};
use front::{connect_addresses, front};
use node::{lasting_group, node};
use site::site;
pub use site::{HOST_EXPECTED, is_host};

pub(crate) use expect::Problem;
pub(crate) use node::server;

/// Most certificates of one edge.
const CERTIFICATES_MAX: usize = 1024;
/// Most addresses of the workload's clients.
const ADDRESSES_MAX: u32 = 4096;

/// Checks the tables that occur once.
pub(crate) fn sections(file: &ClusterFile) -> Check {
    name(At::section("cluster").key("name"), "cluster", &file.cluster.name)?;
    secret(file)?;
    etcd(file)?;
    verbs(&file.verbs)?;
    load(&file.load)?;
    balance(&file.balance)?;
    admission(&file.admission)?;
    baseline(file)?;
    reconfig(&file.reconfig)?;
    limits(&file.limits)?;
    ganglia(file)?;
    cache(file)?;
    file.workload.as_ref().map_or(Ok(()), |load| workload(load, file))
}

/// Checks the tables that occur several times, each by itself and together.
pub(crate) fn entries(file: &ClusterFile) -> Check {
    count("site", "[[site]]", file.sites.len(), SITES_MAX)?;
    count("node", "[[node]]", file.nodes.len(), NODES_MAX)?;
    count("edge", "[[edge]] or [[front]]", file.edges.len() + file.fronts.len(), EDGES_MAX)?;
    let mut names = Seen::default();
    let mut hosts = Seen::default();
    for (i, entry) in file.sites.iter().enumerate() {
        let at = At::entry("site", i);
        site(at, entry, !file.edges.is_empty())?;
        names.once(at.key("name"), "name", &entry.name, "a site".into())?;
        for (j, host) in entry.hosts.iter().enumerate() {
            hosts.once(at.key("hosts").item(j), "host", host, format!("site {:?}", entry.name))?;
        }
    }
    file.nodes
        .iter()
        .enumerate()
        .try_for_each(|(i, entry)| node(At::entry("node", i), entry, &file.sites))?;
    file.edges.iter().enumerate().try_for_each(|(i, entry)| edge(At::entry("edge", i), entry))?;
    file.fronts.iter().enumerate().try_for_each(|(i, entry)| front(At::entry("front", i), entry, file))?;

    steps(file)?;
    if file.sites.iter().any(|site| site.on_enter.is_some() || site.on_leave.is_some()) {
        file.nodes
            .iter()
            .enumerate()
            .try_for_each(|(i, entry)| lasting_group(At::entry("node", i), entry))?;
    }
    let pool: usize = file.nodes.iter().map(|entry| entry.count).sum();
    promises(file, pool)?;
    let mut wanted = 0;
    for (i, entry) in file.sites.iter().enumerate() {
        wanted += entry.nodes;
        expect(wanted <= pool, At::entry("site", i).key("nodes"), || {
            let found = format!(
                "site {:?}: with its {} nodes the sites start with {wanted} nodes, but the pool has {pool}",
                entry.name, entry.nodes
            );
            (found, "at most as many nodes at the sites as in the pool".into())
        })?;
    }
    Ok(())
}

/// The published protocol has no step between two sites, in which a node could drain or run a command.
fn steps(file: &ClusterFile) -> Check {
    let site = |entry: &SiteEntry| {
        let given = [
            ("on_enter", entry.on_enter.is_some()),
            ("on_leave", entry.on_leave.is_some()),
            ("drain = \"cut\"", entry.drain == Drain::Cut),
        ];
        given
            .iter()
            .find(|(_, is_given)| *is_given)
            .map(|(key, _)| format!("site {:?} has {key}", entry.name))
    };
    let node = |entry: &NodeEntry| entry.ready.as_ref().map(|_| format!("node {:?} has ready", entry.name));
    let step = file.sites.iter().find_map(site).or_else(|| file.nodes.iter().find_map(node));
    let Some(who) = step.filter(|_| file.baseline.protocol == Protocol::Paper) else { return Ok(()) };
    Err(Problem {
        at: At::section("baseline").key("protocol"),
        found: format!("protocol is \"paper\", and {who}"),
        expected: "protocol = \"lease\": the published one has no step for it".into(),
    })
}

/// Checks what the sites are guaranteed against the pool of `pool` nodes.
fn promises(file: &ClusterFile, pool: usize) -> Check {
    /// Smaller than any intended share, larger than rounding errors.
    const ROUNDING: f64 = 1e-9;
    let (mut floors, mut shares, mut guaranteed) = (0, 0.0, 0.0);
    for (i, entry) in file.sites.iter().enumerate() {
        let (at, who) = (At::entry("site", i), format!("site {:?}", entry.name));
        floors += entry.floor;
        expect(floors <= pool, at.key("floor"), || {
            let found = format!(
                "{who}: with its floor of {} the floors sum to {floors} nodes, but the pool has {pool}",
                entry.floor
            );
            (found, "floors that fit the pool".into())
        })?;
        shares += entry.share;
        expect(shares <= 1.0 + ROUNDING, at.key("share"), || {
            let found =
                format!("{who}: with its share of {} the shares sum to {}", entry.share, rounded(shares));
            (found, "at most 1, which is the whole pool".into())
        })?;
        let nodes = entry.share * pool as f64;
        let ceiling = entry.ceiling.unwrap_or(pool).min(pool);
        expect(nodes <= ceiling as f64 + ROUNDING, at.key("share"), || {
            let found = format!(
                "{who}: a share of {} is {} of {pool} nodes, but its ceiling is {ceiling}",
                entry.share,
                rounded(nodes)
            );
            (found, "a share within the ceiling".into())
        })?;
        guaranteed += nodes.max(entry.floor as f64);
        expect(guaranteed <= pool as f64 + ROUNDING, at.key("share"), || {
            let found = format!(
                "{who}: with it, the sites are guaranteed {} nodes (the greater of floor and share), but the pool has {pool}",
                rounded(guaranteed)
            );
            (found, "floors and shares that fit the pool together".into())
        })?;
        let Some(target) = entry.response_p99 else { continue };
        let times = file.nodes.iter().filter(|node| node.service() != Service::None);
        let slowest = times.map(NodeEntry::service_time).max().unwrap_or_default();
        expect(slowest < target, at.key("response_ms_p99"), || {
            let found = format!(
                "{who}: response_ms_p99 is {}, but a request takes {} at a node",
                ms(target),
                ms(slowest)
            );
            (found, "more than the service_ms of every node".into())
        })?;
    }
    Ok(())
}

/// A sum of decimals without rounding errors.
fn rounded(sum: f64) -> f64 {
    (sum * 1e6).round() / 1e6
}

/// Checks the pool of `total` nodes, including `copies` that over-provisioning adds.
pub(crate) fn pool(file: &ClusterFile, total: usize, copies: usize) -> Check {
    let last = At::entry("node", file.nodes.len() - 1);
    expect(total <= NODES_MAX, last.key("count"), || {
        let of_which =
            if copies > 0 { format!(", {copies} of them to over-provision") } else { String::new() };
        (format!("the pool has {total} nodes{of_which}"), format!("at most {NODES_MAX}"))
    })?;
    let entry = &file.nodes[file.nodes.len() - 1];
    let is_one = entry.cgroup.is_some() || entry.unit.is_some() || entry.pid_file.is_some();
    expect(copies == 0 || !is_one, last.key("cgroup"), || {
        let found = format!("node {:?} is copied {copies} times to over-provision", entry.name);
        (found, "no cgroup: the copies cannot share one".into())
    })?;
    expect(copies == 0 || !entry.is_foreign(), last.key("server"), || {
        let found = format!("node {:?} would be copied {copies} times to over-provision", entry.name);
        (found, "a server for each node, or another configuration".into())
    })?;
    let owners = match file.baseline.by {
        MovedBy::Edge => file.edges.len() + file.fronts.len(),
        MovedBy::Server => file.edges.len() + file.fronts.len() + total,
    };
    expect(owners <= EDGES_MAX, At::section("baseline").key("by"), || {
        (format!("{owners} edges, fronts and nodes would take locks"), format!("at most {EDGES_MAX}"))
    })
}

/// Checks that no two processes share a name or an address. Each node comes with the index of its entry.
pub(crate) fn processes(file: &ClusterFile, nodes: &[(Node, usize)]) -> Check {
    let mut names = Seen::default();
    let mut addresses = Addresses::default();
    let (secret, fabric) = (&file.cluster.secret, file.cluster.fabric);
    let has_secret = secret.is_some() || file.cluster.secret_file.is_some();
    let several = has_secret && fabric != Fabric::Shm;
    let told = |at: At, who: &str, listen: SocketAddr| {
        let is_known = listen.port() != 0 && !listen.ip().is_unspecified();
        expect(!several || is_known, at.key("fabric_listen"), || {
            let found = format!("{who} has its control endpoint at {listen}");
            (found, "with a secret, an address and a port that other machines can reach".into())
        })
    };
    for (node, entry) in nodes {
        let at = At::entry("node", *entry);
        let who = || format!("node {:?}", node.name);
        told(at, &who(), node.fabric_listen)?;
        names.once(at.key("name"), "name", &node.name, "a node".into())?;
        let key = match (node.is_foreign, file.nodes[*entry].serves.is_empty()) {
            (false, _) => "listen",
            (true, true) => "server",
            (true, false) => "serves",
        };
        let whose = || if node.is_foreign { format!("the server of {}", who()) } else { who() };
        // Sites may share an address of a server.
        for address in node.addresses.iter().collect::<BTreeSet<_>>() {
            addresses.server_once(at.key(key), address, whose)?;
            expect(!has_secret || address.tcp().is_some(), at.key(key), || {
                let found = format!("{} is at a Unix socket, and the cluster has a secret", who());
                (found, "ports: the edges may be on other machines; or no secret".into())
            })?;
        }
        if node.fabric_listen.port() != 0 {
            addresses.once(at.key("fabric_listen"), node.fabric_listen, who)?;
        }
        if let Some(admin) = node.admin {
            addresses.once(at.key("admin"), admin, who)?;
        }
    }
    connect_addresses(file, &mut addresses)?;
    // A node has left its old site when all edges have no request of it there, and movers read that.
    let others_move = file.baseline.configuration == Configuration::Reconfigured
        && (file.edges.len() + file.fronts.len() > 1 || file.baseline.by == MovedBy::Server);
    let edges =
        file.edges.iter().enumerate().map(|(i, EdgeEntry { name, listen, fabric_listen, admin, .. })| {
            (At::entry("edge", i), "an edge", name, Some(*listen), fabric_listen, admin)
        });
    let fronts = file.fronts.iter().enumerate().map(|(i, FrontEntry { name, fabric_listen, admin, .. })| {
        (At::entry("front", i), "a front", name, None, fabric_listen, admin)
    });
    for (at, kind, name, listen, &fabric_listen, &admin) in edges.chain(fronts) {
        let who = || format!("{} {name:?}", kind.rsplit(' ').next().unwrap_or_default());
        let must_be_asked = several && (others_move || file.etcd.is_some());
        expect(!must_be_asked || fabric_listen.is_some(), at.key("fabric_listen"), || {
            let found = format!("{} has no control endpoint, and movers cannot read its requests", who());
            (
                found,
                "an address and a port that other machines can reach, or configuration = \"rigid\"".into(),
            )
        })?;
        names.once(at.key("name"), "name", name, kind.into())?;
        if let Some(listen) = listen {
            addresses.once(at.key("listen"), listen, who)?;
        }
        if let Some(listen) = fabric_listen {
            told(at, &who(), listen)?;
            if listen.port() != 0 {
                addresses.once(at.key("fabric_listen"), listen, who)?;
            }
        }
        if let Some(admin) = admin {
            addresses.once(at.key("admin"), admin, who)?;
        }
    }
    cache_peers(file, &mut names, &mut addresses)
}

/// The address whose port is `k` above that of `address`.
pub(crate) fn port_after(at: At, address: SocketAddr, k: usize) -> Result<SocketAddr, Problem> {
    let port = usize::from(address.port()) + k;
    let port = u16::try_from(port).map_err(|_| Problem {
        at,
        found: format!("the nodes from {address} on would need port {port}"),
        expected: format!("at most {}", u16::MAX),
    })?;
    Ok(SocketAddr::new(address.ip(), port))
}

fn secret(file: &ClusterFile) -> Check {
    let at = At::section("cluster");
    let cluster = &file.cluster;
    let bytes = cluster.secret.as_ref().map_or(SECRET_BYTES_MIN, |secret| secret.reveal().len());
    expect((SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes), at.key("secret"), || {
        let expected = format!("from {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} random ones");
        (format!("the secret has {bytes} bytes"), expected)
    })?;
    expect(cluster.secret.is_none() || cluster.secret_file.is_none(), at.key("secret_file"), || {
        ("secret and secret_file are given".into(), "one of them".into())
    })
}

fn etcd(file: &ClusterFile) -> Check {
    let Some(Etcd { endpoints, certificate, key, user, password_file, .. }) = &file.etcd else {
        return Ok(());
    };
    let at = At::section("etcd");
    expect(!endpoints.is_empty(), at.key("endpoints"), || {
        (
            "no endpoint".into(),
            "the addresses of etcd's servers, such as [\"https://e1.example:2379\"]".into(),
        )
    })?;
    for (i, endpoint) in endpoints.iter().enumerate() {
        let is_one = endpoint.starts_with("http://") || endpoint.starts_with("https://");
        expect(is_one, at.key("endpoints").item(i), || {
            (format!("endpoint {}", excerpt(endpoint)), "https://HOST:PORT or http://HOST:PORT".into())
        })?;
    }
    expect(certificate.is_some() == key.is_some(), at.key("certificate"), || {
        ("one of certificate and key".into(), "both, or none".into())
    })?;
    expect(user.is_some() == password_file.is_some(), at.key("user"), || {
        ("one of user and password_file".into(), "both, or none".into())
    })?;
    let of_several = file.cluster.secret_file.is_some() && file.cluster.fabric != Fabric::Shm;
    let (found, expected) = match (&file.cluster.secret, of_several) {
        (Some(_), _) => {
            ("a secret in the file, which etcd would hold", "secret_file, a path on each machine")
        }
        (None, false) => (
            "[etcd] in the file of a cluster on one machine",
            "secret_file, and a fabric that reaches other machines",
        ),
        (None, true) => return Ok(()),
    };
    Err(Problem { at, found: found.into(), expected: expected.into() })
}

fn verbs(verbs: &Verbs) -> Check {
    let at = At::section("verbs");
    within(at, "port", verbs.port.unwrap_or(1), 1, u8::MAX)?;
    within(at, "retries", verbs.retries, 0, 6)?;
    let Some(device) = &verbs.device else { return Ok(()) };
    let usable = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    expect(is_text(device, NAME_BYTES_MAX, usable), at.key("device"), || {
        (format!("device {:?}", excerpt(device)), "a name as ibv_devices lists it".into())
    })
}

fn load(load: &Load) -> Check {
    let at = At::section("load");
    millis(at, "period_ms", load.period, MICROS_10, MINUTE)?;
    millis(at, "proc_period_ms", load.proc_period, MILLI, MINUTE)?;
    millis(at, "stale_ms", load.stale, MILLI, MINUTE)?;
    expect(load.stale >= 2 * load.period, at.key("stale_ms"), || {
        let found = format!("stale_ms is {}, period_ms is {}", ms(load.stale), ms(load.period));
        (found, "stale_ms >= 2 x period_ms, otherwise every record is too old".into())
    })
}

fn balance(balance: &Balancing) -> Check {
    let at = At::section("balance").key("weights");
    let named = balance.weights.named();
    for (weight, value) in named {
        expect((0.0..=1e6).contains(&value), at, || {
            (format!("the {weight} is {value}"), "a number from 0 to 1000000".into())
        })?;
    }
    expect(named.iter().any(|(_, value)| *value > 0.0), at, || {
        ("all weights are 0".into(), "at least one above 0".into())
    })
}

fn admission(admission: &Admission) -> Check {
    let at = At::section("admission");
    millis(at, "rotation_s", admission.rotation, 100 * MILLI, HOUR)
}

/// Checks that baselines stand in their own table, and nothing else there.
fn baseline(file: &ClusterFile) -> Check {
    let Baseline { scheme, balance, threshold, .. } = &file.baseline;
    let is_socket = |scheme: Scheme| !scheme.is_one_sided() && scheme != Scheme::Auto;
    let own = [
        ("load", "scheme", file.load.scheme.as_str(), is_socket(file.load.scheme), "scheme"),
        (
            "balance",
            "policy",
            file.balance.policy.as_str(),
            file.balance.policy == Balance::LastLook,
            "balance",
        ),
        (
            "admission",
            "rule",
            file.admission.rule.as_str(),
            file.admission.rule == AdmissionRule::Paper,
            "threshold",
        ),
    ];
    for (table, key, word, is_baseline, there) in own {
        expect(!is_baseline, At::section(table).key(key), || {
            (
                format!("{key} is {word:?}, a baseline of the papers"),
                format!("{there} in [baseline], for sidelong-lab"),
            )
        })?;
    }
    let at = At::section("baseline");
    expect(scheme.is_none_or(is_socket), at.key("scheme"), || {
        (
            format!("scheme is {:?}", scheme.unwrap_or_default().as_str()),
            "socket-async, socket-sync, or load.scheme".into(),
        )
    })?;
    expect(balance.is_none_or(|policy| policy == Balance::LastLook), at.key("balance"), || {
        (
            format!("balance is {:?}", balance.unwrap_or_default().as_str()),
            "last-look, or balance.policy".into(),
        )
    })?;
    within(at, "threshold", threshold.unwrap_or(1.0), 0.0, 1e6)
}

fn reconfig(reconfig: &Reconfig) -> Check {
    let at = At::section("reconfig");
    millis(at, "history_ms", reconfig.history, Duration::ZERO, MINUTE)?;
    millis(at, "sensitivity_ms", reconfig.sensitivity, MICROS_10, MINUTE)?;
    millis(at, "settle_ms", reconfig.settle(), Duration::ZERO, MINUTE)?;
    millis(at, "lease_ms", reconfig.lease, MILLI, HOUR)?;
    millis(at, "drain_ms_max", reconfig.drain_max, MILLI, HOUR)?;
    millis(at, "command_ms_max", reconfig.command_max, MILLI, HOUR)?;
    within(at, "high", reconfig.high, 0.0, 1e6)?;
    within(at, "low", reconfig.low, 0.0, 1e6)?;
    expect(reconfig.low < reconfig.high, at.key("low"), || {
        let found = format!("low is {}, high is {}", reconfig.low, reconfig.high);
        (found, "low < high, otherwise a site would take and give a node at once".into())
    })?;
    expect(reconfig.lease >= 3 * reconfig.sensitivity, at.key("lease_ms"), || {
        let found =
            format!("lease_ms is {}, sensitivity_ms is {}", ms(reconfig.lease), ms(reconfig.sensitivity));
        (found, "lease_ms >= 3 x sensitivity_ms, so that a holder can renew it".into())
    })
}

fn limits(limits: &Limits) -> Check {
    let at = At::section("limits");
    within(at, "header_bytes_max", limits.header_bytes_max, 256, 1 << 20)?;
    within(at, "body_bytes_max", limits.body_bytes_max, 0, 1 << 40)?;
    millis(at, "client_header_timeout_ms", limits.client_header_timeout, MILLI, HOUR)?;
    millis(at, "client_body_timeout_ms", limits.client_body_timeout, MILLI, HOUR)?;
    millis(at, "connect_timeout_ms", limits.connect_timeout, MILLI, HOUR)?;
    millis(at, "response_timeout_ms", limits.response_timeout, MILLI, HOUR)?;
    millis(at, "idle_timeout_ms", limits.idle_timeout, MILLI, 24 * HOUR)?;
    within(at, "connections_max", limits.connections_max, 1, 1 << 20)?;
    within(at, "connections_per_client_max", limits.connections_per_client_max.unwrap_or(1), 1, 1 << 20)?;
    within(at, "retries", limits.retries, 0, 16)?;
    within(at, "history_bytes_max", limits.history_bytes_max, 0, 1 << 30)?;
    expect(!(1..8192).contains(&limits.history_bytes_max), at.key("history_bytes_max"), || {
        (limits.history_bytes_max.to_string(), "at least 8192, or 0 for no history".into())
    })
}

fn ganglia(file: &ClusterFile) -> Check {
    let at = At::section("ganglia");
    let Ganglia { gmond, edge, period, metadata, group, prefix } = &file.ganglia;
    if let Some(gmond) = gmond {
        port(at.key("gmond"), *gmond)?;
    }
    let known = |name: &String| file.edges.iter().any(|edge| edge.name == *name);
    expect(edge.as_ref().is_none_or(known), at.key("edge"), || {
        let name = edge.as_deref().unwrap_or_default();
        (format!("no edge {:?}", excerpt(name)), "the name of an [[edge]]".into())
    })?;
    millis(at, "period_ms", *period, MILLI, HOUR)?;
    millis(at, "metadata_ms", *metadata, MILLI, HOUR)?;
    let usable = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    for (key, text) in [("group", group), ("prefix", prefix)] {
        expect(is_text(text, NAME_BYTES_MAX, usable), at.key(key), || {
            (format!("{key} {:?}", excerpt(text)), "letters, digits, -, _ and .".into())
        })?;
    }
    Ok(())
}

fn workload(load: &Workload, file: &ClusterFile) -> Check {
    let at = At::section("workload");
    within(at, "file_bytes", load.file_bytes, 0, 1 << 30)?;
    within(at, "alpha", load.alpha, 0.0, 64.0)?;
    within(at, "objects", load.objects, 1, 1 << 24)?;
    within(at, "clients_per_edge", load.clients_per_edge, 1, 1 << 16)?;
    within(at, "burst", load.burst, 1, 1 << 40)?;
    within(at, "requests", load.requests.unwrap_or(1), 1, 1 << 40)?;
    millis(at, "duration_s", load.duration.unwrap_or(MINUTE), MILLI, 24 * 366 * HOUR)?;
    millis(at, "pause_ms", load.pause, Duration::ZERO, HOUR)?;
    millis(at, "timeout_ms", load.timeout, MILLI, HOUR)?;
    within(at, "rate", load.rate.unwrap_or(1.0), 1e-3, 1e7)?;
    within(at, "addresses", load.addresses, 0, ADDRESSES_MAX)?;
    let is_local = |edge: &EdgeEntry| edge.listen.is_ipv4() && edge.listen.ip().is_loopback();
    expect(load.addresses == 0 || file.edges.iter().all(is_local), at.key("addresses"), || {
        let found = format!("{} addresses of 127.0.0.0/8, and edges elsewhere", load.addresses);
        (found, "every edge to listen on one of those, or addresses = 0".into())
    })?;
    rates(load, file)?;
    expect(load.trace.is_none() || load.kind == WorkloadKind::Trace, at.key("trace"), || {
        (format!("trace is given with kind = \"{}\"", load.kind), "kind = \"trace\" with it".into())
    })
}

/// An open loop has a rate, or its sites have rates; a closed one has neither.
fn rates(load: &Workload, file: &ClusterFile) -> Check {
    let at = At::section("workload").key("rate");
    let with_rates = file.sites.iter().position(|site| !site.rates.is_empty());
    let Some(i) = with_rates else {
        return expect(load.rate.is_some() == (load.mode == LoadMode::Open), at, || {
            let given = if load.rate.is_some() { "given" } else { "not given" };
            let found = format!("rate is {given} with mode = \"{}\"", load.mode);
            (found, "requests/s with mode = \"open\", and nothing with \"closed\"".into())
        });
    };
    let who = format!("site {:?} has rates", file.sites[i].name);
    expect(load.mode == LoadMode::Open, At::entry("site", i).key("rates"), || {
        (format!("{who} with workload.mode = \"{}\"", load.mode), "mode = \"open\" with them".into())
    })?;
    expect(load.rate.is_none(), at, || {
        (format!("rate is given, and {who}"), "either a rate or rates for the sites".into())
    })
}

fn edge(at: At, entry: &EdgeEntry) -> Check {
    name(at.key("name"), "edge", &entry.name)?;
    port(at.key("listen"), entry.listen)?;
    if let Some(admin) = entry.admin {
        port(at.key("admin"), admin)?;
    }
    expect(entry.tls.len() <= CERTIFICATES_MAX, at.key("tls"), || {
        (
            format!("edge {:?} has {} certificates", entry.name, entry.tls.len()),
            format!("at most {CERTIFICATES_MAX}"),
        )
    })?;
    for tls in &entry.tls {
        let named = !tls.certificate.as_os_str().is_empty() && !tls.key.as_os_str().is_empty();
        expect(named, at.key("tls"), || {
            let found = format!("edge {:?}: a file name in tls is empty", entry.name);
            (found, "certificate and key, both PEM files".into())
        })?;
    }
    if let Some(client_ca) = &entry.client_ca {
        let at = at.key("client_ca");
        expect(!client_ca.as_os_str().is_empty(), at, || {
            (format!("edge {:?}: client_ca is empty", entry.name), "a PEM file".into())
        })?;
        expect(!entry.tls.is_empty(), at, || {
            let found = format!("edge {:?} has client_ca, but no tls", entry.name);
            (found, "both, since clients show certificates over TLS only".into())
        })?;
    }
    if let Some(via) = &entry.via {
        let usable = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
        expect(is_text(via, NAME_BYTES_MAX, usable), at.key("via"), || {
            let found = format!("edge {:?}: via {:?}", entry.name, excerpt(via));
            (found, format!("1 to {NAME_BYTES_MAX} letters, digits, -, _ and ."))
        })?;
    }
    within(at, "threads", entry.threads, 1, 1 << 10)
}

fn count(section: &'static str, what: &str, count: usize, max: usize) -> Check {
    expect((1..=max).contains(&count), At::section(section), || {
        let found = if count == 0 { format!("no {what}") } else { format!("{count} {what}") };
        (found, format!("from 1 to {max} of them"))
    })
}
