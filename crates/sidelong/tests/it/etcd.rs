//! A cluster on several machines, whose file etcd has: it changes while it runs, and goes on without etcd.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sidelong_config::{ClusterFile, EdgeEntry, NodeEntry};
use sidelong_testing::certificates::{ECDSA, certificate_for};
use sidelong_testing::etcd::Etcd;
use sidelong_testing::machines::{FABRIC, Machines, SECRET};
use sidelong_testing::read_head;

use crate::support::{
    Cluster, Done, HostsFile, Running, SteadyLoad, eventually, get, metrics, run, skipped, try_get,
    until_it_succeeds,
};

/// Three nodes and an edge on machines of their own, with their file in etcd.
struct Kept {
    etcd: Etcd,
    machines: Machines,
    /// The file that each machine may have, as the command says that has put the first one there.
    short: String,
}

impl Kept {
    /// `None` without etcd.
    fn begun(servers: u16) -> Option<Self> {
        let mut machines = Machines::three();
        let etcd = Etcd::start(&machines.cluster, servers, &[])?;
        machines.kept_by(&etcd);
        Some(Kept { etcd, machines, short: String::new() })
    }

    fn new(servers: u16) -> Option<Self> {
        let mut kept = Kept::begun(servers)?;
        let first = kept.machines.cluster.path("first.toml");
        let file = ClusterFile { etcd: None, ..kept.machines.cluster.file.clone() };
        fs::write(&first, file.to_toml().unwrap()).unwrap();
        let endpoints = kept.etcd.endpoints().join(",");
        kept.short =
            until_it_succeeds(|| run(["cluster", "init", first.to_str().unwrap(), "--etcd", &endpoints]));
        assert!(kept.short.contains("[etcd]") && !kept.short.contains("[[node]]"), "{}", kept.short);
        Some(kept)
    }

    fn init(&self) -> Done {
        run(["cluster", "init", self.machines.whole().to_str().unwrap()])
    }

    /// Starts a part by the file that was printed.
    fn part(&self, kind: &str, name: &str) -> Running {
        let file = self.machines.cluster.path("short.toml");
        fs::write(&file, &self.short).unwrap();
        Running::start([kind, name, "--config", file.to_str().unwrap()])
    }

    /// A command that is told where etcd is by the file of a machine where no part runs.
    fn ask(&self, arguments: &[&str]) -> Done {
        run([arguments, &["--config", self.config().to_str().unwrap()]].concat())
    }

    fn config(&self) -> PathBuf {
        self.machines.config("desk")
    }

    fn apply(&self) -> Done {
        run(["cluster", "apply", self.machines.whole().to_str().unwrap()])
    }

    fn restore(&self, machine: &str) -> Done {
        run(["cluster", "restore", "--config", self.machines.config(machine).to_str().unwrap()])
    }

    /// All parts, once they serve.
    fn serving(&self) -> Vec<Running> {
        let nodes = ["n1", "n2", "n3"].map(|name| self.machines.part("node", name));
        let edge = self.machines.part("edge", "edge1");
        eventually("both sites answer", || self.machines.answers("alpha") && self.machines.answers("beta"));
        nodes.into_iter().chain([edge]).collect()
    }

    /// The epoch by which a part goes, by its metrics.
    fn epochs(&self) -> Vec<f64> {
        let cluster = &self.machines.cluster;
        let nodes = (0..3).map(|node| cluster.node_admin(node));
        nodes.chain([cluster.admin(0)]).map(|admin| metrics(admin)["sidelong_config_epoch"]).collect()
    }

    /// Whether a node serves a site, as the edge sees it.
    fn serves(&self, node: &str) -> bool {
        let metrics = metrics(self.machines.cluster.admin(0));
        let at = |site: &str| format!("sidelong_edge_node_site{{node=\"{node}\",site=\"{site}\"}}");
        ["alpha", "beta"].iter().any(|site| metrics.get(&at(site)) == Some(&1.0))
    }

    fn load(&self) -> SteadyLoad {
        SteadyLoad::start(&self.machines.cluster)
    }
}

