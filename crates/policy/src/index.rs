//! The load index: one number for the load of a node (Vaidyanathan et al. 2006, 5.2.1).
//!
//! Vaidyanathan et al. balance by the algorithm of IBM WebSphere: the load of a server is the weighted mean of CPU,
//! memory, network and connection load. e-RDMA-Sync adds pending interrupts and run queues. Here each term is relative
//! to the node's capacity ([`Capacity`]), so that unlike nodes compare fairly. Only terms that the node's source can
//! fill take part, so that nodes with different kernels compare at all.
//!
//! Between two scans of the records an edge has newer knowledge: the requests that it sent itself. A [`Reading`] keeps
//! the index of the last scan in one 64-bit word, and updates it from the edge's own count. Without that, all requests
//! between two scans would go to the node that looked best. It never blocks, and takes a few nanoseconds.

use serde::{Deserialize, Serialize};
use sidelong_layout::{Hot, READING, valid};

use crate::SettingsError;

/// The load of a node, in ten-thousandths of its capacity: 10,000 means all in use, more means that work waits.
///
/// Ten-thousandths, so that one request shows on a node of some thousand workers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LoadIndex(pub u32);

impl LoadIndex {
    /// All in use, nothing waits.
    pub const FULL: LoadIndex = LoadIndex(10_000);

    /// As a ratio, 1.0 for [`LoadIndex::FULL`].
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / f64::from(Self::FULL.0)
    }

    /// As a sort key: the nearest index to a load, the largest for an infinite one.
    pub(crate) fn from_load(load: f64) -> Self {
        LoadIndex((load * f64::from(Self::FULL.0)).round() as u32)
    }

    /// The nearest index to a ratio, limited to the range.
    fn from_ratio(ratio: f32) -> Self {
        LoadIndex((ratio * Self::FULL.0 as f32).round() as u32)
    }
}

/// The capacity of a node, as in the cluster file. A figure in its record is newer and takes precedence.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Capacity {
    /// Requests that it works on at a time.
    pub workers: u32,
    /// Speed of a worker: the ordinary service time in the pool divided by this node's. A worker of 2.0 takes half the
    /// time.
    pub speed: f32,
    /// CPUs, or a share of one, as the base of run queues and interrupts. With 0, unknown, neither counts.
    pub cpus: f32,
    /// Bytes per second that its network carries. With 0, unknown, network load does not count.
    pub net_bytes_per_s: u64,
}

impl Default for Capacity {
    /// One worker of ordinary speed: right for a pool of equal nodes of which nothing else is known.
    fn default() -> Self {
        Capacity { workers: 1, speed: 1.0, cpus: 0.0, net_bytes_per_s: 0 }
    }
}

impl Capacity {
    /// Checks the capacity.
    ///
    /// # Errors
    /// If the node could do nothing, or the speed is not a number.
    pub fn check(&self) -> Result<(), SettingsError> {
        SettingsError::if_zero("workers", self.workers == 0)?;
        SettingsError::unless_figure("speed", f64::from(self.speed))?;
        SettingsError::unless_figure("cpus", f64::from(self.cpus))?;
        SettingsError::if_zero("speed", self.speed == 0.0)
    }

    /// The number of workers, from the record if it has it.
    pub(crate) fn workers(&self, load: Option<&Hot>) -> u32 {
        match load {
            Some(hot) if hot.valid & valid::ORIGIN != 0 && hot.workers != 0 => u32::from(hot.workers),
            _ => self.workers.max(1),
        }
    }
}

/// The weight of each term in the mean: `balance.weights` of the cluster file. Only their ratios matter.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Weights {
    /// CPU in use.
    pub cpu: f32,
    /// Memory in use.
    pub memory: f32,
    /// Bytes in and out, relative to what the network carries.
    pub network: f32,
    /// Requests in service and queued, per worker of ordinary speed.
    pub connections: f32,
    /// Threads that run or wait, per CPU. `None` takes the scheme's weight, otherwise 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_queue: Option<f32>,
    /// Pending interrupts, per CPU; `None` as above.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<f32>,
}

impl Weights {
    /// Weights for the four schemes that report system load. Vaidyanathan et al. name the terms and give no figures. In
    /// ours, connections count most because they alone show waiting work, memory least because one request hardly
    /// changes it.
    pub const SYSTEM: Weights =
        Weights { cpu: 2.0, memory: 0.5, network: 1.0, connections: 4.0, run_queue: None, interrupts: None };

    /// Weights for e-rdma-sync (Vaidyanathan et al. 2006, 5.2.1): the same plus what only the kernel sees.
    pub const EXTENDED: Weights = Weights { run_queue: Some(2.0), interrupts: Some(1.0), ..Weights::SYSTEM };

