//! One site's control loop: from the queue delay to the part of clients that is admitted.
//!
//! The part is exp(-p). The pressure p has two terms. A linear term rises with the delay, from 0 at two fifths of the
//! budget. An integral term is added because the linear one, kept gentle by the lag, would alone leave the delay too
//! long. The integral is bounded and decays by itself. Edges scan at different moments, and integrals amplify small
//! constant differences. So each edge's integral is drawn to the pressures of the others, while its linear term is its
//! own.
//!
//! The budget of a p99 target is learned from the answers, in the manner of Robbins and Monro (1951): each late answer
//! shortens it, and each answer in time lengthens it by a hundredth of that. So it settles where about one answer in a
//! hundred is late. Its bounds come from the target alone.
//!
//! Under overload a shorter queue than the target's budget suffices. When a part exp(-p) is admitted, exp(p) times the
//! capacity arrives, and a queue of q requests runs dry for about exp(-pq) of the time, as in an M/M/1 queue seen from
//! its other end. Further waiting requests keep no worker busy and only delay answers.

use std::time::Duration;

use super::queue::{LOW, Queue};
use super::verdict::{LENIENCE_MAX, PRESSURE_MAX};

/// The steepest line: the whole pressure over the budget that remains above its start.
const GAIN_MAX: f64 = PRESSURE_MAX;
/// Largest product of gain and lag: well below half of pi / 2, at which a loop with that much delay oscillates.
const LOOP_GAIN: f64 = 0.6;
/// Time constant of the integral, in lags.
const INTEGRAL_LAGS: f64 = 10.0;
/// The point above the line's start at which the integral rests, as a part of the remaining budget.
const REST: f64 = 0.3;
/// The integral decays by a factor of e in this time.
const FORGET_S: f64 = 2.0;

/// So the delay settles at this part of the budget.
const SETTLES: f64 = LOW + REST * (1.0 - LOW);

/// Logarithm of the inverse of the time that a short queue may run dry: a hundredth.
const DRY: f64 = 4.605;
/// Requests that wait at each node in addition, because one node's queue does not fill another's gaps.
const AT_EACH: f64 = 1.0;
/// The sufficient queue is computed from the pressure averaged over this time, because a short budget raises the
/// pressure in turn.
const USUAL_S: f64 = 1.0;
/// That average decays by a factor of e in this time while no request is rejected.
const UNUSUAL_S: f64 = 0.2;

/// Edges converge by a factor of e in this time: far sooner than their integrals drift apart, and later than they learn
/// of each other.
const AGREE_S: f64 = 0.05;

/// The part by which each late answer shortens a learned budget.
const LESSON: f64 = 0.05;
/// The part of answers that may be late when the budget is learned: half of what the target allows.
const LATE: f64 = 0.005;
/// The part of answers that may be late for the target to count as met.
const LATE_MAX: f64 = 0.01;
/// Smallest budget, as a part of the target.
const BUDGET_MIN: f64 = 1.0 / 16.0;
/// For whether the target is met, answers decay by a factor of e in this time.
const MET_S: f64 = 1.0;
/// After the last rejection, clients that are trimmed get twice as much each time that this has passed.
const LENIENCE_DOUBLES_S: f64 = 0.25;
/// The part of its budget that a site keeps while it makes room for another.
const YIELD: f64 = 0.25;

/// A site's target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// Admitted requests wait no longer than this for a worker.
    Queue(Duration),
    /// Of 100 successful answers, 99 begin within this time.
    ResponseP99(Duration),
}

/// Successful answers since the edge started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Answers {
    /// Answers that began within the target.
    pub in_time: u64,
    /// Answers that began later.
    pub late: u64,
}

/// One site, between scans.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Pressure {
    target: Option<Target>,
    /// The learned budget of a p99 target, in seconds.
    budget_s: f64,
    integral: f64,
    pressure: f64,
    /// Average over about the last [`USUAL_S`].
    usual: f64,
    /// Seconds since a request was rejected.
    calm_s: f64,
    answers: Answers,
    /// Answers in time and late, over about the last [`MET_S`].
    recent: (f64, f64),
}

impl Pressure {
    pub(super) fn new(target: Option<Target>) -> Self {
        let budget_s = match target {
            None => 0.0,
            Some(Target::Queue(time)) => time.as_secs_f64(),
            // The time left for waiting is not known yet.
            Some(Target::ResponseP99(time)) => time.as_secs_f64() / 2.0,
        };
        Pressure {
            target,
            budget_s,
            integral: 0.0,
            pressure: 0.0,
            usual: 0.0,
            calm_s: f64::INFINITY,
            answers: Answers::default(),
            recent: (0.0, 0.0),
        }
    }

