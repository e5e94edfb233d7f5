//! Records through their readers, for fuzzing.

use sidelong_layout::{
    BEAT_BYTES, Beat, HOT_BYTES, Hot, KERNEL_BEAT, KERNEL_PLACES, KERNEL_SOCKETS, LOAD_HOT, PLACE_BYTES,
    PLACE_TICK, PLACES_MAX, SLOT_BYTES, SOCKETS_BYTES, Slot, Sockets, TICK_BYTES, Tick,
};
use sidelong_os::ServerAddress;

use crate::kept::{Look, NodeState};
use crate::listener::Foreign;
use crate::reading::{Limits, Reading, Track};
use crate::snapshot::{OFFSET, Snapshot};

/// What whoever writes a record's memory may do before a scan: change words, and seal those parts whose bit is set, which makes
/// them consistent.
pub type Written = (u64, Vec<(u16, u64)>);

/// The words of a region, of which places that were never written are zero.
struct Memory(Vec<u64>);

impl Memory {
    fn write(&mut self, words: &[(u16, u64)]) {
        for (place, word) in words {
            let at = OFFSET / 8 + usize::from(*place) % (self.0.len() - OFFSET / 8);
            self.0[at] = *word;
        }
    }

    /// A part's words.
    fn part<const WORDS: usize>(&mut self, at: usize) -> &mut [u64; WORDS] {
        self.0[at / 8..].first_chunk_mut().expect("it is as long")
    }
}

macro_rules! seal {
    ($memory:expr, $kind:ident, $bytes:ident, $at:expr) => {{
        let words = $memory.part::<{ $bytes / 8 }>($at);
        *words = bytemuck::cast::<_, $kind>(*words).sealed().words();
    }};
}

/// A record that a keeper publishes, and what a reader makes of it.
pub fn record(scans: &[Written]) -> Vec<Reading> {
    let mut memory = Memory(vec![0; LOAD_HOT / 8 + Hot::WORDS + 8]);
    let mut track = Track::default();
    let read = |(number, (sealed, words)): (usize, &Written)| {
        let now_ns = 1_000_000 * number as u64;
        memory.write(words);
        if sealed & 1 != 0 {
            seal!(memory, Hot, HOT_BYTES, LOAD_HOT);
        }
        let mut copies = 0;
        while track.see(&Snapshot::of_words(&memory.0[OFFSET / 8..]), now_ns) {
            copies += 1;
            assert!(copies < 10, "it reads for ever");
        }
        track.reading(now_ns, &Limits::default())
    };
    scans.iter().enumerate().map(read).collect()
}

/// A record that the kernel keeps, and what a reader makes of it. It may claim more CPUs than it has places.
pub fn kept(scans: &[Written]) -> Vec<Reading> {
    let servers = vec![ServerAddress::Tcp(([127, 0, 0, 1], 80).into())];
    let mut kept = NodeState::of(Some(Foreign { servers, workers: Some(2) }));
    let mut memory = Memory(vec![0; (KERNEL_PLACES + PLACES_MAX * PLACE_BYTES) / 8]);
    let mut track = Track::default();
    let read = |(number, (sealed, words)): (usize, &Written)| {
        let now_ns = 1_000_000 * number as u64;
        memory.write(words);
        let is_sealed = |bit: usize| sealed >> bit & 1 != 0;
        if is_sealed(0) {
            seal!(memory, Beat, BEAT_BYTES, KERNEL_BEAT);
        }
        if is_sealed(1) {
            seal!(memory, Hot, HOT_BYTES, LOAD_HOT);
        }
        if is_sealed(2) {
            seal!(memory, Sockets, SOCKETS_BYTES, KERNEL_SOCKETS);
        }
        for place in 0..8 {
            let at = KERNEL_PLACES + place * PLACE_BYTES;
            if is_sealed(8 + place) {
                seal!(memory, Slot, SLOT_BYTES, at);
            }
            if is_sealed(16 + place) {
                seal!(memory, Tick, TICK_BYTES, at + PLACE_TICK);
            }
        }
        for _ in 0..10 {
            let words = &memory.0[OFFSET / 8..][..kept.bytes() / 8];
            let (look, more) = kept.look(words);
            assert!(kept.cpus().len() <= PLACES_MAX);
            if !track.see_kept(words[0], look, now_ns) && !more {
                return track.reading(now_ns, &Limits::default());
            }
            assert!(!(more && look == Look::Again));
        }
        panic!("it reads for ever");
    };
    scans.iter().enumerate().map(read).collect()
}
