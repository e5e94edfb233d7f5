//! A7 and A8: an open loop from half the capacity to ten times it, in steps and in bursts, on two sites of unequal
//! priority. A7 compares Sidelong's admission control with none and with the published rule, A8 with other proxies before
//! the same servers. The experiment gunicorn has foreign servers, of which the cluster file does not say how many requests
//! they serve at a time.
//!
//! The servers stay up. The systems take turns before them, each started anew for its run and warmed up for some seconds.
//! The figures of a run come from the outcome of each request, by the time it was due.

mod judge;
mod plan;
mod report;
mod stage;

use std::time::Duration;

use serde::{Serialize, Serializer};
use sidelong_figure::statistics::{mean, median};
use sidelong_figure::{Axis, Line, Panel, Style};

use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::peers::{self, Found, Missing, Peer};
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use crate::up::Fate;
use judge::{Figures, Sample, figures, over};
use plan::{Extent, HIGH_CLIENTS, LOW_CLIENTS, Part, Plan, STEP_LASTS};
use stage::Stage;

const EDGES: u16 = 1;
const NODES: usize = 4;
/// Requests that a server serves at a time, and the service time of one, spent waiting.
const WORKERS: u16 = 4;
const SERVICE: Duration = Duration::from_millis(20);
/// What all servers together can serve, in requests/s.
const CAPACITY_PER_S: f64 = NODES as f64 * WORKERS as f64 * 50.0;
/// Requests that wait at a server. Further ones get 503.
const QUEUE_DEPTH_MAX: u32 = 256;

/// Indices of the two sites.
const HIGH: usize = 0;
const LOW: usize = 1;
const NAMES: [&str; 2] = ["high", "low"];
const HOSTS: [&str; 2] = ["high.example", "low.example"];
/// Rate of the higher priority, constant: nine tenths of the one server that is its share.
const HIGH_PER_S: f64 = 0.9 * CAPACITY_PER_S / NODES as f64;

/// The target: 99 of 100 answers come within this time.
const TARGET: Duration = Duration::from_millis(60);
const TARGET_MS: f64 = TARGET.as_millis() as f64;
/// Lai et al. 2008: "Load information updated every 1 ms".
const PERIOD: Duration = Duration::from_millis(1);
/// Threshold of their rule: all workers busy and half as many requests waiting.
const THRESHOLD: f64 = 1.0;
/// Each client has its turn within this time, which is shorter than all measured intervals.
const ROTATION: Duration = Duration::from_secs(1);

/// Targets. On gunicorn the loads that are judged, and the goodput.
const GUNICORN_LOADS: [f64; 2] = [2.0, 10.0];
const GUNICORN_GOODPUT_MIN: f64 = 0.93;
const GOODPUT_MIN: f64 = 0.95;
const FAIRNESS_MIN: f64 = 0.95;
const RECOVERY_MS_MAX: f64 = 20.0;
const REJECT_MS_MAX: f64 = 2.0;

/// What serves the requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Servers {
    /// The built-in origin.
    Builtin,
    /// A gunicorn of [`WORKERS`] synchronous workers for each node.
    Gunicorn,
}

/// A system under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    None,
    /// The rule of Lai et al. 2008, by records that are read one-sidedly.
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

    const fn style(self) -> Style {
        match self {
            System::Ours => Style::OURS,
            System::None | System::Peer(Peer::EnvoyAdaptive) => Style::BASELINE,
            System::Paper | System::Peer(Peer::Haproxy) => Style::THIRD,
            System::Peer(Peer::EnvoyAdmission) => Style::FOURTH,
            System::Peer(Peer::Httpd) => Style::FIFTH,
        }
    }

    /// Whether it is configured with priorities.
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

/// One system at one load.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    offered_load: String,
    system: System,
    figures: Figures,
    /// For a step: its curve for the figure.
    #[serde(skip)]
    curve: Curve,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    offered_load: String,
    system: System,
    goodput: Option<Fixed<4>>,
    p99_ms: Option<Fixed<2>>,
    reject_ms: Option<Fixed<3>>,
    recovery_ms: Option<Fixed<0>>,
    fairness: Option<Fixed<4>>,
}

