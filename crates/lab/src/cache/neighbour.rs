//! K2: what a get of a neighbour's item costs a cache of a cluster, beside one of its own, and beside memcached with a proxy in front.
//!
//! One request is under way at a time. So the time of a request is that of its path, and not of a queue.

mod report;
mod stage;

use std::time::Duration;

use serde::Serialize;

use super::client::{Asked, Request};
use crate::bench::Bench;
use crate::check::Check;
use crate::cpus::{self, Awake};
use crate::drawing::Drawing;
use crate::error::Result;
use crate::figure::Style;
use crate::statistics::quantile;
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use stage::{SETTLE, Stage};

/// Rounds, and the duration of a turn of each way in each case.
const ROUNDS: [u32; 2] = [5, 5];
const TIMES: [Duration; 2] = [Duration::from_secs(2), Duration::from_millis(300)];
/// Items of each home.
const ITEMS: usize = 1000;

/// What the client asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Case {
    operation: Operation,
    value_bytes: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Operation {
    Get,
    Set,
}

impl Case {
    const GETS: [Case; 2] = [Case::get(1024), Case::get(16 * 1024)];
    const SET: Case = Case { operation: Operation::Set, value_bytes: 1024 };
    const ALL: [Case; 3] = [Case::GETS[0], Case::GETS[1], Case::SET];

    const fn get(value_bytes: usize) -> Case {
        Case { operation: Operation::Get, value_bytes }
    }

    const fn operation(self) -> &'static str {
        match self.operation {
            Operation::Get => "get",
            Operation::Set => "set",
        }
    }

    fn name(self) -> String {
        format!("{} of {} KB", self.operation(), self.value_bytes / 1024)
    }

    /// The same where there is little room.
    fn short(self) -> String {
        format!("{} {} KB", self.operation(), self.value_bytes / 1024)
    }

    const fn request(self) -> Request {
        match self.operation {
            Operation::Get => Request::Gets,
            Operation::Set => Request::Sets,
        }
    }

    /// The ways that are compared.
    const fn ways(self) -> &'static [Way] {
        match self.operation {
            Operation::Get => &Way::ALL,
            Operation::Set => &[Way::Own, Way::Neighbour],
        }
    }
}

/// Where the item is, and who is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// Its home is the cache that is asked.
    Own,
    /// Its home is the other cache.
    Neighbour,
    /// The same, while the home is stopped.
    Stopped,
    /// It is in memcached.
    Memcached,
    /// It is there, and nutcracker is asked.
    Nutcracker,
    /// It is in a cache that belongs to no cluster, at a Unix socket.
    Unix,
    /// It is in memcached at a Unix socket.
    MemcachedUnix,
}

impl Way {
    const ALL: [Way; 7] = [
        Way::Own,
        Way::Neighbour,
        Way::Stopped,
        Way::Memcached,
        Way::Nutcracker,
        Way::Unix,
        Way::MemcachedUnix,
    ];

    const fn name(self) -> &'static str {
        match self {
            Way::Own => "own item",
            Way::Neighbour => "neighbour's item",
            Way::Stopped => "neighbour's, home stopped",
            Way::Memcached => "memcached",
            Way::Nutcracker => "memcached through nutcracker",
            Way::Unix => "own item, Unix socket",
            Way::MemcachedUnix => "memcached, Unix socket",
        }
    }

    const fn style(self) -> Style {
        match self {
            Way::Own => Style::OURS,
            Way::Neighbour => Style::FIFTH,
            Way::Stopped => Style::THIRD,
            Way::Memcached => Style::BASELINE,
            Way::Nutcracker => Style::FOURTH,
            Way::Unix => Style::series(5),
            Way::MemcachedUnix => Style::series(6),
        }
    }
}

/// The figures of one turn.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    /// The round, from 1.
    round: u32,
    #[serde(flatten)]
    case: Case,
    way: Way,
    p50_us: f64,
    p99_us: f64,
    requests_per_s: f64,
    /// CPU time of the server that is asked, for each request.
    cpu_us: f64,
    /// The same of the server behind it, if one runs: the item's home, the idle neighbour, or memcached.
    behind_cpu_us: Option<f64>,
    /// Gets that found nothing.
    misses: u64,
}

