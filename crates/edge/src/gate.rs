//! The gate: who of those that ask is let in, as the watch thread has found and every request reads it.
//!
//! A decision is a few loads of atomics: no lock, no allocation, some tens of nanoseconds whatever the number of sites
//! and clients. Where the view has grown old, or none of a site's nodes is known, another edge's verdict is as good, if
//! one is heard that knows more; else nothing is turned away. Where admission is off there is no gate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use pingora_core::listeners::ConnectionFilter;
use sidelong_layout::{SiteId, Time};
use sidelong_policy::SettingsError;
use sidelong_policy::admission::{
    Answers, BUCKETS, Census, Client, Controller, Outlook, Promise, Refused, Settings, Snapshot, Target,
    Traffic, Treatment, Verdict, Why, decide,
};
use sidelong_policy::reconfigure::{NodeView, SiteView, Standing};

use crate::clock;
use crate::view::View;
use crate::watch::Event;

/// Between two times that people are told who was turned away.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Over about so long the part of clients that is let in is averaged for people (exponentially weighted): it follows a queue of
/// a few requests, and is now all and now next to nothing within milliseconds.
const RATIO_OVER: Duration = Duration::from_millis(500);
/// So close to what it comes to, it is that.
const RATIO_ROUNDED: f64 = 0.002;

/// What is not known.
const UNKNOWN: u64 = u64::MAX;

/// What an admitted request is counted by where the view is old: behind the places of [`Why::ALL`].
const OLD_VIEW: usize = Why::ALL.len();
/// Likewise a request that was turned away because its client asks for much more than the others.
const GREEDY: usize = Why::ALL.len();
/// The reason that it is told.
pub(crate) const GREEDY_WORD: &str = "greedy";

/// Verdicts and counts.
#[derive(Debug)]
pub struct Gate {
    sites: Box<[SiteGate]>,
    /// The widest verdict of all sites: who is refused by it is refused by each.
    door: AtomicU64,
    /// By bucket, [`Treatment`] and requests so far.
    treatments: Box<[AtomicU32]>,
    asked: Box<[AtomicU32]>,
    closed: AtomicU64,
    rotation: Duration,
    /// When the other edges were last heard, in ns; 0 for never.
    heard_ns: AtomicU64,
    stale_ns: u64,
}

/// One site's part.
#[derive(Debug)]
#[repr(align(64))]
struct SiteGate {
    /// [`Verdict`].
    verdict: AtomicU64,
    /// Of the verdicts of other edges that know of the site the widest; [`UNKNOWN`] where there is none.
    lent: AtomicU64,
    /// The mean of their pressures, as bits.
    pressure: AtomicU64,
    /// An answer after this is late, in ns.
    late_ns: u64,
    in_time: AtomicU64,
    late: AtomicU64,
    /// Each by [`Why`], and one more.
    admitted: [AtomicU64; GREEDY + 1],
    rejected: [AtomicU64; GREEDY + 1],
    /// For people: the part let in, as bits, and the last outlook, [`UNKNOWN`] where there is none of it.
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
            in_time: AtomicU64::new(0),
            late: AtomicU64::new(0),
            admitted: Default::default(),
            rejected: Default::default(),
            ratio: AtomicU64::new(1.0_f64.to_bits()),
            delay_ns: AtomicU64::new(UNKNOWN),
            budget_ns: AtomicU64::new(UNKNOWN),
            met: AtomicU64::new(UNKNOWN),
        }
    }
}

impl Gate {
    /// For a site for each of `promises`; everybody is let in until an outlook is shown. What other edges said longer ago
    /// than `stale` counts for nothing.
    pub fn new(promises: &[Promise], rotation: Duration, stale: Duration) -> Self {
        let words = || (0..BUCKETS).map(|_| AtomicU32::new(0)).collect();
        Gate {
            sites: promises.iter().map(SiteGate::new).collect(),
            door: AtomicU64::new(Verdict::default().encode()),
            treatments: words(),
            asked: words(),
            closed: AtomicU64::new(0),
            rotation,
            heard_ns: AtomicU64::new(0),
            stale_ns: stale.as_nanos() as u64,
        }
    }

