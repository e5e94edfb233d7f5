//! A command's output on its way from the guest to the caller: as it is, or with the guest's name before each line.
//! A port of the guest has no end, so a mark says where the output ends.

use std::io::{self, Read, Write};

/// A line longer than this is passed on in parts.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Why not all was passed on.
#[derive(Debug)]
pub(super) enum Error {
    /// It broke off before the mark.
    From,
    /// It is taken no more.
    To(io::Error),
}

/// Passes on all that comes before `mark`, as it comes.
pub(super) fn pass_on(
    mut from: impl Read,
    mark: &[u8],
    name: Option<&str>,
    mut to: impl Write,
) -> Result<(), Error> {
    let mut marked = Marked { mark, held: Vec::new() };
    let mut lines = name.map(Lines::of);
    let mut buffer = vec![0; LINE_BYTES_MAX];
    loop {
        let length = match from.read(&mut buffer) {
            Ok(0) => return Err(Error::From),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err(Error::From),
        };
        let (mut bytes, ended) = marked.take(&buffer[..length]);
        if let Some(lines) = &mut lines {
            bytes = lines.take(&bytes, ended);
        }
        to.write_all(&bytes).and_then(|()| to.flush()).map_err(Error::To)?;
        if ended {
            return Ok(());
        }
    }
}

/// Finds the mark in what comes in pieces.
struct Marked<'a> {
    mark: &'a [u8],
    /// What may be the mark's beginning.
    held: Vec<u8>,
}

impl Marked<'_> {
    /// What is known to stand before the mark, and whether the mark has come.
    fn take(&mut self, piece: &[u8]) -> (Vec<u8>, bool) {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        if let Some(at) = bytes.windows(self.mark.len()).position(|window| window == self.mark) {
            bytes.truncate(at);
            return (bytes, true);
        }
        let longest = bytes.len().min(self.mark.len() - 1);
        let held = (1..=longest).rev().find(|&length| bytes.ends_with(&self.mark[..length])).unwrap_or(0);
        self.held = bytes.split_off(bytes.len() - held);
        (bytes, false)
    }
}

/// Puts a name before each line, and lets none go out by half: another guest's may come in between.
pub(super) struct Lines {
    before: String,
    line: Vec<u8>,
}

impl Lines {
    /// The lines of `name`.
    pub(super) fn of(name: &str) -> Lines {
        Lines { before: format!("{name}| "), line: Vec::new() }
    }

    /// The lines that `bytes` end, or with `all` whatever is left.
    pub(super) fn take(&mut self, bytes: &[u8], all: bool) -> Vec<u8> {
        let mut lines = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LINE_BYTES_MAX {
                self.end_line(&mut lines);
            }
        }
        if all && !self.line.is_empty() {
            self.end_line(&mut lines);
        }
        lines
    }

    fn end_line(&mut self, lines: &mut Vec<u8>) {
        lines.extend_from_slice(self.before.as_bytes());
        lines.append(&mut self.line);
        if !lines.ends_with(b"\n") {
            lines.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: &[u8] = b"\0end\0";

    /// Gives out the pieces one at a time.
    struct Pieces(Vec<&'static [u8]>);

    impl Read for Pieces {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            self.0.remove(0).read(buffer)
        }
    }

    #[test]
    fn what_comes_before_the_mark_is_passed_on() {
        let whole = b"a\0b\0en\0end\0";
        for cut in 0..whole.len() {
            let (first, second) = whole.split_at(cut);
            let pieces = Pieces([first, second].into_iter().filter(|piece| !piece.is_empty()).collect());
            let mut passed = Vec::new();
            pass_on(pieces, MARK, None, &mut passed).unwrap();
            assert_eq!(passed, b"a\0b\0en", "cut at {cut}");
        }
    }

    #[test]
    fn only_what_may_be_the_mark_is_held() {
        let mut marked = Marked { mark: MARK, held: Vec::new() };
        assert_eq!(marked.take(b"abc"), (b"abc".to_vec(), false));
        assert_eq!(marked.take(b"abc\0e"), (b"abc".to_vec(), false));
        assert_eq!(marked.take(b"x"), (b"\0ex".to_vec(), false));
    }

    #[test]
    fn a_source_that_breaks_off_is_an_error() {
        let mut passed = Vec::new();
        let error = pass_on(Pieces(vec![b"some"]), MARK, None, &mut passed);
        assert!(matches!(error, Err(Error::From)));
        assert_eq!(passed, b"some");
    }

    #[test]
    fn every_line_is_named() {
        let mut passed = Vec::new();
        pass_on(Pieces(vec![b"one\ntw", b"o\n\nthree", MARK]), MARK, Some("edge"), &mut passed).unwrap();
        assert_eq!(String::from_utf8(passed).unwrap(), "edge| one\nedge| two\nedge| \nedge| three\n");
    }

    #[test]
    fn a_line_is_bounded() {
        let mut lines = Lines::of("n");
        let passed = lines.take(&vec![b'x'; LINE_BYTES_MAX], false);
        assert_eq!(passed.len(), "n| ".len() + LINE_BYTES_MAX + 1);
    }
}
