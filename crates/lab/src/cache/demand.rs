//! What is asked for in K6, and stored in K7: a real trace if there is one, else a generated one.

use std::collections::HashMap;

use sidelong_trace::{Object, Sizes, Trace, Workload, Zipf};

use crate::bench::Bench;
use crate::error::Result;
use crate::rams;

/// The generated trace: objects, and the exponent of Zipf's law, as Twitter's cluster 52 has them; sizes are spread as those of
/// `up --cache`.
const OBJECTS: u32 = 200_000;
const ALPHA: f64 = 0.97;
const SIZES: Sizes = Sizes::LogNormal { bytes_median: 150, sigma: 1.0, bytes_max: 16 << 10 };
const SEED: u64 = 1;
/// The largest value, in bytes: a cache takes items of 1 MiB.
const VALUE_BYTES_MAX: f64 = 1e6;

/// A trace.
pub(super) struct Demand {
    pub(super) name: String,
    pub(super) is_real: bool,
    pub(super) requests: Vec<Object>,
    /// What sizes were multiplied by.
    pub(super) factor: f64,
}

impl Demand {
    /// The first real trace by name, if there is one, with at most `requests`. If it is to have a footprint, sizes are multiplied until
    /// its distinct objects have about so many bytes.
    pub(super) fn find(bench: &Bench<'_>, requests: usize, footprint_bytes: Option<f64>) -> Result<Demand> {
        let (name, workload, count) = match rams::logs(bench)?.into_iter().next() {
            Some((name, path)) => {
                let (trace, _) = Trace::load(path)?;
                let count = requests.min(trace.requests().len());
                (Some(name), Workload::Trace(trace.into()), count)
            }
            None => (None, Workload::Zipf(Zipf::new(ALPHA, OBJECTS, SIZES, SEED)?), requests),
        };
        let requests = (0..count as u64).map(|number| workload.object(number)).collect();
        Ok(Demand::new(name, requests, footprint_bytes))
    }

    /// Of the trace of that name, or of a generated one.
    pub(super) fn new(
        name: Option<String>,
        mut requests: Vec<Object>,
        footprint_bytes: Option<f64>,
    ) -> Demand {
        let factor = footprint_bytes.map_or(1.0, |footprint_bytes| {
            // An object may change its size: its last one counts.
            let sizes: HashMap<u64, u64> = requests.iter().map(|object| (object.id, object.bytes)).collect();
            footprint_bytes / sizes.values().map(|bytes| *bytes as f64).sum::<f64>().max(1.0)
        });
        for object in &mut requests {
            object.bytes = (object.bytes as f64 * factor).clamp(1.0, VALUE_BYTES_MAX) as u64;
        }
        let is_real = name.is_some();
        Demand { name: name.unwrap_or_else(|| "generated".to_owned()), is_real, requests, factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_multiplied_up_to_the_footprint() {
        let object = |id, bytes| Object { id, bytes };
        let demand = Demand::new(None, vec![object(1, 100), object(2, 300), object(1, 100)], Some(4e5));
        assert_eq!(demand.factor, 1000.0);
        assert_eq!(demand.requests, [object(1, 100_000), object(2, 300_000), object(1, 100_000)]);
        let demand = Demand::new(None, vec![object(1, 0), object(2, 10)], Some(1e9));
        assert_eq!(demand.requests, [object(1, 1), object(2, 1_000_000)], "none is empty or too large");
        let demand = Demand::new(None, vec![object(1, 100), object(2, 300)], None);
        assert_eq!(demand.requests, [object(1, 100), object(2, 300)]);
    }
}