    // What a request does.

    /// Whether a request for `site` is let in, and counts it.
    ///
    /// # Errors
    /// Where it is not.
    pub fn decide(&self, site: SiteId, client: Client, now: Time, view_is_old: bool) -> Result<(), Refused> {
        let slot = &self.sites[site.index()];
        self.asked[client.bucket()].fetch_add(1, Ordering::Relaxed);
        let mut verdict = Verdict::decode(slot.verdict.load(Ordering::Relaxed));
        if view_is_old || verdict.why() == Why::Blind {
            match self.lent(slot, now) {
                Some(lent) => verdict = lent,
                None if view_is_old => {
                    slot.admitted[OLD_VIEW].fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                None => {}
            }
        }
        let decided = decide(verdict, self.treatment(client), client, now.as_ns(), self.rotation);
        let (counts, why) = match &decided {
            Ok(()) => (&slot.admitted, verdict.why() as usize),
            Err(Refused { greedy: true, .. }) => (&slot.rejected, GREEDY),
            Err(refused) => (&slot.rejected, refused.why as usize),
        };
        counts[why].fetch_add(1, Ordering::Relaxed);
        decided
    }

    /// Whether a new connection is taken in: all but those whose every request, for whatever site, would be turned away.
    fn takes_in(&self, client: Client, now: Time) -> bool {
        let door = Verdict::decode(self.door.load(Ordering::Relaxed));
        if door.is_open() {
            return true;
        }
        // What is trimmed is so by request, not by connection.
        let treatment = match self.treatment(client) {
            Treatment::Trimmed { .. } => Treatment::ByConnection,
            treatment => treatment,
        };
        let is_in = decide(door, treatment, client, now.as_ns(), self.rotation).is_ok();
        if !is_in {
            self.asked[client.bucket()].fetch_add(1, Ordering::Relaxed);
            self.closed.fetch_add(1, Ordering::Relaxed);
        }
        is_in
    }

    /// A request that was let in was answered with success, its first bytes after `elapsed`.
    pub(crate) fn succeeded(&self, site: SiteId, elapsed: Duration) {
        let slot = &self.sites[site.index()];
        let count = if elapsed.as_nanos() <= u128::from(slot.late_ns) { &slot.in_time } else { &slot.late };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// What another edge lets in of the site, if one that knows of it is heard.
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

    // What the watch thread does.

    /// What the others' verdicts say of each site.
    pub(crate) fn others(&self, now: Time) -> impl Iterator<Item = Option<f64>> + '_ {
        let pressure = |slot: &SiteGate| f64::from_bits(slot.pressure.load(Ordering::Relaxed));
        self.sites.iter().map(move |slot| self.lent(slot, now).map(|_| pressure(slot)))
    }

    fn answers(&self) -> impl Iterator<Item = Answers> + '_ {
        self.sites.iter().map(|slot| Answers {
            in_time: slot.in_time.load(Ordering::Relaxed),
            late: slot.late.load(Ordering::Relaxed),
        })
    }

    /// Takes in how all sites stand.
    pub fn show(&self, outlooks: &[Outlook]) {
        let ns = |time: Option<Duration>| time.map_or(UNKNOWN, |time| time.as_nanos() as u64);
        for (slot, outlook) in self.sites.iter().zip(outlooks) {
            slot.verdict.store(outlook.verdict.encode(), Ordering::Relaxed);
            slot.delay_ns.store(ns(outlook.delay), Ordering::Relaxed);
            slot.budget_ns.store(ns(outlook.budget), Ordering::Relaxed);
            slot.met.store(outlook.met.map_or(UNKNOWN, u64::from), Ordering::Relaxed);
        }
        let widest = outlooks.iter().map(|outlook| outlook.verdict).reduce(Verdict::wider);
        self.door.store(widest.unwrap_or_default().encode(), Ordering::Relaxed);
    }

    fn count(&self, census: &mut Census) {
        let asked = |bucket: usize| self.asked[bucket].load(Ordering::Relaxed);
        census.count(asked, |bucket, treatment: Treatment| {
            self.treatments[bucket].store(treatment.encode(), Ordering::Relaxed);
        });
    }

