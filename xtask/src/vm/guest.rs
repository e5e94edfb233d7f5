//! One guest: a QEMU process, and the directory that it and the guest write to. It ends with this value, and with this
//! process even where that is killed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::Error;

/// How much of the console says why a guest died.
const CONSOLE_LINES_MAX: usize = 40;

const QEMU: &str = "qemu-system-x86_64";

/// The machine but for what executes its instructions.
const HARDWARE: &[&str] = &[
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

/// What the kernel is told besides what it hands on to init. QEMU's emulated CPUs share one time stamp counter, which Linux
/// does not believe; without it each look at the clock would leave the guest. On a busy host they also miss the
/// ticks by which Linux checks its timer, and it would panic. Nothing here defends against itself, so mitigations only cost.
const KERNEL_LINE: &str = "console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check mitigations=off";

/// What all guests of a run have in common.
pub(super) struct Machine<'a> {
    /// As QEMU's `-accel` takes it.
    pub(super) accelerator: &'a str,
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// The directory that a guest may write to.
    pub(super) out: Option<&'a Path>,
}

/// A running guest.
pub(super) struct Guest {
    pub(super) name: &'static str,
    dir: PathBuf,
    qemu: Child,
    /// What the command has printed, up to where it has been passed on.
    printed: [File; 2],
}

impl Guest {
    /// Boots a guest in `dir`, which is its own. `words` are what run.sh runs, and `wire` is its end of a wire to another.
    pub(super) fn start(
        machine: &Machine<'_>,
        name: &'static str,
        dir: PathBuf,
        words: &[u8],
        wire: Option<(UnixStream, &str)>,
    ) -> Result<Guest, Error> {
        let prepare = || {
            std::fs::create_dir(&dir)?;
            std::fs::write(dir.join("words"), words)?;
            std::fs::write(dir.join("run.sh"), include_bytes!("run.sh"))?;
            let open = |name| File::options().create_new(true).read(true).append(true).open(dir.join(name));
            Ok(([open("stdout")?, open("stderr")?], open("console")?))
        };
        let (printed, console) = prepare().map_err(|source| Error::Write { path: dir.clone(), source })?;
        let boot = || {
            if let Some((end, _)) = &wire {
                rustix::io::fcntl_setfd(end, rustix::io::FdFlags::empty())?;
            }
            let wire = wire.as_ref().map(|(end, address)| (end.as_raw_fd(), *address));
            let mut command = Command::new("setpriv");
            // It must not outlive us, however we end; strictly, not the thread that starts it.
            command.args(["--pdeathsig", "KILL", "--", QEMU]).args(arguments(machine, name, &dir, wire));
            // Ctrl-C is for us, who end it in order.
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(console).process_group(0).spawn()
        };
        let qemu = boot().map_err(|source| Error::Start { command: QEMU.into(), source })?;
        Ok(Guest { name, dir, qemu, printed })
    }

    /// Whether its command has begun.
    pub(super) fn is_up(&self) -> bool {
        self.dir.join("up").exists()
    }

    /// Passes on what the command has printed since the last time: how many bytes.
    pub(super) fn pass_on(&mut self) -> Result<u64, Error> {
        let [stdout, stderr] = &mut self.printed;
        let mut pass_on = || {
            let bytes = io::copy(stdout, &mut io::stdout())?;
            io::stdout().flush()?;
            Ok(bytes + io::copy(stderr, &mut io::stderr())?)
        };
        pass_on().map_err(|source| Error::Output { source })
    }

    /// The exit code of its command, once it is off: `None` inside where the command had none.
    pub(super) fn ended(&mut self) -> Result<Option<Option<u8>>, Error> {
        let status = self.qemu.try_wait().map_err(|source| Error::Start { command: QEMU.into(), source })?;
        let code = || std::fs::read_to_string(self.dir.join("exit")).ok()?.trim_end().parse().ok();
        Ok(status.map(|_| code()))
    }

    /// Why nothing can be expected from it: it has never been ready.
    pub(super) fn not_up(&self) -> Error {
        Error::NotUp { name: self.name, console: self.console() }
    }

    /// Why nothing can be expected from it: it is gone.
    pub(super) fn lost(&self) -> Error {
        Error::Lost { name: self.name, console: self.console() }
    }

    /// The end of what its console has shown, with QEMU's own complaints.
    pub(super) fn console(&self) -> String {
        let shown = std::fs::read(self.dir.join("console")).unwrap_or_default();
        let shown = String::from_utf8_lossy(&shown);
        let lines: Vec<_> = shown.lines().map(|line| format!("\n  {line}")).collect();
        match lines.is_empty() {
            true => " nothing".into(),
            false => lines[lines.len().saturating_sub(CONSOLE_LINES_MAX)..].concat(),
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

/// QEMU's command line. A wire is a descriptor, and the address that the guest has there.
fn arguments(machine: &Machine<'_>, name: &str, dir: &Path, wire: Option<(i32, &str)>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = HARDWARE.iter().map(Into::into).collect();
    let mut add = |option: &str, value: OsString| arguments.extend([option.into(), value]);
    add("-accel", machine.accelerator.into());
    add("-kernel", machine.kernel.into());
    add("-initrd", machine.initramfs.into());
    let mut line = OsString::from(format!("{KERNEL_LINE} name={name} job=\""));
    line.push(dir);
    line.push("\"");
    if let Some((_, address)) = wire {
        line.push(format!(" address={address}"));
    }
    if let Some(out) = machine.out {
        line.push(" out=\"");
        line.push(out);
        line.push("\"");
    }
    add("-append", line);
    add("-chardev", "file,id=console,path=/dev/stderr,append=on".into());
    add("-serial", "chardev:console".into());
    add("-virtfs", shared("host", Path::new("/"), ",readonly=on"));
    add("-virtfs", shared("job", dir, ""));
    if let Some(out) = machine.out {
        add("-virtfs", shared("out", out, ""));
    }
    if let Some((descriptor, address)) = wire {
        add("-netdev", format!("stream,id=wire,server=off,addr.type=fd,addr.str={descriptor}").into());
        // The last part of the address tells two guests apart.
        let last = address.rsplit('.').next().unwrap_or_default().trim_end_matches("/24");
        add("-device", format!("virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0{last}").into());
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

#[cfg(test)]
mod tests {
    use super::*;

    fn line(out: Option<&Path>, wire: Option<(i32, &str)>) -> String {
        let (kernel, initramfs) = (Path::new("/k"), Path::new("/i"));
        let machine = Machine { accelerator: "kvm", kernel, initramfs, out };
        let words = arguments(&machine, "vm", Path::new("/tmp/a b"), wire);
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_plain_machine_writes_to_its_own_directory_alone() {
        let line = line(None, None);
        assert!(line.contains("name=vm job=\"/tmp/a b\" "), "{line}");
        assert!(line.contains("local,path=/,mount_tag=host,security_model=none,multidevs=remap,readonly=on"));
        assert!(!line.contains("-netdev") && !line.contains("address=") && !line.contains("out"), "{line}");
    }

    #[test]
    fn what_is_asked_for_is_added() {
        let line = line(Some(Path::new("/a,b")), Some((7, "10.77.0.2/24")));
        assert!(line.contains("local,path=/a,,b,mount_tag=out") && line.contains("out=\"/a,b\""), "{line}");
        assert!(line.contains("addr.type=fd,addr.str=7") && line.contains("address=10.77.0.2/24"), "{line}");
        assert!(line.contains("mac=52:54:00:00:00:02"), "{line}");
    }
}