/// Settings that all runs share, and the load of the machine.
#[derive(Serialize)]
struct Overload {
    servers: Servers,
    peers: Vec<(&'static str, String, String)>,
    missing: Vec<Missing>,
    run_s: f64,
    /// What each system used in all its runs.
    machine: Vec<Machinery>,
    #[serde(skip)]
    extent: Extent,
    #[serde(skip)]
    plan: Plan,
    #[serde(skip)]
    systems: Vec<(System, Option<Found>)>,
    #[serde(skip)]
    wanted: &'static [Peer],
    #[serde(skip)]
    stage: Stage,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Machinery {
    system: System,
    runs: u32,
    /// The share of all CPUs in use, by any process, added up over the runs.
    busy: f64,
    /// CPU time of the system itself.
    front_cpu_s: f64,
    /// Requests that the generator could not send, because too many were in flight.
    dropped: u64,
}

/// The curve of a step: times in ms since it, and the response times of requests that were due then, in ms.
type Curve = Vec<(f64, f64)>;

pub(crate) fn alone(bench: &mut Bench<'_>) -> Result<Conclusion> {
    run(bench, Servers::Builtin, &System::ALONE, &[])
}

pub(crate) fn on_gunicorn(bench: &mut Bench<'_>) -> Result<Conclusion> {
    run(bench, Servers::Gunicorn, &[System::Ours], &[])
}

pub(crate) fn beside(bench: &mut Bench<'_>) -> Result<Conclusion> {
    run(bench, Servers::Builtin, &[System::Ours], &Peer::ALL)
}

fn run(
    bench: &mut Bench<'_>,
    servers: Servers,
    systems: &[System],
    wanted: &'static [Peer],
) -> Result<Conclusion> {
    let extent = if bench.options.quick { Extent::QUICK } else { Extent::FULL };
    let plan = Plan::new(&extent);
    let peers::Looked { here, missing } = peers::find(bench, wanted)?;
    let mut systems: Vec<(System, Option<Found>)> = systems.iter().map(|system| (*system, None)).collect();
    systems.extend(here.into_iter().map(|(peer, found)| (System::Peer(peer), Some(found))));
    let stage = Stage::set(bench, servers)?;
    let place = stage.place(bench);
    let told = |(system, found): &(System, Option<Found>)| match (system, found) {
        (System::Peer(peer), Some(found)) => {
            Some((peer.word(), found.version.clone(), peer.describe(&place)))
        }
        _ => None,
    };
    let idle = |(system, _): &(System, _)| Machinery {
        system: *system,
        runs: 0,
        busy: 0.0,
        front_cpu_s: 0.0,
        dropped: 0,
    };
    let study = Overload {
        servers,
        peers: systems.iter().filter_map(told).collect(),
        missing,
        run_s: plan.length.as_secs_f64(),
        machine: systems.iter().map(idle).collect(),
        extent,
        plan,
        systems,
        wanted,
        stage,
    };
    study::run(bench, study)
}

impl Study for Overload {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = [3, 1];

    fn plan(&self) -> Vec<Duration> {
        vec![self.plan.length; self.systems.len()]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Overload>) -> Result<()> {
        let round = bench.repetition as usize;
        for turn in 0..self.systems.len() {
            // Each system begins a round in its turn.
            let at = (turn + round - 1) % self.systems.len();
            let (system, found) = &self.systems[at];
            let name = format!("{}-{round}", system.word());
            bench.begin(&name);
            let ran = self.stage.run(bench, *system, found.as_ref(), &name, &self.plan)?;
            bench.end();
            let low = HIGH_CLIENTS..HIGH_CLIENTS + LOW_CLIENTS;
            let all = figures(&self.plan, &ran.samples, &low);
            for ((part, _), figures) in self.plan.parts.iter().zip(all) {
                let step = *part == Part::Steps;
                let curve = if step { curve(&after_a_step(&self.plan, &ran.samples)) } else { Curve::new() };
                rows.push(self, Row { offered_load: part.label(), system: *system, figures, curve })?;
            }
            let machine = &mut self.machine[at];
            machine.runs += 1;
            machine.busy += ran.machine_busy;
            machine.front_cpu_s += ran.front_cpu_s;
            machine.dropped += ran.dropped;
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        vec![table_line(row)]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let Figures { goodput, fairness, high_answered, .. } = row.figures;
        let of = |what: &str| format!("{}, load {}: {what}", row.system.word(), row.offered_load);
        // Requests of the end of a part are served after it, and steps and bursts can use what was idle before.
        let part =
            self.plan.parts.iter().map(|(part, _)| *part).find(|part| part.label() == row.offered_load);
        let most = if matches!(part, Some(Part::Steady(_))) { 1.05 } else { 1.5 };
        let goodput = goodput.map(|goodput| Bound::new(of("goodput"), goodput, 0.0..=most));
        let fairness = fairness.map(|fairness| Bound::new(of("Jain's index"), fairness, 0.0..=1.0 + 1e-9));
        let answered =
            high_answered.map(|answered| Bound::share(of("answered, of the higher priority"), answered));
        [goodput, fairness, answered].into_iter().flatten().collect()
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        match (self.wanted, self.servers) {
            ([], Servers::Builtin) => checks(&self.plan, rows),
            ([], Servers::Gunicorn) => on_gunicorn_checks(rows).into(),
            (peers, _) => peers.iter().flat_map(|peer| beside_a_peer(&self.plan, rows, *peer)).collect(),
        }
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        let systems: Vec<System> = self.systems.iter().map(|(system, _)| *system).collect();
        draw(&self.plan, rows, &systems)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        report::tell(self, rows, story);
    }
}

fn table_line(row: &Row) -> TableLine {
    let Figures { goodput, p99_ms, reject_ms, recovery_ms, fairness, .. } = row.figures;
    TableLine {
        offered_load: row.offered_load.clone(),
        system: row.system,
        goodput: goodput.map(Fixed),
        p99_ms: p99_ms.map(Fixed),
        reject_ms: reject_ms.map(Fixed),
        recovery_ms: recovery_ms.map(Fixed),
        fairness: fairness.map(Fixed),
    }
}

/// The requests that were due after a step, by the time since it.
fn after_a_step(plan: &Plan, samples: &[Sample]) -> Vec<Sample> {
    let length_s = STEP_LASTS.as_secs_f64();
    let of_one = |step: &f64| {
        let shifted = |sample: Sample| Sample { due_s: sample.due_s - step, ..sample };
        over(samples, &[*step], -CURVE_BEFORE_S..length_s).into_iter().map(shifted).collect::<Vec<_>>()
    };
    plan.steps_s.iter().flat_map(of_one).collect()
}

/// The curves begin this long before a step, and have a point every [`CURVE_POINT_S`] seconds.
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
            Some(((from + CURVE_POINT_S / 2.0) * 1e3, mean(&ms)?))
        })
        .collect()
}

