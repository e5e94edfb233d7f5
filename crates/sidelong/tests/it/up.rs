//! `sidelong up`: a whole cluster started, loaded, summed up and ended, whatever ends it.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};
use serde_json::Value;
use sidelong_config::{CachePeer, Fabric, LoadMode, RateEntry};
use sidelong_testing::machines::{SECRET, write_secret};

use crate::support::{
    Cluster, Done, PATIENCE, Running, Terminal, eventually, metrics, run, skipped, try_get,
};

/// An integer of the summary.
fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

#[test]
fn a_run_of_so_many_requests_serves_every_site_and_moves_nodes() {
    let cluster = Cluster::demo().with_load(512, Some(3072));
    let summary = cluster.up(&["--json"]).finish().json();

    for key in ["seconds", "requests_per_s", "p50_ms", "p99_ms"] {
        assert!(summary[key].as_f64().unwrap() > 0.0, "{key} of {summary}");
    }
    assert_eq!(number(&summary, "requests"), 3072, "{summary}");
    assert_eq!(number(&summary, "errors"), 0, "{summary}");
    for kind in ["connect", "timeout", "closed", "broken", "body", "status_4xx", "rejected", "status_5xx"] {
        assert_eq!(number(&summary["errors_by_kind"], kind), 0, "{summary}");
    }
    assert!(number(&summary, "moves") > 0, "{summary}");
    assert_eq!(number(&summary, "misdirected"), 0, "every request found a node of its site: {summary}");
    let cpu = |key: &str| summary[key].as_f64().unwrap();
    assert!(cpu("proxies_cpu_s") > 0.0 && cpu("fronts_cpu_s") == 0.0, "{summary}");
    let steps = &summary["step_to_first_request_ms"];
    assert!(number(steps, "count") > 0 && steps["p50"].as_f64() <= steps["max"].as_f64(), "{summary}");

    let sites = summary["sites"].as_array().unwrap();
    let names: Vec<_> = sites.iter().map(|site| site["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["alpha", "beta", "gamma"]);
    for site in sites {
        assert_eq!(number(site, "requests"), 1024, "two bursts each: {summary}");
        assert_eq!(number(site, "errors"), 0, "{summary}");
        assert!(number(site, "nodes") >= 1, "no site falls below its floor: {summary}");
        for key in ["requests_per_s", "p50_ms", "p99_ms"] {
            assert!(site[key].as_f64().unwrap() > 0.0, "{key} of {site}");
        }
    }
    let nodes: u64 = sites.iter().map(|site| number(site, "nodes")).sum();
    assert!(nodes <= 8, "no node serves two sites: {summary}");
    assert_eq!(cluster.regions(), [""; 0], "what it made is gone with it");
    assert_eq!(cluster.parts(), []);
}

#[test]
fn requests_at_a_node_of_another_site_are_counted() {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    cluster.file.nodes[0].slowdown = Some(8.0);
    let up = cluster.serving(&["--json"]);
    let node = cluster.node(0);
    for host in ["alpha.test", "ALPHA.test:80", "beta.test", "of-no-site.test"] {
        let begun = Instant::now();
        assert_eq!(try_get(node, host, "/o/0/1").unwrap().status, 200);
        assert!(
            begun.elapsed() >= cluster.file.nodes[0].service_time() * 8,
            "it is slower than its file says"
        );
    }
    let summary = up.end().json();
    assert_eq!(number(&summary, "misdirected"), 1, "{summary}");
}

/// `up --front connect`, in a mount namespace that has a BPF file system.
#[test]
fn without_a_proxy_the_kernel_sends_the_load_to_nodes() {
    let cluster = Cluster::new(&[("alpha", 2), ("beta", 2)]).with_load(256, Some(2048));
    let up = |more: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", "mount -t bpf bpf /sys/fs/bpf || exit 77; exec \"$0\" \"$@\""]);
        command.arg(env!("CARGO_BIN_EXE_sidelong")).args(["up", "--front", "connect", "--json", "--config"]);
        command.arg(cluster.config()).args(more);
        Running::start_command(command).finish()
    };
    let done = up(&[]);
    if done.code != Some(0) && (done.code == Some(77) || done.err.contains("unshare")) {
        skipped("up --front connect: no BPF file system can be mounted here; root may do so");
        return;
    }
    if done.code != Some(0) {
        // The machine does not allow it, which is said in one line with what to do.
        assert!(done.err.contains("sidelong: front edge1: "), "{done:?}");
        skipped("up --front connect: no eBPF programs here");
        return;
    }
    assert!(done.err.contains(" on 4 nodes behind ") && !done.err.contains("your connect"), "{}", done.err);
    let summary = done.json();
    assert_eq!((number(&summary, "requests"), number(&summary, "errors")), (2048, 0), "{summary}");
    assert!(number(&summary, "moves") > 0 && number(&summary, "misdirected") == 0, "{summary}");
    assert!(summary["fronts_cpu_s"].as_f64() > Some(0.0) && summary["proxies_cpu_s"].as_f64() == Some(0.0));
    let refused = up(&["--by", "own"]).refused();
    assert!(refused.contains("--front connect: there is no proxy that could choose"), "{refused}");
}

