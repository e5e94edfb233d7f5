//! What else the configuration of a proxy may say while a front controls it: nginx's own directives, httpd's MPMs, hosts that Envoy learns.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use serde_json::json;
use sidelong_config::Configuration;
use sidelong_layout::{ChoiceMap, SiteId};
use sidelong_policy::admission::Why;

use crate::support::foreign::move_to_and_fro;
use crate::support::proxies::{EnvoysMemory, Kind, ROOM, module, proxy};
use crate::support::servers::{Load, gunicorn, sites_at_once};
use crate::support::words::write_word;
use crate::support::{Cluster, Running, eventually, get, run, stop_whole, try_get};

const NAMES: [&str; 3] = ["one", "two", "three"];

/// A site with one server and a site with two, their agents, and the front of a proxy. Nodes move by hand alone.
struct Stage {
    cluster: Cluster,
    kind: Kind,
    module: PathBuf,
    servers: Vec<Running>,
    up: Running,
    _memory: EnvoysMemory,
}

impl Stage {
    /// `None`, with a printed reason, if a program is missing.
    fn start(kind: Kind, change: impl FnOnce(&mut Cluster)) -> Option<Self> {
        let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 2)]).foreign();
        cluster.file.edges.clear();
        cluster.file.fronts.push(kind.front(&cluster, "web1"));
        cluster.file.baseline.configuration = Configuration::Rigid;
        cluster.file.reconfig.drain_max = Duration::from_secs(30);
        cluster.file.nodes.iter_mut().for_each(|node| node.workers = Some(4));
        change(&mut cluster);
        let module = module(kind)?;
        let servers =
            NAMES.iter().zip(0..).map(|(name, node)| gunicorn(&cluster, name, cluster.node(node), 4));
        let servers = servers.collect::<Option<Vec<_>>>()?;
        let up = cluster.up(&["--plain"]);
        eventually("the front runs", || up.err().contains(" is up: "));
        let _memory = EnvoysMemory::of(&cluster);
        Some(Stage { cluster, kind, module, servers, up, _memory })
    }

    fn address(&self) -> SocketAddr {
        self.cluster.at(8080)
    }

    /// The proxy with the lines that `sidelong front config` prints, changed, once it serves each site.
    fn proxy(&self, change: impl FnOnce(String) -> String) -> Running {
        let mut command = proxy(&self.cluster, self.kind, self.address(), &self.module);
        let name = match self.kind {
            Kind::Nginx => "nginx.conf",
            Kind::Envoy => "proxy.yaml",
            Kind::Httpd => "httpd.conf",
            Kind::HaproxyByWeights | Kind::HaproxyByChoice => "haproxy.cfg",
        };
        let file = self.cluster.path("proxy").join(name);
        std::fs::write(&file, change(std::fs::read_to_string(&file).unwrap())).unwrap();
        // httpd's prefork ends its whole process group, which would be that of the test.
        command.process_group(0);
        let mut proxy = Running::start_command(command);
        for site in ["alpha.test", "beta.test"] {
            eventually("the proxy serves each site", || {
                assert!(proxy.is_running(), "{}", proxy.err());
                try_get(self.address(), site, "/0").is_ok_and(|reply| reply.status == 200)
            });
        }
        proxy
    }

    fn ask(&self, site: &str) -> String {
        let reply = get(self.address(), site, "/0");
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.body
    }

    fn end(self) {
        self.up.end().succeeded();
        let seen = NAMES.map(|name| sites_at_once(&self.cluster, name));
        assert!(seen.iter().all(|(most, _)| *most <= 1), "requests of two sites at once: {seen:?}");
    }
}

/// `text` with one word replaced, which must be there.
fn replaced(text: &str, one: &str, other: &str) -> String {
    assert!(text.contains(one), "no {one:?} in {text}");
    text.replace(one, other)
}

#[test]
fn nginx_closes_where_it_should_tells_the_reason_and_has_a_status_page() {
    let with_targets = |cluster: &mut Cluster| {
        cluster.file.sites.iter_mut().for_each(|site| site.response_p99 = Some(Duration::from_secs(60)));
    };
    let Some(stage) = Stage::start(Kind::Nginx, with_targets) else { return };
    let nginx = stage.proxy(|text| {
        let reason = " alpha;\n    add_header X-Why $sidelong_reason always;\n    location / {";
        let text = replaced(&text, " alpha;\n    location / {", reason);
        let status = "location = /sidelong { sidelong_admission off; sidelong_status; }";
        replaced(&text, " beta;\n    location / {", &format!(" beta close;\n    {status}\n    location / {{"))
    });
    let status = || get(stage.address(), "beta.test", "/sidelong").body;
    let told = status();
    assert!(["alpha", "beta"].iter().all(|site| told.contains(&format!("site={site} front="))), "{told}");
    assert_eq!(told.matches(" state=controlled ").count(), 2, "{told}");

    // No client is admitted any more: what the front says is changed by hand while it stands still.
    let front = stage.cluster.find("front", "web1").pid();
    stop_whole(front);
    let choice =
        std::fs::File::options().write(true).open(stage.cluster.run_dir().join("web1.choice.region"));
    let (choice, map) = (choice.unwrap(), ROOM);
    let say = |offset: usize, word: u64| write_word(&choice, offset, word);
    say(ChoiceMap::STALE, u64::MAX);
    [0, 1].into_iter().for_each(|site| say(map.verdict(SiteId::new(site)), Why::OverTarget as u64));
    eventually("a client of alpha is told why", || {
        let reply = get(stage.address(), "alpha.test", "/0");
        (reply.status, reply.header("x-why")) == (503, Some("over-target"))
    });
    eventually("a client of beta is closed on", || try_get(stage.address(), "beta.test", "/0").is_err());
    let told = status();
    assert_eq!(told.matches(" admission=over-target ").count(), 2, "{told}");
    assert!(told.lines().all(|line| !line.ends_with(" rejected=0")), "{told}");
    kill_process(front, Signal::CONT).unwrap();
    eventually("they are admitted", || {
        ["alpha.test", "beta.test"]
            .iter()
            .all(|site| try_get(stage.address(), site, "/0").is_ok_and(|reply| reply.status == 200))
    });
    nginx.end();
    stage.end();
}

