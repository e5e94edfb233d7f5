//! The parameters of a run, derived from a configuration's fields.

use std::time::Duration;

use sidelong_config::{Configuration, Service};
use sidelong_fabric::sim::Faults;
use sidelong_layout::NODES_MAX;
use sidelong_policy::admission::{self, AdmissionRule, Promise, Target};
use sidelong_policy::balance::Balance;
use sidelong_policy::index::Weights;
use sidelong_policy::reconfigure::ReconfigureSettings;
use sidelong_state::{Protocol, Timing};

use crate::config::Point;
use crate::datacenter::node::Node;
use crate::error::{Error, Result};
use crate::fields::{DemandKind, MovesBy, Scenario, Sites};

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Each node's first site, and the factor of its service time.
    pub nodes: Vec<(usize, f64)>,
    /// Number of sites.
    pub sites: usize,
    /// Nodes that each site is guaranteed.
    pub floor: u16,
    /// Sites have the priorities below this in turn.
    pub priority_levels: u8,
    /// Whether nodes move.
    pub moves: bool,
    /// Requests that a node serves at a time.
    pub workers: u32,
    /// Service time of a request, in ns.
    pub service_ns: f64,
    /// Whether that is the mean of an exponential distribution.
    pub is_exponential: bool,
    /// Half of a request's time outside queue and service, in ns.
    pub hop_ns: u64,
    /// The clients.
    pub demand: Demand,
    /// Edges.
    pub balancers: usize,
    /// How they choose a node.
    pub balance: Balance,
    /// Settings of their reconfigurers.
    pub policy: ReconfigureSettings,
    /// Whether moves depend on targets, too.
    pub by_target: bool,
    /// Admission settings, and the promise to each site; `None` admits all requests.
    pub admission: Option<(admission::AdmissionSettings, Promise)>,
    /// Longest wait at a node that counts as goodput, in ns.
    pub wait_ns_max: u64,
    /// The protocol of moves.
    pub protocol: Protocol,
    /// The waits of that protocol.
    pub timing: Timing,
    /// The lease: at most twice this long until a dead holder's lock is free again, in ns.
    pub lease_ns: u64,
    /// Interval at which a node publishes its record and reads its word, in ns.
    pub period_ns: u64,
    /// What the network does to operations.
    pub faults: Faults,
    /// Mean time until a balancer dies, in ns; 0 for never.
    pub crash_ns: f64,
    /// Mean time until it is back, in ns.
    pub back_ns: f64,
    /// Mean time until a node leaves the cluster, in ns; 0 for never.
    pub leave_ns: f64,
    /// Mean time until it joins again, in ns.
    pub join_ns: f64,
    /// A node that moves back within this time counts as thrashing, in ns.
    pub thrash_ns: u64,
    /// Seed of all random numbers.
    pub seed: u64,
}

/// The clients' behaviour and duration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Demand {
    /// All clients request one site, and then the next (Balaji et al. 2004, 4.3.1).
    Bursts {
        /// Requests for each.
        burst: u64,
        /// Total number of requests.
        asked: u64,
        /// Clients of each edge.
        clients_per_edge: usize,
    },
    /// Each site has its own clients, and more of them while it is busy.
    Steps {
        /// Number of steps.
        count: u64,
        /// Duration of each, in ns.
        step_ns: u64,
        /// One in this many sites is busy.
        busy_one_in: usize,
        /// Clients of a busy site, for each of its initial nodes.
        busy_clients: f64,
        /// Clients of a site that is not busy, for each of its initial nodes.
        idle_clients: f64,
    },
    /// Requests arrive at random, regardless of answers.
    Open {
        /// Rate relative to the capacity of a site's initial nodes.
        offered: f64,
        /// Rate relative to the capacity of a site's initial nodes, for sites of the highest priority, if priorities differ.
        offered_high: f64,
        /// Start of the surge in ns, and the last site's rate from then on.
        surge: Option<(u64, f64)>,
        /// Duration, in ns.
        open_ns: u64,
        /// Clients of each site.
        askers: u32,
    },
}

