//! Shared memory between real processes, some of which are killed.
//!
//! The other process is this test binary again, which an environment variable tells to run `other_process`.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{
    Access, Batch, Directory as _, Error, Host, Initiator, Key, LinkId, OpError, Region, RegionSpec,
    RunDirectory,
};
use sidelong_layout::{HEADER_BYTES, HEADER_EPOCH, HeaderError, Instance, RegionHeader, RegionKind};

const PATIENCE: Duration = Duration::from_secs(10);
const LEN: usize = 4096;
const WORD: usize = 64;
/// Tells the other process its role, and the directory.
const ROLE: &str = "SIDELONG_TEST_ROLE";

#[test]
fn additions_of_two_processes_sum_up() {
    const ROUNDS: u64 = 20_000;
    let directory = Directory::new();
    let region = directory.expose("r", Access::Atomic, 1);
    let mut adders = [directory.spawn("add"), directory.spawn("add")];
    adders.iter_mut().for_each(|adder| adder.tell(&ROUNDS.to_string()));
    let sums: u64 = adders.iter_mut().map(|adder| adder.hear().parse::<u64>().unwrap()).sum();
    assert_eq!((sums, region.load(WORD)), (2 * ROUNDS, 2 * ROUNDS));
}

#[test]
fn a_read_only_key_maps_without_the_right_to_write() {
    let directory = Directory::new();
    let mut owner = directory.spawn("expose");
    owner.tell("read-only 1");
    assert_eq!(owner.hear(), "exposed");
    let (mut initiator, link) = directory.link("r", Access::ReadOnly);
    let mapped = maps(&directory.path().join("r.region"));
    assert_eq!(mapped.len(), 1, "{mapped:?}");
    assert!(mapped[0].contains(" r--s "), "{mapped:?}");
    let mut batch = Batch::new();
    let swap = batch.compare_and_swap(link, WORD, 0, 1);
    let read = batch.read(link, WORD, 8);
    initiator.run(&mut batch, PATIENCE);
    assert_eq!((batch.value(swap), batch.value(read)), (Err(OpError::ReadOnly), Ok(0)));
    owner.tell("store 77");
    assert_eq!(owner.hear(), "stored");
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(batch.value(read), Ok(77));

    fn maps(file: &Path) -> Vec<String> {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.ends_with(file.to_str().unwrap())).map(str::to_owned).collect()
    }
}

#[test]
fn nobody_else_may_look() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("a/run");
    let run = RunDirectory::open(&path).unwrap();
    let _claim = run.claim().unwrap();
    let host = Host::Shm(ShmHost::new(run.path()));
    let _region = host.expose(&spec("r", Access::Atomic, 1), |_| {}).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(run.path()), 0o700);
    for entry in fs::read_dir(run.path()).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
    assert_eq!(run.find("r", RegionKind::Raw, LEN, Access::Atomic).unwrap().name, "r");

    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let error = RunDirectory::open(&path).unwrap_err();
    assert!(error.to_string().contains("others may write"), "{error}");
}

#[test]
fn a_second_owner_is_refused_until_the_first_is_dead() {
    let directory = Directory::new();
    let mut owner = directory.spawn("expose");
    owner.tell("atomic 1");
    assert_eq!(owner.hear(), "exposed");
    let (mut initiator, link) = directory.link("r", Access::Atomic);
    let mut batch = Batch::new();
    let add = batch.fetch_and_add(link, WORD, 5);
    initiator.run(&mut batch, PATIENCE);
    let taken = directory.try_expose("r", Access::Atomic, 2).unwrap_err();
    assert!(matches!(taken, Error::Taken { .. }), "{taken}");

    owner.kill();
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(batch.value(add), Ok(5), "the links of a dead process's peers hold");
    let region = directory.try_expose("r", Access::Atomic, 2).unwrap();
    assert_eq!(region.load(WORD), 10, "its words are as they were");
    initiator.run(&mut batch, PATIENCE);
    assert_eq!((batch.value(add), region.load(WORD)), (Ok(10), 15), "and still the same");
    assert_eq!(header(&region).incarnation, 2);
}

