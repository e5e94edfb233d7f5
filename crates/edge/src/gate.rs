//! The gate admits or rejects each request, by the verdicts that the watch thread stores at each scan.
//!
//! A decision takes a few loads of atomics: no lock, no allocation, some tens of nanoseconds for any number of sites
//! and clients. If the view is stale, or no node of a site is known, the gate uses the verdict of another edge that
//! knows more. Without one it admits all requests. Without admission control there is no gate.

mod counts;
#[cfg(test)]
mod tests;
mod visits;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use sidelong_layout::{SiteId, Slots, Time};
use sidelong_policy::admission::{
    Answers, BUCKETS, Census, Client, Outlook, Promise, Refused, Request, Requests, Target, Treatment,
    Verdict, Why, decide,
};
use sidelong_policy::brain::SiteSeen;

use crate::event::Event;
use counts::{Counts, GREEDY, OLD_VIEW};
use visits::Visits;

/// Shortest time between two events about rejected requests.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// For display, the admitted part of clients is averaged over about this time (exponentially weighted). The part itself
/// follows a queue of a few requests, and swings between all and almost nothing within milliseconds.
const RATIO_OVER: Duration = Duration::from_millis(500);
/// An average this close to its latest value takes that value.
const RATIO_ROUNDED: f64 = 0.002;

/// Stands for an unknown figure.
const UNKNOWN: u64 = u64::MAX;

/// The reason given for a rejection because the client sends much more than the others.
pub(crate) const GREEDY_WORD: &str = "greedy";

/// What a site rejects last.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct RejectedLast {
    /// Requests that are worth more than others.
    pub requests: Vec<Requests>,
    /// Requests of a client that was admitted within this time.
    pub visit: Option<Duration>,
}

/// Verdicts and counts.
#[derive(Debug)]
pub struct Gate {
    sites: Box<[SiteGate]>,
    /// The widest verdict of all sites: a client that it rejects is rejected by each site.
    door: AtomicU64,
    /// The [`Treatment`] of each bucket.
    treatments: Box<[AtomicU32]>,
    counts: Counts,
    rotation: Duration,
    /// When the other edges were last heard, in ns; 0 for never.
    heard_ns: AtomicU64,
    stale_ns: u64,
}

/// Which requests a site rejects last.
#[derive(Debug, Default)]
struct Last {
    requests: Box<[Requests]>,
    /// Clients whose requests are, and the time for which that is so.
    visits: Option<(Duration, Arc<Visits>)>,
}

/// One site's part.
#[derive(Debug)]
#[repr(align(64))]
struct SiteGate {
    /// The [`Verdict`].
    verdict: AtomicU64,
    /// The widest verdict of other edges that know the site; [`UNKNOWN`] if there is none.
    lent: AtomicU64,
    /// The mean of their pressures, as bits.
    pressure: AtomicU64,
    /// Whether there is such a site.
    is_taken: AtomicBool,
    /// A later answer is late, in ns.
    late_ns: AtomicU64,
    /// Which requests are rejected last.
    last: ArcSwap<Last>,
    /// For display: the admitted part, as bits, and the last outlook, [`UNKNOWN`] if unknown.
    ratio: AtomicU64,
    delay_ns: AtomicU64,
    budget_ns: AtomicU64,
    met: AtomicU64,
}

impl SiteGate {
    fn new(promise: &Promise) -> Self {
        SiteGate {
            verdict: AtomicU64::new(Verdict::default().encode()),
            lent: AtomicU64::new(UNKNOWN),
            pressure: AtomicU64::new(0),
            is_taken: AtomicBool::new(true),
            late_ns: AtomicU64::new(late_ns(promise)),
            last: ArcSwap::default(),
            ratio: AtomicU64::new(1.0_f64.to_bits()),
            delay_ns: AtomicU64::new(UNKNOWN),
            budget_ns: AtomicU64::new(UNKNOWN),
            met: AtomicU64::new(UNKNOWN),
        }
    }