#[test]
fn its_file_changes_while_it_runs() {
    let Some(mut kept) = Kept::new(1) else { return };
    let mut parts = kept.serving();
    let load = kept.load();
    kept.machines.cluster.file.limits.retries = 3;
    let told = kept.apply().succeeded();
    assert!(told.contains("limits.retries") && told.contains("go by it (epoch 2)"), "{told}");
    assert_eq!(kept.epochs(), [2.0; 4]);
    let told = kept.apply().succeeded();
    assert!(told.contains("nothing has changed"), "{told}");

    // A person edits the file as it was written, and it is checked before anybody hears of it.
    let editor = kept.machines.cluster.path("editor");
    let edit = |script: &str| {
        fs::write(&editor, format!("sed -i '{script}' \"$1\"")).unwrap();
        edit_by(&kept, &editor)
    };
    let refused = edit("s/^retries = .*/retries = 300/").refused();
    assert!(refused.contains("the edited file:") && refused.contains("retries"), "{refused}");
    edit("1i # by hand\ns/^retries = .*/retries = 2/").succeeded();
    assert!(kept.ask(&["cluster", "show"]).succeeded().starts_with("# by hand\n"));
    assert_eq!(kept.epochs(), [3.0; 4]);
    edit("1d").succeeded();
    assert!(!kept.ask(&["cluster", "show"]).succeeded().contains("by hand"));
    let history = kept.ask(&["cluster", "show", "--history"]).succeeded();
    assert_eq!(history.lines().count(), 1 + 4, "{history}");
    let differs = run(["cluster", "diff", kept.machines.whole().to_str().unwrap()]).succeeded();
    assert!(differs.contains("limits.retries"), "{differs}");
    let other = kept.machines.cluster.path("other.toml");
    let text = kept.ask(&["cluster", "show"]).succeeded();
    fs::write(&other, text.replace("body_bytes_max = ", "body_bytes_max = 1")).unwrap();
    let program = env!("CARGO_BIN_EXE_sidelong");
    fs::write(&editor, format!("{program} cluster apply {} && echo >> $1", other.display())).unwrap();
    let refused = edit_by(&kept, &editor);
    assert!(refused.err.contains("somebody else has changed the file meanwhile"), "{refused:?}");
    let apply = |base| run(["cluster", "apply", other.to_str().unwrap(), "--base", base]);
    assert!(apply("2").refused().contains("somebody else has changed the file meanwhile"));
    assert!(apply("20").refused().contains("etcd has no file of epoch 20"));
    apply("5").succeeded();
    kept.ask(&["cluster", "rollback", "4"]).succeeded();
    kept.ask(&["cluster", "rollback", "2"]).succeeded();
    assert_eq!(kept.ask(&["cluster", "show"]).succeeded(), kept.ask(&["cluster", "show", "2"]).succeeded());
    assert_eq!(kept.epochs(), [7.0; 4]);
    kept.ask(&["cluster", "rollback"]).succeeded();
    assert_eq!(kept.ask(&["cluster", "show"]).succeeded(), kept.ask(&["cluster", "show", "4"]).succeeded());

    let refused = kept.ask(&["up"]).refused();
    assert!(refused.contains("sidelong node"), "{refused}");
    // SIGHUP would put back what a machine's own file says.
    let refused = kept.ask(&["reload"]).refused();
    assert!(refused.contains("sidelong cluster apply"), "{refused}");

    // A node leaves, and comes back as another one.
    let told = kept.ask(&["leave", "n3"]).succeeded();
    assert!(told.contains("n3 has left the cluster"), "{told}");
    parts.remove(2).finish().succeeded();
    let history = kept.ask(&["history", "--node", "n3"]).succeeded();
    assert!(history.contains("n3 left by"), "{history}");
    let machine = &kept.machines.others[1];
    let server = machine.at(9).to_string();
    let join = |listen: &[&str]| kept.ask(&[&["join", "node", "n5", "--server", &server], listen].concat());
    let refused = join(&[]).refused();
    assert!(refused.contains("--fabric-listen"), "{refused}");
    let told = join(&["--fabric-listen", &machine.at(FABRIC + 5).to_string()]).succeeded();
    assert!(told.contains("n5 belongs to the cluster"), "{told}");
    let mut entry = NodeEntry::new("n4", 1, machine.at(8_104));
    entry.fabric_listen = Some(machine.at(FABRIC + 4));
    let file = &mut kept.machines.cluster.file;
    file.nodes.truncate(2);
    file.nodes.push(entry);
    let told = kept.apply();
    // Nobody has started its agent.
    assert!(told.err.contains("sidelong remove n5 --lost"), "{told:?}");
    kept.ask(&["remove", "n5", "--lost"]).succeeded();
    let told = kept.apply().succeeded();
    assert!(
        told.contains("n5 leaves") && told.contains("n4 joins: start it by `sidelong node n4 --config"),
        "{told}"
    );
    let _fourth = kept.part("node", "n4");
    eventually("it serves", || kept.serves("n4"));
    assert_eq!(load.end(), Vec::<String>::new());

    // An edge joins, serves, and leaves.
    let machine = &kept.machines.others[0];
    let mut edge = EdgeEntry::new("edge2", machine.at(8_280));
    edge.fabric_listen = Some(machine.at(FABRIC + 12));
    kept.machines.cluster.file.edges.push(edge);
    kept.apply().succeeded();
    let second = kept.machines.part("edge", "edge2");
    let listen = kept.machines.cluster.edge(1);
    eventually("it answers", || {
        try_get(listen, "alpha.test", "/o/1/10").is_ok_and(|reply| reply.status == 200)
    });
    kept.ask(&["leave", "edge2"]).succeeded();
    second.finish().succeeded();
    assert_eq!(get(kept.machines.cluster.edge(0), "alpha.test", "/o/1/10").status, 200);
}

