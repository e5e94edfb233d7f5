//! Which requests are turned away at the edge, so that those let in are answered in time.
//!
//! At each look [`Controller::step`] is shown all nodes and says of each site which part of its clients is let in now: an
//! [`Outlook`], whose [`Verdict`] is one word that requests decide by ([`decide`]). Two rules:
//!
//! - [`Rule::Target`], ours. A site's queue delay is what its nodes' records say is waiting, over the rate at which each
//!   was seen to answer (Little's law). While it is below two fifths of the site's [budget](Outlook::budget) all are let in;
//!   above, the part falls exponentially with the delay. An exponential makes the loop as quick at ten times the
//!   load as at 1.1 times. Edges see the same, each at a moment of its own, and draw together by what their verdicts
//!   are: nobody coordinates them, and one alone decides as well.
//! - [`Rule::Paper`], A's: nobody is let in while the weighted score of every node of the site is above a threshold.
//!
//! What it does not do, as others are known for it: it measures no minimum latency to compare with, so it neither
//! rejects in order to probe nor drifts; it counts answers that succeed, so fast errors do not look like health; and it
//! decides nothing from a record that is old or gone: a site of which nothing is known lets everybody in ([`Why::Blind`]).
//!
//! What waits at a node is known twice: by its record, and by what the edges have sent there and not seen answered
//! ([`Traffic`]), which is newer. Both count the same requests, so the greater counts and never their sum; and among the
//! edges each request is counted by the one edge that sent it, in one place for each edge, so the sum over edges has each
//! once. Requests whose answer has begun are not in it: who reads it slowly keeps nobody waiting for a worker. Of a node
//! without a record that can be used (old, gone, of a server that is not ours) the traffic alone says both what waits and
//! how fast it is answered, and Little's law holds there as well.
//!
//! Within a site whole clients are kept in place of random requests, and [`Treatment`] sees to whoever asks for much
//! more than the others. Between sites: while one is over its budget and may have another node, those of the lowest
//! priority below it keep shorter queues, so that a node of theirs is soon free to move. A site that has no more than
//! its floor or its share does not.

mod clients;
mod drain;
mod pressure;
#[cfg(test)]
mod tests;
mod verdict;

use std::time::Duration;

use crate::index::Weights;
use crate::reconfigure::{NodeView, SiteView, Standing};
use crate::{SettingsError, Time};
use drain::Drain;
use pressure::Pressure;
use sidelong_layout::{NODES_MAX, SITES_MAX, SiteId};

pub(crate) use pressure::LOW as REJECTS_ABOVE;

pub use clients::{BUCKETS, Census, Client, Treatment};
pub use pressure::Answers;
pub use verdict::{Refused, Verdict, Why, decide};

/// Looks over which the time between two of them is averaged: one that comes late does not make the loop another one.
const LOOKS: u32 = 16;
/// Looks over which one that came late is forgotten e-fold.
const LATE_LOOKS: u32 = 64;

/// By what a site is overloaded.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Rule {
    /// Its target is in danger. Sites without one let everybody in.
    Target,
    /// Every node that serves it has a load index above this, 1.0 for all in use: A's weighted score. To compare with.
    Paper {
        /// The score.
        threshold: f64,
    },
}

/// What a controller goes by.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// By what a site is overloaded.
    pub rule: Rule,
    /// From a verdict until a look shows what came of it: the time between two looks, and the age of records. The loop
    /// is as gentle as that wants. Where looks come later than they should it counts by the time they took.
    pub lag: Duration,
    /// In this time each client has its turn once, so that nobody is shut out for ever.
    pub rotation: Duration,
    /// For the score of [`Rule::Paper`].
    pub weights: Weights,
}

impl Default for Settings {
    /// For looks and records a millisecond apart, as A has them, and a message's way. Half a minute of turns is ours:
    /// long enough for a visit, short enough to wait for.
    fn default() -> Self {
        Settings {
            rule: Rule::Target,
            lag: Duration::from_millis(3),
            rotation: Duration::from_secs(30),
            weights: Weights::SYSTEM,
        }
    }
}

