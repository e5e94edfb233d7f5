//! Page after page: freeing what is over, and listing what is there.

use super::{Cache, Found, Item, Seconds};

/// Places that a sweep looks at, and for how many a page counts that has none.
const SWEPT_PLACES: usize = 8192;
const SWEPT_PAGE: usize = 32;
/// How much faster a sweep is while others wait for it, until nothing is left of what the cache keeps no more.
const HASTE: usize = 4;

impl Cache {
    /// Frees the items of some pages that have expired, were flushed, or are kept no more: of a few thousand places, all in turn. To be
    /// called some ten times a second.
    pub fn sweep(&mut self, now: Seconds) {
        self.flush_if_due(now);
        let (pages, mut looked) = (self.heap.pages(), 0);
        let places_max = if self.is_swept() { SWEPT_PLACES } else { HASTE * SWEPT_PLACES };
        for _ in 0..pages {
            let page = self.swept % pages;
            self.swept = page + 1;
            let places = self.heap.places(page..page + 1);
            looked += places.len().max(SWEPT_PAGE);
            for at in places {
                let Some((Found { hash, header, .. }, _)) = self.found_at(at) else { continue };
                if self.is_over(&header) {
                    self.count_over(&header);
                    self.counts.swept += 1;
                    self.forget(hash);
                } else if self.strewn > 0 && self.is_stray(self.key(at, &header)) {
                    self.forget(hash);
                }
            }
            self.strewn = self.strewn.saturating_sub(1);
            if looked >= places_max {
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
            let Some((found, _)) = self.found_at(at) else { continue };
            if !self.is_over(&found.header) {
                show(self.key(at, &found.header), &self.item(&found));
            }
        }
        true
    }
}
