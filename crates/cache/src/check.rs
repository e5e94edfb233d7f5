//! The check of an item that devices of other machines read.
//!
//! On one machine a value is whole if its stamp is the same before and after. An RDMA device fetches the lines of a read in no
//! certain order, and those of the next read perhaps before them. So a stamp that is read behind the item proves nothing, unless
//! the item is awaited first, which takes one more round trip. A check behind the value takes none: whatever the order, bytes that
//! it fits are those of the value that was there when its stamp was read. Pilaf's items have such checks, too (Mitchell et al.
//! 2013).
//!
//! It is SipHash, keyed with the secret of the home's keys: nobody can store a value that holds what looks like an item. It covers neither
//! the marks, which are in the word of the stamp, nor when the item was last fetched. The header's part and that of key and value
//! are apart, so that a touch does not read the value.

use std::hash::Hasher as _;

use sidelong_layout::{CACHE_ITEM_BYTES, CacheItem, CacheMap};
use siphasher::sip::SipHasher13;

/// The check of an item: its header, then its key and value.
pub(crate) fn of(hasher: SipHasher13, header: &CacheItem, rest: &[u8]) -> u64 {
    of_header(hasher, header) ^ of_bytes(hasher, rest)
}

/// The check of an item whose header was `before` and is `after`.
pub(crate) fn changed(hasher: SipHasher13, check: u64, before: &CacheItem, after: &CacheItem) -> u64 {
    let [before, after] = [before, after].map(covered);
    if before == after { check } else { check ^ of_header(hasher, &before) ^ of_header(hasher, &after) }
}

/// Whether what was read from an item's place on is one whole value of `map`, which has checks.
pub(crate) fn fits(hasher: SipHasher13, map: CacheMap, header: &CacheItem, read: &[u8]) -> bool {
    let (Some(at), true) = (map.check(header.len()), header.has(CacheItem::LIVE)) else { return false };
    let found = read.get(at..).and_then(<[u8]>::first_chunk);
    found.is_some_and(|found| {
        u64::from_ne_bytes(*found) == of(hasher, header, &read[CACHE_ITEM_BYTES..header.len()])
    })
}

fn covered(header: &CacheItem) -> CacheItem {
    CacheItem { stamp: header.stamp & !u64::from(u8::MAX), accessed: 0, ..*header }
}

fn of_header(hasher: SipHasher13, header: &CacheItem) -> u64 {
    of_bytes(hasher, bytemuck::bytes_of(&covered(header)))
}

fn of_bytes(mut hasher: SipHasher13, bytes: &[u8]) -> u64 {
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item() -> (CacheItem, Vec<u8>) {
        let mut header =
            CacheItem { stamp: CacheItem::begun(7, 3, 3), cas: 9, value_bytes: 6, ..CacheItem::default() };
        header.set(CacheItem::LIVE, true);
        let mut bytes = [bytemuck::bytes_of(&header), b"keyvalue+"].concat();
        bytes.resize(48, 0);
        bytes.extend(of(hasher(), &header, b"keyvalue+").to_ne_bytes());
        (header, bytes)
    }

    fn hasher() -> SipHasher13 {
        crate::cache::hasher([1, 2])
    }

    fn fits(bytes: &[u8]) -> bool {
        let header: CacheItem = bytemuck::pod_read_unaligned(&bytes[..CACHE_ITEM_BYTES]);
        super::fits(hasher(), CacheMap::new(8 << 20, 1).remote(), &header, bytes)
    }

    #[test]
    fn every_byte_counts_but_marks_the_last_fetch_and_what_is_no_part() {
        let (_, bytes) = item();
        assert!(fits(&bytes));
        let free: Vec<_> = (0..bytes.len())
            .filter(|at| {
                let mut other = bytes.clone();
                other[*at] ^= 2;
                fits(&other)
            })
            .collect();
        let (marks, accessed, beyond) = ([0], 28..32, 41..48);
        assert_eq!(free, marks.into_iter().chain(accessed).chain(beyond).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_not_live_or_not_whole_does_not_fit() {
        let (_, mut bytes) = item();
        assert!(!fits(&bytes[..bytes.len() - 1]));
        bytes[0] &= !CacheItem::LIVE;
        assert!(!fits(&bytes));
    }

    #[test]
    fn a_touch_changes_it_as_if_it_were_made_anew() {
        let (before, bytes) = item();
        let mut after = CacheItem { expires: 77, cas: 10, accessed: 5, ..before };
        after.set(CacheItem::STALE, true);
        let check = u64::from_ne_bytes(*bytes.last_chunk().unwrap());
        let rest = &bytes[CACHE_ITEM_BYTES..before.len()];
        assert_eq!(changed(hasher(), check, &before, &after), of(hasher(), &after, rest));
        assert_ne!(changed(hasher(), check, &before, &after), check);
    }
}
