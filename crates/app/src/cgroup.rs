//! Control groups for the nodes of an `up` whose records the kernel keeps, or that are limited to a share of the machine. Each
//! node has a group, in which its threads are accounted and limited apart from others. The groups are created where this
//! process may do so, and removed when it ends.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};

use crate::failure::Failure;

/// Prefix of the name of an `up`'s group; its process ID follows.
const PREFIX: &str = "sidelong.";
/// The period in which a share of a CPU is granted: a node that has used its share waits for the next one. The kernel accepts
/// no quota below 1 ms, so the smallest share is a twentieth.
const PERIOD_US: u64 = 20_000;
/// Levels of slices above a unit, and the unit: `user.slice/user-1000.slice/user@1000.service/app.slice/app.service` has 5.
const UNIT_DEPTH_MAX: usize = 8;

/// The groups of one `up`.
pub struct Groups {
    top: PathBuf,
    made: RefCell<Vec<PathBuf>>,
}

impl Groups {
    /// Creates the parent group, at the top of the cpu controller's tree, or else in the group of this process.
    pub fn create() -> Result<Self, Failure> {
        let (root, own) = cpu_tree()?;
        let name = format!("{PREFIX}{}", std::process::id());
        let mut tried = Err(io::ErrorKind::NotFound.into());
        for parent in [root.clone(), root.join(own)] {
            sweep(&parent);
            let top = parent.join(&name);
            tried = std::fs::create_dir(&top).and_then(|()| {
                let given = give_cpu(&parent).and_then(|()| give_cpu(&top));
                given.inspect_err(|_| drop(std::fs::remove_dir(&top)))
            });
            if tried.is_ok() {
                return Ok(Groups { top, made: RefCell::default() });
            }
        }
        let why = tried.err().map_or_else(String::new, |error: io::Error| error.to_string());
        Err(Failure::new(format!(
            "cannot create a control group in {} ({why}): nodes on one machine need one each for `cpu_share` and for records \
             that the kernel keeps; run as root, or remove `cpu_share` and use rdma-async or a `cgroup` for each node",
            root.display()
        )))
    }

    /// Creates a group of that name, limited to `cpu_share` CPUs.
    pub fn add(&self, name: &str, cpu_share: Option<f64>) -> Result<PathBuf, Failure> {
        let path = self.top.join(name);
        let failed = |error| Failure::new(format!("cannot create control group {}: {error}", path.display()));
        std::fs::create_dir(&path).map_err(failed)?;
        self.made.borrow_mut().push(path.clone());
        if let Some(cpus) = cpu_share {
            hold(&path, cpus).map_err(failed)?;
        }
        Ok(path)
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        for path in self.made.get_mut().iter().chain([&self.top]) {
            // The next `up` removes what is left.
            let _ = std::fs::remove_dir(path);
        }
    }
}

/// Limits the group to `cpus` CPUs, in the format of either cgroup version.
fn hold(group: &Path, cpus: f64) -> io::Result<()> {
    let (period_us, quota_us) = (PERIOD_US, (PERIOD_US as f64 * cpus).round() as u64);
    let first = group.join("cpu.cfs_quota_us");
    if !first.exists() {
        return std::fs::write(group.join("cpu.max"), format!("{quota_us} {period_us}"));
    }
    std::fs::write(group.join("cpu.cfs_period_us"), period_us.to_string())?;
    std::fs::write(first, quota_us.to_string())
}

/// Moves this process into the group.
pub fn join(group: &Path) -> Result<(), Failure> {
    let path = group.join("cgroup.procs");
    std::fs::write(&path, "0").map_err(|error| {
        Failure::new(format!("cannot join the control group at {}: {error}", path.display()))
    })
}

/// The mount point of the cpu controller's tree, and this process's group in it.
fn cpu_tree() -> Result<(PathBuf, PathBuf), Failure> {
    tree_of("self")?.ok_or_else(|| {
        Failure::new("nodes on one machine need control groups, and no cgroup file system is mounted")
    })
}

/// The mount point of the cpu controller's tree, and the group in it of the process that has this name in /proc.
fn tree_of(process: &str) -> Result<Option<(PathBuf, PathBuf)>, Failure> {
    let (mounts, groups) = (read("/proc/self/mounts")?, read(&format!("/proc/{process}/cgroup"))?);
    Ok(find_tree(&mounts, &groups))
}

fn read(path: &str) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::new(format!("cannot read {path}: {error}")))
}