/// Answers each request with this word.
fn answers(address: SocketAddr, word: &'static str) {
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let _ = client.read(&mut [0; 4096]);
            let length = word.len();
            let _ = write!(
                client,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{word}"
            );
        }
    });
}

#[test]
fn nginx_tries_another_node_of_the_site_and_a_backup_last() {
    let Some(mut stage) = Stage::start(Kind::Nginx, |_| ()) else { return };
    let spare = stage.cluster.at(5999);
    answers(spare, "spare");
    let nginx = stage.proxy(|text| {
        let (before, beta) = text.split_once("upstream beta {").unwrap();
        let with_backup = format!("    server {spare} backup;\n    keepalive 32;");
        format!("{before}upstream beta {{{}", replaced(beta, "    keepalive 32;", &with_backup))
    });
    stage.servers.pop().unwrap().end();
    (0..50).for_each(|_| assert_eq!(stage.ask("beta.test"), "two"));
    stage.servers.pop().unwrap().end();
    eventually("the backup answers", || stage.ask("beta.test") == "spare");
    assert_eq!(stage.ask("alpha.test"), "one");
    stage.servers.push(gunicorn(&stage.cluster, "two", stage.cluster.node(1), 4).unwrap());
    eventually("a node answers again", || stage.ask("beta.test") == "two");
    nginx.end();
    stage.end();
}

#[test]
fn httpd_is_led_with_the_other_mpms_too() {
    for mpm in ["mpm_worker", "mpm_prefork"] {
        let Some(stage) = Stage::start(Kind::Httpd, |_| ()) else { return };
        let httpd = stage.proxy(|text| {
            let text = replaced(&text, "mpm_event", mpm);
            let threads = if mpm == "mpm_prefork" { "" } else { "ThreadsPerChild 25\n" };
            replaced(&text, "ThreadsPerChild 25\n", threads)
        });
        let load = ["alpha.test", "beta.test"]
            .map(|site| Load::start(stage.address(), site, Duration::from_millis(50), 6));
        move_to_and_fro(&stage.cluster);
        drop(load);
        let config = stage.cluster.config();
        run(["front", "check", "web1", "--config", config.to_str().unwrap()]).succeeded();
        httpd.end();
        stage.end();
    }
}

/// Says to an Envoy, by a file that takes the old one's place, which hosts a cluster has.
fn say_hosts(file: &Path, cluster: &str, hosts: &[SocketAddr]) {
    let host = |at: &SocketAddr| {
        json!({ "endpoint": { "address": { "socket_address":
            { "address": at.ip().to_string(), "port_value": at.port() } } } })
    };
    let hosts: Vec<_> = hosts.iter().map(host).collect();
    let text = json!({ "resources": [{
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": cluster,
        "endpoints": [{ "lb_endpoints": hosts }],
    }] });
    let new = file.with_extension("new");
    std::fs::write(&new, text.to_string()).unwrap();
    std::fs::rename(new, file).unwrap();
}

#[test]
fn hosts_that_an_envoy_learns_as_it_runs_are_chosen_too() {
    let Some(stage) = Stage::start(Kind::Envoy, |_| ()) else { return };
    let directory = stage.cluster.path("eds");
    std::fs::create_dir(&directory).unwrap();
    let file = directory.join("beta.json");
    let all = [0, 1, 2].map(|node| stage.cluster.node(node));
    say_hosts(&file, "beta", &all);
    let envoy = stage.proxy(|text| {
        let (before, beta) = text.split_once("  - name: \"beta\"\n    connect_timeout").unwrap();
        let (_, after) = beta.split_once("    load_balancing_policy:").unwrap();
        format!(
            "node: {{ id: test, cluster: test }}\n{before}  - name: \"beta\"\n    type: EDS\n    \
             eds_cluster_config: {{ eds_config: {{ path_config_source: {{ path: \"{}\" }} }} }}\n    \
             load_balancing_policy:{after}",
            file.display()
        )
    });
    let load = ["alpha.test", "beta.test"].map(|site| Load::start(stage.address(), site, Duration::ZERO, 4));
    for _ in 0..10 {
        say_hosts(&file, "beta", &[all[0], all[2]]);
        eventually("n2 is no host any more", || (0..20).all(|_| stage.ask("beta.test") == "three"));
        say_hosts(&file, "beta", &all);
        eventually("n2 is a host again", || stage.ask("beta.test") == "two");
    }
    drop(load);
    envoy.end();
    stage.end();
}