/// In a network of its own, where nobody else has the addresses.
#[test]
fn its_parts_may_have_addresses_of_ipv6_alone() {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 2)]).with_load(256, Some(2048));
    let secret = cluster.path("secret");
    write_secret(&secret, SECRET);
    let file = &mut cluster.file;
    let mut hosts = (1..=9).map(|host| IpAddr::from([0xfd77, 0, 0, 0, 0, 0, 0, host]));
    let mut at = |port| SocketAddr::new(hosts.next().unwrap(), port);
    (file.cluster.fabric, file.cluster.secret_file) = (Fabric::Tcp, Some(secret));
    for node in &mut file.nodes {
        let listen = at(8101);
        (node.listen, node.fabric_listen) = (Some(listen), Some(SocketAddr::new(listen.ip(), 7201)));
        node.admin = node.admin.map(|_| SocketAddr::new(listen.ip(), 7301));
    }
    for edge in &mut file.edges {
        edge.listen = at(8080);
        edge.fabric_listen = Some(SocketAddr::new(edge.listen.ip(), 7301));
        edge.admin = edge.admin.map(|_| SocketAddr::new(edge.listen.ip(), 9090));
    }
    let script = "ip link set lo up || exit 77
        for host in 1 2 3 4 5 6 7 8 9; do ip -6 addr add fd77::$host/128 dev lo nodad || exit 77; done
        exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", script, env!("CARGO_BIN_EXE_sidelong"), "up"]);
    command.args(["--json", "--config"]).arg(cluster.config());
    let done = Running::start_command(command).finish();
    if done.code == Some(77) || done.err.contains("unshare: ") {
        return skipped("up: no network of its own with IPv6 can be made here");
    }
    let summary = done.json();
    assert_eq!((number(&summary, "requests"), number(&summary, "errors")), (2048, 0), "{summary}");
    assert!(number(&summary, "moves") > 0 && number(&summary, "misdirected") == 0, "{summary}");
}

#[test]
fn without_a_load_its_lines_tell_of_nodes_alone() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    let out = cluster.up(&["--plain", "--for", "2500ms"]).finish().succeeded();
    let first = out.lines().find(|line| line.contains(" nodes ")).unwrap();
    assert!(first.contains("alpha 1 nodes  beta 1 nodes  | 0 moves, oldest record "), "{out}");
}

#[test]
fn without_a_terminal_it_prints_lines_and_a_summary() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]).with_load(64, None);
    let samples = cluster.path("samples.csv");
    let up = cluster.up(&["--for", "2500ms", "--samples", samples.to_str().unwrap()]);
    let out = up.finish().succeeded();

    let first = out.lines().find(|line| line.contains(" nodes ")).unwrap();
    for part in ["alpha 1 nodes", "beta 1 nodes", "0 errors", "moves", "oldest record"] {
        assert!(first.contains(part), "{part:?} of {first:?}");
    }
    let summary = out.lines().find(|line| line.contains(" requests in ")).unwrap_or_else(|| panic!("{out}"));
    assert!(summary.contains(" 0 errors"), "{summary}");
    assert!(out.lines().any(|line| line.starts_with("site ")), "{out}");
    assert!(out.lines().last().unwrap().starts_with("beta "), "{out}");
    assert!(!out.contains('\x1b'), "no terminal, no escapes: {out:?}");

    let samples = std::fs::read_to_string(samples).unwrap();
    let mut rows = samples.lines();
    assert_eq!(rows.next(), Some("t_s,site,nodes,nodes_busy"));
    let (alpha, beta) = (rows.next().unwrap(), rows.next().unwrap());
    assert!(alpha.contains(",alpha,1,") && beta.contains(",beta,1,"), "{samples}");
}

