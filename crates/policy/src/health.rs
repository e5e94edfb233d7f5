//! Health: whether an edge sends requests to a node, judged by the outcome of earlier requests.
//!
//! A failure is the request's before it is the node's. A node that refuses connections is taken out by the first refusal. A
//! request that a node breaks off, or answers with what is no answer, may do so at every node: it takes
//! [`HealthSettings::requests`] different ones in a row, and a node that they alone took out is used all the same where a site
//! has no other.
//!
//! After a pause one request tries a node that is out: if that fails the pause doubles, if it succeeds the node is up. An
//! answer to an old request does not bring a node back that refused a connection, because a server that stops listening
//! still answers those.
//!
//! [`Health`] fits in a word. An edge keeps one for each node in an `AtomicU64` and replaces it by compare-and-swap. If
//! the new value equals the old one, as for every success of a node that is up, nothing is written and no cache line
//! moves.
//!
//! A refusal takes effect at once. A silent node is out after [`HealthSettings::failures`] timeouts of the edge. With
//! the default of 2, a connect timeout of 50 ms keeps that within 100 ms.

use std::time::Duration;

use sidelong_layout::{HEALTH, fnv1a};

use crate::{SettingsError, Time};

/// When a node is taken out, and when it is tried again. The numbers of failures are 1 to 63.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HealthSettings {
    /// Consecutive failures that take a node out, if the last one is a refused connection.
    pub refusals: u8,
    /// Consecutive failures that take a node out, if the last one is [`Failure::Unreachable`] or [`Failure::Silent`].
    pub failures: u8,
    /// Consecutive failures that take a node out, if the last one is a request's.
    pub requests: u8,
    /// The first pause before a node is tried.
    pub backoff_min: Duration,
    /// The longest pause; pauses double up to it.
    pub backoff_max: Duration,
    /// A trial that has not ended by then counts as failed, and another may start.
    pub trial_max: Duration,
}

impl Default for HealthSettings {
    /// A refusal is conclusive. Of two different requests that fail both may be at fault; three in a row are not. Pauses of
    /// 50 ms to 1 s cost a node that came back at most a second, and a dead node gets at most one request a second.
    fn default() -> Self {
        HealthSettings {
            refusals: 1,
            failures: 2,
            requests: 3,
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(1),
            trial_max: Duration::from_secs(1),
        }
    }
}

impl HealthSettings {
    /// Checks the settings.
    ///
    /// # Errors
    /// If a node would be taken out without a failure, or after more than are counted, or tried without a pause.
    pub fn check(&self) -> Result<(), SettingsError> {
        let HealthSettings { refusals, failures, requests, .. } = *self;
        for (what, found) in [("refusals", refusals), ("failures", failures), ("requests", requests)] {
            SettingsError::if_zero(what, found == 0)?;
            if found > COUNT_MAX {
                let (found, max) = (found.into(), COUNT_MAX.into());
                return Err(SettingsError::TooMany { what, found, max });
            }
        }
        SettingsError::if_zero("backoff_min", self.backoff_min.is_zero())?;
        SettingsError::if_zero("trial_max", self.trial_max.is_zero())?;
        if self.backoff_min > self.backoff_max {
            return Err(SettingsError::Order { less: "backoff_min", more: "backoff_max" });
        }
        Ok(())
    }

    fn backoff(&self, doublings: u8) -> Duration {
        let factor = 1u32.checked_shl(u32::from(doublings)).unwrap_or(u32::MAX);
        self.backoff_min.saturating_mul(factor).min(self.backoff_max)
    }

    /// Consecutive failures that take a node out, if this is the last one.
    fn limit(&self, failure: Failure) -> u8 {
        match failure {
            Failure::Refused => self.refusals,
            Failure::Unreachable | Failure::Silent => self.failures,
            Failure::Request(_) => self.requests,
        }
    }
}

/// How a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Failure {
    /// The connection was refused, or reset during set-up: no process listens.
    Refused,
    /// There was no connection in time.
    Unreachable,
    /// It was not answered in time, nor was any other at that node meanwhile.
    Silent,
    /// Its answer was broken off, or invalid, which may be due to the request: with its hash, by which failures of one request
    /// at a node count once. Without one each counts.
    Request(Option<RequestHash>),
}

