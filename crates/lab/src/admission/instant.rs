//! A3 and A4: response times and who is turned away, over time (A, "Instant performance").

use std::time::Duration;

use serde::Serialize;

use super::watch::{
    self, INTERVAL_S, Loop, Ready, Streaks, Watched, above, correlation, middle, over_time, rounds, typical,
    watch_all,
};
use super::{CLIENTS_AT_ONE_LOAD, System};
use crate::bench::Bench;
use crate::check::{Check, quantile};
use crate::error::Result;
use crate::figure::{self, Look, Panel};
use crate::machine::Machine;
use crate::report::{Markdown, Outcome, number};
use crate::up::Fate;

/// Runs of each, and how long one takes: whole bursts.
const ROUNDS: (u32, Duration) = (3, Duration::from_secs(20));
const ROUNDS_QUICK: (u32, Duration) = (3, Duration::from_secs(4));
const LOADS: [(Loop, u32); 2] = [(Loop::Closed, CLIENTS_AT_ONE_LOAD), (Loop::Open, CLIENTS_AT_ONE_LOAD)];
/// What is a very long response, which A does not say: longer than A's mean without admission at its most clients.
const LONG_MS: f64 = 192.0;
/// "Almost no such requests".
const ALMOST_NONE: f64 = 0.01;
/// What follows another explains at least half of how it varies: 0.7 is the root of that.
const FOLLOWS: f64 = 0.7;

/// What the rounds of one system under one load come to: sums of counts, medians of the rest.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    #[serde(rename = "loop")]
    kind: Loop,
    system: System,
    answered: usize,
    turned_away: usize,
    failed: usize,
    mean_ms: Option<f64>,
    p99_ms: Option<f64>,
    max_ms: Option<f64>,
    /// Of those answered, how many took longer than [`LONG_MS`].
    long: Option<f64>,
    /// Of the drop rate with what was offered, by intervals.
    follows: Option<f64>,
    drops: Streaks,
    acceptances: Streaks,
}

impl Row {
    fn new(kind: Loop, system: System, rounds: &[&Watched], run_s: f64) -> Row {
        let streaks = |fate| {
            let each = rounds.iter().map(|run| run.streaks(fate));
            each.fold(Streaks::default(), Streaks::add)
        };
        Row {
            kind,
            system,
            answered: rounds.iter().map(|run| run.times_ms().len()).sum(),
            turned_away: rounds.iter().map(|run| run.turned_away()).sum(),
            failed: rounds.iter().map(|run| run.failed()).sum(),
            mean_ms: middle(rounds, Watched::mean_ms),
            p99_ms: middle(rounds, |run| quantile(&run.times_ms(), 0.99)),
            max_ms: middle(rounds, |run| quantile(&run.times_ms(), 1.0)),
            long: middle(rounds, |run| above(&run.times_ms(), LONG_MS)),
            follows: middle(rounds, |run| follows(run, run_s)),
            drops: streaks(Fate::TurnedAway),
            acceptances: streaks(Fate::Answered),
        }
    }

    const fn streaks(&self, fate: Fate) -> &Streaks {
        match fate {
            Fate::TurnedAway => &self.drops,
            Fate::Answered | Fate::Failed => &self.acceptances,
        }
    }
}

/// How far who is turned away follows who asks.
fn follows(run: &Watched, run_s: f64) -> Option<f64> {
    let intervals = run.intervals(run_s, LONG_MS);
    let settled = intervals.iter().filter(|interval| interval.t_s >= watch::SETTLED_S);
    let pairs: Vec<_> = settled.map(|interval| (interval.offered as f64, interval.drop_rate())).collect();
    correlation(&pairs)
}

/// What is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Of {
    Responses,
    Drops,
}

pub(crate) fn responses(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    run(bench, Of::Responses)
}

pub(crate) fn drops(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    run(bench, Of::Drops)
}

