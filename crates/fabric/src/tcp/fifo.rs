//! A first-in, first-out buffer of bytes that never grows.

use std::io::{self, Read, Write};

/// Holds the bytes `bytes[head..tail]`.
#[derive(Debug)]
pub(super) struct Fifo {
    bytes: Box<[u8]>,
    head: usize,
    tail: usize,
}

impl Fifo {
    pub(super) fn new(capacity: usize) -> Self {
        Fifo { bytes: vec![0; capacity].into(), head: 0, tail: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.tail - self.head
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Number of bytes that may be pushed.
    pub(super) fn room(&self) -> usize {
        self.bytes.len() - self.len()
    }

    /// The next `N` bytes, if there are as many; `consume` removes them.
    pub(super) fn front<const N: usize>(&self) -> Option<&[u8; N]> {
        self.bytes[self.head..self.tail].first_chunk()
    }

    pub(super) fn consume(&mut self, count: usize) {
        assert!(count <= self.len(), "more bytes consumed than are there");
        self.head += count;
        if self.is_empty() {
            (self.head, self.tail) = (0, 0);
        }
    }

    /// Appends `bytes`, which must fit.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.room(), "more bytes pushed than there is room for");
        if bytes.len() > self.bytes.len() - self.tail {
            self.compact();
        }
        self.bytes[self.tail..self.tail + bytes.len()].copy_from_slice(bytes);
        self.tail += bytes.len();
    }

    /// Reads once, up to the free room. `Ok(0)` if nothing has arrived.
    ///
    /// # Errors
    /// `UnexpectedEof` if the other side has closed, otherwise the source's error.
    pub(super) fn fill(&mut self, source: &mut impl Read) -> io::Result<usize> {
        self.compact();
        if self.room() == 0 {
            return Ok(0);
        }
        match source.read(&mut self.bytes[self.tail..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.tail += count;
                Ok(count)
            }
            Err(error) if is_transient(&error) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Writes once, as much as the sink accepts.
    ///
    /// # Errors
    /// The sink's error, unless it is only full.
    pub(super) fn drain(&mut self, sink: &mut impl Write) -> io::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        match sink.write(&self.bytes[self.head..self.tail]) {
            Ok(count) => {
                self.consume(count);
                Ok(())
            }
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn compact(&mut self) {
        if self.head > 0 {
            self.bytes.copy_within(self.head..self.tail, 0);
            (self.head, self.tail) = (0, self.len());
        }
    }
}

/// Whether a non-blocking socket should be tried again later.
pub(super) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
