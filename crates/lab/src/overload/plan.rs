//! The load of one run: the rates and when each is offered.

use std::ops::Range;
use std::time::Duration;

use sidelong_workload::client::{Arrivals, Gaps, Step, Stream};

use super::{CAPACITY_PER_S, HIGH_PER_S};

/// Clients of each site. The clients of one site have equal rates.
pub(super) const HIGH_CLIENTS: usize = 16;
pub(super) const LOW_CLIENTS: usize = 64;
const SEED: u64 = 7;

/// Warm-up before anything is measured: proxies learn.
const WARM_UP: (f64, Duration) = (0.8, Duration::from_secs(2));
/// Pause between two loads, so that the next is unaffected by the one before.
const REST: (f64, Duration) = (0.3, Duration::from_millis(1200));
/// Time from the beginning of a load until it is measured.
const SETTLE: Duration = Duration::from_millis(500);

/// Steps lead from the first to the second of these, relative to the capacity (Breakwater's load, which uses 1.4).
pub(super) const STEP: [f64; 2] = [0.5, 1.4];
/// Duration of each of the two.
pub(super) const STEP_LASTS: Duration = Duration::from_millis(600);
/// Duration of each of the two, for bursts.
pub(super) const BURST: [f64; 2] = [0.7, 10.0];
pub(super) const BURST_LASTS: Duration = Duration::from_millis(50);
pub(super) const BURST_EVERY: Duration = Duration::from_millis(800);

/// The size of a plan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Extent {
    /// Loads relative to the capacity.
    pub(super) loads: &'static [f64],
    /// How long each load is measured.
    pub(super) steady: Duration,
    pub(super) steps: u32,
    pub(super) bursts: u32,
}

impl Extent {
    pub(super) const fn of(quick: bool) -> Extent {
        let steady = Duration::from_secs(if quick { 3 } else { 8 });
        match quick {
            true => Extent { loads: &[0.5, 1.1, 2.0, 10.0], steady, steps: 5, bursts: 3 },
            false => Extent { loads: &[0.5, 0.8, 1.1, 1.5, 2.0, 4.0, 10.0], steady, steps: 24, bursts: 12 },
        }
    }
}

/// A part of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Part {
    /// A constant load, relative to the capacity.
    Steady(f64),
    Steps,
    Bursts,
}

impl Part {
    /// The value in the column `offered_load`.
    pub(super) fn label(self) -> String {
        match self {
            Part::Steady(load) => load.to_string(),
            Part::Steps => format!("step-{}", STEP[1]),
            Part::Bursts => format!("burst-{}", BURST[1]),
        }
    }
}

/// The load of a run over time.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Plan {
    /// The parts in order, each with its measured interval, in s since the start.
    pub(super) parts: Vec<(Part, Range<f64>)>,
    /// The times at which a step up begins.
    pub(super) steps_s: Vec<f64>,
    /// The times at which a burst ends.
    pub(super) bursts_s: Vec<f64>,
    /// Rates of the lower priority.
    low: Vec<Step>,
    pub(super) length: Duration,
    seed: u64,
}

impl Plan {
    pub(super) fn new(extent: &Extent) -> Plan {
        let mut plan = Plan {
            seed: SEED,
            parts: Vec::new(),
            steps_s: Vec::new(),
            bursts_s: Vec::new(),
            low: Vec::new(),
            length: Duration::ZERO,
        };
        plan.ask(WARM_UP);
        for &load in extent.loads {
            plan.ask((load, SETTLE));
            let from = plan.length;
            plan.ask((load, extent.steady));
            plan.measure(Part::Steady(load), from);
            plan.ask(REST);
        }
        let from = plan.length;
        for _ in 0..extent.steps {
            plan.ask((STEP[0], STEP_LASTS));
            plan.steps_s.push(plan.length.as_secs_f64());
            plan.ask((STEP[1], STEP_LASTS));
        }
        plan.measure(Part::Steps, from);
        plan.ask(REST);
        let from = plan.length;
        for _ in 0..extent.bursts {
            plan.ask((BURST[1], BURST_LASTS));
            plan.bursts_s.push(plan.length.as_secs_f64());
            plan.ask((BURST[0], BURST_EVERY - BURST_LASTS));
        }
        plan.measure(Part::Bursts, from);
        plan.low.push(Step { at: plan.length, per_s: 0.0 });
        plan
    }

    /// The same load, of other arrivals in each repetition.
    pub(super) fn again(&self, repetition: u32) -> Plan {
        Plan { seed: SEED + u64::from(repetition), ..self.clone() }
    }

    /// Appends a load relative to the capacity, for a duration.
    fn ask(&mut self, (load, time): (f64, Duration)) {
        self.low.push(Step { at: self.length, per_s: load * CAPACITY_PER_S - HIGH_PER_S });
        self.length += time;
    }

    fn measure(&mut self, part: Part, from: Duration) {
        self.parts.push((part, from.as_secs_f64()..self.length.as_secs_f64()));
    }

    /// A stream for each site: the higher priority, and the lower.
    pub(super) fn arrivals(&self) -> Arrivals {
        let high = Stream {
            steps: vec![Step { at: Duration::ZERO, per_s: HIGH_PER_S }, Step { at: self.length, per_s: 0.0 }],
            gaps: Gaps::Equal,
            clients: Some(0..HIGH_CLIENTS),
        };
        let low = Stream::poisson(self.low.clone()).of(HIGH_CLIENTS..HIGH_CLIENTS + LOW_CLIENTS);
        Arrivals::Streams { streams: vec![high, low], seed: self.seed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_is_asked_for_all_that_time() {
        for extent in [false, true].map(Extent::of) {
            let plan = Plan::new(&extent);
            assert_eq!(plan.parts.len(), extent.loads.len() + 2);
            assert_eq!(plan.steps_s.len(), extent.steps as usize);
            assert!(
                plan.low.is_sorted_by_key(|step| step.at) && plan.low.iter().all(|step| step.per_s >= 0.0)
            );
            let rate = |at: f64| plan.low.iter().rfind(|step| step.at.as_secs_f64() <= at).unwrap().per_s;
            for (part, range) in &plan.parts {
                let Part::Steady(load) = part else { continue };
                for at in [range.start - SETTLE.as_secs_f64() + 0.001, range.start, range.end - 0.001] {
                    assert_eq!(rate(at), load * CAPACITY_PER_S - HIGH_PER_S, "{part:?} at {at}");
                }
            }
            assert!(plan.steps_s.iter().all(|at| rate(at - 0.001) < rate(at + 0.001)));
            assert!(plan.bursts_s.iter().all(|at| rate(at - 0.001) > rate(at + 0.001)));
            assert_eq!(plan.low.last().unwrap().per_s, 0.0);
        }
    }
}
