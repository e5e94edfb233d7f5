//! The progress and the results of a run.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::config::{ClientConfig, Load};
use super::ledger::{Page, SiteTally};
use super::series::Series;
use super::worker::ErrorKind;

/// Requests that did not succeed, by kind: they failed or were rejected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Errors {
    /// See [`ErrorKind::Connect`].
    pub connect: u64,
    /// See [`ErrorKind::Timeout`].
    pub timeout: u64,
    /// See [`ErrorKind::Closed`].
    pub closed: u64,
    /// See [`ErrorKind::Broken`].
    pub broken: u64,
    /// See [`ErrorKind::Body`].
    pub body: u64,
    /// See [`ErrorKind::Status4xx`].
    pub status_4xx: u64,
    /// See [`ErrorKind::Rejected`].
    pub rejected: u64,
    /// See [`ErrorKind::Unavailable`].
    pub unavailable: u64,
    /// See [`ErrorKind::Status5xx`].
    pub status_5xx: u64,
    /// See [`ErrorKind::WrongPage`].
    #[serde(default)]
    pub wrong_page: u64,
}

impl Errors {
    /// The sum over all kinds.
    pub fn total(&self) -> u64 {
        self.failed() + self.rejected()
    }

    /// The sum over requests that failed, without those rejected.
    pub fn failed(&self) -> u64 {
        let Errors {
            connect, timeout, broken, body, status_4xx, unavailable, status_5xx, wrong_page, ..
        } = *self;
        connect + timeout + broken + body + status_4xx + unavailable + status_5xx + wrong_page
    }

    /// The sum over requests that were rejected.
    pub fn rejected(&self) -> u64 {
        self.rejected + self.closed
    }

    pub(crate) fn count(&mut self, kind: ErrorKind) {
        *match kind {
            ErrorKind::Connect => &mut self.connect,
            ErrorKind::Timeout => &mut self.timeout,
            ErrorKind::Closed => &mut self.closed,
            ErrorKind::Broken => &mut self.broken,
            ErrorKind::Body => &mut self.body,
            ErrorKind::Status4xx => &mut self.status_4xx,
            ErrorKind::Rejected => &mut self.rejected,
            ErrorKind::Unavailable => &mut self.unavailable,
            ErrorKind::Status5xx => &mut self.status_5xx,
            ErrorKind::WrongPage => &mut self.wrong_page,
        } += 1;
    }

    pub(crate) fn add(&mut self, other: &Errors) {
        self.connect += other.connect;
        self.timeout += other.timeout;
        self.closed += other.closed;
        self.broken += other.broken;
        self.body += other.body;
        self.status_4xx += other.status_4xx;
        self.rejected += other.rejected;
        self.unavailable += other.unavailable;
        self.status_5xx += other.status_5xx;
        self.wrong_page += other.wrong_page;
    }
}

/// Response times in ms, exact to three digits up to 60 s; all 0 if there are none. The [module](super) defines what
/// they measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// Exceeded by one in ten.
    pub p90_ms: f64,
    /// Exceeded by one in a hundred.
    pub p99_ms: f64,
    /// Exceeded by one in a thousand.
    pub p999_ms: f64,
    /// The longest.
    pub max_ms: f64,
}

impl Latency {
    pub(crate) fn of(latencies_us: &Histogram<u64>) -> Self {
        let quantile = |quantile| ms(latencies_us.value_at_quantile(quantile) as f64);
        Latency {
            mean_ms: ms(latencies_us.mean()),
            p50_ms: quantile(0.5),
            p90_ms: quantile(0.9),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
            max_ms: ms(latencies_us.max() as f64),
        }
    }
}

/// The progress of a run. Windowed figures cover the time since the previous call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Live {
    /// Time since the start, in s.
    pub elapsed_s: f64,
    /// Length of the window, in s.
    pub window_s: f64,
    /// All sites together.
    pub total: LiveSite,
    /// Each site, in the order of [`ClientConfig::sites`].
    pub sites: Vec<LiveSite>,
}

