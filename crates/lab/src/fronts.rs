//! F1: proxies of other makes, each controlled by Sidelong, by its own best method, and before one pool of all servers, under R10's
//! bursts and under loads that show what control costs and where it pays.
//!
//! The pool that all sites share is what a sceptic asks for. On these nodes every server can serve every site at any time, so that it
//! is the fastest by far; it has no floors and no targets.

mod load;

use std::time::Duration;

use serde_json::json;
use sidelong_config::Configuration;
use sidelong_figure::Style;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word, is_like};
use crate::report::Settings;
use crate::samples::Samples;
use crate::series::Series;
use crate::setup::{EDGES, RATIO_SLACK};
use load::{BURST, LAYOUT, NOISE, Plan, SLOWDOWN, TARGET, TIMES};

/// The cases, in full and quick.
const CASES: [&[&str]; 2] = [
    &["bursts/2/*/*", "equal,slow/1,2,4/*/own,sidelong", "overload,instant/1/*/own,sidelong"],
    &["bursts/2/*/*", "equal/1/*/own,sidelong", "slow/4/*/own,sidelong", "overload,instant/1/*/own,sidelong"],
];
/// The edge has no pool that all sites share, and among the servers of one site it has one method. HAProxy by itself has its turns once.
const NEVER: [&str; 3] =
    ["*/*/haproxy-by-choice/own,shared", "*/*/edge/shared", "equal,slow,overload,instant/*/edge/own"];
/// Turns of each site in the bursts, and the time of other runs.
const ROUNDS: [u64; 2] = [3, 1];
const LENGTHS: [Duration; 2] = [Duration::from_secs(8), Duration::from_secs(3)];
/// Proxies of other makes, and how much CPU time of a request each may have controlled, of what it has by itself: by choice, by weights,
/// and by choice in Lua.
const OTHERS: [(&str, f64); 5] =
    [("nginx", 1.05), ("httpd", 1.05), ("haproxy", 1.01), ("haproxy-by-choice", 1.3), ("envoy", 1.05)];
/// Bursts: requests/s of what is led to itself, and to Sidelong's own edge.
const GAIN_MIN: f64 = 2.2;
const SHARE_MIN: f64 = 0.97;
/// The median time from a load step to the first request on a moved node, to that of the edge.
const STEP_MAX: f64 = 1.25;
/// Servers that take no time: requests/s behind nginx.
const NGINX_MIN: f64 = 0.97;
/// One slow server behind four proxies, and equal servers behind one: requests/s and p99.
const ONE_SITE: [(&str, &str, f64, f64); 2] =
    [("slow/4", "one slow server, 4 proxies", 1.15, 0.85), ("equal/1", "equal servers, 1 proxy", 0.98, 1.05)];

