//! The commands by which a node changes what it runs, with nginx: stopped for the site that the node leaves, started for the one
//! that it enters.

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Signal, geteuid};
use serde_json::Value;
use sidelong_config::{Configuration, Ready, Workload, WorkloadKind};

use crate::support::{Cluster, Running, eventually, metrics, skipped, try_get};

/// Three nodes, n1 and n2 at alpha and n3 at beta, with an nginx each that answers with the site's name. Site's commands start and
/// stop it. Where a file `stop-SITE` is in the directory, entering the site fails; where `slow-SITE` is, it waits until that is gone.
struct Sites {
    cluster: Cluster,
}

const ENTER: &str = r#"#!/bin/sh
echo "$SIDELONG_NODE enters $SIDELONG_SITE from $SIDELONG_FROM" >> "$1/log"
if [ -e "$1/stop-$SIDELONG_SITE" ]; then echo "no $SIDELONG_SITE here"; exit 3; fi
while [ -e "$1/slow-$SIDELONG_SITE" ]; do sleep 0.02; done
cd "$1/$SIDELONG_NODE"
if [ -e pid ]; then echo "running already"; exit 0; fi
sed "s/NAME/$SIDELONG_SITE/" template > nginx.conf
nginx -p . -c nginx.conf -e stderr
"#;

const LEAVE: &str = r#"#!/bin/sh
echo "$SIDELONG_NODE leaves $SIDELONG_FROM for $SIDELONG_SITE" >> "$1/log"
cd "$1/$SIDELONG_NODE"
[ ! -e pid ] || nginx -p . -c nginx.conf -e stderr -s stop
while [ -e pid ]; do sleep 0.02; done
"#;

impl Sites {
    /// `None`, with a printed reason, without nginx.
    fn new() -> Option<Self> {
        if Command::new("nginx").arg("-v").output().is_err() {
            skipped("there is no nginx here");
            return None;
        }
        let mut cluster = Cluster::new(&[("alpha", 2), ("beta", 1)]).foreign();
        let directory = cluster.path("");
        for (name, text) in [("enter", ENTER), ("leave", LEAVE)] {
            let path = cluster.path(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        }
        let command = |name: &str| {
            let words = [cluster.path(name), directory.clone()];
            words.map(|word| word.to_str().unwrap().to_owned()).to_vec()
        };
        let [enter, leave] = ["enter", "leave"].map(command);
        for site in &mut cluster.file.sites {
            (site.on_enter, site.on_leave) = (Some(enter.clone()), Some(leave.clone()));
        }
        for node in 0..3 {
            let address = cluster.node(node);
            let entry = &mut cluster.file.nodes[node];
            entry.ready = Some(Ready { path: "/".into(), status: 200, timeout: Duration::from_secs(60) });
            entry.workers = Some(4);
            let at = cluster.path(&format!("n{}", node + 1));
            std::fs::create_dir(&at).unwrap();
            for site in ["alpha", "beta"] {
                std::fs::write(at.join(site), site).unwrap();
            }
            std::fs::write(at.join("template"), configuration(&at, &address.to_string())).unwrap();
        }
        cluster.file.reconfig.command_max = Duration::from_secs(60);
        // A busy machine may take long over the requests of a test, and nobody takes over what another is at.
        (cluster.file.reconfig.drain_max, cluster.file.reconfig.lease) =
            (Duration::from_secs(30), Duration::from_secs(2));
        Some(Sites { cluster })
    }

    /// Serving, each node with its own site. A site that waits for one of its nodes is at its floor and gives none away.
    fn up(&self) -> Running {
        let up = self.up_with(&["--plain"]);
        for (node, site) in [("n1", "alpha"), ("n2", "alpha"), ("n3", "beta")] {
            self.is(node, "serving", site);
        }
        up
    }

    fn up_with(&self, arguments: &[&str]) -> Running {
        let mut up = self.cluster.up(arguments);
        for (edge, site) in [(0, "alpha"), (0, "beta"), (1, "alpha"), (1, "beta")] {
            eventually("every edge answers for every site", || {
                assert!(up.is_running(), "ended: {}{}", up.out(), up.err());
                try_get(self.cluster.edge(edge), &format!("{site}.test"), "/")
                    .is_ok_and(|reply| reply.body == site)
            });
        }
        up
    }

    /// `sidelong move`, which goes on.
    fn moving(&self, node: &str, site: &str) -> Running {
        self.cluster.start(&["move", node, site])
    }

    /// Waits until a node is in a state and has or goes to a site, as `top` sees it.
    fn is(&self, name: &str, state: &str, site: &str) {
        let mut seen = String::new();
        eventually(&format!("{name} is {state} at {site}"), || {
            let report = self.cluster.run(&["top", "--once", "--json"]);
            let report: Value = serde_json::from_str(&report.out).unwrap();
            let nodes = report["nodes"].as_array().unwrap();
            let node = nodes.iter().find(|node| node["name"] == name).unwrap();
            seen = format!("{} {}", node["state"], node["site"]);
            node["state"] == state && (state == "changing" || node["site"] == site)
        });
    }

    /// What nginx on a node answers.
    fn answers(&self, node: usize, site: &str) {
        let address = self.cluster.node(node);
        eventually(&format!("node {node} runs {site}"), || {
            try_get(address, "any", "/").is_ok_and(|reply| reply.body == site)
        });
    }

    fn mark(&self, name: &str) -> PathBuf {
        let path = self.cluster.path(name);
        std::fs::write(&path, "").unwrap();
        path
    }

    /// The steps that were begun, in order, of one node.
    fn steps(&self, node: &str) -> Vec<String> {
        let log = std::fs::read_to_string(self.cluster.path("log")).unwrap_or_default();
        log.lines().filter_map(|line| line.strip_prefix(&format!("{node} "))).map(str::to_owned).collect()
    }

    fn history(&self) -> Vec<Value> {
        self.cluster.run(&["history", "--json"]).json().as_array().unwrap().clone()
    }
}

impl Drop for Sites {
    /// Ends what the commands started.
    fn drop(&mut self) {
        for node in ["n1", "n2", "n3"] {
            let at = self.cluster.path(node);
            let at = at.to_str().unwrap();
            let _ = Command::new("nginx")
                .args(["-p", at, "-c", "nginx.conf", "-e", "stderr", "-s", "stop"])
                .output();
        }
    }
}

/// A template of nginx's settings for a server that answers with the NAME of its site.
fn configuration(at: &std::path::Path, address: &str) -> String {
    let mut text = String::new();
    if geteuid().is_root() {
        text += "user root;\n";
    }
    let at = at.display();
    let _ = writeln!(
        text,
        "worker_processes 1;\npid {at}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;"
    );
    // A capacity that does not depend on the machine: what comes faster waits. The key is never empty: nginx counts no request
    // whose key is.
    let _ = writeln!(text, "limit_req_zone $server_addr zone=pace:64k rate=200r/s;");
    for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
        let _ = writeln!(text, "{kind}_temp_path {at}/{kind};");
    }
    let _ = writeln!(
        text,
        "server {{ listen {address}; root {at}; location / {{ limit_req zone=pace burst=1000; try_files /NAME =404; }} }}\n}}"
    );
    text
}

