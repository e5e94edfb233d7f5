//! `sidelong perf`: how long one-sided operations take between two processes of this machine.
//!
//! Each figure is the mean over a run of batches short enough for its clock readings not to count, and the percentiles
//! are over many such runs. The target is a process of its own, which rewrites its hot records each millisecond, as a
//! node does.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use sidelong_fabric::{
    Access, Batch, Directory as _, Host, Initiator, LinkId, OpId, RegionSpec, RunDirectory, shm::ShmHost,
    tcp::TcpHost,
};
use sidelong_layout::{HEADER_BYTES, Hot, LINE_BYTES, RegionKind};

use crate::cli::{PerfArgs, PerfFabric, PerfOperation};
use crate::failure::Failure;

/// Clock readings cost tens of nanoseconds: a measured run takes at least this long.
const RUN_MIN: Duration = Duration::from_micros(20);
/// Measured runs, and in a short measurement.
const RUNS: (usize, usize) = (20_000, 2_000);
/// How long the whole may take, and a short one.
const TIME_MAX: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(1));
const TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize)]
struct Figures {
    operation: String,
    fabric: String,
    /// Operations in one batch, each on a region of its own.
    peers: u32,
    bytes: u32,
    /// Of one batch, in ns.
    p50_ns: f64,
    p99_ns: f64,
    p999_ns: f64,
    max_ns: f64,
    /// Batches in each measured run, over which its time is averaged.
    batches_per_run: u32,
    runs: usize,
}

pub(crate) fn run(args: &PerfArgs) -> Result<(), Failure> {
    match &args.serve {
        Some(directory) => serve(args, directory),
        None => measure(args),
    }
}

/// The target: offers its regions, says so, and rewrites the records until the other side hangs up.
fn serve(args: &PerfArgs, directory: &std::path::Path) -> Result<(), Failure> {
    let run = RunDirectory::open(directory)?;
    let host = match args.fabric {
        PerfFabric::Shm => Host::Shm(ShmHost::new(directory)),
        PerfFabric::Tcp => Host::Tcp(TcpHost::listen(([127, 0, 0, 1], 0).into())?),
    };
    let access = access(args);
    let mut regions = Vec::new();
    for peer in 0..args.peers {
        let name = region(peer);
        let len = region_bytes(args);
        let spec = RegionSpec { name: &name, kind: RegionKind::Raw, len, access, incarnation: 1 };
        let offered = host.offer(&spec, |_| ())?;
        run.publish(offered.key())?;
        regions.push(offered);
    }
    println!("ready");
    std::io::stdout().flush()?;
    std::thread::spawn(|| {
        // The other side holds the other end; when it is gone, so are we.
        let mut line = String::new();
        let _ = std::io::stdin().read_line(&mut line);
        std::process::exit(0);
    });
    for sequence in (2u32..).step_by(2) {
        std::thread::sleep(Duration::from_millis(1));
        if access == Access::ReadOnly {
            let record = Hot { sequence, generation: 1, ..Hot::default() }.sealed();
            for region in &regions {
                for (index, word) in record.words().into_iter().enumerate() {
                    region.store(HEADER_BYTES + index * 8, word, Ordering::Release);
                }
            }
        }
    }
    Ok(())
}

fn measure(args: &PerfArgs) -> Result<(), Failure> {
    let directory = sidelong_config::default_run_dir(&format!("perf-{}", std::process::id()));
    let run = RunDirectory::open(&directory)?;
    let measured = measure_in(args, &run);
    // It was made here and holds nothing else.
    let _ = std::fs::remove_dir_all(&directory);
    let figures = measured?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&figures)?);
    } else {
        let Figures { operation, fabric, peers, bytes, .. } = &figures;
        println!("{operation} of {bytes} bytes over {fabric}, {peers} in one batch, from another process");
        println!("{:>10} {:>10} {:>10} {:>10}", "p50 ns", "p99 ns", "p99.9 ns", "max ns");
        println!(
            "{:>10.1} {:>10.1} {:>10.1} {:>10.1}",
            figures.p50_ns, figures.p99_ns, figures.p999_ns, figures.max_ns
        );
    }
    Ok(())
}