    /// Goes by that from now on. Clients that are on a visit stay so.
    fn reject_last(&self, RejectedLast { requests, visit }: &RejectedLast) {
        let before = self.last.load();
        let kept = before.visits.clone().filter(|(time, _)| Some(*time) == *visit);
        let visits = kept.or_else(|| visit.map(|time| (time, Arc::new(Visits::new(time)))));
        self.last.store(Arc::new(Last { requests: requests.clone().into(), visits }));
    }

    /// The verdict on a request of a client that is not trimmed, and whether the client is on a visit if it is admitted. What is
    /// worth more goes on with a visit and begins none: a program would send one such request to be let in for the rest.
    fn judge(&self, verdict: Verdict, client: Client, request: Request<'_>, now: Time) -> (Verdict, bool) {
        if verdict.is_open() {
            return (verdict, true);
        }
        // How clients are told apart may change during a visit.
        let is_visit = |(_, visits): &(Duration, Arc<Visits>)| {
            client.hashes().iter().any(|client| visits.has(*client, now))
        };
        let last = self.last.load();
        if last.visits.as_ref().is_some_and(is_visit) {
            return (verdict.widened(), true);
        }
        match last.requests.iter().any(|requests| requests.contain(request)) {
            true => (verdict.widened(), false),
            false => (verdict, true),
        }
    }

    /// The widest verdict on any request.
    fn widest(&self, verdict: Verdict) -> Verdict {
        let last = self.last.load();
        match last.requests.is_empty() && last.visits.is_none() {
            true => verdict,
            false => verdict.widened(),
        }
    }
}

/// The time after which an answer is late, in ns.
fn late_ns(promise: &Promise) -> u64 {
    match promise.target {
        Some(Target::ResponseP99(time)) => time.as_nanos() as u64,
        Some(Target::Queue(_)) | None => UNKNOWN,
    }
}

impl Gate {
    /// A gate with a site for each of `promises`, for this many threads that serve clients. It admits all requests until it is shown
    /// an outlook. Reports of other edges older than `stale` do not count.
    pub fn new(promises: &[Promise], rotation: Duration, stale: Duration, threads: usize) -> Self {
        Gate {
            sites: promises.iter().map(SiteGate::new).collect(),
            door: AtomicU64::new(Verdict::default().encode()),
            treatments: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            counts: Counts::new(threads, promises.len()),
            rotation,
            heard_ns: AtomicU64::new(0),
            stale_ns: stale.as_nanos() as u64,
        }
    }

    // For requests.

