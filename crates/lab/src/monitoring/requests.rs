//! M9 and MZ: throughput of two co-hosted sites whose requests are balanced by the load, by how often that is looked at
//! (M 5.2.3), and by how even the requests are (M 5.2.1, Figure 7).

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Scheme;

use super::pool::{Pool, START, Shares, Work};
use super::{Schemes, legend, look};
use crate::bench::Bench;
use crate::check::{Check, median};
use crate::error::Result;
use crate::figure::{self, Axis, Line, Panel};
use crate::machine::Machine;
use crate::report::{Markdown, Outcome, number};

/// In ms. M's begin at 64; finer ones are ours.
const GRANULARITIES: &[f64] = &[8.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0];
const GRANULARITIES_QUICK: &[f64] = &[64.0, 4096.0];
/// M 5.2.3: "Zipf trace with α value 0.5".
const ALPHA: f64 = 0.5;
const ALPHAS: &[f64] = &[0.25, 0.5, 0.75, 0.9];
const ALPHAS_QUICK: &[f64] = &[0.25, 0.9];
/// M 5: T, which its front end looks as often as.
const GRANULARITY_MS: f64 = 50.0;
/// Runs of each, in turns, and how long one takes.
const ROUNDS: (u32, Duration) = (3, Duration::from_secs(6));
const ROUNDS_QUICK: (u32, Duration) = (3, Duration::from_secs(5));
const FINEST: f64 = 64.0;
const COARSEST: f64 = 4096.0;
/// From here down sockets are to lose.
const SECOND: f64 = 1024.0;
/// M 5.2.3: "an improvement close to 25% for RDMA-Sync scheme compared to the rest of the schemes".
const GAIN_MIN: f64 = 1.25;
/// With which rdma-sync is compared.
const OTHERS: [Scheme; 3] = [Scheme::SocketAsync, Scheme::SocketSync, Scheme::RdmaAsync];

/// What differs from run to run, beside the scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Granularity,
    Alpha,
}

/// The runs of one scheme at one place of the figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    scheme: Scheme,
    /// The granularity in ms, or Zipf's exponent.
    at: f64,
    /// Of each round.
    requests_per_s: Vec<f64>,
    errors: u64,
}

