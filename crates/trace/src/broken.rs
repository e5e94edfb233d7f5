//! Records that could not be read: how many, where, and why. A log of millions of lines has a few bad ones, which must
//! neither stop the work nor go unnoticed.

use std::fmt;

use serde::Serialize;

use crate::format::Format;
use crate::text::LINE_BYTES_MAX;

/// Broken records that are kept with their place and reason; the rest are only counted.
pub const BROKEN_FIRST_MAX: usize = 5;

/// If more than one in this many is broken, a source is refused: the rest would no longer be the workload that was
/// logged.
const TOLERATED_ONE_IN: u64 = 100;

/// If this many records were seen and all are broken, reading stops: the source has another format, and reading further
/// gigabytes would only delay the same answer.
const HOPELESS_RECORDS: u64 = 1000;

/// The account of a source's broken records.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Broken {
    /// The format that the source was read as.
    pub format: Format,
    /// Records seen, including broken ones, without a header.
    pub total: u64,
    /// Records that were broken.
    pub broken: u64,
    /// The first [`BROKEN_FIRST_MAX`] of them.
    pub first: Vec<BrokenAt>,
    /// NULs that were skipped before or between lines. A log that is truncated while its server writes on begins with them.
    pub nuls: u64,
    /// Bytes behind the last gzip member, but for zeros, that were not read.
    pub trailing_bytes: u64,
}

/// One broken record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BrokenAt {
    /// Its line or record number, counting from 1.
    pub number: u64,
    /// What is wrong with it.
    pub reason: Flaw,
}

/// What is wrong with a line or record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Flaw {
    /// A binary record that the end of the source cuts short.
    #[error("it ends after {bytes} of {of} bytes")]
    Truncated {
        /// Bytes that are there.
        bytes: usize,
        /// Bytes of a whole one.
        of: usize,
    },
    /// A binary record with an unknown method code.
    #[error("no method has the code {0}")]
    MethodCode(u8),
    /// A binary record with an unknown status code.
    #[error("no status has the code {0}")]
    StatusCode(u8),
    /// A binary record with an unknown file type code.
    #[error("no file type has the code {0}")]
    KindCode(u8),
    /// A line of more than [`LINE_BYTES_MAX`] bytes.
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// A line that does not start with a host.
    #[error("no host")]
    Host,
    /// A line without a time like `[10/Oct/2000:13:55:36 -0700]`, or with an invalid one, or one not between 1970 and
    /// 2106.
    #[error("no valid time in brackets")]
    Time,
    /// A line without a request in quotes.
    #[error("no request in quotes")]
    Request,
    /// A line without a status of three digits after the request.
    #[error("no status of three digits")]
    Status,
    /// A line without a size in bytes, or `-`, after the status.
    #[error("no size in bytes")]
    Size,
    /// A time that, taken for seconds, does not fit into a u32: its unit is another one.
    #[error("a time after the year 2106: name its unit, as in --columns time=1,object=2,unit=ms (or us, ns)")]
    TimeUnit,
    /// A line whose field of this meaning is missing or malformed.
    #[error("no valid {0}")]
    Field(&'static str),
    /// A binary record whose time is invalid.
    #[error("{seconds} s and {micros} us are not a time")]
    Clock {
        /// Its seconds.
        seconds: u32,
        /// Its microseconds, a million or more.
        micros: u32,
    },
    /// A binary record whose request line is invalid.
    #[error("no request line of {bytes} bytes")]
    RequestLine {
        /// Its length by the record.
        bytes: u16,
    },
    /// A binary record whose next request for its object would precede it.
    #[error("the next request for its object has the invalid number {0}")]
    Next(i64),
    /// A block of requests that was altered after it was written.
    #[error("a block of {requests} requests does not match its checksum")]
    Block {
        /// How many it says it has.
        requests: u32,
    },
    /// The source ends, or its blocks are lost, before all its requests were read.
    #[error("{requests} requests are missing from here on")]
    Missing {
        /// How many, by the header.
        requests: u64,
    },
}

impl Flaw {
    /// Records lost by this flaw.
    fn records(self) -> u64 {
        match self {
            Flaw::Block { requests } => requests.into(),
            Flaw::Missing { requests } => requests,
            _ => 1,
        }
    }
}

impl Broken {
    pub(crate) fn new(format: Format) -> Self {
        Broken { format, total: 0, broken: 0, first: Vec::new(), nuls: 0, trailing_bytes: 0 }
    }

    pub(crate) fn note_sound(&mut self) {
        self.total += 1;
    }

    /// Records a broken record; `before` is the number of lines before the first record.
    pub(crate) fn note_broken(&mut self, reason: Flaw, before: u64) {
        let number = self.total.saturating_add(before).saturating_add(1);
        self.total = self.total.saturating_add(reason.records());
        self.broken = self.broken.saturating_add(reason.records());
        if self.first.len() < BROKEN_FIRST_MAX {
            self.first.push(BrokenAt { number, reason });
        }
    }

    /// Whether more than 1 % of the records seen are broken. A [`crate::Reader`] checks at the end of its source,
    /// because a log may begin with its bad lines. A caller that stops earlier must check, too.
    pub fn is_too_many(&self) -> bool {
        // Not `broken * 100 > total`, which could overflow.
        self.broken > self.total / TOLERATED_ONE_IN
    }

    /// Whether anything was left out, so that whoever reads the trace should know.
    pub fn is_worth_telling(&self) -> bool {
        self.broken > 0 || self.nuls > 0 || self.trailing_bytes > 0
    }

    /// Whether to stop before the end.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.total >= HOPELESS_RECORDS && self.broken == self.total
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.format.unit();
        write!(f, "{} of {} {unit}s are broken", self.broken, self.total)?;
        for (i, at) in self.first.iter().enumerate() {
            let separator = if i == 0 { ": " } else { "; " };
            write!(f, "{separator}{unit} {}: {}", at.number, at.reason)?;
        }
        let told: u64 = self.first.iter().map(|at| at.reason.records()).fold(0, u64::saturating_add);
        if self.broken > told {
            f.write_str("; and so on")?;
        }
        if self.nuls > 0 {
            write!(f, "; {} NULs between lines are skipped", self.nuls)?;
        }
        if self.trailing_bytes > 0 {
            write!(f, "; {} bytes of junk behind the last gzip member are ignored", self.trailing_bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_percent_is_tolerated_and_not_one_more() {
        let mut broken = Broken::new(Format::CommonLog);
        broken.note_broken(Flaw::Host, 0);
        assert!(broken.is_too_many());
        (0..99).for_each(|_| broken.note_sound());
        assert!(!broken.is_too_many());
        broken.note_broken(Flaw::Size, 0);
        assert!(broken.is_too_many());
        assert_eq!(
            broken.to_string(),
            "2 of 101 lines are broken: line 1: no host; line 101: no size in bytes"
        );
    }

    #[test]
    fn only_the_first_are_kept() {
        let mut broken = Broken::new(Format::WorldCup98);
        (0..9).for_each(|code| broken.note_broken(Flaw::MethodCode(code), 0));
        assert_eq!((broken.broken, broken.first.len()), (9, BROKEN_FIRST_MAX));
        assert!(broken.to_string().ends_with("record 5: no method has the code 4; and so on"));
    }
}
