//! The kernel that guests boot: the newest of the host's that has the modules which we load, with these in the order in
//! which they can be loaded. It only looks: `image` unpacks.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// The modules that make a guest: the wire to the host, its root, the wire to another guest, and verbs. Debian's cloud
/// kernel, for one, has no rdma_rxe.
const WANTED: &[&str] = &[
    "virtio_pci",
    "9pnet_virtio",
    "9p",
    "overlay",
    "virtio_console",
    "virtio_net",
    "crc32_generic",
    "ib_uverbs",
    "rdma_ucm",
    "rdma_rxe",
];

/// One of the host's kernels.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Kernel {
    pub(super) version: String,
    /// As the boot loader would take it.
    pub(super) image: PathBuf,
    /// To be loaded one after the other.
    pub(super) modules: Vec<PathBuf>,
}

impl Kernel {
    /// The newest `vmlinuz-VERSION` in `boot` whose modules lie in `modules`/VERSION, or none.
    pub(super) fn find(boot: &Path, modules: &Path) -> Result<Option<Kernel>, Error> {
        let mut versions = versions(boot)?;
        versions.sort_by_key(|version| std::cmp::Reverse(numbers(version)));
        for version in versions {
            let dir = modules.join(&version);
            let (Some(depends), Some(builtin)) =
                (read(&dir.join("modules.dep"))?, read(&dir.join("modules.builtin"))?)
            else {
                continue;
            };
            if let Some(order) = load_order(&depends, &builtin, WANTED) {
                let modules = order.into_iter().map(|path| dir.join(path)).collect();
                let image = boot.join(format!("vmlinuz-{version}"));
                return Ok(Some(Kernel { version, image, modules }));
            }
        }
        Ok(None)
    }
}

fn versions(boot: &Path) -> Result<Vec<String>, Error> {
    let cannot_read = |source| Error::Read { path: boot.into(), source };
    let entries = match std::fs::read_dir(boot) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(cannot_read)?,
    };
    let mut versions = Vec::new();
    for entry in entries {
        let name = entry.map_err(cannot_read)?.file_name();
        versions.extend(name.to_str().and_then(|name| name.strip_prefix("vmlinuz-")).map(str::to_owned));
    }
    Ok(versions)
}

fn read(path: &Path) -> Result<Option<String>, Error> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Read { path: path.into(), source }),
    }
}

/// The numbers in a version, by which it is older or newer than another.
fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

/// The paths of `wanted` modules and of those that they need, each after what it needs itself. Those built into the
/// kernel are left out; `None` where one is nowhere.
fn load_order<'a>(depends: &'a str, builtin: &str, wanted: &[&str]) -> Option<Vec<&'a str>> {
    let lines = depends.lines().filter_map(|line| line.split_once(':'));
    let needs: HashMap<_, _> = lines.map(|(path, needed)| (name(path), (path, needed))).collect();
    let mut order = Vec::new();
    for module in wanted {
        let Some((path, needed)) = needs.get(&*module.replace('-', "_")) else {
            if builtin.lines().any(|path| name(path) == *module) {
                continue;
            }
            return None;
        };
        // depmod lists all that is needed, what comes last first.
        for path in needed.split_whitespace().rev().chain([*path]) {
            if !order.contains(&path) {
                order.push(path);
            }
        }
    }
    Some(order)
}

/// The module in a file: `crc32_pclmul` of `kernel/arch/x86/crypto/crc32-pclmul.ko.xz`.
fn name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
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
    fn modules_come_after_what_they_need() {
        let depends = "\
kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/fscache.ko kernel/fs/netfs.ko
kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko
kernel/net/9p/9pnet.ko:
kernel/arch/x86/crypto/crc32-pclmul.ko:
";
        let order = load_order(
            depends,
            "kernel/fs/overlayfs/overlay.ko\n",
            &["9pnet_virtio", "overlay", "9p", "crc32_pclmul"],
        );
        let expected = [
            "kernel/net/9p/9pnet.ko",
            "kernel/net/9p/9pnet_virtio.ko.xz",
            "kernel/fs/netfs.ko",
            "kernel/fs/fscache.ko",
            "kernel/fs/9p/9p.ko",
            "kernel/arch/x86/crypto/crc32-pclmul.ko",
        ];
        assert_eq!(order.as_deref(), Some(expected.as_slice()));
        assert_eq!(load_order(depends, "", &["9p", "overlay"]), None);
    }

    #[test]
    fn the_newest_that_has_the_modules_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (boot, modules) = (dir.path().join("boot"), dir.path().join("modules"));
        assert_eq!(Kernel::find(&boot, &modules).unwrap(), None);
        let depends: String = WANTED.iter().map(|name| format!("kernel/{name}.ko:\n")).collect();
        std::fs::create_dir(&boot).unwrap();
        for (version, depends) in [
            ("6.1.0-9-amd64", Some(&*depends)),
            ("6.1.0-10-amd64", Some(&*depends)),
            ("6.1.0-11-cloud-amd64", Some("kernel/9p.ko:\n")),
            ("6.1.0-12-amd64", None),
        ] {
            std::fs::write(boot.join(format!("vmlinuz-{version}")), "").unwrap();
            let dir = modules.join(version);
            std::fs::create_dir_all(&dir).unwrap();
            if let Some(depends) = depends {
                std::fs::write(dir.join("modules.dep"), depends).unwrap();
                std::fs::write(dir.join("modules.builtin"), "").unwrap();
            }
        }
        let found = Kernel::find(&boot, &modules).unwrap().expect("one is good");
        assert_eq!(found.version, "6.1.0-10-amd64");
        assert_eq!(found.image, boot.join("vmlinuz-6.1.0-10-amd64"));
        assert_eq!(found.modules.len(), WANTED.len());
    }
}
