//! The outcomes of requests, counted where it costs least: on one page for each thread.
//!
//! A thread records on its own page, under a lock that only the reader also takes, a few times a second. The reader
//! swaps the page for an empty one, so it holds the lock only for a moment, and sums up outside.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::config::SeriesConfig;
use super::report::Errors;
use super::series::{self, Book, Series};
use super::worker::ErrorKind;

/// Longest latency that is represented, in µs; longer ones are recorded as this.
pub(super) const LATENCY_US_MAX: u64 = 60_000_000;
/// Precision of latencies, in significant digits.
const DIGITS: u8 = 3;
/// Most nodes that are counted separately. Their names come from outside.
const NODES_MAX: usize = 4096;

/// The pages of all threads, and their parts of the series.
pub(super) struct Ledger {
    pages: Vec<Mutex<Page>>,
    series: Option<(SeriesConfig, Vec<Mutex<Book>>)>,
}

/// One request to be recorded.
pub(super) struct Entry<'a> {
    pub(super) site: usize,
    pub(super) edge: usize,
    pub(super) client: usize,
    pub(super) node: Option<&'a str>,
    pub(super) error: Option<ErrorKind>,
    pub(super) latency: Duration,
    /// How late the generator itself was.
    pub(super) lag: Duration,
    /// Size of the response body.
    pub(super) bytes: u64,
    /// When it was due and when it had ended, since the start of the run.
    pub(super) due: Duration,
    pub(super) at: Duration,
}

/// How many there are of what a page tells apart.
#[derive(Clone, Copy)]
pub(super) struct Extent {
    pub(super) sites: usize,
    pub(super) edges: usize,
    pub(super) clients: usize,
}

/// What was recorded over some time.
pub(super) struct Page {
    pub(super) sites: Vec<SiteTally>,
    pub(super) edges: Vec<EdgeTally>,
    pub(super) clients: Vec<ClientTally>,
    /// By name, then by site.
    pub(super) nodes: HashMap<Box<str>, BTreeMap<usize, NodeTally>>,
    /// When the first and the last success were entered, since the start of the run.
    pub(super) span: Option<(Duration, Duration)>,
    /// By how much the generator itself was late, in µs.
    pub(super) lags: Histogram<u64>,
}

/// The outcomes of one site's requests.
pub(super) struct SiteTally {
    /// Latencies of successes, in µs.
    pub(super) latencies: Histogram<u64>,
    /// Latencies of rejections, in µs.
    pub(super) refusals: Histogram<u64>,
    pub(super) counts: Counts,
}

/// Requests of one site by outcome.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) errors: Errors,
    /// Due, but not sent because too many were in flight.
    pub(super) dropped: u64,
    /// Bytes of response bodies.
    pub(super) bytes: u64,
}

/// The outcomes of requests to one edge.
#[derive(Clone, Copy, Default)]
pub(super) struct EdgeTally {
    pub(super) requests: u64,
    pub(super) errors: u64,
    pub(super) rejected: u64,
}

/// The outcomes of one client's requests.
#[derive(Clone, Copy, Default)]
pub(super) struct ClientTally {
    pub(super) requests: u64,
    pub(super) answered: u64,
    pub(super) rejected: u64,
    pub(super) dropped: u64,
}

/// One node's answers for one site.
#[derive(Clone, Copy)]
pub(super) struct NodeTally {
    pub(super) requests: u64,
    /// Since the start of the run.
    pub(super) first_seen: Duration,
}

impl Ledger {
    pub(super) fn new(threads: usize, extent: Extent, series: Option<SeriesConfig>) -> Self {
        let pages = (0..threads).map(|_| Mutex::new(Page::new(extent))).collect();
        let book = |config| Mutex::new(Book::new(config, extent.sites));
        let series = series.map(|config| (config, (0..threads).map(|_| book(config)).collect()));
        Ledger { pages, series }
    }

    /// Records a completed request on the page of `thread`.
    pub(super) fn enter(&self, thread: usize, entry: &Entry<'_>) {
        self.page(thread).enter(entry);
        if let Some(mut book) = self.book(thread) {
            book.enter(entry);
        }
    }

    /// Records a request that was not sent.
    pub(super) fn enter_dropped(&self, thread: usize, site: usize, client: usize, due: Duration) {
        let mut page = self.page(thread);
        page.sites[site].counts.dropped += 1;
        page.clients[client].dropped += 1;
        if let Some(mut book) = self.book(thread) {
            book.enter_dropped(site, due);
        }
    }

