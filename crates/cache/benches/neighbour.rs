//! What reading another cache's item costs, beside asking memcached for one over loopback: a client's `get` is carried out by a
//! cache that reads the home's memory, from the command's bytes to the answer's, without a socket.
//!
//! Each way has a few items, which stay in the CPU's caches, and a gigabyte of them, which come from DRAM. memcached has a CPU of its own.

#[allow(dead_code, reason = "shared with the tests")]
#[path = "../tests/it/support/caches.rs"]
mod caches;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use caches::Caches;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Memory of a cache, and of memcached.
const MEMORY_BYTES: usize = 2 << 30;
/// Bytes of all values that come from DRAM: more than caches of CPUs hold.
const DRAM_BYTES: usize = 1 << 30;
/// Items that stay in a CPU's caches.
const HOT: usize = 8;
const SIZES: [usize; 2] = [1024, 16 * 1024];
/// How long memcached may take to listen.
const START_MAX: Duration = Duration::from_secs(10);

/// Commands, in an order in which no item follows its neighbour in memory.
struct Commands {
    all: Vec<String>,
    next: usize,
}

impl Commands {
    fn new(keys: &[String]) -> Self {
        Commands { all: keys.iter().map(|key| format!("get {key}\r\n")).collect(), next: 0 }
    }

    fn next(&mut self) -> &[u8] {
        // A step that is prime to their number visits all of them.
        self.next = (self.next + 7_919) % self.all.len();
        self.all[self.next].as_bytes()
    }
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    let mut command = format!("set {key} 0 0 {} noreply\r\n", value.len()).into_bytes();
    command.extend_from_slice(value);
    command.extend_from_slice(b"\r\n");
    command
}

/// memcached with one thread, and a connection to it.
struct Memcached {
    process: Child,
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Memcached {
    /// `None` if it is not installed.
    fn start() -> Option<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let mut command = Command::new("memcached");
        let memory = (MEMORY_BYTES >> 20).to_string();
        command.args([
            "-u",
            "root",
            "-t",
            "1",
            "-U",
            "0",
            "-l",
            "127.0.0.1",
            "-m",
            &memory,
            "-p",
            &port.to_string(),
        ]);
        let process = command.spawn().ok()?;
        let deadline = Instant::now() + START_MAX;
        let stream = loop {
            match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < deadline, "memcached: {error}"),
            }
        };
        stream.set_nodelay(true).unwrap();
        Some(Memcached { process, stream, answer: vec![0; 64 << 10] })
    }

    /// Bytes of the answer.
    fn ask(&mut self, command: &[u8]) -> usize {
        self.stream.write_all(command).unwrap();
        let mut read = 0;
        while !self.answer[..read].ends_with(b"END\r\n") {
            let more = self.stream.read(&mut self.answer[read..]).unwrap();
            assert!(more > 0, "memcached has ended");
            read += more;
        }
        read
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Holds this thread, and what it starts, to one of the CPUs `all`.
fn hold(all: &CpuSet, which: usize) {
    let cpus: Vec<_> = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).collect();
    let mut one = CpuSet::new();
    one.set(cpus[which % cpus.len()]);
    sched_setaffinity(None, &one).unwrap();
}

fn bench(criterion: &mut Criterion) {
    let cpus = sched_getaffinity(None).unwrap();
    for bytes in SIZES {
        let value = vec![b'x'; bytes];
        hold(&cpus, 0);
        let mut memcached = Memcached::start();
        hold(&cpus, 1);
        if memcached.is_none() {
            eprintln!("SKIPPED: memcached: it is not installed");
        }
        let caches = Caches::new(MEMORY_BYTES);
        let (mut home, mut reader) = (caches.member(0), caches.member(1));
        let keys = reader.keys(DRAM_BYTES / bytes);
        for key in &keys {
            home.ask(&set(key, &value), &mut Vec::new());
            if let Some(memcached) = &mut memcached {
                memcached.stream.write_all(&set(key, &value)).unwrap();
            }
        }
        reader.tick();
        let (mut answer, expected) =
            (Vec::with_capacity(bytes + 100), bytes + "VALUE key 0 \r\n\r\nEND\r\n".len());
        for (temperature, keys) in [("hot", &keys[..HOT]), ("dram", &keys[..])] {
            let mut group = criterion.benchmark_group(format!("neighbour/{temperature}"));
            group.throughput(Throughput::Elements(1));
            let mut commands = Commands::new(keys);
            group.bench_function(BenchmarkId::new("memory", bytes), |bencher| {
                bencher.iter(|| {
                    answer.clear();
                    reader.ask(commands.next(), &mut answer);
                    assert!(answer.len() > expected, "{answer:?}");
                });
            });
            let Some(memcached) = &mut memcached else { continue };
            group.bench_function(BenchmarkId::new("memcached", bytes), |bencher| {
                bencher.iter(|| assert!(memcached.ask(commands.next()) > expected));
            });
        }
    }
    sched_setaffinity(None, &cpus).unwrap();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    targets = bench
}
criterion_main!(benches);
