//! Watches the regions that a part exposes. A region whose file another process has truncated, removed or replaced is lost to
//! all: its readers notice and link anew, and its owner creates it anew.
//!
//! The thread sleeps until the kernel reports a change (inotify), so that nothing of it runs on a node whose load the kernel
//! keeps. If the user has no inotify instance left, it checks at intervals instead.

use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;
use sidelong_fabric::{Error, Host, OwnedRegion, Region, RegionSpec};

use crate::failure::Failure;
use crate::follower::Follower;

/// Interval between two checks, and between two attempts to create the board.
const CHECK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: Duration::from_millis(100).as_nanos() as i64 };

/// Creates a region anew.
pub(crate) type Exposure = Box<dyn Fn() -> Result<Region, Error> + Send>;

/// Exposes memory that is as large as `setting` of the cluster file says.
///
/// # Errors
/// As [`Host::expose_owned`]; one on its size names the setting.
pub(crate) fn expose_owned(
    host: &Host,
    spec: &RegionSpec<'_>,
    setting: &str,
) -> Result<OwnedRegion, Failure> {
    host.expose_owned(spec).map_err(|error| match error.is_full() {
        true => Failure::new(format!("{error}, or lower {setting}")),
        false => error.into(),
    })
}

/// The thread that watches; it ends with this value.
pub(crate) struct Guard {
    lost: Arc<OnceLock<String>>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Guard {
    /// Watches `own`, the regions of this part alone, and the board, and has the part follow the roster. If one of `own` is
    /// lost, `end` ends this part, and its next life creates it anew. A lost board is created by `anew`.
    pub(crate) fn start(
        own: Vec<Region>,
        board: Option<Region>,
        anew: Exposure,
        follower: Option<Follower>,
        end: impl FnOnce() + Send + 'static,
    ) -> Result<Guard, Failure> {
        let lost = Arc::new(OnceLock::new());
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (name, stopped) = (Arc::clone(&lost), Arc::clone(&stop));
        let thread = std::thread::Builder::new().name("regions".into()).spawn(move || {
            if let Some(region) = watch(&own, board, &anew, follower, &stopped) {
                tracing::error!(
                    region,
                    "another process has truncated or removed the region's file; this part ends"
                );
                let _ = name.set(region.to_owned());
                end();
            }
        })?;
        Ok(Guard { lost, stop, thread: Some(thread) })
    }

    /// # Errors
    /// If this part has ended because a region was lost.
    pub(crate) fn result(&self) -> Result<(), Failure> {
        self.lost.get().map_or(Ok(()), |name| {
            let why = "was truncated or removed by another process: start this part again";
            Err(Failure::new(format!("the file of region {name} {why}")))
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        // Its panic was printed where it happened.
        self.thread.take().map(JoinHandle::join);
    }
}

/// Returns the name of a region of `own` that is lost, or `None` once `stop` is readable.
fn watch<'a>(
    own: &'a [Region],
    mut board: Option<Region>,
    anew: &Exposure,
    mut follower: Option<Follower>,
    stop: &OwnedFd,
) -> Option<&'a str> {
    let reports = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok();
    let is_reported =
        |region: &Region| reports.as_ref().is_some_and(|reports| region.report_to(reports).is_ok());
    let has_board = board.is_some();
    let mut checks = !own.iter().chain(&board).all(is_reported);
    loop {
        if let Some(region) = own.iter().find(|region| region.is_lost()) {
            return Some(&region.key().name);
        }
        if board.as_ref().is_some_and(Region::is_lost) {
            tracing::error!(
                "another process has truncated or removed the board's file; the board is created anew"
            );
            board = None;
        }
        if has_board && board.is_none() {
            board = anew().inspect_err(|error| tracing::debug!(%error, "there is no board yet")).ok();
            checks |= board.as_ref().is_some_and(|board| !is_reported(board));
        }
        let follows = follower.as_mut().is_none_or(|follower| {
            // What becomes of the roster before it is watched shows at the second look.
            let watched = |reports| follower.report_to(reports).is_ok();
            let is_watched = reports.as_ref().is_some_and(watched);
            follower.look();
            is_watched
        });
        let waits = follower.as_ref().is_some_and(Follower::is_waiting);
        let timeout = (checks || !follows || waits || has_board && board.is_none()).then_some(&CHECK_EVERY);
        let mut waiting = vec![PollFd::new(stop, PollFlags::IN)];
        waiting.extend(
            follower.as_ref().and_then(Follower::wakes).map(|wakes| PollFd::new(wakes, PollFlags::IN)),
        );
        waiting.extend(reports.as_ref().map(|reports| PollFd::new(reports, PollFlags::IN)));
        if poll(&mut waiting, timeout).is_ok() && waiting[0].revents().contains(PollFlags::IN) {
            return None;
        }
        // What a report says does not matter.
        let mut buffer = [0; 4096];
        while reports.as_ref().is_some_and(|reports| rustix::io::read(reports, &mut buffer).is_ok()) {}
    }
}