    /// Connection load alone: the utilisation of the workers.
    pub const CONNECTIONS: Weights =
        Weights { cpu: 0.0, memory: 0.0, network: 0.0, connections: 1.0, run_queue: None, interrupts: None };

    /// The weights with their names.
    pub fn named(&self) -> [(&'static str, f32); 6] {
        [
            ("weight of cpu", self.cpu),
            ("weight of memory", self.memory),
            ("weight of network", self.network),
            ("weight of connections", self.connections),
            ("weight of run_queue", self.run_queue.unwrap_or(0.0)),
            ("weight of interrupts", self.interrupts.unwrap_or(0.0)),
        ]
    }

    /// These weights, completed by those of `other`.
    pub fn or(self, other: Weights) -> Weights {
        Weights {
            run_queue: self.run_queue.or(other.run_queue),
            interrupts: self.interrupts.or(other.interrupts),
            ..self
        }
    }

    /// Checks the weights.
    ///
    /// # Errors
    /// If a weight is negative or not a number, or all are 0.
    pub fn check(&self) -> Result<(), SettingsError> {
        let named = self.named();
        for (setting, weight) in named {
            SettingsError::unless_figure(setting, f64::from(weight))?;
        }
        SettingsError::if_zero("the sum of the weights", named.iter().all(|(_, weight)| *weight == 0.0))
    }

    /// A node's index, from its record and from `in_flight`, the edges' current requests there.
    ///
    /// Without a record (`None`: rejected, or too old) the index is that of the edges' requests. With one, the greater
    /// of the record's and the edges' count is used: either may lag, and neither counts too many.
    pub fn read(&self, load: Option<&Hot>, capacity: &Capacity, in_flight: u32) -> Reading {
        let nothing = Hot::default();
        let hot = load.unwrap_or(&nothing);
        let reported = |bit: u16, weight: f32| if hot.valid & bit != 0 { weight } else { 0.0 };

        let for_each_cpu = |bit: u16, weight: f32, number: u16| match capacity.cpus {
            0.0 => (0.0, 0.0),
            cpus => (reported(bit, weight), f32::from(number) / cpus),
        };

        let slots = capacity.workers(load) as f32 * capacity.speed;
        // Of a foreign server the record may have only what waits.
        let known = valid::ORIGIN | valid::CONNECTIONS;
        let counted =
            if hot.valid & known != 0 { hot.busy.saturating_add(hot.queued) } else { 0 }.max(in_flight);
        let terms = [
            (self.connections, counted as f32 / slots),
            (reported(valid::CPU, self.cpu), f32::from(hot.cpu_permille) / 1000.0),
            (reported(valid::MEMORY, self.memory), f32::from(hot.memory_permille) / 1000.0),
            (
                if capacity.net_bytes_per_s == 0 { 0.0 } else { reported(valid::NETWORK, self.network) },
                hot.net_bytes_per_s as f32 / capacity.net_bytes_per_s.max(1) as f32,
            ),
            for_each_cpu(valid::RUN_QUEUE, self.run_queue.unwrap_or(0.0), hot.run_queue),
            for_each_cpu(valid::INTERRUPTS, self.interrupts.unwrap_or(0.0), hot.pending_interrupts),
        ];

        let total: f32 = terms.iter().map(|(weight, _)| weight).sum();
        if total == 0.0 {
            return Reading::new(counted as f32 / slots, 1.0 / slots, in_flight);
        }
        let mean = terms.iter().map(|(weight, term)| weight * term).sum::<f32>() / total;
        Reading::new(mean, self.connections / total / slots, in_flight)
    }
}

impl Default for Weights {
    /// [`Weights::SYSTEM`].
    fn default() -> Self {
        Weights::SYSTEM
    }
}

/// The largest index that a reading holds: 26,843 times full.
const INDEX_MAX: u32 = READING.max(0) as u32;
/// The largest addition for one request: 104 times full.
const PER_REQUEST_MAX: u32 = READING.max(1) as u32;

/// A node's index as of the last scan, with what is needed to update it to the present.
///
/// It fits in a word. An edge stores one for each node in an `AtomicU64` at each scan, and a request reads it together
/// with the edge's own count, without a lock and without tearing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reading {
    index: u32,
    per_request: u32,
    in_flight: u16,
}

impl Reading {
    fn new(ratio: f32, per_request: f32, in_flight: u32) -> Self {
        Reading {
            index: LoadIndex::from_ratio(ratio).0.min(INDEX_MAX),
            per_request: LoadIndex::from_ratio(per_request).0.min(PER_REQUEST_MAX),
            in_flight: in_flight as u16,
        }
    }

