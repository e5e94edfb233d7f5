//! Admission control: which requests an edge rejects, so that the admitted ones are answered in time.
//!
//! At each scan [`Controller::step`] is shown all nodes. It says for each site which part of the site's clients is admitted
//! now: an [`Outlook`], whose [`Verdict`] is one word that requests decide by ([`decide`]). There are two rules:
//!
//! - [`AdmissionRule::Target`], ours. A site's queue delay is what its nodes' records say is waiting, over the rate at which each
//!   node was seen to answer (Little's law). While the delay is below two fifths of the site's
//!   [budget](Outlook::budget) all requests are admitted. Above, the part falls exponentially with the delay, which makes
//!   the loop as quick at ten times the load as at 1.1 times. Each edge decides alone. All see the same nodes, each at a
//!   moment of its own, and their verdicts draw together.
//! - [`AdmissionRule::Paper`], that of Lai et al. 2008: no request is admitted while the weighted score of every node of the
//!   site is above a threshold.
//!
//! Three mistakes that are known of other controllers are avoided. It measures no minimum latency to compare with, so it
//! neither rejects in order to probe nor drifts. It counts answers that succeed, so fast errors do not look like health.
//! It decides nothing from a record that is stale or missing: a site that nothing is known of admits all requests
//! ([`Why::Blind`]).
//!
//! What waits at a node is known twice: from its record, and from what the edges have sent there and not seen answered
//! ([`Traffic`]), which is newer. Both count the same requests, so the greater count is used and never the sum. Among the
//! edges each request is counted by the one that sent it, so the sum over edges has each request once. A request whose
//! answer has begun no longer counts: a client that reads it slowly keeps no worker busy. For a node without a usable
//! record (stale, missing, or of a server that is not ours) the traffic alone says both what waits and how fast it is
//! answered, and Little's law holds there as well.
//!
//! Within a site whole clients are admitted instead of random requests, and [`Treatment`] limits those that ask for much
//! more than the others. Some requests are rejected last ([`Verdict::widened`]): those that are worth more ([`Requests`]), and those
//! of a client on a visit, which was admitted shortly before. Between sites: while one is over its budget and may have another node, the sites of the lowest
//! priority below it keep shorter queues, so that a node of theirs is soon free to move. A site that has no more than
//! its floor or its share does not.

mod clients;
mod drain;
mod pressure;
mod queue;
mod requests;
#[cfg(test)]
mod tests;
mod verdict;

use std::time::Duration;

use crate::cluster::{NodeView, SiteView, Standing, Traffic};
use crate::index::Weights;
use crate::{SettingsError, Time};
use drain::Drain;
use pressure::Pressure;
use queue::Queue;
use sidelong_layout::{SiteId, vocabulary};

pub(crate) use queue::LOW as REJECTS_ABOVE;

pub use clients::{BUCKETS, Census, Client, Treatment};
pub use pressure::{Answers, Target};
pub use requests::{NotRequests, Request, Requests};
pub use verdict::{CIRCLE, Refused, Verdict, Why, decide};

/// Number of scans over which their interval is averaged, so that a late scan does not change the loop.
const LOOKS: u32 = 16;
/// Number of scans after which a late one has decayed by a factor of e.
const LATE_LOOKS: u32 = 64;

vocabulary! {
    /// When a site is overloaded, so that some of its requests are rejected: `admission.rule` of the cluster file.
    AdmissionRule {
        /// When its target is in danger. Sites without a target admit all requests.
        #[default]
        Target = "target",
        /// When every node that serves it has a load index above the threshold: the rule of Lai et al. 2008, for comparison.
        Paper = "paper",
        /// Never: all requests are admitted, whatever is promised.
        None = "none",
    }
}

/// Settings of a [`Controller`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AdmissionSettings {
    /// The rule by which a site is overloaded.
    pub rule: AdmissionRule,
    /// For [`AdmissionRule::Paper`]: the load index above which a node is overloaded; 1.0 means all in use.
    pub threshold: f64,
    /// Time from a verdict until a scan shows its effect: the interval of scans and the age of records. The longer it
    /// is, the gentler the loop. If scans are late, their real interval counts.
    pub lag: Duration,
    /// In this time each client gets its turn once, so that no client is rejected for ever.
    pub rotation: Duration,
    /// For the score of [`AdmissionRule::Paper`].
    pub weights: Weights,
}

