//! The gate admits or rejects each request, by the verdicts that the watch thread stores at each scan.
//!
//! A decision takes a few loads of atomics: no lock, no allocation, some tens of nanoseconds for any number of sites
//! and clients. If the view is stale, or no node of a site is known, the gate uses the verdict of another edge that
//! knows more. Without one it admits all requests. Without admission control there is no gate.

mod counts;
mod visits;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use sidelong_layout::{SiteId, Time};
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
    /// A later answer is late, in ns.
    late_ns: u64,
    /// Requests that are rejected last.
    last: Box<[Requests]>,
    /// Clients whose requests are.
    visits: Option<Visits>,
    /// For display: the admitted part, as bits, and the last outlook, [`UNKNOWN`] if unknown.
    ratio: AtomicU64,
    delay_ns: AtomicU64,
    budget_ns: AtomicU64,
    met: AtomicU64,
}

impl SiteGate {
    fn new(promise: &Promise) -> Self {
        let late_ns = match promise.target {
            Some(Target::ResponseP99(time)) => time.as_nanos() as u64,
            Some(Target::Queue(_)) | None => UNKNOWN,
        };
        SiteGate {
            verdict: AtomicU64::new(Verdict::default().encode()),
            lent: AtomicU64::new(UNKNOWN),
            pressure: AtomicU64::new(0),
            late_ns,
            last: Box::default(),
            visits: None,
            ratio: AtomicU64::new(1.0_f64.to_bits()),
            delay_ns: AtomicU64::new(UNKNOWN),
            budget_ns: AtomicU64::new(UNKNOWN),
            met: AtomicU64::new(UNKNOWN),
        }
    }

    /// The verdict on a request of a client that is not trimmed.
    fn verdict_on(&self, verdict: Verdict, client: Client, request: Request<'_>, now: Time) -> Verdict {
        if verdict.is_open() {
            return verdict;
        }
        let is_last = self.last.iter().any(|requests| requests.contain(request));
        // How clients are told apart may change during a visit.
        let is_visit = |visits: &Visits| client.hashes().iter().any(|client| visits.has(*client, now));
        match is_last || self.visits.as_ref().is_some_and(is_visit) {
            true => verdict.widened(),
            false => verdict,
        }
    }