fn row(rows: &[Row], part: Part, system: System) -> Option<&Row> {
    rows.iter().find(|row| row.system == system && row.offered_load == part.label())
}

/// The rows of `system` at each load above the capacity.
fn overloads<'a>(plan: &'a Plan, rows: &'a [Row], system: System) -> impl Iterator<Item = &'a Row> {
    let parts = plan.parts.iter().map(|(part, _)| *part).filter(|part| part.is_overload());
    parts.filter_map(move |part| row(rows, part, system))
}

/// A figure of `system` at each overload. `None` if one is missing.
fn at_overload(
    plan: &Plan,
    rows: &[Row],
    system: System,
    of: fn(&Figures) -> Option<f64>,
) -> Option<Vec<f64>> {
    overloads(plan, rows, system).map(|row| of(&row.figures)).collect()
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
            format!("{name}: p99 of admitted requests, ms, the most at any overload"),
            TARGET_MS,
            most.and_then(|all| all.into_iter().reduce(f64::max)),
        ),
    ]
}

fn on_gunicorn_checks(rows: &[Row]) -> [Check; 2] {
    GUNICORN_LOADS.map(|load| {
        let goodput = row(rows, Part::Steady(load), System::Ours).and_then(|row| row.figures.goodput);
        let what = format!("workers not given: goodput, of the capacity, at {load} times the load");
        Check::at_least(what, GUNICORN_GOODPUT_MIN, goodput)
    })
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
        )
        .possible(0.0..=1.0),
        Check::at_most("its p99, ms, the most at any overload", TARGET_MS, max(|f| f.high_p99_ms)),
        Check::at_most(
            "ms until a step to 1.4 of the capacity is settled",
            RECOVERY_MS_MAX,
            ours(Part::Steps).and_then(|row| row.figures.recovery_ms),
        ),
        Check::at_least(
            "Jain's index of equal clients, the least at any overload",
            FAIRNESS_MIN,
            min(|f| f.fairness),
        )
        .possible(0.0..=1.0 + 1e-9),
        Check::at_most(
            "ms until a rejected client knows, p99, at ten times the load",
            REJECT_MS_MAX,
            top.and_then(ours).and_then(|row| row.figures.reject_ms),
        ),
    ]
}

/// The median over all overloads of the ratio of Sidelong's figure to the peer's in the same round. httpd follows our
/// verdicts, and so our targets.
fn beside_a_peer(plan: &Plan, rows: &[Row], peer: Peer) -> [Check; 2] {
    if peer == Peer::Httpd {
        return targets(plan, rows, System::Peer(peer));
    }
    let ratio = |of: fn(&Figures) -> Option<f64>| {
        let pairs = overloads(plan, rows, System::Ours).zip(overloads(plan, rows, System::Peer(peer)));
        let ratios = pairs.filter_map(|(ours, theirs)| {
            let (ours, theirs) = (of(&ours.figures)?, of(&theirs.figures)?);
            (theirs > 0.0).then(|| ours / theirs)
        });
        median(ratios.collect())
    };
    let name = peer.word();
    [
        Check::at_least(format!("goodput at overload: ours / {name}"), 1.0, ratio(|figures| figures.goodput)),
        Check::at_most(format!("p99 at overload: ours / {name}"), 1.0, ratio(|figures| figures.p99_ms)),
    ]
}

