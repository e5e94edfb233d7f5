//! The load index: one number for how loaded a node is (M 5.2.1).
//!
//! M balances by the algorithm of IBM WebSphere: CPU, memory, network and connection load, each with a weight, and
//! their weighted mean is the load of the server. e-RDMA-Sync adds pending interrupts and run queues. Here each term is
//! relative to what the node has ([`Capacity`]), so that unlike nodes compare fairly, and only what the node's source
//! could fill takes part, so that nodes with other kernels compare at all.
//!
//! Between two looks at the records an edge knows something newer: what it sent itself. A [`Reading`] keeps the index
//! of the last look in one 64-bit word and brings it up to date from the edge's own count; without that, all requests
//! between two looks would go to the one node that looked best. It never blocks, and takes a few nanoseconds.

use sidelong_layout::{Hot, valid};

use crate::SettingsError;

/// How loaded a node is, in ten-thousandths of all that it has: 10,000 means all in use, more means work that waits.
///
/// Ten-thousandths, so that one request more shows on a node of some thousand workers.
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

    /// The nearest index to a ratio; the ends where there is none.
    fn from_ratio(ratio: f32) -> Self {
        LoadIndex((ratio * Self::FULL.0 as f32).round() as u32)
    }
}

/// What a node can do, as the cluster file has it. Its record, where it says, is newer and goes before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Capacity {
    /// Requests that it works on at once.
    pub workers: u32,
    /// How fast a worker is: the ordinary time of service in the pool over this node's. 2.0 takes half the time.
    pub speed: f32,
    /// CPUs, or the share of one, to compare run queues and interrupts by; 0 where unknown, and then neither takes part.
    pub cpus: f32,
    /// Bytes that its network carries in a second; 0 where unknown, and then network load takes no part.
    pub net_bytes_per_s: u64,
}

impl Default for Capacity {
    /// One worker of ordinary speed: right for a pool of equal nodes of which nothing more is known.
    fn default() -> Self {
        Capacity { workers: 1, speed: 1.0, cpus: 0.0, net_bytes_per_s: 0 }
    }
}

impl Capacity {
    /// # Errors
    /// Where the node could do nothing, or the speed is no number.
    pub fn check(&self) -> Result<(), SettingsError> {
        SettingsError::if_zero("workers", self.workers == 0)?;
        SettingsError::unless_figure("speed", f64::from(self.speed))?;
        SettingsError::unless_figure("cpus", f64::from(self.cpus))?;
        SettingsError::if_zero("speed", self.speed == 0.0)
    }

    /// The workers, from the record where it has them.
    pub(crate) fn workers(&self, load: Option<&Hot>) -> u32 {
        match load {
            Some(hot) if hot.valid & valid::ORIGIN != 0 && hot.workers != 0 => u32::from(hot.workers),
            _ => self.workers.max(1),
        }
    }
}

/// How much each term counts in the mean. Only their proportions matter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Weights {
    /// CPU in use.
    pub cpu: f32,
    /// Memory in use.
    pub memory: f32,
    /// Bytes in and out, of what the network carries.
    pub network: f32,
    /// Requests in service and queued, for each worker of ordinary speed.
    pub connections: f32,
    /// Threads that want a CPU, for each CPU.
    pub run_queue: f32,
    /// Interrupts pending, for each CPU.
    pub interrupts: f32,
}

impl Weights {
    /// For the four schemes that report system load. M names the terms and gives no figures; these are ours:
    /// connections count most because they alone tell of work that waits, memory least because one request hardly
    /// changes it.
    pub const SYSTEM: Weights =
        Weights { cpu: 2.0, memory: 0.5, network: 1.0, connections: 4.0, run_queue: 0.0, interrupts: 0.0 };

    /// For e-rdma-sync (M 5.2.1): the same with what only the kernel sees.
    pub const EXTENDED: Weights = Weights { run_queue: 2.0, interrupts: 1.0, ..Weights::SYSTEM };

    /// Connection load alone: the utilisation of the workers.
    pub const CONNECTIONS: Weights =
        Weights { cpu: 0.0, memory: 0.0, network: 0.0, connections: 1.0, run_queue: 0.0, interrupts: 0.0 };

    /// # Errors
    /// Where a weight is negative or no number, or all are 0.
    pub fn check(&self) -> Result<(), SettingsError> {
        let named = [
            ("weight of cpu", self.cpu),
            ("weight of memory", self.memory),
            ("weight of network", self.network),
            ("weight of connections", self.connections),
            ("weight of run_queue", self.run_queue),
            ("weight of interrupts", self.interrupts),
        ];
        for (setting, weight) in named {
            SettingsError::unless_figure(setting, f64::from(weight))?;
        }
        SettingsError::if_zero("the sum of the weights", named.iter().all(|(_, weight)| *weight == 0.0))
    }

