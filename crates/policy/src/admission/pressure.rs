//! One site: from how long its requests wait to the part of its clients that is let in.
//!
//! The part is exp(-p). The pressure p rises in a straight line with the delay, from 0 at two fifths of the budget, and by an
//! integral where the line alone, gentle as the lag makes it, would leave the delay too long. The integral is
//! bounded and forgets by itself. Edges look at different moments, and integrals make much of a little that is always to
//! one side, so each edge's is drawn to the pressures of the others; its line is its own.
//!
//! The budget of a p99 target is learned from the answers themselves, in the manner of Robbins and Monro (1951): each
//! answer that came too late shortens it, each that came in time lengthens it by a hundredth of that, so that it rests
//! where one in some hundred is late. It never leaves its bounds, which come from the target alone.
//!
//! Under overload less will do than the budget of a target. Where a part exp(-p) is let in, exp(p) times as much comes as can
//! be served, and a queue of q requests runs dry for about exp(-pq) of the time, as in an M/M/1 queue from its other end.
//! What waits beyond that keeps no worker busy and only makes answers late.

use std::time::Duration;

use super::verdict::LENIENCE_MAX;
use super::{Queue, Target};

/// Below this part of the budget all are let in; what comes at random fills queues so far at loads that can be served.
pub(crate) const LOW: f64 = 0.4;
/// The largest pressure: one client in a thousand is let in.
pub(super) const PRESSURE_MAX: f64 = 6.9;
/// The steepest line: the whole pressure over what is left of the budget above that.
const GAIN_MAX: f64 = PRESSURE_MAX;
/// Line over lag is at most this: half of what makes a loop with that much delay swing (pi / 2), and less.
const LOOP_GAIN: f64 = 0.6;
/// The integral's pace, in lags.
const INTEGRAL_LAGS: f64 = 10.0;
/// Where above it the integral is at rest, as a part of what is left.
const REST: f64 = 0.3;
/// The integral forgets e-fold in this time.
const FORGET_S: f64 = 2.0;

/// So the delay settles at this part of the budget.
const SETTLES: f64 = LOW + REST * (1.0 - LOW);

/// Of the time that a short queue may run dry, the logarithm of the inverse: a hundredth.
const DRY: f64 = 4.605;
/// Requests that wait at each node beside: queues do not fill each other's gaps.
const AT_EACH: f64 = 1.0;
/// How short a queue will do goes by the pressure over this time, for a short budget raises the pressure in turn.
const USUAL_S: f64 = 1.0;
/// It is forgotten e-fold in this time while nobody is turned away.
const UNUSUAL_S: f64 = 0.2;

/// Edges draw together e-fold in this time: far sooner than their integrals drift apart, and later than they know of each
/// other.
const AGREE_S: f64 = 0.05;

/// What each late answer takes from a learned budget.
const LESSON: f64 = 0.05;
/// The part of answers that may be late, as the budget is learned: half of what the target allows.
const LATE: f64 = 0.005;
/// The part of answers that may be late for the target to be met.
const LATE_MAX: f64 = 0.01;
/// The least budget, as a part of the target.
const BUDGET_MIN: f64 = 1.0 / 16.0;
/// Answers count e-fold less for whether the target is met after this time.
const MET_S: f64 = 1.0;
/// Since somebody was turned away, who asks for much more than others has twice as much each time that this has passed.
const LENIENCE_DOUBLES_S: f64 = 0.25;
/// Of a budget, what a site keeps that makes room for another.
const YIELD: f64 = 0.25;

/// Answers that succeeded, since the edge's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Answers {
    /// That began within the target.
    pub in_time: u64,
    /// That began later.
    pub late: u64,
}

/// One site, from look to look.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Pressure {
    target: Option<Target>,
    /// What is learned of a p99 target, in seconds.
    budget_s: f64,
    integral: f64,
    pressure: f64,
    /// Over the last [`USUAL_S`] or so.
    usual: f64,
    /// Seconds since somebody was turned away.
    calm_s: f64,
    answers: Answers,
    /// Over the last [`MET_S`] or so.
    recent: (f64, f64),
}

impl Pressure {
    pub(super) fn new(target: Option<Target>) -> Self {
        let budget_s = match target {
            None => 0.0,
            Some(Target::Queue(time)) => time.as_secs_f64(),
            // What is left for waiting is not known yet.
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

    /// Whether somebody was turned away at the last look.
    pub(super) fn is_rejecting(&self) -> bool {
        self.pressure > 0.0
    }

    /// How many times over those who are trimmed are let in, once all others are. Under overload a queue is short for
    /// a moment now and then, and a flood that is let in at one go fills it at one go, at the cost of all.
    pub(super) fn lenience(&self) -> u32 {
        let times = (self.calm_s / LENIENCE_DOUBLES_S).exp2();
        times.min(f64::from(LENIENCE_MAX)) as u32
    }

    /// How long requests may wait for the target, and while more come than can be served no longer than keeps all
    /// workers of `queue` busy, which is seen and mended within a time of `blind`.
    pub(super) fn budget_s(&self, yields: bool, queue: &Queue, blind: Duration) -> Option<f64> {
        self.target?;
        let promised_s = self.budget_s * if yields { YIELD } else { 1.0 };
        let waiting = DRY / self.usual + AT_EACH * f64::from(queue.nodes);
        // So much is worked off meanwhile.
        let needed_s = waiting / queue.rate + blind.as_secs_f64();
        Some(promised_s.min(needed_s / SETTLES))
    }

    /// Takes in the answers so far of requests that take `service_s` at their worker.
    pub(super) fn learn(&mut self, answers: &Answers, service_s: f64, passed: Duration) {
        let in_time = answers.in_time.saturating_sub(self.answers.in_time) as f64;
        let late = answers.late.saturating_sub(self.answers.late) as f64;
        self.answers = *answers;
        let kept = MET_S / (MET_S + passed.as_secs_f64());
        self.recent = (kept * self.recent.0 + in_time, kept * self.recent.1 + late);

        let Some(Target::ResponseP99(target)) = self.target else { return };
        let target_s = target.as_secs_f64();
        // Without pressure the budget was not what kept answers in time, and nothing is to be learned from them.
        let in_time = if self.is_rejecting() { in_time } else { 0.0 };
        self.budget_s *= (1.0 + LESSON * LATE * in_time) / (1.0 + LESSON * late);
        let least = BUDGET_MIN * target_s;
        self.budget_s = self.budget_s.min(target_s - service_s).max(least);
    }

    /// The part of clients to let in, 0 to 1, where requests wait so long, and other edges' pressures are `others` on
    /// average.
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
        // A long queue that is there already does not make the integral run away.
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

    /// Nothing is known of the queue any more.
    pub(super) fn forget(&mut self) {
        (self.integral, self.pressure, self.usual, self.calm_s) = (0.0, 0.0, 0.0, f64::INFINITY);
    }

    /// Whether the target is held.
    pub(super) fn is_met(&self, delay_s: f64) -> Option<bool> {
        match self.target? {
            Target::Queue(time) => Some(delay_s <= time.as_secs_f64()),
            Target::ResponseP99(_) => {
                let (in_time, late) = self.recent;
                // Less than one answer in the last second says nothing.
                (in_time + late >= 1.0).then_some(late <= LATE_MAX * (in_time + late))
            }
        }
    }
}
