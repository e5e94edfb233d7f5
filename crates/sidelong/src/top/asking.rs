//! Whom the edges let in, asked of them about once a second beside the looks: one that does not answer holds up no page.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sidelong_config::Cluster;

use crate::status::{Standing, standings};

/// Between two times that the edges are asked.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Its end is noticed within this, or when the edges have answered.
const END_EVERY: Duration = Duration::from_millis(50);

/// How a site stands with the edges.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Admitted {
    pub(super) standing: Standing,
    /// Requests turned away, between the last two times that the edges were asked; `None` before the second.
    pub(super) rejected_per_s: Option<f64>,
}

/// The thread that asks; it ends some time after this is dropped.
pub(super) struct Asking {
    latest: Arc<Mutex<Vec<Admitted>>>,
    stop: Arc<AtomicBool>,
}

impl Asking {
    /// Of a cluster where requests may be turned away. The first answer is there when this returns.
    pub(super) fn start(cluster: Cluster) -> std::io::Result<Self> {
        let first = standings(&cluster);
        let admitted = first.iter().map(|standing| Admitted { standing: *standing, rejected_per_s: None });
        let latest = Arc::new(Mutex::new(admitted.collect()));
        let stop = Arc::new(AtomicBool::new(false));
        let (shown, stopped) = (Arc::clone(&latest), Arc::clone(&stop));
        let ask = move || {
            let (mut before, mut asked) = (first, Instant::now());
            while !stopped.load(Ordering::Relaxed) {
                if asked.elapsed() < ASK_EVERY {
                    std::thread::sleep(END_EVERY);
                    continue;
                }
                let seconds = asked.elapsed().as_secs_f64();
                asked = Instant::now();
                let now = standings(&cluster);
                let admitted = now.iter().zip(&before).map(|(now, before)| Admitted {
                    standing: *now,
                    // An edge that was started again begins at 0.
                    rejected_per_s: Some(now.rejected.saturating_sub(before.rejected) as f64 / seconds),
                });
                *shown.lock().unwrap_or_else(PoisonError::into_inner) = admitted.collect();
                before = now;
            }
        };
        std::thread::Builder::new().name("asking".into()).spawn(ask)?;
        Ok(Asking { latest, stop })
    }

    /// What they said last.
    pub(super) fn latest(&self) -> Vec<Admitted> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
