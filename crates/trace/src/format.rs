//! The formats of traces, and which of them a source is in.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::text::without_mark;
use crate::{clf, compact, csv, oracle, twitter, ucb, wc98};

/// What a source is recognised by, in bytes.
pub(crate) const HEAD_BYTES: usize = 4096;

/// A format of traces. docs/trace.md has the layout, source and units of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Format {
    /// The binary log of the 1998 World Cup's servers: see [`wc98`].
    #[serde(rename = "wc98")]
    WorldCup98,
    /// Common Log Format, and Combined, whose further fields are ignored: see [`crate::Line`].
    #[serde(rename = "clf")]
    CommonLog,
    /// The binary log of UC Berkeley's dial-in service.
    #[serde(rename = "ucb")]
    HomeIp,
    /// libCacheSim's binary trace.
    #[serde(rename = "oracleGeneral")]
    OracleGeneral,
    /// The CSV in which Twitter published the requests to its caches.
    #[serde(rename = "twitter")]
    Twitter,
    /// Lines of fields, of which a header or [`crate::Columns`] says what they are.
    #[serde(rename = "csv")]
    Csv,
    /// Our own.
    #[serde(rename = "slt")]
    Compact,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 7] = [
        Format::WorldCup98,
        Format::CommonLog,
        Format::HomeIp,
        Format::OracleGeneral,
        Format::Twitter,
        Format::Csv,
        Format::Compact,
    ];

    /// Its name, as options and reports have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::WorldCup98 => "wc98",
            Format::CommonLog => "clf",
            Format::HomeIp => "ucb",
            Format::OracleGeneral => "oracleGeneral",
            Format::Twitter => "twitter",
            Format::Csv => "csv",
            Format::Compact => "slt",
        }
    }

    /// What one record of it is called.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Format::WorldCup98 | Format::HomeIp | Format::OracleGeneral => "record",
            Format::CommonLog | Format::Twitter | Format::Csv => "line",
            Format::Compact => "request",
        }
    }

    /// Whether it is lines of text, before which a byte order mark may stand.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Format::CommonLog | Format::Twitter | Format::Csv)
    }

    /// By the first (decompressed) bytes of a source. Its name is not asked: logs are renamed, rotated and piped.
    /// oracleGeneral goes before WorldCup98, whose four fields of few values may be zeros by chance.
    pub(crate) fn recognise(head: &[u8]) -> Option<Format> {
        let text = without_mark(head);
        let is_separated_only = || csv::is_separated(text) && !clf::is_likely(text);
        type IsLikely = fn(&[u8]) -> bool;
        let binary: [(IsLikely, Format); 4] = [
            (compact::is_likely, Format::Compact),
            (oracle::is_likely, Format::OracleGeneral),
            (ucb::is_likely, Format::HomeIp),
            (wc98::is_likely, Format::WorldCup98),
        ];
        if let Some((_, format)) = binary.into_iter().find(|(is_likely, _)| is_likely(head)) {
            Some(format)
        } else if head.contains(&0) {
            None
        } else if csv::is_headed(text) {
            Some(Format::Csv)
        } else if twitter::is_likely(text) {
            Some(Format::Twitter)
        } else if is_separated_only() {
            None
        } else {
            Some(Format::CommonLog)
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Format {
    type Err = Error;

    fn from_str(name: &str) -> Result<Format> {
        let named = |format: &Format| format.as_str().eq_ignore_ascii_case(name);
        Self::ALL.into_iter().find(named).ok_or_else(|| Error::Parameter {
            parameter: "format",
            value: name.to_owned(),
            allowed: "wc98, clf, ucb, oracleGeneral, twitter, csv or slt",
        })
    }
}

/// How finely a trace tells when requests came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stamps {
    /// By the second: whoever replays it spreads them, or they would come in volleys that never were.
    Seconds,
    /// More finely: they are left alone.
    Finer,
}