impl Settings {
    /// # Errors
    /// Where a figure is none, or a time is 0 that must not be.
    pub fn check(&self) -> Result<(), SettingsError> {
        if let Rule::Paper { threshold } = self.rule {
            SettingsError::unless_figure("threshold", threshold)?;
        }
        SettingsError::if_zero("lag", self.lag.is_zero())?;
        SettingsError::if_zero("rotation", self.rotation.is_zero())?;
        self.weights.check()
    }
}

/// What is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Requests let in wait no longer than this for a worker.
    Queue(Duration),
    /// Of 100 answers that succeed, 99 begin within this.
    ResponseP99(Duration),
}

/// What a site was promised, beside its [`SiteView`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Promise {
    /// None: everybody is let in.
    pub target: Option<Target>,
    /// The part of the pool, 0 to 1, up to which it gives way to no other site.
    pub share: f64,
}

/// Everything that a look shows. Nodes and sites as for [`crate::reconfigure`].
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// All nodes of the cluster.
    pub nodes: &'a [NodeView],
    /// All sites.
    pub sites: &'a [SiteView],
    /// By node, what goes there.
    pub traffic: &'a [Traffic],
    /// By site, the answers that the edge has seen so far.
    pub answers: &'a [Answers],
    /// By site, the mean of [`Verdict::pressure`] over the other edges that know of it; `None` where none does.
    pub others: &'a [Option<f64>],
    /// The time of day, in ns since 1970: clients have their turns by it, so that they have them at all edges at once.
    pub wall_ns: u64,
}

/// What the edges see of a node from outside, all of them that this one hears together. Nothing is known by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Requests that were sent there and have not begun to be answered.
    pub in_flight: u32,
    /// Answers with success that have begun, since any time: it never falls.
    pub answers: u64,
    /// Whether its connections work, whatever became of its record.
    pub up: bool,
}

/// How a site stands.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outlook {
    /// Who is let in, and why not all.
    pub verdict: Verdict,
    /// How long a request that is let in now waits at its node; `None` where that is not known.
    pub delay: Option<Duration>,
    /// How long it may. Of a p99 target it is what experience has shown to be left for waiting; under overload no more
    /// than keeps the workers busy.
    pub budget: Option<Duration>,
    /// Whether the target is held: over the last second or so, of the answers; now, of a queue delay. `None` without a
    /// target, or where nothing is known.
    pub met: Option<bool>,
}

impl Outlook {
    fn standing(&self, share: f64) -> Standing {
        let strain = self.delay.zip(self.budget).map(|(delay, budget)| delay.div_duration_f64(budget));
        Standing { strain, admitted: self.verdict.admitted(), share }
    }
}

/// Decides whom to let in. One for each edge; a value without any outside.
#[derive(Clone, PartialEq, Debug)]
pub struct Controller {
    settings: Settings,
    promises: Vec<Promise>,
    nodes: Vec<Drain>,
    sites: Vec<Pressure>,
    outlooks: Vec<Outlook>,
    looked: Option<Time>,
    /// What of late lay between two looks, on average and at most.
    interval: Duration,
    longest: Duration,
}

impl Controller {
    /// For a cluster of that many nodes, and a site for each of `promises`.
    ///
    /// # Errors
    /// Where the settings make no sense, shares add up to more than 1, or there are more sites or nodes than the words
    /// can name.
    pub fn new(settings: Settings, promises: Vec<Promise>, nodes: usize) -> Result<Self, SettingsError> {
        settings.check()?;
        for (what, found, max) in [("sites", promises.len(), SITES_MAX), ("nodes", nodes, NODES_MAX)] {
            if found > max {
                return Err(SettingsError::TooMany { what, found, max });
            }
        }
        for promise in &promises {
            SettingsError::unless_figure("share", promise.share)?;
            let (Some(Target::Queue(time)) | Some(Target::ResponseP99(time))) = promise.target else {
                continue;
            };
            SettingsError::if_zero("target", time.is_zero())?;
        }
        // A little more than 1 is what the rounding of decimals leaves.
        if promises.iter().map(|promise| promise.share).sum::<f64>() > 1.0 + 1e-9 {
            return Err(SettingsError::Order { less: "the sum of shares", more: "1" });
        }
        Ok(Controller {
            settings,
            nodes: vec![Drain::default(); nodes],
            sites: promises.iter().map(|promise| Pressure::new(promise.target)).collect(),
            outlooks: vec![Outlook::default(); promises.len()],
            promises,
            looked: None,
            interval: Duration::ZERO,
            longest: Duration::ZERO,
        })
    }