impl Row {
    /// `cpu` is the CPU time of the server that is asked, and of the one behind it.
    fn new(round: u32, case: Case, way: Way, mut asked: Asked, cpu: &[Duration]) -> Row {
        asked.took_us.sort_by(f64::total_cmp);
        let at = |q| quantile(&asked.took_us, q).expect("at least one request was made");
        let count = asked.took_us.len() as f64;
        let cpu_us = |cpu: &Duration| cpu.as_secs_f64() * 1e6 / count;
        Row {
            round,
            case,
            way,
            p50_us: at(0.5),
            p99_us: at(0.99),
            requests_per_s: count / asked.time.as_secs_f64(),
            cpu_us: cpu_us(&cpu[0]),
            behind_cpu_us: cpu.get(1).map(cpu_us),
            misses: asked.misses,
        }
    }

    /// CPUs that the servers kept busy.
    fn cpus(&self) -> f64 {
        (self.cpu_us + self.behind_cpu_us.unwrap_or(0.0)) * self.requests_per_s / 1e6
    }

    /// CPU time of the server behind the one that is asked, in ms for a million requests.
    fn behind_ms(&self) -> Option<f64> {
        self.behind_cpu_us.map(|us| us * 1e3)
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    round: u32,
    operation: Operation,
    value_bytes: usize,
    way: Way,
    p50_us: Fixed<2>,
    p99_us: Fixed<2>,
    requests_per_s: Fixed<0>,
    cpu_us: Fixed<3>,
    behind_cpu_us: Option<Fixed<4>>,
    misses: u64,
}

/// Settings that all turns share.
#[derive(Serialize)]
struct Neighbours {
    turn_s: f64,
    items: usize,
    #[serde(skip)]
    time: Duration,
    /// The servers, which run from the first round.
    #[serde(skip)]
    stage: Option<Stage>,
    /// What is not here.
    missing: Option<&'static str>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let time = TIMES[usize::from(bench.options.quick)];
    // Before anything is started: without two the experiment cannot be made.
    cpus::two()?;
    study::run(bench, Neighbours::new(time))
}

impl Neighbours {
    fn new(time: Duration) -> Neighbours {
        Neighbours { turn_s: time.as_secs_f64(), items: ITEMS, time, stage: None, missing: None }
    }
}

impl Study for Neighbours {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = ROUNDS;

