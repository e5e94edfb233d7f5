//! S2: the simulated data-center from 8 to 10,000 nodes while balancers die, by Sidelong's protocol and by the papers'.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::figure::{Axis, Line, Panel, Style};
use crate::sim::{self, SWEEPS};
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::{self, Fixed};

/// The protocols, Sidelong's first.
const PROTOCOLS: [&str; 2] = ["lease", "paper"];
/// Nodes, balancers, seeds, and the steps of the load: their number and their length in ms. More nodes take longer to move,
/// and minutes to simulate.
const SIZES: [Size; 5] = [
    Size { nodes: 8, balancers: 2, seeds: 5, steps: 3, step_ms: 500 },
    Size { nodes: 64, balancers: 2, seeds: 5, steps: 3, step_ms: 500 },
    Size { nodes: 512, balancers: 4, seeds: 3, steps: 3, step_ms: 500 },
    Size { nodes: 4_096, balancers: 8, seeds: 1, steps: 2, step_ms: 1_000 },
    Size { nodes: 10_000, balancers: 16, seeds: 1, steps: 2, step_ms: 1_000 },
];
const SIZES_QUICK: usize = 3;
/// Nodes of a site at the start, and how many of them are guaranteed.
const SITE_NODES: u32 = 8;
const FLOOR: u32 = 2;
/// One in this many sites is busy. A busy site needs three times the nodes that it began with.
const BUSY_ONE_IN: u32 = 16;
/// Mean deaths of balancers per second in the whole cluster, at any size, while moves go on.
const DEATHS_PER_S: f64 = 8.0;
/// H: a node that moves back within this time has thrashed. It is less than a step of the load.
const THRASH_MS: u32 = 100;
/// Time limit for one size.
const SIM_MAX: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Size {
    nodes: u32,
    balancers: u32,
    seeds: u32,
    steps: u32,
    step_ms: u32,
}

fn one() -> f64 {
    1.0
}

/// The figures of one size and protocol over its seeds: sums of counts and means of times.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
struct Row {
    nodes: u32,
    reconfig_protocol: String,
    moves: f64,
    thrash: f64,
    floor_violations: f64,
    time_to_balance_ms: f64,
    #[serde(skip_deserializing, default = "one")]
    runs: f64,
    steps: f64,
    steps_unbalanced: f64,
    crashes: f64,
    repairs: f64,
    below_floor_ms: f64,
    nodes_lost: f64,
    nodes_doubled: f64,
    locks_stuck: f64,
    errors: f64,
    requests: f64,
    mended_ms: f64,
}

impl Row {
    /// Adds a run of the same size and protocol.
    fn add(&mut self, other: &Row) {
        let of = |row: &Row| row.runs;
        let mean = |mine: f64, theirs: f64| (mine * of(self) + theirs) / (of(self) + 1.0);
        let time_to_balance_ms = mean(self.time_to_balance_ms, other.time_to_balance_ms);
        let mended_ms = mean(self.mended_ms, other.mended_ms);
        *self = Row {
            nodes: other.nodes,
            reconfig_protocol: other.reconfig_protocol.clone(),
            moves: self.moves + other.moves,
            thrash: self.thrash + other.thrash,
            floor_violations: self.floor_violations + other.floor_violations,
            time_to_balance_ms,
            runs: self.runs + 1.0,
            steps: self.steps + other.steps,
            steps_unbalanced: self.steps_unbalanced + other.steps_unbalanced,
            crashes: self.crashes + other.crashes,
            repairs: self.repairs + other.repairs,
            below_floor_ms: self.below_floor_ms + other.below_floor_ms,
            nodes_lost: self.nodes_lost + other.nodes_lost,
            nodes_doubled: self.nodes_doubled + other.nodes_doubled,
            locks_stuck: self.locks_stuck + other.locks_stuck,
            errors: self.errors + other.errors,
            requests: self.requests + other.requests,
            mended_ms,
        };
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    nodes: u32,
    reconfig_protocol: String,
    moves: Fixed<0>,
    thrash: Fixed<0>,
    floor_violations: Fixed<0>,
    time_to_balance_ms: Fixed<2>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let sizes = if bench.options.quick { &SIZES[..SIZES_QUICK] } else { &SIZES[..] };
    let scale = Scale {
        sizes: sizes.to_vec(),
        site_nodes: SITE_NODES,
        floor: FLOOR,
        busy_one_in: BUSY_ONE_IN,
        deaths_per_s: DEATHS_PER_S,
        thrash_ms: THRASH_MS,
    };
    study::run(bench, scale)
}

/// Settings that all runs share.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Scale {
    sizes: Vec<Size>,
    site_nodes: u32,
    floor: u32,
    busy_one_in: u32,
    deaths_per_s: f64,
    thrash_ms: u32,
}

impl Study for Scale {
    type Row = Row;
    type Line = TableLine;

