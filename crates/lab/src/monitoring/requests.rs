//! M9 and MZ: throughput of two co-hosted sites whose requests are balanced by load, by scan interval (Vaidyanathan et al.
//! 2006, 5.2.3) and by Zipf's exponent (5.2.1, Figure 7).

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Scheme;

use super::pool::{Pool, START, Shares};
use super::{Schemes, close, drawing, style};
use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::figure::{Axis, Line, Panel};
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;

/// Granularities in ms. The paper's begin at 64; the finer ones are additional.
const GRANULARITIES: &[f64] = &[8.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0];
const GRANULARITIES_QUICK: &[f64] = &[64.0, 4096.0];
/// 5.2.3: "Zipf trace with α value 0.5".
const ALPHA: f64 = 0.5;
const ALPHAS: &[f64] = &[0.25, 0.5, 0.75, 0.9];
const ALPHAS_QUICK: &[f64] = &[0.25, 0.9];
/// 5: T, which is also the interval of its front end.
const GRANULARITY_MS: f64 = 50.0;
/// Number of runs of each case, in turns, and the duration of one.
const ROUNDS: u32 = 3;
const TIMES: [Duration; 2] = [Duration::from_secs(6), Duration::from_secs(5)];
const FINEST: f64 = 64.0;
const COARSEST: f64 = 4096.0;
/// The granularity that the finest is compared with, where sockets should lose.
const SECOND: f64 = 1024.0;
/// 5.2.3: "an improvement close to 25% for RDMA-Sync scheme compared to the rest of the schemes".
const GAIN_MIN: f64 = 1.25;
/// The schemes that rdma-sync is compared with.
const OTHERS: [Scheme; 3] = [Scheme::SocketAsync, Scheme::SocketSync, Scheme::RdmaAsync];

/// What varies from run to run, beside the scheme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Granularity,
    Alpha,
}

/// A run of one scheme at one point of the figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    scheme: Scheme,
    /// The granularity in ms, or Zipf's exponent.
    at: f64,
    requests_per_s: f64,
    /// Ratio to socket-async in the same repetition.
    improvement: Option<f64>,
    errors: u64,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum TableLine {
    Granularity { scheme: Scheme, granularity_ms: Fixed<0>, requests_per_s: Fixed<1> },
    Alpha { scheme: Scheme, alpha: f64, requests_per_s: Fixed<1>, improvement: Option<Fixed<4>> },
}

pub(crate) fn granularity(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let places = if bench.options.quick { GRANULARITIES_QUICK } else { GRANULARITIES };
    run(bench, By::Granularity, places)
}

pub(crate) fn alpha(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let places = if bench.options.quick { ALPHAS_QUICK } else { ALPHAS };
    run(bench, By::Alpha, places)
}

fn run(bench: &mut Bench<'_>, by: By, places: &'static [f64]) -> Result<Conclusion> {
    let time = TIMES[usize::from(bench.options.quick)];
    let (schemes, shares) = (Schemes::here(bench)?, Shares::here(bench)?);
    study::run(bench, Throughput { schemes, shares, run_s: time.as_secs_f64(), by, places, time })
}

#[derive(Serialize)]
struct Throughput {
    schemes: Schemes,
    shares: Shares,
    run_s: f64,
    #[serde(skip)]
    by: By,
    #[serde(skip)]
    places: &'static [f64],
    #[serde(skip)]
    time: Duration,
}

impl Study for Throughput {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = [ROUNDS; 2];

