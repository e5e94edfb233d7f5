//! A walk, from its start to its summary: sessions as tasks of one thread.

use std::io;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rand::SeedableRng as _;
use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::config::{Sessions, WalkConfig};
use super::report::{Book, Completion, End, Summary};
use super::session::Session;
use super::table::Table;
use super::visitor::{Came, Outcome, Visitor};
use crate::client::backoff::Backoff;
use crate::client::pace::Schedule;
use crate::client::{ClientError, LiveSite, Recorder};

/// Mean think time, negative exponential (RUBiS; TPC-W, 5.3.2.1).
const THINK_MEAN: Duration = Duration::from_secs(7);
/// Longest think time, in means (RUBiS, TPC-W: some 70 s).
const THINK_MEANS_MAX: f64 = 10.0;
/// Odd, so that numbers spread over all seeds (Steele et al., OOPSLA 2014: the golden ratio).
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// A walker that has not started.
pub struct Walker {
    config: WalkConfig,
    recorder: Option<Recorder>,
    observer: Option<Box<Observer>>,
}

type Observer = dyn Fn(&Completion) + Send + Sync;

impl Walker {
    /// A walker as `config` specifies.
    ///
    /// # Errors
    /// If `config` is not valid.
    pub fn new(config: WalkConfig) -> Result<Self, ClientError> {
        config.check()?;
        Ok(Walker { config, recorder: None, observer: None })
    }

    /// Enters each request into the figures of another run, too, which has the same addresses.
    pub fn record(self, recorder: Recorder) -> Self {
        Walker { recorder: Some(recorder), ..self }
    }

    /// Calls `observer` for each request once it has ended, on the walk's thread. It must be quick and not panic.
    pub fn observe(self, observer: impl Fn(&Completion) + Send + Sync + 'static) -> Self {
        Walker { observer: Some(Box::new(observer)), ..self }
    }

    /// Starts it on a thread of its own.
    ///
    /// # Errors
    /// If the thread cannot be created.
    pub fn start(self) -> Result<Run, ClientError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(ClientError::Thread)?;
        let now = Instant::now();
        let shared = Arc::new(Shared {
            table: Arc::new(Table::new(self.config.mix, self.config.rows)),
            config: self.config,
            recorder: self.recorder,
            observer: self.observer,
            book: Mutex::new(Book::new()),
            began: now,
            stop: Arc::new(watch::Sender::new(false)),
        });
        let walking = Arc::clone(&shared);
        let work = move || {
            runtime.block_on(walk(walking));
            Instant::now()
        };
        let thread = std::thread::Builder::new().name("walk".into()).spawn(work);
        let thread = thread.map_err(|error: io::Error| ClientError::Thread(error))?;
        Ok(Run { shared, thread: Some(thread), window_start: now })
    }
}

/// A walk in progress. Dropping it stops it.
pub struct Run {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Instant>>,
    window_start: Instant,
}

impl Run {
    /// The totals, and the figures since the previous call (or the start).
    pub fn live(&mut self) -> LiveSite {
        let now = Instant::now();
        let window = now - self.window_start;
        self.window_start = now;
        self.shared.book().live(window)
    }

    /// Sessions that are under way.
    pub fn sessions(&self) -> u64 {
        let sessions = self.shared.book().sessions;
        sessions.begun - sessions.ended
    }

    /// Whether it has come to its end, so that [`wait`](Self::wait) returns at once.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// A handle that stops it from elsewhere, such as from a signal.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared.stop))
    }

    /// Waits for the end, and returns the results. Once stopped, a walk ends within [`WalkConfig::timeout`].
    pub fn wait(mut self) -> Summary {
        let ended = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(panic)) => resume_unwind(panic),
            None => Instant::now(),
        };
        self.shared.book().summary(ended - self.shared.began)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
    }
}

/// Stops a walk: nothing more is sent, and requests in flight are awaited.
#[derive(Clone, Debug)]
pub struct Stopper(Arc<watch::Sender<bool>>);

impl Stopper {
    /// Stops it; a second call does nothing.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// What the sessions of a walk share.
struct Shared {
    config: WalkConfig,
    table: Arc<Table>,
    book: Mutex<Book>,
    recorder: Option<Recorder>,
    observer: Option<Box<Observer>>,
    began: Instant,
    stop: Arc<watch::Sender<bool>>,
}

impl Shared {
    /// Never held across an await.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        let is_late = |max| self.began.elapsed() >= max;
        *self.stop.borrow() || self.config.duration_max.is_some_and(is_late)
    }

