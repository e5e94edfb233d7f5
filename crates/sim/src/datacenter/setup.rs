//! What a run is of: the fields of a configuration as the parts of the model want them.

use std::time::Duration;

use sidelong_fabric::sim::Faults;
use sidelong_layout::NODES_MAX;
use sidelong_policy::admission::{self, Promise, Rule, Target};
use sidelong_policy::balance::Balance;
use sidelong_policy::index::Weights;
use sidelong_policy::reconfigure::Settings;
use sidelong_reconfig::Protocol;
use sidelong_state::Timing;

use crate::config::Point;
use crate::error::{Error, Result};

/// Of a lease, the part before its end in which the holder acts no more: as the live system has it.
const LEASE_MARGIN: u64 = 10;
/// How often a mover asks for an acknowledgement, at most: the same.
const ACK_POLL_NS_MAX: u64 = 1_000_000;

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The site that each node begins with, and how many times as long as others it takes.
    pub nodes: Vec<(usize, f64)>,
    /// How many sites there are.
    pub sites: usize,
    /// Nodes that each site is guaranteed.
    pub floor: u16,
    /// Sites have the priorities below this in turn.
    pub priority_levels: u8,
    /// Whether nodes move.
    pub moves: bool,
    /// Requests that a node serves at a time.
    pub workers: u32,
    /// For each of which it takes so long, in ns.
    pub service_ns: f64,
    /// Whether that is only the mean.
    pub is_exponential: bool,
    /// Half of what a request takes but for queue and service, in ns.
    pub hop_ns: u64,
    /// Who asks.
    pub demand: Demand,
    /// Edges.
    pub balancers: usize,
    /// How they choose a node.
    pub balance: Balance,
    /// What they decide by.
    pub policy: Settings,
    /// Whether moves go by how targets stand, too.
    pub by_target: bool,
    /// Whom they let in, by which promise to each site; `None`: everybody.
    pub admission: Option<(admission::Settings, Promise)>,
    /// How long a request may wait at its node to count as goodput, in ns.
    pub wait_ns_max: u64,
    /// How they move.
    pub protocol: Protocol,
    /// The waits of that.
    pub timing: Timing,
    /// Half of what a dead holder's lock needs to be free again at most, in ns.
    pub lease_ns: u64,
    /// How often a node keeps its record and looks at its word, in ns.
    pub period_ns: u64,
    /// What the network does to operations.
    pub faults: Faults,
    /// Mean time after which a balancer is due to die, in ns; 0 for never.
    pub crash_ns: f64,
    /// Mean time until it is back, in ns.
    pub back_ns: f64,
    /// A node that moves back within this time is thrash, in ns.
    pub thrash_ns: u64,
    /// Of all that is drawn.
    pub seed: u64,
}

/// Who asks, and for how long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Demand {
    /// All clients ask for one site, and then for the next (R 4.3.1).
    Bursts {
        /// Requests for each.
        burst: u64,
        /// Requests in all.
        asked: u64,
        /// Clients of each edge.
        clients_per_edge: usize,
    },
    /// Each site has its own clients, more of them when it is busy.
    Steps {
        /// How many.
        count: u64,
        /// How long each lasts, in ns.
        step_ns: u64,
        /// Of so many sites one is busy.
        busy_one_in: usize,
        /// Clients for each node that the site began with.
        busy_clients: f64,
        /// The same of the others.
        idle_clients: f64,
    },
    /// Requests come at random, whatever becomes of them.
    Open {
        /// In a second, of what the nodes that a site began with can serve.
        offered: f64,
        /// The same of sites of the highest priority, where there are several.
        offered_high: f64,
        /// From when on, in ns, what comes for the last site in place of that.
        surge: Option<(u64, f64)>,
        /// For how long, in ns.
        open_ns: u64,
        /// Clients of each site.
        askers: u32,
    },
}

impl Setup {
    /// Of a configuration's run.
    ///
    /// # Errors
    /// Where fields contradict each other.
    pub fn of(point: &Point) -> Result<Setup> {
        let ns = |key: &str| point.number(key) * 1e6;
        let whole_ns = |key: &str| ns(key).round() as u64;
        let duration = |key: &str| Duration::from_nanos(whole_ns(key));
        let refuse = |key: &'static str, reason: String| {
            let value = point.get(key).to_owned();
            Err(Error::Contradiction { key, value, reason })
        };
        let (sites, floor) = (point.whole("sites") as usize, point.whole("floor") as usize);
        let pool = point.nodes() as usize;
        let Some(spare) = pool.checked_sub(sites * floor) else {
            return refuse("floor", format!("{sites} sites are guaranteed more than the {pool} nodes"));
        };
        let dealt = |site: usize| match point.get("configuration") {
            "over-provisioned" => floor + spare,
            _ => pool / sites + usize::from(site < pool % sites),
        };
        let total: usize = (0..sites).map(dealt).sum();
        if total > NODES_MAX {
            return refuse(
                "configuration",
                format!("it takes {total} nodes, of which words can count {NODES_MAX}"),
            );
        }
        let (slow_part, slow_factor) = (point.number("slow_part"), point.number("slow_factor"));
        // Spread over the pool, so that each site has its part.
        let is_slow =
            |node: usize| (slow_part * (node + 1) as f64).floor() > (slow_part * node as f64).floor();
        let slow_sites = point.whole("slow_sites") as usize;
        let homes = (0..sites).flat_map(|site| std::iter::repeat_n(site, dealt(site)));
        let nodes = homes.enumerate().map(|(node, site)| {
            let is_slow = if slow_sites > 0 { site < slow_sites } else { is_slow(node) };
            (site, if is_slow { slow_factor } else { 1.0 })
        });