    /// The index at the scan.
    pub const fn index(self) -> LoadIndex {
        LoadIndex(self.index)
    }

    /// The same reading of a node whose record is no longer heard: it counts as full and whatever it has on top, so that work goes there once
    /// nodes that are heard are full, too.
    #[must_use]
    pub const fn unheard(self) -> Self {
        let index = self.index + LoadIndex::FULL.0;
        Reading { index: if index > INDEX_MAX { INDEX_MAX } else { index }, ..self }
    }

    /// The same reading, to be updated by an edge's count of its own requests, which is `in_flight` now.
    pub const fn counted_from(self, in_flight: u32) -> Self {
        Reading { in_flight: in_flight as u16, ..self }
    }

    /// The index now that the edge has `in_flight` requests at the node.
    ///
    /// The count is compared modulo 2^16, which is right as long as it changes by less than 32,768 between two scans.
    pub const fn now(self, in_flight: u32) -> LoadIndex {
        let change = (in_flight as u16).wrapping_sub(self.in_flight) as i16;
        let index = self.index as i64 + change as i64 * self.per_request as i64;
        LoadIndex(if index < 0 { 0 } else { index as u32 })
    }

    /// Encodes it as one word.
    #[inline]
    pub const fn encode(self) -> u64 {
        READING.pack([self.index as u64, self.per_request as u64, self.in_flight as u64])
    }

