//! QA: sessions of the auction that get through whole while more persons come than can be served. A person leaves at the first
//! rejection, so that what was spent on the session is lost.
//!
//! Each run has servers, and data, of its own. The systems take turns. What all servers together can serve is measured first, so that the
//! load is as high for those of any machine.

mod report;
mod stage;

use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};
use sidelong_workload::walk::{Completion, End, INTERACTIONS_MEAN, Interaction};

use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::figure::{Axis, Line, Panel, Style};
use crate::peers::{self, Found, Missing, Peer};
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use stage::{Load, Ran};

const NODES: usize = 2;
const WORKERS: u16 = 2;
/// CPUs of each node. With all of them busy, two thirds of a machine of two CPUs are left to the systems and to the persons.
const SHARE: f64 = 0.3;
/// The target: 99 of 100 answers begin within this time, the longest that does not interrupt a person's train of thought (Nielsen,
/// Usability Engineering, 1993, 5.5).
const TARGET: Duration = Duration::from_secs(1);
/// A person who gets no page within this time leaves.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of RUBiS's think times: a session takes some seconds.
const THINK_FACTOR: f64 = 0.02;
/// Longer than a person thinks (70 s at most, by the factor).
const VISIT: Duration = Duration::from_secs(5);
/// Requests that are worth more: forms, and the pages on the way to a bid or a purchase.
const WORTH_MORE: [&str; 3] = ["POST /", "/items/*/bid", "/items/*/buy"];

/// To find what the servers can serve: more persons than that, who leave at nothing and could ask for 1,000 requests/s. All begin at the
/// first page, which costs little, so that it takes some of their sessions until the mix is the usual one.
const PERSONS: u32 = 150;
const CAPACITY_TIME: Duration = Duration::from_secs(14);
const CAPACITY_SETTLE: Duration = Duration::from_secs(7);
/// Sessions that arrive, in those that could be served; in full and quick.
const LOADS: [&[f64]; 2] = [&[1.0, 2.0], &[JUDGED]];
/// The load that is judged.
const JUDGED: f64 = 2.0;
/// How long sessions arrive until it is measured: longer than one of them takes, as queues are full only then. And are measured, in full
/// and quick.
const SETTLE: Duration = Duration::from_secs(12);
const TIMES: [Duration; 2] = [Duration::from_secs(40), Duration::from_secs(14)];
/// Time to make the data, and to start and end a run.
const START: Duration = Duration::from_secs(10);

/// The target.
const RATIO_MIN: f64 = 1.2;
/// How late the load itself may be, at the 99th percentile.
const LAG_MS_MAX: f64 = 100.0;

/// A system under test. Those of ours differ in what is rejected last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum System {
    None,
    Peer(Peer),
    /// Clients are admitted or rejected, and nothing is rejected last.
    ByClient,
    /// Clients on a visit are.
    ByVisit,
    /// Requests that are worth more are.
    ByPriority,
    /// Both are.
    Ours,
}

/// Others that limit requests.
const PEERS: [Peer; 3] = [Peer::Haproxy, Peer::EnvoyAdaptive, Peer::EnvoyAdmission];
const OURS: [System; 4] = [System::ByClient, System::ByVisit, System::ByPriority, System::Ours];

impl System {
    const fn word(self) -> &'static str {
        match self {
            System::None => "none",
            System::Peer(peer) => peer.word(),
            System::ByClient => "by-client",
            System::ByVisit => "by-visit",
            System::ByPriority => "by-priority",
            System::Ours => "ours",
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
    /// In what all servers together can serve.
    offered_load: f64,
    system: System,
    /// The time that was measured. What follows is what happened in it.
    seconds: f64,
    /// Sessions that began, that got through whole, that an error or a rejection ended, and those of them whose first page it was.
    begun: u64,
    whole: u64,
    left: u64,
    left_at_first: u64,
    /// Bids and purchases that were stored.
    bids: u64,
    requests: u64,
    rejected: u64,
    failed: u64,
    /// Of those that were answered.
    p99_ms: Option<f64>,
    /// How late the load itself was, at the 99th percentile.
    lag_ms: f64,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    offered_load: f64,
    system: System,
    seconds: Fixed<1>,
    begun: u64,
    whole: u64,
    left: u64,
    left_at_first: u64,
    bids: u64,
    requests: u64,
    rejected: u64,
    failed: u64,
    p99_ms: Option<Fixed<1>>,
}

impl Row {
    fn of(offered_load: f64, system: System, ran: &Ran, time: Duration) -> Row {
        let window = ran.began + SETTLE..ran.began + SETTLE + time;
        let within: Vec<_> = ran.completions.iter().filter(|done| window.contains(&done_at(done))).collect();
        let count = |is: &dyn Fn(&Completion) -> bool| within.iter().filter(|done| is(done)).count() as u64;
        let is_answered = |done: &Completion| done.error.is_none();
        let is_rejected = |done: &Completion| done.error.is_some_and(|error| error.is_overload());
        let is_bid = |done: &Completion| {
            let is_one = matches!(done.interaction, Interaction::StoreBid | Interaction::StoreBuyNow);
            is_one && is_answered(done) && !done.is_against_rules
        };
        let mut times: Vec<Duration> =
            within.iter().filter(|done| is_answered(done)).map(|done| done.time).collect();
        times.sort_unstable();
        Row {
            offered_load,
            system,
            seconds: time.as_secs_f64(),
            begun: count(&|done| done.is_first),
            whole: count(&|done| done.end == Some(End::Whole)),
            left: count(&|done| done.end == Some(End::Left)),
            left_at_first: count(&|done| done.end == Some(End::Left) && done.is_first),
            bids: count(&is_bid),
            requests: within.len() as u64,
            rejected: count(&is_rejected),
            failed: count(&|done| !is_answered(done) && !is_rejected(done)),
            p99_ms: times.get(times.len() * 99 / 100).map(|time| time.as_secs_f64() * 1e3),
            lag_ms: ran.lag_ms,
        }
    }

