//! What `stats` shows.

use std::fmt::{Display, Write as _};

use crate::command::{Host, Row, Rows, number};
use crate::counters::Counters;
use crate::protocol::text::{BAD_FORMAT, CLASSES, is_text, say};

/// Most bytes of an answer to `stats cachedump` (memcached's).
const DUMP_BYTES_MAX: usize = 2 << 20;

/// The kinds of `stats`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    General,
    Settings,
    Items,
    Slabs,
    Sizes,
    Connections,
    /// The counters begin again.
    Reset,
}

impl Kind {
    fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"" => Kind::General,
            b"settings" => Kind::Settings,
            b"items" => Kind::Items,
            b"slabs" => Kind::Slabs,
            b"sizes" => Kind::Sizes,
            b"conns" => Kind::Connections,
            b"reset" => Kind::Reset,
            _ => return None,
        })
    }

    fn show(self, host: &mut Host<'_>, row: &mut Row<'_>) {
        let usage = host.cache.usage();
        match self {
            Kind::General => {
                row("time", &(i64::from(host.world.now) + host.world.unix_at_0));
                row("version", &host.world.version);
                row("sidelong", &env!("CARGO_PKG_VERSION"));
                (host.world.rows)(Rows::General, row);
                for (name, value) in host.counters.rows() {
                    row(name, &value);
                }
                row("limit_maxbytes", &host.cache.settings().memory_bytes);
                row("bytes", &usage.item_bytes);
                row("curr_items", &usage.items);
                row("total_items", &usage.stored);
                row("get_expired", &usage.expired);
                row("expired_unfetched", &usage.expired_unfetched);
                row("crawler_reclaimed", &usage.swept);
                row("evictions", &usage.evicted);
                row("evicted_unfetched", &usage.evicted_unfetched);
                if let Some(neighbours) = &host.neighbours {
                    let reads = neighbours.reads();
                    row("neighbour_hits", &reads.hits);
                    row("neighbour_misses", &reads.misses);
                    row("neighbour_read_failures", &reads.failures);
                    row("forwarded", &reads.forwarded);
                    row("near_hits", &reads.near);
                }
            }
            Kind::Settings => {
                row("maxbytes", &host.cache.settings().memory_bytes);
                row("item_size_max", &host.cache.settings().item_bytes_max);
                (host.world.rows)(Rows::Settings, row);
            }
            // Items of all sizes are evicted in one order: they are shown as one class.
            Kind::Items if usage.items > 0 => {
                row("items:1:number", &usage.items);
                row("items:1:mem_requested", &usage.item_bytes);
                row("items:1:evicted", &usage.evicted);
                row("items:1:evicted_unfetched", &usage.evicted_unfetched);
                row("items:1:expired_unfetched", &usage.expired_unfetched);
            }
            Kind::Slabs => {
                let sizes = host.cache.sizes();
                for (place, size) in sizes.iter().enumerate() {
                    let mut of = |name: &str, number: u64| row(&format!("{}:{name}", size.number), &number);
                    of("chunk_size", size.bytes as u64);
                    of("chunks_per_page", size.per_page as u64);
                    of("total_pages", size.pages as u64);
                    of("total_chunks", (size.pages * size.per_page) as u64);
                    of("used_chunks", size.used as u64);
                    of("free_chunks", (size.pages * size.per_page - size.used) as u64);
                    // Commands are not counted by size. Who adds them up finds all with the first.
                    let is_of_class =
                        |name: &str| name.ends_with("_hits") || matches!(name, "cmd_set" | "cas_badval");
                    for (name, count) in host.counters.rows().filter(|(name, _)| is_of_class(name)) {
                        of(name, if place == 0 { count } else { 0 });
                    }
                }
                row("active_slabs", &sizes.len());
                row("total_malloced", &usage.memory_bytes);
            }
            Kind::Sizes => row("sizes_status", &"disabled"),
            Kind::Connections => (host.world.rows)(Rows::Connections, row),
            Kind::Reset => *host.counters = Counters::default(),
            Kind::Items => {}
        }
    }
}

/// Hands the rows of `stats` to `row`.
pub(crate) fn general(host: &mut Host<'_>, row: &mut Row<'_>) {
    Kind::General.show(host, row);
}

/// Answers `stats WORDS` in text.
pub(crate) fn text(words: &[&[u8]], host: &mut Host<'_>, out: &mut Vec<u8>) {
    match (words, Kind::of(words.first().unwrap_or(&&b""[..]))) {
        (_, Some(Kind::Reset)) => {
            Kind::Reset.show(host, &mut |_, _| {});
            say(out, "RESET");
        }
        (_, Some(kind)) => {
            kind.show(host, &mut |name, value| say(out, &format!("STAT {name} {value}")));
            say(out, "END");
        }
        ([b"detail", ..], None) => say(out, "CLIENT_ERROR stats detail not allowed"),
        ([b"cachedump", class, limit, ..], None) => match (number(class), number(limit)) {
            (Some(CLASSES..), Some(_)) => say(out, "CLIENT_ERROR Illegal slab id"),
            (Some(class), Some(limit)) => cachedump(class, limit, host, out),
            _ => say(out, BAD_FORMAT),
        },
        ([b"cachedump", ..], None) => say(out, "CLIENT_ERROR bad command line"),
        _ => say(out, "ERROR"),
    }
}

/// Answers `stats cachedump`: as many keys of class 1 as are wanted, and as take [`DUMP_BYTES_MAX`] at most. 0 is without a limit. Keys
/// that would break its lines are left out.
fn cachedump(class: u64, limit: u64, host: &mut Host<'_>, out: &mut Vec<u8>) {
    let end = out.len() + DUMP_BYTES_MAX;
    let (now, unix_at_0) = (host.world.now, host.world.unix_at_0);
    let (mut page, mut count) = (0, 0);
    let mut is_full = class != 1;
    while !is_full {
        let is_there = host.cache.on_page(page, now, |key, item| {
            is_full |= (limit != 0 && count == limit) || out.len() >= end;
            if !is_full && is_text(key) {
                count += 1;
                out.extend_from_slice(b"ITEM ");
                out.extend_from_slice(key);
                let expires = if item.expires == 0 { 0 } else { i64::from(item.expires) + unix_at_0 };
                say(out, &format!(" [{} b; {expires} s]", item.value.len()));
            }
        });
        is_full |= !is_there;
        page += 1;
    }
    say(out, "END");
}

/// Hands the rows of `name` to `row`. False if there are none of that name.
pub(crate) fn binary(name: &[u8], host: &mut Host<'_>, row: &mut dyn FnMut(&str, &str)) -> bool {
    let Some(kind) = Kind::of(name) else { return false };
    let mut text = String::new();
    kind.show(host, &mut |name: &str, value: &dyn Display| {
        text.clear();
        _ = write!(text, "{value}");
        row(name, &text);
    });
    true
}