fn run(bench: &mut Bench<'_>, of: Of) -> Result<Vec<Check>> {
    let length = if bench.options.quick { ROUNDS_QUICK } else { ROUNDS };
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let seen = |run: &Watched, ready: &Ready| table.rows(csv(run, ready.run_s, of));
    let (ready, all) = watch_all(bench, &LOADS, length, seen)?;
    let row = |(kind, clients): (Loop, u32)| {
        System::ALL.map(|system| Row::new(kind, system, &rounds(&all, kind, clients, system), ready.run_s))
    };
    let rows: Vec<Row> = LOADS.into_iter().flat_map(row).collect();
    let checks = match of {
        Of::Responses => checks_of_responses(&rows),
        Of::Drops => checks_of_drops(&rows),
    };
    bench.write("figure.svg", &draw(bench, &all, ready.run_s, of)?)?;
    let machine = Machine::here();
    let outcome = Outcome::new(bench, &machine, ready, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &markdown(&outcome, of))?;
    Ok(checks)
}

/// Of an interval in which nobody was answered there is no response time.
fn csv(watched: &Watched, run_s: f64, of: Of) -> Vec<String> {
    let (system, kind, round) = (watched.system.word(), watched.kind.word(), watched.round);
    let intervals = watched.intervals(run_s, LONG_MS);
    let line = |interval: &watch::Interval| {
        let t_s = interval.t_s;
        match of {
            Of::Drops => {
                let (rate, offered) = (interval.drop_rate(), interval.offered);
                Some(format!("{t_s:.3},{system},{rate:.4},{kind},{round},{offered}"))
            }
            Of::Responses => {
                let (mean, max) = (interval.mean_ms?, interval.max_ms?);
                Some(format!("{t_s:.3},{system},{mean:.3},{kind},{round},{max:.3}"))
            }
        }
    };
    intervals.iter().filter_map(line).collect()
}

fn find(rows: &[Row], kind: Loop, system: System) -> Option<&Row> {
    rows.iter().find(|row| row.kind == kind && row.system == system)
}

/// A: "NoAC: many requests served with very long time; AC-RDMA: almost no such requests".
fn checks_of_responses(rows: &[Row]) -> Vec<Check> {
    let places =
        Loop::ALL.iter().flat_map(|kind| [System::OneSided, System::Ours].map(|system| (*kind, system)));
    let check = |(kind, system): (Loop, System)| {
        let what =
            format!("{} loop, {}: answers that took more than {LONG_MS} ms", kind.word(), system.word());
        Check::at_most(what, ALMOST_NONE, find(rows, kind, system).and_then(|row| row.long))
    };
    places.map(check).collect()
}

