//! Shared by the tests: a cache and its clients in this process, and [`caches`] that read each other.

pub(crate) mod caches;

use sidelong_cache::cache::Seconds;
use sidelong_cache::{Cache, Counters, Host, Row, Rows, Session, Settings, Users, Wants, World};
use sidelong_policy::cache::store::Eviction;

/// Bytes of the largest item.
pub(crate) const ITEM_BYTES_MAX: usize = 1 << 20;

pub(crate) struct Server {
    pub(crate) cache: Cache,
    pub(crate) counters: Counters,
    pub(crate) now: Seconds,
    pub(crate) unix_at_0: i64,
    pub(crate) out_bytes_max: usize,
    pub(crate) users: Option<Users>,
}

impl Default for Server {
    fn default() -> Self {
        let settings = Settings {
            memory_bytes: 64 << 20,
            item_bytes_max: ITEM_BYTES_MAX,
            eviction: Eviction::default(),
            evicts: true,
            seed: [1, 2],
        };
        Server {
            cache: Cache::new(settings).unwrap(),
            counters: Counters::default(),
            now: 1000,
            unix_at_0: 1_700_000_000,
            out_bytes_max: usize::MAX,
            users: None,
        }
    }
}

/// A client's connection: what it has sent that is not done with, and whether it is still open.
#[derive(Default)]
pub(crate) struct Connection {
    session: Session,
    waiting: Vec<u8>,
    pub(crate) is_closed: bool,
    /// The most bytes that were to be held for it at once: of its commands, and of its answers.
    pub(crate) waiting_max: usize,
    pub(crate) out_max: usize,
}

impl Server {
    /// The answers to what a client sends, taken from it whenever the session wants room.
    pub(crate) fn answer(&mut self, connection: &mut Connection, bytes: &[u8]) -> Vec<u8> {
        let mut answers = Vec::new();
        connection.waiting.extend_from_slice(bytes);
        while !connection.is_closed {
            let rows = |rows: Rows, row: &mut Row<'_>| {
                if rows == Rows::Connections {
                    row("7:addr", &"unix:<AF 1>");
                }
            };
            let world = World {
                now: self.now,
                unix_at_0: self.unix_at_0,
                out_bytes_max: self.out_bytes_max,
                version: "1.6.18",
                users: self.users.as_ref(),
                rows: &rows,
                ..World::default()
            };
            let mut host = Host {
                cache: &mut self.cache,
                counters: &mut self.counters,
                world: &world,
                neighbours: None,
            };
            let mut out = Vec::new();
            let fed = connection.session.feed(&connection.waiting, &mut host, &mut out);
            connection.waiting.drain(..fed.consumed);
            connection.waiting_max = connection.waiting_max.max(connection.waiting.len());
            connection.out_max = connection.out_max.max(out.len());
            answers.append(&mut out);
            match fed.wants {
                Wants::Room => {}
                Wants::Answer => unreachable!("there are no other caches"),
                Wants::Close => connection.is_closed = true,
                Wants::Input(bytes) => {
                    assert!(bytes > connection.waiting.len(), "{bytes} bytes are there already");
                    break;
                }
            }
        }
        answers
    }
}
