//! The arguments of `sidelong up`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sidelong_config::Fabric;
use sidelong_workload::walk::AT_ONCE_MAX;

use sidelong_harness::up::{By, Demo, FrontMake, Make, Options};

use crate::duration::duration;

#[derive(Args)]
#[command(after_help = UP_END)]
pub(crate) struct UpArgs {
    /// Cluster file [default: that of `sidelong config demo`: 8 nodes, 3 sites and 2 edges on loopback].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Override `cluster.fabric` (auto, shm, tcp, verbs).
    #[arg(long, value_name = "FABRIC")]
    pub(crate) fabric: Option<Fabric>,
    /// Run a demonstration: its sites, servers, data and load. With --config, on the nodes of that file, which has a site auction and may
    /// have sites files and api.
    #[arg(long, value_name = "DEMO", conflicts_with_all = ["servers", "cache"])]
    pub(crate) demo: Option<Demo>,
    /// With --demo, where its data is: an SQLite file, or postgres://USER@HOST/NAME [default: a file that is made, and removed at the end].
    #[arg(long, value_name = "DATABASE", requires = "demo")]
    pub(crate) database: Option<String>,
    /// With --demo, persons who walk the auction; the load on its other sites grows with them. 0 sends no load.
    #[arg(long, value_name = "N", requires = "demo", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=i64::from(AT_ONCE_MAX)))]
    pub(crate) sessions: u32,
    /// Run unmodified servers in place of the built-in origin, each in a control group with a share of CPU. The file's nodes keep
    /// their addresses; for gunicorn also their workers and service times.
    #[arg(long, value_name = "MAKE")]
    pub(crate) servers: Option<Make>,
    /// Run a proxy of another make in place of each edge, at the edge's address, with a front that controls it; or none (connect).
    #[arg(long, value_name = "MAKE")]
    pub(crate) front: Option<FrontMake>,
    /// Who chooses the server of a request behind `--front`.
    #[arg(long, value_name = "WHO", default_value = "sidelong", requires = "front")]
    pub(crate) by: By,
    /// Put a load on the caches of the file: gets and sets by Zipf's law. If it has none, add three.
    #[arg(long)]
    pub(crate) cache: bool,
    /// Stop after this time (500ms, 30s, 1h30m).
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Print one JSON summary at the end and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the nodes and busy nodes of each site over time to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) samples: Option<PathBuf>,
    /// Write the outcome of each request of the load generator to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) requests: Option<PathBuf>,
    /// Print lines instead of a live screen, even on a terminal.
    #[arg(long)]
    pub(crate) plain: bool,
}

const UP_END: &str = "\
Ctrl-C, q, SIGTERM or the end of the terminal stop it: requests in flight are answered, and a summary is printed.

Examples:
  sidelong up
  sidelong up --for 30s --json
  sidelong up --demo auction
  sidelong up --servers gunicorn --front nginx
  sidelong up --cache
  sidelong up --config cluster.toml --fabric tcp
  sidelong up --servers gunicorn
  sidelong up --for 1m --plain --samples nodes.csv --requests requests.csv";

impl UpArgs {
    /// What is run besides what the cluster file says.
    pub(super) fn options(&self, is_quiet: bool) -> Options {
        let UpArgs { demo, sessions, servers, front, by, cache, .. } = *self;
        let (database, samples, requests) =
            (self.database.clone(), self.samples.clone(), self.requests.clone());
        Options { demo, database, sessions, servers, front, by, cache, samples, requests, is_quiet }
    }
}
