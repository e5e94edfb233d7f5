//! memcached's protocols: bytes to commands, and answers to bytes.
//!
//! Each takes one step at a time from the bytes that have arrived: a command, or one key of many. A step that lacks bytes does
//! nothing and is taken again when more are there, so what a client sends in any pieces is answered as if it came in one.

use crate::neighbours::To;

pub(crate) mod binary;
pub(crate) mod meta;
pub(crate) mod text;

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// It used up so many bytes.
    Used(usize),
    /// It used up so many bytes, and those of a value that nobody wants are still to come.
    Skip { used: usize, unwanted: u64 },
    /// It needs so many bytes in all, and used up none.
    Needs(usize),
    /// It ends the connection.
    Close,
    /// Others are to carry out the command, which is so many bytes, and changes something. Those of a value that nobody wants are
    /// still to come.
    Forward { to: To, used: usize, unwanted: u64 },
    /// It used up so many bytes, and has sent a command to others.
    Sent { used: usize },
}

impl Step {
    /// The step that has others carry out the command that this one is done with.
    pub(crate) fn forwarded(self, to: impl Into<To>) -> Step {
        let to = to.into();
        match self {
            Step::Used(used) => Step::Forward { to, used, unwanted: 0 },
            Step::Skip { used, unwanted } => Step::Forward { to, used, unwanted },
            other => other,
        }
    }
}

/// Appends a number in decimal.
fn push_number(out: &mut Vec<u8>, number: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