#[test]
fn without_a_terminal_it_tells_of_parts_that_end_and_come_back() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    let up = cluster.serving(&["--plain"]);
    let says = |text: &str| up.out().lines().any(|line| line.ends_with(text));
    for (kind, name) in [("node", "n1"), ("edge", "edge2")] {
        assert!(!says(&format!("  {name} is ready")), "{}", up.out());
        cluster.find(kind, name).kill();
        eventually("a line says that it ended", || {
            says(&format!("s  {name} ended (signal: 9 (SIGKILL)) and is restarted"))
        });
        eventually("and one that it is back", || says(&format!("s  {name} is ready")));
    }
    up.end().succeeded();
}

/// Three caches at addresses of their own.
fn with_caches(mut cluster: Cluster) -> Cluster {
    let peer =
        |k: u16| CachePeer { memory_mb: 8, ..CachePeer::new(format!("c{}", k + 1), cluster.at(11211 + k)) };
    cluster.file.cache.peers = (0..3).map(peer).collect();
    cluster
}

#[test]
fn caches_are_parts_with_a_load_and_come_back() {
    let cluster = with_caches(Cluster::new(&[("alpha", 1)]));
    let up = cluster.serving(&["--cache", "--json"]);
    let listen: Vec<_> = cluster.file.cache.peers.iter().map(|peer| peer.listen).collect();
    let at = format!(", caches at {}, {}, {};", listen[0], listen[1], listen[2]);
    assert!(up.err().contains(&at), "{}", up.err());
    // Its process and its hits, in its own memory and in others', if the cache answers.
    let told = |index: usize| -> Option<[u64; 3]> {
        let mut stream = TcpStream::connect(listen[index]).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(b"stats\r\nquit\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let stat = |name: &str| -> Option<u64> {
            text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")))?.parse().ok()
        };
        let (hits, neighbour) = (stat("get_hits")?, stat("neighbour_hits")?);
        Some([stat("pid")?, hits.saturating_sub(neighbour), neighbour])
    };
    let has_hits = |index| told(index).is_some_and(|[_, own, neighbour]| own > 0 && neighbour > 0);
    for index in 0..3 {
        eventually("each cache has hits of both kinds", || has_hits(index));
    }
    let before = told(1).unwrap()[0];
    cluster.find("cache", "c2").kill();
    eventually("another process is c2, and has hits", || {
        told(1).is_some_and(|[pid, ..]| pid != before) && has_hits(1)
    });

    let summary = up.end().json();
    let caches = summary["caches"].as_array().unwrap();
    let names: Vec<_> = caches.iter().map(|cache| cache["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["c1", "c2", "c3"]);
    for cache in caches {
        assert!(number(cache, "hits") > number(cache, "neighbour_hits"), "{summary}");
        assert!(number(cache, "neighbour_hits") > 0 && number(cache, "misses") > 0, "{summary}");
        assert_eq!(number(cache, "hits") + number(cache, "misses"), number(cache, "gets"), "{summary}");
        assert!(number(cache, "items") > 0 && number(cache, "bytes") > 0, "{summary}");
    }
    let load = &summary["cache_load"];
    assert_eq!(number(load, "wrong"), 0, "{summary}");
    let hits: u64 = caches.iter().map(|cache| number(cache, "hits")).sum();
    let most = number(load, "hits") + number(load, "failed");
    assert!(hits <= most, "what a killed cache told last may be missing: {summary}");
    assert_eq!(cluster.parts(), []);
}

#[test]
fn lines_and_the_page_show_caches() {
    let cluster = with_caches(Cluster::new(&[("alpha", 1)]));
    let up = cluster.up(&["--cache", "--plain"]);
    eventually("a line tells of gets and hits", || up.out().contains(" % hits\n"));
    let out = up.end().succeeded();
    let load =
        out.lines().find(|line| line.contains(" gets of the caches: ")).unwrap_or_else(|| panic!("{out}"));
    assert!(load.contains(" 0 wrong values, "), "{load}");
    let head = out.lines().find(|line| line.starts_with("cache ")).unwrap_or_else(|| panic!("{out}"));
    assert!(head.ends_with("evictions failed reads"), "{head}");
    assert!(out.lines().last().unwrap().starts_with("c3 "), "{out}");

    let config = cluster.config();
    let arguments = ["up", "--config", config.to_str().unwrap(), "--cache"];
    let Some(mut page) = Terminal::start(&arguments, 30, 118, &[]) else {
        return skipped("no pseudo-terminal");
    };
    page.sees("the caches, with what they do", |text| {
        let row = text.lines().find(|line| line.contains("│c3 ")).unwrap_or_default();
        // Parts of its gets, and MiB. What it does not tell would be a dash.
        text.contains(" caches ") && !row.contains('–') && row.matches('.').count() == 4
    });
    page.press("q");
    assert_eq!(page.finish(), 0);
}

#[test]
fn sites_with_rates_of_their_own_are_asked_at_them_by_several_clients() {
    let rates = |steps: [(f64, f64); 2]| {
        let step = |(at_s, per_s)| RateEntry { at: Duration::from_secs_f64(at_s), per_s };
        steps.map(step).to_vec()
    };
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]).with_load(64, None);
    cluster.file.sites[0].rates = rates([(0.0, 200.0), (1.0, 0.0)]);
    cluster.file.sites[1].rates = rates([(0.5, 50.0), (1.5, 0.0)]);
    let workload = cluster.file.workload.as_mut().unwrap();
    (workload.mode, workload.addresses) = (LoadMode::Open, 4);
    let path = cluster.path("requests.csv");
    // The run ends with the rates.
    let summary = cluster.up(&["--json", "--requests", path.to_str().unwrap()]).finish().json();

    let requests = std::fs::read_to_string(path).unwrap();
    let mut rows = requests.lines();
    assert_eq!(rows.next(), Some("due_s,sent_s,site,edge,client,outcome,response_ms"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split(',').collect()).collect();
    for (index, (site, from_s, to_s)) in [("alpha", 0.0, 1.0), ("beta", 0.5, 1.5)].into_iter().enumerate() {
        let due: Vec<f64> =
            rows.iter().filter(|row| row[2] == site).map(|row| row[0].parse().unwrap()).collect();
        assert_eq!(due.len() as u64, number(&summary["sites"][index], "requests"), "{summary}");
        // The load starts a moment after the clock of the file.
        assert!(due.iter().all(|due| (from_s..to_s + 0.3).contains(due)), "{site}: {due:?}");
    }
    let counts: Vec<_> = (0..2).map(|index| number(&summary["sites"][index], "requests")).collect();
    // About five standard deviations of Poisson processes of 200 and 50.
    assert!((130..270).contains(&counts[0]) && (15..85).contains(&counts[1]), "{counts:?}");
    let clients = summary["clients"].as_array().unwrap();
    assert_eq!(clients.len(), 4, "{summary}");
    for (index, client) in clients.iter().enumerate() {
        let of = rows.iter().filter(|row| row[4] == index.to_string()).count();
        assert!(of > 0 && of as u64 == number(client, "requests"), "{summary}");
    }
    let answered = rows.iter().filter(|row| row[5] == "answered").count() as u64;
    assert_eq!(answered, number(&summary, "requests") - number(&summary, "errors"), "{summary}");
}

#[test]
fn on_a_terminal_there_is_a_page_and_then_the_summary() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]).with_load(64, None);
    let program = env!("CARGO_BIN_EXE_sidelong");
    let command =
        format!("stty rows 40 cols 120; {program} up --config {} --for 2s", cluster.config().display());
    let mut script = std::process::Command::new("script");
    script.args(["--quiet", "--return", "--flush", "--command", &command, "/dev/null"]).env("TERM", "xterm");
    if std::process::Command::new("script").arg("--version").output().is_err() {
        return skipped("no `script` program, which lends a terminal");
    }
    let out = Running::start_command(script).finish().succeeded();
    let (page, after) = out.rsplit_once("\x1b[?1049l").unwrap_or_else(|| panic!("{out:?}"));
    assert!(page.contains("\x1b[?1049h"), "a screen of its own: {page:?}");
    for text in ["alpha", "beta", "requests/s", "what happened"] {
        assert!(page.contains(text), "{text:?} of {page:?}");
    }
    assert!(after.contains(" requests in "), "the summary stays on the terminal: {after:?}");
}