    fn per_s(&self, count: u64) -> f64 {
        count as f64 / self.seconds
    }
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let quick = usize::from(bench.options.quick);
    let peers::Looked { here, missing } = peers::find(bench, &PEERS)?;
    let here = here.into_iter().map(|(peer, found)| (System::Peer(peer), Some(found)));
    let ours = OURS.map(|system| (system, None));
    let systems = [(System::None, None)].into_iter().chain(here).chain(ours).collect();
    let (loads, time) = (LOADS[quick], TIMES[quick]);
    let study = Sessions {
        run_s: time.as_secs_f64(),
        sessions_per_s: Vec::new(),
        told: Vec::new(),
        missing,
        systems,
        loads,
        time,
    };
    study::run(bench, study)
}

#[derive(Serialize)]
struct Sessions {
    run_s: f64,
    /// What all servers together can serve, in each repetition.
    sessions_per_s: Vec<f64>,
    /// What the others were told: name, version, configuration.
    told: Vec<(&'static str, String, String)>,
    missing: Vec<Missing>,
    #[serde(skip)]
    systems: Vec<(System, Option<Found>)>,
    #[serde(skip)]
    loads: &'static [f64],
    #[serde(skip)]
    time: Duration,
}

impl Study for Sessions {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = [3, 1];

