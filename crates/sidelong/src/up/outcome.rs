//! How a run ended: the summary, for people and as JSON.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use sidelong_config::Cluster;
use sidelong_layout::SiteId;
use sidelong_workload::client::{ClientSummary, Errors, Summary};

use super::admissions::Admissions;
use crate::monitor::Monitor;

/// The whole run. Times in the unit that the name says.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Outcome {
    seconds: f64,
    requests: u64,
    /// Requests that failed.
    errors: u64,
    /// Requests that the edges turned away, as the load saw it: answered with 503 and the reason, or closed at the door.
    turned_away: u64,
    /// Both by kind.
    errors_by_kind: Errors,
    moves: u64,
    requests_per_s: f64,
    mean_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// By how much the load itself was late, which is part of the times above.
    lag_ms_p99: f64,
    sites: Vec<SiteOutcome>,
    /// Of each address, where the clients have several.
    clients: Vec<ClientSummary>,
    /// From the first request of a burst to the first that goes to a node which came for it.
    step_to_first_request_ms: Option<Quantiles>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct SiteOutcome {
    name: String,
    requests: u64,
    errors: u64,
    /// With 503 by the edges, whoever asked.
    rejected: u64,
    requests_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Of the load, as above, and until it knew.
    turned_away: u64,
    refusal_ms_p50: f64,
    refusal_ms_p99: f64,
    nodes: usize,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Quantiles {
    count: usize,
    p50: f64,
    p99: f64,
    max: f64,
}

impl Outcome {
    pub(super) fn new(
        cluster: &Cluster,
        summary: Option<Summary>,
        monitor: &Monitor,
        moves: u64,
        admissions: &Admissions,
        steps: &StepTimes,
    ) -> Self {
        let sites = cluster.sites.iter().enumerate().map(|(index, site)| {
            let load = summary.as_ref().map(|summary| &summary.sites[index]);
            SiteOutcome {
                name: site.name.clone(),
                requests: load.map_or(0, |load| load.requests),
                errors: load.map_or(0, |load| load.errors),
                rejected: admissions.rejected(index),
                requests_per_s: load.map_or(0.0, |load| load.requests_per_s),
                p50_ms: load.map_or(0.0, |load| load.latency.p50_ms),
                p99_ms: load.map_or(0.0, |load| load.latency.p99_ms),
                max_ms: load.map_or(0.0, |load| load.latency.max_ms),
                turned_away: load.map_or(0, |load| load.turned_away),
                refusal_ms_p50: load.map_or(0.0, |load| load.refusal.p50_ms),
                refusal_ms_p99: load.map_or(0.0, |load| load.refusal.p99_ms),
                nodes: monitor.serving(SiteId::new(index)),
            }
        });
        Outcome {
            sites: sites.collect(),
            seconds: summary.as_ref().map_or(0.0, |summary| summary.seconds),
            requests: summary.as_ref().map_or(0, |summary| summary.requests),
            errors: summary.as_ref().map_or(0, |summary| summary.errors),
            turned_away: summary.as_ref().map_or(0, |summary| summary.turned_away),
            errors_by_kind: summary.as_ref().map_or_else(Errors::default, |summary| summary.errors_by_kind),
            moves,
            requests_per_s: summary.as_ref().map_or(0.0, |summary| summary.requests_per_s),
            mean_ms: summary.as_ref().map_or(0.0, |summary| summary.latency.mean_ms),
            p50_ms: summary.as_ref().map_or(0.0, |summary| summary.latency.p50_ms),
            p99_ms: summary.as_ref().map_or(0.0, |summary| summary.latency.p99_ms),
            max_ms: summary.as_ref().map_or(0.0, |summary| summary.latency.max_ms),
            lag_ms_p99: summary.as_ref().map_or(0.0, |summary| summary.lag.p99_ms),
            clients: summary.map_or_else(Vec::new, |summary| summary.clients),
            step_to_first_request_ms: steps.quantiles(),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rejected = match self.turned_away {
            0 => String::new(),
            rejected => format!(", {rejected} rejected"),
        };
        writeln!(
            f,
            "\n{} requests in {:.1} s: {:.0} requests/s, p50 {:.1} ms, p99 {:.1} ms, {} errors{rejected}, {} moves",
            self.requests,
            self.seconds,
            self.requests_per_s,
            self.p50_ms,
            self.p99_ms,
            self.errors,
            self.moves
        )?;
        if let Some(steps) = &self.step_to_first_request_ms {
            writeln!(
                f,
                "load step to first request on a moved node: p50 {:.1} ms, p99 {:.1} ms over {} steps",
                steps.p50, steps.p99, steps.count
            )?;
        }
        let width = self.sites.iter().map(|site| site.name.len()).max().unwrap_or(0).max(4);
        writeln!(
            f,
            "{:width$} {:>6} {:>10} {:>11} {:>9} {:>9} {:>7} {:>9}",
            "site", "nodes", "requests", "requests/s", "p50 ms", "p99 ms", "errors", "rejected"
        )?;
        for site in &self.sites {
            // Without a load of ours there is nothing to say of requests but this.
            let rejected = if self.requests > 0 { site.turned_away } else { site.rejected };
            writeln!(
                f,
                "{:width$} {:>6} {:>10} {:>11.0} {:>9.1} {:>9.1} {:>7} {:>9}",
                site.name,
                site.nodes,
                site.requests,
                site.requests_per_s,
                site.p50_ms,
                site.p99_ms,
                site.errors,
                rejected
            )?;
        }
        Ok(())
    }
}

/// When bursts began, and how long each waited for its first new node.
#[derive(Clone, Debug)]
pub(super) struct StepTimes {
    sites: Arc<[String]>,
    inner: Arc<Mutex<Steps>>,
}

#[derive(Debug, Default)]
struct Steps {
    /// The site of the latest burst and when that began, in ns of the monotonic clock, until a node came for it.
    begun: Option<(usize, u64)>,
    took_ms: Vec<f64>,
}

impl StepTimes {
    pub(super) fn new(cluster: &Cluster) -> Self {
        let sites = cluster.sites.iter().map(|site| site.name.clone()).collect();
        StepTimes { sites, inner: Arc::default() }
    }

    /// A burst for `site` begins, and with it any other's ends.
    pub(super) fn begin(&self, site: usize) {
        let now = sidelong_load::monotonic_ns();
        self.lock().begun = Some((site, now));
    }

    /// The first request went to a node that came to `site`.
    pub(super) fn first_request(&self, site: &str, at_ns: u64) {
        let mut steps = self.lock();
        // What was routed before the step belongs to an earlier one.
        let begun = steps.begun.filter(|(burst, begun)| self.sites[*burst] == site && *begun <= at_ns);
        if let Some((_, begun)) = begun {
            steps.begun = None;
            steps.took_ms.push((at_ns - begun) as f64 / 1e6);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Steps> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn quantiles(&self) -> Option<Quantiles> {
        let mut took = self.lock().took_ms.clone();
        took.sort_by(f64::total_cmp);
        let at = |quantile: f64| took[((took.len() - 1) as f64 * quantile).round() as usize];
        (!took.is_empty()).then(|| Quantiles { count: took.len(), p50: at(0.5), p99: at(0.99), max: at(1.0) })
    }
}