#[test]
fn a_file_of_another_layout_is_replaced() {
    let directory = Directory::new();
    let old = directory.expose("r", Access::Atomic, 1);
    let (mut initiator, link) = directory.link("r", Access::Atomic);
    drop(old);
    let path = directory.path().join("r.region");
    let mut version = fs::read(&path).unwrap();
    version[8] += 1;
    let older = |bytes: &[u8]| {
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
    };
    for foreign in [&version[..], &version[..32], &[0; 64], b"", &fs::read(&path).unwrap()[..64]] {
        older(foreign);
        let key = directory.key("r", Access::Atomic);
        assert!(matches!(Initiator::new().connect(&key, PATIENCE), Err(Error::Header { .. })));
        let region = directory.expose("r", Access::Atomic, 3);
        assert_eq!((region.load(WORD), header(&region).incarnation), (0, 3), "it is a new one");
    }
    // Mappings of the first region stay valid.
    let mut batch = Batch::new();
    let add = batch.fetch_and_add(link, WORD, 1);
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(batch.value(add), Ok(0));
}

#[test]
fn a_common_region_is_everybodys() {
    let directory = Directory::new();
    let host = ShmHost::new(directory.path());
    let board = spec("board", Access::Atomic, 1);
    let first = host.expose_common(&board, |words| words[WORD / 8] = 9).unwrap();
    let second = host.expose_common(&board, |_| panic!("it is there already")).unwrap();
    let (mut initiator, link) = directory.link("board", Access::Atomic);
    let mut batch = Batch::new();
    batch.fetch_and_add(link, WORD, 1);
    initiator.run(&mut batch, PATIENCE);
    assert_eq!([first.load(WORD), second.load(WORD)], [10, 10]);
    let owned = Host::Shm(host.clone()).expose(&board, |_| {}).unwrap_err();
    assert!(matches!(owned, Error::Taken { .. }), "{owned}");

    // A process with another layout does not take the region from its users.
    let longer = RegionSpec { len: 2 * LEN, ..board.clone() };
    let refused = host.expose_common(&longer, |_| {}).unwrap_err();
    assert!(matches!(refused, Error::Header { source: HeaderError::Length { .. }, .. }), "{refused}");
    drop((first, second));
    let third = host.expose_common(&board, |_| panic!("it outlives its processes")).unwrap();
    assert_eq!(third.load(WORD), 10);
    drop(third);
    assert_eq!(
        host.expose_common(&longer, |_| {}).unwrap().load(WORD),
        0,
        "but is theirs once they have gone"
    );
}

/// Memory that is in no file, in a directory whose path exceeds the length of a socket's address.
#[test]
fn who_hands_out_memory_need_not_run_for_those_who_have_it() {
    let directory = Directory::below(&"x".repeat(120));
    let mut owner = directory.spawn("map");
    assert_eq!(owner.hear(), "exposed");
    let (mut initiator, link) = directory.link("r", Access::ReadOnly);
    let mapped = fs::read_to_string("/proc/self/maps").unwrap();
    let mapped: Vec<_> = mapped.lines().filter(|line| line.contains("memfd:theirs")).collect();
    assert!(mapped.len() == 1 && mapped[0].contains(" r--s "), "{mapped:?}");
    let mut batch = Batch::new();
    let read = batch.read(link, WORD, 8);
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(batch.value(read), Ok(77));

    owner.signal(Signal::STOP);
    let stopped = waitpid(Some(Pid::from_child(&owner.child)), WaitOptions::UNTRACED).unwrap();
    assert!(stopped.is_some_and(|(_, status)| status.stopped()), "all of its threads");
    initiator.run(&mut batch, PATIENCE);
    assert_eq!(batch.value(read), Ok(77));
    let key = directory.key("r", Access::ReadOnly);
    let late = Initiator::new().connect(&key, Duration::from_millis(50)).unwrap_err();
    assert!(late.to_string().contains("does not answer"), "{late}");
    let taken = directory.try_expose("r", Access::ReadOnly, 2).unwrap_err();
    assert!(matches!(taken, Error::Taken { .. }), "{taken}");
    owner.signal(Signal::CONT);
    Initiator::new().connect(&key, PATIENCE).unwrap();

    // Its successor may hold the memory in a file, or the other way round.
    owner.kill();
    let gone = Initiator::new().connect(&key, PATIENCE).unwrap_err();
    assert!(matches!(gone, Error::Open { .. }), "{gone}");
    let region = directory.expose("r", Access::ReadOnly, 2);
    assert_eq!(header(&region).incarnation, 2);
    let (mut second, link) = directory.link("r", Access::ReadOnly);
    second.run(&mut batch, PATIENCE);
    drop(region);
    let mut owner = directory.spawn("map");
    assert_eq!(owner.hear(), "exposed");
    let mut batch = Batch::new();
    let old = batch.read(link, WORD, 8);
    second.run(&mut batch, PATIENCE);
    assert_eq!(batch.value(old), Ok(0), "who has the file mapped keeps it");
    let (mut third, link) = directory.link("r", Access::ReadOnly);
    let mut batch = Batch::new();
    let new = batch.read(link, WORD, 8);
    third.run(&mut batch, PATIENCE);
    assert_eq!(batch.value(new), Ok(77));
}

