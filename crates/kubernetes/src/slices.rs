//! EndpointSlices, and the endpoints in them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::wire::{EndpointOf, Port, Slice};

/// How an endpoint is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum State {
    /// It is not to get requests.
    Unready,
    /// It serves.
    Ready,
    /// Its pod is about to end.
    Terminating,
}

/// A server of a service.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Endpoint {
    /// The name of its pod; without one its address, with `-` for what a name cannot have.
    pub name: String,
    /// Where it serves.
    pub address: SocketAddr,
    /// How it is.
    pub state: State,
}

/// Why no port is meant.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortError {
    /// None has that name or number.
    #[error("the service has no port {port} over TCP; it has {has}")]
    No {
        /// What was asked for.
        port: String,
        /// What there is.
        has: String,
    },
    /// There are several.
    #[error("the service has several ports, {has}: say which one")]
    Several {
        /// They.
        has: String,
    },
}

/// The slices of a service, by name.
#[derive(Default, Debug)]
pub(crate) struct Slices(BTreeMap<String, Slice>);

impl Slices {
    pub(crate) fn put(&mut self, slice: Slice) {
        self.0.insert(slice.metadata.name.clone(), slice);
    }

    pub(crate) fn remove(&mut self, slice: &Slice) {
        self.0.remove(&slice.metadata.name);
    }

    pub(crate) fn endpoints(&self, port: Option<&str>) -> Result<Vec<Endpoint>, PortError> {
        // An endpoint may be in two slices for a while, and a pod may have addresses of two families.
        let mut found = BTreeMap::<(String, SocketAddr), State>::new();
        let (mut refused, mut is_there) = (None, false);
        for slice in self.0.values().filter(|slice| slice.kind != "FQDN" && !slice.endpoints.is_empty()) {
            // While ports are given other names, slices differ.
            let port = match port_of(&slice.ports, port) {
                Ok(port) => port,
                Err(why) => {
                    refused.get_or_insert(why);
                    continue;
                }
            };
            is_there = true;
            for endpoint in &slice.endpoints {
                let Some(ip) = endpoint.address() else { continue };
                let state = state(endpoint);
                let known = found.entry((name(endpoint), SocketAddr::new(ip, port))).or_insert(state);
                *known = state.max(*known);
            }
        }
        if let Some(why) = refused.filter(|_| !is_there) {
            return Err(why);
        }
        let mut best = BTreeMap::<String, Endpoint>::new();
        for ((name, address), state) in found {
            let endpoint = Endpoint { name: name.clone(), address, state };
            // A pod that is made anew keeps its name. IPv4 goes first, as elsewhere.
            let worth =
                |of: &Endpoint| (of.state == State::Ready, of.state == State::Unready, of.address.is_ipv4());
            let known = best.entry(name).or_insert_with(|| endpoint.clone());
            if worth(&endpoint) > worth(known) {
                *known = endpoint;
            }
        }
        Ok(best.into_values().collect())
    }
}

fn state(of: &EndpointOf) -> State {
    match (of.conditions.terminating, of.conditions.ready) {
        (Some(true), _) => State::Terminating,
        (_, Some(false)) => State::Unready,
        _ => State::Ready,
    }
}

fn name(of: &EndpointOf) -> String {
    match &of.target {
        Some(target) if target.kind == "Pod" && !target.name.is_empty() => target.name.clone(),
        _ => of.addresses.concat().replace(|c: char| !c.is_ascii_alphanumeric(), "-"),
    }
}

