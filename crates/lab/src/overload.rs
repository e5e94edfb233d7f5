//! A7 and A8: an open loop of half the capacity to ten times it, in steps and in bursts, on two sites of unequal priority;
//! our admission control beside none and the published rule (A7), and beside proxies of others before the same servers (A8).
//!
//! The servers live from the start to the end. The systems take turns before them, each started anew for its run and warmed up
//! for some seconds. What is said of a run comes from what became of each single request, by when it was due.

mod judge;
mod plan;
mod report;
mod stage;

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::bench::Bench;
use crate::check::{Check, median};
use crate::error::Result;
use crate::figure::{self, Axis, Line, Look, Panel};
use crate::machine::Machine;
use crate::peers::{self, Found, Missing, Peer};
use crate::report::{Outcome, number};
use crate::up::Fate;
use judge::{Figures, Sample, figures, over};
use plan::{Extent, HIGH_CLIENTS, LOW_CLIENTS, Part, Plan, STEP_LASTS};
use stage::Stage;

const EDGES: u16 = 1;
const NODES: usize = 4;
/// Requests that a server does at a time, and how long one takes, by waiting.
const WORKERS: u16 = 4;
const SERVICE: Duration = Duration::from_millis(20);
/// So all servers together do so many requests/s.
const CAPACITY_PER_S: f64 = NODES as f64 * WORKERS as f64 * 50.0;
/// Requests that wait at a server; 503 beyond.
const QUEUE_DEPTH_MAX: u32 = 256;

/// Places of the two sites.
const HIGH: usize = 0;
const LOW: usize = 1;
const NAMES: [&str; 2] = ["high", "low"];
const HOSTS: [&str; 2] = ["high.example", "low.example"];
/// What the higher priority is asked for all the time: nine tenths of the one server that is its share.
const HIGH_PER_S: f64 = 0.9 * CAPACITY_PER_S / NODES as f64;

/// 99 of 100 answers are to be there within this.
const TARGET: Duration = Duration::from_millis(60);
const TARGET_MS: f64 = TARGET.as_millis() as f64;
/// A: "Load information updated every 1 ms".
const PERIOD: Duration = Duration::from_millis(1);
/// Of A's rule: all workers busy and half as many requests waiting.
const THRESHOLD: f64 = 1.0;
/// Each client has its turn within this, and so within all that is measured.
const ROTATION: Duration = Duration::from_secs(1);

/// Issue 6.
const GOODPUT_MIN: f64 = 0.95;
const FAIRNESS_MIN: f64 = 0.95;
const RECOVERY_MS_MAX: f64 = 20.0;
const REJECT_MS_MAX: f64 = 2.0;

/// Whose turn it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    None,
    /// A's rule, by records that are read one-sidedly.
    Paper,
    Ours,
    Peer(Peer),
}

impl System {
    const ALONE: [System; 3] = [System::None, System::Paper, System::Ours];

    const fn word(self) -> &'static str {
        match self {
            System::None => "none",
            System::Paper => "one-sided",
            System::Ours => "ours",
            System::Peer(peer) => peer.word(),
        }
    }

    const fn look(self) -> Look {
        match self {
            System::Ours => Look::OURS,
            System::None | System::Peer(Peer::EnvoyAdaptive) => Look::BASELINE,
            System::Paper | System::Peer(Peer::Haproxy) => Look::THIRD,
            System::Peer(Peer::EnvoyAdmission) => Look::FOURTH,
            System::Peer(Peer::Httpd) => Look::FIFTH,
        }
    }

    /// Whether it was told of priorities.
    const fn has_priorities(self) -> bool {
        match self {
            System::Peer(peer) => peer.has_priorities(),
            System::None | System::Paper | System::Ours => true,
        }
    }
}

impl Serialize for System {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// One system at one load, in all rounds.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    offered_load: String,
    system: System,
    rounds: Vec<Figures>,
}

impl Row {
    fn median(&self, of: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        median(self.rounds.iter().filter_map(of).collect())
    }

    fn csv(&self) -> String {
        let of = |of: fn(&Figures) -> Option<f64>, digits| match self.median(of) {
            Some(value) => number(Some(value), digits),
            None => String::new(),
        };
        format!(
            "{},{},{},{},{},{},{}",
            self.offered_load,
            self.system.word(),
            of(|figures| figures.goodput, 4),
            of(|figures| figures.p99_ms, 2),
            of(|figures| figures.reject_ms, 3),
            of(|figures| figures.recovery_ms, 0),
            of(|figures| figures.fairness, 4),
        )
    }
}

