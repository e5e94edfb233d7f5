//! Response bodies: a chunk, repeated up to the promised length.

use std::convert::Infallible;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::connections::Pulse;
use super::documents::State;

/// Size of the buffer that synthetic bodies are cut from, in bytes: what one frame carries.
const PATTERN_BYTES: usize = 64 << 10;

/// Printable, so that a response can be looked at in a terminal.
static PATTERN: LazyLock<Bytes> =
    LazyLock::new(|| (b'!'..=b'~').cycle().take(PATTERN_BYTES).collect::<Vec<u8>>().into());

/// The content behind a path.
#[derive(Clone, Debug)]
pub(super) struct Content {
    chunk: Bytes,
    bytes: u64,
    pub(super) content_type: &'static str,
    /// What the file was that it is of, if that may change.
    pub(super) state: Option<State>,
}

impl Content {
    /// `chunk`, once.
    pub(super) fn whole(chunk: Bytes, content_type: &'static str) -> Self {
        Content { bytes: chunk.len() as u64, chunk, content_type, state: None }
    }

    /// `bytes` bytes of no meaning.
    pub(super) fn synthetic(bytes: u64) -> Self {
        Content { chunk: PATTERN.clone(), bytes, content_type: "application/octet-stream", state: None }
    }

    /// Its bytes, if it is not synthetic.
    pub(super) fn as_whole(&self) -> Option<&[u8]> {
        (self.bytes == self.chunk.len() as u64).then_some(&self.chunk)
    }

    /// Some of the bytes of a whole one.
    pub(super) fn part(self, bytes: Range<u64>) -> Self {
        let chunk = self.chunk.slice(bytes.start as usize..bytes.end as usize);
        Content { bytes: bytes.end - bytes.start, chunk, ..self }
    }

    /// Size of the body in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The body; each of its frames is a sign of life of the connection.
    pub(super) fn into_body(self, pulse: Arc<Pulse>) -> ContentBody {
        ContentBody { chunk: self.chunk, bytes_left: self.bytes, pulse: Some(pulse) }
    }
}

/// The size in `/o/<id>/<bytes>`, if `path` is of this form.
pub(super) fn synthetic_bytes(path: &str) -> Option<u64> {
    let (id, bytes) = path.strip_prefix("/o/")?.split_once('/')?;
    let plain = !id.is_empty() && !bytes.is_empty() && bytes.bytes().all(|b| b.is_ascii_digit());
    // A number too large for a u64 is still a size, above any limit.
    plain.then(|| bytes.parse().unwrap_or(u64::MAX))
}

/// A body in progress.
pub(super) struct ContentBody {
    chunk: Bytes,
    bytes_left: u64,
    pulse: Option<Arc<Pulse>>,
}

impl ContentBody {
    /// An empty body.
    pub(super) fn empty() -> Self {
        ContentBody { chunk: Bytes::new(), bytes_left: 0, pulse: None }
    }
}

impl Body for ContentBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.bytes_left == 0 {
            return Poll::Ready(None);
        }
        let bytes = self.bytes_left.min(self.chunk.len() as u64);
        self.bytes_left -= bytes;
        if let Some(pulse) = &self.pulse {
            pulse.beat();
        }
        Poll::Ready(Some(Ok(Frame::data(self.chunk.slice(..bytes as usize)))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes_left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synthetic_paths_name_their_size() {
        assert_eq!(synthetic_bytes("/o/7/1024"), Some(1024));
        assert_eq!(synthetic_bytes("/o/any.thing/0"), Some(0));
        assert_eq!(synthetic_bytes("/o/7/99999999999999999999999"), Some(u64::MAX));
        for path in ["/o/7", "/o//5", "/o/7/", "/o/7/+5", "/o/7/5x", "/o/7/5/6", "/p/7/5", "o/7/5"] {
            assert_eq!(synthetic_bytes(path), None, "{path}");
        }
    }
}