    /// The widest verdict on any request.
    fn widest(&self, verdict: Verdict) -> Verdict {
        match self.last.is_empty() && self.visits.is_none() {
            true => verdict,
            false => verdict.widened(),
        }
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

    /// The same with what each site rejects last.
    #[must_use]
    pub fn with_last(mut self, last: impl IntoIterator<Item = RejectedLast>) -> Self {
        for (slot, last) in self.sites.iter_mut().zip(last) {
            slot.last = last.requests.into();
            slot.visits = last.visit.map(Visits::new);
        }
        self
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
        let whole = treatment.whole(client);
        if whole.is_some() {
            verdict = slot.verdict_on(verdict, client, request, now);
        }
        let decided = decide(verdict, treatment, client, now.as_ns(), self.rotation);
        if let (Ok(()), Some(visits), Some(client)) = (&decided, &slot.visits, whole) {
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
        let is_late = elapsed.as_nanos() > u128::from(self.sites[site.index()].late_ns);
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
        let sites = self.sites.iter().zip(outlooks);
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
        (self.sites[site.index()].late_ns != UNKNOWN).then_some([late, in_time + late])
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
            let admitted = totals.admitted - before.admitted;
            let counts: [u64; GREEDY + 1] =
                std::array::from_fn(|why| totals.rejected[why] - before.rejected[why]);
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

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use sidelong_policy::admission::{
        AdmissionRule, AdmissionSettings, AdmissionSnapshot, CIRCLE, Controller,
    };
    use sidelong_policy::cluster::{NodeView, SiteView, Traffic};

    use super::*;

    const SITE: SiteId = SiteId::new(0);
    const OTHER: SiteId = SiteId::new(1);
    const THREADS: usize = 2;
    const ANY: Request<'static> = Request { method: "GET", target: "/" };

    fn client(k: u16) -> Client {
        Client::new(SocketAddr::from(([10, 0, (k >> 8) as u8, k as u8], 5000)))
    }

    /// A controller's outlooks for sites that each have one node with that many waiting requests, or an unknown one.
    fn shown(gate: &Gate, queued: [Option<u32>; 2]) {
        use sidelong_layout::{Hot, Ownership, valid};
        use sidelong_policy::index::Capacity;
        let promise = Promise { target: Some(Target::Queue(Duration::from_millis(40))), share: 0.0 };
        let settings = AdmissionSettings { rule: AdmissionRule::Target, ..AdmissionSettings::default() };
        let mut controller = Controller::new(settings, vec![promise; 2], 2).unwrap();
        let node = |(site, queued): (usize, &Option<u32>)| NodeView {
            ownership: Some(Ownership::serving(SiteId::new(site), 1)),
            load: queued.map(|queued| Hot {
                valid: valid::ORIGIN,
                workers: 2,
                busy: 2,
                queued,
                service_us: 5_000,
                ..Hot::default()
            }),
            up: true,
            dead: false,
            capacity: Capacity::default(),
            in_flight: 0,
        };
        let nodes: Vec<_> = queued.iter().enumerate().map(node).collect();
        let sites = [SiteView { floor: 1, ceiling: 9, priority: 0, waiting: 0, busy: false }; 2];
        let (nodes, sites, traffic) = (&nodes, &sites, &[Traffic::default(); 2]);
        let (answers, others) = (&[Answers::default(); 2], &[None; 2]);
        let snapshot = AdmissionSnapshot { nodes, sites, traffic, answers, others, wall_ns: 0 };
        gate.show(controller.step(&snapshot, Time::from_ns(1)));
    }

    fn gate() -> Gate {
        let promise =
            Promise { target: Some(Target::ResponseP99(Duration::from_millis(40))), ..Promise::default() };
        Gate::new(
            &[promise, Promise::default()],
            Duration::from_secs(30),
            Duration::from_millis(150),
            THREADS,
        )
    }

    fn sum<'a>(counts: impl Iterator<Item = (&'static str, u64)> + 'a) -> u64 {
        counts.map(|(_, count)| count).sum()
    }

    #[test]
    fn it_is_open_until_something_is_shown_and_where_the_view_is_old() {
        let gate = gate();
        let now = Time::from_ns(1);
        assert!(
            (0..100).all(|k| gate.decide(usize::from(k) % THREADS, SITE, client(k), ANY, now, false).is_ok())
        );
        shown(&gate, [Some(99), Some(99)]);
        let inside = (0..100)
            .filter(|k| gate.decide(usize::from(*k) % THREADS, SITE, client(*k), ANY, now, false).is_ok())
            .count();
        assert!(inside < 10, "{inside}");
        assert!(
            (0..100).all(|k| gate.decide(usize::from(k) % THREADS, SITE, client(k), ANY, now, true).is_ok())
        );
        let admitted: Vec<_> = gate.admitted(SITE).filter(|(_, count)| *count > 0).collect();
        assert!(
            admitted.contains(&("no-target", 100)) && admitted.contains(&("old-view", 100)),
            "{admitted:?}"
        );
        assert_eq!(sum(gate.admitted(SITE)) + sum(gate.rejected(SITE)), 300);
        shown(&gate, [None, Some(99)]);
        assert!(
            (0..100).all(|k| gate.decide(usize::from(k) % THREADS, SITE, client(k), ANY, now, false).is_ok())
        );
        assert!(gate.admitted(SITE).any(|counted| counted == ("no-records", 100)));
    }

    #[test]
    fn a_connection_is_closed_only_where_no_site_would_have_it() {
        let gate = gate();
        let now = Time::from_ns(1);
        shown(&gate, [Some(99), Some(0)]);
        assert!((0..100).all(|k| gate.takes_in(usize::from(k) % THREADS, client(k), now)));
        shown(&gate, [Some(99), Some(99)]);
        for k in 0..500 {
            let wanted = [SITE, OTHER].map(|site| gate.decide(0, site, client(k), ANY, now, false).is_ok());
            assert_eq!(gate.takes_in(usize::from(k) % THREADS, client(k), now), wanted.contains(&true));
        }
        assert!(gate.closed() > 400, "{}", gate.closed());
    }

    /// A gate whose sites admit one client in 80. The first has what it rejects last.
    fn gate_with_last() -> Gate {
        let (requests, visit) = (vec!["POST /".parse().unwrap()], Some(Duration::from_secs(60)));
        let gate = gate().with_last([RejectedLast { requests, visit }]);
        let verdict = Verdict::decode(u64::from(CIRCLE / 80) << 33 | Why::OverTarget as u64);
        gate.show(&[Outlook { verdict, ..Outlook::default() }; 2]);
        gate
    }

    const BID: Request<'static> = Request { method: "POST", target: "/items/3/bids" };

    /// The clients whose request is admitted at a time, in s.
    fn admitted(gate: &Gate, site: SiteId, request: Request<'_>, at_s: u64) -> Vec<u16> {
        let now = Time::from_ns(at_s * 1_000_000_000);
        (0..500).filter(|k| gate.decide(0, site, client(*k), request, now, false).is_ok()).collect()
    }

    #[test]
    fn what_is_worth_more_is_admitted_of_more_clients_and_so_are_clients_on_a_visit() {
        let gate = gate_with_last();
        let few = admitted(&gate, SITE, ANY, 1);
        assert!((1..20).contains(&few.len()), "{few:?}");
        assert_eq!(admitted(&gate, SITE, ANY, 2), few, "who is not admitted is on no visit");
        let bidders = admitted(&gate, SITE, BID, 3);
        assert!((350..450).contains(&bidders.len()), "{}", bidders.len());
        assert!(few.iter().all(|client| bidders.contains(client)));
        let lookers = admitted(&gate, SITE, ANY, 62);
        assert!(lookers.iter().all(|client| bidders.contains(client)));
        // Two clients may have one place.
        assert!(bidders.len() - lookers.len() < 10, "{} look at pages meanwhile", lookers.len());
        assert_eq!(admitted(&gate, SITE, ANY, 200), few, "the visits are over");
        for request in [ANY, BID] {
            assert_eq!(admitted(&gate, OTHER, request, 201), few, "the other site tells none apart");
        }
    }

    #[test]
    fn a_client_that_sends_too_much_gains_nothing_by_sending_what_is_worth_more() {
        let gate = gate_with_last();
        let greedy = client(7);
        let trimmed = Treatment::Trimmed { kept: 6_554 };
        gate.treatments[greedy.bucket()].store(trimmed.encode(), Ordering::Relaxed);
        let is_admitted = |ns: &u64| gate.decide(0, SITE, greedy, BID, Time::from_ns(*ns), false).is_ok();
        let admitted = (0..10_000).filter(is_admitted).count();
        assert!(admitted < 50, "a tenth of one in 80: {admitted}");
    }

    #[test]
    fn no_connection_is_closed_on_which_a_request_could_be_admitted() {
        let now = Time::from_ns(1);
        let accepted = |gate: &Gate| (0..500).filter(|k| gate.takes_in(0, client(*k), now)).count();
        assert!((350..450).contains(&accepted(&gate_with_last())));
    }

    fn gatekeeper() -> Gatekeeper {
        let promise = Promise { target: Some(Target::Queue(Duration::from_millis(40))), share: 0.0 };
        Gatekeeper::new(Gate::new(
            &[promise; 2],
            Duration::from_secs(30),
            Duration::from_millis(150),
            THREADS,
        ))
    }

    #[test]
    fn people_are_told_why_most_were_turned_away_and_when_a_target_is_missed() {
        let mut gatekeeper = gatekeeper();
        let gate = gatekeeper.gate();
        let slot = &gate.sites[0];
        let turned_away = |why: usize, count| {
            gate.counts.of(1).site(SITE).rejected[why].fetch_add(count, Ordering::Relaxed)
        };
        let mut at_s = 0;
        let mut told = || {
            at_s += 2;
            let mut told = None;
            gatekeeper.tell(Time::from_ns(at_s * 1_000_000_000), &mut |event| {
                let Event::Admission { site: SITE, rejected, why, met, .. } = event else { return };
                assert!(told.replace((rejected, why, met)).is_none());
            });
            told
        };
        assert_eq!(told(), None);
        turned_away(Why::OverTarget as usize, 3);
        turned_away(GREEDY, 5);
        assert_eq!(told(), Some((8, "greedy", None)));
        turned_away(Why::OverTarget as usize, 10);
        assert_eq!(told(), Some((10, "over-target", None)));
        assert_eq!(told(), Some((0, "no-target", None)), "once, that it is over");
        assert_eq!(told(), None);
        slot.met.store(0, Ordering::Relaxed);
        assert_eq!(told(), Some((0, "no-target", Some(false))));
        slot.met.store(1, Ordering::Relaxed);
        assert_eq!((told(), told()), (Some((0, "no-target", Some(true))), None));
    }

    #[test]
    fn the_part_let_in_is_averaged_and_comes_to_what_it_is() {
        let mut gatekeeper = gatekeeper();
        let gate = gatekeeper.gate();
        let now = Time::from_ns(1);
        let mut pass = |queued: Option<u32>, ms| {
            shown(&gate, [queued, Some(0)]);
            (0..ms).for_each(|_| gatekeeper.average(Duration::from_millis(1), now));
            (gate.ratio(SITE), gate.ratio(OTHER))
        };
        assert_eq!(pass(Some(0), 1), (1.0, 1.0));
        let (after_a_moment, other) = pass(Some(99), 50);
        assert!((0.8..1.0).contains(&after_a_moment) && other == 1.0, "{after_a_moment}");
        assert_eq!(pass(Some(99), 5_000).0, gate.verdict(SITE).admitted());
        assert_eq!(pass(Some(0), 5_000).0, 1.0);
    }

    #[test]
    fn answers_are_in_time_or_late() {
        let gate = gate();
        for (thread, ms) in [(0, 1), (1, 40), (1, 41), (0, 99)] {
            gate.succeeded(thread, SITE, Duration::from_millis(ms));
            gate.succeeded(thread, OTHER, Duration::from_millis(ms));
        }
        assert_eq!((gate.late(SITE), gate.late(OTHER)), (Some([2, 4]), None));
    }
}