    // What the thread that hears the other edges does.

    /// What is told others of the site: this edge's own verdict alone, so that no verdict comes back to who gave it.
    pub(crate) fn verdict(&self, site: SiteId) -> Verdict {
        Verdict::decode(self.sites[site.index()].verdict.load(Ordering::Relaxed))
    }

    /// Takes in what others say of the site.
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

    /// All others were heard, or left out.
    pub(crate) fn heard(&self, now: Time) {
        self.heard_ns.store(now.as_ns(), Ordering::Relaxed);
    }

    // What the metrics look at.

    /// Whether requests of the site are decided on by another edge's verdict.
    pub(crate) fn is_lent(&self, site: SiteId, now: Time, view_is_old: bool) -> bool {
        let is_blind = view_is_old || self.why(site) == Why::Blind;
        is_blind && self.lent(&self.sites[site.index()], now).is_some()
    }

    /// The part of the site's clients that was let in over the last second or so, on average.
    pub(crate) fn ratio(&self, site: SiteId) -> f64 {
        f64::from_bits(self.sites[site.index()].ratio.load(Ordering::Relaxed))
    }

    fn why(&self, site: SiteId) -> Why {
        self.verdict(site).why()
    }

    /// By which requests are decided on while the view is fresh.
    fn in_force(&self, slot: &SiteGate, now: Time) -> Verdict {
        let own = Verdict::decode(slot.verdict.load(Ordering::Relaxed));
        match own.why() {
            Why::Blind => self.lent(slot, now).unwrap_or(own),
            _ => own,
        }
    }

    /// Queue delay, its budget, and whether the target is held (1 or 0), in that order.
    pub(crate) fn outlook(&self, site: SiteId) -> [Option<f64>; 3] {
        let slot = &self.sites[site.index()];
        let known = |word: &AtomicU64| Some(word.load(Ordering::Relaxed)).filter(|value| *value != UNKNOWN);
        let seconds = |word: &AtomicU64| known(word).map(|ns| ns as f64 / 1e9);
        [seconds(&slot.delay_ns), seconds(&slot.budget_ns), known(&slot.met).map(|met| met as f64)]
    }

    /// How many requests of the site were let in, by why all were or a part.
    pub(crate) fn admitted(&self, site: SiteId) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let words = Why::ALL.iter().map(|why| why.word()).filter(|word| *word != Why::AllOverloaded.word());
        // Nobody is let in while all nodes are overloaded.
        let counts = self.sites[site.index()].admitted.iter();
        let counts = counts.enumerate().filter(|(why, _)| *why != Why::AllOverloaded as usize);
        words.chain(["old-view"]).zip(counts.map(|(_, count)| count.load(Ordering::Relaxed)))
    }

    /// How many were turned away, and why.
    pub(crate) fn rejected(&self, site: SiteId) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let counts = &self.sites[site.index()].rejected;
        // Who is trimmed is so while the others are all let in, too.
        let whys = [Why::OverTarget, Why::Yields, Why::AllOverloaded];
        let named = whys.map(|why| (why.word(), why as usize)).into_iter().chain([(GREEDY_WORD, GREEDY)]);
        named.map(|(word, why)| (word, counts[why].load(Ordering::Relaxed)))
    }

    /// How many requests were let in and turned away.
    fn totals(&self, site: SiteId) -> Totals {
        let slot = &self.sites[site.index()];
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Totals { admitted: slot.admitted.iter().map(of).sum(), rejected: slot.rejected.each_ref().map(of) }
    }

    /// Answers with success that were late, and all of them; `None` for a site without such a target.
    pub(crate) fn late(&self, site: SiteId) -> Option<[u64; 2]> {
        let slot = &self.sites[site.index()];
        let (in_time, late) = (slot.in_time.load(Ordering::Relaxed), slot.late.load(Ordering::Relaxed));
        (slot.late_ns != UNKNOWN).then_some([late, in_time + late])
    }

    /// Connections closed as they came.
    pub(crate) fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }
}

/// Requests of a site since the start.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    admitted: u64,
    /// By why, as the gate counts them.
    rejected: [u64; GREEDY + 1],
}