    fn plan(&self) -> Vec<Duration> {
        let turns: usize = Case::ALL.iter().map(|case| case.ways().len()).sum();
        vec![(self.time + SETTLE) * turns as u32]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Neighbours>) -> Result<()> {
        let round = bench.repetition;
        if self.stage.is_none() {
            let stage = Stage::set(bench)?;
            self.missing = stage.missing();
            self.stage = Some(stage);
        }
        let stage = self.stage.as_ref().expect("it is set");
        bench.begin(&format!("round-{round}"));
        let _awake = Awake::hold(&cpus::two()?)?;
        for case in Case::ALL {
            stage.fill(case.value_bytes)?;
            let mut ways = case.ways().to_vec();
            // The order alternates.
            if round.is_multiple_of(2) {
                ways.reverse();
            }
            for way in ways {
                bench.go_on()?;
                if let Some((asked, cpu)) = stage.turn(case, way, self.time)? {
                    rows.push(self, Row::new(round, case, way, asked, &cpu))?;
                }
            }
        }
        bench.end();
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { round, case, way, p50_us, p99_us, requests_per_s, cpu_us, behind_cpu_us, misses } = *row;
        vec![TableLine {
            round,
            operation: case.operation,
            value_bytes: case.value_bytes,
            way,
            p50_us: Fixed(p50_us),
            p99_us: Fixed(p99_us),
            requests_per_s: Fixed(requests_per_s),
            cpu_us: Fixed(cpu_us),
            behind_cpu_us: behind_cpu_us.map(Fixed),
            misses,
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("round {}, {}, {}: {what}", row.round, row.case.name(), row.way.name());
        // Whether all are found while the home is stopped is a target.
        let misses_max = if row.way == Way::Stopped { f64::INFINITY } else { 0.0 };
        vec![
            // All servers are held to one CPU, whose time the kernel counts in ticks.
            Bound::new(of("CPUs in use"), row.cpus(), 0.0..=1.1),
            Bound::new(of("p50, µs"), row.p50_us, 0.0..=row.p99_us),
            Bound::new(of("gets that found nothing"), row.misses as f64, 0.0..=misses_max),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        report::draw(rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        report::tell(self, rows, story);
    }
}

/// A figure of a row, by its name.
type Figure = (&'static str, fn(&Row) -> f64);
const P50: Figure = ("p50", |row| row.p50_us);
const P99: Figure = ("p99", |row| row.p99_us);

fn checks(rows: &[Row]) -> Vec<Check> {
    let compare = |case: Case, (name, figure): Figure, [of, to]: [Way; 2], most: f64| {
        let what = format!("{}: {name}, {} / {}, median of the rounds", case.name(), of.name(), to.name());
        Check::at_most(what, most, ratio(rows, case, [of, to], figure))
    };
    let of_gets = |case: Case| {
        let row = |way| find(rows, case, way);
        let home = format!(
            "{}: CPU time of the home beyond what it takes idle, ms for a million of its items read by others",
            case.name()
        );
        let stopped = format!("{}: gets that found nothing while the home was stopped", case.name());
        [
            compare(case, P50, [Way::Neighbour, Way::Own], 1.15),
            compare(case, P50, [Way::Neighbour, Way::Nutcracker], 0.7),
            compare(case, P50, [Way::Own, Way::Memcached], 1.05),
            compare(case, P99, [Way::Own, Way::Memcached], 1.1),
            compare(case, P50, [Way::Unix, Way::MemcachedUnix], 1.05),
            compare(case, P99, [Way::Unix, Way::MemcachedUnix], 1.1),
            Check::at_most(home, 10.0, home_ms(rows, case)),
            Check::at_most(stopped, 0.0, row(Way::Stopped).map(|row| row.misses as f64)),
        ]
    };
    let mut checks = Case::GETS.map(of_gets).concat();
    checks.push(compare(Case::SET, P50, [Way::Neighbour, Way::Own], 2.2));
    checks
}

/// CPU time that a million reads of its items by another cache cost the home, in ms: what it takes beyond [`idle_ms`].
fn home_ms(rows: &[Row], case: Case) -> Option<f64> {
    let all = find(rows, case, Way::Neighbour)?.behind_ms()?;
    Some((all - idle_ms(rows, case)?).max(0.0))
}

/// CPU time of the idle neighbour in the time in which a million of its items are read, in ms.
fn idle_ms(rows: &[Row], case: Case) -> Option<f64> {
    let idle = find(rows, case, Way::Own)?;
    let reads_per_s = find(rows, case, Way::Neighbour)?.requests_per_s;
    Some(idle.behind_ms()? * idle.requests_per_s / reads_per_s)
}

fn find(rows: &[Row], case: Case, way: Way) -> Option<&Row> {
    rows.iter().find(|row| row.case == case && row.way == way)
}

/// The ratio of one way to another. `None` if one is missing.
fn ratio(rows: &[Row], case: Case, [of, to]: [Way; 2], figure: fn(&Row) -> f64) -> Option<f64> {
    let figure = |way| find(rows, case, way).map(figure);
    Some(figure(of)? / figure(to).filter(|to| *to > 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a round in which each target is just met.
    fn rows() -> Vec<Row> {
        let row = |case: Case, way: Way| {
            let (p50_us, p99_us) = match (case.operation, way) {
                (Operation::Set, Way::Own) => (20.0, 80.0),
                (Operation::Set, _) => (44.0, 80.0),
                (_, Way::Own) => (20.0, 44.0),
                (_, Way::Unix) => (10.5, 22.0),
                (_, Way::MemcachedUnix) => (10.0, 20.0),
                (_, Way::Neighbour | Way::Stopped) => (23.0, 50.0),
                (_, Way::Memcached) => (20.0, 40.0),
                (_, Way::Nutcracker) => (40.0, 90.0),
            };
            let behind_cpu_us = match way {
                Way::Own => Some(0.001),
                Way::Neighbour => Some(0.011),
                Way::Stopped | Way::Memcached | Way::Unix | Way::MemcachedUnix => None,
                Way::Nutcracker => Some(9.0),
            };
            let requests_per_s = 1e6 / p50_us;
            Row { round: 1, case, way, p50_us, p99_us, requests_per_s, cpu_us: 8.0, behind_cpu_us, misses: 0 }
        };
        let of = |case: Case| case.ways().iter().map(move |way| row(case, *way));
        Case::ALL.into_iter().flat_map(of).collect()
    }

    #[test]
    fn each_way_is_judged_beside_another() {
        let verdicts = |rows: &[Row]| checks(rows).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&rows()), ["met"; 17]);
        let changed = |case: Case, way: Way, change: fn(&mut Row)| {
            let mut rows = rows();
            change(rows.iter_mut().find(|row| row.case == case && row.way == way).unwrap());
            let missed = verdicts(&rows).into_iter().enumerate().filter(|(_, verdict)| *verdict == "MISSED");
            missed.map(|(at, _)| at).collect::<Vec<_>>()
        };
        let [small, large] = Case::GETS;
        assert_eq!(changed(small, Way::Neighbour, |row| row.p50_us = 23.5), [0]);
        assert_eq!(changed(small, Way::Unix, |row| row.p50_us = 10.6), [4]);
        assert_eq!(changed(small, Way::MemcachedUnix, |row| row.p99_us = 19.0), [5]);
        assert_eq!(changed(large, Way::Nutcracker, |row| row.p50_us = 30.0), [9]);
        assert_eq!(changed(small, Way::Memcached, |row| row.p50_us = 19.0), [2]);
        assert_eq!(changed(small, Way::Own, |row| row.p99_us = 45.0), [3]);
        assert_eq!(changed(large, Way::Neighbour, |row| row.behind_cpu_us = Some(0.0112)), [14]);
        assert_eq!(changed(large, Way::Stopped, |row| row.misses = 1), [15]);
        assert_eq!(changed(Case::SET, Way::Neighbour, |row| row.p50_us = 45.0), [16]);

        let mut without = rows();
        without.retain(|row| row.way != Way::Nutcracker);
        assert_eq!(verdicts(&without).iter().filter(|verdict| **verdict == "not measured").count(), 2);
    }

    #[test]
    fn what_a_home_takes_idle_is_not_the_cost_of_reads() {
        let case = Case::GETS[0];
        let row = |way, requests_per_s, behind_cpu_us| Row {
            requests_per_s,
            behind_cpu_us: Some(behind_cpu_us),
            ..find(&rows(), case, way).unwrap().clone()
        };
        let idle = row(Way::Own, 50_000.0, 0.004);
        // Idle, it takes 200 µs of each of the 25 seconds.
        for (behind_cpu_us, expected) in [(0.009, 4.0), (0.004, 0.0)] {
            let rows = [idle.clone(), row(Way::Neighbour, 40_000.0, behind_cpu_us)];
            let found = home_ms(&rows, case).unwrap();
            assert!((found - expected).abs() < 1e-9, "{found}");
        }
        assert_eq!(home_ms(&[row(Way::Neighbour, 40_000.0, 0.009)], case), None);
    }

    #[test]
    fn a_row_has_the_figures_of_its_requests() {
        let asked = Asked {
            took_us: (1..=200).rev().map(f64::from).collect(),
            misses: 3,
            time: Duration::from_millis(20),
        };
        let cpu = [1000, 2].map(Duration::from_micros);
        let row = Row::new(2, Case::GETS[1], Way::Neighbour, asked, &cpu);
        assert_eq!((row.p50_us, row.p99_us, row.behind_ms()), (100.0, 198.0, Some(10.0)));
        let study = Neighbours::new(TIMES[0]);
        let [columns, line] = crate::table::written(study.lines(&row).remove(0));
        assert_eq!(
            columns,
            "round,operation,value_bytes,way,p50_us,p99_us,requests_per_s,cpu_us,behind_cpu_us,misses"
        );
        assert_eq!(line, "2,get,16384,neighbour,100.00,198.00,10000,5.000,0.0100,3");
        let alone = Row { behind_cpu_us: None, ..row };
        assert!(crate::table::written(study.lines(&alone).remove(0))[1].ends_with(",5.000,,3"));
    }

    #[test]
    fn an_item_that_is_not_found_makes_other_figures_impossible() {
        let study = Neighbours::new(TIMES[0]);
        let missed = |way: Way| {
            let row = rows().into_iter().find(|row| row.way == way).unwrap();
            study.bounds(&Row { misses: 1, ..row }).iter().filter(|bound| bound.broken().is_some()).count()
        };
        assert_eq!(Way::ALL.map(missed), [1, 1, 0, 1, 1, 1, 1]);
    }
}
