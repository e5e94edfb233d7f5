//! The cost of keepers: the CPU time of eight in one process, each in percent of a core; and that of eight agents of a foreign
//! server, before which connections come and go.
//!
//! `cargo bench -p sidelong-load --bench keeper`

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, RegionSpec};
use sidelong_layout::{Instance, LOAD_BYTES, RegionKind};
use sidelong_load::{
    Foreign, Keeper, KeeperSpec, OriginGauge, OriginLoad, Origins, Recorder, Scope, monotonic_ns,
};

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
        let gauged = || {
            let gauge: OriginGauge = Box::new(OriginLoad::default);
            Recorder::new(&scope, Some(gauge)).expect("/proc")
        };
        let percent = cost(gauged, spec, || std::thread::sleep(run));
        println!(
            "  {scope}, record each {period:?}, /proc each {proc_period:?}: {percent:.2} % of a core each"
        );
    }
    let listening = TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listening.local_addr().expect("an address");
    let foreign = Foreign { servers: vec![server.into()], workers: None };
    let watching = || {
        let recorder = Recorder::new(&Scope::Machine, None).expect("/proc");
        recorder.of_foreign(foreign.clone(), Origins::default(), true).expect("sock_diag")
    };
    // The periods of an agent by default.
    let spec = KeeperSpec { period: ms(30), proc_period: ms(50) };
    let idle = cost(watching, spec, || std::thread::sleep(run));
    println!("  agent of an idle server: {idle:.2} % of a core each");
    let opened = ms(10);
    let churn = || {
        for _ in 0..run.as_micros() / opened.as_micros() {
            drop((TcpStream::connect(server), listening.accept()));
            std::thread::sleep(opened);
        }
    };
    let busy = cost(watching, spec, churn);
    println!("  agent of a server with a new connection each {opened:?}: {busy:.2} % of a core each");
}

/// Meanwhile `others` does something, whose CPU time is not counted.
fn cost(recorder: impl Fn() -> Recorder, spec: KeeperSpec, others: impl FnOnce()) -> f64 {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
    let keepers: Vec<Keeper> =
        (0..KEEPERS).map(|node| keeper(directory.path(), node, recorder(), spec)).collect();
    let (cpu_began, began) = (cpu_ns(), monotonic_ns());
    others();
    let (cpu, elapsed) = (cpu_ns() - cpu_began, monotonic_ns() - began);
    drop(keepers);
    100.0 * cpu as f64 / elapsed as f64 / KEEPERS as f64
}

fn keeper(directory: &std::path::Path, node: usize, recorder: Recorder, spec: KeeperSpec) -> Keeper {
    let name = format!("n{node}");
    let region = RegionSpec {
        name: &name,
        kind: RegionKind::Load,
        len: LOAD_BYTES,
        access: Access::ReadOnly,
        instance: Instance::alone(1),
    };
    let region = Host::Shm(ShmHost::new(directory)).expose(&region, |_| {}).expect("a region");
    Keeper::start(region, Some(recorder), || Some(1), spec).expect("a thread")
}

/// The CPU time of this process without that of this thread.
fn cpu_ns() -> u64 {
    let of = |clock| {
        let used = clock_gettime(clock);
        used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64
    };
    of(ClockId::ProcessCPUTime) - of(ClockId::ThreadCPUTime)
}
