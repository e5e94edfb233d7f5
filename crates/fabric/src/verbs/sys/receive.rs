//! The receiving half of a queue pair: buffers that wait for messages, and are its own until one has come.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use rdma_mummy_sys as ibv;

use super::queue::DEPTH_MAX;
use super::{Completion, CompletionQueue, QueuePair, RawQueue, Registered, checked};

/// Buffers that a queue pair may have waiting: a sequence of 16 bits tells them apart.
pub(in crate::verbs) const RECEIVES_MAX: usize = DEPTH_MAX as usize;
/// `IBV_WC_WITH_IMM` of `enum ibv_wc_flags`: the completion has an immediate.
const WITH_IMMEDIATE: u32 = 1 << 1;

/// The buffers of a queue pair that wait for messages, in the order in which they take them, and where it reports those
/// that came.
pub(in crate::verbs) struct Receives {
    pub(super) completions: Arc<RawQueue>,
    pub(super) depth: u32,
    waiting: VecDeque<Registered>,
    /// Sequence of the first that waits.
    oldest: u16,
}

impl Receives {
    /// Room for `depth` buffers, to be reported to `completions`.
    pub(in crate::verbs) fn new(completions: &CompletionQueue, depth: usize) -> Receives {
        assert!(depth <= RECEIVES_MAX, "sequences are counted in 16 bits");
        let waiting = VecDeque::with_capacity(depth);
        Receives { completions: Arc::clone(&completions.inner), depth: depth as u32, waiting, oldest: 0 }
    }

    /// Of a queue pair that receives nothing.
    pub(in crate::verbs) fn none(completions: &CompletionQueue) -> Receives {
        Receives::new(completions, 0)
    }
}

/// A message, as it was reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::verbs) struct Arrival {
    /// How many bytes of the buffer it has.
    pub(in crate::verbs) len: usize,
    pub(in crate::verbs) immediate: Option<u32>,
}

impl QueuePair {
    /// By which its completions, and no other queue pair's, are known.
    pub(in crate::verbs) fn life(&self) -> u32 {
        (self.tag >> 32) as u32
    }

    /// Lets a message come into `buffer`, which is in flight from here on.
    pub(in crate::verbs) fn receive(&mut self, buffer: Registered) -> io::Result<()> {
        let Receives { depth, waiting, oldest, .. } = &mut *self.receives;
        if waiting.len() >= *depth as usize {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let sequence = oldest.wrapping_add(waiting.len() as u16);
        let mut piece = ibv::ibv_sge {
            addr: buffer.0.at.as_ptr() as u64,
            length: buffer.0.words * 8,
            lkey: buffer.0.lkey,
        };
        let mut request = MaybeUninit::<ibv::ibv_recv_wr>::zeroed();
        let mut refused = ptr::null_mut();
        // SAFETY: numbers and null pointers; the call copies the request and its piece. The buffer is registered, and is
        // kept from here on until a completion says that the device is done with it, or the queue pair is gone.
        checked(unsafe {
            let request = request.assume_init_mut();
            request.wr_id = self.tag | u64::from(sequence);
            request.sg_list = &raw mut piece;
            request.num_sge = 1;
            ibv::ibv_post_recv(self.raw.as_ptr(), request, &mut refused)
        })?;
        waiting.push_back(buffer);
        Ok(())
    }

    /// The buffer that `completion` tells of, if it is the one whose turn it is: they are filled in order.
    pub(in crate::verbs) fn received(&mut self, completion: &Completion) -> Option<Registered> {
        let its_own = self.is_told_of(completion) && completion.0.wr_id as u16 == self.receives.oldest;
        let buffer = if its_own { self.receives.waiting.pop_front()? } else { return None };
        self.receives.oldest = self.receives.oldest.wrapping_add(1);
        Some(buffer)
    }
}

impl Completion {
    /// Of which queue pair it tells.
    pub(in crate::verbs) fn life(&self) -> u32 {
        (self.0.wr_id >> 32) as u32
    }

    /// The message, where it tells of one.
    pub(in crate::verbs) fn arrival(&self) -> Arrival {
        // SAFETY: a number, however one looks at it.
        let immediate = u32::from_be(unsafe { self.0.imm_data_invalidated_rkey_union.imm_data });
        let told = self.0.wc_flags & WITH_IMMEDIATE != 0;
        // What a write wrote is not in the buffer.
        let len = if told { 0 } else { self.0.byte_len as usize };
        Arrival { len, immediate: told.then_some(immediate) }
    }
}
