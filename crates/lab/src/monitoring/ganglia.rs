//! M8: the longest response times of the auction while a real Ganglia monitor receives the nodes' load, by granularity
//! (Vaidyanathan et al. 2006, 5.2.2).

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use sidelong_config::Scheme;

use super::auction::{self, Auction, START, System};
use super::{Schemes, close, drawing, panel};
use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::{Error, Result, file};
use crate::figure::Axis;
use crate::process::{Process, last_line};
use crate::setup::PORTS;
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;

/// Granularities in ms.
const GRANULARITIES: &[u32] = &[1, 4, 16, 64, 256, 1024];
const GRANULARITIES_QUICK: &[u32] = &[1, 1024];
/// The interactions of the paper's figure.
const QUERIES: [&str; 2] = ["SearchItemsInCategory", "Browse"];
/// As many as leave the nodes some time for what monitoring takes.
const PERSONS: u32 = 60;
/// Number of runs of each case, in turns, and the duration of one.
const ROUNDS: [u32; 2] = [3, 1];
const TIMES: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(10)];
/// Largest ratio that counts as "unaffected", which an affected scheme exceeds.
const UNAFFECTED_MAX: f64 = 1.2;
const FINEST: u32 = 1;
/// Time limit for gmond to listen.
const READY_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// A run of one scheme and granularity, for one interaction.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    scheme: Scheme,
    granularity_ms: u32,
    query: &'static str,
    max_ms: f64,
    p99_ms: f64,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    scheme: Scheme,
    granularity_ms: u32,
    query: &'static str,
    response_ms_max: Fixed<3>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let quick = bench.options.quick;
    let granularities_ms = if quick { GRANULARITIES_QUICK } else { GRANULARITIES };
    let time = TIMES[usize::from(quick)];
    let gmond = Gmond::start(bench)?;
    let schemes = Schemes::here(bench)?;
    study::run(bench, Told { schemes, granularities_ms, run_s: time.as_secs_f64(), time, gmond })
}

#[derive(Serialize)]
struct Told {
    schemes: Schemes,
    granularities_ms: &'static [u32],
    run_s: f64,
    #[serde(skip)]
    time: Duration,
    #[serde(skip)]
    gmond: Gmond,
}

impl Study for Told {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = ROUNDS;

    fn plan(&self) -> Vec<Duration> {
        vec![self.time + START; self.granularities_ms.len() * self.schemes.all.len()]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Told>) -> Result<()> {
        for &granularity_ms in self.granularities_ms {
            for &scheme in &self.schemes.all {
                let granularity = Duration::from_millis(granularity_ms.into());
                let (system, gmond, time) = (System::Edges(scheme), Some(self.gmond.address), self.time);
                let (persons, background, files_alpha) = (PERSONS, 0, None);
                let auction = Auction { system, granularity, persons, background, files_alpha, gmond, time };
                let name = bench.name(format!("{granularity_ms}ms-{scheme}"));
                bench.begin(&name);
                let (_, walk) = auction.run(bench, &name)?;
                bench.end();
                for query in QUERIES {
                    if let Some(of) = walk.interactions.iter().find(|of| of.interaction == query) {
                        let (max_ms, p99_ms) = (of.max_ms, of.p99_ms);
                        rows.push(self, Row { scheme, granularity_ms, query, max_ms, p99_ms })?;
                    }
                }
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { scheme, granularity_ms, query, max_ms, .. } = *row;
        vec![TableLine { scheme, granularity_ms, query, response_ms_max: Fixed(max_ms) }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let what = format!("{}, {} ms, {}: p99, ms", row.scheme, row.granularity_ms, row.query);
        vec![Bound::new(what, row.p99_ms, 0.0..=row.max_ms)]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows, self.granularities_ms[self.granularities_ms.len() - 1])
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(self, rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        tell(self, rows, story);
    }
}

/// A gmond for this experiment alone.
struct Gmond {
    address: SocketAddr,
    _process: Process,
}

impl Gmond {
    fn start(bench: &Bench<'_>) -> Result<Gmond> {
        // The last of the ports, which no cluster uses.
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port + PORTS - 1));
        let config = bench.path("configs/gmond.conf");
        let channel = format!("{{ bind = {} port = {} }}", address.ip(), address.port());
        let text = format!(
            "globals {{ daemonize = no setuid = no mute = no deaf = no gexec = no host_dmax = 0 }}\n\
             cluster {{ name = \"lab\" }}\nudp_recv_channel {channel}\ntcp_accept_channel {channel}\n"
        );
        file(&config, std::fs::write(&config, text))?;
        let mut command = Command::new("gmond");
        command.arg("--conf").arg(&config);
        let log = bench.path("runs/gmond.log");
        let process =
            Process::start(command, &bench.path("runs/gmond.out"), &log).map_err(|_| Error::Absent {
                what: "gmond, to which M8 sends the load, cannot be started".to_owned(),
                instead: "install it (Debian: ganglia-monitor)",
            })?;
        let mut gmond = Gmond { address, _process: process };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            if bench.options.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if gmond._process.status()?.is_some() || begun.elapsed() > READY_MAX {
                let said = last_line(&log).unwrap_or_else(|| format!("nobody listens at {address}"));
                return Err(Error::Serve { what: "gmond".to_owned(), said });
            }
            std::thread::sleep(POLL);
        }
        Ok(gmond)
    }
}

