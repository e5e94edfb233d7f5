//! edge-overhead: what a request costs the edge, beside nginx and HAProxy as Debian has them.
//!
//! Each proxy is on one CPU, and has one thread for requests. The load and the one server behind them, a built-in node that takes
//! no time, are on the other CPUs. The proxies take turns, because the machine's speed drifts, and what is not in its turn is
//! stopped (SIGSTOP), so that it takes no CPU time from the others. The ratios within a round are judged. The load need not be
//! faster than a proxy: what counts is the proxy's CPU time for a request.

mod case;
mod certificate;
mod idle;
mod proxies;
mod stage;

use std::time::Duration;

use serde_json::json;
use sidelong_figure::Style;
use sidelong_os::raise_open_files;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::cpus;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::samples::Samples;
use crate::series::sum;
use crate::turn::MEASURES;
use case::{CASES, Case};
use stage::Stage;

/// The duration of a turn of each proxy in each case, in full and quick.
const TIMES: [Duration; 2] = [Duration::from_millis(1500), Duration::from_millis(500)];
/// Warm-up of each proxy in each case before the first round.
const WARM_UP: Duration = Duration::from_millis(200);
/// Rate of the open loop in the warm-up, in requests/s.
const WARM_UP_RATE: f64 = 1000.0;
/// About the time in which the memory of a proxy's idle connections is measured.
const IDLE_TIME: Duration = Duration::from_secs(4);
/// Greatest ratio of the figure. One that is greater is drawn here: one slow turn would flatten all others.
const RATIO_MAX: f64 = 4.0;
/// The most that the edge may take, of what nginx takes.
const TO_NGINX: [(&str, f64); 11] = [
    ("kb", 0.95),
    ("kb16", 1.0),
    ("mb", 1.0),
    ("access-log", 1.0),
    ("many", 1.0),
    ("new", 1.0),
    ("tls", 1.0),
    ("tls-new", 1.1),
    ("http2", 1.0),
    ("half-p50", 1.0),
    ("half-p99", 1.0),
];
/// Memory of an idle connection, in KB of 1,000 bytes.
const IDLE_KB: [(&str, f64); 2] = [("idle", 8.0), ("idle-tls", 24.0)];
/// The most that a rejection may take, of what a request takes that is served. The client of one that is served came with a new
/// connection, too.
const REJECTED: [(&str, &str, f64); 2] =
    [("rejected-request", "kb", 0.25), ("rejected-connection", "new", 0.15)];

/// The figures of a turn, and of idle connections.
const FIGURES: &[Measure] = &[
    MEASURES[0],
    MEASURES[1],
    MEASURES[2],
    MEASURES[3],
    MEASURES[4],
    MEASURES[5],
    Measure::new("idle_kb", "memory of one, KB", [3, 2]),
    // Of a case's own figure: CPU time, a response time, or memory.
    Measure::derived("to_nginx", "ratio to nginx's", 3),
    Measure::derived("drawn", "times nginx's", 3),
];

