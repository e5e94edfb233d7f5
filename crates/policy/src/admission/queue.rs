//! The queue of a site, summed over its nodes.

/// Below this part of the budget all are admitted. Random arrivals fill queues this far at loads that can be served.
pub(crate) const LOW: f64 = 0.4;

/// What waits for a site.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Queue {
    /// Nodes that are up and sufficiently known.
    pub(super) nodes: u32,
    /// Answers per second, over all of them.
    pub(super) rate: f64,
    pub(super) workers: f64,
    /// For each node: how long a request waits there in seconds, and the node's rate.
    pub(super) delays: Vec<(f64, f64)>,
    /// Whether it has more than was promised to it.
    pub(super) can_yield: bool,
}

impl Queue {
    /// Mean service time of a request.
    pub(super) fn service_s(&self) -> f64 {
        if self.rate > 0.0 { self.workers / self.rate } else { 0.0 }
    }

    /// How long a request waits. The mean over the nodes is steadier than the shortest queue, which the request goes
    /// to. But long queues elsewhere are no reason to reject it, so each queue counts for at most that part of a budget
    /// above the shortest. While a node is idle, all requests are admitted.
    pub(super) fn delay_s(&self, budget_s: f64) -> f64 {
        let shortest = self.delays.iter().fold(f64::INFINITY, |least, (delay, _)| least.min(*delay));
        let most = shortest + budget_s * LOW;
        self.delays.iter().map(|(delay, rate)| delay.min(most) * rate).sum::<f64>() / self.rate
    }
}
