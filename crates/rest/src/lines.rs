//! An answer that goes on: one JSON object a line, as things happen.

use std::time::Duration;

use http::Response;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::Failed;

/// Most bytes of a line.
const LINE_BYTES_MAX: usize = 16 << 20;

/// The lines of an answer. It ends when this is dropped.
#[derive(Debug)]
pub struct Lines {
    answer: Response<Incoming>,
    /// Of the next line.
    read: Vec<u8>,
}

impl Lines {
    /// Of an answer that has begun.
    pub fn of(answer: Response<Incoming>) -> Self {
        Lines { answer, read: Vec::new() }
    }

    /// The next line; `None` if it has not come within `wait`. `runtime` is that of the answer.
    ///
    /// # Errors
    /// If the answer has ended, or a line is too long.
    pub fn next(&mut self, runtime: &Runtime, wait: Duration) -> Result<Option<Vec<u8>>, Failed> {
        let Lines { answer, read } = self;
        let more = async {
            while !read.contains(&b'\n') {
                match answer.body_mut().frame().await {
                    Some(Ok(frame)) => read.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data)),
                    Some(Err(error)) => return Err(Failed::Cut(error.to_string())),
                    None => return Err(Failed::Cut("the end of the watch".to_owned())),
                }
                if read.len() > LINE_BYTES_MAX {
                    return Err(Failed::Answer(format!("a line of more than {LINE_BYTES_MAX} bytes")));
                }
            }
            Ok(())
        };
        match runtime.block_on(async { timeout(wait, more).await }) {
            Err(_) => return Ok(None),
            Ok(done) => done?,
        }
        let end = self.read.iter().position(|byte| *byte == b'\n').map_or(self.read.len(), |end| end + 1);
        Ok(Some(self.read.drain(..end).collect()))
    }
}