impl Failure {
    fn cause(self) -> Cause {
        match self {
            Failure::Refused | Failure::Unreachable => Cause::Connections,
            Failure::Silent => Cause::Silence,
            Failure::Request(_) => Cause::Requests,
        }
    }

    fn hash(self) -> u64 {
        match self {
            Failure::Request(Some(RequestHash(hash))) => hash,
            _ => 0,
        }
    }
}

/// Which request it is: its method and its path, as all requests for a path are one handler's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestHash(u64);

impl RequestHash {
    /// Of a request with this method and target.
    pub fn new(method: &str, target: &str) -> Self {
        let path = target.split('?').next().unwrap_or_default();
        let mixed = fnv1a(method.as_bytes()).rotate_left(32) ^ fnv1a(path.as_bytes());
        RequestHash((mixed & UNTIL_US_MAX).max(1))
    }
}

/// What may be sent to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Requests.
    Up,
    /// Nothing until then: it failed, or a trial is in progress.
    Down {
        /// When it may be tried.
        until: Time,
    },
    /// One request, by the thread that first stores [`Health::trial`].
    Trial,
}

/// The health of a node: `phase:2 count:6 cause:2 until_us:54` in a word. Up by default, as 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    phase: Phase,
    /// While up, the number of consecutive failures; while out, how often the pause was doubled.
    count: u8,
    /// What took it out, or made it fail last.
    cause: Cause,
    /// While down, when a trial may start; during a trial, when it counts as failed. In us, rounded up. While up, the hash of the
    /// request that failed last, or 0.
    until_us: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    #[default]
    Up = 0,
    Down = 1,
    Trial = 2,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Cause {
    #[default]
    Connections = 0,
    Silence = 1,
    Requests = 2,
}

const UNTIL_US_MAX: u64 = HEALTH.max(3);
const COUNT_MAX: u8 = HEALTH.max(1) as u8;

impl Health {
    /// A node without failures.
    pub const UP: Health = Health { phase: Phase::Up, count: 0, cause: Cause::Connections, until_us: 0 };

    /// What may be sent to it.
    pub fn state(self, now: Time) -> State {
        let until = Time::from_ns(self.until_us.saturating_mul(1_000));
        match self.phase {
            Phase::Up => State::Up,
            _ if now < until => State::Down { until },
            _ => State::Trial,
        }
    }

    /// Whether it is out, and a trial has failed, too, and not for what may be the requests' fault: one request alone has not
    /// decided it.
    pub fn has_failed_again(self) -> bool {
        self.phase != Phase::Up && self.count > 0 && self.cause != Cause::Requests
    }

    /// Whether it accepts connections as far as is known. If it is out nonetheless, it is used where a site has no node that is not.
    pub fn connects(self) -> bool {
        self.phase == Phase::Up || self.cause != Cause::Connections
    }

    /// Whether nothing but requests speaks against it.
    pub fn is_proven(self, now: Time) -> bool {
        self.state(now) == State::Up || self.cause == Cause::Requests
    }

    /// The state after a successful request: a node on trial is up again, as is one that is out and accepts connections, and the
    /// failures of one that is up are forgotten.
    #[must_use]
    pub fn on_success(self) -> Health {
        if self.phase == Phase::Down && !self.connects() { self } else { Health::UP }
    }

    /// The state after a connection that no request was sent on. It says nothing of a node that connects, and does not answer.
    #[must_use]
    pub fn on_connection(self) -> Health {
        let has_failed_to = match self.phase {
            Phase::Up => self.cause == Cause::Connections,
            Phase::Down => false,
            Phase::Trial => !self.connects(),
        };
        if has_failed_to { Health::UP } else { self }
    }

    /// The state once a trial is given up of which nothing is known: the node may be tried at once.
    #[must_use]
    pub fn untried(self) -> Health {
        if self.phase == Phase::Trial { Health { phase: Phase::Down, until_us: 0, ..self } } else { self }
    }

    /// The state once the node is heard again that was silent: if it did not connect it may be tried at once.
    #[must_use]
    pub fn heard_again(self) -> Health {
        if self.phase == Phase::Down && !self.connects() { Health { until_us: 0, ..self } } else { self }
    }

