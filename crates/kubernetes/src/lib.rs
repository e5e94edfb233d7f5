//! The endpoints of a service, as a [Kubernetes](https://kubernetes.io/docs/reference/using-api/api-concepts/) API server has them: a list of
//! its EndpointSlices, then a watch of what changes. It blocks, and each wait is bounded. Nothing here knows what the endpoints are for.
//!
//! Why by hand: the crates that speak to all of Kubernetes bring forty others.
#![forbid(unsafe_code)]

mod access;
mod slices;
mod wire;

use std::time::{Duration, Instant};

use sidelong_rest::{self as rest, Lines};

pub use access::{Access, Error, Service, ServiceError};
pub use sidelong_rest::Endpoint as Server;
pub use slices::{Endpoint, PortError, State};

use slices::Slices;
use wire::Event;

/// The API server ends a watch after so many seconds, and it is begun anew.
const WATCH_S: u64 = 60;
/// Most pages of a list.
const PAGES_MAX: usize = 1000;
/// A watch that ended sooner is begun anew only after as much.
const WATCH_MIN: Duration = Duration::from_secs(1);
/// Where nothing comes for that long, not even the end, the connection is dead.
const SILENT_MAX: Duration = Duration::from_secs(WATCH_S + 10);

/// Watches the endpoints of a service.
#[derive(Debug)]
pub struct Watcher {
    runtime: rest::Blocking,
    access: Access,
    service: Service,
    slices: Slices,
    /// What is known, as the API server numbers it; `None` if all is to be listed.
    version: Option<String>,
    watch: Option<Watch>,
}

/// A watch that has begun.
#[derive(Debug)]
struct Watch {
    lines: Lines,
    began: Instant,
    /// When something last came.
    heard: Instant,
}

impl Watcher {
    /// Of a service. Nothing is asked yet.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn new(access: Access, service: Service) -> Result<Self, Error> {
        let runtime = rest::Blocking::new().map_err(Error::Descriptors)?;
        Ok(Watcher { runtime, access, service, slices: Slices::default(), version: None, watch: None })
    }

    /// Waits until the endpoints have changed, for at most so long if the API server answers; the first time, until they are known. Returns
    /// whether they have.
    ///
    /// # Errors
    /// If the API server cannot be asked. The endpoints stay as they were, and the next call asks anew.
    pub fn next(&mut self, wait: Duration) -> Result<bool, Error> {
        let until = Instant::now() + wait;
        let Some(version) = self.version.clone() else {
            (self.slices, self.version) = self.list()?;
            return Ok(true);
        };
        if self.watch.is_none() {
            match self.access.watch(&self.runtime, &self.service, &version, WATCH_S) {
                Ok(answer) => {
                    let now = Instant::now();
                    self.watch = Some(Watch { lines: Lines::of(answer), began: now, heard: now });
                }
                Err(Error::Expired) => {
                    self.version = None;
                    return self.next(wait);
                }
                Err(why) => return Err(why),
            }
        }
        while let Some(Watch { lines, began, heard }) = &mut self.watch {
            let left = until.saturating_duration_since(Instant::now());
            match lines.next(&self.runtime, left) {
                Ok(None) => {
                    if heard.elapsed() > SILENT_MAX {
                        self.watch = None;
                    }
                    break;
                }
                Ok(Some(line)) => {
                    *heard = Instant::now();
                    match self.hear(&line) {
                        Ok(true) => return Ok(true),
                        Ok(false) => {}
                        Err(why) => {
                            // What it says would be missed.
                            (self.version, self.watch) = (None, None);
                            return Err(why);
                        }
                    }
                }
                // As it was asked to.
                Err(rest::Failed::Cut(_)) => {
                    std::thread::sleep(WATCH_MIN.saturating_sub(began.elapsed()).min(left));
                    self.watch = None;
                }
                Err(failed) => {
                    self.watch = None;
                    return Err(self.access.error_of(failed));
                }
            }
        }
        Ok(false)
    }

    /// The endpoints as last heard, each once, at that port: a name or a number. Without one the service has a single port.
    ///
    /// # Errors
    /// If there is no such port, or several.
    pub fn endpoints(&self, port: Option<&str>) -> Result<Vec<Endpoint>, PortError> {
        self.slices.endpoints(port)
    }

    fn list(&self) -> Result<(Slices, Option<String>), Error> {
        let (mut slices, mut more) = (Slices::default(), String::new());
        for _ in 0..PAGES_MAX {
            let page = self.access.list(&self.runtime, &self.service, &more)?;
            page.items.into_iter().for_each(|slice| slices.put(slice));
            match page.metadata.more {
                Some(next) if !next.is_empty() => more = next,
                _ => return Ok((slices, Some(page.metadata.version))),
            }
        }
        Err(self.access.error_of(rest::Failed::Answer(format!("more than {PAGES_MAX} pages of slices"))))
    }

    /// Takes over what a line of the watch says. Returns whether endpoints may have changed.
    fn hear(&mut self, line: &[u8]) -> Result<bool, Error> {
        let event: Event = serde_json::from_slice(line)
            .map_err(|error| self.access.error_of(rest::Failed::Answer(error.to_string())))?;
        match event {
            Event::Bookmark(slice) => {
                self.version = Some(slice.metadata.version);
                Ok(false)
            }
            Event::Added(slice) | Event::Modified(slice) => {
                self.version = Some(slice.metadata.version.clone());
                self.slices.put(slice);
                Ok(true)
            }
            Event::Deleted(slice) => {
                self.version = Some(slice.metadata.version.clone());
                self.slices.remove(&slice);
                Ok(true)
            }
            // What was known is too old, or the server says nothing that is better known.
            Event::Error(status) => {
                (self.version, self.watch) = (None, None);
                match status.code {
                    access::GONE => Ok(false),
                    _ => Err(self.access.refused(status)),
                }
            }
        }
    }
}
