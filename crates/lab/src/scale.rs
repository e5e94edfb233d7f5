//! S2: the simulated data-center from 8 to 10,000 nodes while balancers die, in one size also while nodes leave and join, by Sidelong's protocol and by the papers'.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use sidelong_figure::Style;
use sidelong_figure::statistics::mean;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::samples::Samples;
use crate::series::{Series, most, sum};
use crate::sim::{self, SWEEPS};
use crate::table;

/// Nodes, balancers, seeds, and the steps of the load: their number and their length in ms. More nodes take longer to move,
/// and minutes to simulate.
const SIZES: [Size; 6] = [
    Size { nodes: 8, balancers: 2, seeds: 5, steps: 3, step_ms: 500, changes: false },
    Size { nodes: 64, balancers: 2, seeds: 5, steps: 3, step_ms: 500, changes: false },
    Size { nodes: 512, balancers: 4, seeds: 3, steps: 3, step_ms: 500, changes: false },
    Size { nodes: 1_000, balancers: 64, seeds: 3, steps: 2, step_ms: 1_000, changes: true },
    Size { nodes: 4_096, balancers: 8, seeds: 1, steps: 2, step_ms: 1_000, changes: false },
    Size { nodes: 10_000, balancers: 16, seeds: 1, steps: 2, step_ms: 1_000, changes: false },
];
/// Nodes of a site at the start, and how many of them are guaranteed.
const SITE_NODES: u32 = 8;
const FLOOR: u32 = 2;
/// One in this many sites is busy. A busy site needs three times the nodes that it began with.
const BUSY_ONE_IN: u32 = 16;
/// Mean deaths of balancers per second in the whole cluster, at any size, while moves go on.
const DEATHS_PER_S: f64 = 8.0;
/// Mean nodes that leave the cluster per second, and join it again so much later, where it changes.
const LEAVES_PER_S: f64 = 8.0;
const AWAY_MS: f64 = 100.0;
/// Longest from a load step to balance there.
const BALANCED_MS_MAX: f64 = 500.0;
/// H: a node that moves back within this time has thrashed. It is less than a step of the load.
const THRASH_MS: u32 = 100;
/// Time limit for one size.
const SIM_MAX: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Size {
    nodes: u32,
    balancers: u32,
    seeds: u32,
    steps: u32,
    step_ms: u32,
    /// Whether nodes leave and join, which the papers' protocol cannot.
    changes: bool,
}