        let policy = Settings {
            history: duration("history_ms"),
            sensitivity: duration("sensitivity_ms"),
            settle: duration("settle_ms"),
            high: point.number("high"),
            low: point.number("low"),
            ..Settings::default()
        };
        if let Err(error) = policy.check() {
            return refuse("low", error.to_string());
        }
        let rule = match point.get("admission") {
            "target" => Some(Rule::Target),
            "paper" => Some(Rule::Paper { threshold: point.number("overload_threshold") }),
            _ => None,
        };
        let admission = rule.map(|rule| {
            let settings = admission::Settings {
                rule,
                // As the live system has it: a verdict shows in the records of the period after it, which the look
                // after that sees.
                lag: duration("sensitivity_ms") + 2 * duration("period_ms"),
                rotation: Duration::from_secs_f64(point.number("rotation_s")),
                weights: Weights::SYSTEM,
            };
            let target = Some(Target::Queue(duration("queue_ms_max")));
            (settings, Promise { target, share: point.number("share") })
        });
        if point.number("share") * sites as f64 > 1.0 {
            return refuse("share", format!("{sites} sites are promised more than the pool"));
        }
        let lease_ns = whole_ns("lease_ms");
        let poll_ns = whole_ns("sensitivity_ms").min(ACK_POLL_NS_MAX);
        let timing = match Timing::new(lease_ns, lease_ns / LEASE_MARGIN, whole_ns("drain_ms_max"), poll_ns) {
            Ok(timing) => timing,
            Err(error) => return refuse("lease_ms", error.to_string()),
        };
        let op = |key: &str| Duration::from_nanos((point.number(key) * 1e3).round() as u64);
        if point.number("op_us_min") > point.number("op_us_max") {
            return refuse("op_us_min", "it is above op_us_max".to_owned());
        }
        Ok(Setup {
            nodes: nodes.collect(),
            sites,
            floor: floor as u16,
            priority_levels: point.whole("priority_levels") as u8,
            moves: point.get("configuration") == "reconfigured",
            workers: point.whole("workers") as u32,
            service_ns: ns("service_ms"),
            is_exponential: point.get("service") == "exponential",
            hop_ns: (ns("path_ms") / 2.0) as u64,
            demand: demand(point),
            balancers: point.whole("balancers") as usize,
            balance: match point.get("balance") {
                "round-robin" => Balance::RoundRobin,
                "least-connections" => Balance::LeastConnections,
                "power-of-two" => Balance::PowerOfTwo,
                "last-look" => Balance::LastLook,
                _ => Balance::Weighted,
            },
            policy,
            by_target: point.get("moves_by") == "target",
            admission,
            wait_ns_max: whole_ns("queue_ms_max"),
            protocol: if point.get("reconfig_protocol") == "paper" {
                Protocol::Paper
            } else {
                Protocol::Lease
            },
            timing,
            lease_ns,
            period_ns: whole_ns("period_ms"),
            faults: Faults {
                delay: op("op_us_min")..op("op_us_max"),
                loss_permille: point.whole("loss_permille") as u32,
                late_permille: point.whole("late_permille") as u32,
            },
            crash_ns: ns("crash_ms"),
            back_ns: ns("back_ms"),
            thrash_ns: whole_ns("thrash_ms"),
            seed: point.seed(),
        })
    }
}

impl Setup {
    /// Requests in a second that a node can serve which takes so many times as long as an ordinary one.
    pub(super) fn capacity_per_s(&self, factor: f64) -> f64 {
        f64::from(self.workers) * 1e9 / (self.service_ns * factor)
    }

    /// Requests that come for each site in a second, in the surge or before it; 0 but in an open loop.
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

    /// When the surge begins, in ns; 0 without one.
    pub(super) fn surge_ns(&self) -> u64 {
        match self.demand {
            Demand::Open { surge: Some((from_ns, _)), .. } => from_ns,
            _ => 0,
        }
    }

    /// Whether `site` has the highest priority, where there are several.
    pub(super) fn is_high(&self, site: usize) -> bool {
        let levels = usize::from(self.priority_levels);
        levels > 1 && site % levels == levels - 1
    }
}

fn demand(point: &Point) -> Demand {
    match point.get("demand") {
        "steps" => Demand::Steps {
            count: point.whole("steps"),
            step_ns: (point.number("step_ms") * 1e6) as u64,
            busy_one_in: point.whole("busy_one_in") as usize,
            busy_clients: point.number("busy_clients"),
            idle_clients: point.number("idle_clients"),
        },
        "open" => Demand::Open {
            offered: point.number("offered"),
            offered_high: point.number("offered_high"),
            surge: Some(((point.number("surge_ms") * 1e6) as u64, point.number("surge")))
                .filter(|(_, part)| *part > 0.0),
            open_ns: (point.number("open_ms") * 1e6) as u64,
            askers: point.whole("askers") as u32,
        },
        _ => Demand::Bursts {
            burst: point.whole("burst"),
            asked: point.whole("asked"),
            clients_per_edge: point.whole("clients_per_edge") as usize,
        },
    }
}