impl Row {
    fn median(&self) -> Option<f64> {
        median(self.requests_per_s.clone())
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Settings {
    schemes: Schemes,
    shares: Shares,
    rounds: u32,
    run_s: f64,
}

pub(crate) fn granularity(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    let places = if bench.options.quick { GRANULARITIES_QUICK } else { GRANULARITIES };
    run(bench, By::Granularity, places)
}

pub(crate) fn alpha(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    let places = if bench.options.quick { ALPHAS_QUICK } else { ALPHAS };
    run(bench, By::Alpha, places)
}

fn run(bench: &mut Bench<'_>, by: By, places: &[f64]) -> Result<Vec<Check>> {
    let (rounds, time) = if bench.options.quick { ROUNDS_QUICK } else { ROUNDS };
    let schemes = Schemes::here(bench)?;
    let shares = Shares::here(bench)?;
    let count = places.len() * schemes.all.len() * rounds as usize;
    (0..count).for_each(|_| bench.expect_for(time + START));
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let mut rows: Vec<Row> = Vec::new();
    for &at in places {
        let first = rows.len();
        let row = |scheme: &Scheme| Row { scheme: *scheme, at, requests_per_s: Vec::new(), errors: 0 };
        rows.extend(schemes.all.iter().map(row));
        for round in 1..=rounds {
            // The schemes take turns, so that what drifts does so for all.
            for row in &mut rows[first..] {
                let name = format!("{at}-{}-{round}", row.scheme);
                let (granularity_ms, alpha) = match by {
                    By::Granularity => (at, ALPHA),
                    By::Alpha => (GRANULARITY_MS, at),
                };
                let granularity = Duration::from_secs_f64(granularity_ms / 1e3);
                let work = Work::LONG;
                let pool = Pool { scheme: row.scheme, granularity, work, alpha, gmond: None, time };
                bench.begin(&name);
                let summary = pool.run(bench, &shares, &name)?;
                row.requests_per_s.push(summary.requests_per_s);
                row.errors += summary.errors;
                bench.end();
            }
        }
        table.rows(rows[first..].iter().map(|row| csv(by, &rows, row)))?;
    }
    let checks = checks(by, &rows);
    bench.write("figure.svg", &draw(bench, by, &schemes, &rows)?)?;
    let machine = Machine::here();
    let settings = Settings { schemes, shares, rounds, run_s: time.as_secs_f64() };
    let outcome = Outcome::new(bench, &machine, settings, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &markdown(&outcome, by))?;
    Ok(checks)
}

fn csv(by: By, rows: &[Row], row: &Row) -> String {
    let rate = number(row.median(), 1);
    match by {
        By::Granularity => format!("{},{},{rate}", row.scheme, row.at),
        By::Alpha => {
            format!("{},{},{rate},{}", row.scheme, row.at, number(improvement(rows, row.scheme, row.at), 4))
        }
    }
}

fn find(rows: &[Row], scheme: Scheme, at: f64) -> Option<&Row> {
    rows.iter().find(|row| row.scheme == scheme && row.at == at)
}

fn rate(rows: &[Row], scheme: Scheme, at: f64) -> Option<f64> {
    find(rows, scheme, at)?.median()
}

/// Of `scheme` over `other`: the median of the ratios within a round.
fn over(rows: &[Row], scheme: Scheme, other: Scheme, at: f64) -> Option<f64> {
    let (ours, theirs) = (find(rows, scheme, at)?, find(rows, other, at)?);
    let pairs = ours.requests_per_s.iter().zip(&theirs.requests_per_s);
    median(pairs.filter(|(_, under)| **under > 0.0).map(|(over, under)| over / under).collect())
}

/// M 5.2.1: "the total throughput improvement in comparison with the Socket-Async scheme".
fn improvement(rows: &[Row], scheme: Scheme, at: f64) -> Option<f64> {
    over(rows, scheme, Scheme::SocketAsync, at).map(|ratio| ratio - 1.0)
}

/// A scheme's rate at one place over that at another.
fn between(rows: &[Row], scheme: Scheme, at: f64, under: f64) -> Option<f64> {
    Some(rate(rows, scheme, at)? / rate(rows, scheme, under).filter(|rate| *rate > 0.0)?)
}

/// rdma-sync over the best of the others. None where one of them is missing.
fn gain(rows: &[Row], at: f64) -> Option<f64> {
    let ratios: Option<Vec<f64>> =
        OTHERS.iter().map(|other| over(rows, Scheme::RdmaSync, *other, at)).collect();
    ratios?.into_iter().reduce(f64::min)
}

fn checks(by: By, rows: &[Row]) -> Vec<Check> {
    match by {
        By::Granularity => vec![
            Check::at_least(
                format!("rdma-sync, requests/s: at {FINEST} ms / at {COARSEST} ms: it gains"),
                1.0,
                between(rows, Scheme::RdmaSync, FINEST, COARSEST),
            ),
            Check::at_most(
                format!("socket-async, requests/s: at {FINEST} ms / at {SECOND} ms: it loses"),
                1.0,
                between(rows, Scheme::SocketAsync, FINEST, SECOND),
            ),
            Check::at_most(
                format!("socket-sync, requests/s: at {FINEST} ms / at {SECOND} ms: it loses"),
                1.0,
                between(rows, Scheme::SocketSync, FINEST, SECOND),
            ),
            Check::at_least(
                format!("at {FINEST} ms, requests/s: rdma-sync / the best of the other three"),
                GAIN_MIN,
                gain(rows, FINEST),
            ),
        ],
        By::Alpha => {
            let (first, last) = (ALPHAS[0], ALPHAS[ALPHAS.len() - 1]);
            let of = |scheme, at| over(rows, scheme, Scheme::SocketAsync, at);
            let falls = of(Scheme::RdmaSync, first).zip(of(Scheme::RdmaSync, last));
            vec![
                Check::at_least(
                    format!("requests/s at alpha {first}: rdma-sync / socket-async"),
                    1.0,
                    of(Scheme::RdmaSync, first),
                ),
                Check::at_least(
                    format!("requests/s at alpha {first}: e-rdma-sync / rdma-sync"),
                    1.0,
                    over(rows, Scheme::ERdmaSync, Scheme::RdmaSync, first),
                ),
                Check::at_least(
                    format!(
                        "rdma-sync / socket-async: at alpha {first} over at {last}: it gains least where requests are even"
                    ),
                    1.0,
                    falls.map(|(first, last)| first / last),
                ),
            ]
        }
    }
}

fn draw(bench: &Bench<'_>, by: By, schemes: &Schemes, rows: &[Row]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let (x, place): (Axis, fn(f64) -> f64) = match by {
        By::Granularity => (Axis::powers_of_two("granularity (ms)", GRANULARITIES[0], COARSEST), f64::log2),
        By::Alpha => (Axis::between("Zipf's exponent of the second site", 0.2, 0.95), |at| at),
    };
    let panel = |title: &str, y_title: &str, value: &dyn Fn(&Row) -> Option<f64>| {
        let points = |scheme: &Scheme| {
            let of_scheme = rows.iter().filter(|row| row.scheme == *scheme);
            of_scheme.filter_map(|row| Some((place(row.at), value(row)?))).collect()
        };
        let lines: Vec<Line> =
            (schemes.all.iter()).map(|scheme| Line { look: look(*scheme), points: points(scheme) }).collect();
        let all = || lines.iter().flat_map(|line: &Line| &line.points).map(|(_, y)| *y);
        let (least, most) = (all().fold(0.0, f64::min), all().fold(0.0, f64::max));
        let y = if least < 0.0 {
            Axis::between(y_title, least * 1.1 - 1.0, most * 1.1 + 1.0)
        } else {
            Axis::from_zero(y_title, most)
        };
        Panel { title: title.to_owned(), x: x.clone(), y, lines }
    };
    let panels = [
        panel("(a) throughput", "requests/s", &Row::median),
        panel("(b) over socket-async", "improvement (%)", &|row| {
            improvement(rows, row.scheme, row.at).map(|share| share * 100.0)
        }),
    ];
    Ok(figure::draw(&title, &panels, &legend(schemes))?)
}

fn markdown(outcome: &Outcome<'_, Row, Settings>, by: By) -> String {
    let (rows, settings) = (outcome.rows, &outcome.settings);
    let mut report = Markdown::new(outcome.experiment, outcome.quick);
    report.heading("The paper beside ours");
    let percent = |share: Option<f64>| number(share.map(|share| share * 100.0), 1);
    match by {
        By::Granularity => {
            report.paragraph(
                "M 5.2.3: \"the throughput increases for decreasing granularity for RDMA-Sync scheme. With granularity 1024 msec, all \
                 four schemes report comparable performance. As the granularity decreases to 64 msec, we see a performance degradation \
                 for Socket-Sync and Socket-Async schemes. [...] we see an improvement close to 25% for RDMA-Sync scheme compared to \
                 the rest of the schemes when the granularity is 64 msec\".",
            );
            let gain_percent = |at| percent(gain(rows, at).map(|ratio| ratio - 1.0));
            report.table(
                &["", "paper", "ours"],
                [
                    vec![
                        "rdma-sync over the best of the others at 64 ms, %".into(),
                        "close to 25".into(),
                        gain_percent(FINEST),
                    ],
                    vec!["the same at 1024 ms, %".into(), "comparable".into(), gain_percent(SECOND)],
                ],
            );
        }
        By::Alpha => {
            report.paragraph(
                "M 5.2.1: \"in the case of Zipf trace with α value 0.25, both RDMA-Sync and e-RDMA-Sync schemes achieve a performance \
                 improvement of up to 28% and 35% respectively. [...] As α value increases, the number of requests with different \
                 resource requirements decreases [...] leading to lesser performance gains.\"",
            );
            let places: Vec<f64> = places(rows);
            let head: Vec<String> = ["", "paper at 0.25, %"]
                .iter()
                .map(|head| (*head).to_owned())
                .chain(places.iter().map(|at| format!("ours at {at}, %")))
                .collect();
            let paper = |scheme| match scheme {
                Scheme::SocketAsync => "0, by definition",
                Scheme::RdmaSync => "up to 28",
                Scheme::ERdmaSync => "up to 35",
                _ => "–",
            };
            report.table(
                &head.iter().map(String::as_str).collect::<Vec<_>>(),
                settings.schemes.all.iter().map(|scheme| {
                    let ours = places.iter().map(|at| percent(improvement(rows, *scheme, *at)));
                    [scheme.to_string(), paper(*scheme).to_owned()].into_iter().chain(ours).collect()
                }),
            );
        }
    }
    report.checks(outcome.checks);
    report.heading("Measured");
    let what = if by == By::Granularity { "granularity, ms" } else { "alpha" };
    report.table(
        &[what, "scheme", "requests/s", "of rounds", "over socket-async, %", "errors"],
        rows.iter().map(|row| {
            let rounds: Vec<_> = row.requests_per_s.iter().map(|rate| format!("{rate:.0}")).collect();
            vec![
                row.at.to_string(),
                row.scheme.to_string(),
                number(row.median(), 1),
                rounds.join(" "),
                percent(improvement(rows, row.scheme, row.at)),
                row.errors.to_string(),
            ]
        }),
    );
    report.paragraph(
        "Rates are medians of the rounds, improvements medians of the ratios within a round. A request goes to the node whose load index was the lowest at the last look (`balance.policy = \"last-look\"`), as M \
         describes its front end. An edge as it comes (`weighted`) adds to what it has read the requests that it sent since, so it does \
         not send all of them to one node until the next look, and hardly needs fresh records for that.",
    );
    let looks = match by {
        By::Granularity => "edges look at the load as often as the granularity says".to_owned(),
        By::Alpha => format!("edges look at the load every {GRANULARITY_MS} ms"),
    };
    let how = format!(
        "{} {} runs of {} s for each row, in turns.",
        settings.shares.describe(&Work::LONG, &looks),
        settings.rounds,
        settings.run_s
    );
    let absent = settings.shares.absent();
    let absent: Vec<&str> = absent.iter().map(String::as_str).collect();
    report.close_beside_m(outcome, &settings.schemes.refused, &absent, &how)
}

/// In the order in which they were measured.
fn places(rows: &[Row]) -> Vec<f64> {
    let mut places: Vec<f64> = rows.iter().map(|row| row.at).collect();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scheme: Scheme, at: f64, rate: f64) -> Row {
        Row { scheme, at, requests_per_s: vec![rate, rate * 2.0, rate / 2.0], errors: 0 }
    }

