//! K5: what the others' clients notice when a cache of a cluster is killed (SIGKILL), and when it is back.
//!
//! One client asks the two other caches, in turn, for keys of all three, and changes some. It knows what each key may have.

mod client;
mod stage;

use std::time::Duration;

use serde::Serialize;

use crate::bench::Bench;
use crate::check::Check;
use crate::cpus;
use crate::drawing::{Drawing, legend};
use crate::error::Result;
use crate::figure::{Axis, Line, Panel, Style};
use crate::statistics::quantile;
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use client::{End, KEYS, Request, VALUE_BYTES};
use stage::{Played, Stage};

/// How often the cache is killed, and the time before it is, while it is dead, and once it is back.
const KILLS: [u32; 2] = [10, 3];
const TIME: Duration = Duration::from_secs(1);

/// Requests are normal again once in so much time not more than one of a hundred takes longer than [`NORMAL`] times the p99 from before,
/// and at least half as many are made.
const WINDOW: Duration = Duration::from_millis(50);
const NORMAL: f64 = 1.5;

/// What the third cache does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Phase {
    Alive,
    Dead,
    Back,
}

impl Phase {
    const ALL: [Phase; 3] = [Phase::Alive, Phase::Dead, Phase::Back];

    const fn name(self) -> &'static str {
        match self {
            Phase::Alive => "before",
            Phase::Dead => "it is dead",
            Phase::Back => "it is back",
        }
    }
}

/// The figures of one phase.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    /// The number of the kill, from 1.
    kill: u32,
    phase: Phase,
    requests: u64,
    hits: u64,
    misses: u64,
    /// Sets that were not carried out, as far as the client knows.
    failed: u64,
    wrong: u64,
    p50_us: f64,
    p99_us: f64,
    max_ms: f64,
    /// Time until requests were as before. `None` before the kill, and if they never were.
    normal_after_ms: Option<f64>,
}

impl Row {
    /// The phases of a kill.
    fn of(kill: u32, played: &Played) -> Vec<Row> {
        let Played { requests, killed, back } = played;
        let (alive, rest) = requests.split_at(requests.partition_point(|request| request.done <= *killed));
        let (dead, again) = rest.split_at(rest.partition_point(|request| request.done <= *back));
        let before = Before::of(alive);
        let row = |phase, requests: &[Request], since: Option<Duration>| {
            let mut took_us: Vec<_> =
                requests.iter().map(|request| request.took.as_secs_f64() * 1e6).collect();
            took_us.sort_by(f64::total_cmp);
            let at = |q| quantile(&took_us, q).unwrap_or(0.0);
            let count = |end| requests.iter().filter(|request| request.end == end).count() as u64;
            let normal_after = since.and_then(|since| before.as_ref()?.normal_after(requests, since));
            Row {
                kill,
                phase,
                requests: requests.len() as u64,
                hits: count(End::Hit),
                misses: count(End::Miss),
                failed: count(End::Failed),
                wrong: count(End::Wrong),
                p50_us: at(0.5),
                p99_us: at(0.99),
                max_ms: at(1.0) / 1e3,
                normal_after_ms: normal_after.map(|after| after.as_secs_f64() * 1e3),
            }
        };
        vec![
            row(Phase::Alive, alive, None),
            row(Phase::Dead, dead, Some(*killed)),
            row(Phase::Back, again, Some(*back)),
        ]
    }
}

/// What is normal.
struct Before {
    p99: Duration,
    per_s: f64,
}

impl Before {
    fn of(requests: &[Request]) -> Option<Before> {
        let mut took: Vec<_> = requests.iter().map(|request| request.took.as_secs_f64()).collect();
        took.sort_by(f64::total_cmp);
        let time = requests.last()?.done.saturating_sub(requests.first()?.done);
        let per_s = requests.len() as f64 / time.as_secs_f64();
        Some(Before { p99: Duration::from_secs_f64(quantile(&took, 0.99)?), per_s })
    }

