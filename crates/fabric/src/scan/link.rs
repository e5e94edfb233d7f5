//! A link that is made again when it breaks: when to retry, which shape was found, and the problem, reported once.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use sidelong_layout::{RegionKind, Time};

use super::Target;
use crate::{Access, Backoff, Directory, Error, Initiator, LinkId, OpError};

/// Most problems of one peer that are remembered as reported. Beyond them the oldest may be reported again.
const TOLD_MAX: usize = 8;

/// The problems with a peer since it last worked. Each is reported once, even if several alternate.
#[derive(Clone, Default, Debug)]
pub struct Problem {
    /// The last is the current one.
    told: Vec<String>,
    /// Whether waiting is useless: the region has another version or another content.
    is_foreign: bool,
}

impl Problem {
    /// Keeps the problem. Returns whether it is new since the peer last worked and should be reported.
    pub fn is_news(&mut self, error: &dyn fmt::Display, is_foreign: bool) -> bool {
        let text = error.to_string();
        self.is_foreign = is_foreign;
        if let Some(at) = self.told.iter().position(|told| *told == text) {
            self.told[at..].rotate_left(1);
            return false;
        }
        if self.told.len() == TOLD_MAX {
            self.told.remove(0);
        }
        self.told.push(text);
        true
    }

    /// Ends the problem.
    pub fn clear(&mut self) {
        *self = Problem::default();
    }

    /// The current problem in words.
    pub fn text(&self) -> Option<&str> {
        self.told.last().map(String::as_str)
    }

    /// Whether waiting is useless.
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }
}

#[derive(Debug)]
pub(super) struct HealingLink {
    region: String,
    shapes: Vec<(RegionKind, usize)>,
    /// Index of the shape, found or guessed.
    shape: usize,
    access: Access,
    items: Range<usize>,
    id: Option<LinkId>,
    /// Whether it may lead to abandoned memory.
    is_doubted: bool,
    /// How many of those who asked for it use it.
    pub(super) users: usize,
    /// Whether it is in the scanner's list of links that need attention.
    pub(super) is_listed: bool,
    retry: Backoff,
    problem: Problem,
    /// Whether the last attempt found nobody who exposes the region.
    found_nobody: bool,
    /// Of the process to which it led last.
    incarnation: Option<u64>,
    /// Where that was asked.
    place: Option<SocketAddr>,
}

impl HealingLink {
    pub(super) fn new(target: &Target<'_>, retry: (Duration, Duration)) -> Self {
        assert!(target.guess < target.shapes.len(), "a guess among the shapes");
        HealingLink {
            region: target.region.to_owned(),
            shapes: target.shapes.to_vec(),
            shape: target.guess,
            access: target.access,
            items: target.items.clone(),
            id: None,
            is_doubted: false,
            users: 0,
            is_listed: false,
            retry: Backoff::new(retry),
            problem: Problem::default(),
            found_nobody: false,
            incarnation: None,
            place: None,
        }
    }

    pub(super) fn region(&self) -> &str {
        &self.region
    }

    pub(super) fn found_nobody(&self) -> bool {
        self.found_nobody
    }

    pub(super) fn incarnation(&self) -> Option<u64> {
        self.incarnation
    }

    /// Whether its region is where it was when the link was made.
    pub(super) fn has_stayed(&self, directory: &dyn Directory) -> bool {
        self.place == directory.place(&self.region)
    }

    pub(super) fn id(&self) -> Option<LinkId> {
        self.id
    }

    pub(super) fn shape(&self) -> usize {
        self.shape
    }

    pub(super) fn items(&self) -> Range<usize> {
        self.items.clone()
    }

    pub(super) fn cover(&mut self, items: Range<usize>) {
        self.items = items;
    }

    pub(super) fn problem(&self) -> Option<&Problem> {
        Some(&self.problem).filter(|problem| problem.text().is_some())
    }

    pub(super) fn guess(&mut self, shape: usize) {
        if self.id.is_none() {
            self.shape = shape;
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.id.is_none() || self.is_doubted
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.retry.is_due(now)
    }

    pub(super) fn due(&self) -> Time {
        self.retry.due()
    }

    pub(super) fn doubt(&mut self) {
        self.is_doubted = true;
    }

    pub(super) fn trust(&mut self, now: Time) {
        if std::mem::take(&mut self.is_doubted) {
            self.retry.succeeded(now);
            self.problem.clear();
        }
    }

    /// Makes the link, in place of an existing one.
    pub(super) fn connect(
        &mut self,
        initiator: &mut Initiator,
        directory: &dyn Directory,
        wait: Duration,
        now: Time,
    ) -> Result<(), Error> {
        self.retry.failed(now);
        let place = directory.place(&self.region);
        let (shapes, access) = (&self.shapes, self.access);
        let made = initiator.connect_shaped(directory, &self.region, shapes, self.shape, access, wait);
        if !matches!(made, Err(Error::Earlier(_))) {
            self.found_nobody = made.as_ref().is_err_and(Error::found_nobody);
        }
        match made {
            Ok((id, shape)) => {
                if let Some(old) = self.id.replace(id) {
                    initiator.close(old);
                }
                (self.shape, self.place) = (shape, place);
                self.incarnation = initiator.incarnation(id);
                self.problem.clear();
                // A doubted link may again lead to abandoned memory.
                if !self.is_doubted {
                    self.retry.succeeded(now);
                }
                Ok(())
            }
            Err(error) => {
                self.complain(&error);
                Err(error)
            }
        }
    }

    /// Marks the link as broken; returns the id to close.
    pub(super) fn lose(&mut self, error: OpError) -> Option<LinkId> {
        let id = self.id.take();
        if id.is_some() && self.problem.is_news(&error, false) {
            tracing::debug!(region = self.region, problem = %error, "a link is down");
        }
        id
    }

    /// Logs a new problem. A region that does not exist yet is waited for silently. Of a peer's several regions, only
    /// the one whose reader doubts reports that the peer cannot be reached. A region of another version would be waited
    /// for without end.
    fn complain(&mut self, error: &Error) {
        let is_foreign = matches!(error, Error::Header { .. });
        if !self.problem.is_news(error, is_foreign) {
            return;
        }
        let is_there = !matches!(error, Error::NoKey { .. });
        if is_foreign || is_there && self.is_doubted {
            tracing::warn!(region = self.region, problem = %error, "a region cannot be read");
        } else {
            tracing::debug!(region = self.region, problem = %error, "a region is not linked to");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_that_alternate_are_told_once_each_until_they_are_over() {
        let mut problem = Problem::default();
        let told = |problem: &mut Problem| {
            ["refused", "late", "refused", "late"].map(|text| problem.is_news(&text, false))
        };
        assert_eq!(told(&mut problem), [true, true, false, false]);
        assert_eq!(problem.text(), Some("late"));
        problem.is_news(&"refused", true);
        assert_eq!((problem.text(), problem.is_foreign()), (Some("refused"), true));
        problem.clear();
        assert_eq!(problem.text(), None);
        assert_eq!(told(&mut problem), [true, true, false, false]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut problem = Problem::default();
        (0..100).for_each(|number| assert!(problem.is_news(&number, false)));
        assert_eq!(problem.told.len(), TOLD_MAX);
    }
}