    /// Decodes a word. Every value is valid, and 0 is an idle node.
    #[inline]
    pub const fn decode(word: u64) -> Self {
        let [index, per_request, in_flight] = READING.unpack(word);
        Reading { index: index as u32, per_request: per_request as u32, in_flight: in_flight as u16 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NODE: Capacity = Capacity { workers: 8, speed: 1.0, cpus: 2.0, net_bytes_per_s: 1_000_000 };

    fn hot(valid: u16) -> Hot {
        Hot {
            valid,
            cpu_permille: 500,
            memory_permille: 250,
            net_bytes_per_s: 1_000_000,
            run_queue: 6,
            pending_interrupts: 4,
            workers: 8,
            busy: 8,
            queued: 8,
            ..Hot::default()
        }
    }

    fn index(weights: Weights, hot: Hot, capacity: Capacity, in_flight: u32) -> u32 {
        weights.read(Some(&hot), &capacity, in_flight).index().0
    }

    #[test]
    fn an_edge_brings_a_reading_of_all_edges_requests_up_to_date_by_its_own() {
        let of_all = Weights::CONNECTIONS.read(None, &Capacity { workers: 2, ..Capacity::default() }, 6);
        let reading = of_all.counted_from(1);
        assert_eq!(reading.index().ratio(), 3.0);
        assert_eq!((reading.now(1).ratio(), reading.now(3).ratio(), reading.now(0).ratio()), (3.0, 4.0, 2.5));
    }

    #[test]
    fn the_index_is_the_weighted_mean() {
        let weights =
            Weights { cpu: 1.0, memory: 1.0, network: 1.0, connections: 1.0, ..Weights::CONNECTIONS };
        assert_eq!(index(weights, hot(valid::ALL), NODE, 0), (5_000 + 2_500 + 10_000 + 20_000) / 4);
        let extended = Weights { run_queue: Some(2.0), interrupts: Some(4.0), ..weights };
        assert_eq!(index(extended, hot(valid::ALL), NODE, 0), (37_500 + 2 * 30_000 + 4 * 20_000) / 10);
    }

    #[test]
    fn what_the_record_does_not_hold_takes_no_part() {
        let weights =
            Weights { cpu: 1.0, memory: 1.0, network: 1.0, connections: 2.0, ..Weights::CONNECTIONS };
        assert_eq!(index(weights, hot(valid::CPU | valid::ORIGIN), NODE, 0), (5_000 + 2 * 20_000) / 3);
        // Without the server's fields, busy and queued are not used, but the edge's own count is.
        assert_eq!(index(weights, hot(valid::CPU), NODE, 4), (5_000 + 2 * 5_000) / 3);
        // A term without a base to compare with.
        let unknown = Capacity { cpus: 0.0, net_bytes_per_s: 0, ..NODE };
        assert_eq!(index(Weights::EXTENDED, hot(valid::ORIGIN), unknown, 0), 20_000);
        let all = index(Weights { memory: 0.0, ..weights }, hot(valid::ALL), unknown, 0);
        assert_eq!(all, (5_000 + 2 * 20_000) / 3);
    }

    #[test]
    fn a_node_that_is_no_longer_heard_comes_after_those_with_a_free_worker() {
        let at = |in_flight| Weights::SYSTEM.read(None, &NODE, in_flight);
        let unheard = at(2).unheard();
        assert!(at(8).index() < unheard.index() && unheard.index() < at(11).index());
        assert!(at(0).unheard().index() < unheard.index(), "of two the one with fewer requests");
        assert_eq!(unheard.counted_from(2).now(3), at(3).unheard().index());
        assert_eq!(Reading::decode(unheard.encode()), unheard);
        let fullest = Reading { index: INDEX_MAX, ..Reading::default() };
        assert_eq!(fullest.unheard(), fullest);
    }

    #[test]
    fn without_a_record_the_edges_own_requests_count() {
        assert_eq!(Weights::SYSTEM.read(None, &NODE, 4).index(), LoadIndex(5_000));
        assert_eq!(Weights::SYSTEM.read(Some(&hot(0)), &NODE, 4).index(), LoadIndex(5_000));
        // Even where the weights leave connections out.
        let cpu = Weights { connections: 0.0, cpu: 1.0, ..Weights::SYSTEM };
        assert_eq!(cpu.read(None, &NODE, 4).index(), LoadIndex(5_000));
        assert_eq!(cpu.read(Some(&hot(valid::MEMORY)), &NODE, 4).index().0, 2_500);
    }

    #[test]
    fn the_greater_count_of_requests_is_believed() {
        assert_eq!(index(Weights::CONNECTIONS, hot(valid::ORIGIN), NODE, 24), 30_000);
        assert_eq!(index(Weights::CONNECTIONS, hot(valid::ORIGIN), NODE, 2), 20_000);
    }

    #[test]
    fn unlike_nodes_compare_by_what_they_have() {
        let of = |workers: u16, speed: f32, busy: u32| {
            let hot = Hot { workers, busy, valid: valid::ORIGIN, ..Hot::default() };
            index(Weights::CONNECTIONS, hot, Capacity { speed, ..NODE }, 0)
        };
        assert_eq!(of(8, 1.0, 4), of(16, 1.0, 8));
        assert_eq!(of(8, 1.0, 4), of(8, 2.0, 8), "twice as fast, twice the requests");
        assert!(of(4, 1.0, 4) > of(16, 1.0, 8));
    }

    #[test]
    fn a_reading_follows_the_edges_own_requests() {
        let reading = Weights::CONNECTIONS.read(Some(&hot(valid::ORIGIN)), &NODE, 3);
        assert_eq!(reading.now(3), LoadIndex(20_000));
        assert_eq!(reading.now(7), LoadIndex(25_000));
        assert_eq!(reading.now(0), LoadIndex(16_250));
        let alone = Weights::CONNECTIONS.read(None, &NODE, 65_535);
        assert_eq!(alone.now(65_537).0 - alone.now(65_535).0, 2 * 1_250, "past 2^16");
        assert_eq!(Reading::default().now(40_000), LoadIndex(0));
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        assert_eq!(Weights::SYSTEM.check(), Ok(()));
        assert_eq!(Weights::EXTENDED.check(), Ok(()));
        assert!(matches!(
            Weights { memory: f32::NAN, ..Weights::SYSTEM }.check(),
            Err(SettingsError::Figure { setting: "weight of memory", .. })
        ));
        let none = Weights { connections: 0.0, ..Weights::CONNECTIONS };
        assert!(matches!(none.check(), Err(SettingsError::Zero { .. })));
        assert_eq!(NODE.check(), Ok(()));
        assert_eq!(Capacity { workers: 0, ..NODE }.check(), Err(SettingsError::Zero { setting: "workers" }));
        assert_eq!(Capacity { speed: 0.0, ..NODE }.check(), Err(SettingsError::Zero { setting: "speed" }));
    }

    proptest! {
        #[test]
        fn readings_round_trip(word: u64) {
            prop_assert_eq!(Reading::decode(word).encode(), word);
        }

        /// Whatever a record says, the index is a number, and more of the edge's own requests never lower it.
        #[test]
        fn more_requests_never_lower_the_index(
            (valid, cpu, busy, queued) in (0u16..=valid::ALL, 0u16..=1000, 0u32..=u32::MAX, 0u32..=u32::MAX),
            workers in 0u16..=4096,
            (in_flight, more) in (0u32..20_000, 0u32..10_000),
        ) {
            let hot = Hot { valid, cpu_permille: cpu, busy, queued, workers, ..Hot::default() };
            let reading = Weights::EXTENDED.read(Some(&hot), &NODE, in_flight);
            prop_assert_eq!(Reading::decode(reading.encode()), reading);
            prop_assert!(reading.now(in_flight + more) >= reading.index());
        }
    }
}