#[test]
fn a_small_terminal_keeps_errors_and_restarts_in_sight() {
    let cluster = Cluster::demo().with_load(512, None);
    let config = cluster.config();
    let arguments = ["up", "--config", config.to_str().unwrap()];
    let Some(mut up) = Terminal::start(&arguments, 24, 80, &[]) else {
        return skipped("up on a terminal: no `setsid` program, which lends a session");
    };
    let moves = |text: &str| -> u64 {
        let words: Vec<_> = text.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "moves");
        at.and_then(|at| words[at - 1].parse().ok()).unwrap_or(0)
    };
    up.sees("requests, moves and errors", |text| {
        text.contains(" requests/s") && text.contains(" errors") && moves(text) > 0
    });
    cluster.find("node", "n1").kill();
    let page = up.sees("it is told", |text| text.contains("n1 ended (signal: 9 (SIGKILL)) and is restarted"));
    let before = moves(&page);
    // The list has five lines.
    let page = up.sees("more moves than the list has lines", |text| moves(text) > before + 5);
    assert!(page.contains("n1 ended (signal: 9 (SIGKILL)) and is restarted"), "{page}");
    assert!(page.contains(" errors"), "{page}");
    up.press("q");
    assert_eq!(up.finish(), 0);
}

/// Its window is closed, or the connection to it breaks.
#[test]
fn it_ends_with_its_terminal_and_in_order() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]).with_load(64, None);
    for more in [&[][..], &["--plain"], &["--json"]] {
        let config = cluster.config();
        let arguments = [&["up", "--config", config.to_str().unwrap()], more].concat();
        let Some(mut up) = Terminal::start(&arguments, 40, 120, &[]) else {
            return skipped("no `setsid` program, which lends a session");
        };
        eventually("it serves", || {
            try_get(cluster.edge(0), "alpha.test", "/o/1/1").is_ok_and(|reply| reply.status == 200)
        });
        up.hang_up();
        up.finish();
        assert_eq!((cluster.parts(), cluster.regions()), (vec![], vec![]));
    }
}

