//! A record that the kernel keeps, composed by a reader into one hot line.
//!
//! The kernel's part has many small records, each consistent by itself: the beat, a slot and a tick for each CPU, the foreign
//! server's sockets, and the server's own line. They are validated one by one. If a CPU's slot was torn in every copy, its last valid value
//! of this life is used. Everything else must come from the current scan. The age of the whole is that of the beat.

use sidelong_layout::{
    BEAT_BYTES, Beat, Detail, Hot, KERNEL_BEAT, KERNEL_PLACES, KERNEL_SOCKETS, LOAD_HOT, Machine,
    PLACE_BYTES, PLACE_PENDING, PLACE_TICK, PLACES_MAX, Pending, Rejected, SOCKETS_BYTES, Slot, Sockets,
    Tick, kept, valid,
};
use sidelong_state::{COPIES_MAX, Newest, Record, Unusable, Verdict};

use crate::listener::Foreign;
use crate::sampler::{RATE_WINDOW_NS, Window, per_second, permille};
use crate::snapshot::OFFSET;

/// CPU time is exact to the event, so its rate needs only this window, in ns: ten beats.
const BUSY_WINDOW_NS: u64 = 10_000_000;

/// One CPU of a node whose record the kernel keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuLoad {
    /// Threads that run on it or wait for it.
    pub run_queue: u16,
    /// Whether it is online.
    pub online: bool,
    /// CPU in use, 0-1000. `None` in the first moments.
    pub busy_permille: Option<u16>,
    /// Kinds of softirq that were raised on it and are not yet served.
    pub pending: u32,
    /// Softirqs raised on it; the count wraps.
    pub raised: u32,
}

/// The result of one copy of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// All parts are valid, composed into one line.
    Whole(Hot),
    /// A part was torn; another copy is worthwhile.
    Again,
    /// Parts were torn in too many copies.
    Torn,
    /// Nothing was published in this life.
    Never,
    /// It is older than a copy seen before.
    Old,
}

/// What is known of one node between scans.
#[derive(Debug, Default)]
pub(crate) struct NodeState {
    generation: u32,
    /// The places that are read.
    places: Vec<Place>,
    beat: Newest,
    server: Option<Hot>,
    foreign: Option<Foreign>,
    /// The foreign server's connections, and those of them that wait to be accepted.
    connections: Option<(u32, u32)>,
    /// Copies in this scan.
    copies: u8,
    busy: Window<u64>,
    network: Window<u64>,
    cpus: Vec<CpuLoad>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Place {
    slot: Slot,
    tick: Tick,
    pending: Pending,
    /// Whether this scan has read it.
    seen: bool,
    busy: Window<u64>,
}

impl NodeState {
    /// Of a node whose server may be foreign.
    pub(crate) fn of(foreign: Option<Foreign>) -> Self {
        NodeState { foreign, ..NodeState::default() }
    }

    /// Length of the read of everything that is used, from [`OFFSET`] on, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        KERNEL_PLACES + self.places.len() * PLACE_BYTES - OFFSET
    }

    /// Each CPU as of the last complete scan.
    pub(crate) fn cpus(&self) -> &[CpuLoad] {
        &self.cpus
    }

    /// Takes a copy of [`NodeState::bytes`] bytes. Returns the result, and whether further places must be read from now on.
    pub(crate) fn look(&mut self, words: &[u64]) -> (Look, bool) {
        let incarnation = words[0] as u32;
        if incarnation != self.generation {
            *self = NodeState { generation: incarnation, ..NodeState::of(self.foreign.take()) };
        }
        let look = self.judge(words);
        if look == Look::Again {
            return (look, false);
        }
        self.copies = 0;
        self.places.iter_mut().for_each(|place| place.seen = false);
        // A fresh node's places are learned from its first beat. Until they are read it has no record.
        match look {
            Look::Whole(_) => (look, false),
            _ => (look, self.grow(words)),
        }
    }

    fn judge(&mut self, words: &[u64]) -> Look {
        let beat = match self.beat.judge::<{ Beat::WORDS }, Beat>(&part(words, KERNEL_BEAT)) {
            Verdict::Use(beat) if beat.generation == self.generation => beat,
            Verdict::Use(_)
            | Verdict::GiveUp(Unusable::Rejected(Rejected::Never) | Unusable::Foreign { .. }) => {
                return Look::Never;
            }
            Verdict::Again => return Look::Again,
            Verdict::GiveUp(Unusable::Rejected(_)) => return Look::Torn,
            Verdict::GiveUp(Unusable::Older { .. }) => {
                self.beat = Newest::new();
                return Look::Old;
            }
        };
        if usize::from(beat.places) != self.places.len() {
            return Look::Never;
        }
        self.copies += 1;
        let mut whole = self.take_server(&part(words, LOAD_HOT));
        whole &= self.take_sockets(&part(words, KERNEL_SOCKETS));
        for index in 0..self.places.len() {
            whole &= self.take_place(words, index);
        }
        if !whole && self.copies < COPIES_MAX {
            return Look::Again;
        }
        // A part without a value in this life cannot be substituted.
        if self.places.iter().any(|place| place.tick.sequence == 0) {
            return if whole { Look::Never } else { Look::Torn };
        }
        Look::Whole(self.compose(&beat))
    }

