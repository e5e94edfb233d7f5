//! Computes the figures of a part of a run from the outcome of each request.

use std::ops::Range;

use sidelong_figure::statistics::{mean, quantile};
use sidelong_workload::client::jain_index;

use super::plan::{BURST, BURST_LASTS, HIGH_CLIENTS, LOW_CLIENTS, Part, Plan, STEP, STEP_LASTS};
use super::{CAPACITY_PER_S, HIGH, LOW, TARGET_MS};
use crate::up::Fate;

/// Length in s of the windows of due times in which settling is judged.
const WINDOW_S: f64 = 0.050;
/// Seconds between the starts of two windows.
const EVERY_S: f64 = 0.005;
/// In a settled window this share is answered within the target, relative to the capacity or, if that is less, to the
/// offered load.
const SETTLED_MIN: f64 = 0.85;
/// In a settled window this quantile of the answers is within the target, too.
const QUANTILE: f64 = 0.99;
/// The curve after a step begins so long before it, and has a point for each of these intervals, in s.
const CURVE_BEFORE_S: f64 = 0.1;
const CURVE_POINT_S: f64 = 0.02;

/// The outcome of one request.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Sample {
    /// The due time since the start.
    pub(super) due_s: f64,
    /// The time from when it was due until the answer was complete.
    pub(super) ms: f64,
    pub(super) site: usize,
    pub(super) client: usize,
    pub(super) fate: Fate,
}

impl Sample {
    fn is_in_time(&self) -> bool {
        self.fate == Fate::Answered && self.ms <= TARGET_MS
    }
}

