//! The cost of records that the kernel keeps, to the scheduler: `cargo bench -p sidelong-load --bench kernel`, as root.
//!
//! Two threads on one CPU hand a byte back and forth. This is the most expensive case: nothing but switches and
//! wake-ups. Rounds with and without a record alternate, because the machine's speed varies. Then the kernel's own
//! count gives the run time of the programs.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use std::time::Instant;

use libbpf_rs::query::ProgInfoIter;
use rustix::thread::{CpuSet, sched_setaffinity};
use sidelong_figure::statistics;
use sidelong_load::{KernelRecord, KernelSpec, Scope};

const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
const ROUNDS: usize = 41;
const TRIPS: u32 = 30_000;

fn main() -> ExitCode {
    let spec = KernelSpec::new(Scope::Machine, 1);
    let mut pairs = Vec::new();
    for _ in 0..ROUNDS {
        let without = ping_pong();
        let record = match KernelRecord::start(&spec) {
            Ok(record) => record,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
        pairs.push((without, ping_pong()));
        drop(record);
    }
    let median = |of: fn(&(f64, f64)) -> f64| {
        statistics::median(pairs.iter().map(of).collect()).expect("there are rounds")
    };
    println!("round trip without a record: {:.0} ns (median of {ROUNDS})", median(|pair| pair.0));
    println!("round trip with one:         {:.0} ns", median(|pair| pair.1));
    println!("ratio, by turns:             {:.3} (median)", median(|pair| pair.1 / pair.0));

    let _record = KernelRecord::start(&spec).expect("it was kept just now");
    if let Err(error) = std::fs::write(STATS, "1") {
        eprintln!("{STATS}: {error}");
        return ExitCode::FAILURE;
    }
    ping_pong();
    let mut sum = 0.0;
    for program in ProgInfoIter::default().filter(|program| program.run_cnt > 0) {
        let name = program.name.to_string_lossy();
        let mean = program.run_time_ns as f64 / program.run_cnt as f64;
        println!("{name:<12} {mean:>7.1} ns a run, {} runs", program.run_cnt);
        sum += if ["on_switch", "on_wakeup"].contains(&&*name) { mean } else { 0.0 };
    }
    println!("switch and wake-up together: {sum:.1} ns");
    // Restores the setting.
    let _ = std::fs::write(STATS, "0");
    ExitCode::SUCCESS
}

/// ns for one round trip.
fn ping_pong() -> f64 {
    let pin = || {
        let mut last = CpuSet::new();
        last.set(std::thread::available_parallelism().map_or(0, |cpus| cpus.get() - 1));
        sched_setaffinity(None, &last).expect("a CPU of this machine");
    };
    let pipe = || {
        let (read, write) = rustix::pipe::pipe().expect("a pipe");
        (File::from(read), File::from(write))
    };
    let ((mut there, mut to_there), (mut back, mut to_back)) = (pipe(), pipe());
    let echo = std::thread::spawn(move || {
        pin();
        let mut byte = [0];
        while there.read_exact(&mut byte).is_ok() && to_back.write_all(&byte).is_ok() {}
    });
    let caller = std::thread::spawn(move || {
        pin();
        let mut byte = [0];
        let began = Instant::now();
        for _ in 0..TRIPS {
            to_there.write_all(&byte).expect("the other reads");
            back.read_exact(&mut byte).expect("the other writes");
        }
        began.elapsed().as_nanos() as f64 / f64::from(TRIPS)
    });
    let trip = caller.join().expect("it does not panic");
    echo.join().expect("it does not panic");
    trip
}