/// Starts a cluster under load, sends `signal` to `up` alone, and checks that all of it ends in order.
fn ends_in_order_on(signal: Signal) {
    let cluster = Cluster::new(&[("alpha", 2), ("beta", 2)]).with_load(256, None);
    let up = cluster.serving(&["--plain"]);
    let parts = cluster.parts();
    assert_eq!(parts.len(), 4 + 2, "{parts:?}");
    // Before, it has sent none. A few are the test's own.
    let served = r#"sidelong_edge_requests_total{site="alpha",code="2xx"}"#;
    eventually("the load is under way", || metrics(cluster.admin(0)).get(served) > Some(&50.0));
    up.signal(signal);
    let out = up.finish().succeeded();
    assert!(out.contains(" requests in ") && out.contains(", 0 errors,"), "{out}");
    assert!(parts.iter().all(|part| !part.is_alive()), "{:?}", cluster.parts());
    assert_eq!(cluster.regions(), [""; 0]);
}

#[test]
fn sigterm_drains_and_sums_up() {
    ends_in_order_on(Signal::TERM);
}

#[test]
fn sigint_drains_and_sums_up() {
    ends_in_order_on(Signal::INT);
}

#[test]
fn killed_it_takes_its_parts_along_and_the_next_one_cleans_up() {
    let mut cluster = Cluster::new(&[("alpha", 2), ("beta", 2)]).with_load(256, None);
    let up = cluster.serving(&["--json"]);
    let parts = cluster.parts();
    assert_eq!(up.kill().signal, Some(Signal::KILL.as_raw()));
    eventually("its parts end", || parts.iter().all(|part| !part.is_alive()));
    assert!(cluster.regions().contains(&"n4.words.region".to_owned()), "{:?}", cluster.regions());

    // Another layout, so that nothing of the old one may be reused.
    cluster.file.sites[1].nodes = 1;
    cluster.file.nodes.pop();
    let up = cluster.serving(&["--json"]);
    let regions = cluster.regions();
    assert!(
        regions.iter().all(|region| !region.starts_with("n4.") && !region.ends_with(".new")),
        "{regions:?}"
    );
    let summary = up.end().json();
    assert_eq!(number(&summary, "errors"), 0, "{summary}");
    assert_eq!(cluster.regions(), [""; 0]);
}

