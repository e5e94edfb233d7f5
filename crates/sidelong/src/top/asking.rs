//! What `top` shows of admission, and of what edges learned of servers: requested from the edges about once a second beside the scans. An edge that does not
//! answer delays no page.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sidelong_config::Cluster;

use crate::status::{Standing, Standings, standings};

/// Interval at which the edges are asked.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Time in which the thread's end is noticed, unless the edges answer earlier.
const END_EVERY: Duration = Duration::from_millis(50);

/// Admission of a site, as the edges report it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Admitted {
    pub(super) standing: Standing,
    /// Requests rejected per second, between the last two answers; `None` before the second.
    pub(super) rejected_per_s: Option<f64>,
    /// The reason for most of these, or before the second answer for most so far; `None` if there were none.
    pub(super) why: Option<String>,
}

impl Admitted {
    fn first(standing: Standing) -> Self {
        let why = most(&standing.rejected_by, &BTreeMap::new());
        Admitted { standing, rejected_per_s: None, why }
    }

    /// The figures `after` the time since `before`.
    fn next(standing: Standing, before: &Standing, seconds: f64) -> Self {
        // An edge that was restarted begins at 0.
        let rejected = standing.rejected.saturating_sub(before.rejected);
        let why = most(&standing.rejected_by, &before.rejected_by);
        Admitted { standing, rejected_per_s: Some(rejected as f64 / seconds), why }
    }
}

/// The reason whose count has grown most.
fn most(now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> Option<String> {
    let grown = now.iter().map(|(why, count)| (count.saturating_sub(*before.get(why).unwrap_or(&0)), why));
    grown.max().filter(|(count, _)| *count > 0).map(|(_, why)| why.clone())
}

/// What edges say.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Heard {
    /// By site; empty if no requests are ever rejected.
    pub(super) admitted: Vec<Admitted>,
    /// By node, see [`Standings::learned_workers`].
    pub(super) learned_workers: Vec<Option<u32>>,
}

/// The thread that asks. It ends some time after this is dropped.
pub(super) struct Asking {
    latest: Arc<Mutex<Heard>>,
    stop: Arc<AtomicBool>,
}

impl Asking {
    /// Starts to ask the edges. Returns after the first answer.
    pub(super) fn start(cluster: Cluster) -> std::io::Result<Self> {
        let Standings { sites, learned_workers } = standings(&cluster);
        let admitted = sites.iter().cloned().map(Admitted::first).collect();
        let latest = Arc::new(Mutex::new(Heard { admitted, learned_workers }));
        let stop = Arc::new(AtomicBool::new(false));
        let (shown, stopped) = (Arc::clone(&latest), Arc::clone(&stop));
        let ask = move || {
            let (mut before, mut asked) = (sites, Instant::now());
            while !stopped.load(Ordering::Relaxed) {
                if asked.elapsed() < ASK_EVERY {
                    std::thread::sleep(END_EVERY);
                    continue;
                }
                let seconds = asked.elapsed().as_secs_f64();
                asked = Instant::now();
                let Standings { sites, learned_workers } = standings(&cluster);
                let both = sites.iter().zip(&before);
                let admitted =
                    both.map(|(now, before)| Admitted::next(now.clone(), before, seconds)).collect();
                *shown.lock().unwrap_or_else(PoisonError::into_inner) = Heard { admitted, learned_workers };
                before = sites;
            }
        };
        std::thread::Builder::new().name("asking".into()).spawn(ask)?;
        Ok(Asking { latest, stop })
    }

    /// The last answer.
    pub(super) fn latest(&self) -> Heard {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_reasons_are_of_late() {
        let standing = |over_target, greedy| Standing {
            rejected: over_target + greedy,
            rejected_by: [("over-target", over_target), ("greedy", greedy)]
                .map(|(why, n)| (why.into(), n))
                .into(),
            ..Standing::default()
        };
        let first = Admitted::first(standing(90, 1));
        assert_eq!((first.rejected_per_s, first.why.as_deref()), (None, Some("over-target")));
        let next = Admitted::next(standing(91, 9), &first.standing, 0.5);
        assert_eq!((next.rejected_per_s, next.why.as_deref()), (Some(18.0), Some("greedy")));
        let again = Admitted::next(standing(0, 0), &next.standing, 1.0);
        assert_eq!((again.rejected_per_s, again.why), (Some(0.0), None), "the edges were started again");
    }
}