fn draw(plan: &Plan, rows: &[Row], systems: &[System]) -> Drawing {
    let loads: Vec<f64> = plan.parts.iter().filter_map(|(part, _)| load_of(*part)).collect();
    let x = || Axis {
        title: "load, of the capacity".into(),
        range: loads.first().unwrap_or(&0.5).log10() - 0.06..loads.last().unwrap_or(&10.0).log10() + 0.06,
        ticks: loads.iter().map(|load| load.log10()).collect(),
        label: |power| number_of(10f64.powf(power)),
        names: Vec::new(),
    };
    let line = |system: System, of: &dyn Fn(&Row) -> Option<f64>| {
        let point = |(part, _): &(Part, _)| {
            let load = load_of(*part)?;
            Some((load.log10(), of(row(rows, *part, system)?)?))
        };
        Line::new(system.style(), plan.parts.iter().filter_map(point).collect())
    };
    let lines = |of: &dyn Fn(&Row) -> Option<f64>| -> Vec<Line> {
        systems.iter().map(|system| line(*system, of)).collect()
    };
    let goodput = lines(&|row| row.figures.goodput);
    let p99 = lines(&|row| row.figures.p99_ms.map(f64::log10));
    let target = |from: f64, to: f64, y: f64| Line::new(Style::TARGET, vec![(from, y), (to, y)]);
    let with = |mut lines: Vec<Line>, first: Line| {
        lines.insert(0, first);
        lines
    };
    let after = systems.iter().map(|&system| {
        let curve = row(rows, Part::Steps, system).map_or(&[][..], |row| &row.curve);
        Line::new(system.style().bare(), curve.iter().map(|(ms, mean)| (*ms, mean.log10())).collect())
    });
    let after: Vec<Line> = after.collect();
    let of_ms = |title: &str, lines: &[Line]| {
        let logarithms = lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
        Axis::powers_of_ten(title, logarithms.chain([1.0, TARGET_MS.log10()]))
    };
    let (x_range, length_ms) = (x().range, STEP_LASTS.as_secs_f64() * 1e3);
    let panels = vec![
        Panel {
            title: "(a) in time".into(),
            x: x(),
            y: Axis::from_zero("goodput, of what could be", 1.0),
            lines: with(goodput, target(x_range.start, x_range.end, GOODPUT_MIN)),
        },
        Panel {
            title: "(b) admitted requests".into(),
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
    let legend = systems.iter().map(|system| (system.word().to_owned(), system.style())).collect();
    Drawing { panels, legend, dashed: Some("target"), ..Drawing::default() }
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
        Row { offered_load: Part::Steady(load).label(), system, figures, curve: Curve::new() }
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
        rows.push(Row {
            offered_load: Part::Steps.label(),
            system: System::Ours,
            figures: step,
            curve: Curve::new(),
        });
        rows[2].figures = rows[0].figures;
        assert_eq!(verdicts(&rows), ["MISSED", "MISSED", "met", "met", "met", "met", "met"]);
        assert_eq!(
            crate::table::written(table_line(&rows[1])),
            [
                "offered_load,system,goodput,p99_ms,reject_ms,recovery_ms,fairness",
                "1.1,ours,0.9700,40.00,0.500,,0.9700"
            ]
        );
    }

    #[test]
    fn gunicorn_is_judged_at_two_loads() {
        let ours = |load, goodput| row_of(load, System::Ours, goodput, 50.0);
        let rows = [ours(1.1, 0.5), ours(2.0, 0.94), ours(10.0, 0.92)];
        assert_eq!(on_gunicorn_checks(&rows).map(|check| check.verdict()), ["met", "MISSED"]);
        assert_eq!(on_gunicorn_checks(&[]).map(|check| check.verdict()), ["not measured"; 2]);
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
            let file = stage::cluster_file("lab-a7", 20_000, system, Servers::Builtin);
            assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "run.toml").unwrap(), file);
            let cluster = file.cluster().unwrap();
            assert_eq!((cluster.sites.len(), cluster.nodes.len()), (2, NODES));
            assert_eq!(cluster.has_admission(), system != System::None, "{system:?}");
            let of = |site| cluster.nodes.iter().filter(|node| node.site == Some(site)).count();
            assert_eq!((of(HIGH), of(LOW)), (1, NODES - 1));
            assert!(HIGH_PER_S < CAPACITY_PER_S * cluster.sites[HIGH].share, "below its share");
        }
        let file = stage::cluster_file("lab-gunicorn", 20_000, System::Ours, Servers::Gunicorn);
        let nodes = file.cluster().unwrap().nodes;
        assert!(nodes.len() == NODES && nodes.iter().all(|node| node.is_foreign && node.workers.is_none()));
    }
}
