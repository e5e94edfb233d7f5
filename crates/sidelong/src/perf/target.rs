//! The target's side: offers what a session asks for, receives what is sent to it, rewrites its records each
//! millisecond as a node does, and forgets all of it when the session ends.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use sidelong_fabric::control::{Answers, Endpoint, Secret};
use sidelong_fabric::{
    Access, Directory as _, Host, Inbox, InboxSpec, Region, RegionSpec, RunDirectory, shm::ShmHost,
    tcp::TcpHost,
};
use sidelong_layout::{HEADER_BYTES, Hot, RegionKind};

use crate::failure::{Failure, say};
use crate::perf::args::{BYTES_MAX, Completion, DeviceArgs, Operation, PerfFabric, ServeArgs};
use crate::perf::background::Background;
use crate::perf::ping_pong::Answerer;
use crate::perf::talk::{Answer, Ask, Echo, KIND, Offer, Offered, Used, VERSION, region};
use crate::perf::{cpus, device, run_dir, secret, stop_flag};

/// Records are rewritten so often.
const REWRITE_EVERY: Duration = Duration::from_millis(1);
/// How often it is looked whether to end.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A receiver that sleeps looks so often whether it is still wanted.
const RECEIVE_MAX: Duration = Duration::from_millis(100);
/// Regions of one session.
const PEERS_MAX: u32 = 4000;
/// Messages that one session's inbox has room for.
const SLOTS_MAX: usize = 2048;

/// Serves until it is told to end.
pub(super) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let stop = stop_flag()?;
    let cpu = cpus::target(args.pin)?;
    // Before any thread is started: they all stay there.
    cpus::hold(cpu)?;
    let files = RunFiles(run_dir(std::process::id()));
    let secret = secret(&args.secret)?;
    let place = Place::new(args.listen.ip(), args.device.clone(), cpu, &files.0, secret.clone())?;
    let place = Arc::new(place);
    let endpoint = Arc::new(Endpoint::listen(args.listen, secret)?);
    let (desk, of_sessions) = (Arc::downgrade(&endpoint), Arc::clone(&place));
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
    let is_over = || args.once && place.has_served.load(Ordering::Relaxed);
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
        return say(format!("{address}\n"));
    }
    let place = cpu.map_or_else(|| "on any CPU".to_owned(), |cpu| format!("on CPU {cpu}"));
    say(format!("sidelong perf serves at {address}, {place}; Ctrl-C ends it\n"))
}

/// Where regions are offered, and which CPU this is.
pub(super) struct Place {
    ip: IpAddr,
    device: DeviceArgs,
    cpu: Option<usize>,
    secret: Secret,
    pub(super) run: RunDirectory,
    /// There is a measurement: two at a time would measure each other.
    is_busy: AtomicBool,
    has_served: AtomicBool,
}

impl Place {
    pub(super) fn new(
        ip: IpAddr,
        device: DeviceArgs,
        cpu: Option<usize>,
        path: &Path,
        secret: Secret,
    ) -> Result<Self, Failure> {
        Ok(Place {
            ip,
            device,
            cpu,
            secret,
            run: RunDirectory::open(path)?,
            is_busy: AtomicBool::new(false),
            has_served: AtomicBool::new(false),
        })
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

/// The run directory, which goes with this.
pub(super) struct RunFiles(pub(super) PathBuf);

impl Drop for RunFiles {
    fn drop(&mut self) {
        // It was made here and holds nothing else.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn answers(mut session: Session) -> Answers {
    Box::new(move |request| {
        let ask: Ask = serde_json::from_slice(request)
            .map_err(|_| "it does not understand: are both sides of one version?".to_owned())?;
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
    offered: Option<(Offer, Region)>,
    turn: Option<Turn>,
    place: Arc<Place>,
    desk: Weak<Endpoint>,
}

/// The one measurement that there may be.
struct Turn(Arc<Place>);

impl Turn {
    fn take(place: &Arc<Place>) -> Result<Self, Failure> {
        if place.is_busy.swap(true, Ordering::Relaxed) {
            return Err(Failure::new("another measurement is under way there: wait for its end"));
        }
        Ok(Turn(Arc::clone(place)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.has_served.store(true, Ordering::Relaxed);
        self.0.is_busy.store(false, Ordering::Relaxed);
    }
}

impl Session {
    fn new(place: Arc<Place>, desk: Weak<Endpoint>) -> Self {
        Session {
            background: None,
            workers: Workers::default(),
            host: None,
            offered: None,
            turn: None,
            place,
            desk,
        }
    }

    fn answer(&mut self, ask: Ask) -> Result<Answer, String> {
        match ask {
            Ask::Offer(offer) => self.offer(&offer).map_err(|Failure(line)| line),
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

    fn offer(&mut self, offer: &Offer) -> Result<Answer, Failure> {
        if offer.version != VERSION {
            return Err(Failure(format!("it is of another version ({VERSION}, asked by {})", offer.version)));
        }
        let within = offer.peers <= PEERS_MAX && offer.bytes <= BYTES_MAX && offer.slots <= SLOTS_MAX;
        if !within || self.turn.is_some() {
            return Err(Failure::new("more than it offers to one measurement"));
        }
        self.turn = Some(Turn::take(&self.place)?);
        let desk = self.desk.upgrade().ok_or_else(|| Failure::new("it is ending"))?;
        let host = self.place.host(offer.fabric, &desk)?;
        let prefix = "perf".to_owned();
        let (mut regions, mut inbox) = (Vec::new(), None);
        for peer in 0..offer.peers {
            let name = region(&prefix, peer);
            let (len, access) = (offer.region_bytes(), offer.access());
            let spec = RegionSpec { name: &name, kind: RegionKind::Raw, len, access, incarnation: 1 };
            let region = if offer.operation.is_two_sided() {
                let room = InboxSpec { slots: offer.slots, message_bytes_max: offer.bytes };
                let (region, receiving) = host.offer_with_inbox(&spec, &room, |_| ())?;
                inbox = Some(receiving);
                region
            } else {
                host.offer(&spec, |_| ())?
            };
            self.place.run.publish(region.key())?;
            desk.publish(region.key());
            regions.push(region);
        }
        self.offered = regions.first().map(|first| (offer.clone(), first.clone()));
        self.workers.start(regions, inbox, offer)?;
        self.host = Some(host);
        let Place { cpu, run, .. } = &*self.place;
        Ok(Answer::Offered(Offered { prefix, run_dir: run.path().to_owned(), cpu: *cpu }))
    }
}

impl Session {
    fn echo(&mut self, echo: &Echo) -> Result<Answer, Failure> {
        let offered = self.offered.take().filter(|(offer, _)| offer.operation == Operation::Write);
        let (offer, region) = offered.ok_or_else(|| Failure::new("it has no writes to answer"))?;
        let answerer = Answerer::new(echo, &offer, &self.place.device, &self.place.secret)?;
        let stop = Arc::clone(&self.workers.stop);
        let words = offer.bytes.div_ceil(8);
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
    fn start(&mut self, regions: Vec<Region>, inbox: Option<Inbox>, offer: &Offer) -> io::Result<()> {
        if let Some(inbox) = inbox {
            let (stop, received) = (Arc::clone(&self.stop), Arc::clone(&self.received));
            let completion = offer.completion;
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
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
