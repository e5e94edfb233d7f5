//! What the host must have: Debian packages, known by what they install.

use std::env::consts::ARCH;
use std::path::{Path, PathBuf};

use super::kernel::Kernel;
use crate::error::Error;

/// Programs that a guest needs, and the packages that bring them. ib_read_lat and ibv_devinfo run in the guest, which
/// takes them from here.
const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("rdma", "iproute2"),
    ("modprobe", "kmod"),
    ("setpriv", "util-linux"),
    ("xz", "xz-utils"),
    ("ibv_devinfo", "ibverbs-utils"),
    ("ib_read_lat", "perftest"),
];
/// What makes soft-RoCE known to libibverbs.
const PROVIDER: (&str, &str) = ("/etc/libibverbs.d/rxe.driver", "ibverbs-providers");
/// The guest's first process: there is no library yet that it could link.
const BUSYBOX: (&str, &str) = ("/bin/busybox", "busybox-static");
const LINUX: &str = "linux-image-amd64";

/// Where Debian has programs, those included that an ordinary user's path leaves out.
const PROGRAM_DIRS: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// What was found.
pub(super) struct Host {
    pub(super) kernel: Kernel,
    pub(super) busybox: PathBuf,
}

impl Host {
    /// Looks, or names the packages to install.
    pub(super) fn look() -> Result<Host, Error> {
        if ARCH != "x86_64" {
            return Err(Error::Architecture);
        }
        let mut missing: Vec<_> =
            PROGRAMS.iter().filter(|(program, _)| !has(program)).map(|(_, package)| *package).collect();
        if !Path::new(PROVIDER.0).exists() {
            missing.push(PROVIDER.1);
        }
        let busybox = PathBuf::from(BUSYBOX.0);
        if !std::fs::read(&busybox).is_ok_and(|elf| is_static(&elf)) {
            missing.push(BUSYBOX.1);
        }
        match Kernel::find(Path::new("/boot"), Path::new("/lib/modules"))? {
            Some(kernel) if missing.is_empty() => Ok(Host { kernel, busybox }),
            Some(_) => Err(Error::NotInstalled { packages: missing.join(" ") }),
            None => {
                missing.push(LINUX);
                Err(Error::NotInstalled { packages: missing.join(" ") })
            }
        }
    }
}

fn has(program: &str) -> bool {
    PROGRAM_DIRS.iter().any(|dir| Path::new(dir).join(program).exists())
}

/// Whether a 64-bit program asks for no dynamic linker: it has no program header of the type PT_INTERP.
fn is_static(elf: &[u8]) -> bool {
    const PT_INTERP: u64 = 3;
    let number = |at: usize, size: usize| {
        let bytes = elf.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let is_static = || {
        let (start, size, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
        for i in 0..count {
            let header = usize::try_from(start.checked_add(i * size)?).ok()?;
            if number(header, 4)? == PT_INTERP {
                return Some(false);
            }
        }
        Some(true)
    };
    elf.starts_with(b"\x7fELF\x02") && is_static() == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_told_from_a_static_one() {
        let mut elf = vec![0; 64 + 2 * 56];
        elf[..5].copy_from_slice(b"\x7fELF\x02");
        (elf[0x20], elf[0x36], elf[0x38]) = (64, 56, 2);
        elf[64] = 1;
        assert!(is_static(&elf));
        elf[64 + 56] = 3;
        assert!(!is_static(&elf));
        elf.truncate(64 + 56);
        assert!(!is_static(&elf), "the header is cut");
        assert!(!is_static(b"#!/bin/sh\n"));
    }
}