/// Any process of the user's can cut a file short. The kernel then answers those who have it mapped with SIGBUS.
#[test]
fn a_region_that_is_cut_short_is_gone_for_its_peers_until_its_owner_exposes_it_anew() {
    const PAGES: usize = 3;
    let name = "r";
    let spec = RegionSpec { len: PAGES * LEN, ..spec(name, Access::Atomic, 1) };
    // To nothing, to less than a header, to a page that is partly left, and to whole pages.
    for left in [0, 32, 100, LEN as u64] {
        let directory = Directory::new();
        let host = Host::Shm(ShmHost::new(directory.path()));
        let region = host.expose(&spec, |words| words[WORD / 8..].fill(7)).unwrap();
        let run = RunDirectory::at(directory.path());
        let key = run.find(name, RegionKind::Raw, spec.len, Access::Atomic).unwrap();
        let mut initiator = Initiator::new();
        let links = [(); 2].map(|()| initiator.connect(&key, PATIENCE).unwrap());
        let mut batch = Batch::new();
        let last = spec.len - 8;
        let first = batch.read(links[0], WORD, 8);
        let swap = batch.compare_and_swap(links[0], last, 7, 8);
        let add = batch.fetch_and_add(links[1], last, 1);
        let write = batch.write(links[1], last, &[9]);
        initiator.run(&mut batch, PATIENCE);
        assert_eq!([first, swap, add].map(|op| batch.value(op)), [Ok(7), Ok(7), Ok(8)], "{left}");
        assert!(!region.is_lost());

        File::options().write(true).open(directory.path().join("r.region")).unwrap().set_len(left).unwrap();
        assert!(region.is_lost(), "{left}");
        assert_eq!(region.load(last), 0, "its owner reads zeros: {left}");
        initiator.run(&mut batch, PATIENCE);
        for op in [swap, add, write] {
            assert_eq!(batch.words(op), Err(OpError::PeerGone), "{left}");
        }
        let refused = Initiator::new().connect(&key, PATIENCE).unwrap_err();
        assert!(matches!(refused, Error::Header { .. }), "{left}: {refused}");

        drop(region);
        let region = host
            .expose(&RegionSpec { instance: Instance::alone(2), ..spec.clone() }, |words| words[WORD / 8] = 5)
            .unwrap();
        assert!(!region.is_lost());
        let link = initiator.connect(&key, PATIENCE).unwrap();
        let mut batch = Batch::new();
        let (old, new) = (batch.read(links[0], WORD, 8), batch.read(link, WORD, 8));
        initiator.run(&mut batch, PATIENCE);
        let values = [old, new].map(|op| batch.value(op));
        assert_eq!(
            values,
            [Err(OpError::PeerGone), Ok(5)],
            "nobody goes on with a page that was left: {left}"
        );
    }
}

