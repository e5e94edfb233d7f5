//! How many requests a foreign server handles at a time, where the file does not say it or is wrong.
//!
//! It is learned from two sources, neither of which asks the server:
//!
//! - **The accept queue**, where the server runs beside its agent. A server whose workers hold a connection each (gunicorn's
//!   sync workers, prefork) leaves connections in the queue as soon as all are taken, and then has accepted as many as it has
//!   workers: established less queued. A server that accepts whatever comes has an empty queue, and this source is silent.
//! - **Little's law**, from what the edges have in flight there and see answered. Requests in flight over answers per second
//!   is the time that each takes. While that is no longer than with few requests in flight, no request waits, and there are
//!   at least as many workers as requests. Once it is longer, answers per second times the short time is the number that is
//!   worked on: of workers (php-fpm behind nginx), or of what the CPU can do.
//!
//! The first is exact and wins. The second is believed only by contrast: the short time must come from clearly fewer requests
//! in flight than the figure claims, otherwise a server that was overloaded from the start would seem to have a worker for
//! every request that waits there. The time of requests that are alone at the server is always believed, so a service that has
//! become slower is not taken for a queue for long.

use std::time::Duration;

use sidelong_layout::{Hot, valid};

use crate::cluster::{NodeView, Traffic};

/// How many requests a server handles at a time, as far as it was learned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Workers {
    /// It had too few requests to tell.
    #[default]
    Unknown,
    /// As many as this; further requests wait.
    Learned(u32),
    /// No request was seen to wait for a worker, however many there were, or they wait for the CPU.
    NotBound,
}

/// What the watch over one foreign server has learned. A plain value without outside effects.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Learner {
    queue: AcceptQueue,
    knee: Knee,
    /// Answers at the scan before.
    answers: u64,
    /// CPU in use, 0 to 1, while requests were in flight; `None` if its record does not say.
    cpu: Option<f64>,
    /// Seconds in which many requests were in flight and none waited to be accepted.
    free_s: f64,
}

/// Fewer requests in flight than this do not show that a server is not bound by workers.
const MANY: u32 = 8;
/// For this long, in seconds.
const FREE_S: f64 = 1.0;
/// A server whose CPU is used more than this works on no more requests because of the CPU.
const CPU_FULL: f64 = 0.85;
/// CPU is averaged over this time, in seconds.
const CPU_S: f64 = 0.5;

impl Learner {
    /// Takes a scan of the node, at the given time since the previous one.
    pub fn see(&mut self, view: &NodeView, traffic: &Traffic, passed: Duration) {
        let passed_s = passed.as_secs_f64();
        let in_flight = traffic.in_flight;
        if let Some(hot) = view.load.filter(|hot| hot.valid & valid::CONNECTIONS != 0) {
            let gained = traffic.answers.saturating_sub(self.answers);
            self.queue.see(hot.connections, hot.queued, in_flight, gained, passed_s);
            if in_flight >= MANY && hot.queued == 0 {
                self.free_s = (self.free_s + passed_s).min(FREE_S);
            }
        }
        if let Some(hot) = view.load.filter(|hot| hot.valid & valid::CPU != 0 && in_flight > 0) {
            let now = f64::from(hot.cpu_permille) / 1000.0;
            let cpu = self.cpu.get_or_insert(now);
            *cpu += (now - *cpu) * gain(passed_s, CPU_S);
        }
        self.answers = traffic.answers;
        self.knee.see(in_flight, traffic.answers, view.capacity.workers, passed_s);
    }

    /// What was learned.
    pub fn workers(&self) -> Workers {
        let is_cpu_full = self.cpu.is_some_and(|cpu| cpu > CPU_FULL);
        if let Some(workers) = self.queue.workers() {
            return Workers::Learned(workers);
        }
        let Knee { worked_on, is_limited, enough, .. } = self.knee;
        match worked_on {
            Some(workers) if is_limited && !is_cpu_full => Workers::Learned(rounded(workers)),
            Some(_) if is_limited => Workers::NotBound,
            _ if enough >= f64::from(MANY) || self.free_s >= FREE_S => Workers::NotBound,
            _ => Workers::Unknown,
        }
    }

    /// Requests that the server works on at a time, from all that is known. Of one that is not bound by workers it is the
    /// number from which on they were seen to take longer, or the largest number yet with which they did not.
    pub fn at_a_time(&self) -> Option<u32> {
        self.queue.workers().or(self.knee.workers.map(rounded))
    }

    /// Puts what was learned into the view, in place of the file's figures.
    pub fn apply(&self, view: &mut NodeView) {
        if let Some(workers) = self.at_a_time() {
            view.capacity.workers = workers;
        }
        let Some(hot) = &mut view.load else { return };
        match self.workers() {
            Workers::Unknown => {}
            Workers::NotBound => hot.valid &= !valid::WORKERS,
            Workers::Learned(workers) => {
                let taken = match self.queue.is_bound {
                    true => hot.connections.saturating_sub(hot.queued),
                    false => view.in_flight,
                };
                set_workers(hot, workers, taken);
            }
        }
    }
}

