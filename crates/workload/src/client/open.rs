//! The open loop: requests are sent when they are due, on any idle connection.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::backoff::Backoff;
use super::link::Link;
use super::pace::{Schedule, Timer};
use super::worker::{ErrorKind, Flight, Shot, Worker};

/// Requests sent before others make progress, if the schedule is behind.
const BUNCH_MAX: u32 = 32;

/// Runs one thread's share of the schedule until its last request has ended.
pub(super) async fn open_loop(worker: Worker, schedule: Schedule, in_flight_max: u32) -> io::Result<()> {
    let timer = Timer::new()?;
    let edges = worker.shared.config.edges.len();
    let pool = Arc::new(Pool::new(edges, in_flight_max));
    let in_flight = Arc::new(Semaphore::new(in_flight_max as usize));
    let mut stopped = pin!(worker.stopped());
    let mut bunch = 0;
    for (cue, due) in schedule {
        let Some(due_at) = worker.shared.epoch.checked_add(due) else { break };
        if !worker.is_wanted(cue.index) || worker.is_over(due_at) || worker.is_stopped() {
            break;
        }
        if due_at > Instant::now() {
            bunch = 0;
            tokio::select! {
                waited = timer.wait_until(due_at) => waited?,
                () = stopped.as_mut() => break,
            }
        } else {
            bunch += 1;
            if bunch % BUNCH_MAX == 0 {
                yield_now().await;
            }
        }
        let shot = worker.shared.source.shot(cue);
        let Ok(permit) = Arc::clone(&in_flight).try_acquire_owned() else {
            worker.shared.ledger.enter_dropped(worker.number, shot.site, cue.client, due);
            continue;
        };
        let edge = worker.edge_of(&shot, (cue.index % edges as u64) as usize);
        let flight = Flight { cue, edge, due_at: Some(due_at) };
        let (worker, pool) = (worker.clone(), Arc::clone(&pool));
        tokio::spawn(async move {
            pool.fly(&worker, flight, shot).await;
            drop(permit);
        });
    }
    // Each request has its timeout, so this ends.
    let _ = in_flight.acquire_many(in_flight_max).await;
    Ok(())
}

/// The idle connections of one thread, at most as many as may be in flight.
struct Pool {
    edges: Vec<Mutex<EdgePool>>,
    idle: AtomicU32,
    idle_max: u32,
}

#[derive(Default)]
struct EdgePool {
    /// By client. The last one used is used next, so that the others may age and be closed.
    idle: BTreeMap<usize, Vec<Link>>,
    backoff: Backoff,
    /// Until then the edge counts as away, and requests to it fail without an attempt.
    away_until: Option<Instant>,
}

impl EdgePool {
    fn is_away(&self, now: Instant) -> bool {
        self.away_until.is_some_and(|until| now < until)
    }

    /// Learns from a request that ended at `now`.
    fn learn(&mut self, flown: Result<(), ErrorKind>, now: Instant) {
        match flown {
            // Requests in flight at the same time have failed together: that is one failure.
            Err(ErrorKind::Connect) if !self.is_away(now) => {
                self.away_until = Some(now + self.backoff.failed());
            }
            // The edge is there, or known to be away.
            Err(error) if !error.is_answer() => {}
            Ok(()) | Err(_) => {
                self.backoff.succeeded();
                self.away_until = None;
            }
        }
    }
}

impl Pool {
    fn new(edges: usize, idle_max: u32) -> Self {
        let edges = (0..edges).map(|_| Mutex::default()).collect();
        Pool { edges, idle: AtomicU32::new(0), idle_max }
    }

    /// Never held across an await, and used by one thread only, so it does not wait.
    fn edge(&self, edge: usize) -> MutexGuard<'_, EdgePool> {
        self.edges[edge].lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn fly(&self, worker: &Worker, flight: Flight, shot: Shot) {
        let (edge, client, now) = (flight.edge, flight.cue.client, Instant::now());
        let (mut link, is_away) = {
            let mut pool = self.edge(edge);
            (pool.idle.get_mut(&client).and_then(Vec::pop), pool.is_away(now))
        };
        if link.is_some() {
            self.idle.fetch_sub(1, Relaxed);
        } else if is_away {
            let _ = worker.enter(&flight, shot.site, [now; 2], &Err(ErrorKind::Connect));
            return;
        }
        let flown = worker.fly(&mut link, flight, shot).await;
        let mut pool = self.edge(edge);
        pool.learn(flown, Instant::now());
        if let Some(link) = link
            && self.idle.load(Relaxed) < self.idle_max
        {
            self.idle.fetch_add(1, Relaxed);
            pool.idle.entry(client).or_default().push(link);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_edge_is_away_for_a_while_after_each_failed_try_and_back_with_a_success() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut pool = EdgePool::default();
        pool.learn(Err(ErrorKind::Timeout), at(0));
        assert!(!pool.is_away(at(0)), "it was there");
        for ms in [0, 1, 9] {
            pool.learn(Err(ErrorKind::Connect), at(ms));
        }
        assert!(pool.is_away(at(9)) && !pool.is_away(at(10)), "all at once are one failure");
        pool.learn(Err(ErrorKind::Connect), at(10));
        assert!(pool.is_away(at(29)) && !pool.is_away(at(30)), "the next is a second one");
        pool.learn(Ok(()), at(15));
        assert!(!pool.is_away(at(15)));
    }
}