pub(crate) const S2: Experiment = Experiment::new(
    "S2",
    OWN,
    "reconfiguration from 8 to 10,000 simulated nodes while balancers die",
    Design {
        // It is simulated.
        needs_the_machine: false,
        dimensions: &[
            Dimension::new("nodes", "nodes", &[]),
            Dimension::new(
                "reconfig_protocol",
                "protocol",
                &[Word::new("lease", "lease", Style::OURS), Word::new("paper", "paper", Style::BASELINE)],
            ),
        ],
        cases: &["8,64,512,4096,10000/*", "1000/lease"],
        // Their names are the simulator's. Those in ms are means over the seeds, all others sums.
        measures: &[
            Measure::new("moves", "moves", [0, 0]),
            Measure::new("thrash", "thrash", [0, 0]).possible(|case| 0.0..=case.most("moves")),
            Measure::new("floor_violations", "below a floor, times", [0, 0]),
            Measure::new("below_floor_ms", "for, ms", [1, 1]),
            Measure::new("time_to_balance_ms", "to balance, ms", [2, 1]),
            Measure::new("time_to_balance_ms_max", "longest, ms", [0, 0]),
            Measure::new("steps_unbalanced", "never", [0, 0]).possible(|case| 0.0..=case.most("steps")),
            Measure::new("steps", "of steps", [0, 0]),
            Measure::derived("never_percent", "steps after which balance never came (%)", 1),
            Measure::new("crashes", "lives that ended", [0, 0]),
            Measure::new("leaves", "nodes that left", [0, 0]),
            Measure::new("joins", "that joined", [0, 0]),
            Measure::new("repairs", "repairs", [0, 0]),
            Measure::new("nodes_lost", "nodes lost", [0, 0]),
            Measure::new("nodes_doubled", "counted twice", [0, 0]),
            Measure::new("locks_stuck", "locks held", [0, 0]),
            Measure::new("requests", "requests", [0, 0]),
            Measure::new("errors", "failed", [0, 0]),
            Measure::derived("failed_percent", "requests failed, %", 2),
            Measure::new("mended_ms", "mended after, ms", [1, 0]),
        ],
        charts: &[
            Chart::lines("from a load step to balance", "time_to_balance_ms", "nodes", "reconfig_protocol")
                .unit(1.0, "ms"),
            Chart::lines(
                "steps after which balance never came",
                "never_percent",
                "nodes",
                "reconfig_protocol",
            )
            .unit(1.0, "%"),
        ],
        settings: |quick| {
            let size = |Size { nodes, balancers, seeds, steps, step_ms, .. }: &Size| {
                format!("{nodes} ({balancers}, {seeds}, {steps} of {step_ms} ms)")
            };
            json!({
                "sizes": sizes(quick).iter().map(size).collect::<Vec<_>>().join(", "),
                "site_nodes": SITE_NODES,
                "floor": FLOOR,
                "busy_one_in": BUSY_ONE_IN,
                "deaths_per_s": DEATHS_PER_S,
                "leaves_per_s": LEAVES_PER_S,
                "thrash_ms": THRASH_MS,
                "sweeps": SWEEPS,
            })
        },
        template: include_str!("scale.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn sizes(quick: bool) -> &'static [Size] {
    if quick { &SIZES[..3] } else { &SIZES }
}

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let sizes = sizes(bench.options.quick);
    let time = |size: &Size| Duration::from_millis(u64::from(size.nodes * size.seeds) * 20);
    bench.rounds(&sizes.iter().map(time).collect::<Vec<_>>(), |bench| {
        sizes.iter().try_for_each(|size| simulate(bench, size))
    })
}

/// A row of the simulator, by column.
type Simulated = BTreeMap<String, String>;

fn simulate(bench: &mut Bench<'_>, size: &Size) -> Result<()> {
    let Size { nodes, balancers, seeds, steps, step_ms, changes } = size;
    // The smallest cluster has two sites that share the nodes.
    let sites = (nodes / SITE_NODES).max(2);
    let config = format!(
        "[run]\nmodel = \"reconfig\"\n[cluster]\nnodes = {nodes}\n[sites]\nsites = {sites}\nfloor = {FLOOR}\n\
         demand = \"steps\"\nsteps = {steps}\nstep_ms = {step_ms}\nbusy_one_in = {BUSY_ONE_IN}\n[reconfig]\n\
         balancers = {balancers}\ncrash_ms = {}\nthrash_ms = {THRASH_MS}\n{}",
        1e3 * f64::from(*balancers) / DEATHS_PER_S,
        if *changes {
            format!("leave_ms = {}\njoin_ms = {AWAY_MS}\n", 1e3 * f64::from(*nodes) / LEAVES_PER_S)
        } else {
            String::new()
        }
    );
    let seeds: Vec<_> = (1..=*seeds).map(|seed| seed.to_string()).collect();
    let protocols = if *changes { &["lease"][..] } else { &["lease", "paper"] };
    let sets = [format!("reconfig_protocol={}", protocols.join(",")), format!("seed={}", seeds.join(","))];
    let name = bench.name(format!("nodes-{nodes}"));
    let path = sim::run(bench, &name, &config, &sets, SIM_MAX)?;
    let rows: Vec<Simulated> = table::read(&path)?;
    for protocol in protocols {
        let mut figures = Vec::new();
        for measure in bench.samples.measures.iter().filter(|measure| measure.csv.is_some()) {
            let name = measure.name;
            let of = rows.iter().filter(|row| row.get("reconfig_protocol").is_some_and(|of| of == *protocol));
            let values: Option<Vec<f64>> = of.map(|row| row.get(name)?.parse().ok()).collect();
            let values = values
                .ok_or_else(|| Error::Output { path: path.clone(), found: format!("no number {name}") })?;
            let value = match name {
                "time_to_balance_ms" | "mended_ms" => mean(&values),
                "time_to_balance_ms_max" => most(values),
                _ => sum(values),
            };
            figures.extend(value.map(|value| (name, value)));
        }
        bench.sample(&format!("{nodes}/{protocol}"), figures)?;
    }
    Ok(())
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("never_percent", "*/*", |samples, case| {
        &samples[case]["steps_unbalanced"] / &samples[case]["steps"] * 100.0
    });
    samples.derive("failed_percent", "*/*", |samples, case| {
        let (failed, served) = (&samples[case]["errors"], &samples[case]["requests"]);
        failed / (served + failed) * 100.0
    });
    let all = |measure| samples.over("*/lease", measure, sum);
    let thrash = |case: &str| &samples[case]["thrash"] / samples[case]["moves"].map(|moves| moves.max(1.0));
    let thrash: Vec<Series> = samples.cases("*/lease").into_iter().map(thrash).collect();
    vec![
        Check::at_most("ours: times that a site fell below its floor", 0.0, all("floor_violations")),
        Check::at_most(
            "ours: nodes lost, nodes counted twice and locks held when all is over",
            0.0,
            all("nodes_lost") + all("nodes_doubled") + all("locks_stuck"),
        ),
        Check::at_most(
            "ours: thrash, as a part of the moves of a size, at most",
            0.01,
            Series::combine(&thrash.iter().collect::<Vec<_>>(), most),
        ),
        Check::at_most(
            "1,000 nodes, 64 balancers, nodes leave and join: longest from a load step to balance, ms",
            BALANCED_MS_MAX,
            &samples["1000/lease"]["time_to_balance_ms_max"],
        ),
        Check::at_least("ours: lives of balancers that ended", 1.0, all("crashes")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn what_ours_must_not_do_is_missed_and_the_papers_is_not_judged() {
        let verdicts = |bad: f64, crashes: f64| {
            judged(&S2, |samples| {
                for (case, bad, crashes) in [("64/lease", bad, crashes), ("64/paper", 3.0, 0.0)] {
                    let names = ["floor_violations", "nodes_lost", "nodes_doubled", "locks_stuck", "thrash"];
                    let figures = names.map(|name| (name, bad)).into_iter();
                    samples.put(case, figures.chain([("moves", 10.0), ("crashes", crashes)]));
                }
                samples.put("1000/lease", [("time_to_balance_ms_max", 300.0 * (1.0 + bad))]);
            })
        };
        assert_eq!(verdicts(0.0, 2.0), ["met"; 5]);
        assert_eq!(verdicts(1.0, 0.0), ["MISSED"; 5]);
        assert_eq!(judged(&S2, |_| ()), ["not measured"; 5]);
    }
}
