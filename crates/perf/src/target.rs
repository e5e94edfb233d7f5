//! The target: exposes the regions that a session asks for, receives messages, rewrites its records each millisecond as a node
//! does, and drops all of it when the session ends.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::results::{Completion, Operation, PerfFabric};
use sidelong_fabric::control::{Answers, Endpoint, Secret};
use sidelong_fabric::{
    Access, Directory as _, Host, Inbox, InboxSpec, Region, RegionSpec, RunDirectory, shm::ShmHost,
    tcp::TcpHost,
};
use sidelong_layout::{HEADER_BYTES, Hot, Instance, RegionKind};

use crate::args::{BYTES_MAX, DeviceArgs, ServeArgs};
use crate::background::Background;
use crate::ping_pong::Answerer;
use crate::session::{run_dir, secret, stop_flag};
use crate::talk::{Answer, Ask, Echo, Exposed, KIND, Measurement, Used, VERSION, region};
use crate::{cpus, device};
use sidelong_app::Failure;
use sidelong_os::say;

/// The interval at which records are rewritten.
const REWRITE_EVERY: Duration = Duration::from_millis(1);
/// The interval of checking whether to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The interval at which a sleeping receiver checks whether to end.
const RECEIVE_MAX: Duration = Duration::from_millis(100);
/// Regions of one session.
const PEERS_MAX: u32 = 4000;
/// Capacity of one session's inbox, in messages.
const SLOTS_MAX: usize = 2048;

/// Serves until it is told to end.
pub(super) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let stop = stop_flag()?;
    let cpu = cpus::target(args.pin)?;
    // Before any thread is started: they all stay there.
    cpus::hold(cpu)?;
    let files = RunFiles::make()?;
    let secret = secret(&args.secret)?;
    let run = files.0.clone();
    let process = TargetProcess::new(args.listen.ip(), args.device.clone(), cpu, run, secret.clone());
    let process = Arc::new(process);
    let endpoint = Arc::new(Endpoint::listen(args.listen, secret)?);
    let (desk, of_sessions) = (Arc::downgrade(&endpoint), Arc::clone(&process));
    endpoint.serve(KIND, move || answers(Session::new(Arc::clone(&of_sessions), Weak::clone(&desk))));
    announce(args, endpoint.address(), cpu)?;
    if args.child {
        let gone = Arc::clone(&stop);
        std::thread::spawn(move || {
            // The other side holds the other end; when it is gone, so are we.
            let _ = io::copy(&mut io::stdin(), &mut io::sink());
            gone.store(true, Ordering::Relaxed);
        });
    }
    let is_over = || args.once && process.has_served.load(Ordering::Relaxed);
    while !stop.load(Ordering::Relaxed) && !is_over() {
        std::thread::sleep(LOOK_EVERY);
    }
    // A session that is still there may hold it, by a host over verbs, and must not be the last that does: it ends on the
    // endpoint's own thread. Both end with this process, which is now.
    std::mem::forget(endpoint);
    Ok(())
}

fn announce(args: &ServeArgs, address: SocketAddr, cpu: Option<usize>) -> Result<(), Failure> {
    if args.child {
        return Ok(say(format!("{address}\n"))?);
    }
    let placement = cpu.map_or_else(|| "on any CPU".to_owned(), |cpu| format!("on CPU {cpu}"));
    Ok(say(format!("sidelong-lab perf serves at {address}, {placement}; press Ctrl-C to stop\n"))?)
}

/// The target's process: where it runs, and where it exposes its regions.
pub(super) struct TargetProcess {
    ip: IpAddr,
    device: DeviceArgs,
    cpu: Option<usize>,
    secret: Secret,
    pub(super) run: RunDirectory,
    /// There is a measurement: two at a time would measure each other.
    is_busy: AtomicBool,
    has_served: AtomicBool,
}