    /// How long after `since` the requests are normal.
    fn normal_after(&self, requests: &[Request], since: Duration) -> Option<Duration> {
        let is_slow = |request: &Request| request.took > self.p99.mul_f64(NORMAL);
        let enough = self.per_s * WINDOW.as_secs_f64() / 2.0;
        let is_normal = |from: &Duration| {
            let begin = requests.partition_point(|request| request.done <= *from);
            let end = requests.partition_point(|request| request.done <= *from + WINDOW);
            let slow = requests[begin..end].iter().filter(|request| is_slow(request)).count();
            let count = end - begin;
            count as f64 >= enough && slow * 100 <= count
        };
        // It begins when one that took long is done, if not at once.
        let done = requests.iter().filter(|request| is_slow(request)).map(|request| request.done);
        [since].into_iter().chain(done).find(is_normal).map(|from| from - since)
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    kill: u32,
    phase: Phase,
    requests: u64,
    hits: u64,
    misses: u64,
    failed: u64,
    wrong: u64,
    p50_us: Fixed<1>,
    p99_us: Fixed<1>,
    max_ms: Fixed<3>,
    normal_after_ms: Option<Fixed<1>>,
}

/// Settings that all kills share.
#[derive(Serialize)]
struct Death {
    kills: u32,
    phase_s: f64,
    keys: u32,
    value_bytes: usize,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let kills = KILLS[usize::from(bench.options.quick)];
    // Before anything is started: without two the experiment cannot be made.
    cpus::two()?;
    study::run(bench, Death { kills, phase_s: TIME.as_secs_f64(), keys: KEYS, value_bytes: VALUE_BYTES })
}

impl Study for Death {
    type Row = Row;
    type Line = TableLine;

