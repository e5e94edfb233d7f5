//! One guest: a QEMU process, and the threads that carry what it says. It ends with this value, and with this process
//! even where that is killed.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::course::{Event, Word};
use super::output::{self, Lines};
use crate::error::Error;

/// How much of the console is kept to say why a guest died.
const CONSOLE_LINES_MAX: usize = 40;
/// A longer line of the console or the status is read in parts.
const LINE_BYTES_MAX: u64 = 1024;
/// How long what QEMU says while it dies may be on its way.
const CONSOLE_PATIENCE: Duration = Duration::from_millis(100);

const QEMU: &str = "qemu-system-x86_64";

/// The machine. Emulated also where there is KVM: so it is the same on every host, and what CI tests is what runs.
const HARDWARE: &[&str] = &[
    "-accel",
    "tcg,thread=multi",
    "-cpu",
    "max",
    "-m",
    "2048",
    "-smp",
    "2",
    "-nodefaults",
    "-no-user-config",
    "-no-reboot",
    "-display",
    "none",
];

/// What the kernel is told besides `job`, which it hands on to init. QEMU's CPUs share one time stamp counter, which Linux
/// does not believe; without it each look at the clock would leave the guest. Nothing here defends against itself, so
/// mitigations only cost.
const KERNEL_LINE: &str = "console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off";

/// What all guests of a run have in common.
pub(super) struct Machine<'a> {
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// The directory that a guest may write to.
    pub(super) out: Option<&'a Path>,
    /// Give the command this process's terminal.
    pub(super) terminal: bool,
    /// Print the console.
    pub(super) verbose: bool,
    /// What ends the outputs, between two zero bytes.
    pub(super) mark: &'a str,
}

/// What sets one guest apart.
pub(super) struct Part<'a> {
    /// Its place among the run's guests.
    pub(super) place: usize,
    /// What goes before its lines, where there are others.
    pub(super) name: Option<&'a str>,
    /// The directory of its job.
    pub(super) job: &'a Path,
    /// Its end of the wire between two.
    pub(super) wire: Option<UnixStream>,
}

/// What a guest sends, or why it will send no more.
pub(super) type Sent = (usize, Result<Event, Lost>);

/// Why nothing can be expected from a guest.
#[derive(Debug)]
pub(super) enum Lost {
    /// It is gone.
    Guest,
    /// The caller takes no more of its output.
    Caller(io::Error),
}

/// A running guest.
pub(super) struct Guest {
    qemu: Child,
    status: UnixStream,
    console: Arc<Mutex<VecDeque<String>>>,
}

impl Guest {
    /// Starts it. What it sends comes through `events`.
    pub(super) fn start(
        machine: &Machine<'_>,
        part: Part<'_>,
        events: &SyncSender<Sent>,
    ) -> Result<Guest, Error> {
        let cannot = |source| Error::Start { command: QEMU.into(), source };
        let (mut qemu, [stdout, stderr, status]) = spawn(machine, &part).map_err(cannot)?;
        let console = Arc::default();
        if let Some(from) = qemu.stderr.take() {
            let console = Arc::clone(&console);
            let name = part.name.map_or("console".into(), |name| format!("{name} console"));
            let lines = machine.verbose.then(|| Lines::of(&name));
            thread::spawn(move || keep_console(from, lines, &console));
        }
        let mark = format!("\0{}\0", machine.mark);
        let drain = |from: UnixStream, to: fn() -> Box<dyn Write>| {
            let (place, name, mark) = (part.place, part.name.map(str::to_owned), mark.clone());
            let events = events.clone();
            thread::spawn(move || {
                let sent = match output::pass_on(from, mark.as_bytes(), name.as_deref(), to()) {
                    Ok(()) => Ok(Event::Drained),
                    Err(output::Error::From) => return,
                    Err(output::Error::To(source)) => Err(Lost::Caller(source)),
                };
                // Nobody waits for it any more: the run is over.
                _ = events.send((place, sent));
            })
        };
        let drains = [drain(stdout, || Box::new(io::stdout())), drain(stderr, || Box::new(io::stderr()))];
        let said = status.try_clone().map_err(cannot)?;
        let (place, events) = (part.place, events.clone());
        thread::spawn(move || {
            read_status(said, |event| events.send((place, Ok(event))).is_ok());
            // What it still had to say goes before the news of its end.
            drains.into_iter().for_each(|drain| _ = drain.join());
            _ = events.send((place, Err(Lost::Guest)));
        });
        Ok(Guest { qemu, status, console })
    }