    fn verdicts(by: By, rows: &[Row]) -> Vec<&'static str> {
        checks(by, rows).iter().map(Check::verdict).collect()
    }

    #[test]
    fn the_paper_s_shape_by_granularity_is_recognized() {
        let mut rows = vec![
            row(Scheme::SocketAsync, 64.0, 80.0),
            row(Scheme::SocketSync, 64.0, 90.0),
            row(Scheme::RdmaAsync, 64.0, 100.0),
            row(Scheme::RdmaSync, 64.0, 126.0),
            row(Scheme::SocketAsync, 1024.0, 100.0),
            row(Scheme::SocketSync, 1024.0, 100.0),
            row(Scheme::RdmaSync, 4096.0, 95.0),
        ];
        assert_eq!(verdicts(By::Granularity, &rows), ["met", "met", "met", "met"]);
        assert_eq!(gain(&rows, 64.0), Some(1.26));
        rows[3] = row(Scheme::RdmaSync, 64.0, 90.0);
        rows[0] = row(Scheme::SocketAsync, 64.0, 110.0);
        assert_eq!(verdicts(By::Granularity, &rows), ["MISSED", "MISSED", "met", "MISSED"]);
        assert_eq!(verdicts(By::Granularity, &[]), ["not measured"; 4]);
    }

    #[test]
    fn improvements_are_within_a_round_and_over_socket_async() {
        let rows = [
            row(Scheme::SocketAsync, 0.25, 100.0),
            row(Scheme::RdmaSync, 0.25, 128.0),
            row(Scheme::ERdmaSync, 0.25, 135.0),
            row(Scheme::SocketAsync, 0.9, 100.0),
            row(Scheme::RdmaSync, 0.9, 105.0),
        ];
        assert_eq!(verdicts(By::Alpha, &rows), ["met", "met", "met"]);
        assert_eq!(csv(By::Alpha, &rows, &rows[1]), "rdma-sync,0.25,128.0,0.2800");
        assert_eq!(csv(By::Granularity, &rows, &rows[1]), "rdma-sync,0.25,128.0");
        assert_eq!(places(&rows), [0.25, 0.9]);
    }
}
