//! `sidelong front`: one front of a cluster file, beside a proxy of another make that it leads.

mod haproxy;

use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::Group;
use sidelong_config::{Cluster, FrontEntry, Node, Proxy, ServerAddress};
use sidelong_edge::{Front, Gatekeeper, Led, LedByMemory, LedCluster, led_regions};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Host, RunDirectory};
use sidelong_layout::{
    ChoiceMap, EncodedAddress, HEADER_BYTES, NodeId, RegionHeader, RegionKind, SLOTS, Time, Worker,
    WorkersMap,
};
use sidelong_load::monotonic_ns;

use crate::cli::{FrontCommand, FrontNamed, PartArgs};
use crate::edge::{Memory, Threads, events, exchange, tell_notes, watch};
use crate::failure::{Failure, say};
use crate::hangup::Hangup;
use crate::history::Log;
use crate::parent::{self, end_with_parent};
use crate::parts::{Parts, cluster};
use crate::reads::ReadCounts;

pub(crate) fn run(args: &PartArgs) -> Result<(), Failure> {
    end_with_parent(args.with_parent)?;
    Hangup::ignore()?.log()?;
    let parts = Arc::new(Parts::load(args)?);
    let _held = parent::hold(args, &parts.run)?;
    let (index, entry) = find(&parts.cluster, &args.name)?;
    let view = Arc::new(parts.view());
    let mut counts = parts.fabric.counts();
    let reads = Arc::new(ReadCounts::default());
    counts.push(Arc::clone(&reads).counts());
    let history = Log::open(&parts, &args.name)?;
    counts.extend(history.as_ref().map(Log::counts));
    let gatekeeper = parts.gatekeeper();
    let gate = gatekeeper.as_ref().map(Gatekeeper::gate);
    let (led, regions) = match entry.proxy {
        Proxy::Haproxy => (haproxy::led(&parts, entry)?, Vec::new()),
        Proxy::Nginx | Proxy::Httpd | Proxy::Library => {
            let led = led(&parts, entry)?;
            let regions = led.regions().to_vec();
            (Box::new(led) as Box<dyn Led>, regions)
        }
    };
    let memory = Memory::offer(&parts, index, &regions)?;
    if let Some(offer) = &memory.offer {
        counts.extend(offer.counts());
    }
    let exchange = exchange(&parts, index, &view, gate.as_ref(), &memory)?;
    let peers = exchange.as_ref().map(|exchange| Arc::clone(&exchange.peers));
    let sites = parts.cluster.sites.iter().map(|site| site.name.clone()).collect();
    let names = (parts.node_names(), sites);
    let about = parts.about(parts.scheme()?);
    let front = Front::new(&args.name, entry.admin, names, (Arc::clone(&view), gate), peers, about, counts)?;
    let owner = parts.owner(Some(index), None);
    let brain = parts.brain(parts.decider(None)?, true)?;
    let events = events(args, &parts, history.as_ref(), None);
    let stated = Some((owner, memory.front.clone()));
    let shown = (Some(front.metrics()), Some(front.seen()));
    let mut watch = watch(&parts, owner, brain, events, (view, stated), shown, reads)?;
    watch.gatekeeper = gatekeeper;
    watch.led = Some(led);
    tell_notes(args, &parts)?;
    let threads = Threads::start(watch, exchange)?;
    front.run()?;
    threads.end();
    history.into_iter().for_each(Log::finish);
    memory.guard.map_or(Ok(()), |guard| guard.result())
}

/// The front of that name, with its number among all fronts.
fn find<'a>(cluster: &'a Cluster, name: &str) -> Result<(usize, &'a FrontEntry), Failure> {
    let fronts = || {
        cluster.fronts.iter().enumerate().filter_map(|(index, front)| Some((index, front.leads.as_ref()?)))
    };
    fronts().find(|(_, front)| front.name == name).ok_or_else(|| {
        let names: Vec<_> = fronts().map(|(_, front)| front.name.as_str()).collect();
        let known = if names.is_empty() { "no [[front]]".to_owned() } else { names.join(", ") };
        Failure::new(format!("the cluster file has no front {name:?}; it has {known}"))
    })
}

/// Where the files of a front are.
fn directory(cluster: &Cluster, entry: &FrontEntry) -> PathBuf {
    entry.dir.clone().unwrap_or_else(|| cluster.run_dir.clone())
}

