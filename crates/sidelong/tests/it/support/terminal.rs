//! A terminal for the program: the test types, and reads the screen.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::PATIENCE;

/// Interval at which the screen is checked if nothing was written.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A program on a terminal of its own.
pub struct Terminal {
    child: Child,
    /// `None` once it has hung up.
    keys: Option<File>,
    /// Processes the output until the program's end of the terminal is closed.
    shows: Option<JoinHandle<()>>,
    hung_up: Arc<AtomicBool>,
    /// Kept, so that the terminal outlives the program.
    slave: OwnedFd,
    screen: Arc<Mutex<Screen>>,
}

/// What was written to it, raw and as displayed.
struct Screen {
    raw: Vec<u8>,
    parser: vt100::Parser,
}

impl Terminal {
    /// Starts the program with these arguments on a terminal of that size. `None` if it cannot get a session of its
    /// own.
    pub fn start(arguments: &[&str], rows: u16, cols: u16, variables: &[(&str, &str)]) -> Option<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
        let size = Winsize { ws_row: rows, ws_col: cols, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).unwrap();
        // Otherwise the program would ask the terminal of the test run for its size.
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(env!("CARGO_BIN_EXE_sidelong")).args(arguments);
        command.env_remove("SIDELONG_LOG").env_remove("NO_COLOR").env("TERM", "xterm-256color");
        command.envs(variables.iter().copied());
        let lent = || slave.try_clone().unwrap();
        command.stdin(lent()).stdout(lent()).stderr(lent());
        let child = command.spawn().ok()?;
        let screen = Screen { raw: Vec::new(), parser: vt100::Parser::new(sized(rows), sized(cols), 0) };
        let screen = Arc::new(Mutex::new(screen));
        let mut shown = File::from(master);
        let keys = shown.try_clone().unwrap();
        let hung_up = Arc::new(AtomicBool::new(false));
        let shows = std::thread::spawn({
            let (screen, hung_up) = (Arc::clone(&screen), Arc::clone(&hung_up));
            move || {
                let mut bytes = [0; 4096];
                while !hung_up.load(Ordering::Relaxed) {
                    let mut ready = [PollFd::new(&shown, PollFlags::IN)];
                    if poll(&mut ready, Some(&LOOK)).unwrap() == 0 {
                        continue;
                    }
                    let Ok(count @ 1..) = shown.read(&mut bytes) else { return };
                    let mut screen = screen.lock().unwrap();
                    screen.raw.extend_from_slice(&bytes[..count]);
                    screen.parser.process(&bytes[..count]);
                }
            }
        });
        Some(Terminal { child, keys: Some(keys), shows: Some(shows), hung_up, slave, screen })
    }

    pub fn press(&mut self, keys: &str) {
        self.keys.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// As when its window is closed.
    pub fn hang_up(&mut self) {
        self.hung_up.store(true, Ordering::Relaxed);
        self.keys = None;
        self.shows.take().unwrap().join().unwrap();
    }

    /// The text on the screen.
    pub fn text(&self) -> String {
        self.screen.lock().unwrap().parser.screen().contents()
    }

    /// All that was written to it, escapes included.
    pub fn raw(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap().raw).into_owned()
    }

    /// Waits until the screen is as wanted, and returns its text.
    pub fn sees(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let text = self.text();
            if wanted(&text) {
                return text;
            }
            assert!(Instant::now() < deadline, "never: {what}\n{text}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the program ends by itself; its exit code, or minus the signal that ended it.
    pub fn finish(&mut self) -> i32 {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
            }
            assert!(Instant::now() < deadline, "does not end: {}", self.text());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Whether typed text appears line by line, as a shell needs its terminal back.
    pub fn is_cooked(&self) -> bool {
        tcgetattr(&self.slave).unwrap().local_modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }
}

fn sized(cells: u16) -> NonZero<u16> {
    NonZero::new(cells).expect("a terminal that shows something")
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
