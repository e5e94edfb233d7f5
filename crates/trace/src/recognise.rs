//! How a source's format is recognised.

use crate::format::Format;
use crate::text::without_mark;
use crate::{clf, compact, csv, oracle, twitter, ucb, wc98};

/// The first bytes of a source, by which most formats are recognised.
pub(crate) const HEAD_BYTES: usize = 4096;
/// The first bytes of a source by which [`wc98`] is: a thousand records.
pub(crate) const RECOGNISED_BYTES: usize = 1000 * wc98::RECORD_BYTES;

/// Recognises a source by its first [`RECOGNISED_BYTES`], decompressed. Its name is ignored: logs are renamed,
/// rotated and piped.
pub(crate) fn recognise(first: &[u8]) -> Option<Format> {
    let head = &first[..first.len().min(HEAD_BYTES)];
    let text = without_mark(head);
    let is_separated_only = || csv::is_separated(text) && !clf::is_likely(text);
    type IsLikely = fn(&[u8]) -> bool;
    let binary: [(IsLikely, Format); 3] = [
        (compact::is_likely, Format::Compact),
        (oracle::is_likely, Format::OracleGeneral),
        (ucb::is_likely, Format::HomeIp),
    ];
    if let Some((_, format)) = binary.into_iter().find(|(is_likely, _)| is_likely(head)) {
        Some(format)
    } else if wc98::is_likely(first) {
        Some(Format::WorldCup98)
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
