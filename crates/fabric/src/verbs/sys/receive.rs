//! The receiving half of a queue pair: buffers that wait for messages, and belong to it until one has arrived.

use std::collections::VecDeque;
use std::io;
use std::ptr;
use std::sync::Arc;

use super::abi as ibv;
use super::queue::DEPTH_MAX;
use super::{Completion, CompletionQueue, QueuePair, RawQueue, Registered, checked};

/// Most receive buffers of a queue pair: a sequence of 16 bits tells them apart.
pub(in crate::verbs) const RECEIVES_MAX: usize = DEPTH_MAX as usize;

/// A queue pair's receive buffers in the order in which they are filled, and the completion queue that reports them.
pub(in crate::verbs) struct Receives {
    pub(super) completions: Arc<RawQueue>,
    pub(super) depth: u32,
    waiting: VecDeque<Registered>,
    /// Sequence number of the oldest waiting buffer.
    oldest: u16,
}

impl Receives {
    /// Room for `depth` buffers, which are reported to `completions`.
    pub(in crate::verbs) fn new(completions: &CompletionQueue, depth: usize) -> Receives {
        assert!(depth <= RECEIVES_MAX, "sequences are counted in 16 bits");
        let waiting = VecDeque::with_capacity(depth);
        Receives { completions: Arc::clone(&completions.inner), depth: depth as u32, waiting, oldest: 0 }
    }

    /// For a queue pair that receives nothing.
    pub(in crate::verbs) fn none(completions: &CompletionQueue) -> Receives {
        Receives::new(completions, 0)
    }
}

/// A received message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::verbs) struct Arrival {
    /// Bytes of the buffer that it fills.
    pub(in crate::verbs) len: usize,
    pub(in crate::verbs) immediate: Option<u32>,
}

impl QueuePair {
    /// The queue pair's life, which identifies its completions.
    pub(in crate::verbs) fn life(&self) -> u32 {
        (self.tag >> 32) as u32
    }

    /// Posts `buffer` to receive a message. It is in flight from now on.
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
        let mut request = ibv::ibv_recv_wr {
            wr_id: self.tag | u64::from(sequence),
            next: ptr::null_mut(),
            sg_list: &raw mut piece,
            num_sge: 1,
        };
        let (queue, mut refused) = (self.raw.as_ptr(), ptr::null_mut());
        // SAFETY: the call copies the request and its piece. The buffer is registered, and is kept from here on until a
        // completion says that the device is done with it, or the queue pair is gone.
        checked(unsafe { ((*(*queue).context).ops.post_recv)(queue, &mut request, &mut refused) })?;
        waiting.push_back(buffer);
        Ok(())
    }

    /// The buffer that `completion` releases, if it is the oldest: buffers are filled in order.
    pub(in crate::verbs) fn received(&mut self, completion: &Completion) -> Option<Registered> {
        let its_own = self.is_told_of(completion) && completion.0.wr_id as u16 == self.receives.oldest;
        let buffer = if its_own { self.receives.waiting.pop_front()? } else { return None };
        self.receives.oldest = self.receives.oldest.wrapping_add(1);
        Some(buffer)
    }
}

impl Completion {
    /// The life of the queue pair that it belongs to.
    pub(in crate::verbs) fn life(&self) -> u32 {
        (self.0.wr_id >> 32) as u32
    }

    /// The message that it reports.
    pub(in crate::verbs) fn arrival(&self) -> Arrival {
        let immediate = u32::from_be(self.0.imm_data);
        let told = self.0.wc_flags & ibv::IBV_WC_WITH_IMM != 0;
        // The data of a write with immediate is not in the buffer.
        let len = if told { 0 } else { self.0.byte_len as usize };
        Arrival { len, immediate: told.then_some(immediate) }
    }
}
