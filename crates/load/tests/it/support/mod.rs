//! Shared by the tests: a run directory with load regions, and waits that do not depend on speed.

pub(crate) mod kernel;

use std::path::Path;
use std::time::{Duration, Instant};

use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, Region, RegionSpec};
use sidelong_layout::{Instance, LOAD_BYTES, RegionKind, Slots};
use sidelong_load::{
    Limits, OriginGauge, OriginLoad, Reading, RecordOf, Recorder, Scope, Source, Status, monotonic_ns,
};

/// A node's load region.
pub(crate) fn region(directory: &Path, name: &str, incarnation: u64) -> Region {
    let spec = RegionSpec {
        name,
        kind: RegionKind::Load,
        len: LOAD_BYTES,
        access: Access::ReadOnly,
        instance: Instance::alone(incarnation),
    };
    Host::Shm(ShmHost::new(directory)).expose(&spec, |_| {}).unwrap()
}

/// A recorder of this process, with a server that reports one million requests served.
pub(crate) fn recorder() -> Recorder {
    let gauge: OriginGauge =
        Box::new(|| OriginLoad { workers: 4, served: 1_000_000, ..OriginLoad::default() });
    Recorder::new(&Scope::Process(std::process::id()), Some(gauge)).unwrap()
}

/// The records of nodes with a server of their own, in the load regions of these names.
pub(crate) fn records(regions: impl IntoIterator<Item = String>) -> Slots<RecordOf> {
    regions.into_iter().map(RecordOf::from).collect()
}

pub(crate) fn limits() -> Limits {
    Limits { retry_max: Duration::from_millis(40), ..Limits::default() }
}

/// Refreshes until `holds`, and returns the readings. The wait is long but bounded.
pub(crate) fn refresh_until<const N: usize>(
    source: &mut impl Source,
    mut holds: impl FnMut(&[Reading; N]) -> bool,
) -> [Reading; N] {
    let mut readings = [Reading::default(); N];
    let began = Instant::now();
    loop {
        source.refresh(monotonic_ns(), &mut readings);
        if holds(&readings) {
            return readings;
        }
        let problems: Vec<_> = (0..N).map(|node| source.problem(node)).collect();
        assert!(began.elapsed() < Duration::from_secs(60), "still {readings:?}, {problems:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn all_are<const N: usize>(status: Status) -> impl FnMut(&[Reading; N]) -> bool {
    move |readings| readings.iter().all(|reading| reading.status == status)
}