pub(crate) fn ask(command: &FrontCommand) -> Result<(), Failure> {
    match command {
        FrontCommand::Config(FrontNamed { config, name }) => {
            let cluster = cluster(config, None)?;
            let (_, entry) = find(&cluster, name)?;
            say(lines(&cluster, entry))
        }
        FrontCommand::Check(FrontNamed { config, name }) => {
            let cluster = cluster(config, None)?;
            let (_, entry) = find(&cluster, name)?;
            match entry.proxy {
                Proxy::Haproxy => haproxy::check(&cluster, entry),
                Proxy::Nginx | Proxy::Httpd | Proxy::Library => check(&cluster, entry),
            }
        }
    }
}

/// The lines that the proxy's own configuration needs.
fn lines(cluster: &Cluster, entry: &FrontEntry) -> String {
    let prefix = directory(cluster, entry).join(&entry.name);
    let prefix = prefix.display();
    let sites =
        || cluster.sites.iter().enumerate().map(|(index, site)| (index, &site.name, site.hosts.join(" ")));
    let servers = |site: usize, line: &dyn Fn(&Node, &ServerAddress) -> String| {
        cluster.nodes.iter().map(|node| line(node, node.address(site))).collect::<String>()
    };
    match entry.proxy {
        Proxy::Nginx => {
            let site = |(index, name, hosts): (usize, &String, String)| {
                format!(
                    "upstream {name} {{\n    sidelong {prefix} {name};\n{}    keepalive 32;\n}}\n\
                     server {{\n    server_name {hosts};\n    sidelong_admission {prefix} {name};\n    location / {{\n        \
                     proxy_pass http://{name};\n        proxy_http_version 1.1;\n        proxy_set_header Connection \"\";\n        \
                     proxy_set_header Host $host;\n    }}\n}}\n",
                    servers(index, &|_, address| format!("    server {address} max_fails=0;\n"))
                )
            };
            format!(
                "# Outside of http: load_module modules/ngx_http_sidelong_module.so;\n{}",
                sites().map(site).collect::<String>()
            )
        }
        Proxy::Httpd => {
            let site = |(index, name, hosts): (usize, &String, String)| {
                let mut hosts = hosts.split(' ');
                let first = hosts.next().unwrap_or_default();
                let aliases: String = hosts.map(|host| format!("    ServerAlias {host}\n")).collect();
                format!(
                    "<VirtualHost *:80>\n    ServerName {first}\n{aliases}    SidelongSite {name}\n    SidelongAdmission On\n    \
                     <Proxy balancer://{name}>\n{}        ProxySet lbmethod=sidelong\n    </Proxy>\n    \
                     ProxyPreserveHost On\n    ProxyPass / balancer://{name}/\n</VirtualHost>\n",
                    servers(index, &|node, address| match address {
                        ServerAddress::Tcp(address) =>
                            format!("        BalancerMember http://{address} retry=0\n"),
                        // httpd tells members apart by their names.
                        unix => format!("        BalancerMember {unix}|http://{} retry=0\n", node.name),
                    })
                )
            };
            format!(
                "LoadModule sidelong_module modules/mod_sidelong.so\nSidelongFront {prefix}\n{}",
                sites().map(site).collect::<String>()
            )
        }
        Proxy::Haproxy => haproxy::lines(cluster, entry),
        Proxy::Library => format!("/* sidelong_front_open({:?}, why) */\n", prefix.to_string()),
    }
}