    /// Decides whether a request for `site`, which came to a thread (by index), is admitted, and counts it.
    ///
    /// # Errors
    /// If it is rejected.
    pub fn decide(
        &self,
        thread: usize,
        site: SiteId,
        client: Client,
        request: Request<'_>,
        now: Time,
        view_is_old: bool,
    ) -> Result<(), Refused> {
        let (slot, counts) = (&self.sites[site.index()], self.counts.of(thread));
        counts.asked(client.bucket()).fetch_add(1, Ordering::Relaxed);
        let counts = counts.site(site);
        let mut verdict = Verdict::decode(slot.verdict.load(Ordering::Relaxed));
        if view_is_old || verdict.why() == Why::Blind {
            match self.lent(slot, now) {
                Some(lent) => verdict = lent,
                None if view_is_old => {
                    counts.admitted[OLD_VIEW].fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                None => {}
            }
        }
        let treatment = self.treatment(client);
        let mut visit = treatment.whole(client);
        if visit.is_some() {
            let (judged, is_visit) = slot.judge(verdict, client, request, now);
            verdict = judged;
            visit = visit.filter(|_| is_visit);
        }
        let decided = decide(verdict, treatment, client, now.as_ns(), self.rotation);
        if let (Ok(()), Some(client)) = (&decided, visit)
            && let Some((_, visits)) = &slot.last.load().visits
        {
            visits.note(client, now);
        }
        let (counts, why) = match &decided {
            Ok(()) => (&counts.admitted, verdict.why() as usize),
            Err(Refused { greedy: true, .. }) => (&counts.rejected, GREEDY),
            Err(refused) => (&counts.rejected, refused.why as usize),
        };
        counts[why].fetch_add(1, Ordering::Relaxed);
        decided
    }

    /// Whether a new connection is accepted: unless every request on it would be rejected, whatever its site.
    pub(crate) fn takes_in(&self, thread: usize, client: Client, now: Time) -> bool {
        let door = Verdict::decode(self.door.load(Ordering::Relaxed));
        if door.is_open() {
            return true;
        }
        // Clients are trimmed by request, not by connection.
        let treatment = match self.treatment(client) {
            Treatment::Trimmed { .. } => Treatment::ByConnection,
            treatment => treatment,
        };
        let is_in = decide(door, treatment, client, now.as_ns(), self.rotation).is_ok();
        if !is_in {
            let counts = self.counts.of(thread);
            counts.asked(client.bucket()).fetch_add(1, Ordering::Relaxed);
            counts.closed.fetch_add(1, Ordering::Relaxed);
        }
        is_in
    }

    /// An admitted request was answered successfully, with its first bytes after `elapsed`.
    pub(crate) fn succeeded(&self, thread: usize, site: SiteId, elapsed: Duration) {
        let counts = self.counts.of(thread).site(site);
        let is_late =
            elapsed.as_nanos() > u128::from(self.sites[site.index()].late_ns.load(Ordering::Relaxed));
        let count = if is_late { &counts.late } else { &counts.in_time };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// The verdict of another edge that knows the site, if one is heard.
    fn lent(&self, slot: &SiteGate, now: Time) -> Option<Verdict> {
        let heard_ns = self.heard_ns.load(Ordering::Relaxed);
        if heard_ns == 0 || now.as_ns().saturating_sub(heard_ns) > self.stale_ns {
            return None;
        }
        Some(slot.lent.load(Ordering::Relaxed)).filter(|word| *word != UNKNOWN).map(Verdict::decode)
    }

    fn treatment(&self, client: Client) -> Treatment {
        Treatment::decode(self.treatments[client.bucket()].load(Ordering::Relaxed))
    }

    // For the watch thread.

    /// Goes by the sites that there are from now on, by what is promised to them and by what each rejects last.
    pub fn adopt(&self, promises: &Slots<Promise>, last: &Slots<RejectedLast>) {
        for (index, slot) in self.sites.iter().enumerate() {
            let promise = promises.get(index);
            slot.is_taken.store(promise.is_some(), Ordering::Relaxed);
            slot.late_ns.store(promise.map_or(UNKNOWN, late_ns), Ordering::Relaxed);
            slot.reject_last(&last.get(index).cloned().unwrap_or_default());
        }
    }

    /// A site has left the cluster: who gets its slot begins anew.
    pub(crate) fn vacate(&self, site: SiteId) {
        self.counts.clear(site);
        self.sites[site.index()].last.store(Arc::default());
    }

    /// The figures of the site's requests, for a scan.
    pub(crate) fn seen(&self, site: SiteId, now: Time) -> SiteSeen {
        let slot = &self.sites[site.index()];
        SiteSeen {
            answers: self.counts.answers(site),
            others: self.lent(slot, now).map(|_| f64::from_bits(slot.pressure.load(Ordering::Relaxed))),
            ..SiteSeen::default()
        }
    }

    /// Takes the outlooks of all sites.
    pub fn show(&self, outlooks: &[Outlook]) {
        let ns = |time: Option<Duration>| time.map_or(UNKNOWN, |time| time.as_nanos() as u64);
        for (slot, outlook) in self.sites.iter().zip(outlooks) {
            slot.verdict.store(outlook.verdict.encode(), Ordering::Relaxed);
            slot.delay_ns.store(ns(outlook.delay), Ordering::Relaxed);
            slot.budget_ns.store(ns(outlook.budget), Ordering::Relaxed);
            slot.met.store(outlook.met.map_or(UNKNOWN, u64::from), Ordering::Relaxed);
        }
        let is_taken = |(slot, _): &(&SiteGate, &Outlook)| slot.is_taken.load(Ordering::Relaxed);
        let sites = self.sites.iter().zip(outlooks).filter(is_taken);
        let widest = sites.map(|(slot, outlook)| slot.widest(outlook.verdict)).reduce(Verdict::wider);
        self.door.store(widest.unwrap_or_default().encode(), Ordering::Relaxed);
    }

    fn count(&self, census: &mut Census, now: Time) {
        census.count(
            now,
            |bucket| self.counts.asked(bucket),
            |bucket, treatment: Treatment| {
                self.treatments[bucket].store(treatment.encode(), Ordering::Relaxed);
            },
        );
    }

    // For the thread that reads the other edges.

    /// The verdict to share: this edge's own, so that no verdict returns to its origin.
    pub(crate) fn verdict(&self, site: SiteId) -> Verdict {
        Verdict::decode(self.sites[site.index()].verdict.load(Ordering::Relaxed))
    }

    /// Takes the other edges' verdicts on the site.
    pub(crate) fn hear(&self, site: SiteId, verdicts: impl Iterator<Item = Verdict>) {
        let (mut widest, mut sum, mut count) = (None::<Verdict>, 0.0, 0u32);
        for (verdict, pressure) in verdicts.filter_map(|verdict| Some((verdict, verdict.pressure()?))) {
            widest = Some(widest.map_or(verdict, |widest| widest.wider(verdict)));
            sum += pressure;
            count += 1;
        }
        let slot = &self.sites[site.index()];
        slot.pressure.store((sum / f64::from(count.max(1))).to_bits(), Ordering::Relaxed);
        slot.lent.store(widest.map_or(UNKNOWN, Verdict::encode), Ordering::Relaxed);
    }

    /// All other edges were read, or are left out.
    pub(crate) fn heard(&self, now: Time) {
        self.heard_ns.store(now.as_ns(), Ordering::Relaxed);
    }

    // For metrics.

    /// Whether another edge's verdict decides on requests of the site.
    pub(crate) fn is_lent(&self, site: SiteId, now: Time, view_is_old: bool) -> bool {
        let is_blind = view_is_old || self.why(site) == Why::Blind;
        is_blind && self.lent(&self.sites[site.index()], now).is_some()
    }

    /// The part of the site's clients admitted on average over about the last second.
    pub(crate) fn ratio(&self, site: SiteId) -> f64 {
        f64::from_bits(self.sites[site.index()].ratio.load(Ordering::Relaxed))
    }

    fn why(&self, site: SiteId) -> Why {
        self.verdict(site).why()
    }

    /// The verdict that decides while the view is fresh.
    fn in_force(&self, slot: &SiteGate, now: Time) -> Verdict {
        let own = Verdict::decode(slot.verdict.load(Ordering::Relaxed));
        match own.why() {
            Why::Blind => self.lent(slot, now).unwrap_or(own),
            _ => own,
        }
    }

    /// Queue delay, its budget, and whether the target is met (1 or 0), in that order.
    pub(crate) fn outlook(&self, site: SiteId) -> [Option<f64>; 3] {
        let slot = &self.sites[site.index()];
        let known = |word: &AtomicU64| Some(word.load(Ordering::Relaxed)).filter(|value| *value != UNKNOWN);
        let seconds = |word: &AtomicU64| known(word).map(|ns| ns as f64 / 1e9);
        [seconds(&slot.delay_ns), seconds(&slot.budget_ns), known(&slot.met).map(|met| met as f64)]
    }

    /// Requests of the site that were admitted, by reason.
    pub(crate) fn admitted(&self, site: SiteId) -> impl Iterator<Item = (&'static str, u64)> {
        let words = Why::ALL.iter().map(|why| why.word()).filter(|word| *word != Why::AllOverloaded.word());
        // No request is admitted while all nodes are overloaded.
        let counts = self.counts.admitted(site).into_iter().enumerate();
        let counts = counts.filter(|(why, _)| *why != Why::AllOverloaded as usize);
        words.chain(["old-view"]).zip(counts.map(|(_, count)| count))
    }

    /// Requests of the site that were rejected, by reason.
    pub(crate) fn rejected(&self, site: SiteId) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.counts.rejected(site);
        // Clients are trimmed even while all others are admitted.
        let whys = [Why::OverTarget, Why::Yields, Why::AllOverloaded];
        let named = whys.map(|why| (why.word(), why as usize)).into_iter().chain([(GREEDY_WORD, GREEDY)]);
        named.map(move |(word, why)| (word, counts[why]))
    }

    /// Requests admitted and rejected.
    fn totals(&self, site: SiteId) -> Totals {
        Totals { admitted: self.counts.admitted(site).iter().sum(), rejected: self.counts.rejected(site) }
    }

    /// Late successful answers, and all successful ones; `None` for a site without such a target.
    pub(crate) fn late(&self, site: SiteId) -> Option<[u64; 2]> {
        let Answers { in_time, late } = self.counts.answers(site);
        (self.sites[site.index()].late_ns.load(Ordering::Relaxed) != UNKNOWN)
            .then_some([late, in_time + late])
    }

    /// Connections closed at accept.
    pub(crate) fn closed(&self) -> u64 {
        self.counts.closed()
    }
}

/// Requests of a site since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    admitted: u64,
    /// By reason, as the gate counts them.
    rejected: [u64; GREEDY + 1],
}