    /// One look: how each site stands, by [`SiteId`]. The same looks give the same verdicts. It takes time in proportion
    /// to nodes and sites.
    ///
    /// # Panics
    /// Where the snapshot is of another number of sites or nodes than [`Controller::new`] was told.
    pub fn step(&mut self, snapshot: &Snapshot<'_>, now: Time) -> &[Outlook] {
        assert_eq!(snapshot.nodes.len(), self.nodes.len(), "a snapshot of all nodes");
        assert_eq!(snapshot.sites.len(), self.sites.len(), "a snapshot of all sites");
        assert_eq!(snapshot.traffic.len(), self.nodes.len(), "traffic of all nodes");
        assert_eq!(snapshot.answers.len(), self.sites.len(), "answers of all sites");
        assert_eq!(snapshot.others.len(), self.sites.len(), "what others say of all sites");
        let passed = self.looked.map_or(Duration::ZERO, |looked| now.since(looked));
        self.looked = Some(now);
        self.interval = self.interval * (LOOKS - 1) / LOOKS + passed / LOOKS;
        self.longest = passed.max(self.longest * (LATE_LOOKS - 1) / LATE_LOOKS);
        for ((drain, view), traffic) in self.nodes.iter_mut().zip(snapshot.nodes).zip(snapshot.traffic) {
            drain.see(view, traffic, passed);
        }
        let turn = verdict::turn(snapshot.wall_ns, self.settings.rotation);
        match self.settings.rule {
            Rule::Target => self.hold_targets(snapshot, passed, turn),
            Rule::Paper { threshold } => self.score(snapshot, threshold, turn),
        }
        &self.outlooks
    }

