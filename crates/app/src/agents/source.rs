//! A service of Kubernetes as a source of nodes. It proposes: what joins and leaves goes through the same door as a person's commands, with the
//! same proofs, so that two such sources, or a source and a person, cannot contradict each other.
//!
//! A node leaves in two steps. It is held first, which takes until no request is left there, however long that is; meanwhile others join and
//! leave. Then it is taken out of the file.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sidelong_config::{Cluster, edit};
use sidelong_fabric::RunDirectory;
use sidelong_kubernetes::{Access, Service, State, Watcher};
use sidelong_layout::{NodeId, Ownership};

use super::Shown;
use super::members::{Absent, Member, Plan, node_name, plan};
use crate::by_hand::{Hand, Wish};
use crate::failure::Failure;
use crate::part::Shutdown;
use crate::parts::Parts;
use crate::reload::Reload;
use crate::roster::{self, Place, Roster};

/// Longest wait for the API server to say something new, after which what is known is looked at again.
const HEAR_MAX: Duration = Duration::from_secs(1);
/// Pause before what could not be done is tried again, and after the API server could not be asked: the first, doubled up to the last.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Longest time of one attempt to hold a node, besides that which its requests take.
const HOLD_MAX: Duration = Duration::from_secs(15);
/// After so many changes that fail one after the other, no other is tried before a pause.
const FAILURES_MAX: usize = 3;
/// Longest wait for parts to take a change over.
const ADOPT_MAX: Duration = Duration::from_secs(10);
/// Nodes that are emptied at once. Those of one site are so one after the other, since each takes the site's lock.
const HOLDS_MAX: usize = 8;

/// Where nodes come from.
pub struct SourceSpec {
    /// How the API server is reached.
    pub access: Access,
    /// The service whose endpoints are the nodes' servers.
    pub service: Service,
    /// Which of its ports, by name or number, if it has several.
    pub port: Option<String>,
    /// The host of the agents, as it stands in `fabric_listen`.
    pub host: String,
    /// Ports for the control endpoints of these nodes. A node at one of them is of the service.
    pub ports: RangeInclusive<u16>,
}

/// Watches the service from now on, for the agents at `at`.
pub(super) fn start(
    spec: SourceSpec,
    (cluster, at): (&Cluster, IpAddr),
    shown: Shown,
    shutdown: Shutdown,
) -> Result<(), Failure> {
    let watcher = Watcher::new(spec.access.clone(), spec.service.clone())?;
    let (cluster, run) = (cluster.clone(), RunDirectory::at(&cluster.run_dir));
    shown.change(|status| status.source = Some(Err("nothing is heard yet".to_owned())));
    let source = Source {
        spec,
        cluster,
        at,
        run,
        shown,
        absent: Absent::new(),
        holds: Arc::default(),
        undone: BTreeMap::new(),
        told: None,
    };
    thread::Builder::new().name("kubernetes".into()).spawn(move || source.run(watcher, &shutdown))?;
    Ok(())
}

struct Source {
    spec: SourceSpec,
    cluster: Cluster,
    at: IpAddr,
    run: RunDirectory,
    shown: Shown,
    absent: Absent,
    holds: Arc<Mutex<Holds>>,
    /// By the names of their nodes.
    undone: BTreeMap<String, Undone>,
    /// What was said last to be wrong.
    told: Option<String>,
}

/// Nodes that are to leave, or were to and may be held since.
type Holds = BTreeMap<String, Leaving>;

struct Leaving {
    how_far: Hold,
    /// What it was before, once that has been read.
    former: Option<Ownership>,
}

enum Hold {
    Begun,
    /// No request is left.
    Held,
    /// It may be held all the same. What is wrong is there until it has been told.
    Failed(Option<Failure>),
}

/// What could not be done.
struct Undone {
    why: String,
    again: Instant,
    /// The next one.
    pause: Duration,
}