pub(crate) const F1: Experiment = Experiment::new(
    "F1",
    OWN,
    "nginx, httpd, HAProxy and Envoy, controlled and by themselves",
    Design {
        repeat: [3, 1],
        dimensions: &[
            Dimension::new(
                "load",
                "load",
                &[
                    Word::plain("bursts", "bursts for three sites in turn"),
                    Word::plain("equal", "equal servers"),
                    Word::plain("slow", "one server secretly slower"),
                    Word::plain("overload", "ten times the load, with a target"),
                    Word::plain("instant", "servers that take no time"),
                ],
            ),
            Dimension::new("proxies", "proxies", &[]),
            Dimension::new(
                "proxy",
                "clients connect to",
                &[
                    Word::new("nginx", "nginx", Style::BASELINE),
                    Word::new("httpd", "httpd", Style::THIRD),
                    Word::new("haproxy", "haproxy", Style::FOURTH),
                    // The same, whose Lua asks for the server of each request.
                    Word::new("haproxy-by-choice", "haproxy by choice", Style::series(5)),
                    Word::new("envoy", "envoy", Style::FIFTH),
                    Word::new("edge", "Sidelong's edge", Style::OURS),
                ],
            ),
            Dimension::new(
                "by",
                "chosen by",
                &[
                    Word::plain("own", "itself").short("own"),
                    Word::plain("sidelong", "Sidelong").short("controlled"),
                    Word::plain("shared", "itself, one pool").short("pool"),
                ],
            ),
        ],
        cases: CASES[0],
        measures: &[
            Measure::new("requests_per_s", "requests/s", [1, 0])
                .possible(|case| 0.0..=load::requests_per_s_max(case.name)),
            // Answers within the target, of what the servers can answer.
            Measure::new("goodput", "goodput", [4, 2]).possible(|_| 0.0..=NOISE),
            Measure::new("p50_ms", "p50, ms", [3, 1]).possible(|case| 0.0..=case.most("p99_ms")),
            Measure::new("p99_ms", "p99, ms", [3, 1]),
            Measure::new("moves", "moves", [0, 0]),
            Measure::new("move_p50_ms", "a move, p50 ms", [3, 2]),
            Measure::new("step_p50_ms", "load step to first request on a moved node, p50 ms", [3, 1]),
            // Of the proxies, for each request, answered or not.
            Measure::new("cpu_us_per_request", "CPU of a request, µs", [2, 1]),
            Measure::derived("requests_per_s_of_core", "requests/s of a core", 0),
            Measure::new("front_percent", "a front, % of a CPU", [2, 1]),
            // In a pool that all sites share there are no servers of another site.
            Measure::new("misdirected", "wrong-site requests", [0, 0]),
            Measure::new("errors", "errors", [0, 0]),
        ],
        charts: &[
            Chart::bars("bursts, three sites", "requests_per_s", "by", "proxy").of("bursts/2/*/*"),
            Chart::bars("one slow server, 4 proxies", "p99_ms", "by", "proxy").of("slow/4/*/*"),
            Chart::bars("ten times the load", "goodput", "by", "proxy").of("overload/1/*/*"),
            Chart::bars("what a request costs", "cpu_us_per_request", "by", "proxy").of("instant/1/*/*"),
        ],
        settings: |_| {
            json!({
                "burst": BURST,
                "proxies": EDGES,
                "slowdown": SLOWDOWN,
                "times": TIMES,
                "target_ms": TARGET.as_millis(),
                "set_up": Settings::of(load::DEMAND).describe(),
                // Proxies that are not here, by what `up` says of each.
                "missing": [],
            })
        },
        template: include_str!("fronts.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

/// The program itself, which `up --front` names, whoever chooses for it.
fn program(proxy: &str) -> &str {
    proxy.trim_end_matches("-by-choice")
}

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (rounds, length) = (bench.either(ROUNDS), bench.either(LENGTHS));
    let all = bench.either(CASES).iter().flat_map(|cases| bench.samples.cases(cases));
    let turns = all.filter(|case| !NEVER.iter().any(|never| is_like(case, never)));
    let turns: Vec<String> = turns.map(str::to_owned).collect();
    let plans: Vec<Plan<'_>> = turns.iter().map(|case| Plan::new(case, rounds, length)).collect();
    let mut missing: Vec<(&str, String)> = Vec::new();
    bench.rounds(&plans.iter().map(Plan::time).collect::<Vec<_>>(), |bench| {
        for (case, plan) in turns.iter().zip(&plans) {
            if missing.iter().any(|(proxy, _)| [plan.proxy, program(plan.proxy)].contains(proxy)) {
                bench.skip();
                continue;
            }
            let name = bench.name(case.replace('/', "-"));
            bench.begin(&name);
            let figures = turn(bench, plan, &name, &bench.samples.label(case));
            bench.end();
            match figures {
                Err(Error::Failed { said, .. }) if said.contains("--front") => {
                    missing.push((plan.proxy, said.trim_start_matches("sidelong: ").to_owned()));
                    bench.set("missing", missing.iter().map(|(_, why)| why.as_str()).collect::<Vec<_>>());
                }
                figures => bench.sample(case, figures?)?,
            }
        }
        Ok(())
    })
}

/// Makes a run.
fn turn(bench: &Bench<'_>, plan: &Plan<'_>, name: &str, about: &str) -> Result<Vec<(&'static str, f64)>> {
    let by = if plan.proxy == program(plan.proxy) { plan.by } else { "choose" };
    let front = ["--front", program(plan.proxy), "--by", by];
    let with: &[&str] = if plan.proxy == "edge" { &[] } else { &front };
    let (file, time) = (plan.cluster_file(&bench.ground), plan.time());
    let (summary, goodput) = if plan.load == "overload" {
        let (summary, requests) = bench.up_by_request(with, name, about, &file, time)?;
        (summary, Some(load::goodput(&requests, time)))
    } else {
        (bench.up_on(with, name, about, &file, time)?, None)
    };
    let mut figures = vec![
        ("requests_per_s", summary.requests_per_s),
        ("p50_ms", summary.p50_ms),
        ("p99_ms", summary.p99_ms),
        ("moves", summary.moves as f64),
        ("cpu_us_per_request", summary.proxies_cpu_s * 1e6 / summary.requests as f64),
        ("errors", summary.errors as f64),
    ];
    figures.extend(goodput.map(|goodput| ("goodput", goodput)));
    figures.extend(summary.move_ms.map(|took| ("move_p50_ms", took.p50)));
    figures.extend(summary.step_to_first_request_ms.map(|took| ("step_p50_ms", took.p50)));
    if plan.by == "sidelong" && plan.proxy != "edge" {
        let of_a_front = summary.fronts_cpu_s / summary.seconds / f64::from(plan.proxies);
        figures.push(("front_percent", 100.0 * of_a_front));
    }
    figures.extend((plan.by != "shared").then_some(("misdirected", summary.misdirected as f64)));
    Ok(figures)
}

/// What Sidelong controls is compared with the same proxy by its own best method, and under bursts with Sidelong's own edge.
fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("requests_per_s_of_core", "*/*/*/*", |samples, case| {
        samples[case]["cpu_us_per_request"].map(|us| 1e6 / us)
    });
    let of = |load: &str, proxy: &str, by, measure| &samples[format!("{load}/{proxy}/{by}")][measure];
    let controlled = |load, proxy, measure| of(load, proxy, "sidelong", measure);
    let ratio = |ours: &Series, theirs: &Series| {
        ours.with(theirs, |ours, theirs| if ours > 0.0 && theirs > 0.0 { ours / theirs } else { f64::NAN })
    };
    let led_to_own = |load, proxy, measure| {
        ratio(controlled(load, proxy, measure), of(load, program(proxy), "own", measure))
    };
    let (bursts, mut checks) = ("bursts/2", Vec::new());
    let most = LAYOUT.ideal_rate(Configuration::Reconfigured) / LAYOUT.ideal_rate(Configuration::Rigid);
    let named = |proxy: &str| samples.dimensions[2].label_of(proxy).to_owned();
    for (proxy, _) in OTHERS {
        let name = named(proxy);
        let to_edge =
            |measure| ratio(controlled(bursts, proxy, measure), controlled(bursts, "edge", measure));
        checks.extend([
            Check::at_least(
                format!("bursts of {BURST}, requests/s: {name}, controlled / by itself"),
                GAIN_MIN,
                led_to_own(bursts, proxy, "requests_per_s"),
            )
            .possible(0.0..=RATIO_SLACK * most),
            Check::at_least(
                format!("bursts of {BURST}, requests/s: {name}, controlled / Sidelong's edge"),
                SHARE_MIN,
                to_edge("requests_per_s"),
            ),
            Check::at_most(
                format!(
                    "load step to first request on a moved node, p50: {name}, controlled / Sidelong's edge"
                ),
                STEP_MAX,
                to_edge("step_p50_ms"),
            ),
        ]);
    }
    for (proxy, most) in OTHERS {
        let what = format!("CPU time of a request: {}, controlled / by itself", named(proxy));
        checks.push(Check::at_most(what, most, led_to_own("instant/1", proxy, "cpu_us_per_request")));
    }
    checks.push(Check::at_least(
        "servers that take no time, requests/s: nginx, controlled / by itself",
        NGINX_MIN,
        led_to_own("instant/1", "nginx", "requests_per_s"),
    ));
    for (load, told, least, most) in ONE_SITE {
        for (proxy, _) in OTHERS {
            let what = |figure| format!("{told}, {figure}: {}, controlled / by itself", named(proxy));
            checks.extend([
                Check::at_least(what("requests/s"), least, led_to_own(load, proxy, "requests_per_s")),
                Check::at_most(what("p99"), most, led_to_own(load, proxy, "p99_ms")),
            ]);
        }
    }
    checks.extend([
        Check::at_most("wrong-site requests, all runs", 0.0, samples.total("*/*/*/*", "misdirected")),
        // Proxies that reject nobody cannot answer all of ten times the load.
        Check::at_most(
            "requests without an answer, all runs but those of ten times the load",
            0.0,
            samples.total("bursts,equal,slow,instant/*/*/*", "errors"),
        ),
    ]);
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    /// The verdicts of a run on a machine where control costs nothing, and pays, but for what `spoil` makes of the figures of a case:
    /// requests/s, p99, step, CPU time, misdirected and errors.
    fn verdicts(spoil: impl Fn(&str, &mut [f64; 6])) -> Vec<&'static str> {
        judged(&F1, |samples| {
            let cases: Vec<String> = samples.cases("*/*/*/*").into_iter().map(str::to_owned).collect();
            for case in cases.iter().filter(|case| !NEVER.iter().any(|never| is_like(case, never))) {
                let gain = if is_like(case, "bursts/*/*/own") { 2.25 } else { 1.2 };
                let mut figures = match case.ends_with("/sidelong") {
                    true => [1000.0, 20.0, 17.0, 30.0, 0.0, 0.0],
                    false => [1000.0 / gain, 30.0, 17.0, 30.0, 0.0, 0.0],
                };
                spoil(case, &mut figures);
                let names = [
                    "requests_per_s",
                    "p99_ms",
                    "step_p50_ms",
                    "cpu_us_per_request",
                    "misdirected",
                    "errors",
                ];
                samples.put(case, names.into_iter().zip(figures));
            }
        })
    }

    #[test]
    fn what_is_led_is_judged_beside_itself_and_beside_the_edge() {
        let missed = |spoil: fn(&str, &mut [f64; 6])| {
            verdicts(spoil).iter().filter(|verdict| **verdict == "MISSED").count()
        };
        assert_eq!(verdicts(|_, _| ()), ["met"; 5 * 3 + 5 + 1 + 2 * 5 * 2 + 2]);
        // CPU time and both sums; in bursts all three; one slow server: both.
        let spoilt = missed(|case, figures| {
            if is_like(case, "*/*/haproxy/sidelong") {
                figures[3..].copy_from_slice(&[30.6, 1.0, 1.0]);
                if is_like(case, "bursts,slow/*/*/*") {
                    figures[..3].copy_from_slice(&[900.0, 30.0, 34.0]);
                }
            }
        });
        assert_eq!(spoilt, 1 + 2 + 3 + 2);
        assert_eq!(missed(|case, figures| figures[5] = f64::from(u8::from(case.starts_with("overload")))), 0);
    }

    #[test]
    fn a_proxy_that_is_not_here_is_not_judged() {
        let verdicts = verdicts(|case, figures| {
            if is_like(case, "*/*/httpd/*") {
                figures[..4].fill(f64::NAN);
            }
        });
        let count = |what| verdicts.iter().filter(|verdict| **verdict == what).count();
        assert_eq!((count("not measured"), count("met")), (8, 43 - 8));
    }
}
