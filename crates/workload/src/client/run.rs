//! A run, from its start to its summary.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::closed::closed_loop;
use super::config::{ClientConfig, ClientError, Load};
use super::ledger::{Extent, Ledger, Page};
use super::open::open_loop;
use super::pace::Schedule;
use super::report::{Live, Summary};
use super::worker::{Completion, Observer, Recorder, Shared, Source, Worker};

/// Time from the call of `start` to the start, in which the threads come up without being measured.
const LEAD: Duration = Duration::from_millis(2);

/// A load generator that has not started.
pub struct Generator {
    config: ClientConfig,
    source: Box<dyn Source>,
    observer: Option<Box<Observer>>,
}

impl Generator {
    /// A generator that sends requests from `source` to the edges, as `config` specifies.
    ///
    /// # Errors
    /// If `config` is not valid.
    pub fn new(config: ClientConfig, source: impl Source + 'static) -> Result<Self, ClientError> {
        config.check()?;
        Ok(Generator { config, source: Box::new(source), observer: None })
    }

    /// Calls `observer` for each completed request, on the thread that made it. It must be quick and not panic. It can
    /// tell when a node first answers for a site.
    pub fn observe(self, observer: impl Fn(&Completion<'_>) + Send + Sync + 'static) -> Self {
        Generator { observer: Some(Box::new(observer)), ..self }
    }

    /// Starts the run on threads of its own.
    ///
    /// # Errors
    /// If a thread cannot be created.
    pub fn start(self) -> Result<Run, ClientError> {
        let config = &self.config;
        let (sites, edges, clients) = (config.sites.len(), config.edges.len(), config.clients_count());
        let extent = Extent { sites, edges, clients };
        let lanes = match config.load {
            Load::Closed { connections_per_edge, .. } => connections_per_edge as usize * edges,
            Load::Open { in_flight_max, .. } => in_flight_max as usize,
        };
        let threads = config.threads.min(lanes);
        let shared = Arc::new(Shared {
            // A page more, for a recorder.
            ledger: Ledger::new(threads + 1, extent, config.series),
            config: self.config,
            source: self.source,
            observer: self.observer,
            epoch: Instant::now() + LEAD,
            next_index: AtomicU64::new(0),
            stop: Arc::new(watch::Sender::new(false)),
        });
        let mut run = Run {
            window_start: shared.epoch,
            shared: Arc::clone(&shared),
            threads: Vec::new(),
            recorder: threads,
            total: Page::new(extent),
            window: Page::new(extent),
            spare: Page::new(extent),
        };
        for number in 0..threads {
            let runtime = Builder::new_current_thread().enable_all().build().map_err(ClientError::Thread)?;
            let worker = Worker { shared: Arc::clone(&shared), number };
            let thread = std::thread::Builder::new().name(format!("load-{number}"));
            let thread = thread.spawn(move || work(&runtime, worker, threads));
            // A run that is dropped here stops its threads.
            run.threads.push(thread.map_err(ClientError::Thread)?);
        }
        Ok(run)
    }
}

/// Runs one thread's part to its end.
fn work(runtime: &Runtime, worker: Worker, threads: usize) -> io::Result<()> {
    let shared = Arc::clone(&worker.shared);
    match &shared.config.load {
        Load::Closed { connections_per_edge, think } => {
            let edges = shared.config.edges.len();
            let lanes =
                (0..*connections_per_edge as usize).flat_map(|lane| (0..edges).map(move |edge| (lane, edge)));
            // Diagonally, so that each thread has a part of each edge, and none is idle when an edge dies.
            let own = lanes.filter(|(lane, edge)| (lane + edge) % threads == worker.number);
            runtime.block_on(async {
                let mut loops = JoinSet::new();
                for (lane, edge) in own {
                    let client = (lane * edges + edge) % shared.config.clients_count();
                    loops.spawn(closed_loop(worker.clone(), edge, client, *think));
                }
                // Passes a panic of the source on.
                loops.join_all().await;
                Ok(())
            })
        }
        Load::Open { arrivals, in_flight_max } => {
            let schedule =
                Schedule::new(arrivals.clone(), shared.config.clients_count(), worker.number, threads);
            // The threads' shares sum to the whole, and none is 0, because there are no more threads than places.
            let share = (*in_flight_max as usize + worker.number) / threads;
            runtime.block_on(open_loop(worker, schedule, share as u32))
        }
    }
}

/// A run in progress. Dropping it stops it.
pub struct Run {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// The number of the recorder's page.
    recorder: usize,
    window_start: Instant,
    total: Page,
    window: Page,
    spare: Page,
}

impl Run {
    /// The state of the run: the totals, and the figures since the previous call (or the start). Cheap enough for a
    /// screen that is refreshed several times a second.
    pub fn live(&mut self) -> Live {
        let now = Instant::now();
        let window_time = now.saturating_duration_since(self.window_start);
        self.window_start = now;
        self.harvest();
        let elapsed = now.saturating_duration_since(self.shared.epoch);
        Live::new(elapsed, window_time, &self.window, &self.total)
    }

    /// Enters another load's requests to the `site`-th site into the figures of this run, until these are asked for at its
    /// end.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn recorder(&self, site: usize) -> Recorder {
        assert!(site < self.shared.config.sites.len(), "site {site} of {}", self.shared.config.sites.len());
        Recorder { worker: Worker { shared: Arc::clone(&self.shared), number: self.recorder }, site }
    }

    /// Whether the run has come to its end, so that [`wait`](Self::wait) returns at once.
    pub fn is_finished(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// A handle that stops this run from elsewhere, such as from a signal.
    pub fn stopper(&self) -> Stopper {
        Stopper { stop: Arc::clone(&self.shared.stop) }
    }

    /// Waits for the end of the run, and returns its results. Blocks the thread, so async code calls it in
    /// `spawn_blocking`. Once stopped, a run ends within [`ClientConfig::timeout`].
    ///
    /// # Errors
    /// If a thread could not set up its timer.
    ///
    /// # Panics
    /// If the source panicked, or named a site that does not exist.
    pub fn wait(mut self) -> Result<Summary, ClientError> {
        for thread in std::mem::take(&mut self.threads) {
            match thread.join() {
                Ok(worked) => worked.map_err(ClientError::Thread)?,
                Err(panic) => resume_unwind(panic),
            }
        }
        self.harvest();
        let series = self.shared.ledger.series(self.shared.config.sites.len());
        Ok(Summary::new(&self.shared.config, &self.total, series))
    }

    /// Moves the threads' records into the window, and adds it to the total.
    fn harvest(&mut self) {
        self.window.clear();
        self.shared.ledger.harvest(&mut self.window, &mut self.spare);
        self.total.add(&self.window);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
    }
}

/// Stops a run: nothing more is sent, and requests in flight are awaited.
#[derive(Clone, Debug)]
pub struct Stopper {
    stop: Arc<watch::Sender<bool>>,
}

impl Stopper {
    /// Stops it; a second call does nothing.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}
