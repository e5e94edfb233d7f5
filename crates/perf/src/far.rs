//! The measuring side's session with the target: a child process on this machine, or `perf serve` on another.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::results::PerfFabric;
use sidelong_fabric::control::{Secret, Session};
use sidelong_fabric::{Directory as _, Initiator, LinkId, RunDirectory};
use sidelong_layout::RegionKind;

use crate::args::{DeviceArgs, MeasureArgs, address};
use crate::device;
use crate::ping_pong::Pong;
use crate::session::{SECRET, run_dir, secret};
use crate::talk::{Answer, Ask, Exposed, KIND, Measurement, Used, VERSION};
use sidelong_app::Failure;

/// Time limit of an answer: the target's CPU may be busy with many threads.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Time limit of connecting to the target.
const REACH_MAX: Duration = Duration::from_secs(10);
/// Time limit of reading a link's header.
const CONNECT_MAX: Duration = Duration::from_secs(10);

pub(super) struct Far {
    session: Session,
    secret: Secret,
    measurement: Measurement,
    pub(super) exposed: Exposed,
    /// Dropped last, after the session.
    _child: Option<Target>,
}

impl Far {
    /// Starts the target or connects to it, and lets it expose what is measured. A target that is started is pinned to
    /// `cpu`.
    pub(super) fn new(args: &MeasureArgs, cpu: Option<usize>) -> Result<Self, Failure> {
        let (address, secret, child) = match &args.to {
            Some(host) => (address(host)?, secret(&args.secret)?, None),
            None => {
                let text = random_secret()?;
                let secret = Secret::new(text.as_bytes())?;
                let (address, child) = Target::start(&text, cpu, &args.device)?;
                (address, secret, Some(child))
            }
        };
        let mut session = Session::open(address, &secret, REACH_MAX).map_err(|error| {
            let Failure(line) = error.into();
            Failure(format!("{line}; check that `sidelong-lab perf serve` runs there with the same secret"))
        })?;
        let measurement = Measurement {
            version: VERSION,
            fabric: args.fabric,
            operation: args.operation,
            peers: args.peers,
            bytes: args.size_max(),
            slots: args.slots(),
            completion: args.completion(),
        };
        match ask(&mut session, &Ask::Measure(measurement.clone()))? {
            Answer::Exposed(exposed) => Ok(Far { session, secret, measurement, exposed, _child: child }),
            other => Err(unexpected(&other)),
        }
    }

    /// The initiator, and its transport in words.
    pub(super) fn initiator(&self, args: &MeasureArgs) -> Result<(Initiator, String), Failure> {
        let device = match (args.fabric, &args.to) {
            (PerfFabric::Verbs, _) => {
                return device::initiator(&args.device, args.completion(), &self.secret);
            }
            (PerfFabric::Shm, _) => "shared memory".to_owned(),
            (PerfFabric::Tcp, None) => "TCP on the loopback device".to_owned(),
            (PerfFabric::Tcp, Some(host)) => format!("TCP to {host}"),
        };
        Ok((Initiator::new(), device))
    }

    /// A link to each region.
    pub(super) fn links(&mut self, initiator: &mut Initiator) -> Result<Vec<LinkId>, Failure> {
        let Far { session, measurement, exposed, .. } = self;
        let (kind, len, access) = (RegionKind::Raw, measurement.region_bytes(), measurement.access());
        let mut links = Vec::with_capacity(measurement.peers as usize);
        for name in (0..measurement.peers).map(|peer| exposed.region(peer)) {
            let key = match measurement.fabric {
                PerfFabric::Shm => RunDirectory::at(&exposed.run_dir).find(&name, kind, len, access)?,
                PerfFabric::Tcp | PerfFabric::Verbs => session.find(&name, kind, len, access, ANSWER_MAX)?,
            };
            links.push(initiator.connect(&key, CONNECT_MAX)?);
        }
        Ok(links)
    }

    /// Lets the target answer each write to its region by a write to the returned memory.
    pub(super) fn ping_pong(&mut self, device: &DeviceArgs) -> Result<Pong, Failure> {
        let pong = Pong::new(&self.measurement, device, self.session.peer(), &self.secret)?;
        match ask(&mut self.session, &Ask::Echo(pong.echo()))? {
            Answer::Done => Ok(pong),
            other => Err(unexpected(&other)),
        }
    }

    /// Lets the target run `threads` busy threads.
    pub(super) fn background(&mut self, threads: u32) -> Result<(), Failure> {
        match ask(&mut self.session, &Ask::Background { threads })? {
            Answer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// What the target has used so far.
    pub(super) fn used(&mut self) -> Result<Used, Failure> {
        match ask(&mut self.session, &Ask::Usage)? {
            Answer::Used(used) => Ok(used),
            other => Err(unexpected(&other)),
        }
    }

    /// Fails if the target has ended: over shm its memory stays, and would still be measured.
    pub(super) fn is_there(&self) -> Result<(), Failure> {
        if self.session.is_closed() { Err(gone()) } else { Ok(()) }
    }
}

/// The error if the target ends before the measurement.
pub(super) fn gone() -> Failure {
    Failure::new("the target ended during the measurement")
}

fn ask(session: &mut Session, ask: &Ask) -> Result<Answer, Failure> {
    let answer = session.exchange(KIND, &serde_json::to_vec(ask)?, ANSWER_MAX);
    let answer = answer.map_err(|error| match error {
        sidelong_fabric::Error::Connect { .. } => gone(),
        other => other.into(),
    })?;
    Ok(serde_json::from_slice(&answer)?)
}

fn unexpected(answer: &Answer) -> Failure {
    Failure(format!("the target sent an unexpected answer: {answer:?}"))
}

/// A secret for a target that is started for one measurement.
fn random_secret() -> Result<String, Failure> {
    let mut bytes = [0u8; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The target's process on this machine. It ends when its standard input does.
struct Target(Child);

impl Target {
    fn start(secret: &str, cpu: Option<usize>, device: &DeviceArgs) -> Result<(SocketAddr, Self), Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["perf", "serve", "--child", "--listen", "127.0.0.1:0", "--pin"]);
        command.arg(cpu.map_or_else(|| "none".to_owned(), |cpu| cpu.to_string()));
        command.args(device.words()).env(SECRET, secret).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Ctrl-C goes to this side, which ends the other.
        let mut target = Target(command.process_group(0).spawn()?);
        let mut line = String::new();
        if let Some(out) = target.0.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        match line.trim().parse() {
            Ok(address) => Ok((address, target)),
            Err(_) => Err(Failure::new("the target did not start; its error is above")),
        }
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
        // The target removes it itself, unless it was killed.
        RunDirectory::at(run_dir(self.0.id())).remove();
    }
}