    /// Enters what came of a request of a session, by number.
    fn enter(&self, session: u64, lag: Duration, outcome: &Outcome, done: &Completion) {
        self.book().enter(done, lag);
        if let Some(recorder) = &self.recorder {
            let edge = (session % self.config.addresses.len() as u64) as usize;
            recorder.enter(edge, outcome.sent_at, outcome.answer.as_ref(), done.error);
        }
        if let Some(observer) = &self.observer {
            observer(done);
        }
    }

    /// Resolves when the walk is stopped.
    async fn stopped(&self) {
        // An error would mean that the sender is gone, but it is held here.
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    /// Waits until then, or for the end of the walk. Returns whether it goes on.
    async fn pause_until(&self, time: Instant) -> bool {
        let end = self.config.duration_max.map(|max| self.began + max);
        let time = end.map_or(time, |end| end.min(time));
        tokio::select! {
            () = sleep_until(time) => {}
            () = self.stopped() => {}
        }
        !self.is_over()
    }

    fn think(&self, random: &mut Pcg64) -> Duration {
        let means: f64 = Exp1.sample(random);
        THINK_MEAN.mul_f64(means.min(THINK_MEANS_MAX) * self.config.think_factor)
    }

    /// The randomness of a session, or of a person.
    fn random(&self, number: u64) -> Pcg64 {
        Pcg64::seed_from_u64(self.config.seed.wrapping_add(number.wrapping_mul(SEED_STEP)))
    }
}

/// Runs all sessions to the end of the walk.
async fn walk(shared: Arc<Shared>) {
    let mut tasks = JoinSet::new();
    match &shared.config.sessions {
        Sessions::Closed { count } => {
            for person in 0..u64::from(*count) {
                let shared = Arc::clone(&shared);
                tasks.spawn(async move {
                    let (mut random, mut backoff) = (shared.random(person), Backoff::default());
                    loop {
                        // Persons do not all come at the same moment.
                        let due = Instant::now() + shared.think(&mut random);
                        if !shared.pause_until(due).await {
                            return;
                        }
                        session(&shared, person, due, &mut random, &mut backoff).await;
                    }
                });
            }
        }
        Sessions::Open { arrivals, at_once_max } => {
            let places = Arc::new(Semaphore::new(*at_once_max as usize));
            for (cue, due) in Schedule::new(arrivals.clone(), 1, 0, 1) {
                let due = shared.began + due;
                if !shared.pause_until(due).await {
                    break;
                }
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                    shared.book().sessions.dropped += 1;
                    continue;
                };
                let shared = Arc::clone(&shared);
                tasks.spawn(async move {
                    let mut random = shared.random(cue.index);
                    session(&shared, cue.index, due, &mut random, &mut Backoff::default()).await;
                    drop(place);
                });
                // What has ended needs no memory.
                while tasks.try_join_next().is_some() {}
            }
        }
    }
    // Each request has its timeout, so this ends.
    tasks.join_all().await;
}

/// One session, whose first request is `due`. It ends after the pause of an error that it ends with, so that a person who comes
/// again does not do so at once.
async fn session(shared: &Shared, number: u64, mut due: Instant, random: &mut Pcg64, backoff: &mut Backoff) {
    let config = &shared.config;
    let mut visitor = Visitor::new(config, number as usize);
    let (mut session, mut ask) = Session::begin(Arc::clone(&shared.table));
    let (mut is_first, mut errors) = (true, 0);
    shared.book().sessions.begun += 1;
    loop {
        let lag = Instant::now().saturating_duration_since(due);
        let outcome = visitor.visit(&ask).await;
        let mut pause = Duration::ZERO;
        let next = match &outcome.came {
            Came::Page(page) | Came::Refused(page) => {
                backoff.succeeded();
                session.next(page, random)
            }
            Came::Failed(_) => {
                errors += 1;
                pause = backoff.failed();
                session.failed()
            }
        };
        let has_left = config.leave_at.is_some_and(|most| errors >= most.get());
        let end = match (next.is_none(), errors) {
            _ if has_left => Some(End::Left),
            (true, 0) => Some(End::Whole),
            (true, _) => Some(End::Marred),
            (false, _) => None,
        };
        let done = Completion {
            interaction: ask.interaction,
            is_first,
            sent_at: outcome.sent_at.into_std(),
            time: outcome.time,
            error: outcome.came.error(),
            is_against_rules: matches!(outcome.came, Came::Refused(_)),
            end,
        };
        shared.enter(number, lag, &outcome, &done);
        is_first = false;
        let think = if end.is_some() { Duration::ZERO } else { shared.think(random) };
        due = Instant::now() + think.max(pause);
        let goes_on = shared.pause_until(due).await;
        match next {
            Some(next) if goes_on && end.is_none() => ask = next,
            _ => return,
        }
    }
}