impl TargetProcess {
    pub(super) fn new(
        ip: IpAddr,
        device: DeviceArgs,
        cpu: Option<usize>,
        run: RunDirectory,
        secret: Secret,
    ) -> Self {
        let (is_busy, has_served) = (AtomicBool::new(false), AtomicBool::new(false));
        TargetProcess { ip, device, cpu, secret, run, is_busy, has_served }
    }

    /// The one place that knows every fabric on this side.
    pub(super) fn host(&self, fabric: PerfFabric, endpoint: &Endpoint) -> Result<Host, Failure> {
        match fabric {
            PerfFabric::Shm => Ok(Host::Shm(ShmHost::new(self.run.path()))),
            PerfFabric::Tcp => Ok(Host::Tcp(TcpHost::listen((self.ip, 0).into())?)),
            PerfFabric::Verbs => device::host(&self.device, endpoint),
        }
    }
}

/// This process's run directory, which goes with this.
pub(super) struct RunFiles(pub(super) RunDirectory);

impl RunFiles {
    pub(super) fn make() -> Result<Self, Failure> {
        Ok(RunFiles(RunDirectory::open(run_dir(std::process::id()))?))
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        // It was made here and holds nothing else.
        self.0.remove();
    }
}

fn answers(mut session: Session) -> Answers {
    Box::new(move |request| {
        let ask: Ask = serde_json::from_slice(request).map_err(|_| {
            "the target does not understand the request: both sides must be of one version".to_owned()
        })?;
        let answer = session.answer(ask)?;
        serde_json::to_vec(&answer).map_err(|error| error.to_string())
    })
}

/// One measuring side, for as long as it is there.
struct Session {
    // Dropped in this order: nothing is to wait behind busy threads.
    background: Option<Background>,
    workers: Workers,
    host: Option<Host>,
    exposed: Option<(Measurement, Region)>,
    turn: Option<Turn>,
    process: Arc<TargetProcess>,
    desk: Weak<Endpoint>,
}

/// The one measurement that there may be.
struct Turn(Arc<TargetProcess>);

