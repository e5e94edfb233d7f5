//! What tests are made of: clusters on loopback addresses of their own, whose parts run on threads of the test ([`Cluster::here`]) or are
//! processes of the program ([`Cluster::start`]), HTTP by hand, and servers of other makes.
//!
//! Nothing is timed. Waits end after [`PATIENCE`], which only failing tests reach. Whatever cannot be done panics, which fails the test.
//! No crate depends on this one but for its tests.
#![forbid(unsafe_code)]

pub mod auction;
pub mod caches;
pub mod certificates;
mod cluster;
pub mod documents;
pub mod etcd;
pub mod foreign;
mod here;
pub mod histories;
mod http;
pub mod kubernetes;
pub mod lasting;
pub mod machines;
pub mod memcached;
pub mod overload;
mod process;
pub mod registers;
pub mod servers;
pub mod steady_load;
pub mod words;

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

pub use cluster::{Cluster, Part};
pub use here::Here;
pub use http::{Client, Reply, get, metrics, read_head, try_get, websocket_accept};
pub use process::{Done, Running, program, run, run_lab, stop_whole};
pub use steady_load::SteadyLoad;

/// Longest that anything awaited in a test may take.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// The longest time for which records may count as fresh: no part stalls for so long.
pub const STALE_MAX: Duration = Duration::from_secs(60);

/// Waits until `condition` holds. `what` says in a failed test what never came.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a command prints once it succeeds. While a part stalls it may fail.
pub fn until_it_succeeds(mut command: impl FnMut() -> Done) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let done = command();
        if done.code == Some(0) || Instant::now() >= deadline {
            return done.succeeded();
        }
        // A process each time: more of them would take the processor from what they wait for.
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Does `work` while eight clients of the first edge ask for `length` documents of each of its sites in turn, without end. Returns how
/// many were not answered.
pub fn in_bursts(cluster: &Cluster, length: usize, work: impl FnOnce()) -> usize {
    let (over, asked, failed) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let ask = || {
        let mut client = Client::connect(cluster.edge(0));
        while !over.load(Ordering::Relaxed) {
            let number = asked.fetch_add(1, Ordering::Relaxed) / length;
            let site = &cluster.file.sites[number % cluster.file.sites.len()];
            let reply = client.ask("GET", &site.hosts[0], "/o/1/1000").unwrap();
            failed.fetch_add(usize::from(reply.status != 200), Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&over);
        (0..8).for_each(|_| _ = scope.spawn(ask));
        work();
    });
    failed.into_inner()
}

/// A flag that is set when this is dropped, even by a failed assertion: what other threads go by ends.
#[derive(Debug)]
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Prints on standard error why something could not be tested here, past what captures the output of tests.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
}

/// Lets this process, and those that it starts, have as many descriptors as the system allows; says so if that is less than `count`.
/// All tests are one process, so the limit is never lowered.
pub fn may_open(count: u64) -> bool {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock();
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Only root may go beyond the highest allowed.
    let limit = maximum.map(|most| most.max(count));
    let may = setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).is_ok();
    if !may {
        skipped(&format!("{count} descriptors: a process may have {maximum:?} (ulimit -Hn)"));
    }
    may
}

/// Whether this machine has an RDMA device. If not, that is said.
pub fn has_rdma() -> bool {
    let has = std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some());
    if !has {
        skipped("verbs: no RDMA device; cargo xtask vm has one");
    }
    has
}
