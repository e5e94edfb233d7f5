//! What parts on several machines tell each other of the roster, at their control endpoints.

use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidelong_edge::ConfigState;
use sidelong_fabric::control::{ControlDirectory, SecretId};
use sidelong_fabric::{Error, RunDirectory};

use super::kept::{COPIES, Part, Roster, read, refusal_of};
use crate::fabric::{ADOPTED, Exposer, ROSTER};

/// Bytes of a roster in one answer, besides two numbers.
const PIECE_BYTES: usize = 16_000;
/// Pieces of the largest roster.
const PIECES_MAX: usize = 1024;
/// Says in place of an epoch that the part leaves the cluster, and has no request left.
const OVER: &str = "over";
/// Longest wait for a part to answer, which must first be connected to.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(1500);
/// Longest wait for a part that was asked a moment ago: whatever is new since, each that answers knows.
pub(super) const ANSWER_AGAIN_MAX: Duration = Duration::from_millis(300);
/// Threads that ask at once.
const ASKED_MAX: usize = 64;
/// Pause between two attempts meanwhile.
const PAUSE: Duration = Duration::from_millis(5);

/// What is known of a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Presence {
    /// It runs, and goes by the roster of that epoch.
    Runs {
        /// `None` if that cannot be read.
        epoch: Option<u64>,
        /// The roster that it refuses, if it does, and why.
        refused: Option<(u64, String)>,
    },
    /// It is proven to have ended, or has no request left and is about to.
    Ended,
    /// It does not answer: nobody knows. A refusal proves nothing, since a firewall refuses, too.
    Silent {
        /// Why it refuses this process, if it does.
        refuses: Option<String>,
    },
}

impl Presence {
    /// The epoch of the roster by which it goes, if it says so.
    pub fn epoch(&self) -> Option<u64> {
        if let Presence::Runs { epoch, .. } = self { *epoch } else { None }
    }

    /// Whether it is known to run.
    pub(crate) fn runs(&self) -> bool {
        matches!(self, Presence::Runs { .. })
    }

    /// Whether it goes by the roster of that epoch, or a newer one.
    pub(crate) fn goes_by(&self, wanted: u64) -> bool {
        matches!(self, Presence::Runs { epoch: Some(epoch), .. } if *epoch >= wanted)
    }
}

/// Answers for the part of that name.
pub(crate) fn answer(
    exposer: &Exposer,
    run: &RunDirectory,
    (cluster, part): (&str, &str),
    config: Arc<ConfigState>,
) {
    let (here, part, cluster) = (run.clone(), part.to_owned(), cluster.to_owned());
    exposer.serve(ADOPTED, move |_| {
        let refused = refusal_of(&here, &part).map(|(epoch, why)| format!("{epoch} {why}"));
        let epoch = if config.has_left() { OVER.to_owned() } else { config.epoch().to_string() };
        Ok(format!("{cluster}/{part}\n{epoch}\n{}", refused.unwrap_or_default()).into_bytes())
    });
    let here = run.clone();
    exposer.serve(ROSTER, move |from| {
        let from =
            number(from, 0).and_then(|from| usize::try_from(from).ok()).ok_or("it asks for no place")?;
        let text = read(&here, COPIES[0]).map_err(|error| format!("it has no roster: {error}"))?;
        let (head, _) = Roster::checked(&text).ok_or("its roster is damaged")?;
        let piece = text.as_bytes().get(from..).ok_or("its roster is shorter")?;
        let piece = &piece[..piece.len().min(PIECE_BYTES)];
        Ok([&head.epoch.to_le_bytes()[..], &(text.len() as u64).to_le_bytes(), piece].concat())
    });
}

/// Asks a part.
pub(super) fn presence(control: &ControlDirectory, cluster: &str, part: &Part) -> Presence {
    presence_within(ANSWER_MAX, control, cluster, part)
}