    /// How the promises stood at the last look, by [`SiteId`], for [`crate::reconfigure`]. By A's rule nothing is promised.
    pub fn standings(&self) -> impl Iterator<Item = Standing> + '_ {
        let is_promised = self.settings.rule == Rule::Target;
        self.outlooks.iter().zip(&self.promises).map(move |(outlook, promise)| match is_promised {
            true => outlook.standing(promise.share),
            false => Standing::default(),
        })
    }

    fn hold_targets(&mut self, snapshot: &Snapshot<'_>, passed: Duration, turn: u32) {
        let lag = self.settings.lag.max(self.interval * 3 / 2);
        let mut queues = self.queues(snapshot);
        let yielding = self.yielding(snapshot, &queues);
        for (site, (pressure, outlook)) in self.sites.iter_mut().zip(&mut self.outlooks).enumerate() {
            let queue = &mut queues[site];
            let yields = yielding == Some(snapshot.sites[site].priority) && queue.can_yield;
            pressure.learn(&snapshot.answers[site], queue.service_s(), passed);
            *outlook = match pressure.budget_s(yields, queue, lag.max(self.longest * 3 / 2)) {
                None => Outlook { verdict: Verdict::open(Why::NoTarget), ..Outlook::default() },
                // With a picture of nothing it begins anew: what was learned of the queue is of another time.
                Some(_) if queue.rate == 0.0 => {
                    pressure.forget();
                    Outlook { verdict: Verdict::open(Why::Blind), ..Outlook::default() }
                }
                Some(budget_s) => {
                    let delay_s = queue.delay_s(budget_s);
                    let part = pressure.step(delay_s, budget_s, passed, lag, snapshot.others[site]);
                    let why = if yields { Why::Yields } else { Why::OverTarget };
                    Outlook {
                        verdict: Verdict::part(part, turn, why, pressure.lenience()),
                        delay: Some(Duration::from_secs_f64(delay_s)),
                        budget: Some(Duration::from_secs_f64(budget_s)),
                        met: pressure.is_met(delay_s),
                    }
                }
            };
        }
    }

    /// The queue of each site: of those of its nodes that are up and of which enough is known.
    fn queues(&self, snapshot: &Snapshot<'_>) -> Vec<Queue> {
        let mut queues = vec![Queue::default(); self.sites.len()];
        let mut pool_rate = 0.0;
        for (view, drain) in snapshot.nodes.iter().zip(&self.nodes) {
            let Some(now) = drain.now() else { continue };
            pool_rate += now.rate;
            let Some(queue) = serving(view).and_then(|site| queues.get_mut(site.index())) else { continue };
            queue.nodes += 1;
            queue.rate += now.rate;
            queue.workers += f64::from(now.workers);
            queue.delays.push((now.delay_s(), now.rate));
        }
        for (site, queue) in queues.iter_mut().enumerate() {
            let has_more = queue.rate > self.promises[site].share * pool_rate;
            queue.can_yield = has_more
                && queue.nodes > u32::from(snapshot.sites[site].floor)
                && self.promises[site].target.is_some();
        }
        queues
    }

    /// The priority whose sites make room: the lowest that has something to spare, below a site that is over its budget
    /// and may have another node.
    fn yielding(&self, snapshot: &Snapshot<'_>, queues: &[Queue]) -> Option<u8> {
        let sites = || snapshot.sites.iter().zip(queues).zip(&self.sites);
        let claims = sites().filter(|((view, queue), pressure)| {
            pressure.is_rejecting() && queue.nodes < u32::from(view.ceiling)
        });
        let claimant = claims.map(|((view, _), _)| view.priority).max()?;
        let spare = sites().filter(|((view, queue), _)| queue.can_yield && view.priority < claimant);
        spare.map(|((view, _), _)| view.priority).min()
    }

    /// A's rule.
    fn score(&mut self, snapshot: &Snapshot<'_>, threshold: f64, turn: u32) {
        // Of each site's nodes: how many have a record, and how many of these are not overloaded.
        let mut counts = vec![(0u32, 0u32); self.sites.len()];
        for view in snapshot.nodes.iter().filter(|view| view.up) {
            let Some((heard, free)) = serving(view).and_then(|site| counts.get_mut(site.index())) else {
                continue;
            };
            let Some(hot) = &view.load else { continue };
            let score = self.settings.weights.read(Some(hot), &view.capacity, view.in_flight).index();
            *heard += 1;
            *free += u32::from(score.ratio() <= threshold);
        }
        for ((heard, free), outlook) in counts.into_iter().zip(&mut self.outlooks) {
            let verdict = match (heard, free) {
                (0, _) => Verdict::open(Why::Blind),
                (_, 0) => Verdict::part(0.0, turn, Why::AllOverloaded, 1),
                _ => Verdict::open(Why::Within),
            };
            *outlook = Outlook { verdict, ..Outlook::default() };
        }
    }
}

/// The site that a node serves.
fn serving(view: &NodeView) -> Option<SiteId> {
    view.ownership?.serving_site()
}

/// What waits for a site.
#[derive(Clone, PartialEq, Debug, Default)]
struct Queue {
    /// Nodes of which enough is known, and up.
    nodes: u32,
    /// Answers in a second, over all of them.
    rate: f64,
    workers: f64,
    /// Of each of them, how long a request waits there in seconds, and its rate.
    delays: Vec<(f64, f64)>,
    /// Whether it has more than was promised to it.
    can_yield: bool,
}

impl Queue {
    /// How long a request takes at its worker, on average.
    fn service_s(&self) -> f64 {
        if self.rate > 0.0 { self.workers / self.rate } else { 0.0 }
    }

    /// How long a request waits. The mean over the nodes is steadier than the shortest queue, to which it goes; but
    /// long queues elsewhere are no reason to turn it away, so none counts for more than that part of a budget above the
    /// shortest: where a node is idle, all are let in.
    fn delay_s(&self, budget_s: f64) -> f64 {
        let shortest = self.delays.iter().fold(f64::INFINITY, |least, (delay, _)| least.min(*delay));
        let most = shortest + budget_s * pressure::LOW;
        self.delays.iter().map(|(delay, rate)| delay.min(most) * rate).sum::<f64>() / self.rate
    }
}
