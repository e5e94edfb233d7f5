//! S1: R10's runs on this machine beside the same runs simulated.
//!
//! The time that a request takes apart from queue and service is measured first, with so few clients that no request waits.
//! The simulator is given that time and nothing else from the live runs.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use sidelong_config::Configuration;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::{Experiment, OWN};
use crate::measure::{Case, Dimension, Measure};
use crate::report::Settings;
use crate::samples::Samples;
use crate::series::most;
use crate::setup::{
    CLIENTS_PER_EDGE, CONFIGURATION, CONFIGURATIONS, Demand, EDGES, Layout, POOL, Run, SERVICE, WORKERS,
    possible_rate,
};
use crate::sim;
use crate::table;
use crate::throughput::plan;

/// Burst lengths of R10 whose live runs are short, and one below them.
const BURSTS: [&[u64]; 2] = [&[256, 512, 1024, 2048, 4096], &[512, 2048]];
/// A run has whole rounds over the sites, and at least this many requests.
const REQUESTS_MIN: [u64; 2] = [8_000, 4_000];
/// Target for the difference of a simulated point from the live one, relative to the live one.
const WITHIN: f64 = 0.1;
/// Requests of the run that measures the path, made by one client of each edge.
const PATH_REQUESTS: u64 = 800;
/// Time limit for a simulation, which has some ten thousand requests.
const SIM_MAX: Duration = Duration::from_secs(300);