/// Under requests for both sites at both edges, each answer is of the site that was asked for.
#[test]
fn a_node_changes_what_it_runs_and_no_request_finds_the_wrong_site() {
    let Some(mut sites) = Sites::new() else { return };
    // No edge moves a node for its load.
    sites.cluster.file.baseline.configuration = Configuration::Rigid;
    let up = sites.up();
    let (stop, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for (edge, site) in [(0, "alpha"), (1, "beta"), (0, "beta"), (1, "alpha")] {
            let (address, stop, answered) = (sites.cluster.edge(edge), &stop, &answered);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let reply = crate::support::get(address, &format!("{site}.test"), "/");
                    assert_eq!((reply.status, &*reply.body), (200, site));
                    answered.fetch_add(1, Ordering::Relaxed);
                    // What moves needs the processor, too.
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        // Whatever fails here, the clients end.
        let end = OnDrop(|| stop.store(true, Ordering::Relaxed));
        for _ in 0..5 {
            let said = sites.cluster.run(&["move", "n1", "beta"]).succeeded();
            assert_eq!(said, "n1 serves beta, pinned there until `sidelong resume n1`\n");
            sites.answers(0, "beta");
            sites.cluster.run(&["move", "n1", "alpha"]).succeeded();
            sites.answers(0, "alpha");
        }
        drop(end);
    });
    assert!(answered.load(Ordering::Relaxed) > 20);
    let steps = sites.steps("n1");
    let change = [
        "leaves alpha for beta",
        "enters beta from alpha",
        "leaves beta for alpha",
        "enters alpha from beta",
    ];
    assert_eq!(
        steps[..2],
        ["leaves beta for alpha", "enters alpha from "],
        "at its start nobody knows what runs"
    );
    assert_eq!(steps[2..], change.repeat(5));
    let counted = metrics(sites.cluster.node_admin(0));
    assert_eq!(counted[r#"sidelong_node_changes_total{end="changed"}"#], 11.0, "{counted:?}");

    // A drain runs nothing, and a resumed node enters its site again.
    sites.cluster.run(&["drain", "n1"]).succeeded();
    sites.cluster.run(&["resume", "n1"]).succeeded();
    assert_eq!(sites.steps("n1")[22..], ["enters alpha from alpha"]);
    sites.is("n1", "serving", "alpha");
    up.end().succeeded();
    // The servers are the user's.
    sites.answers(0, "alpha");
}

struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A load for one site that does not end.
#[test]
fn the_edges_move_nodes_that_run_commands() {
    let Some(mut sites) = Sites::new() else { return };
    for (site, nodes) in sites.cluster.file.sites.iter_mut().zip([1, 2]) {
        site.nodes = nodes;
    }
    // Its server takes longer than this whenever the load asks it for more than its pace. By load alone a server that was
    // never seen without it cannot be told from one with more workers.
    sites.cluster.file.sites[0].response_p99 = Some(Duration::from_millis(20));
    let load = Workload { kind: WorkloadKind::SingleFile, burst: 1_000_000, ..Workload::default() };
    sites.cluster.file.workload = Some(load);
    let slow = sites.cluster.path("slow-beta");
    std::fs::write(&slow, "").unwrap();
    let mut up = sites.cluster.up(&["--plain"]);
    eventually("it says that the load waits", || {
        up.out().contains("the load waits until the nodes have entered")
    });
    let asked = || {
        let seen = (0..2).flat_map(|edge| metrics(sites.cluster.admin(edge)));
        let of = seen.filter(|(name, _)| name.starts_with("sidelong_edge_requests_total{"));
        of.map(|(_, count)| count).sum::<f64>()
    };
    assert!(up.is_running() && asked() == 0.0, "a load has begun: {}", up.out());
    std::fs::remove_file(slow).unwrap();
    eventually("it says that the load begins", || up.out().contains("the load begins\n"));
    let changed = || {
        let changed = r#"sidelong_node_changes_total{end="changed"}"#;
        (0..3).map(|node| metrics(sites.cluster.node_admin(node))[changed]).sum::<f64>()
    };
    eventually("each node enters its site, and the second one of beta moves to alpha", || changed() >= 4.0);
    up.end().succeeded();
    let history = sites.history();
    assert!(history.iter().any(|record| record["how"] == "moved" && record["to"] == "alpha"), "{history:?}");
    assert!(history.iter().all(|record| record["fault"] == Value::Null), "{history:?}");
}

#[test]
fn a_node_that_cannot_enter_a_site_goes_back_and_stays_there() {
    let Some(sites) = Sites::new() else { return };
    let up = sites.up();
    let stop = sites.mark("stop-beta");
    let said = sites.cluster.run(&["move", "n1", "beta"]).refused();
    let expected = "n1 could not change to beta: on_enter ended with status 3; it serves alpha again, pinned there. \
                    The log of `sidelong node n1` says more";
    assert!(said.contains(expected), "{said}");
    sites.is("n1", "pinned", "alpha");
    sites.answers(0, "alpha");
    assert_eq!(
        sites.steps("n1")[2..],
        [
            "leaves alpha for beta",
            "enters beta from alpha",
            "leaves beta for alpha",
            "enters alpha from beta"
        ]
    );
    let log = std::fs::read_to_string(sites.cluster.run_dir().join("n1.log")).unwrap();
    assert!(log.contains("ended with status 3: no beta here"), "{log}");
    let shown = sites.cluster.run(&["status"]).succeeded();
    assert!(shown.contains("n1 is pinned at alpha by "), "{shown}");
    assert!(
        shown.contains(", because on_enter ended with status 3; `sidelong resume n1` ends it"),
        "{shown}"
    );
    let history = sites.history();
    let last = history.last().unwrap();
    assert_eq!(
        (&last["how"], &last["fault"]),
        (&"not-changed".into(), &"on_enter ended with status 3".into())
    );
    let plain = sites.cluster.run(&["history"]).succeeded();
    assert!(plain.contains("n1 alpha -> beta, not moved (on_enter ended with status 3) in "), "{plain}");
    let counted = metrics(sites.cluster.node_admin(0));
    assert_eq!(counted[r#"sidelong_node_changes_total{end="undone"}"#], 1.0);

    sites.cluster.run(&["resume", "n1"]).succeeded();
    std::fs::remove_file(stop).unwrap();
    sites.cluster.run(&["move", "n1", "beta"]).succeeded();
    sites.answers(0, "beta");
    up.end().succeeded();
}

#[test]
fn a_node_on_which_neither_site_runs_is_held_until_a_person_resumes_it() {
    let Some(sites) = Sites::new() else { return };
    let up = sites.up();
    let stops = [sites.mark("stop-alpha"), sites.mark("stop-beta")];
    let said = sites.cluster.run(&["move", "n1", "beta"]).refused();
    assert!(said.contains("on_enter ended with status 3; it is held"), "{said}");
    sites.is("n1", "held", "alpha");
    for _ in 0..20 {
        assert_eq!(crate::support::get(sites.cluster.edge(0), "alpha.test", "/").body, "alpha");
    }
    // Its site still does not run there.
    let said = sites.cluster.run(&["resume", "n1"]).refused();
    assert!(
        said.contains("n1 could not change to alpha: on_enter ended with status 3; it is held"),
        "{said}"
    );
    stops.into_iter().for_each(|stop| std::fs::remove_file(stop).unwrap());
    sites.cluster.run(&["resume", "n1"]).succeeded();
    sites.is("n1", "serving", "alpha");
    sites.answers(0, "alpha");
    up.end().succeeded();
}

#[test]
fn a_command_that_hangs_is_ended_with_all_that_it_started() {
    let Some(mut sites) = Sites::new() else { return };
    sites.cluster.file.reconfig.command_max = Duration::from_millis(1500);
    let up = sites.up();
    sites.mark("slow-beta");
    let said = sites.cluster.run(&["move", "n1", "beta"]).refused();
    assert!(said.contains("on_enter took too long"), "{said}");
    let at = sites.cluster.path("enter");
    let at = at.to_str().unwrap();
    eventually("it runs no more", || !String::from_utf8_lossy(&processes()).contains(at));
    up.end().succeeded();
}

/// The command lines of all processes.
fn processes() -> Vec<u8> {
    let lines = std::fs::read_dir("/proc").unwrap().flatten();
    lines.flat_map(|entry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default()).collect()
}

/// Of a mover that is killed while a node changes an edge takes the work over.
#[test]
fn a_change_outlives_its_mover() {
    let Some(sites) = Sites::new() else { return };
    let up = sites.up();
    let slow = sites.mark("slow-beta");
    let moving = sites.moving("n1", "beta");
    eventually("it enters", || sites.steps("n1").iter().any(|step| step == "enters beta from alpha"));
    sites.is("n1", "changing", "beta");
    moving.kill();
    std::fs::remove_file(slow).unwrap();
    sites.is("n1", "serving", "beta");
    sites.answers(0, "beta");
    assert_eq!(sites.steps("n1")[2..], ["leaves alpha for beta", "enters beta from alpha"], "no step twice");
    up.end().succeeded();
}

/// A node's process that comes back begins the change again.
#[test]
fn a_change_outlives_the_nodes_process() {
    let Some(sites) = Sites::new() else { return };
    let up = sites.up();
    let slow = sites.mark("slow-beta");
    let moving = sites.moving("n1", "beta");
    let entered = |times: usize| {
        sites.steps("n1").iter().filter(|step| *step == "enters beta from alpha").count() == times
    };
    eventually("it enters", || entered(1));
    sites.cluster.find("node", "n1").kill();
    eventually("it enters again", || entered(2));
    std::fs::remove_file(slow).unwrap();
    moving.finish().succeeded();
    sites.is("n1", "pinned", "beta");
    sites.answers(0, "beta");
    up.end().succeeded();
}

/// A node's process that is stopped says nothing; the node is held, and never serves what may not run.
#[test]
fn a_node_that_says_nothing_is_held() {
    let Some(mut sites) = Sites::new() else { return };
    sites.cluster.file.reconfig.command_max = Duration::from_millis(500);
    for node in &mut sites.cluster.file.nodes {
        node.ready = None;
    }
    let up = sites.up();
    sites.answers(0, "alpha");
    sites.mark("slow-beta");
    let moving = sites.moving("n1", "beta");
    eventually("it enters", || sites.steps("n1").iter().any(|step| step == "enters beta from alpha"));
    let agent = sites.cluster.find("node", "n1");
    agent.signal(Signal::STOP);
    let said = moving.finish().refused();
    assert!(said.contains("its commands did not end in time; it is held"), "{said}");
    sites.is("n1", "held", "alpha");
    agent.signal(Signal::CONT);
    sites.cluster.run(&["resume", "n1"]).succeeded();
    sites.is("n1", "serving", "alpha");
    up.end().succeeded();
}