    /// Says a word to it. Where that fails it is gone, which shows in what it sends.
    pub(super) fn tell(&self, word: Word) {
        _ = (&self.status).write_all(match word {
            Word::Go => b"go\n",
            Word::Stop => b"stop\n",
        });
    }

    /// The end of what its console has shown.
    pub(super) fn console(&self) -> String {
        // QEMU's last words may still be under way.
        thread::sleep(CONSOLE_PATIENCE);
        let lines = self.console.lock().unwrap_or_else(PoisonError::into_inner);
        match lines.is_empty() {
            true => " nothing".into(),
            false => lines.iter().map(|line| format!("\n  {line}")).collect(),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It fails only where QEMU has ended already.
        _ = self.qemu.kill();
        _ = self.qemu.wait();
    }
}

/// The process, and our ends of its ports: standard output, standard error, status.
fn spawn(machine: &Machine<'_>, part: &Part<'_>) -> io::Result<(Child, [UnixStream; 3])> {
    let [stdout, stderr, status] = [UnixStream::pair()?, UnixStream::pair()?, UnixStream::pair()?];
    let theirs = [stdout.1, stderr.1, status.1];
    for end in theirs.iter().chain(&part.wire) {
        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::empty())?;
    }
    let ports = theirs.each_ref().map(AsRawFd::as_raw_fd);
    let mut command = Command::new("setpriv");
    // It must not outlive us, however we end; strictly, not the thread that starts it.
    command.args(["--pdeathsig", "KILL", "--", QEMU]).args(arguments(machine, part, ports));
    command.stderr(Stdio::piped());
    if !machine.terminal {
        // Ctrl-C is for us, who end it in order.
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    }
    Ok((command.spawn()?, [stdout.0, stderr.0, status.0]))
}

/// QEMU's command line.
fn arguments(machine: &Machine<'_>, part: &Part<'_>, ports: [RawFd; 3]) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = HARDWARE.iter().map(Into::into).collect();
    let mut add = |option: &str, value: OsString| arguments.extend([option.into(), value]);
    add("-kernel", machine.kernel.into());
    add("-initrd", machine.initramfs.into());
    let mut line = OsString::from(format!("{KERNEL_LINE} job=\""));
    line.push(part.job);
    line.push("\"");
    add("-append", line);
    // The console comes with QEMU's own complaints.
    add("-chardev", "file,id=console,path=/dev/stderr,append=on".into());
    add("-serial", "chardev:console".into());
    // The first device, so that its ports are /dev/vport0pN.
    add("-device", "virtio-serial-pci".into());
    add("-virtfs", shared("host", Path::new("/"), ",readonly=on"));
    if let Some(out) = machine.out {
        add("-virtfs", shared("out", out, ""));
    }
    if machine.terminal {
        add("-chardev", "stdio,id=terminal,signal=off".into());
        add("-device", "virtconsole,nr=0,chardev=terminal".into());
    }
    for (i, descriptor) in ports.iter().enumerate() {
        let nr = i + 1;
        add("-chardev", format!("socket,id=port{nr},fd={descriptor}").into());
        add("-device", format!("virtserialport,nr={nr},chardev=port{nr}").into());
    }
    if let Some(wire) = &part.wire {
        let descriptor = wire.as_raw_fd();
        add("-netdev", format!("stream,id=wire,server=off,addr.type=fd,addr.str={descriptor}").into());
        add(
            "-device",
            format!("virtio-net-pci,netdev=wire,mac=52:54:00:00:00:{:02x}", part.place + 1).into(),
        );
    }
    arguments
}

