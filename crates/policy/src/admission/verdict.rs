//! A site's verdict as one word, and the decision for a request: some nanoseconds, no lock, no allocation.
//!
//! Clients are placed on a circle by a hash of their address. The admitted arc begins at the turn and covers the
//! admitted part; the turn moves slowly around the circle. So a client is admitted or rejected for a while, and every
//! client gets its turn.

use std::time::Duration;

use sidelong_layout::VERDICT;

use super::clients::{Client, Treatment};
use crate::balance::mix;

/// The whole circle, in the verdict's units.
pub const CIRCLE: u32 = VERDICT.max(1) as u32 + 1;
/// The largest pressure: one client in a thousand is admitted.
pub(super) const PRESSURE_MAX: f64 = 6.9;
/// No client is trimmed below one request in this many; with this much lenience none is trimmed.
pub(super) const LENIENCE_MAX: u32 = 1 << u16::BITS;

/// How many times as many clients may send what is rejected last. Ours: the part of clients swings widely with a queue of few requests,
/// which these are not to notice.
const WIDENED: u32 = 64;
/// With no more than this part of clients, such requests are rejected as all others. It is close to the end of [`PRESSURE_MAX`], which a load
/// of such requests alone reaches at about 15 times the capacity, and must not outgrow.
const WIDENED_ABOVE: u32 = CIRCLE / 900;

/// The longest `Retry-After`, because the load may be gone by then.
const RETRY_AFTER_S_MAX: u64 = 5;

/// Why a site admits what it admits. `fronts/lib/sidelong.h` lists the same reasons in the same order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Why {
    /// All requests: nothing was promised that could be in danger.
    #[default]
    NoTarget,
    /// All requests: the target is in no danger.
    Within,
    /// All requests: no record of any of its nodes can be used.
    Blind,
    /// A part of the clients: the target would be missed.
    OverTarget,
    /// A part of the clients: a site of higher priority needs room.
    Yields,
    /// No request: all nodes are overloaded, by the rule of Lai et al. 2008.
    AllOverloaded,
    /// All but the clients that are trimmed, with growing lenience: the target is in no danger, but was recently.
    Recovering,
}

impl Why {
    /// All reasons, each at the index of its code.
    pub const ALL: [Why; 7] = [
        Why::NoTarget,
        Why::Within,
        Why::Blind,
        Why::OverTarget,
        Why::Yields,
        Why::AllOverloaded,
        Why::Recovering,
    ];

    /// Its name in metrics and answers.
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

/// Which clients are admitted. It fits in a word, which an edge keeps for each site in an `AtomicU64`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Verdict {
    part: u32,
    /// The turn on the circle; for [`Why::Recovering`], which has no turn, the lenience.
    turn: u32,
    why: Why,
}

impl Default for Verdict {
    fn default() -> Self {
        Verdict::open(Why::NoTarget)
    }
}

impl Verdict {
    /// A verdict that admits all requests.
    pub const fn open(why: Why) -> Self {
        Verdict { part: CIRCLE, turn: 0, why }
    }

    /// A verdict that admits `part` of all clients, 0 to 1. If that is all, the target is in no danger, and trimmed
    /// clients get `lenience` times as much, up to [`LENIENCE_MAX`].
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

    /// Whether all requests are admitted.
    pub const fn is_open(self) -> bool {
        self.part == CIRCLE && !matches!(self.why, Why::Recovering)
    }

    /// The arc of the circle that is admitted, of [`CIRCLE`]: where it begins, and how long it is. `None` if that is all of it.
    pub fn arc(self) -> Option<(u32, u32)> {
        (self.part < CIRCLE).then_some((self.turn, self.part))
    }

    /// The part of clients that is admitted, 0 to 1.
    pub fn admitted(self) -> f64 {
        f64::from(self.part) / f64::from(CIRCLE)
    }

    /// The pressure, from 0 if all are admitted to 6.9: minus the logarithm of the part. `None` if the verdict does not
    /// come from knowledge of the site, and so is of no use to an edge without such knowledge.
    pub fn pressure(self) -> Option<f64> {
        let is_known = !matches!(self.why, Why::NoTarget | Why::Blind);
        is_known.then(|| (-self.admitted().ln()).clamp(0.0, PRESSURE_MAX))
    }

    /// Why it admits all, or not all.
    pub const fn why(self) -> Why {
        self.why
    }

    /// The verdict that admits more. The turns of one scan's verdicts agree, so a client rejected by it is rejected by
    /// both.
    pub const fn wider(self, other: Verdict) -> Verdict {
        if other.part > self.part { other } else { self }
    }

    /// The verdict on requests that are rejected last: they are admitted of 64 times as many clients. So while one client in 64 is
    /// admitted, all these requests are. While fewer than one in 900 is, they are rejected as all others.
    pub const fn widened(self) -> Verdict {
        if self.part <= WIDENED_ABOVE {
            return self;
        }
        let part = self.part.saturating_mul(WIDENED);
        Verdict { part: if part > CIRCLE { CIRCLE } else { part }, ..self }
    }

    /// Encodes it as one word.
    #[inline]
    pub const fn encode(self) -> u64 {
        VERDICT.pack([self.part as u64, self.turn as u64, self.why as u64])
    }

    /// Decodes a word; an invalid one admits all requests.
    #[inline]
    pub const fn decode(word: u64) -> Self {
        let [part, turn, why] = VERDICT.unpack(word);
        let (part, why) = (part as u32, why as usize);
        if why >= Why::ALL.len() || part > CIRCLE {
            return Verdict::open(Why::NoTarget);
        }
        Verdict { part, turn: turn as u32, why: Why::ALL[why] }
    }

    /// Distance on the circle from the turn to the place of that hash.
    const fn distance(self, hash: u64) -> u32 {
        ((hash >> 34) as u32).wrapping_sub(self.turn) & (CIRCLE - 1)
    }
}

/// The turn at that time of day.
pub(super) fn turn(wall_ns: u64, rotation: Duration) -> u32 {
    let rotation_ns = rotation.as_nanos().max(1);
    let within = u128::from(wall_ns) % rotation_ns;
    (within * u128::from(CIRCLE) / rotation_ns) as u32
}

/// A rejected request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Why the site does not admit all requests.
    pub why: Why,
    /// Whether the reason is that the client requests much more than others.
    pub greedy: bool,
    /// When to try again, in whole seconds: when the client's turn comes, up to a limit.
    pub retry_after_s: u64,
}

/// Decides whether a request of `client`, treated so, is admitted. `salt` differs from request to request, such as the
/// time in ns.
///
/// # Errors
/// If it is not admitted.
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
    let hash = treatment.hash(client);
    let (hash, part, greedy) = match treatment {
        Treatment::Whole | Treatment::ByConnection => (hash, verdict.part, false),
        Treatment::Trimmed { kept } => {
            let kept = u64::from(verdict.lenience()) * u64::from(kept);
            let part = (u64::from(verdict.part) * kept.min(1 << u16::BITS)) >> u16::BITS;
            (mix(hash ^ salt), part as u32, true)
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
