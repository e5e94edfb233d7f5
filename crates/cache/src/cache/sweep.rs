//! Page after page: freeing what is over, and listing what is there.

use super::{Cache, Found, Header, Item, Seconds};

/// Places that a sweep looks at, and for how many a page counts that has none.
const SWEPT_PLACES: usize = 8192;
const SWEPT_PAGE: usize = 32;

impl Cache {
    /// Frees the items of some pages that have expired or were flushed: of a few thousand places, all in turn. To be called some ten
    /// times a second.
    pub fn sweep(&mut self, now: Seconds) {
        self.flush_if_due(now);
        let (pages, mut looked) = (self.heap.pages(), 0);
        for _ in 0..pages {
            let page = self.swept % pages;
            self.swept = page + 1;
            let places = self.heap.places(page..page + 1);
            looked += places.len().max(SWEPT_PAGE);
            for at in places {
                let header = self.header(at);
                if !header.has(Header::LIVE) || !self.is_over(&header) {
                    continue;
                }
                let hash = self.hash(self.key(at, &header));
                if self.places.value(hash).is_some_and(|(found, _)| *found == at) {
                    self.count_over(&header);
                    self.counts.swept += 1;
                    self.forget(hash);
                }
            }
            if looked >= SWEPT_PLACES {
                break;
            }
        }
    }

    /// Hands the items that lie on a page to `show`, each with its key. False if there are no pages of that number or above. What is
    /// stored or moves while one page after another is asked for may be missed, or shown twice.
    pub fn on_page(&mut self, page: usize, now: Seconds, mut show: impl FnMut(&[u8], &Item<'_>)) -> bool {
        self.flush_if_due(now);
        if page >= self.heap.pages() {
            return false;
        }
        for at in self.heap.places(page..page + 1) {
            let header = self.header(at);
            if !header.has(Header::LIVE) || self.is_over(&header) {
                continue;
            }
            let key = self.key(at, &header);
            let hash = self.hash(key);
            if let Some(place) = self.places.peek(hash)
                && self.places.value(hash).is_some_and(|(found, _)| *found == at)
            {
                show(key, &self.item(&Found { hash, place, at, header }));
            }
        }
        true
    }
}
