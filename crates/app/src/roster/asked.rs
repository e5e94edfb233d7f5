//! What parts on several machines tell each other of the roster, at their control endpoints.

use std::io;
use std::time::{Duration, Instant};

use sidelong_fabric::control::ControlDirectory;
use sidelong_fabric::{Error, RunDirectory};

use super::kept::{COPIES, Part, Roster, read, refusal_of};
use crate::fabric::{ADOPTED, Exposer, ROSTER};

/// Bytes of a roster in one answer, besides two numbers.
const PIECE_BYTES: usize = 16_000;
/// Pieces of the largest roster.
const PIECES_MAX: usize = 1024;
/// Longest wait for a part to answer, which must first be connected to.
const ANSWER_MAX: Duration = Duration::from_millis(1500);
/// Parts that are asked at once.
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
    /// It does not run.
    Ended,
    /// It does not answer: nobody knows.
    Silent,
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
    epoch: impl Fn() -> u64 + Send + Sync + 'static,
) {
    let (here, part, cluster) = (run.clone(), part.to_owned(), cluster.to_owned());
    exposer.serve(ADOPTED, move |_| {
        let refused = refusal_of(&here, &part).map(|(epoch, why)| format!("{epoch} {why}"));
        Ok(format!("{cluster}/{part}\n{}\n{}", epoch(), refused.unwrap_or_default()).into_bytes())
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
    let Part { name, region, .. } = part;
    match ask(control, region, ADOPTED, b"") {
        Ok(told) => {
            let told = String::from_utf8_lossy(&told);
            let mut lines = told.splitn(3, '\n');
            // Another part may have its address now, or another cluster's.
            if lines.next() != Some(&*format!("{cluster}/{name}")) {
                return Presence::Ended;
            }
            let epoch = lines.next().and_then(|epoch| epoch.parse().ok());
            let refused = lines.next().and_then(|line| line.split_once(' '));
            let refused = refused.and_then(|(of, why)| Some((of.parse().ok()?, why.to_owned())));
            Presence::Runs { epoch, refused }
        }
        // It runs, and belongs to no roster: it was started before there was one.
        Err(Error::Declined { .. }) => Presence::Runs { epoch: None, refused: None },
        Err(Error::NoKey { .. }) => Presence::Ended,
        Err(error) if error.is_gone() => Presence::Ended,
        Err(_) => Presence::Silent,
    }
}

/// The newest roster that the machine of the part has which exposes the region, if its epoch is above `above`.
pub(super) fn roster(control: &ControlDirectory, region: &str, above: u64) -> Option<String> {
    let mut text = Vec::new();
    let mut of = None;
    for _ in 0..PIECES_MAX {
        let told = ask(control, region, ROSTER, &(text.len() as u64).to_le_bytes()).ok()?;
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
fn ask(control: &ControlDirectory, region: &str, kind: u8, body: &[u8]) -> Result<Vec<u8>, Error> {
    let deadline = Instant::now() + ANSWER_MAX;
    loop {
        match control.exchange(region, kind, body) {
            Err(Error::Earlier(_)) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            // A busy part may miss one answer.
            Err(Error::Connect { source, .. })
                if source.kind() == io::ErrorKind::TimedOut && Instant::now() < deadline =>
            {
                std::thread::sleep(PAUSE);
            }
            Err(Error::Earlier(earlier)) => return Err(*earlier),
            answer => return answer,
        }
    }
}

/// The newest roster that another machine has, as it keeps it, if it is newer than `known`.
///
/// # Errors
/// The epoch of a newer one that a part goes by, if that part does not hand it out.
pub(super) fn newer(control: &ControlDirectory, known: &Roster) -> Result<Option<String>, u64> {
    let parts = known.parts();
    let asked = presences(control, &known.file.cluster.name, &parts).into_iter().zip(&parts);
    let newer = asked.filter_map(|(presence, part)| Some((presence.epoch()?, &part.region)));
    let newer = newer.filter(|(epoch, _)| *epoch > known.epoch);
    let mut newer: Vec<_> = newer.collect();
    newer.sort();
    let Some((newest, _)) = newer.last() else { return Ok(None) };
    let found = newer.iter().rev().find_map(|(_, region)| roster(control, region, known.epoch));
    found.map(Some).ok_or(*newest)
}

/// Asks all of these parts.
pub(super) fn presences(control: &ControlDirectory, cluster: &str, parts: &[Part]) -> Vec<Presence> {
    let mut found = Vec::new();
    for some in parts.chunks(ASKED_MAX) {
        std::thread::scope(|scope| {
            let ask = |part| scope.spawn(move || presence(control, cluster, part));
            let asked: Vec<_> = some.iter().map(ask).collect();
            found.extend(asked.into_iter().map(|asked| asked.join().unwrap_or(Presence::Silent)));
        });
    }
    found
}
