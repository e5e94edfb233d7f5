//! What other users of the machine can do to a cluster: nothing. These tests are root's, who alone can be two other users.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::geteuid;
use sidelong_config::Service;
use tempfile::TempDir;

use crate::support::{Cluster, Done, Running, eventually, skipped, try_get};

/// A user who is nobody else's.
struct User {
    id: u32,
    /// A copy of the program: where it was built root alone may go.
    program: PathBuf,
    _directory: TempDir,
}

impl User {
    /// `None`, having said why, where this process cannot be another user.
    fn new(test: &str) -> Option<User> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        if !geteuid().is_root() {
            skipped(&format!("{test}: only root can be two other users"));
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let program = directory.path().join("sidelong");
        // By another process: a file that this one writes could be held by a child of another test, and not be run.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_sidelong")).arg(&program).status();
        assert!(copied.unwrap().success());
        let id = 0x4000_0000 + std::process::id() * 16 + NEXT.fetch_add(1, Ordering::Relaxed);
        Some(User { id, program, _directory: directory })
    }

    fn run(&self, arguments: &[&str]) -> Running {
        let mut command = Command::new(&self.program);
        command.args(arguments).env_remove("XDG_RUNTIME_DIR").current_dir("/");
        Running::start_command(self.is(command))
    }

    fn shell(&self, script: &str) {
        let mut command = Command::new("sh");
        command.args(["-ec", script]).current_dir("/");
        let done = self.is(command).output().unwrap();
        assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn is(&self, mut command: Command) -> Command {
        command.uid(self.id).gid(self.id);
        command
    }

    fn owns(&self, path: &Path, mode: u32) {
        chown(path, Some(self.id), Some(self.id)).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn default_run_dirs(&self) -> PathBuf {
        PathBuf::from(format!("/dev/shm/sidelong-{}", self.id))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let directory = self.default_run_dirs();
        let _ = fs::remove_file(&directory);
        let _ = fs::remove_dir_all(&directory);
    }
}

/// A cluster of one node, whose files others may read.
fn cluster() -> Cluster {
    let cluster = Cluster::new(&[("alpha", 1)]);
    fs::set_permissions(cluster.path("."), Permissions::from_mode(0o755)).unwrap();
    cluster
}

#[test]
fn a_default_run_directory_that_another_user_has_made_is_refused() {
    let test = "a_default_run_directory_that_another_user_has_made_is_refused";
    let (Some(user), Some(other)) = (User::new(test), User::new(test)) else { return };
    let mut cluster = cluster();
    cluster.file.cluster.run_dir = None;
    let config = cluster.config();
    // A directory of the user's, with files that a sweep would remove and `up` would write.
    let mine = cluster.path("test");
    fs::create_dir(&mine).unwrap();
    let files = ["n1.load.region", "notes.socket", "cluster.toml", "n1.log"].map(|name| mine.join(name));
    for file in &files {
        fs::write(file, "mine").unwrap();
        user.owns(file, 0o600);
    }
    user.owns(&mine, 0o700);

    let (default, target) = (user.default_run_dirs(), mine.display());
    let parent = cluster.path(".").canonicalize().unwrap();
    let at = default.display();
    for (attack, reason) in [
        (format!("mkdir {at} && ln -s {target} {at}/test"), "belongs to another user"),
        (format!("mkdir -m 777 {at} && mkdir -m 777 {at}/test"), "belongs to another user"),
        (format!("ln -s {} {at}", parent.display()), "is a symbolic link"),
    ] {
        other.shell(&attack);
        let command = user.run(&["up", "--json", "--for", "1s", "--config", config.to_str().unwrap()]);
        let line = command.finish().refused();
        assert!(line.contains(&format!("{at} {reason}")), "{attack}: {line}");
        for file in &files {
            assert_eq!(fs::read_to_string(file).unwrap(), "mine", "{attack}: {}", file.display());
        }
        other.shell(&format!("rm -r {at}"));
    }
    // And one of the user's own that another may have put a file into.
    user.shell(&format!("mkdir {at} && mkdir -m 777 {at}/test"));
    let done: Done =
        user.run(&["up", "--json", "--for", "1s", "--config", config.to_str().unwrap()]).finish();
    assert!(done.refused().contains("others may write in it"));
}

#[test]
fn a_part_that_is_restarted_reads_no_other_users_cluster_file() {
    let test = "a_part_that_is_restarted_reads_no_other_users_cluster_file";
    let (Some(user), Some(other)) = (User::new(test), User::new(test)) else { return };
    let mut cluster = cluster();
    let (parent, private, elsewhere) = (cluster.path("parent"), cluster.path("private"), cluster.path("own"));
    for (directory, mode) in [(&parent, 0o755), (&private, 0o700), (&elsewhere, 0o700)] {
        fs::create_dir(directory).unwrap();
        user.owns(directory, mode);
    }
    fs::write(private.join("secret"), "private").unwrap();
    user.owns(&private.join("secret"), 0o600);
    let run_dir = parent.join("run");
    cluster.file.cluster.run_dir = Some(run_dir.clone());
    let config = cluster.config();
    let mut up = user.run(&["up", "--json", "--config", config.to_str().unwrap()]);
    cluster.await_serving(&mut up);
    eventually("it says that it is up", || up.err().contains(" is up: "));
    let node = cluster.node(0);

    // The other user puts a directory of their own in its place, with a cluster file that serves the user's files.
    cluster.file.cluster.run_dir = Some(elsewhere);
    cluster.file.nodes[0].root = Some(private);
    cluster.file.nodes[0].service = Some(Service::None);
    cluster.file.nodes[0].service_time = None;
    let theirs = cluster.path("theirs.toml");
    fs::write(&theirs, cluster.file.to_toml().unwrap()).unwrap();
    other.owns(&parent, 0o755);
    let (run, theirs) = (run_dir.display(), theirs.display());
    other.shell(&format!(
        "mv {run} {run}.old; mkdir {run}; cp {theirs} {run}/cluster.toml; touch {run}/n1.log; chmod 666 {run}/n1.log"
    ));
    let part = std::fs::read_dir("/proc").unwrap().flatten().find_map(|process| {
        let line = fs::read_to_string(process.path().join("cmdline")).ok()?;
        let is_node = line.contains("\0node\0") && line.contains(run_dir.to_str().unwrap());
        is_node.then(|| process.file_name().into_string().unwrap())
    });
    assert!(Command::new("kill").args(["-9", &part.unwrap()]).status().unwrap().success());
    eventually("its restart is refused, or another's file is served", || {
        let served = try_get(node, "any", "/secret").is_ok_and(|reply| reply.status == 200);
        assert!(!served, "the part that was restarted has read the other user's file");
        assert!(up.is_running(), "ended: {}{}", up.out(), up.err());
        up.err().contains(&format!("{} belongs to another user", parent.display()))
    });

    // A part that is started at this moment reads its file through the same door.
    let parent_is = format!("--with-parent={}", std::process::id());
    let file = run_dir.join("cluster.toml");
    let line = user.run(&["node", "n1", "--config", file.to_str().unwrap(), &parent_is]).finish().refused();
    assert!(line.contains(&format!("{} belongs to another user", parent.display())), "{line}");
    drop(up);
}