#[test]
fn a_common_region_that_is_cut_short_is_made_anew_by_whoever_comes_first() {
    for left in [0, 100] {
        let directory = Directory::new();
        let host = ShmHost::new(directory.path());
        let board = spec("board", Access::Atomic, 1);
        let held: Vec<_> = (0..4).map(|_| host.expose_common(&board, |_| {}).unwrap()).collect();
        File::options()
            .write(true)
            .open(directory.path().join("board.region"))
            .unwrap()
            .set_len(left)
            .unwrap();
        assert!(held.iter().all(Region::is_lost));
        let anew = std::thread::scope(|scope| {
            let expose = |region| {
                drop(region);
                host.expose_common(&board, |words| words[WORD / 8] = 9).unwrap()
            };
            let threads: Vec<_> =
                held.into_iter().map(|region| scope.spawn(move || expose(region))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let (mut initiator, link) = directory.link("board", Access::Atomic);
        let mut batch = Batch::new();
        batch.fetch_and_add(link, WORD, 1);
        initiator.run(&mut batch, PATIENCE);
        assert!(anew.iter().all(|region| !region.is_lost() && region.load(WORD) == 10), "all have the same");
    }
}

#[test]
fn many_processes_make_one_common_region() {
    for _ in 0..20 {
        let directory = Directory::new();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let host = ShmHost::new(directory.path());
                    let board = spec("board", Access::Atomic, 1);
                    let region = host.expose_common(&board, |words| words[WORD / 8] = 9).unwrap();
                    assert_eq!(region.load(WORD) % 100, 9);
                    let (mut initiator, link) = directory.link("board", Access::Atomic);
                    let mut batch = Batch::new();
                    batch.fetch_and_add(link, WORD, 100);
                    initiator.run(&mut batch, PATIENCE);
                });
            }
        });
        let region = ShmHost::new(directory.path()).expose_common(&spec("board", Access::Atomic, 1), |_| {});
        assert_eq!(region.unwrap().load(WORD), 809);
    }
}

#[test]
fn a_claim_lasts_as_long_as_its_process() {
    let directory = Directory::new();
    let run = RunDirectory::open(directory.path()).unwrap();
    let mut holder = directory.spawn("claim");
    assert_eq!(holder.hear(), "claimed");
    let error = run.claim().unwrap_err();
    let Error::InUse { pid, .. } = &error else { panic!("{error}") };
    assert_eq!(pid, &holder.child.id().to_string());
    fs::write(run.path().join("ours.txt"), "keep").unwrap();
    assert!(run.path().join("r.region").exists());

    holder.kill();
    let _claim = run.claim().unwrap();
    let left: Vec<_> = fs::read_dir(run.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.contains(&"lock".into()) && left.contains(&"ours.txt".into()));
    assert!(matches!(run.claim(), Err(Error::InUse { .. })), "held by this process");
    let nobody = run.find("r", RegionKind::Raw, LEN, Access::Atomic).unwrap_err();
    assert!(matches!(nobody, Error::NoKey { .. }), "{nobody}");
}

#[test]
fn what_cannot_be_made_is_an_error_with_a_hint() {
    let nowhere = Host::Shm(ShmHost::new("/nonexistent/run"));
    let error = nowhere.expose(&spec("r", Access::Atomic, 1), |_| {}).unwrap_err();
    assert!(matches!(error, Error::Create { .. }), "{error}");
    let parent = tempfile::tempdir().unwrap();
    fs::write(parent.path().join("file"), "").unwrap();
    let error = RunDirectory::open(parent.path().join("file/run")).unwrap_err();
    assert!(matches!(error, Error::Directory { .. }), "{error}");
}

/// On a tmpfs of 64 KiB, which needs a user and a mount namespace.
#[test]
fn a_full_tmpfs_is_an_error_that_names_it() {
    let directory = Directory::new();
    let mount = "mount -t tmpfs -o size=64k,mode=0700 tmpfs \"$0\" && exec \"$@\"";
    let probe =
        Command::new("unshare").args(["-rm", "sh", "-c", mount]).arg(directory.path()).arg("true").output();
    match probe {
        Ok(output) if output.status.success() => {}
        Ok(output) => return skipped(String::from_utf8_lossy(&output.stderr).trim()),
        Err(error) => return skipped(&format!("unshare: {error}")),
    }
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", mount]).arg(directory.path()).arg(std::env::current_exe().unwrap());
    let mut other = Other::spawn(command, "fill", directory.path());
    let error = other.hear();
    assert!(error.contains("cannot create region") && error.contains("/dev/shm full"), "{error}");
    assert!(other.hear().starts_with("left: 0"), "nothing of it is left behind");

    fn skipped(reason: &str) {
        // Written past the harness, which shows a test's output only if it fails.
        let name = "a_full_tmpfs_is_an_error_that_names_it";
        writeln!(std::io::stderr(), "SKIPPED: {name}: no mount namespace is available: {reason}").unwrap();
    }
}

