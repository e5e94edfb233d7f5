//! The keys whose items a cache of a cluster keeps, while that changes.

use std::mem;
use std::sync::atomic::Ordering;

use sidelong_layout::HEADER_EPOCH;
use sidelong_policy::cache::homes::Placement;
use siphasher::sip::SipHasher13;

use super::{Cache, hashed};

/// A cache's share of the keys of a cluster.
#[derive(Clone, Debug)]
pub struct Share {
    /// Its slot.
    pub slot: usize,
    /// The homes of all keys.
    pub placement: Placement,
    /// The hash of keys that all caches of the cluster have.
    pub(crate) hasher: SipHasher13,
}

impl Share {
    fn has(&self, key: &[u8]) -> bool {
        self.placement.keeps(self.slot, hashed(self.hasher, key))
    }
}

impl Cache {
    /// Keeps the items of these keys alone from now on. Items of other keys are found no more, and are swept.
    ///
    /// `slots` is how many slots for caches the cluster has. Each cache numbers its values in steps of it, so that no two homes of a key
    /// give the same number. The numbers stay small, because some clients know 32 bits of them.
    pub fn keep_only(&mut self, share: Share, slots: usize) {
        let is_swept_for = |before: &Share| self.is_swept() && share.placement.ends(&before.placement);
        if !self.share.as_ref().is_some_and(is_swept_for) {
            self.strewn = self.heap.pages();
        }
        if self.cas_step == 1 {
            self.cas_step = slots as u64;
            self.cas = self.cas * self.cas_step + share.slot as u64;
        }
        self.share = Some(share);
    }

    /// Whether nothing is left of what it keeps no more, for others to read.
    pub fn is_swept(&self) -> bool {
        self.strewn == 0
    }

    /// Tells others by which roster it goes.
    pub fn state_epoch(&mut self, epoch: u64) {
        let (region, _) = self.heap.region();
        region.store(HEADER_EPOCH, epoch, Ordering::Release);
    }

    /// Whether a command since the last call was for an item that it does not keep.
    pub fn take_astray(&mut self) -> bool {
        mem::take(&mut self.is_astray)
    }

    /// Whether it does not keep the item of `key`.
    pub(super) fn is_stray(&self, key: &[u8]) -> bool {
        self.share.as_ref().is_some_and(|share| !share.has(key))
    }

    /// Whether a command is for an item that it does not keep, which it forgets.
    pub(super) fn goes_astray(&mut self, key: &[u8], hash: u64) -> bool {
        let is_stray = self.is_stray(key);
        if is_stray {
            self.is_astray = true;
            self.forget(hash);
        }
        is_stray
    }
}