pub(crate) const S1: Experiment = Experiment::new(
    "S1",
    OWN,
    "throughput by burst length, simulated beside live",
    Design {
        dimensions: &[
            CONFIGURATION,
            Dimension::new("burst", "burst", &[]),
            Dimension::new("sites", "sites", &[]),
        ],
        // What a request takes apart from queue and service is measured first.
        cases: &["*/256,512,1024,2048,4096/3:3:2,2:2:2:2", "rigid/path/3:3:2"],
        measures: &[
            Measure::new("requests_per_s", "live, requests/s", [1, 0]).possible(|case| 0.0..=possible(case)),
            Measure::new("sim_requests_per_s", "simulated", [1, 0]).possible(|case| 0.0..=possible(case)),
            Measure::derived("ratio", "simulated / live", 3),
            Measure::derived("off_percent", "off, %", 1),
            Measure::new("p50_ms", "p50, ms, live", [3, 1]).possible(|_| service_ms()..=f64::INFINITY),
            Measure::new("sim_p50_ms", "simulated", [3, 1]).possible(|_| service_ms()..=f64::INFINITY),
            Measure::new("p99_ms", "p99, ms, live", [3, 1]),
            Measure::new("sim_p99_ms", "simulated", [3, 1]),
            Measure::new("moves", "moves, live", [0, 0]),
            Measure::new("sim_moves", "simulated", [0, 0]),
            Measure::new("step_ms", "step to first request, ms, live", [1, 1]),
            Measure::new("sim_step_ms", "simulated", [1, 1]),
            Measure::new("errors", "errors", [0, 0]),
            Measure::new("path_ms", "path, ms", [3, 2]),
        ],
        charts: &[
            Chart::lines("3 sites, 3:3:2 nodes", "requests_per_s", "burst", "configuration")
                .of("*/256,512,1024,2048,4096/3:3:2")
                .beside("sim_requests_per_s", "simulated")
                .unit(1.0, "requests/s"),
            Chart::lines("4 sites, 2:2:2:2 nodes", "requests_per_s", "burst", "configuration")
                .of("*/256,512,1024,2048,4096/2:2:2:2")
                .beside("sim_requests_per_s", "simulated")
                .unit(1.0, "requests/s"),
        ],
        settings: |_| json!({ "set_up": Settings::of(demand()).describe() }),
        template: include_str!("beside.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn service_ms() -> f64 {
    SERVICE.as_secs_f64() * 1e3
}

/// The most requests/s that the nodes and clients allow.
fn possible(case: &Case<'_>) -> f64 {
    let mut words = case.name.split('/');
    let configuration = words.next().and_then(|word| word.parse::<Configuration>().ok());
    let burst = words.next().and_then(|word| word.parse().ok());
    let layout = words.next().and_then(Layout::find);
    let most = |(configuration, burst, layout): (Configuration, u64, Layout)| {
        possible_rate(layout.ideal_rate(configuration), burst, layout.nodes_in_all(configuration))
    };
    configuration
        .zip(burst)
        .zip(layout)
        .map_or(f64::INFINITY, |((of, burst), layout)| most((of, burst, layout)))
}

fn run(bench: &mut Bench<'_>) -> Result<()> {
    bench.serve(demand())?;
    let runs =
        plan(demand(), bench.either(BURSTS), &Layout::ALL, &CONFIGURATIONS, bench.either(REQUESTS_MIN));
    let simulated = runs.chunks(CONFIGURATIONS.len()).map(|_| Duration::from_secs(1));
    let times = runs.iter().map(Run::ideal_duration).chain(simulated);
    let times: Vec<Duration> = [Duration::from_secs(5)].into_iter().chain(times).collect();
    bench.rounds(&times, |bench| {
        let path_ms = measure_path(bench)?;
        bench.sample("rigid/path/3:3:2", [("path_ms", path_ms)])?;
        runs.chunks(CONFIGURATIONS.len()).try_for_each(|runs| both(bench, runs, path_ms))
    })
}

/// Runs that differ in their configuration alone, live and simulated.
fn both(bench: &mut Bench<'_>, runs: &[Run], path_ms: f64) -> Result<()> {
    let mut live = Vec::new();
    for run in runs {
        live.push(bench.run(run)?.summary);
    }
    let simulated = simulate(bench, runs, path_ms)?;
    for (run, live) in runs.iter().zip(live) {
        let mut figures = vec![
            ("requests_per_s", live.requests_per_s),
            ("p50_ms", live.p50_ms),
            ("p99_ms", live.p99_ms),
            ("moves", live.moves as f64),
            ("errors", live.errors as f64),
        ];
        figures.extend(live.step_to_first_request_ms.map(|steps| ("step_ms", steps.p50)));
        for row in simulated.iter().filter(|row| row.configuration == run.configuration) {
            figures.extend([
                ("sim_requests_per_s", row.requests_per_s),
                ("sim_p50_ms", row.response_ms_p50),
                ("sim_p99_ms", row.response_ms_p99),
                ("sim_moves", row.moves),
                ("errors", live.errors as f64 + row.errors),
            ]);
            let step_ms = Some(row.step_to_first_request_ms).filter(|ms| *ms > 0.0);
            figures.extend(step_ms.map(|ms| ("sim_step_ms", ms)));
        }
        bench.sample(&format!("{}/{}/{}", run.configuration, run.burst, run.layout.label()), figures)?;
    }
    Ok(())
}

const fn demand() -> Demand {
    Demand::SingleFile(1024)
}

/// The median response time where no request waits, less the service time.
fn measure_path(bench: &mut Bench<'_>) -> Result<f64> {
    let name = bench.name("path");
    bench.begin(&name);
    let run = Run {
        layout: Layout::Three,
        demand: demand(),
        configuration: Configuration::Rigid,
        burst: PATH_REQUESTS,
        pause: Duration::ZERO,
        requests: PATH_REQUESTS,
    };
    let mut file = run.cluster_file(&bench.ground);
    if let Some(workload) = &mut file.workload {
        workload.clients_per_edge = 1;
    }
    let time = SERVICE * PATH_REQUESTS as u32;
    let (summary, _) = bench.up(&name, "one client for each edge, so that nobody waits", &file, time)?;
    bench.end();
    Ok((summary.p50_ms - SERVICE.as_secs_f64() * 1e3).max(0.0))
}

/// A row of the simulator: the columns that are used here.
#[derive(Debug, Deserialize)]
struct Simulated {
    configuration: Configuration,
    requests_per_s: f64,
    response_ms_p50: f64,
    response_ms_p99: f64,
    errors: f64,
    moves: f64,
    step_to_first_request_ms: f64,
}

fn simulate(bench: &mut Bench<'_>, runs: &[Run], path_ms: f64) -> Result<Vec<Simulated>> {
    let Run { layout, burst, requests, .. } = runs[0];
    let config = format!(
        "[run]\nmodel = \"reconfig\"\n[cluster]\nnodes = {POOL}\n[sites]\nsites = {}\nworkers = {WORKERS}\nservice_ms = {}\n\
         path_ms = {path_ms:.3}\nburst = {burst}\nasked = {requests}\nclients_per_edge = {CLIENTS_PER_EDGE}\n[reconfig]\n\
         balancers = {EDGES}\n",
        layout.sites(),
        service_ms(),
    );
    let configurations = runs.iter().map(|run| run.configuration.to_string()).collect::<Vec<_>>().join(",");
    let name = bench.name(format!("sim-{}-sites-{burst}", layout.sites()));
    let path = sim::run(bench, &name, &config, &[format!("configuration={configurations}")], SIM_MAX)?;
    table::read(&path)
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("ratio", "*/*/*", |samples, case| {
        &samples[case]["sim_requests_per_s"] / &samples[case]["requests_per_s"]
    });
    samples.derive("off_percent", "*/*/*", |samples, case| {
        samples[case]["ratio"].map(|ratio| 100.0 * (ratio - 1.0).abs())
    });
    let worst = |configuration: Configuration| {
        let what = format!("{configuration}: simulated requests/s off the live ones, of all points at most");
        let off = samples.over(&format!("{configuration}/*/*"), "off_percent", most);
        Check::at_most(what, WITHIN, off * 0.01)
    };
    let mut checks: Vec<Check> = CONFIGURATIONS.map(worst).into();
    let errors = samples.total("*/*/*", "errors");
    checks.push(Check::at_most("requests without an answer, all runs", 0.0, errors));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn each_point_is_held_against_its_own() {
        let verdicts = judged(&S1, |samples| {
            for (case, live, sim) in
                [("rigid/512/3:3:2", 1000.0, 1090.0), ("reconfigured/512/3:3:2", 2000.0, 1700.0)]
            {
                samples.put(case, [("requests_per_s", live), ("sim_requests_per_s", sim), ("errors", 0.0)]);
            }
        });
        assert_eq!(verdicts, ["met", "MISSED", "not measured", "met"]);
    }

    #[test]
    fn no_point_is_above_what_its_nodes_can_serve() {
        let of = |name| possible(&Case { name, figure: &|_| None });
        assert!(of("rigid/512/3:3:2") < of("over-provisioned/512/3:3:2"));
        assert_eq!(of("rigid/path/3:3:2"), f64::INFINITY);
    }
}
