//! A3 and A4: response times and rejections over time (Lai et al. 2008, "Instant performance").

use std::time::Duration;

use serde::Serialize;
use sidelong_figure::Panel;
use sidelong_figure::statistics::quantile;

use super::watch::{
    self, INTERVAL_S, Interval, Loop, Ready, Streaks, Watched, above, correlation, over_time,
};
use super::{CLIENTS_AT_ONE_LOAD, HARDWARE, System};
use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use crate::up::Fate;

/// Number of runs of each case, and the duration of one, in whole bursts.
const ROUNDS: u32 = 3;
const TIMES: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(4)];
const LOADS: [(Loop, u32); 2] = [(Loop::Closed, CLIENTS_AT_ONE_LOAD), (Loop::Open, CLIENTS_AT_ONE_LOAD)];
/// A very long response, which the slides do not define: longer than their mean without admission at the most clients.
const LONG_MS: f64 = 192.0;
/// Largest share that counts as "almost no such requests".
const ALMOST_NONE: f64 = 0.01;
/// Correlation from which one series explains at least half of the variance of the other (the root of 0.5).
const FOLLOWS: f64 = 0.7;

/// The figures of a run of one system under one load.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    #[serde(rename = "loop")]
    kind: Loop,
    clients: u32,
    system: System,
    round: u32,
    answered: usize,
    rejected: usize,
    failed: usize,
    mean_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
    /// Share of the answered requests that took longer than [`LONG_MS`].
    long: Option<f64>,
    /// Correlation of the rejection rate with the offered load, by intervals.
    follows: Option<f64>,
    drops: Streaks,
    acceptances: Streaks,
    #[serde(skip)]
    intervals: Vec<Interval>,
}

impl Row {
    fn new(run: &Watched, run_s: f64) -> Row {
        let intervals = run.intervals(run_s, LONG_MS);
        let times_ms = run.times_ms();
        Row {
            kind: run.kind,
            clients: run.clients,
            system: run.system,
            round: run.round,
            answered: times_ms.len(),
            rejected: run.turned_away(),
            failed: run.failed(),
            mean_ms: run.mean_ms(),
            p99_ms: quantile(&times_ms, 0.99),
            max_ms: quantile(&times_ms, 1.0),
            long: above(&times_ms, LONG_MS),
            follows: follows(&intervals),
            drops: run.streaks(Fate::TurnedAway),
            acceptances: run.streaks(Fate::Answered),
            intervals,
        }
    }

    const fn streaks(&self, fate: Fate) -> &Streaks {
        match fate {
            Fate::TurnedAway => &self.drops,
            Fate::Answered | Fate::Failed => &self.acceptances,
        }
    }
}

/// How closely rejections follow the offered load.
fn follows(intervals: &[Interval]) -> Option<f64> {
    let settled = intervals.iter().filter(|interval| interval.t_s >= watch::SETTLED_S);
    let pairs: Vec<_> = settled.map(|interval| (interval.offered as f64, interval.drop_rate())).collect();
    correlation(&pairs)
}

/// Which of the two studies is judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    Responses,
    Drops,
}

/// A line of `rows.csv`: an interval of a run.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum TableLine {
    Response {
        t_s: Fixed<3>,
        system: System,
        response_ms: Fixed<3>,
        #[serde(rename = "loop")]
        kind: Loop,
        round: u32,
        response_ms_max: Fixed<3>,
    },
    Drop {
        t_s: Fixed<3>,
        system: System,
        drop_rate: Fixed<4>,
        #[serde(rename = "loop")]
        kind: Loop,
        round: u32,
        offered: u64,
    },
}

pub(crate) fn responses(bench: &mut Bench<'_>) -> Result<Conclusion> {
    run(bench, Of::Responses)
}

pub(crate) fn drops(bench: &mut Bench<'_>) -> Result<Conclusion> {
    run(bench, Of::Drops)
}

fn run(bench: &mut Bench<'_>, of: Of) -> Result<Conclusion> {
    let time = TIMES[usize::from(bench.options.quick)];
    let ready = Ready::new(bench, LOADS.into(), time)?;
    study::run(bench, Instant { ready, of })
}

#[derive(Serialize)]
struct Instant {
    #[serde(flatten)]
    ready: Ready,
    #[serde(skip)]
    of: Of,
}

impl Study for Instant {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = [ROUNDS; 2];