    /// The state after a failed request. A failure while the node is out changes nothing: the request was sent before,
    /// and the pause must not grow with the number of requests that a dying node had. But a connection that fails at a node
    /// that was in use all the same takes that out by itself.
    #[must_use]
    pub fn on_failure(self, now: Time, failure: Failure, settings: &HealthSettings) -> Health {
        let is_out = |doublings| Health::out(now, failure, doublings, settings);
        match self.phase {
            Phase::Up => {
                let hash = failure.hash();
                let is_same = hash != 0 && hash == self.until_us;
                let count = self.count.saturating_add(u8::from(!is_same)).min(COUNT_MAX);
                let failed = Health { count, until_us: hash, cause: failure.cause(), ..Health::UP };
                if count >= settings.limit(failure) { is_out(0) } else { failed }
            }
            Phase::Down if self.connects() && failure.cause() == Cause::Connections => is_out(0),
            Phase::Down => self,
            // It listens again. What came of the request may be the request's fault.
            Phase::Trial if !self.connects() && failure.cause() == Cause::Requests => {
                Health::UP.on_failure(now, failure, settings)
            }
            Phase::Trial => is_out(self.count.saturating_add(1).min(COUNT_MAX)),
        }
    }

    /// The state with a trial, if one may start now. The thread that stores it in place of `self` sends the one request
    /// and reports the outcome. If it never does, another trial starts after [`HealthSettings::trial_max`].
    pub fn trial(self, now: Time, settings: &HealthSettings) -> Option<Health> {
        let lost = u8::from(self.phase == Phase::Trial);
        (self.state(now) == State::Trial).then(|| Health {
            phase: Phase::Trial,
            count: self.count.saturating_add(lost).min(COUNT_MAX),
            until_us: us_up(now.after(settings.trial_max)),
            ..self
        })
    }

    fn out(now: Time, failure: Failure, doublings: u8, settings: &HealthSettings) -> Health {
        let until = now.after(settings.backoff(doublings));
        Health { phase: Phase::Down, count: doublings, cause: failure.cause(), until_us: us_up(until) }
    }

    /// Encodes it as one word.
    #[inline]
    pub const fn encode(self) -> u64 {
        HEALTH.pack([self.phase as u64, self.count as u64, self.cause as u64, self.until_us])
    }

    /// Decodes a word. An unknown phase is treated as a trial, which ends by itself, and an unknown cause as failed connections.
    #[inline]
    pub const fn decode(word: u64) -> Self {
        let [phase, count, cause, until_us] = HEALTH.unpack(word);
        let phase = match phase {
            0 => Phase::Up,
            1 => Phase::Down,
            _ => Phase::Trial,
        };
        let cause = match cause {
            1 => Cause::Silence,
            2 => Cause::Requests,
            _ => Cause::Connections,
        };
        Health { phase, count: count as u8, cause, until_us }
    }
}

