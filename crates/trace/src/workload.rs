//! The objects that the requests of a load ask for.
//!
//! A workload is a function, not a stream: the i-th request is the same for every caller at any time. So any number of
//! load threads can take `i` from one atomic counter and share nothing else.

use std::sync::Arc;

use crate::trace::Trace;
use crate::zipf::Zipf;

/// One object of a site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Object {
    /// Its number.
    pub id: u64,
    /// Bytes of the response.
    pub bytes: u64,
}

/// The source of requests: the three kinds of trace of Balaji et al. 2004, 4.3. Clones share their tables.
#[derive(Clone, Debug)]
pub enum Workload {
    /// One file of `bytes` bytes, repeatedly.
    SingleFile {
        /// Its size.
        bytes: u64,
    },
    /// Objects by Zipf's law.
    Zipf(Zipf),
    /// The objects of a trace in its order, repeated when it ends. A response without a size in the log has no body.
    Trace(Arc<Trace>),
}

impl Workload {
    /// The object of the `i`-th request.
    pub fn object(&self, i: u64) -> Object {
        match self {
            Workload::SingleFile { bytes } => Object { id: 0, bytes: *bytes },
            Workload::Zipf(zipf) => zipf.object(i),
            Workload::Trace(trace) => {
                let requests = trace.requests();
                // A trace has at least one request, and what is below its length fits a usize.
                let request = &requests[(i % requests.len() as u64) as usize];
                Object { id: request.object, bytes: request.size.unwrap_or(0) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::sample;
    use crate::zipf::Sizes;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn a_single_file_never_changes() {
        let workload = Workload::SingleFile { bytes: 1024 };
        assert_eq!(workload.object(0), workload.object(u64::MAX));
        assert_eq!(workload.object(5).bytes, 1024);
    }

    #[test]
    fn a_trace_starts_again_when_it_ends() {
        let trace = Arc::new(sample());
        let workload = Workload::Trace(trace.clone());
        let last = trace.requests().last().unwrap();
        assert_eq!(workload.object(9_999), Object { id: last.object, bytes: last.size.unwrap() });
        assert_eq!(workload.object(10_000), workload.object(0));
        workload.object(u64::MAX);
    }

    #[test]
    fn threads_that_share_a_counter_ask_for_the_same_as_one_alone() {
        let zipf = Zipf::new(0.9, 100, Sizes::Fixed { bytes: 1 }, 42).unwrap();
        let workload = Workload::Zipf(zipf);
        let next = AtomicU64::new(0);
        let mut shared: Vec<(u64, Object)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed))
                            .take_while(|&i| i < 1000)
                            .map(|i| (i, workload.object(i)))
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        shared.sort_by_key(|&(i, _)| i);
        let alone: Vec<_> = (0..1000).map(|i| (i, workload.object(i))).collect();
        assert_eq!(shared, alone);
    }
}