    fn plan(&self) -> Vec<Duration> {
        self.ready.plan()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Instant>) -> Result<()> {
        let of = self.of;
        self.ready.watch_all(bench, |ready, run| {
            let row = Row::new(&run, ready.run_s);
            rows.push_lines(lines(of, &row), row)
        })
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        lines(self.of, row)
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("{} loop, {}: {what}", row.kind.word(), row.system.word());
        let share = row.long.map(|long| Bound::share(of("answers that took long"), long));
        let follows = row.follows.map(|follows| Bound::new(of("correlation"), follows, -1.0..=1.0));
        let mean = row
            .mean_ms
            .map(|mean| Bound::new(of("mean, ms"), mean, 0.0..=row.max_ms.unwrap_or(f64::INFINITY)));
        [share, follows, mean].into_iter().flatten().collect()
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        match self.of {
            Of::Responses => checks_of_responses(rows),
            Of::Drops => checks_of_drops(rows),
        }
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(self, rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        tell(self, rows, story);
    }
}

/// An interval without an answer has no response time.
fn lines(of: Of, row: &Row) -> Vec<TableLine> {
    let Row { system, kind, round, .. } = *row;
    let line = |interval: &Interval| {
        let t_s = Fixed(interval.t_s);
        Some(match of {
            Of::Drops => {
                let (drop_rate, offered) = (Fixed(interval.drop_rate()), interval.offered);
                TableLine::Drop { t_s, system, drop_rate, kind, round, offered }
            }
            Of::Responses => {
                let (response_ms, response_ms_max) = (Fixed(interval.mean_ms?), Fixed(interval.max_ms?));
                TableLine::Response { t_s, system, response_ms, kind, round, response_ms_max }
            }
        })
    };
    row.intervals.iter().filter_map(line).collect()
}

fn find(rows: &[Row], kind: Loop, system: System) -> Option<&Row> {
    rows.iter().find(|row| row.kind == kind && row.system == system)
}

/// Lai et al. 2008: "NoAC: many requests served with very long time; AC-RDMA: almost no such requests".
fn checks_of_responses(rows: &[Row]) -> Vec<Check> {
    let places =
        Loop::ALL.iter().flat_map(|kind| [System::OneSided, System::Ours].map(|system| (*kind, system)));
    let check = |(kind, system): (Loop, System)| {
        let what =
            format!("{} loop, {}: answers that took more than {LONG_MS} ms", kind.word(), system.word());
        Check::at_most(what, ALMOST_NONE, find(rows, kind, system).and_then(|row| row.long))
            .possible(0.0..=1.0)
    };
    places.map(check).collect()
}

/// Lai et al. 2008: "AC-RDMA: closely reflects the instantaneous changing load on web servers. AC-TCP/IP: longer streak of continuous
/// drops or acceptance".
fn checks_of_drops(rows: &[Row]) -> Vec<Check> {
    let follow = [System::OneSided, System::Ours].map(|system| {
        let what = format!("open loop, {}: drop rate with what is offered, correlation", system.word());
        Check::at_least(what, FOLLOWS, find(rows, Loop::Open, system).and_then(|row| row.follows))
            .possible(-1.0..=1.0)
    });
    let streaks = Loop::ALL.iter().flat_map(|kind| {
        [("drops", Fate::TurnedAway), ("acceptance", Fate::Answered)].map(|(what, fate)| {
            let mean = |system| find(rows, *kind, system).and_then(|row| row.streaks(fate).mean());
            let ratio = mean(System::Tcp).zip(mean(System::OneSided)).map(|(tcp, one_sided)| tcp / one_sided);
            Check::at_least(
                format!("{} loop, mean streak of {what}: tcp / one-sided", kind.word()),
                1.0,
                ratio,
            )
        })
    });
    follow.into_iter().chain(streaks).collect()
}

fn draw(study: &Instant, rows: &[Row]) -> Drawing {
    let (y_title, limit) = match study.of {
        Of::Responses => ("mean response (ms)", Some(LONG_MS)),
        Of::Drops => ("rejected, of all asked", None),
    };
    let panel = |((kind, clients), letter): ((Loop, u32), char)| -> Panel {
        let points = |system| {
            let intervals = find(rows, kind, system).map_or(&[][..], |row| &row.intervals).iter();
            let point = |interval: &Interval| match study.of {
                Of::Responses => Some((interval.t_s, interval.mean_ms?)),
                Of::Drops => Some((interval.t_s, interval.drop_rate())),
            };
            intervals.filter_map(point).collect()
        };
        over_time(kind.title(letter, clients), y_title, study.ready.run_s, points, limit)
    };
    Drawing {
        panels: LOADS.into_iter().zip('a'..).map(panel).collect(),
        legend: System::ALL.map(|system| (system.word().to_owned(), system.style().bare())).into(),
        dashed: Some("192 ms, the published mean with 520 clients and no admission control"),
        is_one_repetition: true,
    }
}

fn tell(study: &Instant, rows: &[Row], report: &mut Story) {
    let of = study.of;
    report.heading("The paper beside ours");
    report.paragraph(match of {
        Of::Responses => {
            "Lai et al. 2008, 400 clients: \"Instant response time: NoAC: many requests served with very long time. AC-RDMA: almost no such \
             requests. AC-TCP/IP: some requests with long response time\"."
        }
        Of::Drops => {
            "Lai et al. 2008, 400 clients: \"Instant drop rate: AC-RDMA: closely reflects the instantaneous changing load on web servers. \
             AC-TCP/IP: longer streak of continuous drops or acceptance. NoAC: a lot of acceptance; some drops because of \
             timeout\"."
        }
    });
    report.checks();
    report.heading("Measured");
    let head = |row: &Row| vec![row.kind.word().to_owned(), row.system.word().to_owned()];
    match of {
        Of::Responses => report.table(
            &["loop", "system", "answers", "mean, ms", "p99, ms", "longest, ms", "of them long", "rejected"],
            rows.iter().map(|row| {
                let times = [row.mean_ms, row.p99_ms, row.max_ms].map(|ms| number(ms, 0));
                let counts = [row.answered.to_string(), row.rejected.to_string()];
                let [answered, rejected] = counts;
                let long = number(row.long, 4);
                head(row).into_iter().chain([answered]).chain(times).chain([long, rejected]).collect()
            }),
        ),
        Of::Drops => report.table(
            &[
                "loop",
                "system",
                "rejected, of all",
                "follows the load",
                "streaks of drops: mean, longest",
                "longest, ms",
                "of acceptance: mean, longest",
                "longest, ms",
            ],
            rows.iter().map(|row| {
                let asked = (row.rejected + row.answered).max(1);
                let away = number(Some(row.rejected as f64 / asked as f64), 3);
                let streaks = [&row.drops, &row.acceptances].map(|streaks| {
                    let lengths = format!("{}, {}", number(streaks.mean(), 1), streaks.longest);
                    [lengths, number(Some(streaks.longest_ms), 1)]
                });
                let cells = [away, number(row.follows, 2)];
                head(row).into_iter().chain(cells).chain(streaks.into_iter().flatten()).collect()
            }),
        ),
    }
    report.paragraph(match of {
        Of::Responses => "A point of the figure is the mean of the answers that were due within 0.1 s; `rows.csv` has the longest, too.",
        Of::Drops => {
            "A streak is of requests that one edge got one after the other. What is offered is given in the open loop only: in a \
             closed one rejected clients pause, and so set it. Sidelong rejects whole clients, so its streaks are of clients whose \
             requests come."
        }
    });
    report.list([
        HARDWARE.to_owned(),
        format!("What the slides call long, and the points of their figures: {LONG_MS} ms is their mean without admission with 520 clients."),
    ]);
    let how = format!(
        "{} An interval is {INTERVAL_S} s. The figure shows the first repetition.",
        watch::describe(&study.ready)
    );
    let failed: usize = rows.iter().map(|row| row.failed).sum();
    report.how(&format!("{how} {failed} requests failed."));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::Request;

    /// Requests at one edge 1 ms apart, whose outcomes repeat in this order.
    fn watched(kind: Loop, system: System, fates: &[Fate], response_ms: f64) -> Watched {
        let request = |(n, fate): (u32, &Fate)| {
            let due_s = 1.0 + f64::from(n) / 1e3;
            Request { due_s, sent_s: due_s, site: "a".into(), edge: "edge1".into(), fate: *fate, response_ms }
        };
        let requests = (0..1000).zip(fates.iter().cycle()).map(request).collect();
        Watched { kind, clients: 400, system, round: 1, requests }
    }

    #[test]
    fn the_papers_words_are_met_by_what_they_describe() {
        use Fate::{Answered, TurnedAway};
        let short = [TurnedAway, Answered];
        let long = [TurnedAway, TurnedAway, TurnedAway, Answered, Answered];
        let rows: Vec<_> = Loop::ALL
            .into_iter()
            .flat_map(|kind| {
                let one_sided = watched(kind, System::OneSided, &short, 100.0);
                let tcp = watched(kind, System::Tcp, &long, 250.0);
                [one_sided, tcp].map(|run| Row::new(&run, 2.0))
            })
            .collect();
        let verdicts = |checks: Vec<Check>| checks.iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(checks_of_responses(&rows)), ["met", "not measured", "met", "not measured"]);
        // This load never changes, so nothing can follow it.
        let checks = checks_of_drops(&rows);
        assert_eq!(verdicts(checks), ["not measured", "not measured", "met", "met", "met", "met"]);
        let slow = watched(Loop::Open, System::OneSided, &short, 200.0);
        let slow = [Row::new(&slow, 2.0)];
        assert_eq!(checks_of_responses(&slow)[2].verdict(), "MISSED");
    }

    #[test]
    fn a_row_is_an_interval() {
        let watched = watched(Loop::Open, System::Ours, &[Fate::Answered, Fate::TurnedAway], 7.0);
        let row = Row::new(&watched, 1.2);
        let written = |of| lines(of, &row).into_iter().map(crate::table::written).collect::<Vec<_>>();
        let drops = written(Of::Drops);
        assert_eq!(drops[0], ["t_s,system,drop_rate,loop,round,offered", "1.050,ours,0.5000,open,1,100"]);
        assert_eq!(drops[1][1], "1.150,ours,0.5000,open,1,100");
        let responses = written(Of::Responses);
        assert_eq!(
            responses[0],
            ["t_s,system,response_ms,loop,round,response_ms_max", "1.050,ours,7.000,open,1,7.000"]
        );
    }
}