impl Default for AdmissionSettings {
    /// For scans and records a millisecond apart, as in Lai et al. 2008, and the delay of a message. A rotation of half
    /// a minute is ours: long enough for a visit, short enough to wait for.
    fn default() -> Self {
        AdmissionSettings {
            rule: AdmissionRule::Target,
            threshold: 1.0,
            lag: Duration::from_millis(3),
            rotation: Duration::from_secs(30),
            weights: Weights::SYSTEM,
        }
    }
}

impl AdmissionSettings {
    /// Checks the settings.
    ///
    /// # Errors
    /// If a figure is not a number, or a time that must not be 0 is 0.
    pub fn check(&self) -> Result<(), SettingsError> {
        SettingsError::unless_figure("threshold", self.threshold)?;
        SettingsError::if_zero("lag", self.lag.is_zero())?;
        SettingsError::if_zero("rotation", self.rotation.is_zero())?;
        self.weights.check()
    }
}

/// The lag with scans `interval` apart and records `period` apart: a verdict's effect is in the records of the
/// following period, which the scan after that reads.
pub fn lag(interval: Duration, period: Duration) -> Duration {
    interval + 2 * period
}

/// The promise to a site, in addition to its [`SiteView`].
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Promise {
    /// The target; `None` admits all requests.
    pub target: Option<Target>,
    /// The part of the pool, 0 to 1, up to which it yields to no other site.
    pub share: f64,
}

/// What a scan shows.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionSnapshot<'a> {
    /// All nodes of the cluster.
    pub nodes: &'a [NodeView],
    /// All sites.
    pub sites: &'a [SiteView],
    /// By node, the requests that the edges sent there.
    pub traffic: &'a [Traffic],
    /// By site, the answers that the edge has seen so far.
    pub answers: &'a [Answers],
    /// By site, the mean [`Verdict::pressure`] of the other edges that know the site; `None` if none does.
    pub others: &'a [Option<f64>],
    /// The time of day, in ns since 1970. It determines the clients' turns, so that they are the same at all edges.
    pub wall_ns: u64,
}

/// The state of a site.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outlook {
    /// Which clients are admitted, and why not all.
    pub verdict: Verdict,
    /// How long a request admitted now waits at its node; `None` if unknown.
    pub delay: Option<Duration>,
    /// How long it may wait. For a p99 target it is learned from answers; under overload it is just long enough to keep
    /// the workers busy.
    pub budget: Option<Duration>,
    /// Whether the target is met: judged by the answers of about the last second, or by the current queue delay. `None`
    /// without a target, or if nothing is known.
    pub met: Option<bool>,
}

impl Outlook {
    fn standing(&self, share: f64) -> Standing {
        let strain = self.delay.zip(self.budget).map(|(delay, budget)| delay.div_duration_f64(budget));
        Standing { strain, admitted: self.verdict.admitted(), share }
    }
}

/// Decides which requests to admit. Each edge has one. It is a plain value without outside effects.
#[derive(Clone, PartialEq, Debug)]
pub struct Controller {
    settings: AdmissionSettings,
    promises: Vec<Promise>,
    nodes: Vec<Drain>,
    sites: Vec<Pressure>,
    outlooks: Vec<Outlook>,
    looked: Option<Time>,
    /// The recent interval between scans: its average and its maximum.
    interval: Duration,
    longest: Duration,
}

impl Controller {
    /// A controller for a cluster with that many nodes, and a site for each of `promises`.
    ///
    /// # Errors
    /// If the settings are invalid, shares sum to more than 1, or there are more sites or nodes than the words can
    /// name.
    pub fn new(
        settings: AdmissionSettings,
        promises: Vec<Promise>,
        nodes: usize,
    ) -> Result<Self, SettingsError> {
        check(&settings, &promises, nodes)?;
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

    /// Goes by other settings and promises from now on, in a cluster with that many nodes. What is known of the others stays.
    ///
    /// # Errors
    /// As [`Controller::new`]. Nothing is changed then.
    pub fn adopt(
        &mut self,
        settings: AdmissionSettings,
        promises: Vec<Promise>,
        nodes: usize,
    ) -> Result<(), SettingsError> {
        check(&settings, &promises, nodes)?;
        self.settings = settings;
        self.nodes.resize(nodes, Drain::default());
        self.sites.resize_with(promises.len(), || Pressure::new(None));
        self.outlooks.resize(promises.len(), Outlook::default());
        self.sites.iter_mut().zip(&promises).for_each(|(site, promise)| site.aim(promise.target));
        self.promises = promises;
        Ok(())
    }

    /// Takes one scan and returns the state of each site, by [`SiteId`]. The same scans give the same verdicts. It
    /// takes time proportional to nodes and sites.
    ///
    /// # Panics
    /// If the snapshot has another number of sites or nodes than [`Controller::new`] was given.
    pub fn step(&mut self, snapshot: &AdmissionSnapshot<'_>, now: Time) -> &[Outlook] {
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
            AdmissionRule::Target => self.hold_targets(snapshot, passed, turn),
            AdmissionRule::Paper => self.score(snapshot, self.settings.threshold, turn),
            AdmissionRule::None => {}
        }
        &self.outlooks
    }

