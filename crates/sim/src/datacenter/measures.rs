//! The results of a run.

use hdrhistogram::Histogram;

use crate::datacenter::Setup;

/// See [`Outcome::fairness`].
fn fairness(setup: &Setup, in_time: &[u64]) -> f64 {
    let homes = |site: usize| setup.nodes.iter().filter(|(home, _)| *home == site).count();
    let equals = in_time.iter().enumerate().filter(|(site, _)| !setup.is_high(*site));
    let each: Vec<f64> = equals.map(|(site, count)| *count as f64 / homes(site) as f64).collect();
    let (sum, squares): (f64, f64) = (each.iter().sum(), each.iter().map(|each| each * each).sum());
    if squares > 0.0 { sum * sum / (each.len() as f64 * squares) } else { 1.0 }
}

/// A figure of an [`Outcome`]: a column of `rows.csv`.
type Figure = (&'static str, fn(&Outcome) -> f64);

/// All figures, in the order of their columns.
pub(crate) const FIGURES: [Figure; 37] = [
    ("requests", |of| of.requests as f64),
    ("requests_per_s", |of| of.requests_per_s),
    ("response_ms_mean", |of| of.response_ms_mean),
    ("response_ms_p50", |of| of.response_ms_p50),
    ("response_ms_p99", |of| of.response_ms_p99),
    ("errors", |of| of.errors as f64),
    ("rejected", |of| of.rejected as f64),
    ("rejected_high", |of| of.rejected_high as f64),
    ("queue_ms_p99", |of| of.queue_ms_p99),
    ("goodput", |of| of.goodput),
    ("fairness", |of| of.fairness),
    ("rejected_until_ms", |of| of.rejected_until_ms),
    ("surge_to_node_ms", |of| of.surge_to_node_ms),
    ("moves", |of| of.moves as f64),
    ("staged", |of| of.staged as f64),
    ("not_moved", |of| of.not_moved as f64),
    ("repairs", |of| of.repairs as f64),
    ("thrash", |of| of.thrash as f64),
    ("crashes", |of| of.crashes as f64),
    ("leaves", |of| of.leaves as f64),
    ("joins", |of| of.joins as f64),
    ("strays", |of| of.strays as f64),
    ("floor_violations", |of| of.floor_violations as f64),
    ("below_floor_ms", |of| of.below_floor_ms),
    ("nodes_lost", |of| of.nodes_lost as f64),
    ("nodes_doubled", |of| of.nodes_doubled as f64),
    ("locks_stuck", |of| of.locks_stuck as f64),
    ("steps", |of| of.steps as f64),
    ("steps_unbalanced", |of| of.steps_unbalanced as f64),
    ("time_to_balance_ms", |of| of.time_to_balance_ms),
    ("time_to_balance_ms_max", |of| of.time_to_balance_ms_max),
    ("step_to_first_request_ms", |of| of.step_to_first_request_ms),
    ("mended_ms", |of| of.mended_ms),
    ("looks", |of| of.looks as f64),
    ("operations", |of| of.operations as f64),
    ("simulated_s", |of| of.simulated_s),
    ("events", |of| of.events as f64),
];

/// The figures of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Requests answered.
    pub requests: u64,
    /// Requests answered per second of simulated time.
    pub requests_per_s: f64,
    /// Response time, from sending a request to its answer, in ms: mean, median, 99th percentile (the last two to 1 %).
    pub response_ms_mean: f64,
    /// See `response_ms_mean`.
    pub response_ms_p50: f64,
    /// See `response_ms_mean`.
    pub response_ms_p99: f64,
    /// Requests whose edge died before the answer.
    pub errors: u64,
    /// Requests that were rejected.
    pub rejected: u64,
    /// Rejected requests for sites of the highest priority, if priorities differ.
    pub rejected_high: u64,
    /// Time from the surge, or without one from the start, until a request of the last site was last rejected, in ms; 0
    /// if none was.
    pub rejected_until_ms: f64,
    /// Time from there until a node last joined that site, in ms; 0 if none did.
    pub surge_to_node_ms: f64,
    /// Wait of admitted requests for a worker at their node, in ms: 99th percentile.
    pub queue_ms_p99: f64,
    /// Requests that waited no longer than `queue_ms_max`, relative to what all nodes can serve in that time.
    pub goodput: f64,
    /// Jain's fairness index of such requests over the sites below the highest priority, per initial node: 1 if all
    /// have the same (R. Jain et al., DEC-TR-301, 1984).
    pub fairness: f64,
    /// Nodes that moved to another site.
    pub moves: u64,
    /// Moves made so that a better node could follow (Balaji et al. 2004, 6).
    pub staged: u64,
    /// Moves that started and ended otherwise: busy, recent, and so on.
    pub not_moved: u64,
    /// Repairs that ended.
    pub repairs: u64,
    /// Nodes that moved back within `thrash_ms` to the site that they had left.
    pub thrash: u64,
    /// Deaths of balancers, and of persons who change the roster.
    pub crashes: u64,
    /// Nodes that left the cluster.
    pub leaves: u64,
    /// Nodes that joined it again.
    pub joins: u64,
    /// Requests that reached a node which served their site no more.
    pub strays: u64,
    /// How often a site fell below its floor.
    pub floor_violations: u64,
    /// Total time that sites were below their floor, in ms.
    pub below_floor_ms: f64,
    /// Nodes that serve no site at the end.
    pub nodes_lost: u64,
    /// Nodes that the budgets count at the end beyond those that serve.
    pub nodes_doubled: u64,
    /// Locks held at the end.
    pub locks_stuck: u64,
    /// Load steps or bursts.
    pub steps: u64,
    /// Steps after which, until the next, a site stayed overloaded while another had a node to spare.
    pub steps_unbalanced: u64,
    /// Time from a step until no site was overloaded while another had a node to spare, in ms: mean over steps, and
    /// maximum. A step that was never balanced counts with its whole time.
    pub time_to_balance_ms: f64,
    /// See `time_to_balance_ms`.
    pub time_to_balance_ms_max: f64,
    /// Time from the first request of a burst to the first request at a node that moved for it, in ms: median.
    pub step_to_first_request_ms: f64,
    /// Time from the end of the load until no lock was held, no node drained and no budget was wrong, in ms; the time
    /// waited, if that was never reached.
    pub mended_ms: f64,
    /// Scans by balancers.
    pub looks: u64,
    /// Operations of moves and repairs.
    pub operations: u64,
    /// Simulated time, in s.
    pub simulated_s: f64,
    /// Events of the simulation, including those of the network.
    pub events: u64,
}

