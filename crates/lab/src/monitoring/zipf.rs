//! M7: throughput of the auction and of static files beside it by scheme and by the exponent of the files' popularity
//! (Vaidyanathan et al. 2006, 5.2.1, Figure 7). MZ has the same on nodes whose requests have costs of their own.

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Scheme;

use super::auction::{self, Auction, PERIOD, START, System};
use super::{Schemes, close, drawing, style};
use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::figure::{Axis, Line, Panel};
use crate::statistics::mean;
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;

const ALPHAS: &[f64] = &[0.25, 0.5, 0.75, 0.9];
const ALPHAS_QUICK: &[f64] = &[0.25, 0.9];
/// More than the nodes can serve while the requests for files rise, and less while they do not.
const PERSONS: u32 = 80;
/// Busy processes on one node of each site.
const BACKGROUND: u32 = 8;
/// Rounds of all runs, in turns, and the duration of one: whole turns of the load, which rises for 5 s of 10.
const ROUNDS: [u32; 2] = [3, 1];
const TIMES: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(10)];
/// What a rate loses at most before it counts as lower: two runs of one case differ by as much.
const NOISE: f64 = 0.02;

/// A run.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    scheme: Scheme,
    alpha: f64,
    /// Successes of both sites.
    requests_per_s: f64,
    /// Ratio to socket-async in the same repetition, less 1.
    improvement: Option<f64>,
    errors: u64,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    scheme: Scheme,
    alpha: f64,
    requests_per_s: Fixed<1>,
    improvement: Option<Fixed<4>>,
    errors: u64,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let quick = bench.options.quick;
    let schemes = Schemes::here(bench)?;
    let (alphas, time) = (if quick { ALPHAS_QUICK } else { ALPHAS }, TIMES[usize::from(quick)]);
    study::run(bench, Beside { schemes, run_s: time.as_secs_f64(), alphas, time })
}

#[derive(Serialize)]
struct Beside {
    schemes: Schemes,
    run_s: f64,
    #[serde(skip)]
    alphas: &'static [f64],
    #[serde(skip)]
    time: Duration,
}

impl Study for Beside {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = ROUNDS;

