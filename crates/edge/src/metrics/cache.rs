//! A cache's metrics, read at the scrape: the figures of memcached's `stats`, under the names that Prometheus's
//! memcached_exporter gives them, and those of reads of other caches' memory.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use super::emit::{ConfigCollector, ConfigState, Labels, family, flag};
use super::figures::{Head, counter, gauge};
use super::process::encode;

/// Reads one of the numbers of `stats` by its name; `None` if the cache has none of that name.
pub type ReadStat = Box<dyn Fn(&str) -> Option<u64> + Send + Sync>;

/// A cache's metrics.
#[derive(Debug)]
pub struct CacheMetrics {
    registry: Registry,
}

impl CacheMetrics {
    /// The figures that `read` returns at each scrape, of a cache of this version, and whether it serves; with `config` by which cluster
    /// file it goes, if it is of a cluster.
    pub fn new(
        version: &str,
        serves: Box<dyn Fn() -> bool + Send + Sync>,
        read: ReadStat,
        config: Option<Arc<ConfigState>>,
    ) -> Self {
        let mut registry = Registry::default();
        if let Some(config) = config {
            registry.register_collector(Box::new(ConfigCollector(config)));
        }
        registry.register_collector(Box::new(Figures { version: version.to_owned(), serves, read }));
        CacheMetrics { registry }
    }

    /// The metrics as OpenMetrics text.
    pub fn encode(&self) -> String {
        encode(&self.registry, None)
    }
}

struct Figures {
    version: String,
    serves: Box<dyn Fn() -> bool + Send + Sync>,
    read: ReadStat,
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Figures")
    }
}

const UP: Head<'static> = gauge("memcached_up", "", "Whether the cache's thread serves clients");
const VERSION: Head<'static> = gauge("memcached_version", "", "The version of the cache");
const COMMANDS: Head<'static> = counter("memcached_commands", "", "Commands, by command and status");

/// What `stats` names, and its metric. memcached_exporter knows those of memcached.
const ONE_EACH: &[(&str, Head<'static>)] = &[
    ("uptime", gauge("memcached_uptime", "seconds", "Time since the cache started")),
    ("time", gauge("memcached_time", "seconds", "The cache's Unix time")),
    ("curr_items", gauge("memcached_current_items", "", "Items stored now")),
    ("total_items", counter("memcached_items", "", "Items ever stored")),
    ("bytes", gauge("memcached_current", "bytes", "Bytes of the items stored now")),
    ("limit_maxbytes", gauge("memcached_limit", "bytes", "Bytes that the cache may use")),
    ("evictions", counter("memcached_items_evicted", "", "Items evicted to make room")),
    ("store_too_large", counter("memcached_item_too_large", "", "Items larger than items may be")),
    ("store_no_memory", counter("memcached_item_no_memory", "", "Items for which no room could be made")),
    ("curr_connections", gauge("memcached_current_connections", "", "Clients connected now")),
    ("total_connections", counter("memcached_connections", "", "Clients ever accepted")),
    ("max_connections", gauge("memcached_max_connections", "", "Most clients at a time")),
    (
        "listen_disabled_num",
        counter(
            "memcached_connections_listener_disabled",
            "",
            "Times that accepting stopped, for the limit of clients or for want of descriptors",
        ),
    ),
    (
        "accepting_conns",
        gauge("memcached_accepting_connections", "", "Whether further clients are accepted now"),
    ),
    ("bytes_read", counter("memcached_read", "bytes", "Bytes of commands")),
    ("bytes_written", counter("memcached_written", "bytes", "Bytes of answers")),
    (
        "neighbour_hits",
        counter("sidelong_cache_neighbour_hits", "", "Items found in the memory of other caches"),
    ),
    (
        "neighbour_misses",
        counter("sidelong_cache_neighbour_misses", "", "Items not found in the memory of other caches"),
    ),
    (
        "neighbour_read_failures",
        counter(
            "sidelong_cache_neighbour_read_failures",
            "",
            "Those of the misses whose read failed: the item was changing, or its home could not be read",
        ),
    ),
    ("forwarded", counter("sidelong_cache_forwarded_commands", "", "Commands carried out by other caches")),
    (
        "near_hits",
        counter("sidelong_cache_near_hits", "", "Items of other caches that were read from a copy here"),
    ),
];

/// What `stats` names of commands: the command, and how it ended.
const BY_STATUS: &[(&str, &str, &str)] = &[
    ("get_hits", "get", "hit"),
    ("get_misses", "get", "miss"),
    ("delete_hits", "delete", "hit"),
    ("delete_misses", "delete", "miss"),
    ("incr_hits", "incr", "hit"),
    ("incr_misses", "incr", "miss"),
    ("decr_hits", "decr", "hit"),
    ("decr_misses", "decr", "miss"),
    ("cas_hits", "cas", "hit"),
    ("cas_misses", "cas", "miss"),
    ("cas_badval", "cas", "badval"),
    ("touch_hits", "touch", "hit"),
    ("touch_misses", "touch", "miss"),
    ("cmd_flush", "flush", "hit"),
];

impl Figures {
    fn commands(&self) -> impl Iterator<Item = (Labels<'_>, f64)> {
        let labels = |command, status| vec![("command", command), ("status", status)];
        let told = BY_STATUS.iter().filter_map(move |(name, command, status)| {
            Some((labels(*command, *status), (self.read)(name)? as f64))
        });
        // Those with a unique number are among them, and are told apart.
        let cas = ["cas_hits", "cas_misses", "cas_badval"].iter().filter_map(|name| (self.read)(name));
        let set = (self.read)("cmd_set").map(|set| set.saturating_sub(cas.sum()) as f64);
        told.chain(set.map(|set| (labels("set", "hit"), set)))
    }
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let one = |value| [(Labels::new(), value)];
        family(&mut encoder, &UP, one(flag((self.serves)())))?;
        family(&mut encoder, &VERSION, [(vec![("version", self.version.as_str())], 1.0)])?;
        family(&mut encoder, &COMMANDS, self.commands())?;
        for (name, head) in ONE_EACH {
            family(&mut encoder, head, (self.read)(name).map(|value| (Labels::new(), value as f64)))?;
        }
        Ok(())
    }
}