/// Edges are not restarted, and read nothing that was left at the old address.
#[test]
fn a_node_goes_over_to_another_machine() {
    let Some(mut kept) = Kept::new(1) else { return };
    let mut parts = kept.serving();
    let load = kept.load();
    let machine = &kept.machines.others[0];
    let node = &mut kept.machines.cluster.file.nodes[1];
    node.listen = Some(machine.at(8_120));
    node.fabric_listen = Some(machine.at(FABRIC + 20));
    let whole = kept.machines.whole();
    let told = run(["cluster", "diff", whole.to_str().unwrap()]).succeeded();
    assert!(told.matches("restart of n2\n").count() == 2, "{told}");
    let told = kept.apply();
    assert!(told.out.contains("epoch 2"), "{told:?}");
    // What is left there goes on for a while.
    eventually("it is out of use", || !kept.serves("n2"));
    parts.remove(1).end().succeeded();
    parts.push(kept.machines.part("node", "n2"));
    let served = || metrics(kept.machines.cluster.node_admin(1))["sidelong_node_served_requests_total"];
    eventually("it serves where it is now", || kept.serves("n2") && served() > 0.0);
    assert_eq!(load.end(), Vec::<String>::new());

    // Before one that has the board goes, another one has it.
    let node = &mut kept.machines.cluster.file.nodes[0];
    node.fabric_listen = Some(kept.machines.others[1].at(FABRIC + 20));
    let told = kept.apply();
    assert!(told.err.contains("n2 is to have the board in place of n1"), "{told:?}");
    assert!(told.succeeded().contains("epoch 5"));
    parts.remove(0).end().succeeded();
    parts.push(kept.machines.part("node", "n1"));
    eventually("it serves where it is now", || kept.serves("n1"));
    kept.machines.await_move();
}

/// By the board all move nodes.
#[test]
fn the_board_goes_to_another_node() {
    let Some(mut kept) = Kept::new(1) else { return };
    let mut parts = kept.serving();
    kept.ask(&["move", "n3", "alpha"]).succeeded();
    let told = kept.ask(&["leave", "n1"]);
    assert!(told.err.contains("n2 is to have the board in place of n1"), "{told:?}");
    told.succeeded();
    parts.remove(0).finish().succeeded();

    // One that may have it still keeps it.
    let file = &mut kept.machines.cluster.file;
    file.nodes.remove(0);
    file.sites[1].nodes = 1;
    let go = |kept: &mut Kept, node: usize| {
        let elsewhere = kept.machines.others[0].at(FABRIC + 20);
        let before = kept.machines.cluster.file.nodes[node].fabric_listen.replace(elsewhere);
        let done = kept.apply();
        kept.machines.cluster.file.nodes[node].fabric_listen = before;
        done
    };
    let holder = parts.remove(0);
    holder.signal(Signal::STOP);
    let refused = go(&mut kept, 0).refused();
    assert!(refused.contains("n2 has the board and does not answer"), "{refused}");
    holder.kill();
    let status = || kept.ask(&["status"]).succeeded();
    eventually("a person is told", || {
        status().contains(": n2 has it, start that; or, if nothing of it is left")
    });
    until_it_succeeds(|| kept.ask(&["remove", "n2", "--lost"]));
    let is_read = || !status().contains("the board cannot be read");
    eventually("it is read again", is_read);
    let refused = go(&mut kept, 1).refused();
    assert!(refused.contains("n3 has the board, by which all move nodes, and no other node"), "{refused}");
    // The one that was lost begins without it.
    parts.push(kept.machines.part("node", "n2"));
    eventually("it serves", || kept.serves("n2"));
    kept.machines.await_move();
}