fn max_ms(rows: &[Row], scheme: Scheme, granularity_ms: u32, query: &str) -> Option<f64> {
    let is_it =
        |row: &&Row| row.scheme == scheme && row.granularity_ms == granularity_ms && row.query == query;
    Some(rows.iter().find(is_it)?.max_ms)
}

/// The higher of both queries' ratios of one figure to another.
fn worse(ratio: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let ratios: Option<Vec<f64>> = QUERIES.iter().map(|query| ratio(query)).collect();
    ratios?.into_iter().reduce(f64::max)
}

fn checks(rows: &[Row], coarsest: u32) -> Vec<Check> {
    let grown = |scheme| {
        worse(|query| Some(max_ms(rows, scheme, FINEST, query)? / max_ms(rows, scheme, coarsest, query)?))
    };
    let flat = [Scheme::RdmaAsync, Scheme::RdmaSync].map(|scheme| {
        let what = format!(
            "longest response while told by {scheme}: at {FINEST} ms / at {coarsest} ms, the worse query"
        );
        Check::at_most(what, UNAFFECTED_MAX, grown(scheme))
    });
    let grows = [Scheme::SocketAsync, Scheme::SocketSync].map(|scheme| {
        let what = format!("the same by {scheme}: it grows");
        Check::at_least(what, UNAFFECTED_MAX, grown(scheme))
    });
    flat.into_iter().chain(grows).collect()
}

fn draw(study: &Told, rows: &[Row]) -> Drawing {
    let schemes = &study.schemes;
    let x = ("granularity (ms)", study.granularities_ms);
    let of = |query: &'static str, part: &str| {
        let y = |values: &[f64]| {
            Axis::from_zero("longest response (ms)", values.iter().copied().fold(0.0, f64::max))
        };
        panel(&format!("({part}) {query}"), x, y, schemes, |scheme, granularity| {
            max_ms(rows, scheme, granularity, query)
        })
    };
    drawing(schemes, [of(QUERIES[0], "a"), of(QUERIES[1], "b")])
}

fn tell(settings: &Told, rows: &[Row], report: &mut Story) {
    report.heading("The paper beside ours");
    report.paragraph(
        "Vaidyanathan et al. 2006, 5.2.2: \"when gmetric uses Socket-Async or Socket-Sync to perform fine-grained resource monitoring, the maximum response \
         time for the query is close to 250ms when the resource monitoring threshold is 1 or 4 ms. However, we find that the maximum \
         response time is unaffected when gmetric uses RDMA-Async or RDMA-Sync scheme\".",
    );
    let coarsest = settings.granularities_ms.last().copied().unwrap_or(FINEST);
    let paper = |scheme| match scheme {
        Scheme::SocketAsync | Scheme::SocketSync => "close to 250 ms at 1 and 4 ms",
        Scheme::ERdmaSync => "– (it balanced, and told nobody)",
        _ => "unaffected",
    };
    let queries = settings.schemes.all.iter().flat_map(|scheme| QUERIES.map(|query| (*scheme, query)));
    report.table(
        &["", "query", "paper", "at 1 ms, ms", &format!("at {coarsest} ms, ms")],
        queries.map(|(scheme, query)| {
            let at = |granularity| number(max_ms(rows, scheme, granularity, query), 1);
            vec![scheme.to_string(), query.to_owned(), paper(scheme).to_owned(), at(FINEST), at(coarsest)]
        }),
    );
    report.checks();
    report.heading("Measured");
    report.table(
        &["granularity, ms", "scheme", "query", "longest response, ms", "p99, ms"],
        rows.iter().map(|row| {
            vec![
                row.granularity_ms.to_string(),
                row.scheme.to_string(),
                row.query.to_owned(),
                number(Some(row.max_ms), 1),
                number(Some(row.p99_ms), 1),
            ]
        }),
    );
    report.paragraph(
        "A real gmond is told of every node by one of the edges, as gmetric tells it, as often as that edge scans. In the paper requests \
         are balanced by e-RDMA-Sync whatever tells Ganglia; here an edge reads the load once, by one scheme, for both.",
    );
    let how = format!(
        "{} {PERSONS} persons, and no other work. Edges scan the nodes, and tell Ganglia, as often as the granularity says. Runs of {} s.",
        auction::describe(),
        settings.run_s
    );
    close(report, &settings.schemes, &[], &how);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(scheme: Scheme, fine: [f64; 2], coarse: f64) -> Vec<Row> {
        let row =
            |granularity_ms, query, ms| Row { scheme, granularity_ms, query, max_ms: ms, p99_ms: ms / 2.0 };
        let [a, b] = QUERIES;
        vec![row(1, a, fine[0]), row(1, b, fine[1]), row(1024, a, coarse), row(1024, b, coarse)]
    }

    #[test]
    fn the_worse_query_is_judged() {
        let all: Vec<Row> = [
            rows(Scheme::RdmaAsync, [50.0, 70.0], 50.0),
            rows(Scheme::RdmaSync, [50.0, 55.0], 50.0),
            rows(Scheme::SocketAsync, [50.0, 250.0], 50.0),
        ]
        .concat();
        let verdicts: Vec<_> = checks(&all, 1024).iter().map(Check::verdict).collect();
        assert_eq!(verdicts, ["MISSED", "met", "met", "not measured"]);
    }
}