    /// The server's own line, if it has one; nothing is claimed without it.
    fn take_server(&mut self, words: &[u64; Hot::WORDS]) -> bool {
        match Hot::validated(words) {
            Ok(hot) if hot.generation == self.generation => self.server = Some(hot),
            Ok(_) | Err(Rejected::Never) => self.server = None,
            Err(Rejected::Writing | Rejected::Torn) => return false,
        }
        true
    }

    /// The foreign server's sockets, if the kernel counts them: it does not at Unix sockets.
    fn take_sockets(&mut self, words: &[u64; Sockets::WORDS]) -> bool {
        if self.foreign.is_none() {
            return true;
        }
        let Some(sockets) = taken::<_, Sockets>(words, self.generation) else { return false };
        self.connections = (sockets.listening > 0).then_some((sockets.established, sockets.queue));
        true
    }

    fn take_place(&mut self, words: &[u64], index: usize) -> bool {
        let place = &mut self.places[index];
        if place.seen {
            return true;
        }
        let at = KERNEL_PLACES + index * PLACE_BYTES;
        let (slot, tick) = (part(words, at), part(words, at + PLACE_TICK));
        // A CPU without an event has no slot, and one that was never online has no tick.
        let slot = taken::<_, Slot>(&slot, self.generation);
        let tick = taken::<_, Tick>(&tick, self.generation);
        let (Some(slot), Some(tick)) = (slot, tick) else { return false };
        (place.slot, place.tick) = (slot, tick);
        place.pending = Pending::decode(words[(at + PLACE_PENDING - OFFSET) / 8]);
        place.seen = true;
        true
    }

    fn compose(&mut self, beat: &Beat) -> Hot {
        let mut hot = Hot {
            sequence: beat.sequence,
            generation: beat.generation,
            valid: beat.valid & (valid::RUN_QUEUE | valid::MEMORY | valid::INTERRUPTS),
            time_ns: beat.time_ns,
            memory_permille: beat.memory_permille,
            ..Hot::default()
        };
        let now_ns = self.places.iter().map(|place| place.slot.time_ns).fold(beat.time_ns, u64::max);
        self.cpus.clear();
        self.cpus.extend(self.places.iter_mut().map(|place| place.load(now_ns)));
        let sum = |of: fn(&CpuLoad) -> u32| self.cpus.iter().map(of).sum::<u32>();
        let online = u64::from(beat.cpus.max(1));
        if beat.unplaced == 0 {
            hot.run_queue = narrow(sum(|cpu| u32::from(cpu.run_queue)));
            let busy_ns = self.places.iter().fold(0u64, |sum, place| sum.wrapping_add(place.busy_ns(now_ns)));
            let earlier = self.busy.slide(now_ns, busy_ns, BUSY_WINDOW_NS);
            hot.set_cpu(earlier, busy_ns, online);
        } else {
            // There are more CPUs than places. The sums include all of them, as of the last beat and survey.
            hot.run_queue = narrow(beat.run_queue);
            let earlier = self.busy.slide(beat.time_ns, beat.cpu_used_ns, RATE_WINDOW_NS);
            hot.set_cpu(earlier.filter(|_| beat.valid & kept::CPU_TIMES != 0), beat.cpu_used_ns, online);
        }
        hot.pending_interrupts = narrow(sum(|cpu| cpu.pending));
        let earlier = self.network.slide(beat.time_ns, beat.net_bytes, RATE_WINDOW_NS);
        if let Some((elapsed_ns, bytes)) = earlier.filter(|_| beat.valid & valid::NETWORK != 0) {
            // A counter decreases when a device has gone.
            hot.net_bytes_per_s = per_second(beat.net_bytes.saturating_sub(bytes), elapsed_ns);
            hot.valid |= valid::NETWORK;
        }
        match self.server {
            // The server has said that it leaves.
            Some(server) if server.valid == 0 => hot.valid = 0,
            Some(server) if server.valid & valid::ORIGIN != 0 => {
                hot.valid |= valid::ORIGIN;
                hot.connections = server.connections;
                hot.queued = server.queued;
                hot.busy = server.busy;
                hot.workers = server.workers;
                hot.by_server = server.by_server;
                hot.served = server.served;
            }
            _ => {
                if let (Some(foreign), Some((established, queued))) = (&self.foreign, self.connections) {
                    foreign.fill(established, queued, &mut hot);
                }
            }
        }
        hot
    }

