//! A write that the target answers by a write into this side's memory. Half of the round trip is what `ib_write_lat`
//! calls a write's latency: the time until the other side sees it, which no completion tells.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::results::{Completion, PerfFabric};
use sidelong_fabric::control::{Endpoint, Secret, Session};
use sidelong_fabric::{Batch, Directory as _, Host, Initiator, LinkId, Region, RegionSpec, RunDirectory};
use sidelong_layout::{HEADER_BYTES, Instance, RegionKind};

use crate::args::DeviceArgs;
use crate::device;
use crate::talk::{Echo, Measurement};
use crate::target::{RunFiles, TargetProcess};
use sidelong_app::Failure;

/// The region that the target writes its answers to.
const NAME: &str = "perf-pong";
/// Time limit to reach the measuring side, and for its region's header.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Time limit of one write.
const WRITE_MAX: Duration = Duration::from_secs(20);
/// Reads of memory between two checks of a flag or clock, and between yields if both sides share a CPU.
const LOOKS: u32 = 10_000;

/// The measuring side's memory, and the endpoint through which the target finds it.
pub(super) struct Pong {
    region: Region,
    // Dropped before the endpoint through which it answers.
    _host: Host,
    endpoint: Arc<Endpoint>,
    files: RunFiles,
}

impl Pong {
    /// Memory for this measurement, with the target whose endpoint is at `target`.
    pub(super) fn new(
        measurement: &Measurement,
        device: &DeviceArgs,
        target: SocketAddr,
        secret: &Secret,
    ) -> Result<Self, Failure> {
        let ip = towards(target)?;
        let endpoint = Arc::new(Endpoint::listen(ip, secret.clone())?);
        let files = RunFiles::make()?;
        let process = TargetProcess::new(ip.ip(), device.clone(), None, files.0.clone(), secret.clone());
        let host = process.host(measurement.fabric, &endpoint)?;
        let region = host.expose(&spec(NAME, measurement), |_| ())?;
        process.run.publish(region.key())?;
        endpoint.publish(region.key());
        Ok(Pong { region, _host: host, endpoint, files })
    }

    /// What the target needs to know.
    pub(super) fn echo(&self) -> Echo {
        Echo { address: self.endpoint.address(), run_dir: self.files.0.path().to_owned() }
    }

    /// Waits for the answer `number` to a write of `words`.
    pub(super) fn wait(&self, words: usize, number: u64, stop: &AtomicBool) -> Result<(), Failure> {
        let began = Instant::now();
        let give_up = || stop.load(Ordering::Relaxed) || began.elapsed() > WRITE_MAX;
        match until(&self.region, words, number, give_up) {
            true => Ok(()),
            false if stop.load(Ordering::Relaxed) => Err(Failure::new("interrupted")),
            false => Err(Failure::new("the target did not answer a write within 20 s")),
        }
    }
}

fn spec<'a>(name: &'a str, measurement: &Measurement) -> RegionSpec<'a> {
    RegionSpec {
        name,
        kind: RegionKind::Raw,
        len: measurement.region_bytes(),
        access: measurement.access(),
        instance: Instance::alone(1),
    }
}

/// An address from which `target` can be reached, with any port.
fn towards(target: SocketAddr) -> Result<SocketAddr, Failure> {
    let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any)?;
    // Nothing is sent: the kernel only looks up the route.
    socket.connect(target)?;
    Ok(SocketAddr::new(socket.local_addr()?.ip(), 0))
}

/// The target's side, which answers.
pub(super) struct Answerer {
    initiator: Initiator,
    link: LinkId,
}

impl Answerer {
    /// Links to the memory that `echo` names.
    pub(super) fn new(
        echo: &Echo,
        measurement: &Measurement,
        device: &DeviceArgs,
        secret: &Secret,
    ) -> Result<Self, Failure> {
        let RegionSpec { name, kind, len, access, .. } = spec(NAME, measurement);
        let mut initiator = match measurement.fabric {
            PerfFabric::Verbs => device::initiator(device, Completion::Polling, secret)?.0,
            PerfFabric::Shm | PerfFabric::Tcp => Initiator::new(),
        };
        let key = match measurement.fabric {
            PerfFabric::Shm => RunDirectory::at(&echo.run_dir).find(name, kind, len, access)?,
            PerfFabric::Tcp | PerfFabric::Verbs => {
                let mut session = Session::open(echo.address, secret, CONNECT_MAX)?;
                session.find(name, kind, len, access, CONNECT_MAX)?
            }
        };
        let link = initiator.connect(&key, CONNECT_MAX)?;
        Ok(Answerer { initiator, link })
    }

    /// Answers each write of `words` to `region`, in turn, until `stop`.
    pub(super) fn answer(mut self, region: &Region, words: usize, stop: &AtomicBool) {
        let mut batch = Batch::new();
        let mut written = vec![0; words];
        for number in 1u64.. {
            if !until(region, words, number, || stop.load(Ordering::Relaxed)) {
                return;
            }
            let write = write(&mut batch, self.link, &mut written, number);
            self.initiator.run(&mut batch, WRITE_MAX);
            if let Err(error) = batch.words(write) {
                // The measuring side waits for the answer, and reports its absence.
                tracing::debug!(%error, "an answer was not written");
                return;
            }
        }
    }
}

/// Makes `batch` the write `number`: its last word shows that it has arrived.
pub(super) fn write(
    batch: &mut Batch,
    link: LinkId,
    words: &mut [u64],
    number: u64,
) -> sidelong_fabric::OpId {
    if let Some(last) = words.last_mut() {
        *last = number;
    }
    batch.clear();
    batch.write(link, HEADER_BYTES, words)
}

/// Reads the last of `words` until it is `number`; false if it gives up before.
fn until(region: &Region, words: usize, number: u64, give_up: impl Fn() -> bool) -> bool {
    let at = HEADER_BYTES + (words - 1) * 8;
    loop {
        for _ in 0..LOOKS {
            if region.load(at) == number {
                return true;
            }
            std::hint::spin_loop();
        }
        if give_up() {
            return false;
        }
        std::thread::yield_now();
    }
}