pub(crate) const EDGE_OVERHEAD: Experiment = Experiment::new(
    "edge-overhead",
    OWN,
    "what a request costs the edge, beside nginx and HAProxy",
    Design {
        repeat: [15, 5],
        dimensions: &[
            Dimension::new(
                "case",
                "case",
                &[
                    Word::plain("idle", "idle connections").short("plain"),
                    Word::plain("idle-tls", "idle connections, TLS").short("TLS"),
                    Word::plain("kb", "1 KB, 32 kept connections").short("1K"),
                    Word::plain("kb16", "16 KB").short("16K"),
                    Word::plain("mb", "1 MB").short("1M"),
                    Word::plain("access-log", "1 KB with an access log").short("log"),
                    Word::plain("many", "1 KB, 1,024 kept connections").short("1024"),
                    Word::plain("new", "1 KB, a new connection for each request").short("new"),
                    Word::plain("tls", "1 KB, TLS 1.3").short("TLS"),
                    Word::plain("tls-new", "1 KB, TLS 1.3, a handshake for each request").short("new"),
                    Word::plain("http2", "1 KB, HTTP/2 over TLS").short("h2"),
                    Word::plain("half", "1 KB, open loop at half of capacity"),
                    Word::plain("half-p50", "1 KB, open loop at half of capacity: p50").short("p50"),
                    Word::plain("half-p99", "1 KB, open loop at half of capacity: p99").short("p99"),
                    Word::plain("rejected-request", "requests rejected at the gate"),
                    Word::plain("rejected-connection", "connections rejected at accept"),
                ],
            ),
            Dimension::new(
                "proxy",
                "proxy",
                &[
                    Word::new("edge", "edge", Style::OURS),
                    Word::new("nginx", "nginx", Style::BASELINE),
                    Word::new("haproxy", "HAProxy", Style::THIRD),
                ],
            ),
        ],
        cases: &["*/*"],
        measures: FIGURES,
        charts: &[
            Chart::bars("(a) CPU time of a request", "drawn", "case", "proxy")
                .of("kb,kb16,mb,access-log,many,new/*")
                .target(target, "target of the edge"),
            Chart::bars("(b) CPU time over TLS; response times", "drawn", "case", "proxy")
                .of("tls,tls-new,http2,half-p50,half-p99/*")
                .target(target, "target of the edge"),
            Chart::bars("(c) memory of an idle connection", "idle_kb", "case", "proxy")
                .of("idle,idle-tls/*")
                .target(target, "target of the edge"),
        ],
        settings: |quick| {
            json!({
                "turn_s": TIMES[usize::from(quick)].as_secs_f64(),
                "connections": case::CONNECTIONS,
                "in_flight_max": case::IN_FLIGHT_MAX,
                "idle_connections": stage::IDLE[usize::from(quick)],
                "ratio_max": RATIO_MAX,
                "proxy_cpu": null,
                "load_cpus": null,
            })
        },
        template: include_str!("overhead.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

/// What the bar of a case is to stay below.
fn target(case: &str) -> Option<f64> {
    let (word, _) = case.split_once('/')?;
    TO_NGINX.iter().chain(&IDLE_KB).find(|(of, _)| *of == word).map(|(_, most)| *most)
}

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (proxy_cpu, load_cpus) = cpus::one_and_others()?;
    bench.set("proxy_cpu", proxy_cpu);
    bench.set("load_cpus", load_cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", "));
    // Other proxies take this process's limit for theirs. The idle connections and those of the load need more than 1,024.
    if let Err(error) = raise_open_files(None) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
    let (time, planned) = (bench.either(TIMES), CASES.iter().map(Case::turns).sum::<u32>());
    bench.expect_for(planned * WARM_UP + 6 * IDLE_TIME);
    bench.begin("warm-up");
    let stage = Stage::set(bench)?;
    // Memory first, of processes that have served nothing. It is measured once, and belongs to each round.
    let mut idle = Vec::new();
    for case in &CASES {
        for proxy in case.proxies() {
            let found = stage.measure(case, proxy, WARM_UP_RATE, WARM_UP)?;
            idle.extend(case.is_idle().then(|| (format!("{}/{proxy}", case.word), found)));
        }
    }
    bench.end();
    // The warm-up is not judged, and memory does not depend on other work.
    bench.take_spoilt();
    bench.rounds(&[planned * time], |bench| {
        idle.iter().try_for_each(|(case, found)| bench.sample(case, found.clone()))?;
        bench.begin(&format!("round-{}", bench.repetition));
        for case in CASES.iter().filter(|case| !case.is_idle()) {
            bench.in_turn(case.proxies(), |bench, proxy| {
                let rate =
                    |proxy: &str| bench.samples[format!("kb/{proxy}")]["requests_per_s"].0.last().copied();
                let half = rate("edge").flatten().zip(rate("nginx").flatten());
                let half = half.map_or(WARM_UP_RATE, |(edge, nginx)| edge.min(nginx) / 2.0);
                let found = stage.measure(case, proxy, half, case.lengths() * time)?;
                bench.sample(&format!("{}/{proxy}", case.word), found)
            })?;
        }
        bench.end();
        Ok(())
    })
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("to_nginx", "*/*", |samples, case| {
        let (word, proxy) = case.split_once('/').unwrap_or((case, ""));
        let (word, measure) = match word {
            "half-p50" => ("half", "p50_ms"),
            "half-p99" => ("half", "p99_ms"),
            "idle" | "idle-tls" => (word, "idle_kb"),
            _ => (word, "cpu_us_per_request"),
        };
        let of = |proxy: &str| &samples[format!("{word}/{proxy}")][measure];
        of(proxy) / of("nginx")
    });
    samples
        .derive("drawn", "*/*", |samples, case| samples[case]["to_nginx"].map(|ratio| ratio.min(RATIO_MAX)));
    let title = |word: &str| samples.dimensions[0].label_of(word).to_owned();
    let of_edge = |word: &str, measure| &samples[format!("{word}/edge")][measure];
    let mut checks = Vec::new();
    for (word, most) in TO_NGINX {
        let what = if word.starts_with("half") { "" } else { ": CPU a request" };
        let what = format!("{}{what}, edge / nginx", title(word));
        checks.push(Check::at_most(what, most, of_edge(word, "to_nginx")));
    }
    for (word, most) in IDLE_KB {
        let what = format!("{}: memory of one, KB", title(word));
        checks.push(Check::at_most(what, most, of_edge(word, "idle_kb")));
    }
    for (word, served, most) in REJECTED {
        let what = format!("{}: CPU, to that of one served ({})", title(word), title(served));
        let [ours, served] = [word, served].map(|word| of_edge(word, "cpu_us_per_request"));
        checks.push(Check::at_most(what, most, ours / served));
    }
    checks.push(Check::at_most(
        "requests that did not end as they should, all turns of a round",
        0.0,
        samples.over("*/*", "errors", sum),
    ));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    /// The targets that are met by a round in which nginx takes 20 µs for each request, and 10 KB for an idle connection.
    fn met(edge_us: f64, rejection_us: f64, errors: f64) -> Vec<usize> {
        let verdicts = judged(&EDGE_OVERHEAD, |samples| {
            for case in &CASES {
                for proxy in case.proxies() {
                    let us = match *proxy {
                        _ if case.word.starts_with("rejected") => rejection_us,
                        "edge" => edge_us,
                        _ => 20.0,
                    };
                    let name = format!("{}/{proxy}", case.word);
                    match case.is_idle() {
                        true => samples.put(&name, [("idle_kb", 10.0)]),
                        false => samples.put(
                            &name,
                            [
                                ("cpu_us_per_request", us),
                                ("p50_ms", us / 10.0),
                                ("p99_ms", us / 5.0),
                                ("errors", errors),
                            ],
                        ),
                    }
                }
            }
        });
        (0..verdicts.len()).filter(|at| verdicts[*at] == "met").collect()
    }

    #[test]
    fn each_target_is_judged_within_the_round() {
        // 10 KB are too much without TLS.
        assert_eq!(met(18.0, 2.0, 0.0), [&(0..11).collect::<Vec<_>>()[..], &[12, 13, 14, 15]].concat());
        // 21 / 20 is met by handshakes alone, and the rejections cost a third.
        assert_eq!(met(21.0, 7.0, 1.0), [7, 12]);
        assert_eq!(judged(&EDGE_OVERHEAD, |_| ()), ["not measured"; 16]);
    }
}
