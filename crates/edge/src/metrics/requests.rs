//! Counters of requests. Each thread that serves clients raises counters of its own, and the scrape sums them: no request waits
//! for a lock, or for a cache line that another thread writes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Unit;
use sidelong_layout::SiteId;
use sidelong_proxy::Refusal;
use sidelong_reconfig::SharedMembers;

use super::emit::Labels;

/// Upper bounds of the latency buckets, in us. A last bucket has no bound.
const LATENCY_US: [u64; 15] = [
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000,
];
/// Classes of status: none, 1xx to 5xx.
const CODES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// The counters of all threads.
#[derive(Debug)]
pub(super) struct Requests {
    threads: Box<[ThreadCounts]>,
    /// Names of the sites, for labels.
    members: Arc<SharedMembers>,
}

/// One thread's counters. Processors fetch cache lines in pairs, hence the alignment.
#[derive(Debug)]
#[repr(align(128))]
struct ThreadCounts {
    sites: Box<[SiteCounts]>,
    retries: AtomicU64,
    misdirected: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
}

/// One thread's counters of a site.
#[derive(Debug, Default)]
#[repr(align(128))]
struct SiteCounts {
    by_code: [AtomicU64; CODES.len()],
    cut: AtomicU64,
    latency: [AtomicU64; LATENCY_US.len() + 1],
    /// The sum of all.
    latency_ns: AtomicU64,
}

fn raise(count: &AtomicU64, by: u64) {
    count.fetch_add(by, Ordering::Relaxed);
}

impl Requests {
    /// With room for so many sites.
    pub(super) fn new(threads: usize, sites: usize, members: Arc<SharedMembers>) -> Self {
        let thread = || ThreadCounts {
            sites: (0..sites).map(|_| SiteCounts::default()).collect(),
            retries: AtomicU64::default(),
            misdirected: AtomicU64::default(),
            refused: Default::default(),
        };
        Requests { threads: (0..threads).map(|_| thread()).collect(), members }
    }

    pub(super) fn cut(&self, thread: usize, site: SiteId) {
        raise(&self.threads[thread].sites[site.index()].cut, 1);
    }

    /// Counts a request that was sent to `tries` nodes and answered with `status`, 0 if not at all, after `elapsed`.
    pub(super) fn answered(
        &self,
        thread: usize,
        site: Option<SiteId>,
        status: u16,
        elapsed: Duration,
        tries: u32,
    ) {
        let counts = &self.threads[thread];
        match site {
            Some(site) => {
                let site = &counts.sites[site.index()];
                raise(&site.by_code[usize::from(status / 100).min(CODES.len() - 1)], 1);
                // An answer of the edge itself is quick, and says nothing about response times.
                if tries > 0 {
                    let bucket = LATENCY_US.partition_point(|bound| Duration::from_micros(*bound) < elapsed);
                    raise(&site.latency[bucket], 1);
                    raise(&site.latency_ns, elapsed.as_nanos() as u64);
                }
            }
            None => raise(&counts.misdirected, 1),
        }
        if tries > 1 {
            raise(&counts.retries, u64::from(tries) - 1);
        }
    }

    pub(super) fn refused(&self, thread: usize, why: Refusal) {
        raise(&self.threads[thread].refused[why as usize], 1);
    }

    /// Begins anew with a site.
    pub(super) fn clear(&self, site: SiteId) {
        for thread in &self.threads {
            let SiteCounts { by_code, cut, latency, latency_ns } = &thread.sites[site.index()];
            let all = by_code.iter().chain(latency).chain([cut, latency_ns]);
            all.for_each(|count| count.store(0, Ordering::Relaxed));
        }
    }

    fn sum(&self, count: impl Fn(&ThreadCounts) -> &AtomicU64) -> u64 {
        self.threads.iter().map(|thread| count(thread).load(Ordering::Relaxed)).sum()
    }

    fn latency(&self, site: usize) -> (f64, [(f64, u64); LATENCY_US.len() + 1]) {
        let counts = std::array::from_fn(|bucket| {
            let bound = LATENCY_US.get(bucket).map_or(f64::INFINITY, |us| *us as f64 / 1e6);
            (bound, self.sum(|thread| &thread.sites[site].latency[bucket]))
        });
        (self.sum(|thread| &thread.sites[site].latency_ns) as f64 / 1e9, counts)
    }
}