/// As a pod that is made anew: its name stays, and its address does not.
#[test]
fn a_host_that_means_another_address_is_followed() {
    let Some(kept) = Kept::begun(1) else { return };
    let Some(hosts) = HostsFile::new(&kept.machines.cluster) else { return };
    let machines = &kept.machines;
    let [first, old] = [0, 1].map(|node| machines.cluster.file.nodes[node].listen.unwrap().ip());
    let new = machines.others[0].at(1).ip();
    // One has an address of IPv6 alone.
    let free = || TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
    let third = machines.cluster.file.nodes[2].listen.unwrap();
    let third = free().map_or_else(
        |error| {
            skipped(&format!("names of hosts: of IPv6: ::1 cannot be bound: {error}"));
            third.ip()
        },
        |free| free.ip(),
    );
    let at_first = format!("{first} n1.test\n{third} n3.test\n");
    let [at_old, at_new] = [old, new].map(|second| format!("{at_first}{second} n2.test\n"));
    let whole = machines.whole();
    let mut text = fs::read_to_string(&whole).unwrap();
    for node in &machines.cluster.file.nodes {
        for address in [node.listen.unwrap(), node.fabric_listen.unwrap()] {
            let port =
                if node.name == "n3" && third.is_ipv6() { free().unwrap().port() } else { address.port() };
            text = text.replace(&address.to_string(), &format!("{}.test:{port}", node.name));
        }
    }
    hosts.write(&at_first);
    fs::write(&whole, text).unwrap();
    let init = || hosts.start(&["cluster", "init", whole.to_str().unwrap()]).finish();
    eventually("a file whose hosts are not found is refused", || {
        let refused = init().refused();
        refused.contains(r#"host "n2.test" is not found"#)
    });
    hosts.write(&at_old);
    until_it_succeeds(init);
    let part = |kind: &str, name: &str| {
        let config = machines.config(name);
        hosts.start(&[kind, name, "--config", config.to_str().unwrap()])
    };
    let mut parts: Vec<_> = [("node", "n1"), ("node", "n2"), ("node", "n3"), ("edge", "edge1")]
        .map(|(kind, name)| part(kind, name))
        .into();
    eventually("both sites answer", || machines.answers("alpha") && machines.answers("beta"));
    // While it is not found, parts start, and others go on by what it was.
    hosts.write(&at_first);
    parts.remove(2).kill();
    parts.push(part("node", "n3"));
    let served = |node: usize| {
        let admin = machines.cluster.node_admin(node);
        let is_there = try_get(admin, "any", "/metrics").is_ok();
        is_there && metrics(admin)["sidelong_node_served_requests_total"] > 0.0
    };
    // It takes its machine's load for its own, because it does not know that another node is there, and so gets few requests.
    let is_read = |name: &str| {
        machines.metric(&format!("sidelong_edge_record_age_seconds{{node=\"{name}\"}}")) < 0.5
            && kept.serves(name)
    };
    let is_back = || try_get(machines.cluster.node_admin(2), "any", "/metrics").is_ok() && is_read("n3");
    eventually("it serves", || is_back() && is_read("n2") && machines.answers("beta"));
    let refused = part("node", "n2").finish().refused();
    assert!(refused.contains("a host that n2 must know is not found"), "{refused}");

    let load = kept.load();
    parts.remove(1).end().succeeded();
    hosts.write(&at_new);
    parts.push(part("node", "n2"));
    eventually("it serves where it is now", || served(1));
    assert_eq!(load.end(), Vec::<String>::new());
    assert_eq!(kept.epochs(), [1.0; 4]);

    // So is the node that has the board, once it is there.
    parts.remove(0).kill();
    let elsewhere = machines.others[1].at(1).ip();
    hosts.write(&format!("{elsewhere} n1.test\n{new} n2.test\n{third} n3.test\n"));
    parts.push(part("node", "n1"));
    eventually("it serves where it is now", || kept.serves("n1") && machines.answers("alpha"));
    machines.await_move();
}

#[test]
fn an_edge_begins_while_the_board_is_away() {
    let Some(mut kept) = Kept::new(1) else { return };
    let state = kept.machines.cluster.path("state");
    fs::create_dir(&state).unwrap();
    kept.machines.own_state_dir = Some(state);
    let mut parts = kept.serving();
    parts.remove(0).kill();
    parts.pop().unwrap().end().succeeded();
    parts.push(kept.machines.part("edge", "edge1"));
    // Of the other site the only node is away.
    eventually("it serves", || kept.machines.answers("beta"));
    // Its machine restarts.
    parts.pop().unwrap().kill();
    fs::remove_dir_all(kept.machines.cluster.path("edge1").join("run")).unwrap();
    parts.push(kept.machines.part("edge", "edge1"));
    eventually("it serves again", || kept.machines.answers("beta"));
    let told = kept.ask(&["status"]).succeeded();
    for line in ["the board cannot be read, so that no node moves", "alpha has no node that answers"] {
        assert!(told.contains(line), "{line}: {told}");
    }
    parts.push(kept.machines.part("node", "n1"));
    eventually("all is well", || kept.machines.answers("alpha"));
}

/// A person whose editor is a script.
fn edit_by(kept: &Kept, editor: &Path) -> Done {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidelong"));
    command.args(["cluster", "edit", "--config"]).arg(kept.config());
    command.env("EDITOR", format!("sh {}", editor.display())).env_remove("VISUAL");
    Running::start_command(command).finish()
}

#[test]
fn it_goes_on_without_etcd_and_gives_back_what_etcd_has_lost() {
    let Some(mut kept) = Kept::new(1) else { return };
    let mut parts = kept.serving();
    kept.machines.cluster.file.limits.retries = 3;
    kept.apply().succeeded();
    kept.etcd.kill(0);
    let load = kept.load();
    eventually("it is known", || kept.said("n2").contains("etcd"));
    assert_eq!(load.end(), Vec::<String>::new());

    // A part starts by what its machine knows.
    parts.remove(1).kill();
    let again = kept.machines.part("node", "n2");
    let admin = kept.machines.cluster.node_admin(1);
    eventually("it is back", || try_get(admin, "any", "/metrics").is_ok());
    assert_eq!(kept.epochs(), [2.0; 4]);
    parts.push(again);
    let refused = kept.apply().refused();
    assert!(refused.contains("no etcd endpoint can be used"), "{refused}");

    let told = run(["status", "--config", kept.machines.config("n2").to_str().unwrap()]).succeeded();
    assert!(told.contains("the parts go on by what they know: no etcd endpoint"), "{told}");
    let admin = kept.machines.cluster.node_admin(1);
    let lacks = || metrics(admin)["sidelong_config_lacks_etcd"];
    assert_eq!(lacks(), 1.0);

    // Its data is gone.
    let load = kept.load();
    kept.etcd.wipe(0);
    kept.etcd.begin(0);
    eventually("it is known", || kept.said("n2").contains("sidelong cluster restore"));
    // On a machine where no part runs nobody takes that for a cluster that is new.
    let refused = until_it_answers(|| kept.apply());
    assert!(
        refused.contains("etcd has no cluster") && refused.contains("sidelong cluster restore"),
        "{refused}"
    );
    let refused = kept.init().refused();
    assert!(refused.contains("the parts go by epoch 2"), "{refused}");
    let told = until_it_succeeds(|| kept.restore("n1"));
    assert!(told.contains("epoch 1002"), "{told}");
    eventually("all go by it", || kept.epochs() == [1002.0; 4]);
    eventually("nothing is wrong", || kept.said("n2").is_empty() && lacks() == 0.0);
    let refused = kept.restore("n1").refused();
    assert!(refused.contains("etcd has lost nothing"), "{refused}");

    // It is older than what the parts go by, as are etcd's revisions: a backup was restored.
    kept.etcd.kill(0);
    kept.etcd.back_up(0);
    kept.etcd.begin(0);
    kept.machines.cluster.file.limits.retries = 2;
    until_it_succeeds(|| kept.apply());
    assert_eq!(kept.epochs(), [1003.0; 4]);
    kept.etcd.kill(0);
    kept.etcd.restore(0);
    kept.etcd.begin(0);
    let refused = until_it_answers(|| kept.apply());
    assert!(
        refused.contains("etcd has an older file (epoch 1002), and the parts go by epoch 1003"),
        "{refused}"
    );
    eventually("it is known", || kept.said("n2").contains("etcd has an older file"));
    let told = kept.ask(&["status"]).succeeded();
    assert!(told.contains("etcd has an older file"), "{told}");
    assert_eq!(load.end(), Vec::<String>::new());
    // A part that starts with nothing at hand does not go by it either.
    parts.pop().unwrap().kill();
    fs::remove_dir_all(kept.machines.cluster.path("n2").join("run")).unwrap();
    parts.push(kept.machines.part("node", "n2"));
    eventually("it is back", || try_get(admin, "any", "/metrics").is_ok());
    assert_eq!(kept.epochs(), [1003.0; 4]);
    until_it_succeeds(|| kept.restore("n3"));
    eventually("all go by it", || kept.epochs() == [2003.0; 4]);
}

#[test]
fn a_machine_that_restarts_without_etcd_has_kept_its_file() {
    let Some(mut kept) = Kept::new(1) else { return };
    let state = kept.machines.cluster.path("state");
    fs::create_dir(&state).unwrap();
    // It is the machine's own file that says so.
    kept.machines.own_state_dir = Some(state);
    let mut parts = kept.serving();
    kept.machines.cluster.file.limits.retries = 3;
    kept.apply().succeeded();
    kept.etcd.kill(0);
    parts.remove(1).kill();
    fs::remove_dir_all(kept.machines.cluster.path("n2").join("run")).unwrap();
    let _again = kept.machines.part("node", "n2");
    let admin = kept.machines.cluster.node_admin(1);
    eventually("it is back", || try_get(admin, "any", "/metrics").is_ok());
    assert_eq!(kept.epochs(), [2.0; 4]);
}

/// The reason why a command fails, once etcd answers.
fn until_it_answers(mut command: impl FnMut() -> Done) -> String {
    let mut refused = String::new();
    eventually("etcd answers", || {
        refused = command().refused();
        !refused.contains("no etcd endpoint")
    });
    refused
}

impl Kept {
    /// What is wrong with etcd, as a machine says.
    fn said(&self, machine: &str) -> String {
        let place = self.machines.cluster.path(machine).join("run/roster/etcd.trouble");
        fs::read_to_string(place).unwrap_or_default()
    }
}

#[test]
fn what_cannot_be_used_is_refused_by_name() {
    let Some(kept) = Kept::new(1) else { return };
    let refused = kept.init().refused();
    assert!(refused.contains("already") && refused.contains("sidelong cluster apply"), "{refused}");
    let refused = kept.machines.part("node", "n9").finish().refused();
    assert!(refused.contains("has no part n9"), "{refused}");

    // Another one, in the same etcd.
    let mut other = Machines::three();
    other.kept_by(&kept.etcd);
    other.cluster.file.cluster.name = "other".into();
    let whole = other.whole();
    let refused = other.part("node", "n1").finish().refused();
    assert!(refused.contains("etcd has no cluster other") && refused.contains("cluster init"), "{refused}");
    let apply = || run(["cluster", "apply", whole.to_str().unwrap()]);
    assert!(apply().refused().contains("etcd has no cluster other"));
    run(["cluster", "init", whole.to_str().unwrap()]).succeeded();
    apply().succeeded();

    // As comments count, too.
    let text = fs::read_to_string(&whole).unwrap();
    fs::write(&whole, text + &"# a long story\n".repeat(60_000)).unwrap();
    let refused = apply().refused();
    assert!(refused.contains("1.5 MB") && refused.contains("comments"), "{refused}");

    other.cluster.file.edges[0].access_log = Some("access.log".into());
    other.whole();
    let refused = apply().refused();
    assert!(refused.contains("relative path"), "{refused}");
}

/// What a cluster of one machine has left in the run directory is none of its business, whichever epoch it had.
#[test]
fn a_machine_goes_over_to_it_from_a_cluster_of_its_own() {
    let Some(mut kept) = Kept::begun(1) else { return };
    until_it_succeeds(|| kept.init());
    let run_dir = kept.machines.config("n1").with_file_name("run");
    let mut one = Cluster::new(&[("alpha", 1), ("gamma", 1)]);
    one.file.cluster.run_dir = Some(run_dir.clone());
    let node = one.part("node", "n1");
    eventually("it runs", || run_dir.join("n1.words.region").exists());
    one.run(&["reload", "--timeout", "60s"]).succeeded();
    let refused = kept.machines.part("node", "n1").finish().refused();
    assert!(refused.contains("parts of a cluster of one machine run"), "{refused}");
    node.end().succeeded();
    let _parts = kept.serving();
    assert_eq!(kept.epochs(), [1.0; 4]);
    kept.machines.cluster.file.limits.retries = 3;
    kept.apply().succeeded();
    assert_eq!(kept.epochs(), [2.0; 4]);
}

#[test]
fn without_an_authority_in_the_file_those_of_the_machine_are_trusted() {
    let mut machines = Machines::three();
    let names = format!("IP:{}", machines.cluster.at(1).ip());
    // What signs itself is no authority for others.
    let key = [ECDSA, &["-addext", "basicConstraints=critical,CA:FALSE"]].concat();
    let Some(own) = certificate_for(&machines.cluster, "etcd", &key, &names) else { return };
    let options = [("cert", &own.certificate), ("key", &own.key)]
        .map(|(what, file)| format!("--{what}-file={}", file.display()));
    let Some(etcd) = Etcd::start_tls(&machines.cluster, 1, &options.each_ref().map(String::as_str)) else {
        return;
    };
    machines.kept_by(&etcd);
    let whole = machines.whole();
    let init = |trusted: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidelong"));
        command.args(["cluster", "init"]).arg(&whole).env("SSL_CERT_FILE", trusted);
        Running::start_command(command).finish()
    };
    let refused = init(Path::new("/dev/null")).refused();
    assert!(refused.contains("check ca"), "{refused}");
    until_it_succeeds(|| init(&own.certificate));
}