/// The progress of a run for one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LiveSite {
    /// Requests that have ended since the start, successfully or not.
    pub requests: u64,
    /// Requests that have failed since the start.
    pub errors: u64,
    /// Requests rejected since the start.
    pub rejected: u64,
    /// Requests not sent since the start because too many were in flight (open loop).
    pub dropped: u64,
    /// Successes each second in the window.
    pub requests_per_s: f64,
    /// Requests rejected each second in the window.
    pub rejected_per_s: f64,
    /// Median response time of the window's successes in ms; 0 without any.
    pub p50_ms: f64,
    /// 99th percentile of the same, in ms.
    pub p99_ms: f64,
}

impl Live {
    /// `total` already includes `window`.
    pub(super) fn new(elapsed: Duration, window_time: Duration, window: &Page, total: &Page) -> Self {
        let window_s = window_time.as_secs_f64();
        let site = |window: &SiteTally, total: &SiteTally| LiveSite {
            requests: total.counts.requests,
            errors: total.counts.errors.failed(),
            rejected: total.counts.errors.rejected(),
            dropped: total.counts.dropped,
            requests_per_s: per_s(window.latencies.len(), window_s),
            rejected_per_s: per_s(window.counts.errors.rejected(), window_s),
            p50_ms: ms(window.latencies.value_at_quantile(0.5) as f64),
            p99_ms: ms(window.latencies.value_at_quantile(0.99) as f64),
        };
        Live {
            elapsed_s: elapsed.as_secs_f64(),
            window_s,
            total: site(&window.all_sites(), &total.all_sites()),
            sites: window.sites.iter().zip(&total.sites).map(|(window, total)| site(window, total)).collect(),
        }
    }
}

/// The results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Time from the first success to the last, in s, over which rates are taken.
    pub seconds: f64,
    /// Requests that ended, successfully or not.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that were rejected.
    pub rejected: u64,
    /// Both by kind.
    pub errors_by_kind: Errors,
    /// Requests not sent because too many were in flight (open loop).
    pub dropped: u64,
    /// Bytes of response bodies.
    pub bytes: u64,
    /// Successes each second.
    pub requests_per_s: f64,
    /// Latency of the requests that succeeded, over all sites.
    #[serde(flatten)]
    pub latency: Latency,
    /// Latency of the rejections, over all sites.
    pub refusal: Latency,
    /// How late the generator itself sent requests (open loop). This is part of the latencies above, and not the
    /// servers' fault.
    pub lag: Latency,
    /// Each site, in the order of [`ClientConfig::sites`].
    pub sites: Vec<SiteSummary>,
    /// Each edge, in the order of [`ClientConfig::edges`].
    pub edges: Vec<EdgeSummary>,
    /// Each node that named itself, for each site that it answered for; by name, then by site.
    pub nodes: Vec<NodeSummary>,
    /// Each client, in the order of [`ClientConfig::clients`]; empty if there are none.
    pub clients: Vec<ClientSummary>,
    /// The outcomes over time, if recorded.
    pub series: Option<Series>,
}

/// The results for one site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SiteSummary {
    /// Its name.
    pub site: String,
    /// Requests that ended, successfully or not.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that were rejected.
    pub rejected: u64,
    /// Both by kind.
    pub errors_by_kind: Errors,
    /// Requests not sent because too many were in flight (open loop).
    pub dropped: u64,
    /// Bytes of response bodies.
    pub bytes: u64,
    /// Successes each second, over [`Summary::seconds`]: the sites' rates add up to the total.
    pub requests_per_s: f64,
    /// Latency of this site's requests that succeeded.
    #[serde(flatten)]
    pub latency: Latency,
    /// Latency of this site's rejections.
    pub refusal: Latency,
}

/// The results for one edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EdgeSummary {
    /// Its address.
    pub edge: SocketAddr,
    /// Requests that ended, successfully or not.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that were rejected.
    pub rejected: u64,
}