    /// The state of each site at the last scan, by [`SiteId`].
    pub fn outlooks(&self) -> &[Outlook] {
        &self.outlooks
    }

    /// The state of the promises at the last scan, by [`SiteId`], for [`crate::reconfigure`]. Under the rule of Lai et
    /// al. nothing is promised.
    pub fn standings(&self) -> impl Iterator<Item = Standing> + '_ {
        let is_promised = self.settings.rule == AdmissionRule::Target;
        self.outlooks.iter().zip(&self.promises).map(move |(outlook, promise)| match is_promised {
            true => outlook.standing(promise.share),
            false => Standing::default(),
        })
    }

    fn hold_targets(&mut self, snapshot: &AdmissionSnapshot<'_>, passed: Duration, turn: u32) {
        let lag = self.settings.lag.max(self.interval * 3 / 2);
        let mut queues = self.queues(snapshot);
        let yielding = self.yielding(snapshot, &queues);
        for (site, (pressure, outlook)) in self.sites.iter_mut().zip(&mut self.outlooks).enumerate() {
            let queue = &mut queues[site];
            let yields = yielding == Some(snapshot.sites[site].priority) && queue.can_yield;
            pressure.learn(&snapshot.answers[site], queue.service_s(), passed);
            *outlook = match pressure.budget_s(yields, queue, lag.max(self.longest * 3 / 2)) {
                None => Outlook { verdict: Verdict::open(Why::NoTarget), ..Outlook::default() },
                // Without any information it starts anew: what was learned of the queue belongs to another time.
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

    /// The queue of each site: of its nodes that are up and sufficiently known.
    fn queues(&self, snapshot: &AdmissionSnapshot<'_>) -> Vec<Queue> {
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

    /// The priority whose sites make room: the lowest that can spare something, below a site that exceeds its budget
    /// and may have another node.
    fn yielding(&self, snapshot: &AdmissionSnapshot<'_>, queues: &[Queue]) -> Option<u8> {
        let sites = || snapshot.sites.iter().zip(queues).zip(&self.sites);
        let claims = sites().filter(|((view, queue), pressure)| {
            pressure.is_rejecting() && queue.nodes < u32::from(view.ceiling)
        });
        let claimant = claims.map(|((view, _), _)| view.priority).max()?;
        let spare = sites().filter(|((view, queue), _)| queue.can_yield && view.priority < claimant);
        spare.map(|((view, _), _)| view.priority).min()
    }

    /// The rule of Lai et al. 2008.
    fn score(&mut self, snapshot: &AdmissionSnapshot<'_>, threshold: f64, turn: u32) {
        // For each site: the number of its nodes with a record, and of those that are not overloaded.
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

fn check(settings: &AdmissionSettings, promises: &[Promise], nodes: usize) -> Result<(), SettingsError> {
    settings.check()?;
    SettingsError::if_too_many(promises.len(), nodes)?;
    for promise in promises {
        SettingsError::unless_figure("share", promise.share)?;
        let (Some(Target::Queue(time)) | Some(Target::ResponseP99(time))) = promise.target else {
            continue;
        };
        SettingsError::if_zero("target", time.is_zero())?;
    }
    // Rounding of decimals may leave a little more than 1.
    if promises.iter().map(|promise| promise.share).sum::<f64>() > 1.0 + 1e-9 {
        return Err(SettingsError::Order { less: "the sum of shares", more: "1" });
    }
    Ok(())
}

/// The site that a node serves.
fn serving(view: &NodeView) -> Option<SiteId> {
    view.ownership?.serving_site()
}
