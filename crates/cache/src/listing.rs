//! The table by which others find items: two buckets for each key, in either of which the item may be listed.
//!
//! The less full of the two takes the entry, so that few are full before most words are in use (Azar et al., "Balanced
//! Allocations", SIAM J. Comput. 29, 1999). Where both are full the item is not listed, and others are told how many such
//! items there are.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use sidelong_fabric::OwnedRegion;
use sidelong_layout::{CACHE_BUCKET, CacheEntry, CacheLife, CacheMap};

/// Lists an item.
pub(crate) fn add(region: &mut OwnedRegion, map: CacheMap, hash: u64, entry: CacheEntry) {
    if map.buckets_bytes() == 0 {
        return;
    }
    let free = |bucket| words(bucket).filter(|word| region.load(*word) == 0).count();
    match map.buckets(hash).into_iter().max_by_key(|bucket| free(*bucket)) {
        Some(bucket) if free(bucket) > 0 => {
            if let Some(word) = words(bucket).find(|word| region.load(*word) == 0) {
                region.store(word, entry.0, Ordering::Release);
            }
        }
        _ => count(region, map, 1),
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
    match map.buckets(hash).into_iter().flat_map(words).find(is_its) {
        Some(word) => region.store(word, 0, Ordering::Release),
        None => count(region, map, u64::MAX),
    }
}

/// The places of a bucket's words.
fn words(bucket: usize) -> impl Iterator<Item = usize> {
    (bucket..).step_by(8).take(CACHE_BUCKET)
}

/// Adds to the number of items that are not listed, modulo 2^64.
fn count(region: &mut OwnedRegion, map: CacheMap, more: u64) {
    let unlisted = map.life() + offset_of!(CacheLife, unlisted);
    region.store(unlisted, region.load(unlisted).wrapping_add(more), Ordering::Relaxed);
}
