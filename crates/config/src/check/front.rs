//! Checks of a `[[front]]`.

use std::net::SocketAddr;

use sidelong_os::ServerAddress;
use sidelong_policy::balance::Balance;

use super::expect::{Addresses, Check, excerpt, expect, name, port};
use crate::file::{ClusterFile, FrontEntry};
use crate::lines::At;
use crate::words::{ControlledBy, Proxy};

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
    if let Some(how) = entry.add_servers.as_ref().filter(|_| entry.proxy == Proxy::Envoy) {
        expect(how == "eds", at.key("add_servers"), || {
            (format!("{}: add_servers is {:?}", who(), excerpt(how)), "\"eds\" with proxy = \"envoy\"".into())
        })?;
    } else if let Some(keywords) = &entry.add_servers {
        let by_weights = entry.controlled_by() == ControlledBy::Weights;
        expect(is_haproxy && by_weights, at.key("add_servers"), || {
            (
                format!("{} has add_servers with proxy = \"{}\"", who(), entry.proxy),
                "proxy = \"haproxy\" by weights with it, or proxy = \"envoy\": other proxies read their servers at start".into(),
            )
        })?;
        // What ends a command of HAProxy's Runtime API, or a word of one.
        let is_word = |c: char| c.is_ascii_graphic() && !matches!(c, ';' | '\\' | '"' | '\'' | '#');
        expect(keywords.chars().all(|c| c == ' ' || is_word(c)), at.key("add_servers"), || {
            (
                format!("{}: add_servers {:?}", who(), excerpt(keywords)),
                "keywords of a server of HAProxy, without ; \\ # or quotes, such as \"check\"".into(),
            )
        })?;
        const OURS: [&str; 5] = ["weight", "id", "enabled", "disabled", "backup"];
        let taken = keywords.split(' ').find(|word| OURS.contains(word));
        expect(taken.is_none(), at.key("add_servers"), || {
            let word = taken.unwrap_or_default();
            (
                format!("{}: add_servers has {word}", who()),
                format!("none of {}: the front sets them", OURS.join(", ")),
            )
        })?;
    }
    for site in entry.backends.keys() {
        expect(file.sites.iter().any(|one| one.name == *site), at.key("backends"), || {
            (format!("{}: no site {:?}", who(), excerpt(site)), "the names of sites".into())
        })?;
    }
    let backend = |site: &str| entry.backends.get(site).map_or(site, String::as_str).to_owned();
    let mut seen = std::collections::BTreeSet::new();
    let twice =
        file.sites.iter().map(|site| backend(&site.name)).find(|backend| !seen.insert(backend.clone()));
    expect(!is_haproxy || twice.is_none(), at.key("backends"), || {
        let found = format!("{}: two sites with the backend {:?}", who(), twice.unwrap_or_default());
        (found, "a backend for each site".into())
    })?;
    let is_connect = entry.proxy == Proxy::Connect;
    expect(is_connect || entry.cgroup.is_none(), at.key("cgroup"), || {
        (
            format!("{} has a cgroup with proxy = \"{}\"", who(), entry.proxy),
            "proxy = \"connect\" with it".into(),
        )
    })?;
    expect(!is_connect || entry.group.is_none(), at.key("group"), || {
        (
            format!("{} has a group with proxy = \"connect\"", who()),
            "none: no process writes its files".into(),
        )
    })?;
    let chooses = entry.controlled_by() == ControlledBy::Choose;
    expect(is_haproxy || chooses, at.key("by"), || {
        (
            format!("{} has by = \"weights\" with proxy = \"{}\"", who(), entry.proxy),
            "by = \"choose\", the default: of all proxies only HAProxy takes weights".into(),
        )
    })?;
    expect(chooses || entry.dir.is_none() && entry.group.is_none(), at.key("dir"), || {
        (
            format!("{} has dir or group with proxy = \"haproxy\"", who()),
            "by = \"choose\" with them: by weights HAProxy reads no files".into(),
        )
    })?;
    if is_connect {
        connect(&who(), file)?;
    }
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

/// Each site has an address, and each node one of the same family: a connection keeps its socket.
fn connect(who: &str, file: &ClusterFile) -> Check {
    let site = file.sites.iter().position(|site| site.connect.is_none());
    expect(site.is_none(), At::entry("site", site.unwrap_or_default()).key("connect"), || {
        let name = site.map_or("", |site| &file.sites[site].name);
        (format!("site {name:?} has no connect, and {who} has proxy = \"connect\""), "its address".into())
    })?;
    let of_sites = file.sites.iter().filter_map(|site| Some((site, site.connect?)));
    for (i, node) in file.nodes.iter().enumerate() {
        let at = At::entry("node", i).key(if node.is_foreign() { "server" } else { "listen" });
        let built_in = node.listen.map(ServerAddress::from);
        let Some(server) = node.server.as_ref().or(built_in.as_ref()) else { continue };
        let address = server.tcp();
        expect(address.is_some(), at, || {
            let found =
                format!("node {:?} is at a Unix socket, and {who} has proxy = \"connect\"", node.name);
            (found, "a TCP port".into())
        })?;
        let is_v4 = |address: SocketAddr| address.ip().to_canonical().is_ipv4();
        let other = of_sites.clone().find(|(_, of_site)| address.map(is_v4) != Some(is_v4(*of_site)));
        expect(other.is_none(), at, || {
            let site = other.map_or("", |(site, _)| &site.name);
            let found = format!(
                "node {:?} is at {server}, and connect of site {site:?} is of another family",
                node.name
            );
            (found, "IPv4 for both, or IPv6".into())
        })?;
    }
    Ok(())
}

/// Nobody listens at a site's address, and a front sends its connections elsewhere.
pub(super) fn connect_addresses(file: &ClusterFile, addresses: &mut Addresses) -> Check {
    for (i, site) in file.sites.iter().enumerate() {
        let Some(address) = site.connect else { continue };
        let at = At::entry("site", i).key("connect");
        let is_controlled = file.fronts.iter().any(|front| front.proxy == Proxy::Connect);
        expect(is_controlled, at, || {
            let found = format!("site {:?} has connect, and no front has proxy = \"connect\"", site.name);
            (found, "such a front, or no connect".into())
        })?;
        expect(address.port() != 0 && !address.ip().is_unspecified(), at, || {
            (format!("site {:?}: connect is {address}", site.name), "an address and a port".into())
        })?;
        addresses.once(at, address, || format!("site {:?}", site.name))?;
    }
    Ok(())
}