fn set_workers(hot: &mut Hot, workers: u32, taken: u32) {
    hot.workers = u16::try_from(workers).unwrap_or(u16::MAX);
    hot.busy = taken.min(workers);
    hot.valid |= valid::WORKERS;
}

fn rounded(workers: f64) -> u32 {
    workers.round().max(1.0) as u32
}

/// The weight of what was seen for `passed_s` in a mean over about `memory_s`.
fn gain(passed_s: f64, memory_s: f64) -> f64 {
    passed_s / (memory_s + passed_s)
}

/// What the kernel tells of the connections at its port.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct AcceptQueue {
    /// Established less queued, averaged while connections wait.
    accepted: f64,
    /// The part of time in which connections waited, lately, counted while requests were in flight.
    waits: f64,
    /// The part of time in which none waited, of that with clearly more requests in flight than `accepted`.
    misses: f64,
    /// Since when connections wait without a pause, in seconds, and answers in all such times, lately. A server that is kept from
    /// running leaves connections in its queue, too, but neither answers meanwhile nor stays so for long.
    waited_s: f64,
    answered: u64,
    /// Whether connections wait because its workers are taken.
    is_bound: bool,
}

/// A larger figure is believed sooner than a smaller one: workers that have just closed a connection and not yet accepted the
/// next are workers, too. In seconds.
const MORE_S: f64 = 0.1;
const FEWER_S: f64 = 0.7;
/// Connections wait for a moment at any server.
const WAITS_S: f64 = 0.25;
/// The part of time from which on they wait because of workers, or do not.
const MOSTLY: f64 = 0.5;
/// So many answers while connections wait show that they do not wait for the CPU, and so does a wait that lasts so long, in
/// seconds.
const RUNS_ANSWERS: u64 = 4;
const RUNS_S: f64 = 2.0;
/// More requests in flight than workers by this factor, and one more, would wait.
const CLEARLY: f64 = 1.5;

impl AcceptQueue {
    fn see(&mut self, connections: u32, queued: u32, in_flight: u32, gained: u64, passed_s: f64) {
        let accepted = f64::from(connections.saturating_sub(queued).max(1));
        if queued > 0 || in_flight > 0 {
            self.waits += (f64::from(u8::from(queued > 0)) - self.waits) * gain(passed_s, WAITS_S);
        }
        if queued == 0 {
            self.waited_s = 0.0;
        } else {
            self.answered = self.answered.saturating_add(if self.waited_s > 0.0 { gained } else { 0 });
            self.waited_s += passed_s;
        }
        if self.waits < MOSTLY {
            self.answered = 0;
        }
        let runs = self.answered >= RUNS_ANSWERS || self.waited_s >= RUNS_S;
        if queued > 0 && self.accepted == 0.0 {
            self.accepted = accepted;
        } else if accepted > self.accepted && (queued > 0 || self.is_bound) {
            self.accepted += (accepted - self.accepted) * gain(passed_s, MORE_S);
        } else if queued > 0 {
            self.accepted += (accepted - self.accepted) * gain(passed_s, FEWER_S);
        }
        if self.accepted > 0.0 && f64::from(in_flight) > CLEARLY * self.accepted + 1.0 {
            self.misses += (f64::from(u8::from(queued == 0)) - self.misses) * gain(passed_s, WAITS_S);
        }
        if self.is_bound && self.misses > MOSTLY {
            *self = AcceptQueue::default();
        } else if self.waits > MOSTLY && self.misses <= MOSTLY && runs {
            self.is_bound = true;
        }
    }

    fn workers(&self) -> Option<u32> {
        self.is_bound.then(|| rounded(self.accepted))
    }
}

/// Where more requests in flight bring no more answers, by Little's law.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Knee {
    last: Option<(u32, u64)>,
    window: Window,
    alone: Window,
    /// Since a request last arrived, in seconds.
    arrived_s: f64,
    /// How long the request that is alone had others beside it, at least, in seconds.
    shared_s: f64,
    /// The short time, in seconds, and the number of requests in flight with which it was seen; 0 before.
    service_s: f64,
    seen_with: f64,
    /// The number that is used, which may be a trial.
    workers: Option<f64>,
    /// Requests worked on at a time while they took longer, if the short time was clearly that of fewer.
    worked_on: Option<f64>,
    /// As many as were in flight when requests last took no longer; 0 if they since did.
    enough: f64,
    /// Whether requests took longer in the last window that told.
    is_limited: bool,
    /// Whether the short time is looked for with fewer and fewer requests.
    descends: bool,
    /// Windows in a row in which it was, with no fewer requests than before and without a sign that any of them waits.
    in_vain: u32,
}

/// Requests over a time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Window {
    seconds: f64,
    /// Requests in flight, integrated over the time.
    area: f64,
    answers: f64,
    /// Requests in flight when it began.
    first: f64,
}

