//! Checks of `[cache]` and of each `[[cache.peer]]`.

use std::net::SocketAddr;
use std::time::Duration;

use super::expect::{Addresses, Check, MINUTE, Seen, expect, millis, ms, name, port, within};
use crate::file::ClusterFile;
use crate::lines::At;
use crate::sections::CACHE_PEERS_MAX;
use crate::words::Fabric;

const MIB: u64 = 1 << 20;
/// Memory of a cache, in MiB: what the cache itself takes.
const MEMORY_MB: (u32, u32) = (8, 65_536);
/// The longest time for which a document is fresh, in seconds: a year, as for Cache-Control in general.
const DOCUMENT_MAX_AGE_S_MAX: u32 = 31_536_000;
/// The largest item, in bytes: the range of memcached's `-I`.
const ITEM_BYTES: (u64, u64) = (1 << 10, 1 << 30);

/// Checks the settings, and each peer by itself.
pub(super) fn cache(file: &ClusterFile) -> Check {
    let (section, cache) = (At::section("cache"), &file.cache);
    within(section, "item_bytes_max", cache.item_bytes_max, ITEM_BYTES.0, ITEM_BYTES.1)?;
    millis(section, "fresh_ms", cache.fresh, Duration::ZERO, MINUTE)?;
    let count = cache.peers.len();
    expect(count <= CACHE_PEERS_MAX, At::section("cache.peer"), || {
        (format!("{count} [[cache.peer]]"), format!("at most {CACHE_PEERS_MAX}"))
    })?;
    for (i, peer) in cache.peers.iter().enumerate() {
        let at = At::entry("cache.peer", i);
        name(at.key("name"), "cache", &peer.name)?;
        port(at.key("listen"), peer.listen)?;
        if let Some(admin) = peer.admin {
            port(at.key("admin"), admin)?;
        }
        // What is left beside copies has to be enough, too.
        let memory_mb_min = MEMORY_MB.0 + u32::from(!cache.fresh.is_zero());
        within(at, "memory_mb", peer.memory_mb, memory_mb_min, MEMORY_MB.1)?;
        within(at, "clients_max", peer.clients_max, 1, 1_000_000)?;
        let own = u64::from(peer.memory_mb) * MIB - cache.near_bytes(peer);
        expect(cache.item_bytes_max <= own / 2, at.key("memory_mb"), || {
            let near = if cache.fresh.is_zero() { "" } else { " beside copies of others' items" };
            let own_mib = own as f64 / MIB as f64;
            let found = format!(
                "cache {:?} has {own_mib} MiB{near}, and item_bytes_max is {}",
                peer.name, cache.item_bytes_max
            );
            (found, "at least twice the largest item".into())
        })?;
    }
    within(section, "document_memory_mb", cache.document_memory_mb, MEMORY_MB.0, MEMORY_MB.1)?;
    within(section, "document_max_age_s", cache.document_max_age_s, 1, DOCUMENT_MAX_AGE_S_MAX)?;
    let has_secret = file.cluster.secret.is_some() || file.cluster.secret_file.is_some();
    let fabric = file.cluster.fabric;
    let is_known = has_secret || matches!(fabric, Fabric::Auto | Fabric::Shm);
    expect(count == 0 || is_known, At::section("cluster").key("fabric"), || {
        let found = format!("fabric is \"{fabric}\" without a secret, beside [[cache.peer]]");
        (found, "\"shm\" for caches of one machine, or a secret for those of several".into())
    })?;
    let reads_memory = !has_secret || fabric == Fabric::Shm;
    let documents = section.key("documents");
    expect(!cache.documents || !has_secret && is_known, documents, || {
        let found = format!("documents is true, with fabric \"{fabric}\"");
        (
            found + if has_secret { " and a secret" } else { "" },
            "nodes and edges of one machine, with \"shm\"".into(),
        )
    })?;
    let has_files = file.nodes.iter().any(|node| node.root.is_some() && !node.is_foreign());
    expect(!cache.documents || has_files, documents, || {
        ("documents is true, and no [[node]] has root".into(), "a node that serves files".into())
    })?;
    expect(count == 0 || cache.fresh.is_zero() || !reads_memory, section.key("fresh_ms"), || {
        let found = format!("fresh_ms is {} in a cluster on one machine", ms(cache.fresh));
        (found, "0: a cache there reads the others' memory, and a copy would be no faster".into())
    })?;
    let is_reached = |listen: SocketAddr| listen.port() != 0 && !listen.ip().is_unspecified();
    for (i, peer) in cache.peers.iter().enumerate() {
        let at = At::entry("cache.peer", i);
        let must_be_reached = has_secret && fabric != Fabric::Shm && count > 1;
        expect(
            !must_be_reached || peer.fabric_listen.is_some_and(is_reached),
            at.key("fabric_listen"),
            || {
                let found = match peer.fabric_listen {
                    Some(listen) => format!("cache {:?} has fabric_listen = \"{listen}\"", peer.name),
                    None => format!("cache {:?} has no fabric_listen", peer.name),
                };
                (found, "with a secret, an address and a port that other machines can reach".into())
            },
        )?;
        expect(peer.verbs_listen.is_none_or(is_reached), at.key("verbs_listen"), || {
            let listen = peer.verbs_listen.map_or_else(String::new, |listen| listen.to_string());
            let found = format!("cache {:?} has verbs_listen = \"{listen}\"", peer.name);
            (found, "an address and a port that other machines can reach".into())
        })?;
    }
    Ok(())
}

/// Checks that no peer has the name or an address of another process.
pub(super) fn cache_peers<'a>(
    file: &'a ClusterFile,
    names: &mut Seen<'a>,
    addresses: &mut Addresses,
) -> Check {
    for (i, peer) in file.cache.peers.iter().enumerate() {
        let at = At::entry("cache.peer", i);
        let who = || format!("cache {:?}", peer.name);
        names.once(at.key("name"), "name", &peer.name, "a cache".into())?;
        addresses.once(at.key("listen"), peer.listen, who)?;
        if let Some(listen) = peer.fabric_listen {
            addresses.once(at.key("fabric_listen"), listen, who)?;
        }
        if let Some(listen) = peer.verbs_listen {
            addresses.once(at.key("verbs_listen"), listen, who)?;
        }
        if let Some(admin) = peer.admin {
            addresses.once(at.key("admin"), admin, who)?;
        }
    }
    Ok(())
}