    fn page(&self, thread: usize) -> MutexGuard<'_, Page> {
        self.pages[thread].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn book(&self, thread: usize) -> Option<MutexGuard<'_, Book>> {
        let (_, books) = self.series.as_ref()?;
        Some(books[thread].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The series, at the end.
    pub(super) fn series(&self, sites: usize) -> Option<Series> {
        self.series.as_ref().map(|(config, books)| series::joined(*config, sites, books))
    }

    /// Adds everything recorded since the last harvest to `into`; `spare` is an empty page, before and after.
    pub(super) fn harvest(&self, into: &mut Page, spare: &mut Page) {
        for page in &self.pages {
            std::mem::swap(&mut *page.lock().unwrap_or_else(PoisonError::into_inner), spare);
            into.add(spare);
            spare.clear();
        }
    }
}

impl Page {
    pub(super) fn new(extent: Extent) -> Self {
        Page {
            sites: (0..extent.sites).map(|_| SiteTally::new()).collect(),
            edges: vec![EdgeTally::default(); extent.edges],
            clients: vec![ClientTally::default(); extent.clients],
            nodes: HashMap::new(),
            span: None,
            lags: histogram(),
        }
    }

    fn enter(&mut self, entry: &Entry<'_>) {
        let site = &mut self.sites[entry.site];
        let edge = &mut self.edges[entry.edge];
        site.counts.requests += 1;
        edge.requests += 1;
        let client = &mut self.clients[entry.client];
        client.requests += 1;
        site.counts.bytes += entry.bytes;
        record(&mut self.lags, entry.lag);
        match entry.error {
            Some(kind) => {
                site.counts.errors.count(kind);
                if kind.is_refusal() {
                    edge.rejected += 1;
                    client.rejected += 1;
                    record(&mut site.refusals, entry.latency);
                } else {
                    edge.errors += 1;
                }
            }
            None => {
                client.answered += 1;
                record(&mut site.latencies, entry.latency);
                self.span = joined(self.span, Some((entry.at, entry.at)));
            }
        }
        if let Some(node) = entry.node {
            self.enter_node(node, entry.site, NodeTally { requests: 1, first_seen: entry.at });
        }
    }

    fn enter_node(&mut self, node: &str, site: usize, tally: NodeTally) {
        // Looked up by reference first: a new name is rare, and allocating one for each request is not.
        if !self.nodes.contains_key(node) {
            if self.nodes.len() >= NODES_MAX {
                return;
            }
            self.nodes.insert(node.into(), BTreeMap::new());
        }
        if let Some(sites) = self.nodes.get_mut(node) {
            let known = sites.entry(site).or_insert(NodeTally { requests: 0, ..tally });
            known.requests += tally.requests;
            known.first_seen = known.first_seen.min(tally.first_seen);
        }
    }

    /// Adds all of `other`.
    pub(super) fn add(&mut self, other: &Page) {
        for (site, other) in self.sites.iter_mut().zip(&other.sites) {
            site.add(other);
        }
        for (edge, other) in self.edges.iter_mut().zip(&other.edges) {
            edge.requests += other.requests;
            edge.errors += other.errors;
            edge.rejected += other.rejected;
        }
        for (client, other) in self.clients.iter_mut().zip(&other.clients) {
            client.requests += other.requests;
            client.answered += other.answered;
            client.rejected += other.rejected;
            client.dropped += other.dropped;
        }
        let _ = self.lags.add(&other.lags);
        for (node, sites) in &other.nodes {
            for (&site, &tally) in sites {
                self.enter_node(node, site, tally);
            }
        }
        self.span = joined(self.span, other.span);
    }

    /// Clears it, and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.sites.iter_mut().for_each(SiteTally::clear);
        self.edges.fill(EdgeTally::default());
        self.clients.fill(ClientTally::default());
        self.nodes.clear();
        self.span = None;
        self.lags.reset();
    }
}

impl SiteTally {
    pub(super) fn new() -> Self {
        SiteTally { latencies: histogram(), refusals: histogram(), counts: Counts::default() }
    }

