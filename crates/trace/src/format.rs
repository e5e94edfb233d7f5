//! The formats of traces.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, Result};

/// A format of traces. docs/trace.md has the layout, source and units of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Format {
    /// The binary log of the 1998 World Cup's servers: see [`wc98`](crate::wc98).
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
    /// Lines of fields. A header or [`crate::Columns`] says what each field is.
    #[serde(rename = "csv")]
    Csv,
    /// Sidelong's own.
    #[serde(rename = "slt")]
    Compact,
    /// Big-endian keys of 4 bytes and nothing else; read only if it is named.
    #[serde(rename = "key32")]
    Key32,
    /// Big-endian keys of 8 bytes and nothing else; read only if it is named.
    #[serde(rename = "key64")]
    Key64,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 9] = [
        Format::WorldCup98,
        Format::CommonLog,
        Format::HomeIp,
        Format::OracleGeneral,
        Format::Twitter,
        Format::Csv,
        Format::Compact,
        Format::Key32,
        Format::Key64,
    ];

    /// Its name in options and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::WorldCup98 => "wc98",
            Format::CommonLog => "clf",
            Format::HomeIp => "ucb",
            Format::OracleGeneral => "oracleGeneral",
            Format::Twitter => "twitter",
            Format::Csv => "csv",
            Format::Compact => "slt",
            Format::Key32 => "key32",
            Format::Key64 => "key64",
        }
    }

    /// What one record of it is called.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Format::WorldCup98 | Format::HomeIp | Format::OracleGeneral => "record",
            Format::CommonLog | Format::Twitter | Format::Csv => "line",
            Format::Compact => "request",
            Format::Key32 | Format::Key64 => "key",
        }
    }

    /// Whether it is text, which may begin with a byte order mark.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Format::CommonLog | Format::Twitter | Format::Csv)
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
            allowed: "wc98, clf, ucb, oracleGeneral, twitter, csv, slt, key32 or key64",
        })
    }
}

/// The resolution of a trace's times.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stamps {
    /// Whole seconds. A replay must spread them; otherwise requests arrive in volleys that never happened.
    Seconds,
    /// Finer than a second. A replay uses them unchanged.
    Finer,
}
