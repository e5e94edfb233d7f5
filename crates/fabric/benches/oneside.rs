//! What one-sided operations cost beyond the memory access itself: `cargo bench -p sidelong-fabric`.
//!
//! The records belong to another process, which publishes each of them anew every millisecond. The floor is the same
//! number of loads, and a compare-and-swap, on words of the benchmark's own stack. Targets: a read 100 ns, 8 in one
//! batch 1 us, 1,000 in one batch 150 us, a compare-and-swap 100 ns.

use std::hint::black_box;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use criterion::Criterion;
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::tcp::TcpHost;
use sidelong_fabric::{
    Access, Batch, Directory as _, Host, Initiator, LinkId, OpId, Region, RegionSpec, RunDirectory,
};
use sidelong_layout::{
    HOT_BYTES, Hot, Instance, LOAD_BYTES, LOAD_HOT, RegionKind, WORDS_BYTES, WORDS_OWNERSHIP,
};

const NODES: usize = 1000;
const TIMEOUT: Duration = Duration::from_secs(5);
/// Tells this program that it is the other process, and in which directory it works.
const OWNER: &str = "SIDELONG_BENCH_OWNER";

fn main() {
    match std::env::var_os(OWNER) {
        Some(directory) => own(Path::new(&directory)),
        None => measure(),
    }
}

// The other process: the nodes.

fn own(directory: &Path) {
    let shm = Host::Shm(ShmHost::new(directory.join("shm")));
    let records: Vec<Region> = (0..NODES).map(|node| expose(&shm, &format!("load-{node}"), load())).collect();
    let _words = expose(&shm, "words", words());

    let tcp = Host::Tcp(TcpHost::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap());
    let by_tcp = RunDirectory::open(directory.join("tcp")).unwrap();
    let others: Vec<Region> = (0..8).map(|node| expose(&tcp, &format!("load-{node}"), load())).collect();
    let other_words = expose(&tcp, "words", words());
    others.iter().chain([&other_words]).for_each(|region| by_tcp.publish(region.key()).unwrap());
    println!("ready");

    // The thread ends with the benchmark, when its pipe closes.
    thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let mut sequence = 0;
    loop {
        sequence += 2;
        for record in &records {
            publish(record, sequence);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn publish(region: &Region, sequence: u32) {
    let words = Hot { sequence, served: sequence.into(), ..Hot::default() }.sealed().words();
    region.store(LOAD_HOT, (sequence - 1).into(), Ordering::Relaxed);
    for (index, word) in words.iter().enumerate().skip(1) {
        region.store(LOAD_HOT + index * 8, *word, Ordering::Release);
    }
    region.store(LOAD_HOT, words[0], Ordering::Release);
}

fn expose(host: &Host, name: &str, (kind, len, access): (RegionKind, usize, Access)) -> Region {
    host.expose(&RegionSpec { name, kind, len, access, instance: Instance::alone(1) }, |_| {}).unwrap()
}

fn load() -> (RegionKind, usize, Access) {
    (RegionKind::Load, LOAD_BYTES, Access::ReadOnly)
}

fn words() -> (RegionKind, usize, Access) {
    (RegionKind::Words, WORDS_BYTES, Access::Atomic)
}

// This process: an edge.

fn measure() {
    let nodes = Nodes::start();
    let mut criterion = Criterion::default().configure_from_args();
    floor(&mut criterion);
    for backend in ["shm", "tcp"] {
        one_sided(&mut criterion, &nodes, backend);
    }
    criterion.final_summary();
}

struct Nodes {
    directory: PathBuf,
    _held: tempfile::TempDir,
    owner: Child,
}

impl Nodes {
    fn start() -> Nodes {
        let held = tempfile::tempdir_in("/dev/shm").unwrap();
        let directory = held.path().to_owned();
        RunDirectory::open(directory.join("shm")).unwrap();
        let mut owner = Command::new(std::env::current_exe().unwrap())
            .env(OWNER, &directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(owner.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready.trim(), "ready");
        Nodes { directory, _held: held, owner }
    }

    fn link(
        &self,
        initiator: &mut Initiator,
        backend: &str,
        name: &str,
        (kind, len, access): (RegionKind, usize, Access),
    ) -> LinkId {
        let directory = RunDirectory::open(self.directory.join(backend)).unwrap();
        let key = directory.find(name, kind, len, access).unwrap();
        initiator.connect(&key, TIMEOUT).unwrap()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = self.owner.kill();
        let _ = self.owner.wait();
    }
}

fn floor(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("floor");
    let record = [const { AtomicU64::new(0) }; HOT_BYTES / 8];
    group.bench_function("64 bytes of atomic loads", |bencher| {
        bencher.iter(|| black_box(&record).each_ref().map(|word| word.load(Ordering::SeqCst)));
    });
    let mut expected = 0;
    group.bench_function("compare-and-swap", |bencher| {
        bencher.iter(|| {
            let word = black_box(&record[0]);
            let swap = word.compare_exchange(expected, expected + 1, Ordering::SeqCst, Ordering::SeqCst);
            expected = swap.map_or_else(|found| found, |before| before + 1);
        });
    });
    group.finish();
}

fn one_sided(criterion: &mut Criterion, nodes: &Nodes, backend: &str) {
    let mut group = criterion.benchmark_group(backend);
    let mut initiator = Initiator::new();
    let mut batch = Batch::new();
    let counts: &[usize] = if backend == "shm" { &[1, 8, NODES] } else { &[1, 8] };
    for count in counts {
        let links: Vec<LinkId> = (0..*count)
            .map(|node| nodes.link(&mut initiator, backend, &format!("load-{node}"), load()))
            .collect();
        group.bench_function(format!("read of {count}"), |bencher| {
            bencher.iter(|| {
                let last = add_reads(&mut batch, &links);
                initiator.run(&mut batch, TIMEOUT);
                black_box(batch.words(last).unwrap()[0])
            });
        });
        // As a scan does, which reads the same nodes again and again.
        group.bench_function(format!("read of {count}, the batch kept"), |bencher| {
            let last = add_reads(&mut batch, &links);
            bencher.iter(|| {
                initiator.run(&mut batch, TIMEOUT);
                black_box(batch.words(last).unwrap()[0])
            });
        });
    }
    let link = nodes.link(&mut initiator, backend, "words", words());
    let mut expected = 0;
    group.bench_function("compare-and-swap", |bencher| {
        bencher.iter(|| {
            batch.clear();
            let swap = batch.compare_and_swap(link, WORDS_OWNERSHIP, expected, expected + 1);
            initiator.run(&mut batch, TIMEOUT);
            let before = batch.value(swap).unwrap();
            expected = if before == expected { expected + 1 } else { before };
        });
    });
    group.finish();
}

fn add_reads(batch: &mut Batch, links: &[LinkId]) -> OpId {
    batch.clear();
    let reads = links.iter().map(|link| batch.read(*link, LOAD_HOT, HOT_BYTES));
    reads.last().unwrap()
}