#[test]
fn killed_it_can_be_started_again_at_once() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]).with_load(256, None);
    let up = cluster.serving(&["--json"]);
    up.kill();
    let summary = cluster.serving(&["--json"]).end().json();
    assert_eq!(number(&summary, "errors"), 0, "{summary}");
}

#[test]
fn a_stopped_part_of_a_killed_one_is_ended_by_the_next_one() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    let up = cluster.serving(&["--json"]);
    let stopped = [cluster.find("node", "n1"), cluster.find("edge", "edge2")];
    stopped.iter().for_each(|part| part.signal(Signal::STOP));
    up.kill();
    let up = cluster.serving(&["--json"]);
    assert!(stopped.iter().all(|part| !cluster.parts().contains(part)), "{:?}", cluster.parts());
    up.end().succeeded();
}

#[test]
fn a_part_that_cannot_be_started_is_tried_again() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    let up = cluster.serving(&["--plain"]);
    let says = |text: &str| up.out().lines().filter(|line| line.contains(text)).count();

    // Its log cannot be written.
    let log = cluster.run_dir().join("n1.log");
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    cluster.find("node", "n1").kill();
    eventually("it says why", || says("n1 failed: cannot write") == 1);
    std::fs::remove_dir(&log).unwrap();
    eventually("it is back", || says("n1 is ready") == 1);

    // Its cluster file is overwritten.
    std::fs::write(cluster.run_dir().join("cluster.toml"), "nonsense").unwrap();
    cluster.find("node", "n2").kill();
    eventually("it is back", || says("n2 is ready") == 1);

    // There are no descriptors.
    let limit = getrlimit(Resource::Nofile);
    let short = Rlimit { current: Some(4), maximum: limit.maximum };
    let before = prlimit(Some(up.pid()), Resource::Nofile, short).unwrap();
    cluster.find("edge", "edge2").kill();
    eventually("it says why", || says("edge2 failed: ") > 0);
    assert!(says("Too many open files") > 0, "{}", up.out());
    prlimit(Some(up.pid()), Resource::Nofile, before).unwrap();
    eventually("it is back", || says("edge2 is ready") == 1);
    up.end().succeeded();
}

#[test]
fn a_run_directory_that_is_gone_is_made_again() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    let mut up = cluster.serving(&["--plain"]);
    let sorted = || {
        let mut regions = cluster.regions();
        regions.sort();
        regions
    };
    let regions = sorted();
    // A part may write a file into it meanwhile.
    eventually("it is gone", || std::fs::remove_dir_all(cluster.run_dir()).is_ok());
    cluster.find("node", "n1").kill();
    eventually("all of it is there again", || sorted() == regions);
    cluster.await_serving(&mut up);
    let line = cluster.up(&["--json"]).finish().refused();
    assert!(line.contains("in use by a running sidelong"), "{line}");
    let out = up.end().succeeded();
    assert!(out.contains("was gone: it is made again"), "{out}");
    assert_eq!(cluster.regions(), [""; 0]);
}

#[test]
fn its_copy_of_the_file_is_written_again_when_somebody_changes_it() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let up = cluster.serving(&["--plain"]);
    let status = || cluster.run(&["status"]);
    eventually("it has a status", || status().code == Some(0));
    let copy = cluster.run_dir().join("cluster.toml");
    std::fs::write(&copy, [0xff; 64]).unwrap();
    eventually("it has a status again", || status().code == Some(0));
    up.end().succeeded();
}

