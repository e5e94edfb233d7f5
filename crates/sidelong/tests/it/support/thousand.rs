//! A thousand nodes on one machine: their servers are one nginx, and their agents' memory is written by the test.

use std::fmt::Write as _;
use std::process::Command;

use sidelong_config::Configuration;
pub use sidelong_harness::agents::Agents;

use super::{Cluster, Running, STALE_MAX, eventually, may_open, try_get};

pub const NODES: usize = 1_000;

/// All nodes at alpha but one, at beta; they move by no decision, and records stay fresh for a minute. For one front, without edges.
pub fn two_sites() -> Cluster {
    let mut cluster = Cluster::new(&[("alpha", NODES - 1), ("beta", 1)]).foreign();
    cluster.file.edges.clear();
    cluster.file.baseline.configuration = Configuration::Rigid;
    cluster.file.load.stale = STALE_MAX;
    cluster
}

/// Open files of a test with all nodes, and of nginx, by a wide margin: a connection is one, as are the regions of [`Agents`].
const OPEN: u64 = 4_096;

/// One nginx that answers at all nodes' addresses, and keeps connections.
pub fn servers(cluster: &Cluster) -> Running {
    assert!(may_open(OPEN), "a thousand nodes need {OPEN} descriptors");
    let directory = cluster.path("servers");
    std::fs::create_dir(&directory).unwrap();
    let mut listens = String::new();
    (0..NODES).for_each(|node| _ = writeln!(listens, "listen {};", cluster.node(node)));
    let text = format!(
        "daemon off;\npid {0}/pid;\nerror_log stderr;\nevents {{ worker_connections 4096; }}\nhttp {{\naccess_log off;\n\
         server {{\n{listens}return 200;\n}}\n}}\n",
        directory.display()
    );
    let file = directory.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&directory).arg("-c").arg(file).args(["-e", "stderr"]);
    let servers = Running::start_command(command);
    eventually("the servers answer", || {
        try_get(cluster.node(NODES - 1), "alpha.test", "/").is_ok_and(|reply| reply.status == 200)
    });
    servers
}

/// The memory of all nodes' agents. The front runs: it has written the roster.
pub fn agents(cluster: &Cluster) -> Agents {
    eventually("there is a board", || cluster.regions().iter().any(|name| name.starts_with("board-")));
    Agents::expose(cluster.current().unwrap()).unwrap()
}
