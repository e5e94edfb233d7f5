//! Control groups for the nodes of an `up`, where the kernel keeps their records or they are held to shares of the
//! machine: one for each, in which its threads are counted, and given time, apart from those of the others. They are made
//! where this process may, and removed when it ends.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};

use crate::failure::Failure;

/// The group of an `up` is called this and its process number.
const PREFIX: &str = "sidelong.";
/// What a share of a CPU is measured out by: a node that has used its own waits for less than this. The kernel takes no
/// quota below 1 ms, so the least share is a twentieth.
const PERIOD_US: u64 = 20_000;

/// The groups of one `up`.
pub(crate) struct Groups {
    top: PathBuf,
    made: RefCell<Vec<PathBuf>>,
}

impl Groups {
    /// The group that the others are made in, at the top of the tree of the cpu controller, or where this process is.
    pub(crate) fn create() -> Result<Self, Failure> {
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
            "the kernel tells nodes of one machine apart, and holds them to a `cpu_share`, by control groups, and none can \
             be made in {} ({why}): run it as root; else leave `cpu_share` out, and give each node its `cgroup` in the \
             cluster file or use rdma-async",
            root.display()
        )))
    }

    /// One more, of that name, held to so many CPUs.
    pub(crate) fn add(&self, name: &str, cpu_share: Option<f64>) -> Result<PathBuf, Failure> {
        let path = self.top.join(name);
        let failed = |error| Failure::new(format!("control group {}: {error}", path.display()));
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
            // What stays is swept by the next.
            let _ = std::fs::remove_dir(path);
        }
    }
}

/// Gives the group so much time of each period, in either version's words.
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
pub(crate) fn join(group: &Path) -> Result<(), Failure> {
    let path = group.join("cgroup.procs");
    std::fs::write(&path, "0").map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// Where the tree of the cpu controller is mounted, and this process's place in it.
fn cpu_tree() -> Result<(PathBuf, PathBuf), Failure> {
    let read =
        |path: &str| std::fs::read_to_string(path).map_err(|error| Failure::new(format!("{path}: {error}")));
    let (mounts, groups) = (read("/proc/self/mounts")?, read("/proc/self/cgroup")?);
    find_tree(&mounts, &groups).ok_or_else(|| {
        Failure::new("the kernel tells nodes of one machine apart by control groups, and none are mounted")
    })
}

/// Of version 1 where that has the controller, else of version 2.
fn find_tree(mounts: &str, groups: &str) -> Option<(PathBuf, PathBuf)> {
    let mount = |kind: &str, wanted: &dyn Fn(&str) -> bool| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (at, found, options) = (fields.next()?, fields.next()?, fields.next()?);
            (found == kind && wanted(options)).then(|| PathBuf::from(at))
        })
    };
    let own = |controller: &str| {
        groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let is_it = controllers.split(',').any(|one| one == controller);
            is_it.then(|| PathBuf::from(path.trim_start_matches('/')))
        })
    };
    let first = mount("cgroup", &|options| options.split(',').any(|option| option == "cpu"));
    match first {
        Some(root) => Some((root, own("cpu")?)),
        None => Some((mount("cgroup2", &|_| true)?, own("")?)),
    }
}

/// In version 2 a group's children have a controller if it says so; in version 1 they have it anyway.
fn give_cpu(group: &Path) -> io::Result<()> {
    let path = group.join("cgroup.subtree_control");
    match std::fs::read_to_string(&path) {
        Ok(given) if given.split_whitespace().any(|one| one == "cpu") => Ok(()),
        Ok(_) => std::fs::write(&path, "+cpu"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Removes what an `up` left that was killed. Groups that hold a process cannot be removed.
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