/// Counts during a run.
pub(super) struct Measures {
    responses: Histogram<u64>,
    sum_ns: u128,
    last_ns: u64,
    pub(super) errors: u64,
    pub(super) not_moved: u64,
    pub(super) staged: u64,
    pub(super) repairs: u64,
    pub(super) crashes: u64,
    pub(super) strays: u64,
    pub(super) looks: u64,
    pub(super) operations: u64,
    pub(super) events: u64,
    /// For each step, its time and whether balance was reached.
    balanced: Vec<(u64, bool)>,
    first_requests_ns: Vec<u64>,
    waits: Histogram<u64>,
    wait_ns_max: u64,
    /// By site.
    rejected: Vec<u64>,
    /// Time of the last site's last rejected request, in ns.
    rejected_ns: u64,
    surge_ns: u64,
    /// By site, requests that waited no longer than that.
    in_time: Vec<u64>,
}

/// Longest response time that is represented, in ns: an hour.
const RESPONSE_NS_MAX: u64 = 3_600_000_000_000;

impl Measures {
    pub(super) fn new(setup: &Setup) -> Measures {
        let histogram =
            || Histogram::new_with_max(RESPONSE_NS_MAX, 2).expect("bounds and digits are constants");
        Measures {
            responses: histogram(),
            waits: histogram(),
            wait_ns_max: setup.wait_ns_max,
            rejected: vec![0; setup.sites],
            rejected_ns: 0,
            surge_ns: setup.surge_ns(),
            in_time: vec![0; setup.sites],
            sum_ns: 0,
            last_ns: 0,
            errors: 0,
            not_moved: 0,
            staged: 0,
            repairs: 0,
            crashes: 0,
            strays: 0,
            looks: 0,
            operations: 0,
            events: 0,
            balanced: Vec::new(),
            first_requests_ns: Vec::new(),
        }
    }