/// Reads the counters at the scrape.
#[derive(Debug)]
pub(super) struct RequestCollector(pub(super) Arc<Requests>);

impl Collector for RequestCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (requests, members) = (&*self.0, self.0.members.load());
        let sites = || members.sites.entries().map(|(slot, name)| (slot, name.as_str()));
        let by_code = sites().flat_map(|(site, name)| {
            CODES.iter().enumerate().map(move |(class, code)| {
                let count = requests.sum(|thread| &thread.sites[site].by_code[class]);
                (vec![("site", name), ("code", *code)], count)
            })
        });
        counters(&mut encoder, "requests", "Requests answered, by site and class of status", by_code)?;
        let help =
            "From the complete header to the complete answer, of requests that were sent to a node, by site";
        let mut durations = encoder.encode_descriptor(
            "request_duration",
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        for (site, name) in sites() {
            let (sum, buckets) = requests.latency(site);
            let count = buckets.iter().map(|(_, count)| count).sum();
            let labels = [("site", name)];
            durations.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        let cut = sites()
            .map(|(site, name)| (vec![("site", name)], requests.sum(|thread| &thread.sites[site].cut)));
        counters(&mut encoder, "cut_requests", "Requests cut at a node that left their site, by site", cut)?;
        let retries = [(Labels::new(), requests.sum(|thread| &thread.retries))];
        counters(&mut encoder, "retries", "Requests sent to another node after a failure", retries)?;
        let misdirected = [(Labels::new(), requests.sum(|thread| &thread.misdirected))];
        counters(&mut encoder, "misdirected", "Requests for a Host of no site", misdirected)?;
        let refused = Refusal::ALL
            .into_iter()
            .map(|why| (vec![("reason", why.word())], requests.sum(|thread| &thread.refused[why as usize])));
        let help = "Clients disconnected before they had sent a whole request, by reason";
        counters(&mut encoder, "refused", help, refused)
    }
}

/// Writes a family of counters.
fn counters<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: impl IntoIterator<Item = (Labels<'a>, u64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (labels, count) in counts {
        if labels.is_empty() {
            // The only one of its family: an empty set of labels would be written as `{}`.
            return ConstCounter::new(count).encode(family);
        }
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;
    use sidelong_reconfig::Members;

    use super::*;

    #[test]
    fn what_threads_count_is_summed_at_the_scrape() {
        let sites = ["alpha", "beta"].map(str::to_owned).into_iter().collect();
        let members = SharedMembers::from_pointee(Members { sites, ..Members::default() });
        let requests = Arc::new(Requests::new(3, 4, members.into()));
        let site = Some(SiteId::new(1));
        requests.answered(0, site, 200, Duration::from_micros(100), 1);
        requests.answered(2, site, 204, Duration::from_micros(101), 3);
        requests.answered(2, site, 503, Duration::from_secs(6), 0);
        requests.answered(1, site, 200, Duration::from_secs(6), 1);
        requests.answered(1, None, 421, Duration::ZERO, 0);
        for thread in 0..3 {
            requests.cut(thread, SiteId::new(0));
            requests.refused(thread, Refusal::Full);
        }
        let mut registry = Registry::default();
        registry.register_collector(Box::new(RequestCollector(requests)));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).unwrap();
        for line in [
            "requests_total{site=\"beta\",code=\"2xx\"} 3",
            "requests_total{site=\"beta\",code=\"5xx\"} 1",
            "requests_total{site=\"alpha\",code=\"none\"} 0",
            "request_duration_seconds_bucket{le=\"0.0001\",site=\"beta\"} 1",
            "request_duration_seconds_bucket{le=\"0.0002\",site=\"beta\"} 2",
            "request_duration_seconds_bucket{le=\"5.0\",site=\"beta\"} 2",
            "request_duration_seconds_bucket{le=\"+Inf\",site=\"beta\"} 3",
            "request_duration_seconds_count{site=\"beta\"} 3",
            "request_duration_seconds_sum{site=\"beta\"} 6.000201",
            "cut_requests_total{site=\"alpha\"} 3",
            "retries_total 2",
            "misdirected_total 1",
            "refused_total{reason=\"too-many\"} 3",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
        }
    }
}