/// A directory of the host, as a 9p share. In QEMU's options a comma stands twice.
fn shared(tag: &str, dir: &Path, more: &str) -> OsString {
    let mut option = b"local,path=".to_vec();
    for &byte in dir.as_os_str().as_bytes() {
        option.extend_from_slice(if byte == b',' { b",," } else { std::slice::from_ref(&byte) });
    }
    let rest = format!(",mount_tag={tag},security_model=none,multidevs=remap{more}");
    option.extend_from_slice(rest.as_bytes());
    OsString::from_vec(option)
}

/// Reads lines to the end: keeps the last, and prints all where `named`.
fn keep_console(from: impl Read, mut named: Option<Lines>, kept: &Mutex<VecDeque<String>>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    // An error of a pipe's reader is its end.
    while (&mut from).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
        if let Some(named) = &mut named {
            // The caller may have closed it, which is no reason to stop reading.
            _ = io::stderr().write_all(&named.take(&line, true));
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == CONSOLE_LINES_MAX {
            kept.pop_front();
        }
        kept.push_back(String::from_utf8_lossy(&line).trim_end().into());
        line.clear();
    }
}

/// Sends each event that the guest's lines name, until there are no more or the receiver is gone.
fn read_status(from: impl Read, mut show: impl FnMut(Event) -> bool) {
    let mut from = BufReader::new(from);
    let mut line = String::new();
    while (&mut from).take(LINE_BYTES_MAX).read_line(&mut line).is_ok_and(|length| length > 0) {
        let event = match line.trim_end() {
            "ready" => Some(Event::Ready),
            "listening" => Some(Event::Listening),
            other => other.strip_prefix("exit ").and_then(|code| code.parse().ok()).map(Event::Exit),
        };
        if event.is_some_and(|event| !show(event)) {
            return;
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(machine: &Machine<'_>, part: &Part<'_>) -> String {
        let words = arguments(machine, part, [3, 4, 5]);
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    fn machine() -> Machine<'static> {
        Machine {
            kernel: Path::new("/k"),
            initramfs: Path::new("/i"),
            out: None,
            terminal: false,
            verbose: false,
            mark: "end",
        }
    }

    #[test]
    fn the_plain_machine_has_its_ports_and_cannot_write() {
        let part = Part { place: 0, name: None, job: Path::new("/tmp/a b"), wire: None };
        let line = line(&machine(), &part);
        assert!(line.contains("job=\"/tmp/a b\""), "{line}");
        assert!(line.contains("socket,id=port3,fd=5 -device virtserialport,nr=3,chardev=port3"), "{line}");
        assert!(line.contains("local,path=/,mount_tag=host,security_model=none,multidevs=remap,readonly=on"));
        assert!(!line.contains("-netdev") && !line.contains("terminal") && !line.contains("mount_tag=out"));
    }

    #[test]
    fn what_is_asked_for_is_added() {
        let machine = Machine { out: Some(Path::new("/a,b")), terminal: true, ..machine() };
        let (wire, _other) = UnixStream::pair().unwrap();
        let descriptor = wire.as_raw_fd();
        let part = Part { place: 1, name: Some("edge"), job: Path::new("/j"), wire: Some(wire) };
        let line = line(&machine, &part);
        assert!(line.contains("local,path=/a,,b,mount_tag=out"), "{line}");
        assert!(line.contains("virtconsole,nr=0,chardev=terminal"), "{line}");
        assert!(line.contains(&format!("addr.type=fd,addr.str={descriptor}")), "{line}");
        assert!(line.contains("mac=52:54:00:00:00:02"), "{line}");
    }

    #[test]
    fn a_status_is_read_by_lines() {
        let mut events = Vec::new();
        read_status(b"ready\nlistening\nwhat?\nexit x\nexit 137\n".as_slice(), |event| {
            events.push(event);
            true
        });
        assert_eq!(events, [Event::Ready, Event::Listening, Event::Exit(137)]);
    }

    #[test]
    fn the_last_lines_of_the_console_are_kept() {
        let text: String = (0..100).map(|i| format!("line {i}\r\n")).collect();
        let kept = Mutex::default();
        keep_console(text.as_bytes(), None, &kept);
        let kept = kept.into_inner().unwrap();
        assert_eq!(kept.len(), CONSOLE_LINES_MAX);
        assert_eq!(kept.back().map(String::as_str), Some("line 99"));
    }
}
