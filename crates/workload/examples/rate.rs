//! Requests that the generator makes per second of its own CPU time.
//!
//! `cargo run --release -p sidelong-workload --example rate -- [connections] [seconds] [body bytes] [open-loop req/s]`
//!
//! It loads an origin in the same process whose requests take no time. The divisor is the CPU time of the generator's
//! threads alone (and then of the origin's), so the figures do not depend on the number of cores.

use std::error::Error;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use sidelong_workload::client::{Arrivals, ClientConfig, Cue, Generator, Load, Shot};
use sidelong_workload::origin::{OriginConfig, OriginGauges, serve};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u32>());
    let mut argument = |default| arguments.next().unwrap_or(Ok(default));
    let (connections, seconds, body_bytes, per_s) =
        (argument(32)?, argument(5)?, argument(1024)?, argument(0)?);

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("origin")
        .enable_all()
        .build()?;
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))?;
    let edge = listener.local_addr()?;
    let body = Some(vec![b'x'; body_bytes as usize].into());
    let config = OriginConfig { name: Some("n1".into()), body, ..OriginConfig::default() };
    runtime.spawn(serve(listener, config, Arc::new(OriginGauges::default()), pending()));

    let load = match per_s {
        0 => Load::Closed { connections_per_edge: connections, think: Duration::ZERO },
        _ => Load::Open {
            arrivals: Arrivals::Poisson { per_s: per_s.into(), seed: 1 },
            in_flight_max: connections,
        },
    };
    let mut config = ClientConfig::new(vec![edge], vec!["a".into(), "b".into()], load);
    config.duration_max = Some(Duration::from_secs(seconds.into()));
    let hosts = ["a.test", "b.test"].map(http::HeaderValue::from_static);
    let source = move |cue: Cue| {
        let site = (cue.index / 512 % 2) as usize;
        Shot::get(site, hosts[site].clone(), http::Uri::from_static("/o/1/1024"))
    };
    let mut run = Generator::new(config, source)?.start()?;
    let mut last = (0, 0.0, 0.0);
    while !run.is_finished() {
        std::thread::sleep(Duration::from_millis(250));
        let live = run.live().total;
        println!(
            "{:>9} requests {:>8.0} /s   p50 {:.3} ms   p99 {:.3} ms   errors {}",
            live.requests, live.requests_per_s, live.p50_ms, live.p99_ms, live.errors
        );
        if !run.is_finished() {
            last = (live.requests, cpu_s("load-")?, cpu_s("origin")?);
        }
    }
    let summary = run.wait()?;
    println!("{summary:#?}");
    let (requests, generator_s, origin_s) = last;
    println!("{:.0} requests for each CPU second of the generator", requests as f64 / generator_s);
    println!("{:.0} requests for each CPU second of the origin", requests as f64 / origin_s);
    Ok(())
}

/// CPU time used by the threads whose names begin with `name`, in s.
fn cpu_s(name: &str) -> Result<f64, Box<dyn Error>> {
    let mut ns = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        // A thread that has ended meanwhile is not counted.
        let read = |file| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        if read("comm").starts_with(name) {
            ns += read("schedstat").split(' ').next().unwrap_or("0").parse::<u64>().unwrap_or(0);
        }
    }
    Ok(ns as f64 / 1e9)
}
