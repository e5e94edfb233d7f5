//! What a client of the cache sends, in two pieces and in one: the answers are the same, and neither what waits to be answered
//! nor an answer grows without bound.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidelong_cache::{Cache, Counters, Host, Session, Settings, Wants, World};
use sidelong_policy::cache::store::Eviction;

const ITEM_BYTES_MAX: usize = 1024;
const OUT_BYTES_MAX: usize = 512;
/// A session exceeds the room for answers by one item or one answer to `stats`.
const ANSWER_BYTES_MAX: usize = 4096;

fuzz_target!(|input: (u16, &[u8])| {
    let (cut, bytes) = input;
    let (first, second) = bytes.split_at(bytes.len().min(cut.into()));
    assert_eq!(answers(&[bytes]), answers(&[first, second]));
});

/// The answers, and whether the session ended.
fn answers(pieces: &[&[u8]]) -> (Vec<u8>, bool) {
    let settings = Settings {
        memory_bytes: 8 << 20,
        item_bytes_max: ITEM_BYTES_MAX,
        eviction: Eviction::default(),
        evicts: true,
        seed: [1, 2],
    };
    let (mut cache, mut counters, mut session) =
        (Cache::new(settings).unwrap(), Counters::default(), Session::new());
    // How many bytes were read so far depends on the pieces, and `stats` shows it.
    let world = World {
        now: 1000,
        unix_at_0: 1_700_000_000,
        out_bytes_max: OUT_BYTES_MAX,
        version: "1",
        ..World::default()
    };
    let (mut waiting, mut answers) = (Vec::new(), Vec::new());
    for piece in pieces {
        waiting.extend_from_slice(piece);
        loop {
            (counters.bytes_read, counters.bytes_written) = (0, 0);
            let mut out = Vec::new();
            let mut host =
                Host { cache: &mut cache, counters: &mut counters, world: &world, neighbours: None };
            let fed = session.feed(&waiting, &mut host, &mut out);
            waiting.drain(..fed.consumed);
            assert!(out.len() <= OUT_BYTES_MAX + ANSWER_BYTES_MAX);
            answers.append(&mut out);
            match fed.wants {
                Wants::Room => {}
                Wants::Answer => unreachable!("there are no other caches"),
                Wants::Close => return (answers, true),
                Wants::Input(bytes) => {
                    assert!(waiting.len() < bytes && bytes <= ITEM_BYTES_MAX + 4096);
                    break;
                }
            }
        }
    }
    (answers, false)
}
