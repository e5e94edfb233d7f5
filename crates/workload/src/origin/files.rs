//! Files under one directory, kept in memory up to a bound.
//!
//! Nothing outside the directory is ever read: not through `..`, not encoded, not through a symbolic link.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::config::{OriginConfig, OriginError};
use super::connections::is_shortage;
use super::content::Content;
use super::documents::State;

/// Memory of a kept file beside its bytes, for its path and its table entry. An upper estimate in bytes, which also
/// bounds the number of files.
const ENTRY_BYTES: u64 = 512;

/// How often a file is read that changes meanwhile.
const READ_TRIES: u32 = 3;

/// Why a path is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absent {
    /// There is no such file, or none that may be seen.
    Missing,
    /// It is larger than the limit.
    TooLarge,
    /// It exists but could not be read.
    Unreadable,
    /// The process has no descriptors or memory left to read it.
    Shortage,
}

/// The files of one origin.
#[derive(Clone, Debug)]
pub(super) struct Files {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    file_bytes_max: u64,
    cache_bytes_max: u64,
    cache: Mutex<Cache>,
    /// Whether files may change.
    may_change: bool,
}

#[derive(Debug, Default)]
struct Cache {
    files: HashMap<PathBuf, Content>,
    bytes: u64,
}

impl Files {
    /// The files under the root of `config`, if it has one.
    pub(super) fn open(config: &OriginConfig) -> Result<Option<Self>, OriginError> {
        let Some(path) = &config.root else { return Ok(None) };
        let failed = |source| OriginError::Root { path: path.clone(), source };
        // The real path, resolved once: whether a file is below it is then a comparison of names.
        let root = path.canonicalize().map_err(failed)?;
        std::fs::read_dir(&root).map_err(failed)?;
        let inner = Inner {
            root,
            file_bytes_max: config.file_bytes_max,
            cache_bytes_max: config.cache_bytes_max,
            cache: Mutex::default(),
            may_change: config.documents.is_some(),
        };
        Ok(Some(Files { inner: Arc::new(inner) }))
    }

    /// The file that a request path names, from memory or from disk.
    pub(super) async fn get(&self, path: &str) -> Result<Content, Absent> {
        let relative = relative(path).ok_or(Absent::Missing)?;
        if let Some(content) = self.inner.cached(&relative) {
            return Ok(content);
        }
        let inner = Arc::clone(&self.inner);
        let read = tokio::task::spawn_blocking(move || inner.read(relative)).await;
        read.unwrap_or(Err(Absent::Unreadable))
    }
}

impl Inner {
    fn cached(&self, relative: &Path) -> Option<Content> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).files.get(relative).cloned()
    }

    fn read(&self, relative: PathBuf) -> Result<Content, Absent> {
        let path = self.root.join(&relative).canonicalize().map_err(absent)?;
        if !path.starts_with(&self.root) {
            return Err(Absent::Missing);
        }
        let metadata = path.metadata().map_err(absent)?;
        // Checked before opening, because opening a FIFO would block until a process writes to it.
        if !metadata.is_file() {
            return Err(Absent::Missing);
        }
        if metadata.len() > self.file_bytes_max {
            return Err(Absent::TooLarge);
        }
        let mut tries = 0;
        loop {
            let (bytes, state) = self.read_once(&path).map_err(absent)?;
            if bytes.len() as u64 > self.file_bytes_max {
                return Err(Absent::TooLarge);
            }
            tries += 1;
            if self.may_change && !state.is_whole() && tries < READ_TRIES {
                continue;
            }
            let mut content = Content::whole(Bytes::from(bytes), content_type(&path));
            if self.may_change {
                content.state = Some(state);
            } else {
                self.keep(relative, &content);
            }
            return Ok(content);
        }
    }

    fn read_once(&self, path: &Path) -> io::Result<(Vec<u8>, State)> {
        let checked_ns = sidelong_os::monotonic_ns();
        let mut file = File::open(path)?;
        let before = file.metadata()?;
        let mut bytes = Vec::new();
        // One byte more than allowed, as the file may have grown since.
        let bytes_max = self.file_bytes_max.saturating_add(1);
        (&mut file).take(bytes_max).read_to_end(&mut bytes)?;
        let state = State::of(checked_ns, &before, &file.metadata()?, bytes.len());
        Ok((bytes, state))
    }

    /// Kept in order of arrival: traces use a fixed set of files, and eviction would only add noise.
    fn keep(&self, relative: PathBuf, content: &Content) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = content.bytes() + ENTRY_BYTES + relative.as_os_str().len() as u64;
        if cache.bytes + bytes <= self.cache_bytes_max && !cache.files.contains_key(&relative) {
            cache.bytes += bytes;
            cache.files.insert(relative, content.clone());
        }
    }
}

fn absent(error: io::Error) -> Absent {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotADirectory, NotFound};
    match error.kind() {
        NotFound | NotADirectory | IsADirectory | InvalidInput => Absent::Missing,
        _ if is_shortage(&error) => Absent::Shortage,
        _ => {
            tracing::warn!(%error, "a file could not be read");
            Absent::Unreadable
        }
    }
}

/// A request path as a path below the root; `None` if it tries to leave the root.
fn relative(path: &str) -> Option<PathBuf> {
    let mut decoded = percent_decoded(path)?;
    if decoded.ends_with('/') {
        decoded.push_str("index.html");
    }
    let mut relative = PathBuf::new();
    for component in Path::new(decoded.trim_start_matches('/')).components() {
        match component {
            Component::Normal(name) => relative.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(relative)
}

/// Decodes `%xx` in `path`; `None` if one is malformed, or the result is not text or contains a NUL.
fn percent_decoded(path: &str) -> Option<String> {
    let mut bytes = path.bytes();
    let mut decoded = Vec::with_capacity(path.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok().filter(|path| !path.contains('\0'))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|digit| digit as u8)
}

fn content_type(path: &Path) -> &'static str {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("txt" | "md" | "csv") => "text/plain; charset=utf-8",
        Some("json") => "application/json",
        Some("xml") => "application/xml",
        Some("pdf") => "application/pdf",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("ico") => "image/x-icon",
        Some("mp4") => "video/mp4",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_paths_stay_below_the_root() {
        let at = |path| relative(path).map(|path| path.to_str().expect("text").to_owned());
        assert_eq!(at("/a/b.html").as_deref(), Some("a/b.html"));
        assert_eq!(at("/").as_deref(), Some("index.html"));
        assert_eq!(at("/a//./b/").as_deref(), Some("a/b/index.html"));
        assert_eq!(at("/a%20b").as_deref(), Some("a b"));
        for path in
            ["/..", "/a/../../b", "/%2e%2e/b", "/a/%2e%2E%2fb", "/a%00", "/a%", "/a%2", "/%zz", "/%ff"]
        {
            assert_eq!(at(path), None, "{path}");
        }
    }
}