impl Source {
    fn run(mut self, mut watcher: Watcher, shutdown: &Shutdown) {
        let mut is_known = false;
        while !shutdown.is_told() {
            let heard = watcher.next(HEAR_MAX);
            match &heard {
                Ok(_) => is_known = true,
                Err(_) => thread::sleep(PAUSE.0),
            }
            let done = if is_known { self.follow(&watcher) } else { Ok(()) };
            let heard = heard.map_err(|error| {
                Failure::new(format!("its nodes stay as they are, because {}", Failure::from(error).0))
            });
            let undone = || self.undone.values().next().map(|undone| undone.why.clone());
            let wrong = heard.err().or(done.err()).map(|Failure(why)| why).or_else(undone);
            self.tell(wrong);
        }
    }

    /// Says what is wrong, once.
    fn tell(&mut self, why: Option<String>) {
        self.shown.change(|status| status.source = Some(why.clone().map_or(Ok(()), Err)));
        if self.told == why {
            return;
        }
        match &why {
            Some(why) => tracing::error!("service {}: {why}", self.spec.service),
            None => tracing::warn!("service {}: the cluster has its nodes", self.spec.service),
        }
        self.told = why;
    }

    /// Has nodes join and leave, as far as that can be done now.
    fn follow(&mut self, watcher: &Watcher) -> Result<(), Failure> {
        let endpoints = watcher.endpoints(self.spec.port.as_deref())?;
        let roster = Roster::read(&self.run).ok_or_else(|| Failure::new("the roster cannot be read"))?;
        let cluster = roster.cluster()?;
        let of_service = |at: SocketAddr| at.ip() == self.at && self.spec.ports.contains(&at.port());
        let ours = cluster.nodes.values().filter(|node| of_service(node.fabric_listen));
        let member =
            |node: &sidelong_config::Node| Some(Member { name: node.name.clone(), server: node.port()? });
        let members: Vec<_> = ours.filter_map(member).collect();
        let floors: usize = cluster.sites.values().map(|site| site.floor).sum();
        let spare = cluster.nodes.values().count().saturating_sub(floors.max(1));
        let mut plan = plan(&endpoints, &members, spare, &mut self.absent, Instant::now());
        let Plan { join, go, leave } = &plan;
        let wanted: BTreeSet<_> = join.iter().chain(go).map(|member| &member.name).chain(leave).collect();
        let held: BTreeSet<_> = self.holds().keys().cloned().collect();
        self.undone.retain(|name, _| wanted.contains(name) || held.contains(name));
        plan.join.retain(|member| self.is_due(&member.name));
        plan.go.retain(|member| self.is_due(&member.name));
        // A person may have removed one.
        self.holds().retain(|name, _| cluster.nodes.values().any(|node| node.name == *name));
        // All is tried, whatever fails.
        self.add(&cluster, &plan.join);
        let go = plan.go.into_iter().map(|Member { name, server }| {
            let at = name.clone();
            named(name, move |text| edit::replace_server(text, &at, &server.to_string()))
        });
        self.all("go elsewhere", &go.collect::<Vec<_>>());
        let of = |state: State| {
            let of = endpoints.iter().filter(move |endpoint| endpoint.state == state);
            of.map(|endpoint| node_name(&endpoint.name)).collect()
        };
        self.remove(&plan.leave, &of(State::Ready), &of(State::Unready));
        Ok(())
    }

    /// Whether it is time to try what could not be done for that node, if there is anything.
    fn is_due(&self, name: &str) -> bool {
        self.undone.get(name).is_none_or(|undone| undone.again <= Instant::now())
    }

    /// Notes that something could not be done.
    fn failed(&mut self, name: &str, why: String) {
        let pause = self.undone.get(name).map_or(PAUSE.0, |undone| (2 * undone.pause).min(PAUSE.1));
        self.undone.insert(name.to_owned(), Undone { why, again: Instant::now() + pause, pause });
    }

