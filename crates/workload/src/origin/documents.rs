//! Files that may change while they are served: the fields and validators that they have, how requests for them are answered, and
//! who is told of them to answer with them, too.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::header::{CONTENT_RANGE, HOST};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use sidelong_policy::documents::{Field, Reply, Validators, may_keep};

use super::config::NODE_HEADER;
use super::connections::Pulse;
use super::content::{Content, ContentBody};
use super::files::Absent;

/// A file that has changed this recently may change again and look the same. Filesystems count in whole ticks of the kernel, or in
/// two seconds, and Last-Modified in seconds.
const SETTLED_AFTER: Duration = Duration::from_secs(2);

/// How files are served that may change.
#[derive(Clone)]
pub struct Documents {
    /// For how long an answer may be repeated before the file is looked at again; whole seconds, at least one.
    pub max_age: Duration,
    /// Told of each document that others may answer with, and of each that is there no more, before the client is answered.
    pub keep: Arc<dyn Fn(&DocumentChange<'_>) + Send + Sync>,
}

impl fmt::Debug for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Documents").field("max_age", &self.max_age).finish_non_exhaustive()
    }
}

/// What is told of a document.
#[derive(Clone, Copy, Debug)]
pub struct DocumentChange<'a> {
    /// The host that it was asked of.
    pub host: &'a [u8],
    /// The path and query that it was asked by.
    pub target: &'a str,
    /// `None` if it is there no more.
    pub document: Option<Current<'a>>,
}

/// A document as it is now.
#[derive(Clone, Copy, Debug)]
pub struct Current<'a> {
    /// When its file was looked at, in nanoseconds of the machine's monotonic clock.
    pub checked_ns: u64,
    /// Its fields, as lines of HTTP/1.
    pub head: &'a [u8],
    /// Its content.
    pub body: &'a [u8],
}

/// What a file was when it was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct State {
    /// When it was looked at.
    pub(super) checked_ns: u64,
    /// When it was modified, if it was the same before and after it was read.
    modified: Option<SystemTime>,
    etag: Option<String>,
}

impl State {
    /// Of a file that was `before` and `after` it was read to `bytes` bytes.
    pub(super) fn of(checked_ns: u64, before: &Metadata, after: &Metadata, bytes: usize) -> Self {
        let identity =
            |file: &Metadata| (file.len(), file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec());
        let is_same = identity(before) == identity(after) && before.len() == bytes as u64;
        let modified = before.modified().ok().filter(|_| is_same);
        // Not by its number on the disk: on all nodes a document has one tag.
        let etag = modified
            .map(|_| format!("\"{:x}-{:x}-{:x}\"", before.len(), before.mtime(), before.mtime_nsec()));
        State { checked_ns, modified, etag }
    }

    /// Whether it was one file throughout.
    pub(super) fn is_whole(&self) -> bool {
        self.modified.is_some()
    }

    /// Its validators, once it can be told from what it may become: the tag, and when it was modified.
    fn validators(&self, now: SystemTime) -> Option<(&str, String)> {
        let modified =
            self.modified.filter(|at| now.duration_since(*at).is_ok_and(|age| age > SETTLED_AFTER))?;
        Some((self.etag.as_deref()?, httpdate::fmt_http_date(modified)))
    }
}

impl Documents {
    /// The fields of a document, beside those that say where and when it was answered.
    fn fields(&self, content: &Content, state: &State) -> Vec<(&'static str, String)> {
        let cache_control = match state.is_whole() {
            true => format!("max-age={}", self.max_age.as_secs()),
            false => "no-store".to_owned(),
        };
        let mut fields = vec![
            ("content-type", content.content_type.to_owned()),
            ("cache-control", cache_control),
            ("accept-ranges", "bytes".to_owned()),
        ];
        if let Some((etag, modified)) = state.validators(SystemTime::now()) {
            fields.push(("etag", etag.to_owned()));
            fields.push(("last-modified", modified));
        }
        fields
    }

    /// Tells who keeps documents of the one that a request has found or not.
    pub(super) fn tell(&self, request: &Parts, found: &Result<Content, Absent>, name: Option<&HeaderValue>) {
        let host = request.headers.get(HOST).map(HeaderValue::as_bytes).unwrap_or_default();
        let target = request.uri.path_and_query().map_or("/", |target| target.as_str());
        if !matches!(request.method, Method::GET | Method::HEAD) {
            return;
        }
        let told = |document| (self.keep)(&DocumentChange { host, target, document });
        match found {
            Err(Absent::Missing | Absent::TooLarge) => told(None),
            Ok(content) => {
                let (Some(state), Some(body)) = (&content.state, content.as_whole()) else { return };
                let fields = self.fields(content, state);
                let response: Vec<Field<'_>> =
                    fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
                // What answers HEAD has been read as for GET.
                if !may_keep(true, &request_fields(request), 200, &response) {
                    return;
                }
                let date = httpdate::fmt_http_date(SystemTime::now());
                let mut head = format!("date: {date}\r\n").into_bytes();
                let node = name.map(|name| (NODE_HEADER.as_bytes(), name.as_bytes()));
                for (name, value) in response.into_iter().chain(node) {
                    head.extend([name, b": ", value, b"\r\n"].concat());
                }
                told(Some(Current { checked_ns: state.checked_ns, head: &head, body }));
            }
            Err(Absent::Unreadable | Absent::Shortage) => {}
        }
    }

    /// The answer to a request for a document: `response`, with what the request's conditions and range leave of it.
    pub(super) fn answer(
        &self,
        request: &Parts,
        content: Content,
        state: &State,
        mut response: Response<ContentBody>,
        pulse: Arc<Pulse>,
    ) -> Response<ContentBody> {
        let fields = self.fields(&content, state);
        let stated: Vec<Field<'_>> =
            fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
        let (is_get, len) = (request.method == Method::GET, content.bytes());
        let reply = Reply::to(is_get, &request_fields(request), Validators::of(&stated), len);
        *response.status_mut() = StatusCode::from_u16(reply.status()).expect("replies have statuses");
        let headers = response.headers_mut();
        let range = reply.content_range(len).map(|range| (CONTENT_RANGE.as_str(), range));
        let fields = fields.iter().filter(|(name, _)| reply.has_field(name.as_bytes()));
        for (name, value) in fields.map(|(name, value)| (*name, value.clone())).chain(range) {
            if let Ok(value) = HeaderValue::from_str(&value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        }
        let bytes = reply.bytes(len);
        response.map(|_| content.part(bytes).into_body(pulse))
    }
}

fn request_fields(request: &Parts) -> Vec<Field<'_>> {
    request.headers.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())).collect()
}
