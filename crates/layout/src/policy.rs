//! Words that policy encodes and decodes, and that lie in regions.

use crate::describe::Word;

/// Which clients a site admits: a part of a circle, where it begins there, and why.
pub const VERDICT: Word = Word::new("verdict", &[("part", 31), ("turn", 30), ("why", 3)]);
/// A node's load: its index, what each further request adds, and the requests in flight at that time.
pub const READING: Word = Word::new("reading", &[("index", 28), ("per_request", 20), ("in_flight", 16)]);
/// A node's health: whether it may be sent requests, failures or pauses, what took it out, and the end of its pause.
pub const HEALTH: Word = Word::new("health", &[("phase", 2), ("count", 6), ("cause", 2), ("until_us", 54)]);
