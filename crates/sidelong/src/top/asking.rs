//! What edges alone know, for the pages of `top` and `up`: admission, what they learned of servers, and where documents come from.
//! It is requested about once a second beside the scans. An edge that does not answer delays no page.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sidelong_config::Cluster;
use sidelong_edge::DocumentStatus;

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

/// What an edge answers from nodes' memory.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Documents {
    pub(crate) edge: String,
    /// Since it started; `None` while it does not answer.
    pub(crate) total: Option<DocumentStatus>,
    /// Between its last two answers, and the seconds that passed.
    recent: Option<(DocumentStatus, f64)>,
}

impl Documents {
    fn next(
        edge: &str,
        total: Option<DocumentStatus>,
        before: Option<&DocumentStatus>,
        seconds: f64,
    ) -> Self {
        let recent = total.zip(before).and_then(|(total, before)| Some((total.since(before)?, seconds)));
        Documents { edge: edge.to_owned(), total, recent }
    }

    /// Requests by the second.
    pub(crate) fn requests_per_s(&self) -> Option<f64> {
        self.recent.map(|(recent, seconds)| recent.requests() as f64 / seconds)
    }

    /// MiB from memory by the second.
    pub(crate) fn mib_per_s(&self) -> Option<f64> {
        self.recent.map(|(recent, seconds)| recent.memory_bytes as f64 / f64::from(1 << 20) / seconds)
    }

    /// The part of recent requests that `count` counts, as a percentage.
    pub(crate) fn percent(&self, count: fn(&DocumentStatus) -> u64) -> Option<f64> {
        let (recent, _) = self.recent.filter(|(recent, _)| recent.requests() > 0)?;
        Some(100.0 * count(&recent) as f64 / recent.requests() as f64)
    }

    /// The documents of all edges.
    pub(crate) fn sum(edges: &[Documents]) -> Documents {
        let sum = |of: fn(&Documents) -> Option<DocumentStatus>| {
            edges.iter().filter_map(of).reduce(|a, b| a.and(&b))
        };
        let seconds = edges.iter().find_map(|edge| edge.recent).map(|(_, seconds)| seconds);
        let recent = sum(|edge| edge.recent.map(|(recent, _)| recent));
        Documents { edge: String::new(), total: sum(|edge| edge.total), recent: recent.zip(seconds) }
    }
}

/// What edges say.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Heard {
    /// By site; empty if no requests are ever rejected.
    pub(super) admitted: Vec<Admitted>,
    /// By node, see [`Standings::learned_workers`].
    pub(super) learned_workers: Vec<Option<u32>>,
    /// By edge; empty if nodes keep no documents.
    pub(crate) documents: Vec<Documents>,
}

impl Heard {
    /// What is said `seconds` after `before`, if anything was.
    fn new(cluster: &Cluster, now: &Standings, before: Option<&Standings>, seconds: f64) -> Self {
        let admitted = now.sites.iter().enumerate().map(|(index, site)| match before {
            Some(before) => Admitted::next(site.clone(), &before.sites[index], seconds),
            None => Admitted::first(site.clone()),
        });
        let keeps = cluster.cache.documents;
        let edges = cluster.edges.iter().zip(&now.documents).enumerate().filter(|_| keeps);
        let documents = edges.map(|(index, (edge, documents))| {
            let before = before.and_then(|before| before.documents[index].as_ref());
            Documents::next(&edge.name, *documents, before, seconds)
        });
        Heard {
            admitted: admitted.collect(),
            learned_workers: now.learned_workers.clone(),
            documents: documents.collect(),
        }
    }
}

/// The thread that asks. It ends some time after this is dropped.
pub(crate) struct Asking {
    latest: Arc<Mutex<Heard>>,
    stop: Arc<AtomicBool>,
}

impl Asking {
    /// Starts to ask the edges, if they know something of `cluster` that is shown. Returns after the first answer.
    pub(crate) fn start(cluster: &Cluster) -> std::io::Result<Option<Self>> {
        let has_foreign = cluster.nodes.values().any(|node| node.is_foreign);
        if !cluster.has_admission() && !has_foreign && !cluster.cache.documents {
            return Ok(None);
        }
        let (cluster, mut asked) = (cluster.clone(), Instant::now());
        let mut before = standings(&cluster);
        let latest = Arc::new(Mutex::new(Heard::new(&cluster, &before, None, 0.0)));
        let stop = Arc::new(AtomicBool::new(false));
        let (shown, stopped) = (Arc::clone(&latest), Arc::clone(&stop));
        let ask = move || {
            while !stopped.load(Ordering::Relaxed) {
                if asked.elapsed() < ASK_EVERY {
                    std::thread::sleep(END_EVERY);
                    continue;
                }
                let seconds = asked.elapsed().as_secs_f64();
                asked = Instant::now();
                let now = standings(&cluster);
                let heard = Heard::new(&cluster, &now, Some(&before), seconds);
                *shown.lock().unwrap_or_else(PoisonError::into_inner) = heard;
                before = now;
            }
        };
        std::thread::Builder::new().name("asking".into()).spawn(ask)?;
        Ok(Some(Asking { latest, stop }))
    }

    /// The last answer.
    pub(crate) fn latest(&self) -> Heard {
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

    #[test]
    fn documents_are_of_late_and_summed_up() {
        let status = |memory, server| DocumentStatus {
            memory,
            server,
            memory_bytes: memory << 20,
            ..Default::default()
        };
        let next = |now, before: Option<DocumentStatus>| Documents::next("edge1", now, before.as_ref(), 2.0);
        let first = next(Some(status(5, 1)), None);
        assert_eq!((first.total.map(|total| total.requests()), first.requests_per_s()), (Some(6), None));
        let second = next(Some(status(35, 11)), first.total);
        let figures = |of: &Documents| (of.requests_per_s(), of.percent(|of| of.memory), of.mib_per_s());
        assert_eq!(figures(&second), (Some(20.0), Some(75.0), Some(15.0)));
        assert_eq!(
            figures(&next(Some(status(1, 0)), second.total)),
            (None, None, None),
            "it was started again"
        );
        assert_eq!(figures(&next(None, second.total)), (None, None, None), "it does not answer");
        let still = next(second.total, second.total);
        assert_eq!(figures(&still), (Some(0.0), None, Some(0.0)));
        let sum = Documents::sum(&[first, second.clone(), still, next(None, None)]);
        assert_eq!(figures(&sum), figures(&second));
        assert_eq!(sum.total.map(|total| total.memory), Some(75));
    }
}