    const NEEDS_THE_MACHINE: bool = false;

    fn plan(&self) -> Vec<Duration> {
        let time = |size: &Size| Duration::from_millis(u64::from(size.nodes * size.seeds) * 20);
        self.sizes.iter().map(time).collect()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Scale>) -> Result<()> {
        for size in &self.sizes {
            for row in simulate(bench, size)? {
                rows.push(self, row)?;
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        vec![TableLine {
            nodes: row.nodes,
            reconfig_protocol: row.reconfig_protocol.clone(),
            moves: Fixed(row.moves),
            thrash: Fixed(row.thrash),
            floor_violations: Fixed(row.floor_violations),
            time_to_balance_ms: Fixed(row.time_to_balance_ms),
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("{} nodes, {}: {what}", row.nodes, row.reconfig_protocol);
        vec![
            Bound::new(of("thrash"), row.thrash, 0.0..=row.moves),
            Bound::new(of("steps that never balance"), row.steps_unbalanced, 0.0..=row.steps),
            Bound::new(of("nodes lost"), row.nodes_lost, 0.0..=f64::from(row.nodes) * row.runs),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        tell(self, rows, story);
    }
}

fn simulate(bench: &mut Bench<'_>, size: &Size) -> Result<Vec<Row>> {
    let Size { nodes, balancers, seeds, steps, step_ms } = size;
    // The smallest cluster has two sites that share the nodes.
    let sites = (nodes / SITE_NODES).max(2);
    let config = format!(
        "[run]\nmodel = \"reconfig\"\n[cluster]\nnodes = {nodes}\n[sites]\nsites = {sites}\nfloor = {FLOOR}\n\
         demand = \"steps\"\nsteps = {steps}\nstep_ms = {step_ms}\nbusy_one_in = {BUSY_ONE_IN}\n[reconfig]\n\
         balancers = {balancers}\ncrash_ms = {}\nthrash_ms = {THRASH_MS}\n",
        1e3 * f64::from(*balancers) / DEATHS_PER_S,
    );
    let seeds: Vec<_> = (1..=*seeds).map(|seed| seed.to_string()).collect();
    let sets = [format!("reconfig_protocol={}", PROTOCOLS.join(",")), format!("seed={}", seeds.join(","))];
    let name = bench.name(format!("nodes-{nodes}"));
    let path = sim::run(bench, &name, &config, &sets, SIM_MAX)?;
    let runs: Vec<Row> = table::read(&path)?;
    let of = |protocol: &&str| {
        let mut all = Row::default();
        runs.iter().filter(|run| run.reconfig_protocol == **protocol).for_each(|run| all.add(run));
        all
    };
    Ok(PROTOCOLS.iter().map(of).collect())
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let ours = || rows.iter().filter(|row| row.reconfig_protocol == PROTOCOLS[0]);
    let sum = |of: fn(&Row) -> f64| (ours().count() > 0).then(|| ours().map(of).sum());
    let most = |of: fn(&Row) -> f64| ours().map(of).reduce(f64::max);
    vec![
        Check::at_most("ours: times that a site fell below its floor", 0.0, sum(|row| row.floor_violations)),
        Check::at_most(
            "ours: nodes lost, nodes counted twice and locks held when all is over",
            0.0,
            sum(|row| row.nodes_lost + row.nodes_doubled + row.locks_stuck),
        ),
        Check::at_most(
            "ours: thrash, as a part of the moves of a size, at most",
            0.01,
            most(|row| row.thrash / row.moves.max(1.0)),
        ),
        Check::at_least("ours: lives of balancers that ended", 1.0, sum(|row| row.crashes)),
    ]
}

fn draw(rows: &[Row]) -> Drawing {
    let style = |protocol: &str| if protocol == PROTOCOLS[0] { Style::OURS } else { Style::BASELINE };
    let panel = |title: &str, of: fn(&Row) -> f64| {
        let most = rows.iter().map(of).fold(1.0, f64::max);
        let line = |protocol: &&str| {
            let of_protocol = rows.iter().filter(|row| row.reconfig_protocol == **protocol);
            Line::new(
                style(protocol),
                of_protocol.map(|row| (f64::from(row.nodes).log10(), of(row))).collect(),
            )
        };
        Panel {
            title: String::new(),
            x: Axis {
                title: "nodes".to_owned(),
                range: 0.7..4.2,
                ticks: vec![1.0, 2.0, 3.0, 4.0],
                label: |log10| format!("{:.0}", 10f64.powf(log10)),
                names: Vec::new(),
            },
            y: Axis::from_zero(title, most),
            lines: PROTOCOLS.iter().map(line).collect(),
        }
    };
    let panels = vec![
        panel("time from a load step to balance (ms)", |row| row.time_to_balance_ms),
        panel("steps after which balance never came (%)", |row| {
            100.0 * row.steps_unbalanced / row.steps.max(1.0)
        }),
    ];
    let legend = PROTOCOLS.map(|protocol| (protocol.to_owned(), style(protocol))).into();
    Drawing { panels, legend, ..Drawing::default() }
}

fn tell(study: &Scale, rows: &[Row], report: &mut Story) {
    report.heading("What is compared");
    report.paragraph(
        "The live system's policy, movers and words over fabric's simulated network, by our protocol (leases, budgets, \
         draining, repair) and by that which Balaji et al. 2004 print (3.1.2), which has nothing for a balancer that dies. Loads step from \
         some sites to others, and balancers die at operations of their moves that are drawn.",
    );
    report.checks();
    report.heading("Measured");
    let columns = [
        "nodes",
        "protocol",
        "moves",
        "thrash",
        "below a floor, times",
        "for, ms",
        "to balance, ms",
        "never, of steps",
        "lives that ended",
        "repairs",
        "nodes lost",
        "counted twice",
        "locks held",
        "requests failed, %",
        "mended after, ms",
    ];
    report.table(
        &columns,
        rows.iter().map(|row| {
            let figure = |value: f64, digits: usize| number(Some(value), digits);
            vec![
                row.nodes.to_string(),
                row.reconfig_protocol.clone(),
                figure(row.moves, 0),
                figure(row.thrash, 0),
                figure(row.floor_violations, 0),
                figure(row.below_floor_ms, 1),
                figure(row.time_to_balance_ms, 1),
                format!("{} of {}", row.steps_unbalanced, row.steps),
                figure(row.crashes, 0),
                figure(row.repairs, 0),
                figure(row.nodes_lost, 0),
                figure(row.nodes_doubled, 0),
                figure(row.locks_stuck, 0),
                figure(100.0 * row.errors / (row.requests + row.errors).max(1.0), 2),
                figure(row.mended_ms, 0),
            ]
        }),
    );
    report.paragraph(
        "Counts are sums over a size's seeds, times are means. Balance: no site is overloaded while another has a node to \
         spare; a step after which that never came counts with all its time. The papers' protocol moves a node in one \
         swap, without waiting for its requests, so what it does not stumble over it does sooner.",
    );
    let Scale { sizes, site_nodes, floor, busy_one_in, deaths_per_s, thrash_ms } = study;
    let sizes: Vec<_> = sizes
        .iter()
        .map(|Size { nodes, balancers, seeds, steps, step_ms }| {
            format!("{nodes} ({balancers}, {seeds}, {steps} of {step_ms} ms)")
        })
        .collect();
    report.how(&format!(
            "Simulated by `sidelong sim run`. Nodes (balancers, seeds, steps): {}. A site begins with {site_nodes} nodes (of the \
             smallest, 4); {floor} are guaranteed. At each step, one in {busy_one_in} sites \
             (at least one) has clients for three times its nodes. {deaths_per_s} deaths a second are due in the whole \
             cluster, each for 30 ms in the mean. H = {thrash_ms} ms. Everything else as `docs/sim.md` has it.",
            sizes.join(", ")
        ));
    report.how(SWEEPS);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(protocol: &str, moves: f64, time: f64) -> Row {
        Row {
            nodes: 64,
            reconfig_protocol: protocol.to_owned(),
            moves,
            time_to_balance_ms: time,
            crashes: 2.0,
            ..Row::default()
        }
    }

    #[test]
    fn counts_are_summed_and_times_are_means() {
        let mut all = Row::default();
        [row("lease", 10.0, 30.0), row("lease", 20.0, 60.0)].iter().for_each(|run| all.add(run));
        let study = Scale {
            sizes: Vec::new(),
            site_nodes: 8,
            floor: 2,
            busy_one_in: 16,
            deaths_per_s: 8.0,
            thrash_ms: 100,
        };
        let [columns, line] = table::written(study.lines(&all).remove(0));
        assert_eq!(line, "64,lease,30,0,0,45.00");
        assert_eq!(columns, "nodes,reconfig_protocol,moves,thrash,floor_violations,time_to_balance_ms");
    }

    #[test]
    fn what_ours_must_not_do_is_missed_and_the_papers_is_not_judged() {
        let good = [
            row("lease", 10.0, 1.0),
            Row { floor_violations: 3.0, locks_stuck: 1.0, ..row("paper", 1.0, 9.0) },
        ];
        assert!(checks(&good).iter().all(|check| check.verdict() == "met"));
        let bad = Row {
            floor_violations: 1.0,
            nodes_lost: 1.0,
            thrash: 1.0,
            crashes: 0.0,
            ..row("lease", 10.0, 1.0)
        };
        assert!(checks(&[bad]).iter().all(|check| check.verdict() == "MISSED"));
        assert!(checks(&[]).iter().all(|check| check.verdict() == "not measured"));
    }
}