impl Turn {
    fn take(process: &Arc<TargetProcess>) -> Result<Self, Failure> {
        if process.is_busy.swap(true, Ordering::Relaxed) {
            return Err(Failure::new("another measurement is under way at the target: wait until it ends"));
        }
        Ok(Turn(Arc::clone(process)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.has_served.store(true, Ordering::Relaxed);
        self.0.is_busy.store(false, Ordering::Relaxed);
    }
}

impl Session {
    fn new(process: Arc<TargetProcess>, desk: Weak<Endpoint>) -> Self {
        Session {
            background: None,
            workers: Workers::default(),
            host: None,
            exposed: None,
            turn: None,
            process,
            desk,
        }
    }

    fn answer(&mut self, ask: Ask) -> Result<Answer, String> {
        match ask {
            Ask::Measure(measurement) => self.prepare(&measurement).map_err(|Failure(line)| line),
            Ask::Echo(echo) => self.echo(&echo).map_err(|Failure(line)| line),
            Ask::Background { threads } => {
                self.background = None;
                if threads > 0 {
                    let started = Background::start(threads);
                    self.background = Some(started.map_err(|error| format!("background threads: {error}"))?);
                }
                Ok(Answer::Done)
            }
            Ask::Usage => Ok(Answer::Used(Used {
                cpu_ns: cpu_ns(),
                received: self.workers.received.load(Ordering::Relaxed),
            })),
        }
    }

    fn prepare(&mut self, measurement: &Measurement) -> Result<Answer, Failure> {
        if measurement.version != VERSION {
            return Err(Failure(format!(
                "the target is of another version ({VERSION}, this side {})",
                measurement.version
            )));
        }
        let within = measurement.peers <= PEERS_MAX
            && measurement.bytes <= BYTES_MAX
            && measurement.slots <= SLOTS_MAX;
        if !within || self.turn.is_some() {
            return Err(Failure::new("the target cannot expose that much to one measurement"));
        }
        self.turn = Some(Turn::take(&self.process)?);
        let desk = self.desk.upgrade().ok_or_else(|| Failure::new("the target is ending"))?;
        let host = self.process.host(measurement.fabric, &desk)?;
        let prefix = "perf".to_owned();
        let (mut regions, mut inbox) = (Vec::new(), None);
        for peer in 0..measurement.peers {
            let name = region(&prefix, peer);
            let (len, access) = (measurement.region_bytes(), measurement.access());
            let spec =
                RegionSpec { name: &name, kind: RegionKind::Raw, len, access, instance: Instance::alone(1) };
            let region = if measurement.operation.is_two_sided() {
                let room = InboxSpec { slots: measurement.slots, message_bytes_max: measurement.bytes };
                let (region, receiving) = host.expose_with_inbox(&spec, &room, |_| ())?;
                inbox = Some(receiving);
                region
            } else {
                host.expose(&spec, |_| ())?
            };
            self.process.run.publish(region.key())?;
            desk.publish(region.key());
            regions.push(region);
        }
        self.exposed = regions.first().map(|first| (measurement.clone(), first.clone()));
        self.workers.start(regions, inbox, measurement)?;
        self.host = Some(host);
        let TargetProcess { cpu, run, .. } = &*self.process;
        Ok(Answer::Exposed(Exposed { prefix, run_dir: run.path().to_owned(), cpu: *cpu }))
    }
}

impl Session {
    fn echo(&mut self, echo: &Echo) -> Result<Answer, Failure> {
        let exposed =
            self.exposed.take().filter(|(measurement, _)| measurement.operation == Operation::Write);
        let (measurement, region) =
            exposed.ok_or_else(|| Failure::new("the target has no writes to answer"))?;
        let answerer = Answerer::new(echo, &measurement, &self.process.device, &self.process.secret)?;
        let stop = Arc::clone(&self.workers.stop);
        let words = measurement.bytes.div_ceil(8);
        self.workers.spawn("perf-pong", move || answerer.answer(&region, words, &stop))?;
        Ok(Answer::Done)
    }
}

/// A session's threads, which hold its regions.
#[derive(Default)]
struct Workers {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    fn start(
        &mut self,
        regions: Vec<Region>,
        inbox: Option<Inbox>,
        measurement: &Measurement,
    ) -> io::Result<()> {
        if let Some(inbox) = inbox {
            let (stop, received) = (Arc::clone(&self.stop), Arc::clone(&self.received));
            let completion = measurement.completion;
            self.spawn("perf-inbox", move || receive(inbox, completion, &stop, &received))?;
        }
        let stop = Arc::clone(&self.stop);
        self.spawn("perf-records", move || rewrite(&regions, &stop))
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work)?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// As a node does with its load record. Words under atomics are none of the CPU's.
fn rewrite(regions: &[Region], stop: &AtomicBool) {
    for sequence in (2u32..).step_by(2) {
        std::thread::sleep(REWRITE_EVERY);
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let record = Hot { sequence, generation: 1, ..Hot::default() }.sealed();
        for region in regions.iter().filter(|region| region.key().access == Access::ReadOnly) {
            for (index, word) in record.words().into_iter().enumerate() {
                region.store(HEADER_BYTES + index * 8, word, Ordering::Release);
            }
        }
    }
}

/// Takes messages out, and counts them.
fn receive(mut inbox: Inbox, completion: Completion, stop: &AtomicBool, received: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let came = match completion {
            Completion::Polling => inbox.try_receive().is_some(),
            Completion::Events => inbox.receive(RECEIVE_MAX).is_some(),
        };
        if came {
            received.fetch_add(1, Ordering::Relaxed);
        } else {
            std::hint::spin_loop();
        }
    }
}

/// That this process has taken.
pub(super) fn cpu_ns() -> u64 {
    sidelong_os::process_cpu().as_nanos() as u64
}
