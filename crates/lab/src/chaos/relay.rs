//! A relay of frames between two network devices, which lets them come later.
//!
//! The kernels of many machines have no netem. Each device is one of `socat`, which passes each frame as a datagram.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::ops::RangeInclusive;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::error::{Error, Result};
use crate::process::Process;

/// More than a frame has.
const FRAME_BYTES_MAX: usize = 1 << 16;
/// Frames that wait at most, each way. What comes beyond is lost, as at a switch.
const QUEUE_MAX: usize = 4_096;
/// Longest wait for a frame while none is due.
const POLL: Duration = Duration::from_millis(5);
const STARTS_MAX: Duration = Duration::from_secs(5);

/// Frames by when they are due, in the order in which they came.
type Queue = BinaryHeap<Reverse<(Instant, u64, Vec<u8>)>>;

/// How much later frames come.
#[derive(Clone, Debug)]
pub(super) struct Later {
    pub(super) us: RangeInclusive<u64>,
    /// Whether some overtake others.
    pub(super) reorders: bool,
}

/// Passes frames on while it lives.
pub(super) struct Relay {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    devices: [Process; 2],
}

impl Relay {
    /// Makes two devices of these names, and passes what comes to one on to the other. `command` begins a command line that ends with this
    /// process.
    pub(super) fn begin(devices: [&str; 2], later: &Later, command: impl Fn() -> Command) -> Result<Relay> {
        let device = |name: &str| {
            let device = format!("TUN,tun-type=tap,tun-name={name},iff-no-pi,iff-up");
            let socket = format!("ABSTRACT-SENDTO:{},bind={name}", ours(name));
            let mut command = command();
            command.arg("socat").args(["-b", &FRAME_BYTES_MAX.to_string(), &device, &socket]);
            Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()))
        };
        let failed = |said: String| Error::Serve { what: "socat".into(), said };
        let bind = |name: &str| UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(ours(name))?);
        // A device that takes no frames loses them.
        let bind = |name: &str| {
            let socket = bind(name)?;
            socket.set_write_timeout(Some(POLL))?;
            Ok(socket)
        };
        let sockets =
            devices.map(|name| bind(name).map_err(|error: std::io::Error| failed(error.to_string())));
        let [near, far] = sockets;
        let sockets = [Arc::new(near?), Arc::new(far?)];
        let made = [device(devices[0])?, device(devices[1])?];
        // It has made the device before it binds the socket.
        let is_there = |name: &&str| known().lines().any(|line| line.ends_with(&format!(" @{name}")));
        let begun = Instant::now();
        while !devices.iter().all(is_there) {
            if begun.elapsed() > STARTS_MAX {
                return Err(failed(format!("makes no devices {}", devices.join(" and "))));
            }
            std::thread::sleep(POLL);
        }
        let over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for (from, to) in [(0, 1), (1, 0)] {
            let (over, later, to_device) = (Arc::clone(&over), later.clone(), devices[to].to_owned());
            let [from, to] = [from, to].map(|end: usize| Arc::clone(&sockets[end]));
            threads.push(std::thread::spawn(move || {
                let to = |frame: &[u8]| to.send_to_addr(frame, &SocketAddr::from_abstract_name(&to_device)?);
                pass(&from, to, &later, &over);
            }));
        }
        Ok(Relay { over, threads, devices: made })
    }
}

/// The name of the socket to which a device's frames come.
fn ours(device: &str) -> String {
    format!("{device}-relay")
}

/// The sockets of this network namespace.
fn known() -> String {
    std::fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default()
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.devices.iter_mut().for_each(Process::kill);
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

/// Passes frames on, each later, until it is over.
fn pass(from: &UnixDatagram, to: impl Fn(&[u8]) -> io::Result<usize>, later: &Later, over: &AtomicBool) {
    let mut random = Pcg64Mcg::seed_from_u64(0);
    let mut queue = Queue::new();
    let mut frame = vec![0; FRAME_BYTES_MAX];
    let (mut last, mut number) = (Instant::now(), 0);
    while !over.load(Ordering::Relaxed) {
        while let Some(frame) = due(&mut queue) {
            let _ = to(&frame);
        }
        let due = queue.peek().map(|Reverse((due, ..))| due.saturating_duration_since(Instant::now()));
        let wait = Timespec::try_from(due.map_or(POLL, |due| due.min(POLL))).expect("it is short");
        // A socket's own timeout would be as coarse as the kernel's ticks.
        let _ = poll(&mut [PollFd::new(from, PollFlags::IN)], Some(&wait));
        loop {
            match recv(from, &mut frame[..], RecvFlags::DONTWAIT) {
                Ok((bytes, _)) if queue.len() < QUEUE_MAX => {
                    let due = Instant::now() + Duration::from_micros(random.random_range(later.us.clone()));
                    last = if later.reorders { due } else { last.max(due) };
                    number += 1;
                    queue.push(Reverse((last, number, frame[..bytes].to_vec())));
                }
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(_) => return,
            }
        }
    }
}

/// The first frame that is due.
fn due(queue: &mut Queue) -> Option<Vec<u8>> {
    let Reverse((due, ..)) = queue.peek()?;
    if *due > Instant::now() {
        return None;
    }
    queue.pop().map(|Reverse((_, _, frame))| frame)
}