#[test]
fn a_second_one_in_the_same_run_directory_is_refused() {
    let cluster = Cluster::new(&[("alpha", 1)]).with_load(256, None);
    let up = cluster.serving(&["--json"]);
    let regions = cluster.regions();
    let line = cluster.up(&["--json"]).finish().refused();
    assert!(line.contains(&cluster.run_dir().display().to_string()), "{line}");
    assert!(line.contains(&format!("in use by a running sidelong (process {})", up.pid())), "{line}");
    assert_eq!(cluster.regions().len(), regions.len(), "the first one's are left alone");
    let summary = up.end().json();
    assert_eq!(number(&summary, "errors"), 0, "{summary}");
}

#[test]
fn no_load_is_a_cluster_for_others_to_load() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let Done { code, out, .. } = cluster.up(&["--json", "--for", "1s"]).finish();
    let summary: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, number(&summary, "requests"), number(&summary, "moves")), (Some(0), 0, 0));
}

#[test]
fn the_time_must_have_a_unit() {
    let done = run(["up", "--for", "30"]);
    assert_eq!(done.code, Some(2), "{done:?}");
    assert!(done.err.contains("--for") && done.err.contains("ms, s, m or h"), "{done:?}");
}

#[test]
fn a_reader_that_goes_away_ends_it_in_order() {
    let cluster = Cluster::new(&[("alpha", 1)]).with_load(64, None);
    let program = env!("CARGO_BIN_EXE_sidelong");
    let mut shell = std::process::Command::new("sh");
    let command = format!("{program} up --plain --config {} | head -n 1", cluster.config().display());
    shell.args(["-c", &command]);
    let done = Running::start_command(shell).finish();
    assert!(done.out.contains("alpha 1 nodes") && done.out.lines().count() == 1, "{done:?}");
    let last = done.err.lines().last().unwrap();
    assert!(last.starts_with("sidelong: cannot write to standard output: Broken pipe"), "{done:?}");
    assert_eq!((cluster.parts(), cluster.regions()), (vec![], vec![]));
}

#[test]
fn it_may_be_ended_while_it_starts() {
    let cluster = Cluster::demo();
    let up = cluster.up(&[]);
    eventually("it has begun", || !cluster.parts().is_empty());
    let done = up.end();
    match done.code {
        // It was ready by then.
        Some(0) => assert!(done.out.contains("`up` sent no requests"), "{done:?}"),
        _ => assert_eq!(done.refused(), "interrupted while the cluster was starting"),
    }
    assert_eq!((cluster.parts(), cluster.regions()), (vec![], vec![]));
}

#[test]
fn nodes_that_burn_take_cpu_time_and_no_more_than_their_share() {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]).with_load(1, None);
    for node in &mut cluster.file.nodes {
        node.service = Some(sidelong_config::Service::Burn);
        node.cpu_share = Some(0.1);
    }
    cluster.file.sites[0].alpha = Some(0.0);
    let workload = cluster.file.workload.as_mut().unwrap();
    workload.kind = sidelong_config::WorkloadKind::Zipf;
    workload.duration = Some(std::time::Duration::from_secs(4));
    let mut up = cluster.up(&["--json"]);
    let mut ticks = 0;
    while up.is_running() {
        let nodes = cluster.parts().into_iter().filter(|part| part.kind == "node");
        ticks = nodes.map(|node| node.cpu_ticks()).sum::<u64>().max(ticks);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let done = up.finish();
    if done.code != Some(0) && done.err.contains("control group") {
        return skipped(&format!("shares of a CPU: {}", done.err.trim()));
    }
    let summary = done.json();
    // On a busy machine a tenth of a CPU may be too little to answer some of them in time.
    let late = summary["errors_by_kind"]["timeout"].as_u64().unwrap();
    assert!(number(&summary, "requests") > 0 && number(&summary, "errors") == late, "{summary}");
    assert!(summary["sites"][0]["max_ms"].as_f64() >= summary["sites"][0]["p99_ms"].as_f64(), "{summary}");
    // Two tenths of a CPU are 20 ticks a second; the start counts, too.
    let most = (summary["seconds"].as_f64().unwrap() + 3.0) * 20.0;
    assert!(ticks > 10 && (ticks as f64) < 1.5 * most, "{ticks} ticks of {most}: {summary}");
}
