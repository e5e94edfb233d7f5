//! The cost of keepers: the CPU time of eight in one process, each in percent of a core.
//!
//! `cargo bench -p sidelong-load --bench keeper`

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, RegionSpec};
use sidelong_layout::{LOAD_BYTES, RegionKind};
use sidelong_load::{Keeper, KeeperSpec, OriginGauge, OriginLoad, Recorder, Scope, monotonic_ns};

const KEEPERS: usize = 8;
const RUN: Duration = Duration::from_secs(5);

fn main() {
    // `cargo test` runs benches only to check that they work.
    let run = if std::env::args().any(|arg| arg == "--bench") { RUN } else { RUN / 50 };
    let pid = std::process::id();
    let ms = Duration::from_millis;
    println!("{KEEPERS} keepers, {run:?} each:");
    for (scope, period, proc_period) in [
        (Scope::Machine, ms(1), ms(50)),
        (Scope::Process(pid), ms(1), ms(50)),
        (Scope::Machine, ms(1), ms(3_600_000)),
        (Scope::Machine, ms(50), ms(50)),
        (Scope::Machine, ms(1), ms(1)),
    ] {
        let spec = KeeperSpec { period, proc_period };
        let percent = cost(&scope, spec, run);
        println!(
            "  {scope}, record each {period:?}, /proc each {proc_period:?}: {percent:.2} % of a core each"
        );
    }
}

fn cost(scope: &Scope, spec: KeeperSpec, run: Duration) -> f64 {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let keepers: Vec<Keeper> = (0..KEEPERS).map(|node| keeper(directory.path(), node, scope, spec)).collect();
    let (cpu_began, began) = (cpu_ns(), monotonic_ns());
    std::thread::sleep(run);
    let (cpu, elapsed) = (cpu_ns() - cpu_began, monotonic_ns() - began);
    drop(keepers);
    100.0 * cpu as f64 / elapsed as f64 / KEEPERS as f64
}

fn keeper(directory: &std::path::Path, node: usize, scope: &Scope, spec: KeeperSpec) -> Keeper {
    let name = format!("n{node}");
    let region = RegionSpec {
        cluster: 0,
        name: &name,
        kind: RegionKind::Load,
        len: LOAD_BYTES,
        access: Access::ReadOnly,
        incarnation: 1,
    };
    let region = Host::Shm(ShmHost::new(directory)).offer(&region, |_| {}).expect("a region");
    let gauge: OriginGauge = Box::new(OriginLoad::default);
    let recorder = Recorder::new(scope, Some(gauge)).expect("/proc");
    Keeper::start(region, Some(recorder), || Some(1), spec).expect("a thread")
}

fn cpu_ns() -> u64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
}