fn port_of(ports: &[Port], wanted: Option<&str>) -> Result<u16, PortError> {
    let tcp = ports.iter().filter(|port| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP"));
    let tcp: Vec<_> = tcp.filter_map(|port| Some((&*port.name, port.port?))).collect();
    let is_it = |(name, number): &(&str, u16)| {
        wanted.is_none_or(|wanted| *name == wanted || number.to_string() == wanted)
    };
    let meant: BTreeSet<_> = tcp.iter().filter(|port| is_it(port)).map(|(_, number)| *number).collect();
    let shown = |(name, number): &(&str, u16)| {
        if name.is_empty() { number.to_string() } else { format!("{name} ({number})") }
    };
    let has = || match tcp.is_empty() {
        true => "none".to_owned(),
        false => tcp.iter().map(shown).collect::<Vec<_>>().join(", "),
    };
    let mut meant = meant.into_iter();
    match (meant.next(), meant.next()) {
        (Some(port), None) => Ok(port),
        (Some(_), Some(_)) => Err(PortError::Several { has: has() }),
        (None, _) => Err(PortError::No { port: wanted.unwrap_or("").to_owned(), has: has() }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(name: &str, kind: &str, ports: &Value, endpoints: &[(&str, &str, Value)]) -> Slice {
        let endpoint = |(pod, address, conditions): &(&str, &str, Value)| {
            let target = if pod.is_empty() { Value::Null } else { json!({ "kind": "Pod", "name": pod }) };
            json!({ "addresses": [address], "conditions": conditions, "targetRef": target })
        };
        let endpoints: Vec<_> = endpoints.iter().map(endpoint).collect();
        let metadata = json!({ "name": name, "resourceVersion": "7" });
        serde_json::from_value(
            json!({ "metadata": metadata, "addressType": kind, "endpoints": endpoints, "ports": ports }),
        )
        .unwrap()
    }

    fn slices(all: impl IntoIterator<Item = Slice>) -> Slices {
        let mut slices = Slices::default();
        all.into_iter().for_each(|slice| slices.put(slice));
        slices
    }

    fn told(slices: &Slices, port: Option<&str>) -> Vec<String> {
        let told =
            |endpoint: Endpoint| format!("{} {} {:?}", endpoint.name, endpoint.address, endpoint.state);
        slices.endpoints(port).unwrap().into_iter().map(told).collect()
    }

    #[test]
    fn what_conditions_mean() {
        let ports = json!([{ "name": "http", "port": 8080, "protocol": "TCP" }]);
        let all = [
            ("a", "10.0.0.1", json!({ "ready": true, "serving": true, "terminating": false })),
            ("b", "10.0.0.2", json!({ "ready": false })),
            ("c", "10.0.0.3", json!({ "ready": false, "serving": true, "terminating": true })),
            ("d", "10.0.0.4", json!({})),
            // Of a service that publishes what is not ready.
            ("e", "10.0.0.5", json!({ "ready": true, "terminating": true })),
            ("", "10.0.0.6", json!({ "ready": null })),
        ];
        let slices = slices([slice("s", "IPv4", &ports, &all)]);
        let expected = [
            "10-0-0-6 10.0.0.6:8080 Ready",
            "a 10.0.0.1:8080 Ready",
            "b 10.0.0.2:8080 Unready",
            "c 10.0.0.3:8080 Terminating",
            "d 10.0.0.4:8080 Ready",
            "e 10.0.0.5:8080 Terminating",
        ];
        assert_eq!(told(&slices, None), expected);
    }

    #[test]
    fn an_endpoint_in_several_slices_is_one() {
        let ports = json!([{ "port": 80 }]);
        let (ready, ending) = (json!({ "ready": true }), json!({ "ready": false, "terminating": true }));
        let slices = slices([
            slice(
                "one",
                "IPv4",
                &ports,
                &[("a", "10.0.0.1", ready.clone()), ("b", "10.0.0.2", ending.clone())],
            ),
            slice("other", "IPv4", &ports, &[("a", "10.0.0.1", ending), ("b", "10.0.0.9", ready.clone())]),
            slice("six", "IPv6", &ports, &[("b", "fd00::2", ready.clone()), ("c", "fd00::3", ready.clone())]),
            slice("names", "FQDN", &ports, &[("d", "d.example", ready)]),
        ]);
        let expected = ["a 10.0.0.1:80 Terminating", "b 10.0.0.9:80 Ready", "c [fd00::3]:80 Ready"];
        assert_eq!(told(&slices, None), expected);
    }

    #[test]
    fn the_port_is_one() {
        let ports = json!([
            { "name": "http", "port": 8080, "protocol": "TCP" },
            { "name": "metrics", "port": 9090, "protocol": "TCP" },
            { "name": "dns", "port": 53, "protocol": "UDP" },
        ]);
        let slices = slices([
            slice("s", "IPv4", &ports, &[("a", "10.0.0.1", json!({}))]),
            slice("no", "IPv4", &Value::Null, &[]),
        ]);
        assert_eq!(told(&slices, Some("http")), told(&slices, Some("8080")));
        let refused = |port| slices.endpoints(port).unwrap_err().to_string();
        assert_eq!(
            refused(None),
            "the service has several ports, http (8080), metrics (9090): say which one"
        );
        assert_eq!(
            refused(Some("dns")),
            "the service has no port dns over TCP; it has http (8080), metrics (9090)"
        );
    }
}