impl Setup {
    /// The parameters of one run of a configuration.
    ///
    /// # Errors
    /// If fields contradict each other.
    pub fn of(point: &Point) -> Result<Setup> {
        let Scenario { run, cluster, sites: of, admission, reconfig, .. } = point.scenario();
        let refuse = |key: &'static str, reason: String| {
            let value = point.get(key).to_owned();
            Err(Error::Contradiction { key, value, reason })
        };
        let (sites, floor) = (of.sites, of.floor);
        let pool = cluster.nodes as usize;
        let Some(spare) = pool.checked_sub(sites * floor) else {
            return refuse("floor", format!("{sites} sites are guaranteed more than the {pool} nodes"));
        };
        let dealt = |site: usize| match of.configuration {
            Configuration::OverProvisioned => floor + spare,
            Configuration::Reconfigured | Configuration::Rigid => {
                pool / sites + usize::from(site < pool % sites)
            }
        };
        let total: usize = (0..sites).map(dealt).sum();
        if total > NODES_MAX {
            return refuse(
                "configuration",
                format!("it needs {total} nodes, but at most {NODES_MAX} are possible"),
            );
        }
        let is_exponential = match of.service {
            Service::Fixed => false,
            Service::Exponential => true,
            Service::Burn | Service::None => {
                return refuse("service", "the model has no CPUs: use fixed or exponential".to_owned());
            }
        };
        // Spread over the pool, so that each site has some.
        let is_slow =
            |node: usize| (of.slow_part * (node + 1) as f64).floor() > (of.slow_part * node as f64).floor();
        let homes = (0..sites).flat_map(|site| std::iter::repeat_n(site, dealt(site)));
        let nodes = homes.enumerate().map(|(node, site)| {
            let is_slow = if of.slow_sites > 0 { site < of.slow_sites } else { is_slow(node) };
            (site, if is_slow { of.slow_factor } else { 1.0 })
        });

        let policy = ReconfigureSettings {
            history: duration(reconfig.history_ms),
            sensitivity: duration(reconfig.sensitivity_ms),
            settle: duration(reconfig.settle_ms),
            high: reconfig.high,
            low: reconfig.low,
            ..ReconfigureSettings::default()
        };
        if let Err(error) = policy.check() {
            return refuse("low", error.to_string());
        }
        let settings = admission::AdmissionSettings {
            rule: admission.admission,
            threshold: admission.overload_threshold,
            lag: admission::lag(duration(reconfig.sensitivity_ms), duration(reconfig.period_ms)),
            rotation: Duration::from_secs_f64(admission.rotation_s),
            weights: Weights::SYSTEM,
        };
        let target = Some(Target::Queue(duration(admission.queue_ms_max)));
        let promise = Promise { target, share: admission.share };
        let is_decided = admission.admission != AdmissionRule::None;
        if admission.share * sites as f64 > 1.0 {
            return refuse("share", format!("{sites} sites are promised more than the pool"));
        }
        let lease_ns = whole_ns(reconfig.lease_ms);
        let (drain_ns, interval_ns) = (whole_ns(reconfig.drain_ms_max), whole_ns(reconfig.sensitivity_ms));
        let timing = match Timing::live(lease_ns, drain_ns, interval_ns) {
            Ok(timing) => timing,
            Err(error) => return refuse("lease_ms", error.to_string()),
        };
        if reconfig.op_us_min > reconfig.op_us_max {
            return refuse("op_us_min", "it is above op_us_max".to_owned());
        }
        if reconfig.leave_ms > 0.0 && reconfig.reconfig_protocol == Protocol::Paper {
            return refuse("leave_ms", "the published protocol has no moves by hand".to_owned());
        }
        let op = |us: f64| Duration::from_nanos((us * 1e3).round() as u64);
        Ok(Setup {
            nodes: nodes.collect(),
            sites,
            floor: floor as u16,
            priority_levels: of.priority_levels,
            moves: of.configuration == Configuration::Reconfigured,
            workers: of.workers,
            service_ns: ns(of.service_ms),
            is_exponential,
            hop_ns: (ns(of.path_ms) / 2.0) as u64,
            demand: demand(of),
            balancers: reconfig.balancers,
            balance: reconfig.balance,
            policy,
            by_target: reconfig.moves_by == MovesBy::Target,
            admission: is_decided.then_some((settings, promise)),
            wait_ns_max: whole_ns(admission.queue_ms_max),
            protocol: reconfig.reconfig_protocol,
            timing,
            lease_ns,
            period_ns: whole_ns(reconfig.period_ms),
            faults: Faults {
                delay: op(reconfig.op_us_min)..op(reconfig.op_us_max),
                loss_permille: reconfig.loss_permille,
                late_permille: reconfig.late_permille,
                ..Faults::default()
            },
            crash_ns: ns(reconfig.crash_ms),
            back_ns: ns(reconfig.back_ms),
            leave_ns: ns(reconfig.leave_ms),
            join_ns: ns(reconfig.join_ms),
            thrash_ns: whole_ns(reconfig.thrash_ms),
            seed: run.seed,
        })
    }
}