    pub(super) fn answered(&mut self, asked_ns: u64, now_ns: u64) {
        self.responses.saturating_record(now_ns - asked_ns);
        self.sum_ns += u128::from(now_ns - asked_ns);
        self.last_ns = now_ns;
    }

    /// A request of `site` has arrived at its node, and will wait there for `waited`.
    pub(super) fn waited(&mut self, site: usize, ns: u64) {
        self.waits.saturating_record(ns);
        self.in_time[site] += u64::from(ns <= self.wait_ns_max);
    }

    pub(super) fn rejected(&mut self, site: usize, now_ns: u64) {
        self.rejected[site] += 1;
        if site + 1 == self.rejected.len() {
            self.rejected_ns = now_ns;
        }
    }

    pub(super) fn balanced_after(&mut self, ns: u64, reached: bool) {
        self.balanced.push((ns, reached));
    }

    pub(super) fn first_request_after(&mut self, ns: u64) {
        self.first_requests_ns.push(ns);
    }

    /// The figures of the run; `end_ns` is the end of the load, if that is not the last answer.
    pub(super) fn outcome(mut self, setup: &Setup, end_ns: Option<u64>) -> Outcome {
        let ms = |ns: f64| ns / 1e6;
        let requests = self.responses.len();
        let seconds = end_ns.unwrap_or(self.last_ns) as f64 / 1e9;
        let rate = |count: f64, of: f64| if of > 0.0 { count / of } else { 0.0 };
        let sum: u64 = self.balanced.iter().map(|(ns, _)| ns).sum();
        let pool: f64 = setup.nodes.iter().map(|(_, factor)| setup.capacity_per_s(*factor)).sum();
        let in_time: u64 = self.in_time.iter().sum();
        let high = self.rejected.iter().enumerate().filter(|(site, _)| setup.is_high(*site));
        let first = &mut self.first_requests_ns;
        first.sort_unstable();
        Outcome {
            requests,
            requests_per_s: rate(requests as f64, seconds),
            response_ms_mean: ms(rate(self.sum_ns as f64, requests as f64)),
            response_ms_p50: ms(self.responses.value_at_quantile(0.5) as f64),
            response_ms_p99: ms(self.responses.value_at_quantile(0.99) as f64),
            errors: self.errors,
            rejected: self.rejected.iter().sum(),
            rejected_high: high.map(|(_, count)| count).sum(),
            queue_ms_p99: ms(self.waits.value_at_quantile(0.99) as f64),
            rejected_until_ms: ms(self.rejected_ns.saturating_sub(self.surge_ns) as f64),
            goodput: rate(in_time as f64, pool * seconds),
            fairness: fairness(setup, &self.in_time),
            not_moved: self.not_moved,
            staged: self.staged,
            repairs: self.repairs,
            crashes: self.crashes,
            strays: self.strays,
            steps: self.balanced.len() as u64,
            steps_unbalanced: self.balanced.iter().filter(|(_, reached)| !reached).count() as u64,
            time_to_balance_ms: ms(rate(sum as f64, self.balanced.len() as f64)),
            time_to_balance_ms_max: ms(self.balanced.iter().map(|(ns, _)| *ns).max().unwrap_or(0) as f64),
            step_to_first_request_ms: ms(first.get(first.len() / 2).copied().unwrap_or(0) as f64),
            looks: self.looks,
            operations: self.operations,
            simulated_s: seconds,
            events: self.events,
            ..Outcome::default()
        }
    }
}
