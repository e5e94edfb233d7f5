//! Makes a node's records from the kernel's figures and the server's own.

use std::fmt;

use sidelong_layout::{ByServer, Detail, Hot, valid};

use crate::Error;
use crate::listener::{Foreign, Listener, Listening, Origins};
use crate::origin::{OriginGauge, OriginLoad};
use crate::own::OwnRecord;
use crate::sampler::{RATE_WINDOW_NS, Sample, Sampler, Scope, Window, per_second};

/// Makes the records of a [`Keeper`](crate::Keeper) or a [`Responder`](crate::Responder).
pub struct Recorder {
    sampler: Sampler,
    /// The last sample of the kernel's files.
    sample: Sample,
    gauge: Option<OriginGauge>,
    foreign: Option<Watched>,
    /// The server's last answer.
    origin: OriginLoad,
    sent_bytes: Window<u64>,
}

/// A foreign server, as of the last hot line.
struct Watched {
    foreign: Foreign,
    listener: Listener,
    last: Option<Listening>,
    /// The most connections of others than the edges, and when they were seen.
    bypassing: Option<(u32, u64)>,
    /// Whether they may be there.
    is_exclusive: bool,
}

/// Connections of others than the edges count for this long, in ns: their next ones may come soon.
const STRANGERS_NS: u64 = 10_000_000_000;

impl Watched {
    fn look(&mut self, now_ns: u64) {
        // Nothing is claimed of a server that does not listen.
        self.last = self.listener.follow(now_ns).ok().filter(|found| found.sockets > 0);
        let now = self.last.map_or(0, |found| found.bypassing);
        self.bypassing
            .take_if(|(count, at_ns)| *count <= now || now_ns.saturating_sub(*at_ns) > STRANGERS_NS);
        if now > 0 && self.bypassing.is_none() {
            self.bypassing = Some((now, now_ns));
        }
    }

    fn fill(&self, hot: &mut Hot) {
        if let Some(found) = &self.last {
            self.foreign.fill(found.established, found.queued, hot);
        }
        if let Some((count, _)) = self.bypassing {
            hot.by_server = ByServer::bypassing(count);
            hot.valid |= if self.is_exclusive { 0 } else { valid::SHARED };
        }
    }
}

impl Recorder {
    /// A recorder of the load of `scope`, and of a server whose load `gauge` returns.
    ///
    /// # Errors
    /// [`Error::NothingToSample`] as [`Sampler::new`].
    pub fn new(scope: &Scope, gauge: Option<OriginGauge>) -> Result<Self, Error> {
        Ok(Recorder {
            sampler: Sampler::new(scope)?,
            sample: Sample::default(),
            gauge,
            foreign: None,
            origin: OriginLoad::default(),
            sent_bytes: Window::default(),
        })
    }

    /// Records the connections of a foreign server, too, and those that do not come from `origins`. If it `is_exclusive` these
    /// are none that matter.
    ///
    /// # Errors
    /// If the kernel tells nothing of sockets.
    pub fn of_foreign(self, foreign: Foreign, origins: Origins, is_exclusive: bool) -> Result<Self, Error> {
        let listener = Listener::new(foreign.servers.clone()).map_err(Error::Listener)?.knowing(origins);
        let watched = Watched { foreign, listener, last: None, bypassing: None, is_exclusive };
        Ok(Recorder { foreign: Some(watched), ..self })
    }

    /// The current record, for the node itself.
    pub fn own(&mut self, now_ns: u64) -> OwnRecord {
        self.look(now_ns);
        OwnRecord { hot: Some(self.hot(now_ns)), detail: Some(self.detail()) }
    }

    /// Samples the kernel's files.
    pub(crate) fn look(&mut self, now_ns: u64) {
        self.sample = self.sampler.sample(now_ns);
    }

    /// A hot line: the server's current figures, or those of a foreign server's port, and the kernel's of the last sample.
    pub(crate) fn hot(&mut self, now_ns: u64) -> Hot {
        let mut hot = Hot { time_ns: now_ns, ..self.sample.hot };
        if let Some(watched) = &mut self.foreign {
            watched.look(now_ns);
            watched.fill(&mut hot);
        }
        let Some(gauge) = &self.gauge else { return hot };
        let origin = gauge();
        self.origin = origin;
        origin.fill(&mut hot);
        // A process or control group has no network counters, so the bytes that its server sends are used instead.
        let earlier = self.sent_bytes.slide(now_ns, origin.sent_bytes, RATE_WINDOW_NS);
        if let (0, Some((elapsed_ns, sent_bytes))) = (hot.valid & valid::NETWORK, earlier) {
            hot.net_bytes_per_s = per_second(origin.sent_bytes.saturating_sub(sent_bytes), elapsed_ns);
            hot.valid |= valid::NETWORK;
        }
        hot
    }

    /// The detail part of the last sample. Its time is also that of the kernel's figures in the hot line.
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
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::listener::PAUSE_NS_MAX;

    #[test]
    fn who_connects_past_the_edges_counts_for_a_while() {
        for (is_exclusive, shared) in [(true, 0), (false, valid::SHARED)] {
            let listening = TcpListener::bind("127.9.8.4:0").unwrap();
            let server = listening.local_addr().unwrap();
            let foreign = Foreign { servers: vec![server.into()], workers: None };
            let origins = Origins::from(vec!["192.0.2.1".parse().unwrap()]);
            let recorder = Recorder::new(&Scope::Process(std::process::id()), None).unwrap();
            let mut recorder = recorder.of_foreign(foreign, origins, is_exclusive).unwrap();
            let mut seen = |now_ns| {
                let hot = recorder.hot(now_ns);
                (hot.bypassing().unwrap(), hot.valid & valid::SHARED)
            };
            // As long after the first count as none is put off.
            let came_ns = PAUSE_NS_MAX;
            assert_eq!(seen(0), (0, 0));
            let bypassing = [0; 2].map(|_| TcpStream::connect(server).unwrap());
            assert_eq!(seen(came_ns), (2, shared));
            drop((bypassing, listening.accept(), listening.accept()));
            assert_eq!(seen(came_ns + STRANGERS_NS), (2, shared));
            assert_eq!(seen(came_ns + STRANGERS_NS + PAUSE_NS_MAX), (0, 0));
        }
    }

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
        assert_eq!((first.workers, first.service_us(), first.bypassing()), (2, Some(900), None));
        assert_eq!(first.served, 10);

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