#[test]
fn a_file_that_a_part_refuses_and_one_that_is_none_change_nothing() {
    let Some(mut kept) = Kept::new(1) else { return };
    let mut parts = kept.serving();
    kept.machines.cluster.file.edges[0].access_log = Some("/nonexistent/log".into());
    let refused = kept.apply().refused();
    assert!(refused.contains("nothing is changed") && refused.contains("edge1 refuses it"), "{refused}");
    let shown = kept.ask(&["cluster", "show"]).succeeded();
    assert!(!shown.contains("/nonexistent"), "{shown}");
    let refused = kept.ask(&["cluster", "rollback"]).refused();
    assert!(refused.contains("the cluster has never had another file"), "{refused}");
    assert!(kept.machines.answers("alpha"));

    let key = format!("/sidelong/{}/roster", kept.machines.cluster.file.cluster.name);
    kept.etcd.put(&key, "what somebody else wrote");
    eventually("it is told", || kept.said("n3").contains("is not sealed"));
    let refused = kept.apply().refused();
    assert!(refused.contains("somebody else has written the entry"), "{refused}");
    assert!(kept.machines.answers("alpha"));
    kept.restore("n3").succeeded();
    eventually("nothing is wrong", || kept.said("n3").is_empty());

    // Somebody has put another cluster by the same name there.
    let mut other = Kept::begun(1).expect("etcd is here");
    let (own, file) = (kept.etcd.get(&key), &mut other.machines.cluster.file);
    file.nodes.truncate(2);
    file.sites[1].nodes = 1;
    until_it_succeeds(|| other.init());
    kept.etcd.put(&key, &other.etcd.get(&key));
    eventually("it is told", || kept.said("n3").contains("another cluster by the name"));
    let refused = kept.restore("n3").refused();
    assert!(refused.contains("another cluster by the name"), "{refused}");
    // A machine without parts cannot tell. To it the file is another one, by which all parts would have to be started.
    let refused = kept.apply().refused();
    assert!(refused.contains("takes a stop of all parts"), "{refused}");
    let epochs = kept.epochs();
    parts.remove(0).kill();
    parts.push(kept.machines.part("node", "n1"));
    let admin = kept.machines.cluster.node_admin(0);
    eventually("it is back", || try_get(admin, "any", "/metrics").is_ok());
    assert_eq!(kept.epochs(), epochs);
    kept.etcd.put(&key, &own);
    eventually("nothing is wrong", || kept.said("n3").is_empty());
}