fn measure_in(args: &PerfArgs, run: &RunDirectory) -> Result<Figures, Failure> {
    let mut target = Target::start(args, run)?;
    let mut initiator = Initiator::new();
    let mut links = Vec::new();
    for peer in 0..args.peers {
        let key = run.find(&region(peer), RegionKind::Raw, region_bytes(args), access(args))?;
        links.push(initiator.connect(&key, TIMEOUT)?);
    }
    let mut batch = Batch::new();
    let mut expected = vec![0u64; links.len()];
    let mut operations = Vec::with_capacity(links.len());
    let mut once = || -> Result<(), Failure> {
        batch.clear();
        operations.clear();
        operations
            .extend(links.iter().zip(&expected).map(|(link, word)| add(args, &mut batch, *link, *word)));
        initiator.run(&mut batch, TIMEOUT);
        for (operation, expected) in operations.iter().zip(&mut expected) {
            let value = batch.value(*operation)?;
            if args.operation == PerfOperation::Cas {
                *expected = if value == *expected { value + 1 } else { value };
            }
        }
        Ok(())
    };

    let batches_per_run = batches_for(RUN_MIN, &mut once)?;
    let (runs, time_max) = if args.quick { (RUNS.1, TIME_MAX.1) } else { (RUNS.0, TIME_MAX.0) };
    let mut figures = Vec::with_capacity(runs);
    let began = Instant::now();
    while figures.len() < runs && began.elapsed() < time_max {
        let start = Instant::now();
        for _ in 0..batches_per_run {
            once()?;
        }
        figures.push(start.elapsed().as_nanos() as f64 / f64::from(batches_per_run));
    }
    target.end();
    figures.sort_by(f64::total_cmp);
    let at = |quantile: f64| figures[((figures.len() - 1) as f64 * quantile).round() as usize];
    Ok(Figures {
        operation: format!("{:?}", args.operation).to_lowercase(),
        fabric: format!("{:?}", args.fabric).to_lowercase(),
        peers: args.peers,
        bytes: if args.operation == PerfOperation::Read { args.bytes } else { 8 },
        p50_ns: at(0.5),
        p99_ns: at(0.99),
        p999_ns: at(0.999),
        max_ns: at(1.0),
        batches_per_run,
        runs: figures.len(),
    })
}

fn add(args: &PerfArgs, batch: &mut Batch, link: LinkId, expected: u64) -> OpId {
    let offset = HEADER_BYTES;
    match args.operation {
        PerfOperation::Read => batch.read(link, offset, args.bytes as usize),
        PerfOperation::Write => batch.write(link, offset, &[expected]),
        PerfOperation::Cas => batch.compare_and_swap(link, offset, expected, expected + 1),
        PerfOperation::Faa => batch.fetch_and_add(link, offset, 1),
    }
}

/// How many batches take `time`.
fn batches_for(time: Duration, once: &mut impl FnMut() -> Result<(), Failure>) -> Result<u32, Failure> {
    let mut batches = 1u32;
    loop {
        let start = Instant::now();
        for _ in 0..batches {
            once()?;
        }
        if start.elapsed() >= time || batches >= 1 << 20 {
            return Ok(batches);
        }
        batches *= 2;
    }
}

fn region(peer: u32) -> String {
    format!("perf{peer}")
}

fn region_bytes(args: &PerfArgs) -> usize {
    HEADER_BYTES + (args.bytes as usize).next_multiple_of(LINE_BYTES)
}

fn access(args: &PerfArgs) -> Access {
    if args.operation == PerfOperation::Read { Access::ReadOnly } else { Access::Atomic }
}

/// The other process.
struct Target(std::process::Child);

impl Target {
    fn start(args: &PerfArgs, run: &RunDirectory) -> Result<Self, Failure> {
        let operation = format!("{:?}", args.operation).to_lowercase();
        let fabric = format!("{:?}", args.fabric).to_lowercase();
        let mut child = Command::new(std::env::current_exe()?)
            .args(["perf", &operation, "--fabric", &fabric])
            .args(["--peers", &args.peers.to_string(), "--bytes", &args.bytes.to_string()])
            .arg("--serve")
            .arg(run.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        if line.trim() != "ready" {
            let _ = child.wait();
            return Err(Failure::new("the target's side did not start; its reason stands above"));
        }
        Ok(Target(child))
    }

    /// Hanging up is what it ends by.
    fn end(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.end();
    }
}