    /// A node's index from its record and from `in_flight`, the requests that the edges have there just now.
    ///
    /// Without a record (`None`: rejected, or too old) the index is that of the edges' requests. With one, the requests
    /// at the node are the greater of what the record and the edges count: either may lag, neither invents.
    pub fn read(&self, load: Option<&Hot>, capacity: &Capacity, in_flight: u32) -> Reading {
        let nothing = Hot::default();
        let hot = load.unwrap_or(&nothing);
        let reported = |bit: u16, weight: f32| if hot.valid & bit != 0 { weight } else { 0.0 };

        let for_each_cpu = |bit: u16, weight: f32, number: u16| match capacity.cpus {
            0.0 => (0.0, 0.0),
            cpus => (reported(bit, weight), f32::from(number) / cpus),
        };

        let slots = capacity.workers(load) as f32 * capacity.speed;
        let counted = if hot.valid & valid::ORIGIN != 0 { hot.busy.saturating_add(hot.queued) } else { 0 }
            .max(in_flight);
        let terms = [
            (self.connections, counted as f32 / slots),
            (reported(valid::CPU, self.cpu), f32::from(hot.cpu_permille) / 1000.0),
            (reported(valid::MEMORY, self.memory), f32::from(hot.memory_permille) / 1000.0),
            (
                if capacity.net_bytes_per_s == 0 { 0.0 } else { reported(valid::NETWORK, self.network) },
                hot.net_bytes_per_s as f32 / capacity.net_bytes_per_s.max(1) as f32,
            ),
            for_each_cpu(valid::RUN_QUEUE, self.run_queue, hot.run_queue),
            for_each_cpu(valid::INTERRUPTS, self.interrupts, hot.pending_interrupts),
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

/// Bits of an encoded [`Reading`]: `index:28 per_request:20 in_flight:16`.
const PER_REQUEST_BITS: u32 = 20;
const IN_FLIGHT_BITS: u32 = 16;
/// The largest index that a reading holds: 26,843 times full.
const INDEX_MAX: u32 = (1 << 28) - 1;
/// The largest addition for one request: 104 times full.
const PER_REQUEST_MAX: u32 = (1 << PER_REQUEST_BITS) - 1;

/// A node's index as of the last look, and what is needed to bring it up to now.
///
/// It fits in a word, so an edge stores one for each node in an `AtomicU64` at each look, and a request reads it
/// together with the count of its own requests, with no lock and nothing torn.
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

    /// The index at the look.
    pub const fn index(self) -> LoadIndex {
        LoadIndex(self.index)
    }

    /// The same, to be brought up to date by one edge's count of its own requests, which just now is `in_flight`.
    pub const fn counted_from(self, in_flight: u32) -> Self {
        Reading { in_flight: in_flight as u16, ..self }
    }

    /// The index now that the edge has `in_flight` requests at the node.
    ///
    /// The count is compared modulo 2^16: right as long as it changes by less than 32,768 between two looks.
    pub const fn now(self, in_flight: u32) -> LoadIndex {
        let change = (in_flight as u16).wrapping_sub(self.in_flight) as i16;
        let index = self.index as i64 + change as i64 * self.per_request as i64;
        LoadIndex(if index < 0 { 0 } else { index as u32 })
    }

    /// As one word.
    pub const fn encode(self) -> u64 {
        (self.index as u64) << (PER_REQUEST_BITS + IN_FLIGHT_BITS)
            | (self.per_request as u64) << IN_FLIGHT_BITS
            | self.in_flight as u64
    }

    /// From its word; every value means something, and 0 is an idle node.
    pub const fn decode(word: u64) -> Self {
        Reading {
            index: (word >> (PER_REQUEST_BITS + IN_FLIGHT_BITS)) as u32,
            per_request: (word >> IN_FLIGHT_BITS) as u32 & PER_REQUEST_MAX,
            in_flight: word as u16,
        }
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
        let extended = Weights { run_queue: 2.0, interrupts: 4.0, ..weights };
        assert_eq!(index(extended, hot(valid::ALL), NODE, 0), (37_500 + 2 * 30_000 + 4 * 20_000) / 10);
    }

    #[test]
    fn what_the_record_does_not_hold_takes_no_part() {
        let weights =
            Weights { cpu: 1.0, memory: 1.0, network: 1.0, connections: 2.0, ..Weights::CONNECTIONS };
        assert_eq!(index(weights, hot(valid::CPU | valid::ORIGIN), NODE, 0), (5_000 + 2 * 20_000) / 3);
        // Without the origin's fields its busy and queued are not used, the edge's own count is.
        assert_eq!(index(weights, hot(valid::CPU), NODE, 4), (5_000 + 2 * 5_000) / 3);
        // A term that nothing can be compared with.
        let unknown = Capacity { cpus: 0.0, net_bytes_per_s: 0, ..NODE };
        assert_eq!(index(Weights::EXTENDED, hot(valid::ORIGIN), unknown, 0), 20_000);
        let all = index(Weights { memory: 0.0, ..weights }, hot(valid::ALL), unknown, 0);
        assert_eq!(all, (5_000 + 2 * 20_000) / 3);
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

        /// Whatever a record says, the index is a number, and more of our own requests never lower it.
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