    fn plan(&self) -> Vec<Duration> {
        vec![self.time + START; self.alphas.len() * self.schemes.all.len()]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Beside>) -> Result<()> {
        for &alpha in self.alphas {
            for &scheme in &self.schemes.all {
                let name = bench.name(format!("{alpha}-{scheme}"));
                let auction = Auction {
                    system: System::Edges(scheme),
                    granularity: PERIOD,
                    persons: PERSONS,
                    background: BACKGROUND,
                    files_alpha: Some(alpha),
                    gmond: None,
                    time: self.time,
                };
                bench.begin(&name);
                let (summary, _) = auction.run(bench, &name)?;
                bench.end();
                let requests_per_s = summary.requests_per_s;
                let base = match scheme {
                    Scheme::SocketAsync => Some(requests_per_s),
                    _ => find(rows.all(), Scheme::SocketAsync, alpha).map(|row| row.requests_per_s),
                };
                let improvement = base.filter(|base| *base > 0.0).map(|base| requests_per_s / base - 1.0);
                let errors = summary.errors + summary.turned_away;
                rows.push(self, Row { scheme, alpha, requests_per_s, improvement, errors })?;
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { scheme, alpha, requests_per_s, improvement, errors } = *row;
        let (requests_per_s, improvement) = (Fixed(requests_per_s), improvement.map(Fixed));
        vec![TableLine { scheme, alpha, requests_per_s, improvement, errors }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let what = format!("{} at {}: requests/s", row.scheme, row.alpha);
        vec![Bound::not_below_zero(what, row.requests_per_s)]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(self, rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        tell(self, rows, story);
    }
}

fn find(rows: &[Row], scheme: Scheme, alpha: f64) -> Option<&Row> {
    rows.iter().find(|row| row.scheme == scheme && row.alpha == alpha)
}

/// The ratio of the rates of two schemes, the mean over the exponents.
fn over(rows: &[Row], scheme: Scheme, other: Scheme) -> Option<f64> {
    let of_scheme = rows.iter().filter(|row| row.scheme == scheme);
    let ratio = |row: &Row| Some(row.requests_per_s / find(rows, other, row.alpha)?.requests_per_s);
    mean(&of_scheme.map(ratio).collect::<Option<Vec<f64>>>()?)
}

/// The paper's order: socket-async, then rdma-sync, then e-rdma-sync.
fn checks(rows: &[Row]) -> Vec<Check> {
    let check = |scheme, other| {
        let what = format!("requests/s: {scheme} / {other}, the mean over the exponents");
        Check::at_least(what, 1.0 - NOISE, over(rows, scheme, other))
    };
    vec![
        Check::at_least(
            "requests/s: rdma-sync / socket-async, the mean over the exponents",
            1.0,
            over(rows, Scheme::RdmaSync, Scheme::SocketAsync),
        ),
        check(Scheme::RdmaSync, Scheme::SocketSync),
        check(Scheme::RdmaSync, Scheme::RdmaAsync),
        check(Scheme::ERdmaSync, Scheme::RdmaSync),
    ]
}

fn draw(study: &Beside, rows: &[Row]) -> Drawing {
    let panel = |title: &str, y_title: &str, value: fn(&Row) -> Option<f64>| {
        let line = |scheme: &Scheme| {
            let of_scheme = rows.iter().filter(|row| row.scheme == *scheme);
            Line::new(style(*scheme), of_scheme.filter_map(|row| Some((row.alpha, value(row)?))).collect())
        };
        let lines: Vec<Line> = study.schemes.all.iter().map(line).collect();
        let all = || lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y);
        let (least, most) = (all().fold(0.0, f64::min), all().fold(0.0, f64::max));
        let y = if least < 0.0 {
            Axis::between(y_title, least * 1.1 - 1.0, most * 1.1 + 1.0)
        } else {
            Axis::from_zero(y_title, most)
        };
        let x = Axis::between("Zipf's exponent of the files", 0.2, 0.95);
        Panel { title: title.to_owned(), x, y, lines }
    };
    let panels = [
        panel("(a) throughput of both sites", "requests/s", |row| Some(row.requests_per_s)),
        panel("(b) over socket-async", "improvement (%)", |row| row.improvement.map(|share| share * 100.0)),
    ];
    drawing(&study.schemes, panels)
}

fn tell(study: &Beside, rows: &[Row], report: &mut Story) {
    report.heading("The paper beside ours");
    report.paragraph(
        "Vaidyanathan et al. 2006, 5.2.1: \"in the case of Zipf trace with α value 0.25, both RDMA-Sync and e-RDMA-Sync schemes achieve a performance \
         improvement of up to 28% and 35% respectively. [...] As α value increases, the number of requests with different \
         resource requirements decreases [...] leading to lesser performance gains.\"",
    );
    let columns: Vec<String> = ["over socket-async, %".to_owned(), "paper at 0.25".to_owned()]
        .into_iter()
        .chain(study.alphas.iter().map(|alpha| format!("ours at {alpha}")))
        .collect();
    let paper = |scheme| match scheme {
        Scheme::SocketAsync => "0, by definition",
        Scheme::RdmaSync => "up to 28",
        Scheme::ERdmaSync => "up to 35",
        _ => "–",
    };
    report.table(
        &columns.iter().map(String::as_str).collect::<Vec<_>>(),
        study.schemes.all.iter().map(|scheme| {
            let ours = study.alphas.iter().map(|alpha| {
                let improvement = find(rows, *scheme, *alpha).and_then(|row| row.improvement);
                number(improvement.map(|share| share * 100.0), 1)
            });
            [scheme.to_string(), paper(*scheme).to_owned()].into_iter().chain(ours).collect()
        }),
    );
    report.checks();
    report.heading("Measured");
    report.table(
        &["exponent", "scheme", "requests/s", "errors"],
        rows.iter().map(|row| {
            let rate = number(Some(row.requests_per_s), 1);
            vec![row.alpha.to_string(), row.scheme.to_string(), rate, row.errors.to_string()]
        }),
    );
    report.paragraph(
        "Improvements are ratios within a repetition. All files have one size and lie in memory, so a request for one costs what a \
         request for another costs, whatever the exponent; MZ has requests of divergent cost.",
    );
    let how = format!(
        "{} Half of the nodes serve the files, whose requests arrive independently of each other, at a rate that rises and falls every \
         5 s. {PERSONS} persons; {BACKGROUND} busy processes on one node of each site. Runs of {} s, the schemes in turns.",
        auction::describe(),
        study.run_s
    );
    close(report, &study.schemes, &[], &how);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_order_is_recognized() {
        let row = |(scheme, rate): (Scheme, f64)| {
            ALPHAS_QUICK.iter().map(move |alpha| Row {
                scheme,
                alpha: *alpha,
                requests_per_s: rate,
                improvement: None,
                errors: 0,
            })
        };
        let verdicts = |rates: [f64; 5]| {
            let rows: Vec<Row> = super::super::SCHEMES.into_iter().zip(rates).flat_map(row).collect();
            checks(&rows).iter().map(Check::verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts([100.0, 101.0, 104.0, 128.0, 135.0]), ["met"; 4]);
        assert_eq!(verdicts([100.0, 101.0, 104.0, 97.0, 135.0]), ["MISSED", "MISSED", "MISSED", "met"]);
        assert_eq!(checks(&[]).iter().map(Check::verdict).collect::<Vec<_>>(), ["not measured"; 4]);
    }
}