/// Says whether the front runs, and whose workers ask it.
fn check(cluster: &Cluster, entry: &FrontEntry) -> Result<(), Failure> {
    let run = RunDirectory::at(directory(cluster, entry));
    let nodes = cluster.nodes.len();
    let [choice, workers] = led_regions(&entry.name).map(|region| format!("{region}.region"));
    let open = |name: &str, kind, len| -> Result<File, Failure> {
        let path = run.path().join(name);
        let wrong = |why: String| Failure::new(format!("{}: {why}", path.display()));
        let file = run
            .read(name)
            .map_err(|error| wrong(format!("{error}; `sidelong front {}` makes it", entry.name)))?;
        let mut words = [0; HEADER_BYTES];
        file.read_exact_at(&mut words, 0).map_err(|error| wrong(error.to_string()))?;
        let words = std::array::from_fn(|i| u64::from_le_bytes(words.as_chunks().0[i]));
        RegionHeader::checked(&words, 0, kind, len).map_err(|error| wrong(error.to_string()))?;
        Ok(file)
    };
    let word = |file: &File, offset: usize| -> Result<u64, Failure> {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, offset as u64)?;
        Ok(u64::from_le_bytes(bytes))
    };
    let map = ChoiceMap { nodes, sites: cluster.sites.len(), servers: servers(cluster).len() };
    let scanned = word(&open(&choice, RegionKind::Choice, map.len())?, ChoiceMap::TIME)?;
    let age = Duration::from_nanos(monotonic_ns().saturating_sub(scanned));
    if scanned == 0 || age > cluster.load.stale {
        return Err(Failure::new(format!(
            "front {} does not run, or hangs: {} sends requests by itself",
            entry.name, entry.proxy
        )));
    }
    let map = WorkersMap { nodes };
    let file = open(&workers, RegionKind::Workers, map.len())?;
    let mut pids = Vec::new();
    for slot in 0..SLOTS {
        pids.extend(Worker::decode(word(&file, map.owner(slot))?).map(|worker| worker.pid.to_string()));
    }
    if pids.is_empty() {
        return Err(Failure::new(format!(
            "front {} runs, and no worker of {} has sent a request by it: compare its configuration with `sidelong front config {}`",
            entry.name, entry.proxy, entry.name
        )));
    }
    let workers = if pids.len() == 1 { "1 worker".to_owned() } else { format!("{} workers", pids.len()) };
    say(format!(
        "front {} runs, and scanned {:.1} ms ago\n{workers} of {} ask it: {}\n",
        entry.name,
        age.as_secs_f64() * 1e3,
        entry.proxy,
        pids.join(", ")
    ))
}

/// Where the nodes' servers answer.
fn servers(cluster: &Cluster) -> Vec<EncodedAddress> {
    let encoded = |node: NodeId, address: &ServerAddress| match address {
        ServerAddress::Tcp(address) => EncodedAddress::tcp(node, *address),
        ServerAddress::Unix(path) => EncodedAddress::unix(node, path.as_os_str().as_bytes()),
    };
    let of = |(index, node): (usize, &Node)| {
        node.addresses.iter().map(|address| encoded(NodeId::new(index), address)).collect::<Vec<_>>()
    };
    cluster.nodes.iter().enumerate().flat_map(of).collect()
}

/// Offers the memory by which the proxy is led.
fn led(parts: &Parts, entry: &FrontEntry) -> Result<LedByMemory, Failure> {
    let run = match &entry.dir {
        Some(dir) => RunDirectory::open_public(dir)?,
        None => parts.run.clone(),
    };
    let files = led_regions(&entry.name).map(|region| format!("{region}.region"));
    let cluster = LedCluster {
        sites: parts.cluster.sites.iter().map(|site| site.name.clone()).collect(),
        nodes: parts.cluster.nodes.len(),
        servers: servers(&parts.cluster),
        stale: parts.cluster.load.stale,
        rotation: parts.cluster.admission.rotation,
        balance: parts.cluster.balance.policy,
        drain_max: parts.cluster.reconfig.drain_max,
        has_led: files.iter().any(|file| run.path().join(file).exists()),
    };
    let host = Host::Shm(ShmHost::new(run.path()));
    let now = Time::from_ns(monotonic_ns());
    let led = LedByMemory::offer(&host, &entry.name, &cluster, parts.life(), now)?;
    let named = |error| Failure::new(format!("{}: {error}", run.path().display()));
    let [choice, workers] = files;
    if entry.dir.is_some() {
        run.publish_file(&choice).map_err(named)?;
    }
    if let Some(name) = &entry.group {
        let group = Group::from_name(name).map_err(|errno| Failure::new(errno.to_string()))?;
        let group = group.ok_or_else(|| {
            Failure::new(format!(
                "front {}: there is no group {name:?}: name that of the proxy's workers",
                entry.name
            ))
        })?;
        run.share_file(&workers, group.gid.as_raw()).map_err(|error| {
            Failure::new(format!(
                "front {}: cannot give {workers} to group {name}: {error}; run the front as a member of it",
                entry.name
            ))
        })?;
    }
    Ok(led)
}