/// What the watch thread decides by, and the gate that it keeps.
#[derive(Debug)]
pub struct Admission {
    controller: Controller,
    gate: Arc<Gate>,
    census: Census,
    counted: Time,
    answers: Vec<Answers>,
    others: Vec<Option<f64>>,
    told_at: Time,
    /// Of each site, what people were told last, and whether that was news of any kind.
    told: Vec<(Totals, bool)>,
    looked: Option<Time>,
}

impl Admission {
    /// For a cluster of that many nodes, and a site for each of `promises`. What other edges said longer ago than `stale`
    /// counts for nothing.
    ///
    /// # Errors
    /// Where the settings make no sense.
    pub fn new(
        settings: Settings,
        promises: Vec<Promise>,
        nodes: usize,
        stale: Duration,
    ) -> Result<Self, SettingsError> {
        let gate = Arc::new(Gate::new(&promises, settings.rotation, stale));
        Ok(Admission {
            answers: vec![Answers::default(); promises.len()],
            others: vec![None; promises.len()],
            told_at: Time::default(),
            told: vec![(Totals::default(), false); promises.len()],
            looked: None,
            controller: Controller::new(settings, promises, nodes)?,
            gate,
            census: Census::default(),
            counted: Time::default(),
        })
    }

    /// The gate that it keeps.
    pub fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate)
    }

    /// One look.
    pub(crate) fn look(&mut self, nodes: &[NodeView], traffic: &[Traffic], sites: &[SiteView], now: Time) {
        for (answers, seen) in self.answers.iter_mut().zip(self.gate.answers()) {
            *answers = seen;
        }
        for (others, heard) in self.others.iter_mut().zip(self.gate.others(now)) {
            *others = heard;
        }
        if now.since(self.counted) >= Census::EVERY {
            self.counted = now;
            self.gate.count(&mut self.census);
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ns = since_1970.as_nanos() as u64;
        let (answers, others) = (&self.answers, &self.others);
        let snapshot = Snapshot { nodes, sites, traffic, answers, others, wall_ns };
        self.gate.show(self.controller.step(&snapshot, now));
        let passed = self.looked.map_or(Duration::ZERO, |looked| now.since(looked));
        self.looked = Some(now);
        self.average(passed, now);
    }

    /// Averages the parts of clients that are let in.
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

    /// How the promises stood at that look.
    pub(crate) fn standings(&self) -> impl Iterator<Item = Standing> + '_ {
        self.controller.standings()
    }

    /// Tells of the sites of which requests are turned away or whose target is missed, now and then, and once when that is
    /// over.
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

/// What Pingora asks of each connection before anything else is done for it, TLS included.
#[derive(Debug)]
pub(crate) struct Accept {
    pub(crate) gate: Arc<Gate>,
    pub(crate) view: Arc<View>,
}

#[async_trait]
impl ConnectionFilter for Accept {
    async fn should_accept(&self, address: Option<&SocketAddr>) -> bool {
        let now = clock::now();
        // Where it comes from nobody knows, or the view is old: it is let in.
        let Some(address) = address.filter(|_| !self.view.is_stale(now)) else { return true };
        self.gate.takes_in(Client::new(*address), now)
    }
}

#[cfg(test)]
mod tests {
    use sidelong_policy::admission::Rule;

    use super::*;

    const SITE: SiteId = SiteId::new(0);
    const OTHER: SiteId = SiteId::new(1);

    fn client(k: u16) -> Client {
        Client::new(SocketAddr::from(([10, 0, (k >> 8) as u8, k as u8], 5000)))
    }