    /// Makes room for the places that the node reports.
    fn grow(&mut self, words: &[u64]) -> bool {
        let Ok(beat) = Beat::validated(&part(words, KERNEL_BEAT)) else { return false };
        let places = usize::from(beat.places).min(PLACES_MAX);
        if beat.generation != self.generation || places == self.places.len() {
            return false;
        }
        self.places.clear();
        self.places.resize_with(places, Place::default);
        true
    }
}

impl Place {
    /// Busy time until `now_ns`, when nothing newer than the slot was visible.
    fn busy_ns(&self, now_ns: u64) -> u64 {
        let runs = self.slot.flags & Slot::RUNNING != 0;
        let since = if runs { now_ns.saturating_sub(self.slot.time_ns) } else { 0 };
        self.slot.busy_ns.wrapping_add(since)
    }

    fn load(&mut self, now_ns: u64) -> CpuLoad {
        let busy_ns = self.busy_ns(now_ns);
        let earlier = self.busy.slide(now_ns, busy_ns, BUSY_WINDOW_NS);
        let busy = earlier.and_then(|(elapsed, before)| permille(busy_ns.wrapping_sub(before), elapsed));
        // The timer sees what causes no event, such as a thread that was moved away.
        let unchanged = self.slot.sequence == 0 || self.tick.slot_sequence == self.slot.sequence;
        CpuLoad {
            run_queue: if unchanged { self.tick.runnable } else { self.slot.runnable },
            online: self.tick.flags & Tick::ONLINE != 0,
            busy_permille: busy,
            pending: self.pending.unserved(),
            raised: self.pending.raised,
        }
    }
}

trait SetCpu {
    fn set_cpu(&mut self, earlier: Option<(u64, u64)>, busy_ns: u64, online: u64);
}

impl SetCpu for Hot {
    fn set_cpu(&mut self, earlier: Option<(u64, u64)>, busy_ns: u64, online: u64) {
        let Some((elapsed_ns, before_ns)) = earlier else { return };
        if let Some(permille) = permille(busy_ns.wrapping_sub(before_ns), elapsed_ns.saturating_mul(online)) {
            self.cpu_permille = permille;
            self.valid |= valid::CPU;
        }
    }
}

/// The detail part for people and metrics, as a keeper would record it: the kernel's part, and the server's.
pub(crate) fn detail(machine: &Machine, server: Option<Detail>) -> Detail {
    let server = server.unwrap_or_default();
    Detail {
        pid: server.pid,
        errors: server.errors,
        origin_sent_bytes: server.origin_sent_bytes,
        generation: machine.generation,
        time_ns: machine.time_ns,
        load_1m_milli: machine.load_1m_milli,
        load_5m_milli: machine.load_5m_milli,
        load_15m_milli: machine.load_15m_milli,
        cpu_user_ns: machine.cpu_user_ns.wrapping_add(machine.cpu_nice_ns),
        cpu_system_ns: machine
            .cpu_system_ns
            .wrapping_add(machine.cpu_irq_ns)
            .wrapping_add(machine.cpu_softirq_ns),
        cpu_iowait_ns: machine.cpu_iowait_ns,
        cpu_idle_ns: machine.cpu_idle_ns,
        context_switches: machine.context_switches,
        interrupts: machine.interrupts,
        memory_used_bytes: machine.memory_used_bytes,
        memory_total_bytes: machine.memory_total_bytes,
        net_received_bytes: machine.net_received_bytes,
        net_sent_bytes: machine.net_sent_bytes,
        net_received_packets: machine.net_received_packets,
        net_sent_packets: machine.net_sent_packets,
        tcp_established: machine.tcp_established,
        cpus: u32::from(machine.cpus),
        ..Detail::default()
    }
}

/// A part of a place, if it is consistent and of this life; the default if nothing was published.
fn taken<const W: usize, R: Record<W> + Default>(words: &[u64; W], generation: u32) -> Option<R> {
    match R::validated(words) {
        Ok(record) if record.version().0 == generation => Some(record),
        Ok(_) | Err(Rejected::Never) => Some(R::default()),
        Err(Rejected::Writing | Rejected::Torn) => None,
    }
}

/// The words of the part at `offset` of the region.
fn part<const W: usize>(words: &[u64], offset: usize) -> [u64; W] {
    let start = (offset - OFFSET) / 8;
    words[start..start + W].try_into().expect("a slice of that length")
}

fn narrow(number: u32) -> u16 {
    u16::try_from(number).unwrap_or(u16::MAX)
}

const _: () = assert!(
    KERNEL_BEAT > LOAD_HOT
        && KERNEL_SOCKETS == KERNEL_BEAT + BEAT_BYTES
        && KERNEL_PLACES == KERNEL_SOCKETS + SOCKETS_BYTES
);

#[cfg(test)]
mod tests;