    pub(super) fn add(&mut self, other: &SiteTally) {
        // Has the same bounds as the other, so it can hold all of it.
        let _ = self.latencies.add(&other.latencies);
        let _ = self.refusals.add(&other.refusals);
        self.counts.requests += other.counts.requests;
        self.counts.errors.add(&other.counts.errors);
        self.counts.dropped += other.counts.dropped;
        self.counts.bytes += other.counts.bytes;
    }

    fn clear(&mut self) {
        self.latencies.reset();
        self.refusals.reset();
        self.counts = Counts::default();
    }
}

/// It grows with the latencies that it is given, so a site without requests costs little.
fn histogram() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("the digits are within what a histogram takes")
}

fn record(latencies: &mut Histogram<u64>, latency: Duration) {
    let latency_us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
    // It grows up to the bound, so recording within it does not fail.
    let _ = latencies.record(latency_us.clamp(1, LATENCY_US_MAX));
}

fn joined(a: Option<(Duration, Duration)>, b: Option<(Duration, Duration)>) -> Option<(Duration, Duration)> {
    match (a, b) {
        (Some((first, last)), Some((other_first, other_last))) => {
            Some((first.min(other_first), last.max(other_last)))
        }
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Extent = Extent { sites: 1, edges: 1, clients: 1 };

    fn entry(site: usize, error: Option<ErrorKind>, at_ms: u64) -> Entry<'static> {
        let (latency, at) = (Duration::from_millis(at_ms + 1), Duration::from_millis(at_ms));
        let due = at.saturating_sub(latency);
        Entry { site, edge: 0, client: 0, node: Some("n1"), error, latency, lag: latency, bytes: 10, due, at }
    }

    #[test]
    fn a_harvest_moves_everything_and_leaves_nothing() {
        let two = Extent { sites: 2, ..ONE };
        let ledger = Ledger::new(2, two, None);
        ledger.enter(0, &entry(0, None, 20));
        ledger.enter(1, &entry(0, None, 10));
        ledger.enter(1, &entry(1, Some(ErrorKind::Status5xx), 5));
        ledger.enter(1, &entry(1, Some(ErrorKind::Rejected), 7));
        ledger.enter_dropped(1, 1, 0, Duration::ZERO);
        let (mut all, mut spare) = (Page::new(two), Page::new(two));
        for _ in 0..2 {
            ledger.harvest(&mut all, &mut spare);
            assert_eq!(all.sites[0].counts.requests, 2);
            assert_eq!(all.sites[0].counts.bytes, 20);
            assert_eq!(all.sites[0].latencies.max() / 100, 210);
            assert_eq!(all.sites[1].counts.errors.status_5xx, 1);
            assert_eq!(all.sites[1].counts.dropped, 1);
            assert_eq!(all.sites[1].latencies.len(), 0, "errors have no latency");
            assert_eq!(all.sites[1].refusals.len(), 1, "but refusals have one of their own");
            let edge = all.edges[0];
            assert_eq!((edge.requests, edge.errors, edge.rejected), (4, 1, 1));
            let client = all.clients[0];
            assert_eq!((client.requests, client.answered), (4, 2));
            assert_eq!((client.rejected, client.dropped), (1, 1));
            assert_eq!(all.lags.len(), 4);
            assert_eq!(all.span, Some((Duration::from_millis(10), Duration::from_millis(20))));
            let node = all.nodes["n1"][&0];
            assert_eq!((node.requests, node.first_seen), (2, Duration::from_millis(10)));
        }
    }

    #[test]
    fn latencies_are_bounded() {
        let mut page = Page::new(ONE);
        page.enter(&Entry { latency: Duration::MAX, ..entry(0, None, 0) });
        page.enter(&Entry { latency: Duration::ZERO, ..entry(0, None, 0) });
        assert_eq!(page.sites[0].latencies.len(), 2);
        assert!(page.sites[0].latencies.equivalent(page.sites[0].latencies.max(), LATENCY_US_MAX));
    }

    #[test]
    fn names_from_outside_do_not_grow_the_table_without_bound() {
        let mut page = Page::new(ONE);
        for number in 0..NODES_MAX + 10 {
            page.enter(&Entry { node: Some(&number.to_string()), ..entry(0, None, 0) });
        }
        assert_eq!(page.nodes.len(), NODES_MAX);
        assert_eq!(page.sites[0].counts.requests, (NODES_MAX + 10) as u64);
    }
}