/// A: "AC-RDMA: closely reflects the instantaneous changing load on web servers. AC-TCP/IP: longer streak of continuous
/// drops or acceptance".
fn checks_of_drops(rows: &[Row]) -> Vec<Check> {
    let follow = [System::OneSided, System::Ours].map(|system| {
        let what = format!("open loop, {}: drop rate with what is offered, correlation", system.word());
        Check::at_least(what, FOLLOWS, find(rows, Loop::Open, system).and_then(|row| row.follows))
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

fn draw(bench: &Bench<'_>, all: &[Watched], run_s: f64, of: Of) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let (y_title, limit) = match of {
        Of::Responses => ("mean response (ms)", Some(LONG_MS)),
        Of::Drops => ("turned away, of all asked", None),
    };
    let panel = |((kind, clients), letter): ((Loop, u32), char)| -> Panel {
        let points = |system| {
            let run = typical(&rounds(all, kind, clients, system));
            let intervals = run.map_or_else(Vec::new, |run| run.intervals(run_s, LONG_MS)).into_iter();
            let point = |interval: watch::Interval| match of {
                Of::Responses => Some((interval.t_s, interval.mean_ms?)),
                Of::Drops => Some((interval.t_s, interval.drop_rate())),
            };
            intervals.filter_map(point).collect()
        };
        over_time(kind.title(letter, clients), y_title, run_s, points, limit)
    };
    let panels: Vec<_> = LOADS.into_iter().zip('a'..).map(panel).collect();
    let legend = System::ALL.map(|system| (system.word().to_owned(), system.look().bare()));
    let limit = limit.map(|limit| (format!("{limit} ms"), Look::TARGET));
    Ok(figure::draw(&title, &panels, &legend.into_iter().chain(limit).collect::<Vec<_>>())?)
}

fn markdown(outcome: &Outcome<'_, Row, Ready>, of: Of) -> String {
    let rows = outcome.rows;
    let mut report = Markdown::new(outcome.experiment, outcome.quick);
    report.heading("The paper beside ours");
    report.paragraph(match of {
        Of::Responses => {
            "A, 400 clients: \"Instant response time: NoAC: many requests served with very long time. AC-RDMA: almost no such \
             requests. AC-TCP/IP: some requests with long response time\"."
        }
        Of::Drops => {
            "A, 400 clients: \"Instant drop rate: AC-RDMA: closely reflects the instantaneous changing load on web servers. \
             AC-TCP/IP: longer streak of continuous drops or acceptance. NoAC: a lot of acceptance; some drops because of \
             timeout\"."
        }
    });
    report.checks(outcome.checks);
    report.heading("Measured");
    let head = |row: &Row| vec![row.kind.word().to_owned(), row.system.word().to_owned()];
    match of {
        Of::Responses => report.table(
            &[
                "loop",
                "system",
                "answers",
                "mean, ms",
                "p99, ms",
                "longest, ms",
                "of them long",
                "turned away",
            ],
            rows.iter().map(|row| {
                let times = [row.mean_ms, row.p99_ms, row.max_ms].map(|ms| number(ms, 0));
                let counts = [row.answered.to_string(), row.turned_away.to_string()];
                let [answered, turned_away] = counts;
                let long = number(row.long, 4);
                head(row).into_iter().chain([answered]).chain(times).chain([long, turned_away]).collect()
            }),
        ),
        Of::Drops => report.table(
            &[
                "loop",
                "system",
                "turned away, of all",
                "follows the load",
                "streaks of drops: mean, longest",
                "longest, ms",
                "of acceptance: mean, longest",
                "longest, ms",
            ],
            rows.iter().map(|row| {
                let asked = (row.turned_away + row.answered).max(1);
                let away = number(Some(row.turned_away as f64 / asked as f64), 3);
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
        Of::Responses => "A point of the figure is the mean of those answered that were due within 0.1 s; `rows.csv` has the longest, too.",
        Of::Drops => {
            "A streak is of requests that one edge got one after the other. What is offered is given in the open loop only: in a \
             closed one those who are turned away pause, and so set it. Ours turns away whole clients, so that its streaks are of \
             whose requests come."
        }
    });
    report.list([
        "A's hardware: machines of their own for the server, each proxy and the clients, joined by InfiniBand. Here all share one \
         machine, and one-sided reads go through its memory."
            .to_owned(),
        format!("What A calls long, and its figures' points: {LONG_MS} ms is its mean without admission with 520 clients."),
    ]);
    let how = format!("{} An interval is {INTERVAL_S} s.", watch::describe(&outcome.settings));
    let failed: usize = rows.iter().map(|row| row.failed).sum();
    report.close(outcome, &how, failed as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::up::Request;

    /// Requests at one edge 1 ms apart, with these fates over and over.
    fn watched(kind: Loop, system: System, fates: &[Fate], response_ms: f64) -> Watched {
        let request = |(n, fate): (u32, &Fate)| {
            let due_s = 1.0 + f64::from(n) / 1e3;
            Request { due_s, sent_s: due_s, edge: "edge1".into(), fate: *fate, response_ms }
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
                [one_sided, tcp].map(|run| Row::new(kind, run.system, &[&run], 2.0))
            })
            .collect();
        let verdicts = |checks: Vec<Check>| checks.iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(checks_of_responses(&rows)), ["met", "not measured", "met", "not measured"]);
        // The load of these never changes, so nothing follows it.
        let checks = checks_of_drops(&rows);
        assert_eq!(verdicts(checks), ["not measured", "not measured", "met", "met", "met", "met"]);
        let slow = watched(Loop::Open, System::OneSided, &short, 200.0);
        let slow = [Row::new(Loop::Open, System::OneSided, &[&slow], 2.0)];
        assert_eq!(checks_of_responses(&slow)[2].verdict(), "MISSED");
    }

    #[test]
    fn a_row_is_an_interval() {
        let watched = watched(Loop::Open, System::Ours, &[Fate::Answered, Fate::TurnedAway], 7.0);
        assert_eq!(
            csv(&watched, 1.2, Of::Drops),
            ["1.050,ours,0.5000,open,1,100", "1.150,ours,0.5000,open,1,100"]
        );
        assert_eq!(csv(&watched, 1.1, Of::Responses), ["1.050,ours,7.000,open,1,7.000"]);
    }
}
