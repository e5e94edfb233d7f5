//! What a front reads of others, for fuzzing: HAProxy's replies, the counts of a proxy's workers, and the shares of other edges.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Directory as _, Host, Initiator, Region, RunDirectory};
use sidelong_layout::{
    ChoiceMap, HEADER_BYTES, Instance, NodeId, Ownership, ShareMap, SiteId, Time, WorkersMap,
};
use sidelong_policy::admission::{Client, Promise, Request, Target};
use sidelong_policy::balance::Balance;
use sidelong_policy::health::HealthSettings;
use sidelong_policy::index::Reading;

use crate::adapters::Adapter as _;
use crate::adapters::haproxy::protocol;
use crate::adapters::memory::{AdapterCluster, MemoryAdapter};
use crate::gate::Gate;
use crate::peers::{Exchange, Peers, Thread, expose_share};
use crate::view::View;

/// Reads `bytes` as the replies to so many commands, and those and the whole as each kind of reply. Returns the servers that were
/// read in the whole.
pub fn haproxy(bytes: &[u8], commands: usize) -> usize {
    let read = |reply: &str| {
        let _ = protocol::process(reply);
        protocol::servers(reply).map_or(0, |servers| servers.len())
    };
    let replies = protocol::replies(bytes, &vec!["del server be/one"; commands]).unwrap_or_default();
    replies.iter().for_each(|reply| _ = read(reply));
    read(&String::from_utf8_lossy(bytes))
}

const NODES: usize = 3;
const SITES: usize = 2;
const STALE: Duration = Duration::from_millis(150);
const WORKERS: WorkersMap = WorkersMap { nodes: NODES };
const SHARE: ShareMap = ShareMap { slots: if NODES > SITES { NODES } else { SITES } };

/// Between two scans: milliseconds, and what others then write, each word at its place behind the header.
pub type Written = (u8, Vec<(u16, u64)>);

/// A front's memory, of which others write a part.
struct Bench {
    _directory: tempfile::TempDir,
    front: Arc<View>,
    gate: Arc<Gate>,
    now: Time,
    adapter: MemoryAdapter,
    /// Words that a proxy's workers write, and the words of another edge.
    workers: Region,
    share: Region,
    thread: Thread,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is a directory");
        let now = Time::from_ns(1_000_000_000);
        let view = View::new(NODES, SITES, STALE, Balance::LeastConnections, HealthSettings::default());
        for node in (0..NODES).map(NodeId::new) {
            let serving = Ownership::serving(SiteId::new(node.index() % SITES), 1);
            view.observe(node, Some(serving), Reading::default());
        }
        view.relist();
        let cluster = AdapterCluster {
            room: ChoiceMap { nodes: NODES, sites: SITES, servers: 0 },
            sites: ["alpha", "beta"].map(str::to_owned).into_iter().collect(),
            servers: Vec::new(),
            stale: STALE,
            rotation: Duration::from_secs(10),
            balance: Balance::LeastConnections,
            drain_max: Duration::from_secs(1),
            has_controlled: false,
        };
        let host = Host::Shm(ShmHost::new(directory.path()));
        let exposed = MemoryAdapter::regions(&host, "front", &cluster, Instance::alone(1));
        let (regions, is_new) = exposed.expect("it is exposed");
        let workers = regions[1].clone();
        let exposes = Box::new(move || Ok((regions.clone(), is_new)));
        let adapter = MemoryAdapter::exposed_by(exposes, &cluster, now).expect("it is exposed");
        let share = expose_share(&host, "other", SHARE, Instance::alone(1)).expect("it is exposed");
        let run = RunDirectory::open(directory.path()).expect("it is there");
        run.publish(share.key()).expect("it is published");
        let promise = Promise { target: Some(Target::Queue(Duration::from_millis(9))), share: 0.5 };
        let gate = Arc::new(Gate::new(&[promise; SITES], Duration::from_secs(30), STALE, 1));
        let front = Arc::new(view);
        let thread = Thread::new(Exchange {
            view: Arc::clone(&front),
            gate: Some(Arc::clone(&gate)),
            peers: Arc::new(Peers::new(["other".to_owned()])),
            room: 1,
            share: None,
            directory: Arc::new(run),
            initiator: Initiator::new(),
            period: Duration::from_millis(1),
        });
        Bench { _directory: directory, front, gate, now, adapter, workers, share, thread }
    }

    /// Routes a request of each site as far as the view goes.
    fn route(&self) {
        for site in (0..SITES).map(SiteId::new) {
            let client = Client::new(([192, 0, 2, 1], 5000).into());
            let _ = self.gate.decide(
                0,
                site,
                client,
                Request::default(),
                self.now,
                self.front.is_stale(self.now),
            );
            if let Some(node) = self.front.choose(site, None, self.now) {
                assert_eq!(self.front.ownership(node).and_then(Ownership::serving_site), Some(site));
            }
        }
        for node in (0..NODES).map(NodeId::new) {
            let _ = (self.front.traffic(node, self.now), self.front.in_flight_of_all(node, self.now));
        }
    }
}

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench::new());
}

fn write(region: &Region, bytes: usize, words: &[(u16, u64)]) {
    for (place, word) in words {
        let at = HEADER_BYTES + usize::from(*place) * 8 % (bytes - HEADER_BYTES);
        region.store(at, *word, Ordering::Relaxed);
    }
}

/// Counts as a proxy's workers, or whoever may write their memory, may leave them.
pub fn workers(scans: &[Written]) {
    BENCH.with_borrow_mut(|bench| {
        for (after_ms, words) in scans {
            bench.now = bench.now.after(Duration::from_millis((*after_ms).into()));
            write(&bench.workers, WORKERS.len(), words);
            bench.adapter.count(&bench.front, &[], bench.now);
            bench.route();
            bench.adapter.show(&bench.front, Some(&bench.gate), bench.now);
            for node in (0..NODES).map(NodeId::new) {
                let _ = bench.adapter.front(&bench.front, node);
            }
        }
    });
}

/// What another edge may share. Its beat rises at each scan, so that it is believed.
pub fn shares(scans: &[Written]) {
    BENCH.with_borrow_mut(|bench| {
        for (after_ms, words) in scans {
            bench.now = bench.now.after(Duration::from_millis((*after_ms).into()));
            write(&bench.share, SHARE.len(), words);
            let beat = bench.share.load(ShareMap::BEAT);
            bench.share.store(ShareMap::BEAT, beat.wrapping_add(1), Ordering::Release);
            bench.thread.scan(bench.now);
            bench.route();
        }
    });
}