/// A window has this many answers, and more if the number of requests in flight has changed within it.
const WINDOW_ANSWERS: f64 = 24.0;
const WINDOW_CHANGE: f64 = 4.0;
/// It lasts this long at least, and is given up if it lasts longer than the other.
const WINDOW_S_MIN: f64 = 0.05;
const WINDOW_S_MAX: f64 = 20.0;
/// Answers to requests that were alone.
const ALONE_ANSWERS: f64 = 16.0;
/// A factor that is no accident.
const APART: f64 = 1.3;
/// The part of a new figure in the mean.
const NEW: f64 = 0.4;
/// Fewer by this factor tell whether it was enough.
const FEWER: f64 = 1.1;
/// So many windows in vain: there is no other server to take requests, or there is no need to.
const IN_VAIN_MAX: u32 = 16;

impl Knee {
    fn see(&mut self, in_flight: u32, answers: u64, assumed: u32, passed_s: f64) {
        let Some((before, seen)) = self.last.replace((in_flight, answers)) else { return };
        let gained = answers.saturating_sub(seen) as f64;
        let (before, in_flight) = (f64::from(before), f64::from(in_flight));
        let mean = (before + in_flight) / 2.0;
        if mean == 0.0 && gained == 0.0 {
            return;
        }
        let has_arrived = in_flight - before + gained > 0.0;
        self.arrived_s = if has_arrived { 0.0 } else { self.arrived_s + passed_s };
        if before == 1.0 {
            self.alone.add(mean, gained, passed_s);
            if gained > 0.0 {
                self.alone.area += std::mem::take(&mut self.shared_s);
            }
            if self.alone.answers >= ALONE_ANSWERS {
                (self.service_s, self.seen_with) = (self.alone.response_s(), 1.0);
                self.alone = Window::default();
            }
        }
        if in_flight > 1.0 || in_flight == 0.0 {
            self.shared_s = 0.0;
        } else if before > 1.0 {
            self.shared_s = self.arrived_s;
        }
        self.window.add(mean, gained, passed_s);
        let change = (in_flight - self.window.first).abs();
        if self.window.answers >= WINDOW_ANSWERS + WINDOW_CHANGE * change
            && self.window.seconds >= WINDOW_S_MIN
        {
            self.judge(self.window, f64::from(assumed));
            self.window = Window { first: in_flight, ..Window::default() };
        } else if self.window.seconds > WINDOW_S_MAX {
            self.window = Window { first: in_flight, ..Window::default() };
        }
    }

    fn judge(&mut self, window: Window, assumed: f64) {
        let (mean, response_s) = (window.mean(), window.response_s());
        if response_s == 0.0 {
            return;
        }
        // With clearly fewer requests they took no less, so none of them waits.
        let is_enough = mean * FEWER < self.seen_with && response_s * FEWER > self.service_s;
        let is_vain = self.descends && mean * FEWER >= self.seen_with && response_s <= FEWER * self.service_s;
        self.in_vain = if is_vain { self.in_vain + 1 } else { 0 };
        self.descends &= !is_enough && self.in_vain < IN_VAIN_MAX;
        if self.service_s == 0.0 || response_s * APART < self.service_s || mean * FEWER < self.seen_with {
            (self.service_s, self.seen_with) = (response_s, mean);
        } else if mean < APART * self.seen_with {
            self.service_s += (response_s - self.service_s) * NEW;
            self.seen_with = self.seen_with.min(mean);
        }
        // As many as are worked on, if the short time has no wait in it.
        let worked_on = mean * self.service_s / response_s;
        let seen_with = self.seen_with.max(1.0);
        let current = self.workers.unwrap_or(assumed);
        if mean > APART * worked_on && mean > APART {
            let is_short = worked_on > APART * seen_with || seen_with < APART;
            // If the time has a wait in it, it is looked for with fewer.
            self.descends = !is_short;
            self.workers = Some(match is_short {
                true => {
                    let known = self.worked_on.unwrap_or(worked_on);
                    self.worked_on = Some(known + (worked_on - known) * NEW);
                    current + (worked_on - current) * NEW
                }
                false => current.min(worked_on / APART),
            });
            (self.is_limited, self.enough) = (true, 0.0);
        } else if mean > APART * seen_with {
            self.workers = Some(current.max(mean));
            (self.is_limited, self.enough, self.descends) = (false, mean, false);
        } else if self.descends {
            self.workers = Some((current.min(mean) / APART).max(1.0));
        } else if mean > current / APART {
            self.workers = Some(current * APART);
        }
    }
}

impl Window {
    fn add(&mut self, in_flight: f64, gained: f64, passed_s: f64) {
        self.seconds += passed_s;
        self.area += in_flight * passed_s;
        self.answers += gained;
    }

    fn mean(&self) -> f64 {
        self.area / self.seconds
    }

    fn response_s(&self) -> f64 {
        self.area / self.answers
    }
}

#[cfg(test)]
mod tests;
