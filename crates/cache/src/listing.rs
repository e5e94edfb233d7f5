//! The table by which others find items: two buckets for each key, in either of which the item may be listed.
//!
//! The less full of the two takes the entry, so that few are full before most words are in use (Azar et al., "Balanced
//! Allocations", SIAM J. Comput. 29, 1999). Where both are full the item is not listed: others do not find it.

use std::sync::atomic::Ordering;

use sidelong_fabric::OwnedRegion;
use sidelong_layout::{CACHE_BUCKET, CacheEntry, CacheMap};

/// Lists an item.
pub(crate) fn add(region: &mut OwnedRegion, map: CacheMap, hash: u64, entry: CacheEntry) {
    if map.buckets_bytes() == 0 {
        return;
    }
    let free = |bucket| words(bucket).filter(|word| region.load(*word) == 0).count();
    let [one, other] = map.buckets(hash);
    let bucket = if free(one) >= free(other) { one } else { other };
    if let Some(word) = words(bucket).find(|word| region.load(*word) == 0) {
        region.store(word, entry.0, Ordering::Release);
    }
}

/// Removes the item at a place.
pub(crate) fn remove(region: &mut OwnedRegion, map: CacheMap, hash: u64, at: u32) {
    if map.buckets_bytes() == 0 {
        return;
    }
    let is_its = |word: &usize| {
        let entry = CacheEntry(region.load(*word));
        entry.may_be(hash) && entry.at() == at
    };
    if let Some(word) = map.buckets(hash).into_iter().flat_map(words).find(is_its) {
        region.store(word, 0, Ordering::Release);
    }
}

/// The places of a bucket's words.
fn words(bucket: usize) -> impl Iterator<Item = usize> {
    (bucket..).step_by(8).take(CACHE_BUCKET)
}