    /// What the controller says of sites that each have a node with so many requests waiting, or none that is known.
    fn shown(gate: &Gate, queued: [Option<u32>; 2]) {
        use sidelong_layout::{Hot, Ownership, valid};
        use sidelong_policy::index::Capacity;
        let promise = Promise { target: Some(Target::Queue(Duration::from_millis(40))), share: 0.0 };
        let settings = Settings { rule: Rule::Target, ..Settings::default() };
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
            capacity: Capacity::default(),
            in_flight: 0,
        };
        let nodes: Vec<_> = queued.iter().enumerate().map(node).collect();
        let sites = [SiteView { floor: 1, ceiling: 9, priority: 0, waiting: 0, busy: false }; 2];
        let (nodes, sites, traffic) = (&nodes, &sites, &[Traffic::default(); 2]);
        let (answers, others) = (&[Answers::default(); 2], &[None; 2]);
        let snapshot = Snapshot { nodes, sites, traffic, answers, others, wall_ns: 0 };
        gate.show(controller.step(&snapshot, Time::from_ns(1)));
    }

    fn gate() -> Gate {
        let promise =
            Promise { target: Some(Target::ResponseP99(Duration::from_millis(40))), ..Promise::default() };
        Gate::new(&[promise, Promise::default()], Duration::from_secs(30), Duration::from_millis(150))
    }

    fn sum<'a>(counts: impl Iterator<Item = (&'static str, u64)> + 'a) -> u64 {
        counts.map(|(_, count)| count).sum()
    }

    #[test]
    fn it_is_open_until_something_is_shown_and_where_the_view_is_old() {
        let gate = gate();
        let now = Time::from_ns(1);
        assert!((0..100).all(|k| gate.decide(SITE, client(k), now, false).is_ok()));
        shown(&gate, [Some(99), Some(99)]);
        let inside = (0..100).filter(|k| gate.decide(SITE, client(*k), now, false).is_ok()).count();
        assert!(inside < 10, "{inside}");
        assert!((0..100).all(|k| gate.decide(SITE, client(k), now, true).is_ok()));
        let admitted: Vec<_> = gate.admitted(SITE).filter(|(_, count)| *count > 0).collect();
        assert!(
            admitted.contains(&("no-target", 100)) && admitted.contains(&("old-view", 100)),
            "{admitted:?}"
        );
        assert_eq!(sum(gate.admitted(SITE)) + sum(gate.rejected(SITE)), 300);
        shown(&gate, [None, Some(99)]);
        assert!((0..100).all(|k| gate.decide(SITE, client(k), now, false).is_ok()));
        assert!(gate.admitted(SITE).any(|counted| counted == ("no-records", 100)));
    }

    #[test]
    fn a_connection_is_closed_only_where_no_site_would_have_it() {
        let gate = gate();
        let now = Time::from_ns(1);
        shown(&gate, [Some(99), Some(0)]);
        assert!((0..100).all(|k| gate.takes_in(client(k), now)));
        shown(&gate, [Some(99), Some(99)]);
        for k in 0..500 {
            let wanted = [SITE, OTHER].map(|site| gate.decide(site, client(k), now, false).is_ok());
            assert_eq!(gate.takes_in(client(k), now), wanted.contains(&true));
        }
        assert!(gate.closed() > 400, "{}", gate.closed());
    }

    fn admission() -> Admission {
        let promise = Promise { target: Some(Target::Queue(Duration::from_millis(40))), share: 0.0 };
        Admission::new(Settings::default(), vec![promise; 2], 2, Duration::from_millis(150)).unwrap()
    }

    #[test]
    fn people_are_told_why_most_were_turned_away_and_when_a_target_is_missed() {
        let mut admission = admission();
        let gate = admission.gate();
        let slot = &gate.sites[0];
        let turned_away = |why: usize, count| slot.rejected[why].fetch_add(count, Ordering::Relaxed);
        let mut at_s = 0;
        let mut told = || {
            at_s += 2;
            let mut told = None;
            admission.tell(Time::from_ns(at_s * 1_000_000_000), &mut |event| {
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
        let mut admission = admission();
        let gate = admission.gate();
        let now = Time::from_ns(1);
        let mut pass = |queued: Option<u32>, ms| {
            shown(&gate, [queued, Some(0)]);
            (0..ms).for_each(|_| admission.average(Duration::from_millis(1), now));
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
        for ms in [1, 40, 41, 99] {
            gate.succeeded(SITE, Duration::from_millis(ms));
            gate.succeeded(OTHER, Duration::from_millis(ms));
        }
        assert_eq!((gate.late(SITE), gate.late(OTHER)), (Some([2, 4]), None));
    }
}