    /// Holds another target from now on. What was learned under the old one is forgotten.
    pub(super) fn aim(&mut self, target: Option<Target>) {
        if self.target != target {
            *self = Pressure { answers: self.answers, ..Pressure::new(target) };
        }
    }

    /// Whether a request was rejected at the last scan.
    pub(super) fn is_rejecting(&self) -> bool {
        self.pressure > 0.0
    }

    /// The factor by which trimmed clients are admitted, once all others are. Under overload a queue is short for a
    /// moment now and then. A flood that is admitted at once would fill it at once, at the expense of the others.
    pub(super) fn lenience(&self) -> u32 {
        let times = (self.calm_s / LENIENCE_DOUBLES_S).exp2();
        times.min(f64::from(LENIENCE_MAX)) as u32
    }

    /// How long requests may wait under the target. While more arrive than can be served, it is just long enough to
    /// keep all workers of `queue` busy, given that a gap is seen and filled within `blind`.
    pub(super) fn budget_s(&self, yields: bool, queue: &Queue, blind: Duration) -> Option<f64> {
        self.target?;
        let promised_s = self.budget_s * if yields { YIELD } else { 1.0 };
        let waiting = DRY / self.usual + AT_EACH * f64::from(queue.nodes);
        // The work done meanwhile.
        let needed_s = waiting / queue.rate + blind.as_secs_f64();
        Some(promised_s.min(needed_s / SETTLES))
    }

    /// Takes the count of answers so far, to requests that need `service_s` at their worker.
    pub(super) fn learn(&mut self, answers: &Answers, service_s: f64, passed: Duration) {
        let in_time = answers.in_time.saturating_sub(self.answers.in_time) as f64;
        let late = answers.late.saturating_sub(self.answers.late) as f64;
        self.answers = *answers;
        let kept = MET_S / (MET_S + passed.as_secs_f64());
        self.recent = (kept * self.recent.0 + in_time, kept * self.recent.1 + late);

        let Some(Target::ResponseP99(target)) = self.target else { return };
        let target_s = target.as_secs_f64();
        // Without pressure it was not the budget that kept answers in time, so they teach nothing.
        let in_time = if self.is_rejecting() { in_time } else { 0.0 };
        self.budget_s *= (1.0 + LESSON * LATE * in_time) / (1.0 + LESSON * late);
        let least = BUDGET_MIN * target_s;
        self.budget_s = self.budget_s.min(target_s - service_s).max(least);
    }

    /// The part of clients to admit, 0 to 1, given the queue delay and the other edges' mean pressure `others`.
    pub(super) fn step(
        &mut self,
        delay_s: f64,
        budget_s: f64,
        passed: Duration,
        lag: Duration,
        others: Option<f64>,
    ) -> f64 {
        let passed_s = passed.as_secs_f64();
        let lag_s = lag.as_secs_f64();
        let range_s = (1.0 - LOW) * budget_s;
        let over = (delay_s - LOW * budget_s) / range_s;
        let gain = GAIN_MAX.min(LOOP_GAIN * range_s / lag_s);

        let pace = (passed_s / (INTEGRAL_LAGS * lag_s)).min(1.0);
        // A long queue that already exists does not wind up the integral.
        let error = (over - REST).clamp(-1.5, 1.0);
        self.integral += gain * error * pace - self.integral * (passed_s / FORGET_S).min(1.0);
        if let Some(others) = others {
            self.integral += (others - self.pressure) * (passed_s / AGREE_S).min(1.0);
        }
        if delay_s == 0.0 {
            self.integral /= 2.0;
        }
        self.integral = self.integral.clamp(0.0, PRESSURE_MAX);
        self.pressure = (gain * over + self.integral).clamp(0.0, PRESSURE_MAX);
        let within_s = if self.is_rejecting() { USUAL_S } else { UNUSUAL_S };
        self.usual += (self.pressure - self.usual) * (passed_s / within_s).min(1.0);
        self.calm_s = if self.is_rejecting() { 0.0 } else { self.calm_s + passed_s };
        (-self.pressure).exp()
    }

    /// Drops what is known of the queue.
    pub(super) fn forget(&mut self) {
        (self.integral, self.pressure, self.usual, self.calm_s) = (0.0, 0.0, 0.0, f64::INFINITY);
    }

    /// Whether the target is met.
    pub(super) fn is_met(&self, delay_s: f64) -> Option<bool> {
        match self.target? {
            Target::Queue(time) => Some(delay_s <= time.as_secs_f64()),
            Target::ResponseP99(_) => {
                let (in_time, late) = self.recent;
                // Less than one answer in the last second is not significant.
                (in_time + late >= 1.0).then_some(late <= LATE_MAX * (in_time + late))
            }
        }
    }
}
