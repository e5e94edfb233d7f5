//! Shared by readers of text: lines of bounded length, numbers, and numbers for names.

use std::io::{self, BufRead, Read};

use twox_hash::XxHash3_64;

use crate::broken::Flaw;

/// Most bytes of one line, including its end. Apache's and nginx' own limits on a request line are 8 KiB each.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// With which some programs begin a text in UTF-8.
pub(crate) const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// The first bytes of a text without its byte order mark.
pub(crate) fn without_mark(head: &[u8]) -> &[u8] {
    head.strip_prefix(&BYTE_ORDER_MARK).unwrap_or(head)
}

/// Reads one line after another into the same buffer. Blank lines, and NULs at the beginning of a line, are skipped: a log that
/// was truncated while its server wrote on begins with NULs.
#[derive(Debug)]
pub(crate) struct LineReader {
    line: Vec<u8>,
    end: u8,
    /// Blank lines that were skipped.
    pub(crate) blank: u64,
    /// NULs that were skipped.
    pub(crate) nuls: u64,
}

impl LineReader {
    /// For a source that begins with `head`.
    pub(crate) fn new(head: &[u8]) -> Self {
        LineReader { line: Vec::new(), end: line_end(head), blank: 0, nuls: 0 }
    }

    /// The next line, with its end if it has one; `None` at the end of the source. The rest of a line that is too long
    /// is skipped.
    pub(crate) fn read(&mut self, source: &mut dyn BufRead) -> io::Result<Option<Result<&[u8], Flaw>>> {
        loop {
            self.line.clear();
            if source.fill_buf()?.first() == Some(&0) {
                self.nuls += skip_nuls(source)?;
            }
            // One byte over the limit tells a line that just fits from one that is too long.
            let read = source.take(LINE_BYTES_MAX as u64 + 1).read_until(self.end, &mut self.line)?;
            if read == 0 {
                return Ok(None);
            }
            if read > LINE_BYTES_MAX {
                if self.line.last() != Some(&self.end) {
                    source.skip_until(self.end)?;
                }
                return Ok(Some(Err(Flaw::LineTooLong)));
            }
            if read > 2 || !self.line.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
                return Ok(Some(Ok(&self.line)));
            }
            self.blank += 1;
        }
    }
}

/// What ends the lines of a text that begins with `head`: a newline, or a carriage return where there are no newlines.
fn line_end(head: &[u8]) -> u8 {
    if head.contains(&b'\r') && !head.contains(&b'\n') { b'\r' } else { b'\n' }
}

/// Skips the NULs that a source continues with, and returns how many.
pub(crate) fn skip_nuls(source: &mut dyn BufRead) -> io::Result<u64> {
    let mut skipped = 0;
    loop {
        let buffer = source.fill_buf()?;
        let nuls = buffer.iter().take_while(|byte| **byte == 0).count();
        let is_over = nuls < buffer.len() || buffer.is_empty();
        source.consume(nuls);
        skipped += nuls as u64;
        if is_over {
            return Ok(skipped);
        }
    }
}

/// The lines in a source's first bytes, but for blank ones. An incomplete last line is left out, unless it is the only one.
pub(crate) fn whole_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let line_end = line_end(head);
    let end = head.iter().rposition(|&byte| byte == line_end).map_or(head.len(), |at| at + 1);
    head[..end].split_inclusive(move |&byte| byte == line_end).map(trimmed).filter(|line| !line.is_empty())
}

/// A line without its end.
pub(crate) fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Parses decimal digits; `None` if there is anything else, or the number exceeds a u64.
pub(crate) fn parse_number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// As `str::split_once`, for a single byte.
pub(crate) fn split_once<'a>(text: &'a [u8], separator: &[u8; 1]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.iter().position(|byte| byte == &separator[0])?;
    Some((&text[..at], &text[at + 1..]))
}

/// The number of an object: its name if that is a number, otherwise XXH3 of its name. Nothing is stored, so there may
/// be any number of objects; of 16 million names, two get the same number with a probability of 10^-5.
pub(crate) fn object_number(name: &[u8]) -> u64 {
    // "7" and "07" are different names.
    let is_plain = name.first() != Some(&b'0') || name.len() == 1;
    parse_number(name).filter(|_| is_plain).unwrap_or_else(|| XxHash3_64::oneshot(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_called_by_a_number_keeps_it() {
        assert_eq!(object_number(b"0"), 0);
        assert_eq!(object_number(b"18446744073709551615"), u64::MAX);
        let others: [&[u8]; 5] = [b"07", b"7 ", b"-7", b"18446744073709551616", b""];
        let mut numbers = others.map(object_number).to_vec();
        assert!(!numbers.contains(&7));
        numbers.dedup();
        assert_eq!(numbers.len(), others.len());
        // XXH3 by its specification: the numbers of traces that were converted must not change.
        assert_eq!(object_number(b""), 0x2d06_8005_38d3_94c2);
    }

    #[test]
    fn lines_end_as_they_do_and_blank_ones_and_nuls_are_skipped() {
        let read = |text: &'static [u8]| {
            let (mut lines, mut source) = (LineReader::new(text), text);
            let mut read = Vec::new();
            while let Some(line) = lines.read(&mut source).unwrap() {
                read.push(trimmed(line.unwrap()).to_vec());
                assert!(read.len() < 9);
            }
            (read, lines.blank, lines.nuls)
        };
        let two = vec![b"a".to_vec(), b"b".to_vec()];
        assert_eq!(read(b"a\r\n\r\n\nb"), (two.clone(), 2, 0));
        assert_eq!(read(b"a\rb\r\r"), (two.clone(), 1, 0));
        assert_eq!(read(b"\0\0\0a\n\0b\n"), (two, 0, 4));
        assert_eq!(read(b"\0\0"), (vec![], 0, 2));
    }

    #[test]
    fn a_line_that_was_cut_is_no_whole_one() {
        let lines = |head: &'static [u8]| whole_lines(head).collect::<Vec<_>>();
        assert_eq!(lines(b"a\r\nb\nc"), [b"a", b"b"]);
        assert_eq!(lines(b"abc"), [b"abc"]);
        assert_eq!(lines(b"\n\r\na\n"), [b"a"]);
        assert_eq!(lines(b"a\rb\rc"), [b"a", b"b"]);
        assert_eq!(lines(b"").len(), 0);
    }
}
