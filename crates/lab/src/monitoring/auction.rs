//! The auction of MT1, M7 and M8: `up --demo auction` on nodes held to shares of a CPU, of which some have other work to do.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sidelong_config::{
    Balance, ClusterFile, EdgeEntry, Ganglia, Identity, Load, NodeEntry, RateEntry, Scheme, SiteEntry,
};
use sidelong_workload::walk;

use super::pool::keep_still;
use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::groups::Added;
use crate::setup::Ground;
use crate::up::Summary;

/// Nodes. Every other one has other work to do.
const NODES: usize = 4;
const EDGES: u16 = 2;
/// CPUs of each node.
const SHARE: f64 = 0.25;
const WORKERS: u16 = 2;
/// T in Vaidyanathan et al. 2006, section 5, which is also the interval of its front end.
pub(super) const PERIOD: Duration = Duration::from_millis(50);
/// An agent publishes what it knows of its server at a fifth of this: at T.
const STALE: Duration = Duration::from_millis(250);
/// Rates of the files when they rise and at rest, in requests/s for each person, and how long each holds.
const FILES_PER_S: [f64; 2] = [5.0, 0.2];
const FILES_TURN: Duration = Duration::from_secs(5);
/// Time to make the data, and to start and end a run.
pub(super) const START: Duration = Duration::from_secs(10);

/// What balances the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum System {
    /// Edges, which read the load by a scheme.
    Edges(Scheme),
    /// nginx, controlled by fronts that read it by rdma-sync.
    Nginx,
}

impl System {
    pub(super) const fn scheme(self) -> Scheme {
        match self {
            System::Edges(scheme) => scheme,
            System::Nginx => Scheme::RdmaSync,
        }
    }

    /// The paper's front end chooses by the last scan; a front that controls another proxy cannot.
    const fn balance(self) -> Balance {
        match self {
            System::Edges(_) => Balance::LastLook,
            System::Nginx => Balance::Weighted,
        }
    }

    pub(super) fn word(self) -> String {
        match self {
            System::Edges(scheme) => scheme.to_string(),
            System::Nginx => "nginx".to_owned(),
        }
    }
}

/// A run of the auction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Auction {
    pub(super) system: System,
    /// Time between two scans.
    pub(super) granularity: Duration,
    pub(super) persons: u32,
    /// Busy processes on each node that has other work.
    pub(super) background: u32,
    /// Half of the nodes serve static files instead, whose popularity has this exponent of Zipf's law.
    pub(super) files_alpha: Option<f64>,
    /// The gmond that gets the figures of every scan.
    pub(super) gmond: Option<SocketAddr>,
    pub(super) time: Duration,
}

impl Auction {
    pub(super) fn run(&self, bench: &Bench<'_>, name: &str) -> Result<(Summary, walk::Summary)> {
        let Auction { system, granularity, persons, background, .. } = *self;
        let about = format!(
            "{}, scans every {} ms, {persons} persons, and {background} busy processes that the lab adds to the control group of \
             every other node, as it does its agent to each",
            system.word(),
            granularity.as_millis(),
        );
        let (persons, time) = (persons.to_string(), format!("{}ms", self.time.as_millis()));
        let mut with = vec!["--demo", "auction", "--sessions", &persons, "--for", &time];
        if system == System::Nginx {
            with.extend(["--front", "nginx"]);
        }
        let file = self.cluster_file(&bench.ground);
        let listen = file.edges[file.edges.len() - 1].listen;
        let background: [u32; NODES] = std::array::from_fn(|node| if node % 2 == 0 { background } else { 0 });
        let summary = bench.up_beside(&with, name, &about, &file, self.time + START, |up| {
            Added::to(up, bench, listen, &background, self.time)
        })?;
        match summary.walk.clone() {
            Some(walk) => Ok((summary, walk)),
            None => {
                let path = bench.path(&format!("runs/{name}.json"));
                Err(Error::Output { path, found: "a summary without a walk".to_owned() })
            }
        }
    }

    fn cluster_file(&self, ground: &Ground) -> ClusterFile {
        let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, ground.port + offset));
        let edge = |i: u16| EdgeEntry {
            admin: Some(at(EDGES + i)),
            ..EdgeEntry::new(format!("edge{}", i + 1), at(i))
        };
        let site = |name: &str, nodes: usize, alpha| SiteEntry {
            alpha,
            ..SiteEntry::new(name, format!("{name}.example"), nodes)
        };
        let sites = match self.files_alpha {
            None => vec![site("auction", NODES, None)],
            alpha => {
                let files = SiteEntry { rates: self.file_rates(), ..site("files", NODES / 2, alpha) };
                vec![site("auction", NODES / 2, None), files]
            }
        };
        let mut file = ClusterFile {
            cluster: Identity { name: ground.name.clone(), ..Identity::default() },
            load: Load {
                period: PERIOD,
                proc_period: PERIOD,
                stale: STALE.max(5 * self.granularity),
                ..Load::default()
            },
            sites,
            nodes: vec![NodeEntry {
                workers: Some(WORKERS),
                cpu_share: Some(SHARE),
                ..NodeEntry::new("n", NODES, at(2 * EDGES))
            }],
            edges: (0..EDGES).map(edge).collect(),
            ganglia: Ganglia {
                gmond: self.gmond,
                edge: self.gmond.map(|_| "edge1".to_owned()),
                period: self.granularity,
                ..Ganglia::default()
            },
            ..ClusterFile::default()
        };
        file.set_balance(self.system.balance());
        file.set_scheme(self.system.scheme());
        keep_still(&mut file, self.granularity);
        file
    }

    /// Rates of the files, which rise and rest by turns, alike for each system.
    fn file_rates(&self) -> Vec<RateEntry> {
        let turns = self.time.as_secs().div_ceil(FILES_TURN.as_secs()) as usize;
        let per_s = FILES_PER_S.into_iter().cycle().map(|per_s| per_s * f64::from(self.persons));
        let turn = |(turn, per_s)| RateEntry { at: FILES_TURN * turn, per_s };
        (0..).zip(per_s.take(turns)).map(turn).collect()
    }
}

/// The set-up in a sentence.
pub(super) fn describe() -> String {
    format!(
        "The auction of `up --demo auction`, on {NODES} gunicorns of {WORKERS} synchronous workers that do not move, each with its \
         agent in a control group with {SHARE} of a CPU (20 ms periods), behind {EDGES} proxies; SQLite; persons with RUBiS's \
         transitions and a fifth of its think times; other work on every other node; T = {} ms; a request goes to the \
         node whose load index was the least at the last scan, as in the paper.",
        PERIOD.as_millis()
    )
}
