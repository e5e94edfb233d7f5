//! Makes a node's records: the kernel's figures and the server's own, in one.

use std::fmt;

use sidelong_layout::{Detail, Hot, valid};

use crate::Error;
use crate::origin::{OriginGauge, OriginLoad};
use crate::own::OwnRecord;
use crate::sampler::{RATE_WINDOW_NS, Sample, Sampler, Scope, Window, per_second};

/// What a [`Keeper`](crate::Keeper) or a [`Responder`](crate::Responder) makes records with.
pub struct Recorder {
    sampler: Sampler,
    /// The latest look at the kernel's files.
    sample: Sample,
    gauge: Option<OriginGauge>,
    /// The latest answer of the server.
    origin: OriginLoad,
    sent_bytes: Window<u64>,
}

impl Recorder {
    /// Of the load of `scope`, and of a server whose load `gauge` tells.
    ///
    /// # Errors
    /// [`Error::NothingToSample`] as [`Sampler::new`].
    pub fn new(scope: &Scope, gauge: Option<OriginGauge>) -> Result<Self, Error> {
        Ok(Recorder {
            sampler: Sampler::new(scope)?,
            sample: Sample::default(),
            gauge,
            origin: OriginLoad::default(),
            sent_bytes: Window::default(),
        })
    }

    /// The record of now, made for the node itself.
    pub fn own(&mut self, now_ns: u64) -> OwnRecord {
        self.look(now_ns);
        OwnRecord { hot: Some(self.hot(now_ns)), detail: Some(self.detail()) }
    }

    /// Looks at the kernel's files.
    pub(crate) fn look(&mut self, now_ns: u64) {
        self.sample = self.sampler.sample(now_ns);
    }

    /// A hot line: the server's figures of now, the kernel's of the last look.
    pub(crate) fn hot(&mut self, now_ns: u64) -> Hot {
        let mut hot = Hot { time_ns: now_ns, ..self.sample.hot };
        let Some(gauge) = &self.gauge else { return hot };
        let origin = gauge();
        self.origin = origin;
        origin.fill(&mut hot);
        // Neither a process nor a control group has network counters; what its server sends stands for them.
        let earlier = self.sent_bytes.slide(now_ns, origin.sent_bytes, RATE_WINDOW_NS);
        if let (0, Some((elapsed_ns, sent_bytes))) = (hot.valid & valid::NETWORK, earlier) {
            hot.net_bytes_per_s = per_second(origin.sent_bytes.saturating_sub(sent_bytes), elapsed_ns);
            hot.valid |= valid::NETWORK;
        }
        hot
    }

    /// The detail part of the last look. Its time is that of the look, and so of the kernel's figures in the hot line.
    pub(crate) fn detail(&self) -> Detail {
        Detail {
            pid: std::process::id(),
            errors: self.origin.errors,
            origin_sent_bytes: self.origin.sent_bytes,
            ..self.sample.detail
        }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("sampler", &self.sampler).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn the_server_speaks_for_itself_and_for_a_network_that_has_no_counter() {
        let sent_bytes = Arc::new(AtomicU64::new(0));
        let gauge: OriginGauge = Box::new({
            let sent_bytes = Arc::clone(&sent_bytes);
            move || OriginLoad {
                connections: 5,
                queued: 4,
                busy: 3,
                workers: 2,
                service_us: 900,
                served: 10,
                errors: 1,
                sent_bytes: sent_bytes.load(Ordering::Relaxed),
            }
        });
        let mut recorder = Recorder::new(&Scope::Process(std::process::id()), Some(gauge)).unwrap();
        recorder.look(0);
        let first = recorder.hot(0);
        assert_eq!(first.valid & (valid::ORIGIN | valid::NETWORK), valid::ORIGIN);
        assert_eq!((first.connections, first.queued, first.busy), (5, 4, 3));
        assert_eq!((first.workers, first.service_us, first.served), (2, 900, 10));

        sent_bytes.store(7000, Ordering::Relaxed);
        let second = recorder.hot(RATE_WINDOW_NS);
        assert_eq!(second.net_bytes_per_s, 7000 * 1_000_000_000 / RATE_WINDOW_NS);
        assert_ne!(second.valid & valid::NETWORK, 0);
        let detail = recorder.detail();
        assert_eq!((detail.errors, detail.origin_sent_bytes, detail.time_ns), (1, 7000, 0));
        assert_eq!(detail.pid, std::process::id());
    }

    #[test]
    fn without_a_server_nothing_is_claimed_for_it() {
        let mut recorder = Recorder::new(&Scope::Machine, None).unwrap();
        recorder.look(1);
        assert_eq!(recorder.hot(1).valid & valid::ORIGIN, 0);
    }
}