/// Not a test: what the other process does.
#[test]
fn other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, path) = role.split_once(' ').unwrap();
    let directory = Path::new(path);
    let say = |what: &dyn std::fmt::Display| {
        println!("\n> {what}");
        std::io::stdout().flush().unwrap();
    };
    let told = || {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
        line.trim().to_owned()
    };
    let host = Host::Shm(ShmHost::new(directory));
    match role {
        "add" => {
            let key = RunDirectory::open(directory).unwrap().find("r", RegionKind::Raw, LEN, Access::Atomic);
            let mut initiator = Initiator::new();
            let link = initiator.connect(&key.unwrap(), PATIENCE).unwrap();
            let rounds: u64 = told().parse().unwrap();
            let mut batch = Batch::new();
            let add = batch.fetch_and_add(link, WORD, 1);
            let mut done = 0;
            for _ in 0..rounds {
                initiator.run(&mut batch, PATIENCE);
                done += u64::from(batch.value(add).is_ok());
            }
            say(&done);
        }
        "expose" => {
            let told_first = told();
            let (access, incarnation) = told_first.split_once(' ').unwrap();
            let access = if access == "atomic" { Access::Atomic } else { Access::ReadOnly };
            let region = host.expose(&spec("r", access, incarnation.parse().unwrap()), |_| {}).unwrap();
            say(&"exposed");
            while let Some(value) = told().strip_prefix("store ") {
                region.store(WORD, value.parse().unwrap(), Ordering::Release);
                say(&"stored");
            }
        }
        "map" => {
            let file = File::from(memfd_create("theirs", MemfdFlags::CLOEXEC).unwrap());
            file.set_len(LEN as u64).unwrap();
            file.write_all_at(&77u64.to_ne_bytes(), WORD as u64).unwrap();
            let _region = host.expose_mapped(&spec("r", Access::ReadOnly, 1), &file).unwrap();
            say(&"exposed");
            told();
        }
        "claim" => {
            let _claim = RunDirectory::open(directory).unwrap().claim().unwrap();
            let _region = host.expose(&spec("r", Access::Atomic, 1), |_| {}).unwrap();
            fs::write(directory.join(".r.0123.new"), "half").unwrap();
            fs::write(directory.join("t.tcpkey"), "tcp 127.0.0.1:1 00").unwrap();
            say(&"claimed");
            told();
        }
        "fill" => {
            let too_long = RegionSpec { len: 1 << 20, ..spec("r", Access::Atomic, 1) };
            say(&host.expose(&too_long, |_| {}).unwrap_err());
            say(&format!("left: {}", fs::read_dir(directory).unwrap().count()));
        }
        role => panic!("no such role: {role}"),
    }
}

#[test]
fn a_region_whose_file_is_removed_or_replaced_is_lost() {
    let directory = Directory::new();
    let file = directory.path().join("r.region");
    for replace in [false, true] {
        let owner = directory.expose("r", Access::ReadOnly, 7);
        let (mut initiator, old) = directory.link("r", Access::ReadOnly);
        assert!(initiator.is_current(old) && !owner.is_lost());
        if replace {
            let copy = directory.path().join("copy");
            fs::copy(&file, &copy).unwrap();
            fs::rename(&copy, &file).unwrap();
        } else {
            fs::remove_file(&file).unwrap();
        }
        assert!(!initiator.is_current(old) && owner.is_lost(), "no peer would find it");
        let next = directory.expose("r", Access::ReadOnly, 8);
        let new = initiator.connect(&directory.key("r", Access::ReadOnly), PATIENCE).unwrap();
        assert!(initiator.is_current(new) && !initiator.is_current(old) && !next.is_lost());
    }
}