fn presence_within(longest: Duration, control: &ControlDirectory, cluster: &str, part: &Part) -> Presence {
    let Part { name, region, .. } = part;
    let unanswered = |refuses| match control.has_ended(region, None) {
        true => Presence::Ended,
        false => Presence::Silent { refuses },
    };
    match answered_within(longest, || control.exchange(region, ADOPTED, b"")) {
        Ok(told) => {
            let told = String::from_utf8_lossy(&told);
            let mut lines = told.splitn(3, '\n');
            // Another part may have its address now, or another cluster's.
            if lines.next() != Some(&*format!("{cluster}/{name}")) {
                return unanswered(None);
            }
            let epoch = lines.next();
            if epoch == Some(OVER) {
                return Presence::Ended;
            }
            let epoch = epoch.and_then(|epoch| epoch.parse().ok());
            let refused = lines.next().and_then(|line| line.split_once(' '));
            let refused = refused.and_then(|(of, why)| Some((of.parse().ok()?, why.to_owned())));
            Presence::Runs { epoch, refused }
        }
        // It runs, and belongs to no roster: it was started before there was one.
        Err(Error::Declined { .. }) => Presence::Runs { epoch: None, refused: None },
        // The roster says of no such part where it is.
        Err(Error::NoKey { .. }) => Presence::Ended,
        Err(Error::Control { cause, .. }) => unanswered(Some(cause.to_string())),
        Err(_) => unanswered(None),
    }
}

/// The newest roster that the machine of the part has which exposes the region, if its epoch is above `above`.
pub(super) fn roster(control: &ControlDirectory, region: &str, above: u64) -> Option<String> {
    let mut text = Vec::new();
    let mut of = None;
    for _ in 0..PIECES_MAX {
        let from = (text.len() as u64).to_le_bytes();
        let told = answered(|| control.exchange(region, ROSTER, &from)).ok()?;
        let (epoch, len) = (number(&told, 0)?, number(&told, 8)?);
        // It may be replaced meanwhile.
        if epoch <= above || *of.get_or_insert((epoch, len)) != (epoch, len) {
            return None;
        }
        text.extend_from_slice(told.get(16..)?);
        if text.len() as u64 >= len {
            return String::from_utf8(text).ok();
        }
    }
    None
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Asks until an answer comes that is not of an earlier attempt.
pub(crate) fn answered<T>(ask: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    answered_within(ANSWER_MAX, ask)
}

fn answered_within<T>(longest: Duration, ask: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let deadline = Instant::now() + longest;
    loop {
        match ask() {
            Err(Error::Earlier(_)) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            // A busy part may miss one answer, and one whose secret has changed closes sessions.
            Err(Error::Connect { source, .. }) if is_passing(source.kind()) && Instant::now() < deadline => {
                std::thread::sleep(PAUSE);
            }
            Err(Error::Earlier(earlier)) => return Err(*earlier),
            answer => return answer,
        }
    }
}

fn is_passing(error: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof};
    [BrokenPipe, ConnectionReset, TimedOut, UnexpectedEof].contains(&error)
}

/// The newest roster that another machine has, as it keeps it, if it is newer than `known`, and whether any part has answered. None is
/// waited for longer than `longest`.
///
/// # Errors
/// The epoch of a newer one that a part goes by, if that part does not hand it out.
pub(super) fn newer(
    control: &ControlDirectory,
    known: &Roster,
    longest: Duration,
) -> Result<(Option<String>, bool), u64> {
    let (parts, cluster) = (known.parts(), &known.file.cluster.name);
    let asked = of_all(&parts, |part| presence_within(longest, control, cluster, part));
    let asked = asked.into_iter().zip(&parts);
    let mut told: Vec<_> = asked.filter_map(|(told, part)| Some((told.epoch()?, &part.region))).collect();
    let is_heard = !told.is_empty();
    told.retain(|(epoch, _)| *epoch > known.epoch);
    told.sort();
    let Some((newest, _)) = told.last() else { return Ok((None, is_heard)) };
    let found = told.iter().rev().find_map(|(_, region)| roster(control, region, known.epoch));
    found.map(|found| (Some(found), is_heard)).ok_or(*newest)
}

/// Asks all of these parts.
pub(super) fn presences(control: &ControlDirectory, cluster: &str, parts: &[Part]) -> Vec<Presence> {
    of_all(parts, |part| presence(control, cluster, part))
}

/// Asks all of these parts for the secrets that count there.
pub(super) fn secrets(control: &ControlDirectory, parts: &[Part]) -> Vec<Result<Vec<SecretId>, Error>> {
    of_all(parts, |part| answered(|| control.secrets(&part.region)))
}

/// What comes of each of these, many at once.
pub(crate) fn of_all<I: Sync, T: Send>(all: &[I], ask: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let mut found = Vec::new();
    for some in all.chunks(ASKED_MAX) {
        std::thread::scope(|scope| {
            let asked: Vec<_> = some.iter().map(|one| scope.spawn(|| ask(one))).collect();
            found.extend(
                asked.into_iter().map(|asked| asked.join().unwrap_or_else(|panic| resume_unwind(panic))),
            );
        });
    }
    found
}