/// What all runs share, and what the machine had to do.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Settings {
    peers: Vec<(&'static str, String, String)>,
    missing: Vec<Missing>,
    rounds: u32,
    run_s: f64,
    /// Of each system, in all its runs: the CPUs of this machine in use by whomever, its own CPU time, and requests for which the
    /// generator had no room.
    machine: Vec<Machinery>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Machinery {
    system: System,
    busy: f64,
    front_cpu_s: f64,
    dropped: u64,
}

/// What a step did, for the figure: the middle of some ms since it, and the answers of requests that were due then, in ms.
type Curve = Vec<(f64, f64)>;

pub(crate) fn alone(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    run(bench, &System::ALONE, &[])
}

pub(crate) fn beside(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    run(bench, &[System::Ours], &Peer::ALL)
}

fn run(bench: &mut Bench<'_>, systems: &[System], wanted: &[Peer]) -> Result<Vec<Check>> {
    let extent = if bench.options.quick { Extent::QUICK } else { Extent::FULL };
    let plan = Plan::new(&extent);
    let peers::Looked { here, missing } = peers::find(bench, wanted)?;
    let mut systems: Vec<(System, Option<Found>)> = systems.iter().map(|system| (*system, None)).collect();
    systems.extend(here.into_iter().map(|(peer, found)| (System::Peer(peer), Some(found))));
    (0..systems.len() * extent.rounds as usize).for_each(|_| bench.expect_for(plan.length));

    let stage = Stage::set(bench)?;
    let mut rows: Vec<Row> = Vec::new();
    for (part, _) in &plan.parts {
        let row =
            |system: &(System, _)| Row { offered_load: part.label(), system: system.0, rounds: Vec::new() };
        rows.extend(systems.iter().map(row));
    }
    let idle = |system| Machinery { system, busy: 0.0, front_cpu_s: 0.0, dropped: 0 };
    let mut machinery: Vec<_> = systems.iter().map(|(system, _)| idle(*system)).collect();
    let mut steps: Vec<Vec<Sample>> = vec![Vec::new(); systems.len()];
    for round in 0..extent.rounds as usize {
        for turn in 0..systems.len() {
            // Each begins a round in its turn.
            let at = (turn + round) % systems.len();
            let (system, found) = &systems[at];
            let name = format!("{}-{}", system.word(), round + 1);
            bench.begin(&name);
            let ran = stage.run(bench, *system, found.as_ref(), &name, &plan)?;
            let low = HIGH_CLIENTS..HIGH_CLIENTS + LOW_CLIENTS;
            for (place, figures) in figures(&plan, &ran.samples, &low).into_iter().enumerate() {
                rows[place * systems.len() + at].rounds.push(figures);
            }
            machinery[at].busy += ran.machine_busy / f64::from(extent.rounds);
            machinery[at].front_cpu_s += ran.front_cpu_s;
            machinery[at].dropped += ran.dropped;
            steps[at].extend(after_a_step(&plan, &ran.samples));
            bench.end();
        }
        // Medians of the rounds so far.
        let mut table = bench.table("rows.csv", bench.experiment.columns)?;
        table.rows(rows.iter().map(Row::csv))?;
    }

    let checks = match wanted {
        [] => checks(&plan, &rows),
        peers => peers.iter().flat_map(|peer| beside_a_peer(&plan, &rows, *peer)).collect(),
    };
    let curves: Vec<_> =
        systems.iter().map(|(system, _)| *system).zip(steps.iter().map(|of| curve(of))).collect();
    bench.write("figure.svg", &draw(bench, &plan, &rows, &curves)?)?;
    let place = stage.place(bench);
    let told = |(system, found): &(System, Option<Found>)| match (system, found) {
        (System::Peer(peer), Some(found)) => {
            Some((peer.word(), found.version.clone(), peer.describe(&place)))
        }
        _ => None,
    };
    let settings = Settings {
        peers: systems.iter().filter_map(told).collect(),
        missing,
        rounds: extent.rounds,
        run_s: plan.length.as_secs_f64(),
        machine: machinery,
    };
    let machine = Machine::here();
    let outcome = Outcome::new(bench, &machine, settings, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &report::markdown(&outcome, &extent))?;
    Ok(checks)
}

/// Those that were due after a step, by how long after it.
fn after_a_step(plan: &Plan, samples: &[Sample]) -> Vec<Sample> {
    let length_s = STEP_LASTS.as_secs_f64();
    let of_one = |step: &f64| {
        let shifted = |sample: Sample| Sample { due_s: sample.due_s - step, ..sample };
        over(samples, &[*step], -CURVE_BEFORE_S..length_s).into_iter().map(shifted).collect::<Vec<_>>()
    };
    plan.steps_s.iter().flat_map(of_one).collect()
}

/// Of the figure's curves: from so long before a step, a point for each so many s.
const CURVE_BEFORE_S: f64 = 0.1;
const CURVE_POINT_S: f64 = 0.02;

fn curve(samples: &[Sample]) -> Curve {
    let points = ((CURVE_BEFORE_S + STEP_LASTS.as_secs_f64()) / CURVE_POINT_S).round() as usize;
    (0..points)
        .filter_map(|point| {
            let from = point as f64 * CURVE_POINT_S - CURVE_BEFORE_S;
            let within = from..from + CURVE_POINT_S;
            let answered = samples.iter().filter(|sample| within.contains(&sample.due_s));
            let ms: Vec<_> =
                answered.filter(|sample| sample.fate == Fate::Answered).map(|sample| sample.ms).collect();
            let mean = (!ms.is_empty()).then(|| ms.iter().sum::<f64>() / ms.len() as f64)?;
            Some(((from + CURVE_POINT_S / 2.0) * 1e3, mean))
        })
        .collect()
}

fn row(rows: &[Row], part: Part, system: System) -> Option<&Row> {
    rows.iter().find(|row| row.system == system && row.offered_load == part.label())
}

/// Ours at each load above the capacity.
fn overloads<'a>(plan: &'a Plan, rows: &'a [Row], system: System) -> impl Iterator<Item = &'a Row> {
    let parts = plan.parts.iter().map(|(part, _)| *part).filter(|part| part.is_overload());
    parts.filter_map(move |part| row(rows, part, system))
}

/// Of `system`, the figures at each overload, if there are all.
fn at_overload(
    plan: &Plan,
    rows: &[Row],
    system: System,
    of: fn(&Figures) -> Option<f64>,
) -> Option<Vec<f64>> {
    overloads(plan, rows, system).map(|row| row.median(of)).collect()
}

fn targets(plan: &Plan, rows: &[Row], system: System) -> [Check; 2] {
    let least = at_overload(plan, rows, system, |figures| figures.goodput);
    let most = at_overload(plan, rows, system, |figures| figures.p99_ms);
    let name = system.word();
    [
        Check::at_least(
            format!("{name}: goodput, of the capacity, the least at any overload"),
            GOODPUT_MIN,
            least.and_then(|all| all.into_iter().reduce(f64::min)),
        ),
        Check::at_most(
            format!("{name}: p99 of those let in, ms, the most at any overload"),
            TARGET_MS,
            most.and_then(|all| all.into_iter().reduce(f64::max)),
        ),
    ]
}

fn checks(plan: &Plan, rows: &[Row]) -> Vec<Check> {
    let figures = |of| at_overload(plan, rows, System::Ours, of);
    let min = |of| figures(of)?.into_iter().reduce(f64::min);
    let max = |of| figures(of)?.into_iter().reduce(f64::max);
    let ours = |part| row(rows, part, System::Ours);
    let top = plan.parts.iter().rev().map(|(part, _)| *part).find(|part| part.is_overload());
    let [goodput, p99] = targets(plan, rows, System::Ours);
    vec![
        goodput,
        p99,
        Check::at_least(
            "of the higher priority, below its share: answered, the least at any overload",
            1.0,
            min(|f| f.high_answered),
        ),
        Check::at_most("its p99, ms, the most at any overload", TARGET_MS, max(|f| f.high_p99_ms)),
        Check::at_most(
            "ms until a step to 1.4 of the capacity is settled",
            RECOVERY_MS_MAX,
            ours(Part::Steps).and_then(|row| row.median(|f| f.recovery_ms)),
        ),
        Check::at_least(
            "Jain's index of equal clients, the least at any overload",
            FAIRNESS_MIN,
            min(|f| f.fairness),
        ),
        Check::at_most(
            "ms until one that is turned away knows, p99, at ten times the load",
            REJECT_MS_MAX,
            top.and_then(ours).and_then(|row| row.median(|f| f.reject_ms)),
        ),
    ]
}

/// Over all overloads, the median of what ours has over what the peer has in the same round. httpd goes by our verdicts,
/// and so by our targets.
fn beside_a_peer(plan: &Plan, rows: &[Row], peer: Peer) -> [Check; 2] {
    if peer == Peer::Httpd {
        return targets(plan, rows, System::Peer(peer));
    }
    let ratio = |of: fn(&Figures) -> Option<f64>| {
        let pairs = overloads(plan, rows, System::Ours).zip(overloads(plan, rows, System::Peer(peer)));
        let ratios = pairs.flat_map(|(ours, theirs)| {
            ours.rounds.iter().zip(&theirs.rounds).filter_map(move |(ours, theirs)| {
                let (ours, theirs) = (of(ours)?, of(theirs)?);
                (theirs > 0.0).then(|| ours / theirs)
            })
        });
        median(ratios.collect())
    };
    let name = peer.word();
    [
        Check::at_least(format!("goodput at overload: ours / {name}"), 1.0, ratio(|figures| figures.goodput)),
        Check::at_most(format!("p99 at overload: ours / {name}"), 1.0, ratio(|figures| figures.p99_ms)),
    ]
}

fn draw(bench: &Bench<'_>, plan: &Plan, rows: &[Row], curves: &[(System, Curve)]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let loads: Vec<f64> = plan.parts.iter().filter_map(|(part, _)| load_of(*part)).collect();
    let x = || Axis {
        title: "load, of the capacity".into(),
        range: loads.first().unwrap_or(&0.5).log10() - 0.06..loads.last().unwrap_or(&10.0).log10() + 0.06,
        ticks: loads.iter().map(|load| load.log10()).collect(),
        label: |power| number_of(10f64.powf(power)),
    };
    let line = |system: System, of: &dyn Fn(&Row) -> Option<f64>| {
        let point = |(part, _): &(Part, _)| {
            let load = load_of(*part)?;
            Some((load.log10(), of(row(rows, *part, system)?)?))
        };
        Line { look: system.look(), points: plan.parts.iter().filter_map(point).collect() }
    };
    let lines = |of: &dyn Fn(&Row) -> Option<f64>| -> Vec<Line> {
        curves.iter().map(|(system, _)| line(*system, of)).collect()
    };
    let goodput = lines(&|row| row.median(|figures| figures.goodput));
    let p99 = lines(&|row| row.median(|figures| figures.p99_ms).map(f64::log10));
    let target = |from: f64, to: f64, y: f64| Line { look: Look::TARGET, points: vec![(from, y), (to, y)] };
    let with = |mut lines: Vec<Line>, first: Line| {
        lines.insert(0, first);
        lines
    };
    let after: Vec<Line> = curves
        .iter()
        .map(|(system, points)| Line {
            look: system.look().bare(),
            points: points.iter().map(|(ms, mean)| (*ms, mean.log10())).collect(),
        })
        .collect();
    let of_ms = |title: &str, lines: &[Line]| {
        let logarithms = lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
        Axis::powers_of_ten(title, logarithms.chain([1.0, TARGET_MS.log10()]))
    };
    let (x_range, length_ms) = (x().range, STEP_LASTS.as_secs_f64() * 1e3);
    let panels = [
        Panel {
            title: "(a) in time".into(),
            x: x(),
            y: Axis::from_zero("goodput, of what could be", 1.0),
            lines: with(goodput, target(x_range.start, x_range.end, GOODPUT_MIN)),
        },
        Panel {
            title: "(b) those let in".into(),
            x: x(),
            y: of_ms("p99 (ms)", &p99),
            lines: with(p99, target(x_range.start, x_range.end, TARGET_MS.log10())),
        },
        Panel {
            title: "(c) a step to 1.4".into(),
            x: Axis::between("ms since the step", -CURVE_BEFORE_S * 1e3, length_ms),
            y: of_ms("mean response (ms)", &after),
            lines: with(after, target(-CURVE_BEFORE_S * 1e3, length_ms, TARGET_MS.log10())),
        },
    ];
    let mut legend: Vec<_> =
        curves.iter().map(|(system, _)| (system.word().to_owned(), system.look())).collect();
    legend.push(("target".to_owned(), Look::TARGET));
    Ok(figure::draw(&title, &panels, &legend)?)
}

fn load_of(part: Part) -> Option<f64> {
    match part {
        Part::Steady(load) => Some(load),
        Part::Steps | Part::Bursts => None,
    }
}

fn number_of(value: f64) -> String {
    format!("{}", (value * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use sidelong_config::ClusterFile;

    use super::*;

    fn row_of(load: f64, system: System, goodput: f64, p99_ms: f64) -> Row {
        let figures = Figures {
            goodput: Some(goodput),
            p99_ms: Some(p99_ms),
            reject_ms: Some(0.5),
            fairness: Some(0.97),
            high_answered: Some(1.0),
            high_p99_ms: Some(25.0),
            ..Figures::default()
        };
        Row { offered_load: Part::Steady(load).label(), system, rounds: vec![figures; 3] }
    }

    #[test]
    fn the_worst_overload_is_judged() {
        let plan = Plan::new(&Extent::QUICK);
        let ours = |load, goodput, p99| row_of(load, System::Ours, goodput, p99);
        let mut rows = vec![
            ours(0.5, 0.1, 999.0),
            ours(1.1, 0.97, 40.0),
            ours(2.0, 0.96, 45.0),
            ours(10.0, 0.951, 59.0),
        ];
        let verdicts = |rows: &[Row]| checks(&plan, rows).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&rows), ["met", "met", "met", "met", "not measured", "met", "met"]);
        let step = Figures { recovery_ms: Some(15.0), ..Figures::default() };
        rows.push(Row { offered_load: Part::Steps.label(), system: System::Ours, rounds: vec![step] });
        rows[2].rounds = rows[0].rounds.clone();
        assert_eq!(verdicts(&rows), ["MISSED", "MISSED", "met", "met", "met", "met", "met"]);
        assert_eq!(rows[1].csv(), "1.1,ours,0.9700,40.00,0.500,,0.9700");
    }

    #[test]
    fn a_peer_is_compared_within_a_round_at_overload() {
        let plan = Plan::new(&Extent::QUICK);
        let peer = System::Peer(Peer::Haproxy);
        let rows = [
            row_of(0.5, System::Ours, 0.5, 1.0),
            row_of(0.5, peer, 1.0, 9.0),
            row_of(2.0, System::Ours, 0.96, 60.0),
            row_of(2.0, peer, 0.8, 120.0),
        ];
        let verdicts =
            |peer| beside_a_peer(&plan, &rows, peer).map(|check| (check.verdict(), check.measured));
        let [goodput, p99] = verdicts(Peer::Haproxy);
        assert!(goodput.0 == "met" && (goodput.1.unwrap() - 1.2).abs() < 1e-9, "{goodput:?}");
        assert_eq!(p99, ("met", Some(0.5)));
        assert_eq!(verdicts(Peer::EnvoyAdaptive), [("not measured", None); 2]);
        let rows = [1.1, 2.0, 10.0].map(|load| row_of(load, System::Peer(Peer::Httpd), 0.9, 50.0));
        let ours = beside_a_peer(&plan, &rows, Peer::Httpd).map(|check| check.verdict());
        assert_eq!(ours, ["MISSED", "met"]);
    }

    #[test]
    fn the_file_of_a_system_is_read_as_it_was_meant() {
        for system in [System::None, System::Paper, System::Ours, System::Peer(Peer::Httpd)] {
            let file = stage::cluster_file("lab-a7", 20_000, system);
            assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "run.toml").unwrap(), file);
            let cluster = file.cluster().unwrap();
            assert_eq!((cluster.sites.len(), cluster.nodes.len()), (2, NODES));
            assert_eq!(cluster.has_admission(), system != System::None, "{system:?}");
            let of = |site| cluster.nodes.iter().filter(|node| node.site == Some(site)).count();
            assert_eq!((of(HIGH), of(LOW)), (1, NODES - 1));
            assert!(HIGH_PER_S < CAPACITY_PER_S * cluster.sites[HIGH].share, "below its share");
        }
    }
}