#[test]
fn a_region_whose_socket_is_removed_or_replaced_is_lost() {
    let directory = Directory::new();
    let host = Host::Shm(ShmHost::new(directory.path()));
    let socket = directory.path().join("r.socket");
    for replace in [false, true] {
        let memory = File::from(memfd_create("ours", MemfdFlags::CLOEXEC).unwrap());
        memory.set_len(LEN as u64).unwrap();
        let owner = host.expose_mapped(&spec("r", Access::ReadOnly, 1), &memory).unwrap();
        assert!(!owner.is_lost());
        if replace {
            fs::rename(directory.path().join("r.region"), &socket).unwrap();
        } else {
            fs::remove_file(&socket).unwrap();
        }
        assert!(owner.is_lost());
        drop(owner);
        let next = host.expose_mapped(&spec("r", Access::ReadOnly, 2), &memory).unwrap();
        directory.link("r", Access::ReadOnly);
        assert!(!next.is_lost());
    }
}

#[test]
fn a_region_whose_header_is_overwritten_is_lost() {
    let directory = Directory::new();
    let host = ShmHost::new(directory.path());
    let expose = || host.expose_common(&spec("board", Access::Atomic, 1), |_| {});
    // The epoch is the owner's to change.
    for word in (0..HEADER_BYTES / 8).filter(|word| 8 * word != HEADER_EPOCH) {
        let [first, second] = [expose(), expose()].map(Result::unwrap);
        let file = File::options().write(true).open(directory.path().join("board.region")).unwrap();
        file.write_all_at(&[0xff; 8], 8 * word as u64).unwrap();
        assert!(first.is_lost() && second.is_lost(), "word {word}");
        drop(first);
        drop(second);
        assert!(!expose().unwrap().is_lost(), "word {word}");
    }
}

/// A run directory that is removed with the test.
struct Directory {
    _held: tempfile::TempDir,
    path: PathBuf,
}

impl Directory {
    fn new() -> Directory {
        Directory::below("")
    }

    /// In a directory of that name.
    fn below(name: &str) -> Directory {
        let held = tempfile::tempdir().unwrap();
        let path = held.path().join(name);
        RunDirectory::open(&path).unwrap();
        Directory { _held: held, path }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn expose(&self, name: &str, access: Access, incarnation: u64) -> Region {
        self.try_expose(name, access, incarnation).unwrap()
    }

    fn try_expose(&self, name: &str, access: Access, incarnation: u64) -> Result<Region, Error> {
        let host = Host::Shm(ShmHost::new(self.path()));
        host.expose(&spec(name, access, incarnation), |_| {})
    }

    fn key(&self, name: &str, access: Access) -> Key {
        RunDirectory::open(self.path()).unwrap().find(name, RegionKind::Raw, LEN, access).unwrap()
    }

    fn link(&self, name: &str, access: Access) -> (Initiator, LinkId) {
        let mut initiator = Initiator::new();
        let link = initiator.connect(&self.key(name, access), PATIENCE).unwrap();
        (initiator, link)
    }

    fn spawn(&self, role: &str) -> Other {
        Other::spawn(Command::new(std::env::current_exe().unwrap()), role, self.path())
    }
}

/// The other process.
struct Other {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Other {
    fn spawn(mut command: Command, role: &str, directory: &Path) -> Other {
        let mut child = command
            .args(["--exact", "shm::other_process", "--nocapture"])
            .env(ROLE, format!("{role} {}", directory.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Other { child, stdin, stdout }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// Its next message; the test harness in it prints lines too.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the other process has ended");
            if let Some(said) = line.strip_prefix("> ") {
                return said.trim().to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap(); // SIGKILL
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spec(name: &str, access: Access, incarnation: u64) -> RegionSpec<'_> {
    RegionSpec { name, kind: RegionKind::Raw, len: LEN, access, instance: Instance::alone(incarnation) }
}

fn header(region: &Region) -> RegionHeader {
    let words = std::array::from_fn(|word| region.load(word * 8));
    RegionHeader::checked(&words, 0, RegionKind::Raw, LEN).unwrap()
}