/// A proxy before etcd, which holds back what a watch hears.
fn holds_watches_back(listen: SocketAddr, etcd: SocketAddr) {
    let listener = TcpListener::bind(listen).unwrap();
    let serve = move |mut client: TcpStream| {
        let mut server = TcpStream::connect(etcd)?;
        let mut first = vec![0; 64 << 10];
        let count = client.read(&mut first)?;
        server.write_all(&first[..count])?;
        let (mut answers, mut asker) = (server.try_clone()?, client.try_clone()?);
        std::thread::spawn(move || {
            if first.starts_with(b"POST /v3/watch ") {
                // Of the answer it hands on the head.
                let head = read_head(&mut answers)?;
                asker.write_all(head.as_bytes())
            } else {
                io::copy(&mut answers, &mut asker).map(drop)
            }
        });
        io::copy(&mut client, &mut server)
    };
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || serve(client));
        }
    });
}

#[test]
fn behind_a_proxy_that_holds_watches_back_it_hears_of_a_file_a_little_later() {
    let Some(mut kept) = Kept::begun(1) else { return };
    let proxy = kept.machines.cluster.at(2_390);
    let etcd = kept.etcd.endpoints()[0].strip_prefix("http://").unwrap().parse().unwrap();
    holds_watches_back(proxy, etcd);
    kept.machines.cluster.file.etcd.as_mut().unwrap().endpoints = vec![format!("http://{proxy}")];
    until_it_succeeds(|| kept.init());
    let _parts = kept.serving();
    let is_told = || kept.said("n2").contains("a proxy between may hold its answers back");
    eventually("it is told", is_told);
    // It asks again and again, and says nothing else meanwhile.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(6) {
        assert!(is_told(), "{}", kept.said("n2"));
        std::thread::sleep(Duration::from_millis(50));
    }
    kept.machines.cluster.file.limits.retries = 3;
    let whole = kept.machines.whole();
    run(["cluster", "apply", whole.to_str().unwrap(), "--timeout", "60s"]).succeeded();
    assert_eq!(kept.epochs(), [2.0; 4]);
}

