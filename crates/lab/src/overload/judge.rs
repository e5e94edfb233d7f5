//! Computes the figures of a row from the outcome of each request.

use std::ops::Range;

use serde::Serialize;
use sidelong_figure::statistics::quantile;
use sidelong_workload::client::jain_index;

use super::plan::{BURST, BURST_LASTS, Part, Plan, STEP, STEP_LASTS};
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

/// The figures of one part of a run.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub(super) struct Figures {
    /// Requests that were answered within the target, relative to the capacity of all servers.
    pub(super) goodput: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    /// 99th percentile of the time until a client knew of its rejection.
    pub(super) reject_ms: Option<f64>,
    /// Time from a step up, or from the end of a burst, until the site has settled. [`None`] if there was no change, and
    /// the whole time observed if it never settled.
    pub(super) recovery_ms: Option<f64>,
    /// Jain's index of the shares that the clients of the lower priority were given of their requests.
    pub(super) fairness: Option<f64>,
    /// For the higher priority: the share that was answered, and the response time.
    pub(super) high_answered: Option<f64>,
    pub(super) high_p99_ms: Option<f64>,
    /// Requests that were rejected, requests that failed otherwise, and all requests.
    pub(super) turned_away: u64,
    pub(super) failed: u64,
    pub(super) asked: u64,
}

/// The figures of each part of `plan`, in its order. `clients` are those of the lower priority.
pub(super) fn figures(plan: &Plan, samples: &[Sample], clients: &Range<usize>) -> Vec<Figures> {
    plan.parts.iter().map(|(part, range)| of_part(plan, *part, range, samples, clients)).collect()
}

fn of_part(
    plan: &Plan,
    part: Part,
    range: &Range<f64>,
    samples: &[Sample],
    clients: &Range<usize>,
) -> Figures {
    let of: Vec<Sample> = samples.iter().filter(|sample| range.contains(&sample.due_s)).copied().collect();
    let seconds = range.end - range.start;
    let count = |is: &dyn Fn(&Sample) -> bool| of.iter().filter(|sample| is(sample)).count() as f64;
    let ms = |is: &dyn Fn(&Sample) -> bool| {
        p99(of.iter().filter(|sample| is(sample)).map(|sample| sample.ms).collect())
    };
    let asked = of.len() as f64;
    let could = match part {
        Part::Steady(_) => asked.min(CAPACITY_PER_S * seconds),
        // Half of the time each. Requests that wait at the end of a step up are served after it.
        Part::Steps => CAPACITY_PER_S * seconds * (STEP[0] + 1.0) / 2.0,
        Part::Bursts => {
            let bursts_s = plan.bursts_s.len() as f64 * BURST_LASTS.as_secs_f64();
            CAPACITY_PER_S * (bursts_s + BURST[0] * (seconds - bursts_s))
        }
    };
    let recovery_ms = match part {
        Part::Steady(_) => None,
        Part::Steps => Some(settled_ms(samples, &plan.steps_s, STEP_LASTS.as_secs_f64())),
        Part::Bursts => Some(settled_ms(samples, &plan.bursts_s, STEP_LASTS.as_secs_f64())),
    };
    let high = |sample: &Sample| sample.site == HIGH;
    let mut each = vec![[0.0, 0.0]; clients.len()];
    for sample in of.iter().filter(|sample| sample.site == LOW) {
        let Some(client) = sample.client.checked_sub(clients.start) else { continue };
        let [answered, asked] = &mut each[client];
        *answered += f64::from(u8::from(sample.fate == Fate::Answered));
        *asked += 1.0;
    }
    let parts = each.into_iter().filter(|[_, asked]| *asked > 0.0).map(|[answered, asked]| answered / asked);
    Figures {
        goodput: (could > 0.0).then(|| count(&Sample::is_in_time) / could),
        p99_ms: ms(&|sample| sample.fate == Fate::Answered),
        reject_ms: ms(&|sample| sample.fate == Fate::TurnedAway),
        recovery_ms,
        fairness: jain_index(parts),
        high_answered: (count(&high) > 0.0)
            .then(|| count(&|s| high(s) && s.fate == Fate::Answered) / count(&high)),
        high_p99_ms: ms(&|sample| high(sample) && sample.fate == Fate::Answered),
        turned_away: count(&|sample| sample.fate == Fate::TurnedAway) as u64,
        failed: count(&|sample| sample.fate == Fate::Failed) as u64,
        asked: of.len() as u64,
    }
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
pub(super) fn over(samples: &[Sample], changes_s: &[f64], after_s: Range<f64>) -> Vec<Sample> {
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
    use super::*;
    use crate::overload::plan::Extent;

    fn answered(due_s: f64, ms: f64) -> Sample {
        Sample { due_s, ms, site: LOW, client: 0, fate: Fate::Answered }
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
                sample.fate = Fate::TurnedAway;
            }
        });
        let ms = settled_ms(&few, &[3.0], 0.6);
        assert!((160.0..=200.0).contains(&ms), "{ms}");
    }

    #[test]
    fn goodput_is_of_what_could_be_done() {
        let plan = Plan::new(&Extent::QUICK);
        let (_, range) = plan.parts.iter().find(|(part, _)| *part == Part::Steady(2.0)).unwrap();
        let mut samples = Vec::new();
        for second in 0..3 {
            let from_s = range.start + f64::from(second);
            samples.extend(answers(from_s, 0.0));
            // As many requests are rejected, within 0.1 ms.
            let away = |sample: Sample| Sample { fate: Fate::TurnedAway, ms: 0.1, site: HIGH, ..sample };
            samples.extend(answers(from_s, 0.0).into_iter().map(away));
        }
        samples.sort_by(|one, other| one.due_s.total_cmp(&other.due_s));
        let place = plan.parts.iter().position(|(part, _)| *part == Part::Steady(2.0)).unwrap();
        let figures = figures(&plan, &samples, &(0..1))[place];
        assert!((figures.goodput.unwrap() - 1.0).abs() < 0.01, "{figures:?}");
        assert_eq!((figures.p99_ms, figures.reject_ms), (Some(1.0), Some(0.1)));
        assert_eq!((figures.fairness, figures.high_answered), (Some(1.0), Some(0.0)));
        assert_eq!(figures.recovery_ms, None);
    }
}