    fn add(&mut self, cluster: &Cluster, join: &[Member]) {
        let taken: Vec<_> =
            cluster.nodes.values().map(|node| node.fabric_listen).filter(|at| at.ip() == self.at).collect();
        let is_free = |port: &u16| {
            let at = SocketAddr::new(self.at, *port);
            !taken.contains(&at) && TcpListener::bind(at).is_ok()
        };
        let free: Vec<_> = self.spec.ports.clone().filter(is_free).take(join.len()).collect();
        let (first, last) = (self.spec.ports.start(), self.spec.ports.end());
        let why = format!("no port from {first} to {last} is free for it: give the agents more ports");
        join.iter()
            .skip(free.len())
            .for_each(|member| self.failed(&member.name, format!("{} cannot join: {why}", member.name)));
        let seated = join.iter().zip(free).map(|(Member { name, server }, port)| {
            let (at, control) = (name.clone(), format!("{}:{port}", self.spec.host));
            named(name.clone(), move |text| edit::add_node(text, &at, &server.to_string(), Some(&control)))
        });
        let seated: Vec<_> = seated.collect();
        self.all("join", &seated);
    }

    /// Has these leave whose requests have ended, and begins to empty the others. Those that are to stay after all are given back.
    fn remove(&mut self, leave: &[String], ready: &BTreeSet<String>, unready: &BTreeSet<String>) {
        let (mut held, mut back, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (name, Leaving { how_far, former }) in self.holds().iter_mut() {
            if let Hold::Failed(why) = how_far
                && let Some(Failure(why)) = why.take()
            {
                failed.push((name.clone(), format!("{name} is to leave, and stays: {why}")));
            }
            match how_far {
                Hold::Held if leave.contains(name) => held.push(name.clone()),
                Hold::Held | Hold::Failed(_) if ready.contains(name) => back.push((name.clone(), *former)),
                Hold::Begun | Hold::Held | Hold::Failed(_) => {}
            }
        }
        failed.into_iter().for_each(|(name, why)| self.failed(&name, why));
        back.retain(|(name, _)| self.is_due(name));
        for (name, former) in back {
            let newest = Roster::read(&self.run).ok_or_else(|| Failure::new("the roster cannot be read"));
            let given = newest.and_then(|newest| match former {
                Some(former) => hand(&newest.cluster()?, &name, Wish::Resume)?.give_back(former),
                None => Ok(()),
            });
            match given {
                Ok(()) => {
                    self.holds().remove(&name);
                    self.undone.remove(&name);
                }
                Err(Failure(why)) => {
                    self.failed(&name, format!("{name} is ready again, and stays held: {why}"));
                }
            }
        }
        let due: Vec<_> = leave.iter().filter(|name| self.is_due(name)).cloned().collect();
        for name in &due {
            let mut holds = self.holds();
            let begun = holds.values().filter(|leaving| matches!(leaving.how_far, Hold::Begun)).count();
            let leaving = holds.get(name);
            let may_begin = leaving.is_none_or(|leaving| matches!(leaving.how_far, Hold::Failed(_)));
            if begun < HOLDS_MAX && may_begin {
                let former = leaving.and_then(|leaving| leaving.former);
                holds.insert(name.clone(), Leaving { how_far: Hold::Begun, former });
                drop(holds);
                self.empty(name.clone(), former, ready.clone(), !unready.contains(name));
            }
        }
        held.retain(|name| due.contains(name));
        let leave = held.iter().map(|name| named(name.clone(), move |text| edit::remove(text, name)));
        self.all("leave", &leave.collect::<Vec<_>>());
        let left: Vec<_> = held.into_iter().filter(|name| !self.undone.contains_key(name)).collect();
        left.iter().for_each(|name| _ = self.holds().remove(name));
    }

    /// Holds a node, on a thread of its own, once its site can spare it: one of those that are ready may take its place. What it was
    /// `former`ly is kept over attempts: one may have held the node, and failed all the same. It `waits` for the node's requests as
    /// long as they take, or as long as a drain may: a server that fails a probe may be well again before its longest request ends.
    fn empty(&self, name: String, mut former: Option<Ownership>, ready: BTreeSet<String>, waits: bool) {
        let (holds, run) = (Arc::clone(&self.holds), self.run.clone());
        let hold = move |name: &str, former: &mut Option<Ownership>| loop {
            let Some(newest) = Roster::read(&run) else {
                return Err(Failure::new("the roster cannot be read"));
            };
            let epoch = newest.epoch;
            let held = newest.cluster().and_then(|cluster| {
                let others = cluster
                    .nodes
                    .entries()
                    .filter(|(_, node)| node.name != name && ready.contains(&node.name));
                let others: Vec<_> = others.map(|(slot, _)| NodeId::new(slot)).collect();
                let mut hand = hand(&cluster, name, Wish::Drain)?;
                (hand.waits, hand.patience) = (waits, Some(HOLD_MAX));
                hand.replace_by(&others)?;
                hand.leave(former)
            });
            match held {
                // Others have joined or left meanwhile, so that it went by an old roster.
                Err(_) if roster::epoch(&run).is_some_and(|newest| newest > epoch) => {}
                held => return held,
            }
        };
        let note = |holds: &Mutex<Holds>, name: String, held: Result<(), Failure>, former| {
            let how_far = held.map_or_else(|why| Hold::Failed(Some(why)), |()| Hold::Held);
            let mut holds = holds.lock().unwrap_or_else(PoisonError::into_inner);
            holds.insert(name, Leaving { how_far, former });
        };
        let (kept, of, before) = (Arc::clone(&holds), name.clone(), former);
        let begun = thread::Builder::new().name("hold".into()).spawn(move || {
            let held = catch_unwind(AssertUnwindSafe(|| hold(&name, &mut former)));
            // Its panic was printed where it happened.
            let held = held.unwrap_or_else(|_| Err(Failure::new("that was not possible")));
            note(&holds, name, held, former);
        });
        if let Err(error) = begun {
            note(&kept, of, Err(error.into()), before);
        }
    }

    /// Changes the file for all of these at once; if that fails, for each alone.
    fn all(&mut self, how: &str, of: &[Edit<'_>]) {
        let change = |some: &[Edit<'_>]| {
            let edited =
                |text: &str| some.iter().try_fold(text.to_owned(), |text, (_, change)| change(&text));
            let reload = Reload::of_edit(Place::new(&self.cluster)?, edited)?;
            let epoch = reload.carry_out(ADOPT_MAX, false)?;
            let names: Vec<_> = some.iter().map(|(name, _)| name.as_str()).collect();
            tracing::info!(epoch, "{} {how}, by service {}", names.join(", "), self.spec.service);
            Ok::<_, Failure>(())
        };
        if of.is_empty() {
            return;
        }
        let done = match of {
            [_] => Err(Failure::new("it is one")),
            all => change(all),
        };
        let mut each = Vec::new();
        let mut failures = 0;
        for one in of.iter().filter(|_| done.is_err()) {
            // It is none of these that fails, but something that all need.
            let done = match failures < FAILURES_MAX {
                true => change(std::slice::from_ref(one)),
                false => Err(Failure::new("others before it could not either")),
            };
            failures = if done.is_ok() { 0 } else { failures + 1 };
            each.push((&one.0, done));
        }
        if done.is_ok() || each.iter().any(|(_, done)| done.is_ok()) {
            // By that, something else may have become possible.
            self.undone.clear();
        }
        for (name, done) in each {
            match done {
                Ok(()) => {}
                Err(Failure(why)) => self.failed(name, format!("{name} is to {how}: {why}")),
            }
        }
    }

    fn holds(&self) -> MutexGuard<'_, Holds> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change of the file for the node of that name.
type Edit<'a> = (String, Box<dyn Fn(&str) -> Result<String, String> + 'a>);

fn named<'a>(name: String, change: impl Fn(&str) -> Result<String, String> + 'a) -> Edit<'a> {
    (name, Box::new(change))
}

/// A person's links to a node.
fn hand(cluster: &Cluster, name: &str, wish: Wish) -> Result<Hand, Failure> {
    let slot = cluster.nodes.position(|node| node.name == name).ok_or_else(|| Failure::new("it has left"))?;
    Hand::new(Parts::new(cluster.clone())?, NodeId::new(slot), wish)
}