/// The results for one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientSummary {
    /// Its address.
    pub client: IpAddr,
    /// Requests that ended, successfully or not.
    pub requests: u64,
    /// Requests that succeeded.
    pub answered: u64,
    /// Requests that were rejected.
    pub rejected: u64,
    /// Requests not sent because too many were in flight (open loop).
    pub dropped: u64,
}

/// How evenly something is shared (Jain's index): 1 if all have the same, `1 / n` if one of `n` has all; `None` if none
/// has any.
pub fn jain_index(shares: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for share in shares {
        count += 1.0;
        sum += share;
        squares += share * share;
    }
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

/// One node's answers for one site.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeSummary {
    /// The node, by its `x-sidelong-node` header.
    pub node: String,
    /// The site.
    pub site: String,
    /// Complete responses, of any status.
    pub requests: u64,
    /// When the first of them was complete, in s since the start.
    pub first_seen_s: f64,
}

impl Summary {
    pub(super) fn new(config: &ClientConfig, page: &Page, series: Option<Series>) -> Self {
        let seconds = page.span.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
        let sites: Vec<_> = page
            .sites
            .iter()
            .zip(&config.sites)
            .map(|(t, name)| SiteSummary::new(name, t, seconds))
            .collect();
        let total = SiteSummary::new("", &page.all_sites(), seconds);
        let edges = page.edges.iter().zip(&config.edges).map(|(tally, &edge)| EdgeSummary {
            edge,
            requests: tally.requests,
            errors: tally.errors,
            rejected: tally.rejected,
        });
        let mut nodes: Vec<_> = page.nodes.iter().collect();
        nodes.sort_by_key(|(node, _)| *node);
        let nodes = nodes.into_iter().flat_map(|(node, sites)| {
            sites.iter().map(|(&site, tally)| NodeSummary {
                node: node.to_string(),
                site: config.sites[site].clone(),
                requests: tally.requests,
                first_seen_s: tally.first_seen.as_secs_f64(),
            })
        });
        let clients = page.clients.iter().zip(&config.clients).map(|(tally, &client)| ClientSummary {
            client,
            requests: tally.requests,
            answered: tally.answered,
            rejected: tally.rejected,
            dropped: tally.dropped,
        });
        let is_open = matches!(config.load, Load::Open { .. });
        Summary {
            seconds,
            requests: total.requests,
            errors: total.errors,
            rejected: total.rejected,
            errors_by_kind: total.errors_by_kind,
            dropped: total.dropped,
            bytes: total.bytes,
            requests_per_s: total.requests_per_s,
            latency: total.latency,
            refusal: total.refusal,
            lag: if is_open { Latency::of(&page.lags) } else { Latency::default() },
            sites,
            edges: edges.collect(),
            nodes: nodes.collect(),
            clients: clients.collect(),
            series,
        }
    }
}

impl SiteSummary {
    fn new(site: &str, tally: &SiteTally, seconds: f64) -> Self {
        SiteSummary {
            site: site.to_owned(),
            requests: tally.counts.requests,
            errors: tally.counts.errors.failed(),
            rejected: tally.counts.errors.rejected(),
            errors_by_kind: tally.counts.errors,
            dropped: tally.counts.dropped,
            bytes: tally.counts.bytes,
            requests_per_s: per_s(tally.latencies.len(), seconds),
            latency: Latency::of(&tally.latencies),
            refusal: Latency::of(&tally.refusals),
        }
    }
}

impl Page {
    fn all_sites(&self) -> SiteTally {
        let mut all = SiteTally::new();
        self.sites.iter().for_each(|site| all.add(site));
        all
    }
}

fn per_s(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

fn ms(us: f64) -> f64 {
    us / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_s_index_is_of_how_many_have_a_share() {
        assert_eq!(jain_index([3.0; 8]), Some(1.0));
        assert_eq!(jain_index([5.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain_index([0.0, 0.0]), None);
        assert_eq!(jain_index([]), None);
    }
}