    fn plan(&self) -> Vec<Duration> {
        let run = SETTLE + self.time + START;
        [CAPACITY_TIME + START].into_iter().chain(vec![run; self.loads.len() * self.systems.len()]).collect()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Sessions>) -> Result<()> {
        let name = bench.name("capacity");
        bench.begin(&name);
        let requests_per_s = capacity(bench, &name)?;
        bench.end();
        let sessions_per_s = requests_per_s / INTERACTIONS_MEAN;
        self.sessions_per_s.push(sessions_per_s);
        let place = stage::place(bench, requests_per_s);
        if self.told.is_empty() {
            let told = self.systems.iter().filter_map(|(system, found)| match (system, found) {
                (System::Peer(peer), Some(found)) => {
                    Some((peer.word(), found.version.clone(), peer.describe(&place)))
                }
                _ => None,
            });
            self.told = told.collect();
        }
        for &load in self.loads {
            for (system, found) in &self.systems {
                let name = bench.name(format!("{load}-{}", system.word()));
                bench.begin(&name);
                let per_s = load * sessions_per_s;
                let walk = Load::Arrive { per_s, time: SETTLE + self.time };
                let ran = stage::run(bench, *system, found.as_ref(), &place, &name, walk)?;
                bench.end();
                rows.push(self, Row::of(load, *system, &ran, self.time))?;
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { offered_load, system, begun, whole, left, left_at_first, bids, .. } = *row;
        vec![TableLine {
            offered_load,
            system,
            seconds: Fixed(row.seconds),
            begun,
            whole,
            left,
            left_at_first,
            bids,
            requests: row.requests,
            rejected: row.rejected,
            failed: row.failed,
            p99_ms: row.p99_ms.map(Fixed),
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("{}, load {}: {what}", row.system.word(), row.offered_load);
        let unanswered = (row.rejected + row.failed) as f64;
        vec![
            Bound::new(of("rejected or failed"), unanswered, row.left as f64..=row.requests as f64),
            Bound::new(of("sessions that left at once"), row.left_at_first as f64, 0.0..=row.left as f64),
            Bound::new(of("the load's own delay, p99, ms"), row.lag_ms, 0.0..=LAG_MS_MAX),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows).into()
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(self, rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        report::tell(self, rows, story);
    }
}

/// What all servers together can serve, in requests/s, of the mix that sessions have if none is cut short.
fn capacity(bench: &Bench<'_>, name: &str) -> Result<f64> {
    let walk = Load::Stay { persons: PERSONS, time: CAPACITY_TIME };
    let ran = stage::run(bench, System::None, None, &stage::place(bench, 1.0), name, walk)?;
    let within = ran.began + CAPACITY_SETTLE..ran.began + CAPACITY_TIME;
    let answered =
        ran.completions.iter().filter(|done| done.error.is_none() && within.contains(&done_at(done)));
    Ok(answered.count() as f64 / (within.end - within.start).as_secs_f64())
}

fn done_at(done: &Completion) -> Instant {
    done.sent_at + done.time
}

fn find(rows: &[Row], load: f64, system: System) -> Option<&Row> {
    rows.iter().find(|row| row.offered_load == load && row.system == system)
}

fn checks(rows: &[Row]) -> [Check; 3] {
    PEERS.map(|peer| {
        let whole = |system| find(rows, JUDGED, system).map(|row| row.per_s(row.whole));
        let both = whole(System::Ours).zip(whole(System::Peer(peer)));
        let ratio = both.filter(|(_, theirs)| *theirs > 0.0).map(|(ours, theirs)| ours / theirs);
        let what = format!("whole sessions at {JUDGED} times the load: ours / {}", peer.word());
        Check::at_least(what, RATIO_MIN, ratio)
    })
}

fn draw(study: &Sessions, rows: &[Row]) -> Drawing {
    let style = |at: usize| Style::series(at).bars();
    let panel = |title: &str, y: &str, figure: fn(&Row) -> f64| {
        let line = |(at, (system, _)): (usize, &(System, _))| {
            let points = (1..)
                .zip(study.loads)
                .filter_map(|(x, load)| Some((f64::from(x), figure(find(rows, *load, *system)?))));
            Line::new(style(at), points.collect())
        };
        let lines: Vec<Line> = study.systems.iter().enumerate().map(line).collect();
        let x = match study.loads.len() {
            1 => Axis { label: |_| JUDGED.to_string(), ..Axis::counting("load, of the capacity", 1) },
            loads => Axis::counting("load, of the capacity", loads as u32),
        };
        let y = Axis::from_zero(y, lines.iter().map(Line::most).fold(0.0, f64::max));
        Panel { title: title.to_owned(), x, y, lines }
    };
    let panels = vec![
        panel("(a) sessions that got through whole", "sessions/s", |row| row.per_s(row.whole)),
        panel("(b) bids and purchases", "stored/s", |row| row.per_s(row.bids)),
        panel("(c) answered requests", "p99 (ms)", |row| row.p99_ms.unwrap_or(0.0)),
    ];
    let legend = study.systems.iter().enumerate();
    let legend = legend.map(|(at, (system, _))| (system.word().to_owned(), style(at))).collect();
    Drawing { panels, legend, ..Drawing::default() }
}

#[cfg(test)]
mod tests {
    use sidelong_workload::client::ErrorKind;

    use super::*;

    fn row(system: System, offered_load: f64, whole: u64) -> Row {
        Row {
            offered_load,
            system,
            seconds: 10.0,
            begun: 100,
            whole,
            left: 40,
            left_at_first: 30,
            bids: 30,
            requests: 800,
            rejected: 35,
            failed: 5,
            p99_ms: Some(900.0),
            lag_ms: 1.0,
        }
    }

    #[test]
    fn what_happens_in_the_window_is_counted() {
        let began = Instant::now();
        let done = |at_s: f64, interaction, end| Completion {
            interaction,
            is_first: interaction == Interaction::Home,
            sent_at: began + Duration::from_secs_f64(SETTLE.as_secs_f64() + at_s),
            time: Duration::from_millis(500),
            error: None,
            is_against_rules: false,
            end,
        };
        let failed = |error, at_s| Completion {
            error: Some(error),
            end: Some(End::Left),
            ..done(at_s, Interaction::ViewItem, None)
        };
        let completions = vec![
            done(-0.6, Interaction::Home, None),
            done(-0.4, Interaction::Home, None),
            done(1.0, Interaction::StoreBid, Some(End::Whole)),
            Completion { is_against_rules: true, ..done(2.0, Interaction::StoreBid, None) },
            done(3.0, Interaction::StoreBuyNow, Some(End::Marred)),
            failed(ErrorKind::Unavailable, 4.0),
            failed(ErrorKind::Refused, 4.0),
            failed(ErrorKind::Timeout, 4.0),
            done(9.6, Interaction::StoreBid, Some(End::Whole)),
        ];
        let ran = Ran { completions, began, lag_ms: 2.0 };
        let row = Row::of(JUDGED, System::Ours, &ran, Duration::from_secs(10));
        assert_eq!((row.begun, row.whole, row.left, row.left_at_first, row.bids), (1, 1, 3, 0, 2));
        assert_eq!((row.requests, row.rejected, row.failed, row.p99_ms), (7, 2, 1, Some(500.0)));
        assert_eq!(row.per_s(row.bids), 0.2);
    }

    #[test]
    fn ours_is_judged_against_each_limiter_at_the_judged_load() {
        let peer = |at: usize, whole| row(System::Peer(PEERS[at]), JUDGED, whole);
        let rows = [
            row(System::Ours, 1.0, 10),
            row(System::Ours, JUDGED, 60),
            row(System::ByClient, JUDGED, 10),
            peer(0, 50),
            peer(1, 51),
        ];
        let verdicts = |rows: &[Row]| checks(rows).map(|check| check.verdict());
        assert_eq!(verdicts(&rows), ["met", "MISSED", "not measured"]);
        assert_eq!(verdicts(&rows[..1]), ["not measured"; 3]);
    }
}