/// The control group of a process, below the cpu controller's mount point; `None` if it is in the root group.
///
/// # Errors
/// If the kernel does not say.
pub fn of_process(pid: u32) -> Result<Option<PathBuf>, Failure> {
    let tree = tree_of(&pid.to_string())?;
    Ok(tree.filter(|(_, own)| !own.as_os_str().is_empty()).map(|(root, own)| root.join(own)))
}

/// The control group of a systemd unit: the directory of its name in the cpu controller's tree, else in the tree of version
/// 2. `None` if it has none, because it is not started or does not exist.
pub(crate) fn of_unit(unit: &str) -> Result<Option<PathBuf>, Failure> {
    let mounts = read("/proc/self/mounts")?;
    let cpu = mount(&mounts, "cgroup", &|options| options.split(',').any(|option| option == "cpu"));
    let second = mount(&mounts, "cgroup2", &|_| true);
    Ok(cpu.into_iter().chain(second).find_map(|root| below(&root, unit, UNIT_DEPTH_MAX)))
}

/// The first directory of that name below `top`, in at most `depth` levels.
fn below(top: &Path, name: &str, depth: usize) -> Option<PathBuf> {
    let entries = std::fs::read_dir(top).ok()?.flatten();
    let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let groups: Vec<_> = groups.map(|entry| entry.path()).collect();
    let here = groups.iter().find(|path| path.file_name().is_some_and(|found| found == name));
    let deeper = || groups.iter().find_map(|group| below(group, name, depth - 1));
    here.cloned().or_else(|| if depth > 1 { deeper() } else { None })
}

/// Prefers version 1 if it has the controller.
fn find_tree(mounts: &str, groups: &str) -> Option<(PathBuf, PathBuf)> {
    let own = |controller: &str| {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let is_it = controllers.split(',').any(|one| one == controller);
            is_it.then(|| PathBuf::from(path.trim_start_matches('/')))
        })
    };
    let first = mount(mounts, "cgroup", &|options| options.split(',').any(|option| option == "cpu"));
    match first {
        Some(root) => Some((root, own("cpu")?)),
        None => Some((mount(mounts, "cgroup2", &|_| true)?, own("")?)),
    }
}

/// The first mount point of that kind of file system.
pub(crate) fn mount_of(kind: &str) -> Result<Option<PathBuf>, Failure> {
    Ok(mount(&read("/proc/self/mounts")?, kind, &|_| true))
}

/// The first mount point of that kind with such options.
fn mount(mounts: &str, kind: &str, wanted: &dyn Fn(&str) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (at, found, options) = (fields.next()?, fields.next()?, fields.next()?);
        (found == kind && wanted(options)).then(|| PathBuf::from(at))
    })
}

/// Enables the cpu controller for the group's children, as version 2 requires; in version 1 it is always enabled.
fn give_cpu(group: &Path) -> io::Result<()> {
    let path = group.join("cgroup.subtree_control");
    match std::fs::read_to_string(&path) {
        Ok(given) if given.split_whitespace().any(|one| one == "cpu") => Ok(()),
        Ok(_) => std::fs::write(&path, "+cpu"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes the groups of an `up` that was killed. A group that holds a process cannot be removed.
fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse().ok()).and_then(Pid::from_raw);
        if pid.is_none_or(|pid| test_kill_process(pid).is_ok()) {
            continue;
        }
        for group in std::fs::read_dir(entry.path()).into_iter().flatten().flatten() {
            let _ = std::fs::remove_dir(group.path());
        }
        let _ = std::fs::remove_dir(entry.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_found_where_it_is_and_not_beyond_the_last_level() {
        let top = tempfile::tempdir().unwrap();
        let unit = top.path().join("user.slice/user-1.slice/app.service");
        std::fs::create_dir_all(unit.join("child")).unwrap();
        std::fs::write(top.path().join("app.socket"), "no group").unwrap();
        assert_eq!(below(top.path(), "app.service", 3), Some(unit));
        assert_eq!(below(top.path(), "app.service", 2), None);
        assert_eq!(below(top.path(), "app.socket", 3), None);
    }

    #[test]
    fn the_cpu_controllers_tree_is_found_in_either_version() {
        let hybrid = "cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw,relatime,cpu 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0\n";
        let groups = "4:cpuset:/\n2:cpu,cpuacct:/jobs/7\n0::/\n";
        let found = find_tree(hybrid, groups);
        assert_eq!(found, Some(("/sys/fs/cgroup/cpu".into(), "jobs/7".into())));
        let unified = "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        let found = find_tree(unified, "0::/user.slice\n");
        assert_eq!(found, Some(("/sys/fs/cgroup".into(), "user.slice".into())));
        assert_eq!(find_tree("proc /proc proc rw 0 0\n", "0::/\n"), None);
    }
}