/// The figures of one part of a run, by measure.
pub(super) fn figures(
    plan: &Plan,
    part: Part,
    range: &Range<f64>,
    samples: &[Sample],
) -> Vec<(&'static str, f64)> {
    let of = over(samples, &[0.0], range.clone());
    let seconds = range.end - range.start;
    let count = |is: &dyn Fn(&Sample) -> bool| of.iter().filter(|sample| is(sample)).count() as f64;
    let ms = |is: &dyn Fn(&Sample) -> bool| {
        p99(of.iter().filter(|sample| is(sample)).map(|sample| sample.ms).collect())
    };
    let asked = of.len() as f64;
    // What could be answered; and the time until the site has settled from a step up, or from the end of a burst.
    let (could, recovery_ms) = match part {
        Part::Steady(_) => (asked.min(CAPACITY_PER_S * seconds), None),
        // Half of the time each. Requests that wait at the end of a step up are served after it.
        Part::Steps => (CAPACITY_PER_S * seconds * (STEP[0] + 1.0) / 2.0, Some(&plan.steps_s)),
        Part::Bursts => {
            let bursts_s = plan.bursts_s.len() as f64 * BURST_LASTS.as_secs_f64();
            (CAPACITY_PER_S * (bursts_s + BURST[0] * (seconds - bursts_s)), Some(&plan.bursts_s))
        }
    };
    let recovery_ms = recovery_ms.map(|changes_s| settled_ms(samples, changes_s, STEP_LASTS.as_secs_f64()));
    let answered = |sample: &Sample| sample.fate == Fate::Answered;
    let high = |sample: &Sample| sample.site == HIGH;
    // The clients of the lower priority.
    let mut each = [[0.0, 0.0]; LOW_CLIENTS];
    for sample in of.iter().filter(|sample| sample.site == LOW) {
        let client = sample.client.checked_sub(HIGH_CLIENTS).and_then(|client| each.get_mut(client));
        let Some([served, asked]) = client else { continue };
        *served += f64::from(u8::from(answered(sample)));
        *asked += 1.0;
    }
    let parts = each.into_iter().filter(|[_, asked]| *asked > 0.0).map(|[served, asked]| served / asked);
    let figures = [
        ("goodput", (could > 0.0).then(|| count(&Sample::is_in_time) / could)),
        ("p99_ms", ms(&answered)),
        ("reject_ms", ms(&|sample| sample.fate == Fate::Rejected)),
        ("recovery_ms", recovery_ms),
        ("fairness", jain_index(parts)),
        ("high_answered", (count(&high) > 0.0).then(|| count(&|s| high(s) && answered(s)) / count(&high))),
        ("high_p99_ms", ms(&|sample| high(sample) && answered(sample))),
        ("requests", Some(asked)),
        ("rejected", Some(count(&|sample| sample.fate == Fate::Rejected))),
        ("failed", Some(count(&|sample| sample.fate == Fate::Failed))),
    ];
    figures.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The mean response times around a step up, all steps laid one over another: ms since the step, and the mean in ms.
pub(super) fn after_a_step(plan: &Plan, samples: &[Sample]) -> Vec<(f64, f64)> {
    let points = ((CURVE_BEFORE_S + STEP_LASTS.as_secs_f64()) / CURVE_POINT_S).round() as usize;
    let point = |point: usize| {
        let from = point as f64 * CURVE_POINT_S - CURVE_BEFORE_S;
        let due = over(samples, &plan.steps_s, from..from + CURVE_POINT_S);
        let answered = due.iter().filter(|sample| sample.fate == Fate::Answered);
        let ms: Vec<f64> = answered.map(|sample| sample.ms).collect();
        Some(((from + CURVE_POINT_S / 2.0) * 1e3, mean(&ms)?))
    };
    (0..points).filter_map(point).collect()
}

fn p99(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    quantile(&values, QUANTILE)
}

/// The time after `changes_s`, laid one over another, from which each window of [`WINDOW_S`] within `length_s` is settled;
/// `length_s` if the last one is not.
fn settled_ms(samples: &[Sample], changes_s: &[f64], length_s: f64) -> f64 {
    let windows = ((length_s - WINDOW_S) / EVERY_S).floor() as usize + 1;
    let could = CAPACITY_PER_S * WINDOW_S * changes_s.len() as f64;
    let is_settled = |window: usize| {
        let from = window as f64 * EVERY_S;
        let within = over(samples, changes_s, from..from + WINDOW_S);
        let in_time = within.iter().filter(|sample| sample.is_in_time()).count() as f64;
        let answered = within.iter().filter(|sample| sample.fate == Fate::Answered);
        let p99 = p99(answered.map(|sample| sample.ms).collect());
        in_time >= SETTLED_MIN * could.min(within.len() as f64) && p99.is_some_and(|ms| ms <= TARGET_MS)
    };
    let unsettled = (0..windows).rev().find(|window| !is_settled(*window));
    match unsettled {
        None => 0.0,
        Some(last) if last + 1 == windows => length_s * 1e3,
        // The fault of a window may lie in its last moment.
        Some(last) => (last + 1) as f64 * EVERY_S * 1e3,
    }
}

/// The requests that were due this long after one of `changes_s`.
fn over(samples: &[Sample], changes_s: &[f64], after_s: Range<f64>) -> Vec<Sample> {
    // Samples are in order.
    let at = |s: f64| samples.partition_point(|sample| sample.due_s < s);
    changes_s
        .iter()
        .flat_map(|change| &samples[at(change + after_s.start)..at(change + after_s.end)])
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::overload::plan::Extent;

    fn answered(due_s: f64, ms: f64) -> Sample {
        Sample { due_s, ms, site: LOW, client: HIGH_CLIENTS, fate: Fate::Answered }
    }

    /// Answers at the capacity for a second from `from_s`. Those due before `late_s` are late.
    fn answers(from_s: f64, late_s: f64) -> Vec<Sample> {
        let gap_s = 1.0 / CAPACITY_PER_S;
        (0..CAPACITY_PER_S as u32)
            .map(|k| f64::from(k) * gap_s)
            .map(|s| answered(from_s + s, if s < late_s { 1e4 } else { 1.0 }))
            .collect()
    }

    #[test]
    fn a_step_is_settled_when_nothing_is_late_any_more() {
        assert_eq!(settled_ms(&answers(3.0, 0.0), &[3.0], 0.6), 0.0);
        let ms = settled_ms(&answers(3.0, 0.1), &[3.0], 0.6);
        assert!((95.0..=105.0).contains(&ms), "{ms}");
        assert_eq!(settled_ms(&answers(3.0, 0.59), &[3.0], 0.6), 600.0);
        assert_eq!(settled_ms(&[], &[3.0], 0.6), 600.0);
        // Too few are admitted for the first 200 ms.
        let mut few = answers(3.0, 0.0);
        few.iter_mut().enumerate().for_each(|(k, sample)| {
            if sample.due_s < 3.2 && k % 2 == 0 {
                sample.fate = Fate::Rejected;
            }
        });
        let ms = settled_ms(&few, &[3.0], 0.6);
        assert!((160.0..=200.0).contains(&ms), "{ms}");
    }

    #[test]
    fn goodput_is_of_what_could_be_done() {
        let plan = Plan::new(&Extent::of(true));
        let (part, range) = plan.parts.iter().find(|(part, _)| *part == Part::Steady(2.0)).unwrap();
        let mut samples = Vec::new();
        for second in 0..3 {
            let from_s = range.start + f64::from(second);
            samples.extend(answers(from_s, 0.0));
            // As many requests are rejected, within 0.1 ms.
            let away = |sample: Sample| Sample { fate: Fate::Rejected, ms: 0.1, site: HIGH, ..sample };
            samples.extend(answers(from_s, 0.0).into_iter().map(away));
        }
        samples.sort_by(|one, other| one.due_s.total_cmp(&other.due_s));
        let figures = BTreeMap::from_iter(figures(&plan, *part, range, &samples));
        assert!((figures["goodput"] - 1.0).abs() < 0.01, "{figures:?}");
        let of = ["p99_ms", "reject_ms", "fairness", "high_answered"].map(|name| figures[name]);
        assert_eq!(of, [1.0, 0.1, 1.0, 0.0]);
        assert_eq!(figures["requests"], 2.0 * figures["rejected"]);
        assert!(!figures.contains_key("recovery_ms"));
    }

    #[test]
    fn the_curve_lays_all_steps_one_over_another() {
        let mut plan = Plan::new(&Extent::of(true));
        plan.steps_s = vec![3.0, 5.0];
        let at = |due_s, ms| answered(due_s, ms);
        let samples = [at(2.905, 2.0), at(3.001, 10.0), at(4.5, 99.0), at(5.001, 30.0)];
        let curve = after_a_step(&plan, &samples);
        let rounded: Vec<_> = curve.iter().map(|(ms, mean)| (ms.round(), *mean)).collect();
        assert_eq!(rounded, [(-90.0, 2.0), (10.0, 20.0)]);
    }
}