    fn plan(&self) -> Vec<Duration> {
        vec![self.time + START; self.places.len() * self.schemes.all.len()]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Throughput>) -> Result<()> {
        for &at in self.places {
            // The schemes take turns, so that a drift of the machine affects all of them.
            for &scheme in &self.schemes.all {
                let name = bench.name(format!("{at}-{scheme}"));
                let (granularity_ms, alpha) = match self.by {
                    By::Granularity => (at, ALPHA),
                    By::Alpha => (GRANULARITY_MS, at),
                };
                let granularity = Duration::from_secs_f64(granularity_ms / 1e3);
                let pool = Pool { scheme, granularity, alpha, time: self.time };
                bench.begin(&name);
                let summary = pool.run(bench, &self.shares, &name)?;
                let (requests_per_s, errors) = (summary.requests_per_s, summary.errors);
                let base = if scheme == Scheme::SocketAsync {
                    Some(requests_per_s)
                } else {
                    rate(rows.all(), Scheme::SocketAsync, at)
                };
                let improvement = base.filter(|base| *base > 0.0).map(|base| requests_per_s / base - 1.0);
                rows.push(self, Row { scheme, at, requests_per_s, improvement, errors })?;
                bench.end();
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { scheme, at, improvement, .. } = *row;
        let requests_per_s = Fixed(row.requests_per_s);
        vec![match self.by {
            By::Granularity => TableLine::Granularity { scheme, granularity_ms: Fixed(at), requests_per_s },
            By::Alpha => {
                TableLine::Alpha { scheme, alpha: at, requests_per_s, improvement: improvement.map(Fixed) }
            }
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        vec![Bound::not_below_zero(format!("{} at {}: requests/s", row.scheme, row.at), row.requests_per_s)]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(self.by, rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(self, rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        tell(self, rows, story);
    }
}

fn find(rows: &[Row], scheme: Scheme, at: f64) -> Option<&Row> {
    rows.iter().find(|row| row.scheme == scheme && row.at == at)
}

fn rate(rows: &[Row], scheme: Scheme, at: f64) -> Option<f64> {
    find(rows, scheme, at).map(|row| row.requests_per_s)
}

/// The ratio of the rate of `scheme` to that of `other`.
fn over(rows: &[Row], scheme: Scheme, other: Scheme, at: f64) -> Option<f64> {
    Some(rate(rows, scheme, at)? / rate(rows, other, at).filter(|rate| *rate > 0.0)?)
}

/// Vaidyanathan et al. 2006, 5.2.1: "the total throughput improvement in comparison with the Socket-Async scheme".
fn improvement(rows: &[Row], scheme: Scheme, at: f64) -> Option<f64> {
    find(rows, scheme, at)?.improvement
}

/// The ratio of a scheme's rate at one point to that at another.
fn between(rows: &[Row], scheme: Scheme, at: f64, under: f64) -> Option<f64> {
    Some(rate(rows, scheme, at)? / rate(rows, scheme, under).filter(|rate| *rate > 0.0)?)
}

/// The ratio of rdma-sync to the best of the others. `None` if one is missing.
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

fn draw(study: &Throughput, rows: &[Row]) -> Drawing {
    let (by, schemes) = (study.by, &study.schemes);
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
            schemes.all.iter().map(|scheme| Line::new(style(*scheme), points(scheme))).collect();
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
        panel("(a) throughput", "requests/s", &|row| Some(row.requests_per_s)),
        panel("(b) over socket-async", "improvement (%)", &|row| {
            improvement(rows, row.scheme, row.at).map(|share| share * 100.0)
        }),
    ];
    drawing(schemes, panels)
}

fn tell(settings: &Throughput, rows: &[Row], report: &mut Story) {
    let by = settings.by;
    report.heading("The paper beside ours");
    let percent = |share: Option<f64>| number(share.map(|share| share * 100.0), 1);
    match by {
        By::Granularity => {
            report.paragraph(
                "Vaidyanathan et al. 2006, 5.2.3: \"the throughput increases for decreasing granularity for RDMA-Sync scheme. With granularity 1024 msec, all \
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
                "Vaidyanathan et al. 2006, 5.2.1: \"in the case of Zipf trace with α value 0.25, both RDMA-Sync and e-RDMA-Sync schemes achieve a performance \
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
    report.checks();
    report.heading("Measured");
    let what = if by == By::Granularity { "granularity, ms" } else { "alpha" };
    report.table(
        &[what, "scheme", "requests/s", "over socket-async, %", "errors"],
        rows.iter().map(|row| {
            vec![
                row.at.to_string(),
                row.scheme.to_string(),
                number(Some(row.requests_per_s), 1),
                percent(improvement(rows, row.scheme, row.at)),
                row.errors.to_string(),
            ]
        }),
    );
    report.paragraph(
        "Improvements are ratios within a repetition. A request goes to the node whose load index was the lowest at the last scan (`balance.policy = \"last-look\"`), as the paper \
         describes its front end. An edge as it comes (`weighted`) adds to what it has read the requests that it sent since, so it does \
         not send all of them to one node until the next scan, and hardly needs fresh records for that.",
    );
    let scans = match by {
        By::Granularity => "edges scan the load as often as the granularity says".to_owned(),
        By::Alpha => format!("edges scan the load every {GRANULARITY_MS} ms"),
    };
    let how =
        format!("{} Runs of {} s, the schemes in turns.", settings.shares.describe(&scans), settings.run_s);
    close(report, &settings.schemes, &settings.shares.absent(), &how);
}

/// The values in the order in which they were measured.
fn places(rows: &[Row]) -> Vec<f64> {
    let mut places: Vec<f64> = rows.iter().map(|row| row.at).collect();
    places.dedup();
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scheme: Scheme, at: f64, rate: f64) -> Row {
        Row { scheme, at, requests_per_s: rate, improvement: None, errors: 0 }
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
    fn gains_are_over_socket_async() {
        let rows = [
            row(Scheme::SocketAsync, 0.25, 100.0),
            row(Scheme::RdmaSync, 0.25, 128.0),
            row(Scheme::ERdmaSync, 0.25, 135.0),
            row(Scheme::SocketAsync, 0.9, 100.0),
            row(Scheme::RdmaSync, 0.9, 105.0),
        ];
        assert_eq!(verdicts(By::Alpha, &rows), ["met", "met", "met"]);
        assert_eq!(places(&rows), [0.25, 0.9]);
    }
}