/// The watch thread's side of the gate: it passes decisions to the gate and reports the results as events.
#[derive(Debug)]
pub struct Gatekeeper {
    gate: Arc<Gate>,
    census: Census,
    told_at: Time,
    /// By site, the counts at the last event, and whether that reported trouble.
    told: Vec<(Totals, bool)>,
    shown_at: Option<Time>,
}

impl Gatekeeper {
    /// The keeper of a gate.
    pub fn new(gate: Gate) -> Self {
        Gatekeeper {
            census: Census::default(),
            told_at: Time::default(),
            told: vec![(Totals::default(), false); gate.sites.len()],
            shown_at: None,
            gate: Arc::new(gate),
        }
    }

    /// A site has left the cluster.
    pub(crate) fn vacate(&mut self, site: SiteId) {
        self.gate.vacate(site);
        self.told[site.index()] = Default::default();
    }

    /// The gate.
    pub fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate)
    }

    /// Passes the outlooks after a scan to the gate.
    pub(crate) fn show(&mut self, outlooks: &[Outlook], now: Time) {
        self.gate.show(outlooks);
        self.gate.count(&mut self.census, now);
        let passed = self.shown_at.map_or(Duration::ZERO, |shown_at| now.since(shown_at));
        self.shown_at = Some(now);
        self.average(passed, now);
    }

    /// Averages the admitted parts of clients.
    fn average(&mut self, passed: Duration, now: Time) {
        let weight = passed.as_secs_f64() / (passed + RATIO_OVER).as_secs_f64();
        for slot in &self.gate.sites {
            let before = f64::from_bits(slot.ratio.load(Ordering::Relaxed));
            let part = self.gate.in_force(slot, now).admitted();
            let after = before + (part - before) * weight;
            let ratio = if (part - after).abs() < RATIO_ROUNDED { part } else { after };
            slot.ratio.store(ratio.to_bits(), Ordering::Relaxed);
        }
    }

    /// Emits events for sites with rejected requests or a missed target, at intervals, and one event when that is over.
    pub(crate) fn tell(&mut self, now: Time, events: &mut dyn FnMut(Event)) {
        if now.since(self.told_at) < TELL_EVERY {
            return;
        }
        self.told_at = now;
        for (index, (before, was_news)) in self.told.iter_mut().enumerate() {
            let site = SiteId::new(index);
            let totals = self.gate.totals(site);
            let admitted = totals.admitted.saturating_sub(before.admitted);
            let counts: [u64; GREEDY + 1] =
                std::array::from_fn(|why| totals.rejected[why].saturating_sub(before.rejected[why]));
            let rejected = counts.iter().sum();
            let met = self.gate.outlook(site)[2].map(|met| met > 0.0);
            let is_news = rejected > 0 || met == Some(false);
            if is_news || *was_news {
                let most = (0..counts.len()).max_by_key(|why| counts[*why]).unwrap_or(GREEDY);
                let why = match rejected {
                    0 => self.gate.why(site).word(),
                    _ => Why::ALL.get(most).map_or(GREEDY_WORD, |why| why.word()),
                };
                events(Event::Admission { site, admitted, rejected, why, met });
            }
            (*before, *was_news) = (totals, is_news);
        }
    }
}