#[test]
fn a_machine_that_was_away_hears_of_it_from_the_others() {
    let Some(mut kept) = Kept::new(1) else { return };
    let mut parts = kept.serving();
    let (third, second) = (parts.remove(2), parts.remove(1));
    second.signal(Signal::STOP);
    third.signal(Signal::STOP);
    kept.machines.cluster.file.limits.retries = 3;
    let told = kept.apply();
    assert!(told.err.contains("no answer from n2, n3"), "{told:?}");
    assert!(told.succeeded().contains("epoch 2"));
    kept.etcd.kill(0);
    second.signal(Signal::CONT);
    eventually("it has it", || metrics(kept.machines.cluster.node_admin(1))["sidelong_config_epoch"] == 2.0);

    // Of one that does not come back a person must say so.
    kept.etcd.begin(0);
    let leave = || kept.ask(&["leave", "n3"]);
    eventually("etcd answers", || kept.ask(&["cluster", "show"]).code == Some(0));
    let refused = leave();
    assert!(refused.code == Some(2) && refused.err.contains("sidelong remove n3 --lost"), "{refused:?}");
    let told = until_it_succeeds(|| kept.ask(&["remove", "n3", "--lost"]));
    assert!(told.contains("nobody waits for n3"), "{told}");
    leave().succeeded();
    third.signal(Signal::CONT);
    third.finish().succeeded();
    assert!(kept.machines.answers("alpha"));
}

