//! A site's verdict as one word, and a request's way through it: some nanoseconds, no lock, no allocation.
//!
//! Clients stand on a circle, each at a place that follows from its address. Let in are those from the circle's turn on,
//! as far as the part reaches; the turn goes round slowly. A client is so in or out for a while, and its turn comes.

use std::time::Duration;

use super::pressure::PRESSURE_MAX;
use super::{Client, Treatment};
use crate::balance::mix;

/// Bits of a [`Verdict`]: `part:31 turn:30 why:3`.
const TURN_BITS: u32 = 30;
const WHY_BITS: u32 = 3;
/// The whole circle, in the verdict's units.
const CIRCLE: u32 = 1 << TURN_BITS;
/// Nobody is trimmed to less than one request in so many, and to none with so much lenience.
pub(super) const LENIENCE_MAX: u32 = 1 << u16::BITS;

/// No client is told to come back later than this, for the load may be gone by then.
const RETRY_AFTER_S_MAX: u64 = 5;

/// Why a site lets in whom it does. `httpd/sidelong.h` has the same in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Why {
    /// Nothing was promised that could be in danger.
    #[default]
    NoTarget,
    /// Everybody: the target is in no danger.
    Within,
    /// Everybody: no record of any of its nodes can be used.
    Blind,
    /// A part: the target would be missed.
    OverTarget,
    /// A part: a site of higher priority needs room.
    Yields,
    /// Nobody: all nodes are overloaded, by A's rule.
    AllOverloaded,
    /// Everybody but who is trimmed, of whom ever more: the target is in no danger, and was so lately.
    Recovering,
}

impl Why {
    /// All, each at the place of its code.
    pub const ALL: [Why; 7] = [
        Why::NoTarget,
        Why::Within,
        Why::Blind,
        Why::OverTarget,
        Why::Yields,
        Why::AllOverloaded,
        Why::Recovering,
    ];

    /// As metrics and answers name it.
    pub const fn word(self) -> &'static str {
        match self {
            Why::NoTarget => "no-target",
            Why::Within => "within-target",
            Why::Recovering => "recovering",
            Why::Blind => "no-records",
            Why::OverTarget => "over-target",
            Why::Yields => "yields",
            Why::AllOverloaded => "all-overloaded",
        }
    }
}

/// Who is let in. Fits in a word, which an edge keeps for each site in an `AtomicU64`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Verdict {
    part: u32,
    /// Where on the circle; of [`Why::Recovering`], where there is none, the lenience.
    turn: u32,
    why: Why,
}

impl Default for Verdict {
    fn default() -> Self {
        Verdict::open(Why::NoTarget)
    }
}

impl Verdict {
    /// Everybody.
    pub const fn open(why: Why) -> Self {
        Verdict { part: CIRCLE, turn: 0, why }
    }

    /// `part` of all clients, 0 to 1; where that is all, the target is in no danger, and who is trimmed has `lenience`
    /// times as much, up to [`LENIENCE_MAX`].
    pub(super) fn part(part: f64, turn: u32, why: Why, lenience: u32) -> Self {
        match part >= 1.0 {
            true if lenience >= LENIENCE_MAX => Verdict::open(Why::Within),
            true => Verdict { turn: lenience, ..Verdict::open(Why::Recovering) },
            false => Verdict { part: (part * f64::from(CIRCLE)) as u32, turn, why },
        }
    }

    const fn lenience(self) -> u32 {
        if matches!(self.why, Why::Recovering) { self.turn } else { 1 }
    }

    /// Whether all are let in, whoever they are.
    pub const fn is_open(self) -> bool {
        self.part == CIRCLE && !matches!(self.why, Why::Recovering)
    }

    /// The part of clients that is let in, 0 to 1.
    pub fn admitted(self) -> f64 {
        f64::from(self.part) / f64::from(CIRCLE)
    }

    /// How hard the site is pressed, from 0 where all are let in to 6.9: minus the logarithm of the part. `None` where it is
    /// not from knowledge of the site, and so of no use to who knows nothing of it.
    pub fn pressure(self) -> Option<f64> {
        let is_known = !matches!(self.why, Why::NoTarget | Why::Blind);
        is_known.then(|| (-self.admitted().ln()).clamp(0.0, PRESSURE_MAX))
    }

    /// Why not all, or why all.
    pub const fn why(self) -> Why {
        self.why
    }

    /// Whichever of the two lets in more. Of verdicts of one look the turns agree, so who is refused by it is refused
    /// by both.
    pub const fn wider(self, other: Verdict) -> Verdict {
        if other.part > self.part { other } else { self }
    }

    /// As one word.
    pub const fn encode(self) -> u64 {
        (self.part as u64) << (TURN_BITS + WHY_BITS) | (self.turn as u64) << WHY_BITS | self.why as u64
    }

    /// From a word; one that no verdict encodes to lets in everybody.
    pub const fn decode(word: u64) -> Self {
        let why = (word & ((1 << WHY_BITS) - 1)) as usize;
        let part = (word >> (TURN_BITS + WHY_BITS)) as u32;
        if why >= Why::ALL.len() || part > CIRCLE {
            return Verdict::open(Why::NoTarget);
        }
        Verdict { part, turn: (word >> WHY_BITS) as u32 & (CIRCLE - 1), why: Why::ALL[why] }
    }

    /// How far on the circle from the turn to the place of that hash.
    const fn distance(self, hash: u64) -> u32 {
        ((hash >> 34) as u32).wrapping_sub(self.turn) & (CIRCLE - 1)
    }
}

/// Where the turn stands at that time of day.
pub(super) fn turn(wall_ns: u64, rotation: Duration) -> u32 {
    let rotation_ns = rotation.as_nanos().max(1);
    let within = u128::from(wall_ns) % rotation_ns;
    (within * u128::from(CIRCLE) / rotation_ns) as u32
}

/// A request that is not let in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Why the site does not let in everybody.
    pub why: Why,
    /// Whether it is because the client asks for much more than others do.
    pub greedy: bool,
    /// When to come back, in whole seconds: when its turn comes, within reason.
    pub retry_after_s: u64,
}

/// Whether a request of `client`, treated so, is let in. `salt` differs from request to request: the time in ns will do.
///
/// # Errors
/// Where it is not.
pub fn decide(
    verdict: Verdict,
    treatment: Treatment,
    client: Client,
    salt: u64,
    rotation: Duration,
) -> Result<(), Refused> {
    if verdict.is_open() {
        return Ok(());
    }
    let (hash, part, greedy) = match treatment {
        Treatment::Whole => (client.address, verdict.part, false),
        Treatment::ByConnection => (client.connection, verdict.part, false),
        Treatment::Trimmed { kept } => {
            let kept = u64::from(verdict.lenience()) * u64::from(kept);
            let part = (u64::from(verdict.part) * kept.min(1 << u16::BITS)) >> u16::BITS;
            (mix(client.connection ^ salt), part as u32, true)
        }
    };
    let distance = verdict.distance(hash);
    if distance < part {
        return Ok(());
    }
    let wait = u128::from(distance - part) * rotation.as_millis() / u128::from(CIRCLE) / 1000;
    let retry_after_s = (wait as u64).clamp(1, RETRY_AFTER_S_MAX);
    Err(Refused { why: verdict.why, greedy, retry_after_s })
}
