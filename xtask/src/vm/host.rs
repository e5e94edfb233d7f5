//! What the host must have: Debian packages, and among its kernels one with the modules of a guest.

use std::env::consts::ARCH;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::exec;

/// The packages that a guest takes from the host. ibv_devinfo and ib_read_lat run in it.
const PACKAGES: &[&str] = &[
    "qemu-system-x86",
    "busybox-static",
    "iproute2",
    "kmod",
    "ibverbs-providers",
    "ibverbs-utils",
    "perftest",
];
const LINUX: &str = "linux-image-amd64";

/// The modules that make a guest: its root, the wire to another guest, and verbs. Debian's cloud kernel, for one, has no
/// rdma_rxe.
const MODULES: &[&str] = &[
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "overlay",
    "virtio_net",
    "crc32_generic",
    "ib_uverbs",
    "rdma_ucm",
    "rdma_rxe",
];

/// The kernel that guests boot.
pub(super) struct Kernel {
    pub(super) image: PathBuf,
    /// Its modules, to be loaded one after the other.
    pub(super) modules: Vec<PathBuf>,
}

/// The newest kernel in /boot that has the modules, or the packages to install.
pub(super) fn kernel() -> Result<Kernel, Error> {
    if ARCH != "x86_64" {
        return Err(Error::Architecture);
    }
    // It fails where one has never been installed, and still names the others.
    let mut query = Command::new("dpkg-query");
    let known = query.args(["--show", "--showformat", "${Package} ${db:Status-Status}\n"]).args(PACKAGES);
    let known = known.output().map_err(|source| Error::Start { command: "dpkg-query".into(), source })?;
    let mut missing = missing(&String::from_utf8_lossy(&known.stdout));
    let mut versions = versions(Path::new("/boot"))?;
    versions.sort_by_key(|version| std::cmp::Reverse(numbers(version)));
    let found = versions.iter().find_map(|version| Some((version, modules(version)?)));
    match found {
        Some((version, modules)) if missing.is_empty() => {
            Ok(Kernel { image: format!("/boot/vmlinuz-{version}").into(), modules })
        }
        found => {
            missing.extend(found.is_none().then_some(LINUX));
            Err(Error::NotInstalled { packages: missing.join(" ") })
        }
    }
}

/// The packages that dpkg does not know as installed.
fn missing(known: &str) -> Vec<&'static str> {
    let installed = |name: &str| known.lines().any(|line| line.strip_suffix(" installed") == Some(name));
    PACKAGES.iter().copied().filter(|name| !installed(name)).collect()
}

fn versions(boot: &Path) -> Result<Vec<String>, Error> {
    let list = || -> io::Result<Vec<String>> {
        let mut versions = Vec::new();
        for entry in std::fs::read_dir(boot)? {
            let name = entry?.file_name();
            versions.extend(name.to_str().and_then(|name| name.strip_prefix("vmlinuz-")).map(str::to_owned));
        }
        Ok(versions)
    };
    match list() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed.map_err(|source| Error::Read { path: boot.into(), source }),
    }
}

/// The numbers in a version, by which it is older or newer than another.
fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The modules of a kernel in their order, unless one is missing.
fn modules(version: &str) -> Option<Vec<PathBuf>> {
    let mut modprobe = Command::new("/sbin/modprobe");
    modprobe.args(["--set-version", version, "--show-depends", "--all"]).args(MODULES);
    exec::output(&mut modprobe).ok().map(|said| load_order(&said))
}

/// The files in what modprobe says: each once, after what it needs. It names a module that is built in without a file.
fn load_order(said: &str) -> Vec<PathBuf> {
    let mut order = Vec::new();
    for path in said.lines().filter_map(|line| line.strip_prefix("insmod ")) {
        let path = PathBuf::from(path.trim_end());
        if !order.contains(&path) {
            order.push(path);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(numbers("6.1.0-9-amd64") < numbers("6.1.0-56-amd64"));
        assert!(numbers("6.1.0-56-amd64") < numbers("6.12.4-amd64"));
    }

    #[test]
    fn each_module_is_loaded_once() {
        let said = "insmod /m/9pnet.ko \nbuiltin virtio\ninsmod /m/9p.ko.xz \ninsmod /m/9pnet.ko \n";
        assert_eq!(load_order(said), [PathBuf::from("/m/9pnet.ko"), PathBuf::from("/m/9p.ko.xz")]);
    }

    #[test]
    fn packages_that_are_not_installed_are_named() {
        let all: String = PACKAGES.iter().map(|name| format!("{name} installed\n")).collect();
        assert!(missing(&all).is_empty());
        assert_eq!(missing(&all.replace("kmod installed", "kmod config-files")), ["kmod"]);
    }
}
