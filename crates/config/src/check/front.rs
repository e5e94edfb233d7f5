//! Checks of a `[[front]]`.

use sidelong_policy::balance::Balance;

use super::{At, Check, excerpt, expect, name, port};
use crate::file::{ClusterFile, FrontEntry};
use crate::words::Proxy;

pub(super) fn front(at: At, entry: &FrontEntry, file: &ClusterFile) -> Check {
    name(at.key("name"), "front", &entry.name)?;
    let who = || format!("front {:?}", entry.name);
    if let Some(admin) = entry.admin {
        port(at.key("admin"), admin)?;
    }
    let is_haproxy = entry.proxy == Proxy::Haproxy;
    expect(entry.socket.is_some() == is_haproxy, at.key("socket"), || {
        let given = if entry.socket.is_some() { "a" } else { "no" };
        let expected = "the path of HAProxy's `stats socket` with proxy = \"haproxy\", and none with another";
        (format!("{} has {given} socket with proxy = \"{}\"", who(), entry.proxy), expected.into())
    })?;
    expect(is_haproxy || entry.backends.is_empty(), at.key("backends"), || {
        (
            format!("{} has backends with proxy = \"{}\"", who(), entry.proxy),
            "proxy = \"haproxy\" with them".into(),
        )
    })?;
    for site in entry.backends.keys() {
        expect(file.sites.iter().any(|one| one.name == *site), at.key("backends"), || {
            (format!("{}: no site {:?}", who(), excerpt(site)), "the names of sites".into())
        })?;
    }
    expect(!is_haproxy || entry.dir.is_none() && entry.group.is_none(), at.key("dir"), || {
        (
            format!("{} has dir or group with proxy = \"haproxy\"", who()),
            "neither: HAProxy reads no files".into(),
        )
    })?;
    let several = file.nodes.iter().position(|node| !node.serves.is_empty());
    expect(several.is_none(), At::entry("node", several.unwrap_or_default()).key("serves"), || {
        let found = format!("serves with {}, whose proxy knows one address of each node", who());
        (found, "server with its port; or no front".into())
    })?;
    // What a proxy's worker can decide by without more memory of its own.
    let is_known = matches!(
        file.balance.policy,
        Balance::Weighted | Balance::RoundRobin | Balance::LeastConnections | Balance::PowerOfTwo
    );
    expect(is_known, At::section("balance").key("policy"), || {
        let found = format!("{} with policy = \"{}\"", who(), file.balance.policy);
        (found, "weighted, power-of-two, least-connections or round-robin".into())
    })
}