/// Milliseconds in ns.
fn ns(ms: f64) -> f64 {
    ms * 1e6
}

fn whole_ns(ms: f64) -> u64 {
    ns(ms).round() as u64
}

fn duration(ms: f64) -> Duration {
    Duration::from_nanos(whole_ns(ms))
}

impl Setup {
    /// Whether nodes leave the cluster and join it.
    pub(super) fn nodes_leave(&self) -> bool {
        self.leave_ns > 0.0
    }

    /// A node that has no request yet.
    pub(super) fn node(&self, node: usize) -> Node {
        // The keepers are spread evenly over their period.
        let count = self.nodes.len() as u64;
        let phase_ns = self.period_ns * (node as u64 * 7 % count) / count;
        Node::new(self.workers, self.nodes[node].1, self.service_ns, self.period_ns, phase_ns)
    }

    /// Requests per second that a node with that factor can serve.
    pub(super) fn capacity_per_s(&self, factor: f64) -> f64 {
        f64::from(self.workers) * 1e9 / (self.service_ns * factor)
    }

    /// Requests per second for each site, during the surge or before; 0 except in an open loop.
    pub(super) fn offered_per_s(&self, in_surge: bool) -> Vec<f64> {
        let mut offers = vec![0.0; self.sites];
        let Demand::Open { offered, offered_high, surge, .. } = self.demand else { return offers };
        self.nodes.iter().for_each(|(home, factor)| offers[*home] += self.capacity_per_s(*factor));
        for (site, offer) in offers.iter_mut().enumerate() {
            *offer *= match surge.filter(|_| in_surge && site + 1 == self.sites) {
                Some((_, part)) => part,
                None if self.is_high(site) => offered_high,
                None => offered,
            };
        }
        offers
    }

    /// Start of the surge, in ns; 0 without one.
    pub(super) fn surge_ns(&self) -> u64 {
        match self.demand {
            Demand::Open { surge: Some((from_ns, _)), .. } => from_ns,
            _ => 0,
        }
    }

    /// Whether `site` has the highest priority, if priorities differ.
    pub(super) fn is_high(&self, site: usize) -> bool {
        let levels = usize::from(self.priority_levels);
        levels > 1 && site % levels == levels - 1
    }
}

fn demand(of: &Sites) -> Demand {
    match of.demand {
        DemandKind::Bursts => {
            Demand::Bursts { burst: of.burst, asked: of.asked, clients_per_edge: of.clients_per_edge }
        }
        DemandKind::Steps => Demand::Steps {
            count: of.steps,
            step_ns: ns(of.step_ms) as u64,
            busy_one_in: of.busy_one_in,
            busy_clients: of.busy_clients,
            idle_clients: of.idle_clients,
        },
        DemandKind::Open => Demand::Open {
            offered: of.offered,
            offered_high: of.offered_high,
            surge: Some((ns(of.surge_ms) as u64, of.surge)).filter(|(_, part)| *part > 0.0),
            open_ns: ns(of.open_ms) as u64,
            askers: of.askers,
        },
    }
}
