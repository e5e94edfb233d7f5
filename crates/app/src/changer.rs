//! The thread by which a node runs the commands of sites: it watches the node's ownership, and says how a change ended.

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use sidelong_config::{Cluster, Node, Site};
use sidelong_edge::Counts;
use sidelong_fabric::Region;
use sidelong_layout::{Change, ChangeResult, LOAD_ACK, NodeState, SiteId, WORDS_OWNERSHIP};
use sidelong_os::Worker;
use sidelong_state::Pool;

use crate::failure::Failure;
use crate::parts::Parts;
use crate::site_change::{Commands, Ready, SiteCommands};

/// Between two looks at the ownership: short beside what a command takes.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Runs until it is dropped; a command that runs then is ended.
pub(crate) struct Changer {
    ends: Arc<Ends>,
    _worker: Worker,
}

/// The sites as a node knows them, which may change meanwhile, and their commands.
pub(crate) struct Sites(ArcSwap<Known>);

struct Known {
    commands: Commands,
    pool: Pool,
}

impl Sites {
    /// For a node whose commands `runner` becomes.
    pub(crate) fn of(parts: &Parts, node: &Node, runner: Vec<OsString>) -> Arc<Self> {
        let commands = commands(&parts.cluster, node, runner);
        Arc::new(Sites(ArcSwap::from_pointee(Known { commands, pool: parts.pool() })))
    }

    /// Goes by others from now on. A change that has begun ends by those that it began with.
    pub(crate) fn replace(&self, parts: &Parts, node: &Node) {
        let commands = commands(&parts.cluster, node, self.0.load().commands.runner.clone());
        self.0.store(Arc::new(Known { commands, pool: parts.pool() }));
    }
}

/// How many changes ended in each way.
#[derive(Default)]
struct Ends {
    changed: AtomicU64,
    undone: AtomicU64,
    failed: AtomicU64,
}

impl Changer {
    /// For a node with the ownership in `words` and the acknowledgements in `load`. `None` if no site has commands.
    ///
    /// # Errors
    /// If the thread cannot start.
    pub(crate) fn start(
        parts: &Parts,
        sites: Arc<Sites>,
        words: Region,
        load: Region,
    ) -> Result<Option<Self>, Failure> {
        if !parts.cluster.has_commands() {
            return Ok(None);
        }
        let ends = Arc::<Ends>::default();
        let mut work = Work { sites, words, load, ends: Arc::clone(&ends), runs: None, last: None };
        let worker = Worker::start("changer", move |stop| work.run(stop))?;
        Ok(Some(Changer { ends, _worker: worker }))
    }

    /// Its counters, for the node's metrics.
    pub(crate) fn counts(&self) -> Counts {
        let ends = Arc::clone(&self.ends);
        Counts {
            name: "changes",
            help: "Changes of sites, by how they ended: changed, undone (the old site runs again), failed",
            label: "end",
            read: Box::new(move || {
                let Ends { changed, undone, failed } = &*ends;
                [("changed", changed), ("undone", undone), ("failed", failed)]
                    .map(|(end, count)| (end, count.load(Ordering::Relaxed)))
                    .into()
            }),
        }
    }
}

/// The commands of the file.
fn commands(cluster: &Cluster, node: &Node, runner: Vec<OsString>) -> Commands {
    let site = |site: &Site| SiteCommands {
        name: site.name.clone(),
        on_enter: site.on_enter.clone(),
        on_leave: site.on_leave.clone(),
    };
    Commands {
        runner,
        node: node.name.clone(),
        sites: cluster.sites.map(site).to_vec(),
        ready: node.ready.clone().map(|ready| Ready {
            addresses: (0..cluster.sites.len()).map(|site| node.address(site).clone()).collect(),
            path: ready.path,
            status: ready.status,
            timeout: ready.timeout,
        }),
        command_max: cluster.reconfig.command_max,
    }
}

struct Work {
    sites: Arc<Sites>,
    words: Region,
    load: Region,
    ends: Arc<Ends>,
    /// The site that runs on the node; `None` if that is not known.
    runs: Option<SiteId>,
    /// The last answer.
    last: Option<Change>,
}

impl Work {
    fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            self.look(stop);
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Changes sites if the ownership says so, and says how that ended. An answer is stored again should the keeper of the record
    /// have overwritten it by an acknowledgement of what was before.
    fn look(&mut self, stop: &AtomicBool) -> Option<()> {
        let word = self.word();
        let known = self.sites.0.load_full();
        let own = known.pool.ownership(word).filter(|own| own.state == NodeState::Changing)?;
        let answer = match self.last.filter(|last| last.generation == own.generation) {
            Some(last) => last,
            None => {
                let runs = self.runs.take();
                let (from, to) = (own.site.or(runs), own.next?);
                // Nobody waits any more for what was begun under another ownership.
                let result = known
                    .commands
                    .change(from, to, &|| stop.load(Ordering::Relaxed) || self.word() != word)?;
                self.runs = match result {
                    ChangeResult::Changed => Some(to),
                    ChangeResult::Undone(_) => from,
                    ChangeResult::Failed(_) => None,
                };
                let count = match result {
                    ChangeResult::Changed => &self.ends.changed,
                    ChangeResult::Undone(_) => &self.ends.undone,
                    ChangeResult::Failed(_) => &self.ends.failed,
                };
                count.fetch_add(1, Ordering::Relaxed);
                Change { generation: own.generation, result }
            }
        };
        self.last = Some(answer);
        // Not over what the keeper has acknowledged since.
        if self.load.load(LOAD_ACK) != answer.encode() && self.word() == word {
            self.load.store(LOAD_ACK, answer.encode(), Ordering::Release);
        }
        Some(())
    }

    fn word(&self) -> u64 {
        self.words.load(WORDS_OWNERSHIP)
    }
}
