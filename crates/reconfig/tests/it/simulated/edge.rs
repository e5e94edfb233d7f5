//! An edge: a thread with links and a mover of its own, which goes no further than it is let.
//!
//! Between any two of its operations it says what comes next and waits, so one thread runs at a time, and which one is
//! the scheduler's choice. To crash it is to hang up: it unwinds from wherever it stands, and its links close.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use sidelong_fabric::sim::Network;
use sidelong_fabric::{Directory as _, Host, Initiator, Region};
use sidelong_layout::{EdgeId, Instance, NodeId, SiteId, Time};
use sidelong_policy::reconfigure::MovePlan;
use sidelong_reconfig::{FrontMember, Links, Members, Mover, Protocol, Report, expose_front};

use crate::simulated::cluster::{
    EDGES, FLOORS, Keys, MAP, NODES, SITES, edge_names, node_names, nodes, pool, sites, timing,
};
use crate::simulated::lots::Lots;
use crate::support::members;
use crate::support::plan::plan;

/// Time between two looks.
const REST: std::ops::Range<Duration> = Duration::from_millis(1)..Duration::from_millis(10);

/// What an edge does next, once it is let.
#[derive(Clone, Debug)]
pub(crate) enum Next {
    /// Reads all words, once some time has passed.
    Scan { after: Duration, idle: bool },
    /// Begins a move.
    Begin(MovePlan),
    /// Posts an operation of this name, and waits for its end.
    Post(&'static str),
    /// Looks at its clock, with the last reply in its hands.
    Hear,
    /// Ends a move or a repair.
    End(Report),
}

/// What its lives have in common.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) network: Network,
    pub(crate) keys: Arc<Keys>,
    pub(crate) protocol: Protocol,
}

/// One life of an edge, as the scheduler holds it.
pub(crate) struct Life {
    /// Hung up to crash it.
    go: Option<SyncSender<Order>>,
    said: Receiver<Next>,
    thread: Option<JoinHandle<()>>,
    pub(crate) next: Next,
}

/// What an edge is told when it may go on.
#[derive(Clone, Copy)]
pub(crate) struct Order {
    /// Whether it may begin moves.
    pub(crate) may_plan: bool,
}

impl Life {
    pub(crate) fn begin(setting: &Setting, edge: usize, incarnation: u64) -> Self {
        let (go, may_go) = sync_channel(1);
        let (says, said) = sync_channel(1);
        let setting = setting.clone();
        let turn = Turn {
            says,
            may_go,
            lots: Lots::new(setting.seed, 1 + edge as u64 + EDGES as u64 * incarnation),
            network: setting.network.clone(),
        };
        let thread = std::thread::spawn(move || live(&turn, &setting, edge, incarnation));
        let mut life = Life { go: Some(go), said, thread: Some(thread), next: Next::Hear };
        life.next = life.hear();
        life
    }

    /// Lets it do what it said, and hears what comes after.
    pub(crate) fn go_on(&mut self, order: Order) {
        let go = self.go.as_ref().expect("only hung up at its end");
        // One that is gone has panicked, which `hear` passes on.
        let _ = go.send(order);
        self.next = self.hear();
    }

    /// Crashes it, if it still lives.
    pub(crate) fn end(&mut self) {
        self.go = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn hear(&mut self) -> Next {
        self.said.recv().unwrap_or_else(|_| match self.thread.take().expect("joined at its end").join() {
            Err(panic) => resume_unwind(panic),
            Ok(()) => unreachable!("it lives until it is hung up on"),
        })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.end();
    }
}

/// What an edge is unwound with when it crashes: no panic, so no message.
struct Crashed;

/// The edge's end of the line.
struct Turn {
    says: SyncSender<Next>,
    may_go: Receiver<Order>,
    lots: Lots,
    network: Network,
}

impl Turn {
    fn say(&self, next: Next) -> Order {
        let said = self.says.send(next).ok();
        match said.and_then(|()| self.may_go.recv().ok()) {
            Some(order) => order,
            None => resume_unwind(Box::new(Crashed)),
        }
    }

    fn now(&self) -> Time {
        Time(self.network.now().as_nanos() as u64)
    }

    /// As a mover asks for the time: with the reply to its last operation, over which it may fall asleep.
    fn clock(&self) -> Time {
        if self.lots.once_in(4) {
            self.say(Next::Hear);
        }
        self.now()
    }
}

/// What an edge states as a front, while it lives.
struct Front<'a>(Region, &'a Keys);

impl Drop for Front<'_> {
    fn drop(&mut self) {
        self.1.withdraw(&self.0.key().name);
    }
}

/// What `edge::watch` does at each look, with chance for a policy.
fn live(turn: &Turn, setting: &Setting, edge: usize, incarnation: u64) {
    let owner = EdgeId::new(edge);
    let names = edge_names();
    let host = Host::Sim(setting.network.host(&names[edge]));
    let front = expose_front(&host, &names[edge], NODES, Instance::alone(incarnation)).unwrap();
    setting.keys.publish(front.key()).unwrap();
    let front = Front(front, &setting.keys);
    let member = |name: &String| FrontMember { name: name.clone(), is_led: false };
    let members = Members { fronts: names.iter().map(member).collect(), ..members(&node_names(), SITES) };
    let links = Links::new(setting.keys.clone(), Initiator::new(), (NODES, MAP), &members);
    let mut links = links.of_front(owner, Some(front.0.clone()), None);
    let mut mover = Mover::new(owner, incarnation, EDGES as u16, pool(), timing(), setting.protocol);
    let mut after = Duration::ZERO;
    loop {
        let Order { may_plan } = turn.say(Next::Scan { after, idle: mover.is_idle() });
        links.scan(turn.now());
        for node in nodes() {
            if let Some(seen) = links.ownership(node) {
                links.state(node, seen, 0);
            }
        }
        mover.look(links.last_scan(), turn.now());
        if mover.is_idle()
            && may_plan
            && turn.lots.once_in(2)
            && let Some(plan) = some_plan(&links, &turn.lots)
        {
            turn.say(Next::Begin(plan));
            mover.begin(plan, turn.now());
        }
        let ended = mover.drive(&mut links, || turn.clock(), |step| _ = turn.say(Next::Post(step)));
        if let Some(ended) = ended {
            turn.say(Next::End(ended));
        }
        after = turn.lots.time(REST);
    }
}

/// Any that a policy might make: from a site above its floor, as far as this edge has seen, or of a free node.
fn some_plan(links: &Links, lots: &Lots) -> Option<MovePlan> {
    let serving =
        |site: SiteId| nodes().filter(|n| links.ownership(*n).is_some_and(|o| o.serves(site))).count();
    let may_give = |site: SiteId| serving(site) > usize::from(FLOORS[site.index()]);
    let may_go = |node: &NodeId| {
        links.ownership(*node).is_some_and(|own| match own.site {
            Some(site) => own.serves(site) && may_give(site),
            None => true,
        })
    };
    let node = lots.pick(&nodes().filter(may_go).collect::<Vec<_>>())?;
    let expected = links.ownership(node)?;
    let to = lots.pick(&sites().filter(|site| Some(*site) != expected.site).collect::<Vec<_>>())?;
    Some(plan(node, expected, to))
}