#[test]
fn its_secret_changes_while_it_runs() {
    let Some(kept) = Kept::new(1) else { return };
    let mut parts = kept.serving();
    let load = kept.load();
    // Written once: each further time would give the machine its first secret again.
    let desk = kept.config();
    let secret = |command: &str| run(["secret", command, "--config", desk.to_str().unwrap()]);
    let file = |machine: &str| kept.machines.cluster.path(machine).join("secret");
    let copy = |machine: &str| _ = fs::copy(file("desk"), file(machine)).unwrap();
    let told = secret("rotate").succeeded();
    assert!(told.contains("has the new secret"), "{told}");
    let refused = secret("rotate").refused();
    assert!(refused.contains("0 of 4 parts have the new secret"), "{refused}");
    // On another machine that is not begun a second time.
    let own = |machine: &str| kept.machines.cluster.path(machine).join("cluster.toml");
    copy("n2");
    eventually("one has it", || secret("show").succeeded().contains("1 of 4 parts have"));
    let refused = run(["secret", "rotate", "--config", own("n1").to_str().unwrap()]).refused();
    assert!(refused.contains("is being changed already"), "{refused}");
    ["n1", "n3"].into_iter().for_each(copy);
    eventually("all but the edge have it", || {
        let refused = secret("rotate").refused();
        refused.contains("3 of 4 parts") && refused.contains("edge1 has ") && !refused.contains("n1 has ")
    });
    copy("edge1");
    let told = until_it_succeeds(|| secret("rotate"));
    assert!(told.contains("all 4 parts have"), "{told}");

    // One machine knows the new one alone, and parts of others begin and ask.
    copy("n1");
    parts.remove(1).kill();
    let both = fs::read_to_string(file("n2")).unwrap();
    assert_eq!(both.lines().count(), 2);
    parts.push(kept.machines.part_with(&both, "node", "n2", &[]));
    eventually("it serves", || kept.serves("n2"));
    assert!(secret("show").succeeded().contains("another one counts at"));
    ["n2", "n3", "edge1"].into_iter().for_each(copy);
    let new = fs::read_to_string(file("desk")).unwrap();
    eventually("the old one counts nowhere", || {
        let told = secret("show").succeeded();
        told.contains("4 of 4 parts have") && !told.contains("another one")
    });
    let shown = run(["cluster", "show", "--history", "--config", desk.to_str().unwrap()]).succeeded();
    assert_eq!(shown.lines().count(), 1 + 1, "{shown}");

    // A machine that was away for all that.
    parts.remove(1).kill();
    let late = kept.machines.part_with(SECRET, "node", "n3", &[]);
    eventually("it is refused", || {
        late.err().contains("the secrets differ") || late.err().contains("not sealed")
    });
    let refused = run(["cluster", "restore", "--config", own("n3").to_str().unwrap()]).refused();
    assert!(refused.contains("refuses this machine"), "{refused}");
    let told = run(["status", "--config", desk.to_str().unwrap()]).succeeded();
    assert!(told.contains("n3 refuses this machine: the secrets differ"), "{told}");
    late.kill();
    parts.push(kept.machines.part_with(&new, "node", "n3", &[]));
    eventually("it serves", || kept.serves("n3"));
    assert_eq!(load.end(), Vec::<String>::new());
}

#[test]
fn an_edge_that_was_given_up_for_lost_ends_when_it_is_back() {
    let Some(kept) = Kept::new(1) else { return };
    let mut parts = kept.serving();
    let edge = parts.pop().unwrap();
    let refused = kept.ask(&["remove", "edge1", "--lost"]).refused();
    assert!(refused.contains("edge1 runs: end it"), "{refused}");
    let lit = || kept.etcd.has(&format!("/sidelong/{}/lamp/edge1", kept.machines.cluster.file.cluster.name));
    eventually("its machine says that it runs", lit);
    edge.signal(Signal::STOP);
    let refused = kept.ask(&["remove", "edge1", "--lost"]).refused();
    assert!(refused.contains("has told etcd within the last 30 s that it runs"), "{refused}");
    let told = kept.ask(&["status"]);
    assert!(told.err.contains("so that none moves: its machine"), "{told:?}");
    until_it_succeeds(|| kept.ask(&["remove", "edge1", "--lost"]));
    edge.signal(Signal::CONT);
    // Nodes may change sites without it.
    edge.finish().succeeded();
    let _edge = kept.machines.part("edge", "edge1");
    eventually("it belongs to the cluster again", || kept.machines.answers("alpha"));
}