    fn plan(&self) -> Vec<Duration> {
        vec![TIME * Phase::ALL.len() as u32; self.kills as usize]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Death>) -> Result<()> {
        let mut stage = Stage::set(bench)?;
        for kill in 1..=self.kills {
            let name = bench.name(format!("kill-{kill}"));
            bench.begin(&name);
            let played = stage.play(bench, TIME)?;
            Row::of(kill, &played).into_iter().try_for_each(|row| rows.push(self, row))?;
            bench.end();
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row {
            kill,
            phase,
            requests,
            hits,
            misses,
            failed,
            wrong,
            p50_us,
            p99_us,
            max_ms,
            normal_after_ms,
        } = *row;
        vec![TableLine {
            kill,
            phase,
            requests,
            hits,
            misses,
            failed,
            wrong,
            p50_us: Fixed(p50_us),
            p99_us: Fixed(p99_us),
            max_ms: Fixed(max_ms),
            normal_after_ms: normal_after_ms.map(Fixed),
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("kill {}, {}: {what}", row.kill, row.phase.name());
        // With none before, nothing could be lost.
        let failed_max = if row.phase == Phase::Alive { 0.0 } else { f64::INFINITY };
        vec![
            Bound::new(of("requests"), row.requests as f64, 1.0..=f64::INFINITY),
            Bound::new(of("sets that failed"), row.failed as f64, 0.0..=failed_max),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        let panel = |title: &str, y: &str, figure: fn(&Row) -> Option<f64>| {
            let line = |(phase, style): (Phase, Style)| {
                let points =
                    of_phase(rows, phase).filter_map(|row| Some((f64::from(row.kill), figure(row)?)));
                Line::new(style.bars(), points.collect())
            };
            let lines: Vec<_> = STYLES.map(line).into();
            Panel {
                title: title.to_owned(),
                x: Axis::counting("kill", self.kills),
                y: Axis::from_zero(y, lines.iter().map(Line::most).fold(0.0, f64::max)),
                lines,
            }
        };
        Drawing {
            panels: vec![
                panel("requests are normal again after", "ms", |row| row.normal_after_ms),
                panel("99 of 100 are answered within", "µs", |row| Some(row.p99_us)),
                panel("the longest takes", "ms", |row| Some(row.max_ms)),
            ],
            legend: legend(STYLES.map(|(phase, style)| (phase.name(), style.bars()))),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        story.paragraph(&format!(
            "Three caches of a cluster share one CPU. A client on another CPU asks two of them, in turn, for {KEYS} keys of all three, one \
             request at a time; one of eight is a set. It compares each value, of {VALUE_BYTES} bytes, with what it has stored. The third \
             cache is killed (SIGKILL), and started again after {} s.",
            self.phase_s,
        ));
        story.checks();
        story.heading("Measured");
        let columns = [
            "kill",
            "the third cache",
            "requests",
            "hits, % of gets",
            "failed sets",
            "wrong values",
            "p50, µs",
            "p99, µs",
            "longest, ms",
            "normal after, ms",
        ];
        let cells = |row: &Row| {
            let gets = (row.hits + row.misses + row.wrong) as f64;
            vec![
                row.kill.to_string(),
                row.phase.name().to_owned(),
                row.requests.to_string(),
                number((gets > 0.0).then(|| 100.0 * row.hits as f64 / gets), 1),
                row.failed.to_string(),
                row.wrong.to_string(),
                number(Some(row.p50_us), 1),
                number(Some(row.p99_us), 1),
                number(Some(row.max_ms), 2),
                number(row.normal_after_ms, 1),
            ]
        };
        story.table(&columns, rows.iter().map(cells));
        story.how(&format!(
            "All items are stored anew before each kill. Requests are normal again from when on in {} ms at most 1 % take longer than {NORMAL} \
             times the p99 from before, and half as many or more are made. A value is wrong if it is another key's, is not whole, or was \
             replaced before it was asked for; what a set without an answer was to store may be there or not.",
            WINDOW.as_millis(),
        ));
    }
}

const STYLES: [(Phase, Style); 3] =
    [(Phase::Alive, Style::THIRD), (Phase::Dead, Style::OURS), (Phase::Back, Style::FOURTH)];

fn of_phase(rows: &[Row], phase: Phase) -> impl Iterator<Item = &Row> {
    rows.iter().filter(move |row| row.phase == phase)
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let wrong = rows.iter().map(|row| row.wrong as f64).reduce(|all, one| all + one);
    let mut checks = vec![Check::at_most("wrong values, all kills", 0.0, wrong)];
    for (phase, what) in [(Phase::Dead, "killed"), (Phase::Back, "started again")] {
        // That they never are takes longer than any.
        let after = |row: &Row| row.normal_after_ms.unwrap_or(f64::INFINITY);
        let mut times: Vec<_> = of_phase(rows, phase).map(after).collect();
        times.sort_by(f64::total_cmp);
        let what =
            format!("ms after a cache was {what} until the others' requests are normal, median of the kills");
        checks.push(Check::at_most(what, 150.0, quantile(&times, 0.5)));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Requests one after the other, each of which takes so many µs, from `begin` on.
    fn requests(begin: Duration, took_us: impl IntoIterator<Item = u64>) -> Vec<Request> {
        let mut now = begin;
        let one = |took: Duration| {
            now += took;
            Request { done: now, took, end: End::Hit }
        };
        took_us.into_iter().map(Duration::from_micros).map(one).collect()
    }

    #[test]
    fn requests_are_normal_from_when_on_few_are_slow_and_enough_are_made() {
        let before = Before::of(&requests(Duration::ZERO, [100; 10_000])).unwrap();
        assert_eq!(before.p99, Duration::from_micros(100));
        let after = |took_us: Vec<u64>| before.normal_after(&requests(1000 * MS, took_us), 1000 * MS);
        assert_eq!(after(vec![100; 2_000]), Some(Duration::ZERO));
        // One stands for 80 ms.
        assert_eq!(after([vec![100; 20], vec![80_000], vec![100; 1_000]].concat()), Some(82 * MS));
        // Each third is slow for 30 ms. The last four are not more than one of a hundred.
        let slow = [[100, 100, 300]; 60].concat();
        assert_eq!(after([slow.clone(), vec![100; 1_000]].concat()), Some(28 * MS));
        assert_eq!(after(slow.repeat(30)), None, "it never is");
        assert_eq!(after(vec![149; 400]), Some(Duration::ZERO), "half as many are enough");
        assert_eq!(after(vec![]), None);
    }

    #[test]
    fn phases_are_parted_by_when_the_cache_died_and_came_back() {
        let all = requests(Duration::ZERO, [1000; 300]);
        let mut played = Played { requests: all, killed: 100 * MS, back: 200 * MS };
        played.requests[150].end = End::Wrong;
        played.requests[160].end = End::Failed;
        let rows = Row::of(1, &played);
        let counts: Vec<_> = rows.iter().map(|row| (row.requests, row.wrong, row.failed)).collect();
        assert_eq!(counts, [(100, 0, 0), (100, 1, 1), (100, 0, 0)]);
        let normal: Vec<_> = rows.iter().map(|row| row.normal_after_ms).collect();
        assert_eq!(normal, [None, Some(0.0), Some(0.0)]);
        let verdicts = |rows: &[Row]| checks(rows).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&rows), ["MISSED", "met", "met"]);
        let never = Row { wrong: 0, normal_after_ms: None, ..rows[1].clone() };
        assert_eq!(verdicts(&[never]), ["met", "MISSED", "not measured"]);
    }
}