fn us_up(time: Time) -> u64 {
    time.as_ns().div_ceil(1_000).min(UNTIL_US_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(ms: u64) -> Time {
        Time::from_ns(ms * 1_000_000)
    }

    fn fail(health: Health, at: Time, failure: Failure) -> Health {
        health.on_failure(at, failure, &HealthSettings::default())
    }

    fn trial(health: Health, at: Time) -> Option<Health> {
        health.trial(at, &HealthSettings::default())
    }

    #[test]
    fn one_refusal_or_two_silences_take_a_node_out() {
        let refused = fail(Health::UP, ms(0), Failure::Refused);
        assert_eq!(refused.state(ms(0)), State::Down { until: ms(50) });
        let once = fail(Health::UP, ms(0), Failure::Silent);
        assert_eq!(once.state(ms(0)), State::Up);
        assert_eq!(fail(once, ms(1), Failure::Silent).state(ms(1)), State::Down { until: ms(51) });
        assert_eq!(fail(once, ms(1), Failure::Refused).state(ms(1)), State::Down { until: ms(51) });
    }

    #[test]
    fn a_connection_ends_what_connections_began() {
        let refused = fail(Health::UP, ms(0), Failure::Refused);
        assert_eq!(refused.on_connection(), refused, "it may be an old one");
        assert_eq!(refused.heard_again().state(ms(1)), State::Trial);
        let tried = trial(refused.heard_again(), ms(1)).unwrap();
        assert_eq!((tried.on_connection(), tried.heard_again()), (Health::UP, tried));
        assert!(fail(tried, ms(2), Failure::Unreachable).has_failed_again());
        assert_eq!(fail(Health::UP, ms(0), Failure::Unreachable).on_connection(), Health::UP);
        assert_eq!(tried.untried(), refused.heard_again());
        let again = trial(tried.untried(), ms(2)).unwrap();
        assert!(!again.has_failed_again(), "nobody has tried it yet");
        let [once, silent] = [1, 2].map(|times| after(&vec![Failure::Silent; times]));
        let on_trial = trial(silent, ms(60)).unwrap();
        let [bad, broken] = [after(&[get("/bad")]), after(&[Failure::Request(None)])];
        for answers_nothing in [once, silent, on_trial, bad, broken] {
            assert_eq!(answers_nothing.on_connection(), answers_nothing);
            assert_eq!(answers_nothing.heard_again(), answers_nothing);
        }
    }

    /// `GET` of a path.
    fn get(target: &str) -> Failure {
        Failure::Request(Some(RequestHash::new("GET", target)))
    }

    fn after(failures: &[Failure]) -> Health {
        failures.iter().fold(Health::UP, |health, failure| fail(health, ms(0), *failure))
    }

    #[test]
    fn one_bad_request_takes_no_node_out_and_different_ones_do() {
        let [bad, same] = [get("/bad?id=1"), get("/bad?id=2")];
        assert_eq!(after(&[[bad, same]; 20].concat()).state(ms(0)), State::Up);
        assert_eq!(after(&[bad, get("/other"), get("/other")]).state(ms(0)), State::Up);
        assert_eq!(after(&[bad, get("/other"), bad]).state(ms(0)), State::Down { until: ms(50) });
        let unnamed = Failure::Request(None);
        assert_eq!(after(&[unnamed; 2]).state(ms(0)), State::Up);
        assert_eq!(after(&[unnamed; 3]).state(ms(0)), State::Down { until: ms(50) });
        assert_ne!(RequestHash::new("GET", "/bad"), RequestHash::new("POST", "/bad"));
    }

    #[test]
    fn a_node_that_requests_alone_took_out_is_not_dead_and_any_answer_brings_it_back() {
        let out = after(&[Failure::Request(None); 3]);
        let again = fail(trial(out, ms(50)).unwrap(), ms(60), Failure::Request(None));
        assert_eq!(again.state(ms(60)), State::Down { until: ms(160) });
        assert!(again.connects() && again.is_proven(ms(60)) && !again.has_failed_again());
        assert_eq!(again.on_success(), Health::UP);
        let refused = fail(again, ms(60), Failure::Refused);
        assert_eq!(refused, fail(Health::UP, ms(60), Failure::Refused));
        assert!(!refused.connects() && !refused.is_proven(ms(60)));
    }

    #[test]
    fn a_node_that_listens_again_is_up_even_if_the_request_that_tries_it_is_bad() {
        let trying = trial(fail(Health::UP, ms(0), Failure::Refused), ms(50)).unwrap();
        assert_eq!(fail(trying, ms(51), get("/bad")), after(&[get("/bad")]));
    }

    #[test]
    fn failures_count_only_in_a_row() {
        let once = fail(Health::UP, ms(0), Failure::Silent);
        assert_eq!(fail(once.on_success(), ms(1), Failure::Silent).state(ms(1)), State::Up);
    }

    #[test]
    fn requests_that_a_dying_node_took_along_do_not_lengthen_its_pause() {
        let mut health = fail(Health::UP, ms(0), Failure::Refused);
        for at in 1..40 {
            health = fail(health, ms(at), Failure::Silent);
        }
        assert_eq!(health.state(ms(40)), State::Down { until: ms(50) });
        assert_eq!(health.on_success(), health, "nor does a late answer end it");
    }

    #[test]
    fn one_trial_at_a_time_decides() {
        let down = fail(Health::UP, ms(0), Failure::Refused);
        assert_eq!(trial(down, ms(49)), None);
        assert_eq!(down.state(ms(50)), State::Trial);
        let trying = trial(down, ms(50)).unwrap();
        assert_eq!(trying.state(ms(51)), State::Down { until: ms(1_050) });
        assert_eq!(trial(trying, ms(51)), None);
        assert_eq!(trying.on_success(), Health::UP);
        assert_eq!(fail(trying, ms(60), Failure::Silent).state(ms(60)), State::Down { until: ms(160) });
    }

    #[test]
    fn it_takes_a_trial_to_fail_again() {
        let down = fail(Health::UP, ms(0), Failure::Refused);
        let trying = trial(down, ms(50)).unwrap();
        let again = fail(trying, ms(51), Failure::Refused);
        let found = [Health::UP, down, trying, again, trial(again, ms(151)).unwrap(), again.on_success()];
        assert_eq!(found.map(Health::has_failed_again), [false, false, false, true, true, true]);
        assert!(!trial(again, ms(151)).unwrap().on_success().has_failed_again());
    }

    #[test]
    fn pauses_double_up_to_a_second() {
        let mut health = fail(Health::UP, ms(0), Failure::Refused);
        let mut pauses = vec![];
        let mut now = ms(0);
        for _ in 0..300 {
            let State::Down { until } = health.state(now) else { panic!("{health:?} at {now:?}") };
            pauses.push(until.since(now).as_millis());
            now = until;
            health = fail(trial(health, now).unwrap(), now, Failure::Refused);
        }
        assert_eq!(pauses[..7], [50, 100, 200, 400, 800, 1_000, 1_000]);
        assert!(pauses[7..].iter().all(|pause| *pause == 1_000));
    }

    #[test]
    fn a_trial_whose_end_nobody_tells_is_repeated() {
        let lost = trial(fail(Health::UP, ms(0), Failure::Refused), ms(50)).unwrap();
        assert_eq!(trial(lost, ms(1_049)), None);
        let again = trial(lost, ms(1_050)).unwrap();
        assert_eq!(
            fail(again, ms(1_051), Failure::Silent).state(ms(1_051)),
            State::Down { until: ms(1_251) }
        );
        assert_eq!(again.on_success().state(ms(1_051)), State::Up);
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let settings = HealthSettings::default();
        assert_eq!(settings.check(), Ok(()));
        assert!(HealthSettings { failures: 0, ..settings }.check().is_err());
        assert_eq!(HealthSettings { requests: 63, ..settings }.check(), Ok(()));
        assert!(HealthSettings { requests: 64, ..settings }.check().is_err());
        assert!(HealthSettings { backoff_min: Duration::ZERO, ..settings }.check().is_err());
        let swapped = HealthSettings { backoff_min: Duration::from_secs(2), ..settings };
        assert_eq!(swapped.check().unwrap_err().to_string(), "backoff_min must not exceed backoff_max");
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Success,
        Failure(Failure),
        Trial,
    }

    proptest! {
        /// Whatever happens, the state fits in the word, and a node is out for a bounded time only.
        #[test]
        fn every_node_gets_its_trial_in_the_end(
            events in proptest::collection::vec((0u64..2_000, prop_oneof![
                Just(Event::Success), Just(Event::Failure(Failure::Refused)),
                Just(Event::Failure(Failure::Silent)), Just(Event::Failure(Failure::Request(None))),
                Just(Event::Failure(Failure::Request(Some(RequestHash::new("GET", "/"))))), Just(Event::Trial),
            ]), 0..100),
        ) {
            let mut health = Health::UP;
            let mut now = ms(0);
            for (pause, event) in events {
                now = now.after(Duration::from_millis(pause));
                health = match event {
                    Event::Success => health.on_success(),
                    Event::Failure(failure) => fail(health, now, failure),
                    Event::Trial => trial(health, now).unwrap_or(health),
                };
                prop_assert_eq!(Health::decode(health.encode()), health);
                if let State::Down { until } = health.state(now) {
                    prop_assert!(until.since(now) <= Duration::from_millis(1_001));
                    prop_assert_eq!(health.state(until), State::Trial);
                }
            }
        }

        #[test]
        fn any_word_decodes(word: u64, at: u64) {
            let health = Health::decode(word);
            prop_assert_eq!(Health::decode(health.encode()), health);
            health.state(Time::from_ns(at));
        }
    }
}
