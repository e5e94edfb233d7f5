//! Which caches have a share of the keys: they take it once they serve, and give it up before they leave.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sidelong_config::CacheStanding;
use sidelong_os::Worker;

use super::{Names, await_parts, difference};
use crate::failure::Failure;
use crate::roster::{self, Place, Roster};

/// Longest wait of a cache that has started for the others to be rid of what they hand over: of 64 GiB, that takes some minutes.
const ENTER_MAX: Duration = Duration::from_secs(600);
/// Attempts that may fail before the log says so: others may change the cluster, too.
const TOLD_AFTER: u32 = 5;
/// Attempts while others change shares, too.
const TRIES_MAX: usize = 16;
/// Pause between two looks whether it has its share.
const PAUSE: Duration = Duration::from_secs(1);

/// Changes by `edit` which caches have no share of the keys. In between, all caches go by the homes before and after
/// ([`sidelong_policy::cache::homes::Placement`]). The caches that are `ending` end afterwards. `last` must be the newest roster, and is it
/// again when this returns.
///
/// # Errors
/// If somebody else changes the cluster, a cache does not go by it within `wait`, or `stop` is set. Homes may then be changing: the next
/// call ends that first.
pub(super) fn hand_over(
    place: &Place,
    last: &mut Roster,
    edit: &dyn Fn(&mut Names),
    ending: &Names,
    (wait, stop): (Duration, &AtomicBool),
) -> Result<(), Failure> {
    for _ in 0..TRIES_MAX {
        if try_to(place, last, edit, ending, (wait, stop))? {
            return Ok(());
        }
        // A cache takes its share meanwhile, or another gives its own up.
        let newest = place.newest()?.filter(|newest| newest.has_members_of(last));
        *last = newest.ok_or_else(roster::busy)?;
    }
    Err(roster::busy())
}

/// As [`hand_over`]. False if somebody else has changed the shares of caches meanwhile.
fn try_to(
    place: &Place,
    last: &mut Roster,
    edit: &dyn Fn(&mut Names),
    ending: &Names,
    (wait, stop): (Duration, &AtomicBool),
) -> Result<bool, Failure> {
    let adopted = |roster: &Roster| await_parts(place, roster, Place::caches, (wait, stop)).map(drop);
    let change = |last: &mut Roster, next: CacheStanding| {
        let mut is_as_last = true;
        let before = last.standing.caches.clone();
        let changed = place.change(last, |roster| {
            let now = &mut roster.standing.caches;
            is_as_last = *now == before;
            if is_as_last {
                *now = CacheStanding { change: now.change + 1, ..next.clone() };
            }
        })?;
        if is_as_last {
            *last = changed;
            adopted(last)?;
        }
        Ok::<_, Failure>(is_as_last)
    };
    adopted(last)?;
    // Who leaves by another command does.
    let all_ending: Names = last.standing.caches.ending.union(ending).cloned().collect();
    let settled = |away: &Names| CacheStanding {
        away: away.clone(),
        ending: all_ending.clone(),
        ..CacheStanding::default()
    };
    if last.standing.caches.is_changing() {
        // Whoever has begun that may have died.
        let CacheStanding { away, leaving, .. } = &last.standing.caches;
        let away = away.union(leaving).cloned().collect();
        if !change(last, settled(&away))? {
            return Ok(false);
        }
    }
    let before = last.standing.caches.away.clone();
    let mut away = before.clone();
    edit(&mut away);
    if away != before {
        let (entering, leaving) = (difference(&before, &away), difference(&away, &before));
        let stay = before.intersection(&away).cloned().collect();
        let both = CacheStanding { away: stay, entering, leaving, ..settled(&away) };
        if !(change(last, both)? && change(last, settled(&away))?) {
            return Ok(false);
        }
    }
    // Not before nobody sends them commands any more.
    Ok(ending.is_empty() || change(last, CacheStanding { leaving: ending.clone(), ..settled(&away) })?)
}

/// A thread that has a cache take its share of the keys whenever it has none. It ends with this value.
pub(crate) struct Entering {
    _worker: Option<Worker>,
}

impl Entering {
    /// For the cache of that name, which serves.
    pub(crate) fn start(name: String, place: Place) -> Self {
        let enter = move |stop: &AtomicBool| {
            let (mut seen, mut failures) = (None, 0);
            while !stop.load(Ordering::Relaxed) {
                let newest = roster::epoch(place.run());
                if newest != seen {
                    match enter(&name, &place, stop) {
                        Ok(()) => (seen, failures) = (newest, 0),
                        Err(Failure(why)) => {
                            failures += 1;
                            if failures == TOLD_AFTER {
                                tracing::warn!("{name} has no share of the keys yet, and tries on: {why}");
                            }
                        }
                    }
                }
                thread::park_timeout(PAUSE);
            }
        };
        let worker = Worker::start("entering", enter);
        let worker = worker.inspect_err(|error| tracing::error!(%error, "it takes no share of the keys"));
        Entering { _worker: worker.ok() }
    }
}

fn enter(name: &str, place: &Place, stop: &AtomicBool) -> Result<(), Failure> {
    let mut last = place.newest()?.ok_or_else(|| Failure::new("the roster is lost"))?;
    let caches = &last.standing.caches;
    if !last.has(name) || caches.had_share(name) || caches.ending.contains(name) {
        return Ok(());
    }
    let enters = |away: &mut Names| _ = away.remove(name);
    hand_over(place, &mut last, &enters, &Names::new(), (ENTER_MAX, stop))?;
    tracing::info!(epoch = last.epoch, "{name} has its share of the keys");
    Ok(())
}
