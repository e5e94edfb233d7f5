//! M8: the longest response times of a loaded data-center while a real Ganglia monitor is told of its load, by how often
//! (M 5.2.2).

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use sidelong_config::Scheme;

use super::pool::{Pool, SITES, START, Shares, Work};
use super::{Schemes, legend, panel};
use crate::bench::Bench;
use crate::check::{Check, median};
use crate::error::{Error, Result, file};
use crate::figure::{self, Axis};
use crate::machine::Machine;
use crate::process::{Process, last_line};
use crate::report::{Markdown, Outcome, number};
use crate::setup::PORTS;

/// In ms.
const GRANULARITIES: &[u32] = &[1, 4, 16, 64, 256, 1024];
const GRANULARITIES_QUICK: &[u32] = &[1, 1024];
const ALPHA: f64 = 0.5;
/// Runs of each, in turns, and how long one takes.
const ROUNDS: (u32, Duration) = (3, Duration::from_secs(8));
const ROUNDS_QUICK: (u32, Duration) = (3, Duration::from_secs(4));
/// What is "unaffected", and by what more what is not exceeds it.
const UNAFFECTED_MAX: f64 = 1.2;
const FINEST: u32 = 1;
/// gmond has this long to listen.
const READY_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// The runs of one scheme and granularity, for one site.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    scheme: Scheme,
    granularity_ms: u32,
    query: &'static str,
    /// Of each round, in ms.
    max_ms: Vec<f64>,
    p99_ms: Vec<f64>,
}

impl Row {
    fn csv(&self) -> String {
        let max = number(median(self.max_ms.clone()), 3);
        format!("{},{},{},{max}", self.scheme, self.granularity_ms, self.query)
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Settings {
    schemes: Schemes,
    shares: Shares,
    granularities_ms: Vec<u32>,
    rounds: u32,
    run_s: f64,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    let quick = bench.options.quick;
    let (granularities, (rounds, time)) =
        if quick { (GRANULARITIES_QUICK, ROUNDS_QUICK) } else { (GRANULARITIES, ROUNDS) };
    let gmond = Gmond::start(bench)?;
    let schemes = Schemes::here(bench)?;
    let shares = Shares::here(bench)?;
    let count = granularities.len() * schemes.all.len() * rounds as usize;
    (0..count).for_each(|_| bench.expect_for(time + START));
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let mut rows: Vec<Row> = Vec::new();
    for &granularity_ms in granularities {
        let first = rows.len();
        for scheme in &schemes.all {
            rows.extend(SITES.map(|query| Row {
                scheme: *scheme,
                granularity_ms,
                query,
                max_ms: Vec::new(),
                p99_ms: Vec::new(),
            }));
        }
        for round in 1..=rounds {
            for of_scheme in rows[first..].chunks_mut(SITES.len()) {
                let scheme = of_scheme[0].scheme;
                let name = format!("{granularity_ms}ms-{scheme}-{round}");
                let granularity = Duration::from_millis(granularity_ms.into());
                let (work, gmond) = (Work::SHORT, Some(gmond.address));
                let pool = Pool { scheme, granularity, work, alpha: ALPHA, gmond, time };
                bench.begin(&name);
                let summary = pool.run(bench, &shares, &name)?;
                for row in of_scheme {
                    let site = summary.sites.iter().find(|site| site.name == row.query);
                    row.max_ms.extend(site.map(|site| site.max_ms));
                    row.p99_ms.extend(site.map(|site| site.p99_ms));
                }
                bench.end();
            }
        }
        table.rows(rows[first..].iter().map(Row::csv))?;
    }
    drop(gmond);
    let coarsest = granularities[granularities.len() - 1];
    let checks = checks(&rows, coarsest);
    bench.write("figure.svg", &draw(bench, &schemes, granularities, &rows)?)?;
    let machine = Machine::here();
    let settings = Settings {
        schemes,
        shares,
        granularities_ms: granularities.to_vec(),
        rounds,
        run_s: time.as_secs_f64(),
    };
    let outcome = Outcome::new(bench, &machine, settings, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &markdown(&outcome))?;
    Ok(checks)
}

/// A monitor of this experiment's own.
struct Gmond {
    address: SocketAddr,
    _process: Process,
}

impl Gmond {
    fn start(bench: &Bench<'_>) -> Result<Gmond> {
        // The last of the ports, which no cluster reaches.
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
                what: "gmond, which M8 tells of the load, is not there".to_owned(),
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
    median(rows.iter().find(is_it)?.max_ms.clone())
}

/// The worse of both queries' ratios of one figure to another.
fn worse(ratio: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let ratios: Option<Vec<f64>> = SITES.iter().map(|query| ratio(query)).collect();
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

fn draw(bench: &Bench<'_>, schemes: &Schemes, granularities: &[u32], rows: &[Row]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let x = ("granularity (ms)", granularities);
    let of = |query: &'static str, part: &str| {
        let y = |values: &[f64]| {
            Axis::from_zero("longest response (ms)", values.iter().copied().fold(0.0, f64::max))
        };
        panel(&format!("({part}) {query}"), x, y, schemes, |scheme, granularity| {
            max_ms(rows, scheme, granularity, query)
        })
    };
    Ok(figure::draw(&title, &[of(SITES[0], "a"), of(SITES[1], "b")], &legend(schemes))?)
}

fn markdown(outcome: &Outcome<'_, Row, Settings>) -> String {
    let (rows, settings) = (outcome.rows, &outcome.settings);
    let mut report = Markdown::new(outcome.experiment, outcome.quick);
    report.heading("The paper beside ours");
    report.paragraph(
        "M 5.2.2: \"when gmetric uses Socket-Async or Socket-Sync to perform fine-grained resource monitoring, the maximum response \
         time for the query is close to 250ms when the resource monitoring threshold is 1 or 4 ms. However, we find that the maximum \
         response time is unaffected when gmetric uses RDMA-Async or RDMA-Sync scheme\".",
    );
    let coarsest = settings.granularities_ms.last().copied().unwrap_or(FINEST);
    let paper = |scheme| match scheme {
        Scheme::SocketAsync | Scheme::SocketSync => "close to 250 ms at 1 and 4 ms",
        Scheme::ERdmaSync => "– (it balanced, and told nobody)",
        _ => "unaffected",
    };
    let queries = settings.schemes.all.iter().flat_map(|scheme| SITES.map(|query| (*scheme, query)));
    report.table(
        &["", "query", "paper", "at 1 ms, ms", &format!("at {coarsest} ms, ms")],
        queries.map(|(scheme, query)| {
            let at = |granularity| number(max_ms(rows, scheme, granularity, query), 1);
            vec![scheme.to_string(), query.to_owned(), paper(scheme).to_owned(), at(FINEST), at(coarsest)]
        }),
    );
    report.checks(outcome.checks);
    report.heading("Measured");
    report.table(
        &["granularity, ms", "scheme", "query", "longest response, ms", "p99, ms", "longest of each round"],
        rows.iter().map(|row| {
            let rounds: Vec<_> = row.max_ms.iter().map(|ms| format!("{ms:.0}")).collect();
            vec![
                row.granularity_ms.to_string(),
                row.scheme.to_string(),
                row.query.to_owned(),
                number(median(row.max_ms.clone()), 1),
                number(median(row.p99_ms.clone()), 1),
                rounds.join(" "),
            ]
        }),
    );
    report.paragraph(
        "A real gmond is told of every node by one of the edges, as gmetric tells it, as often as that looks at the load. In M requests \
         are balanced by e-RDMA-Sync whatever tells Ganglia; here an edge reads the load once, by one scheme, for both.",
    );
    let how = format!(
        "{} {} runs of {} s for each row, in turns; longest responses are medians of the rounds.",
        settings.shares.describe(
            &Work::SHORT,
            "edges look at the load, and Ganglia is told, as often as the granularity says"
        ),
        settings.rounds,
        settings.run_s
    );
    let absent = settings.shares.absent();
    let absent: Vec<&str> = absent.iter().map(String::as_str).collect();
    report.close_beside_m(outcome, &settings.schemes.refused, &absent, &how)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(scheme: Scheme, fine: [f64; 2], coarse: f64) -> Vec<Row> {
        let row = |granularity_ms, query, ms| Row {
            scheme,
            granularity_ms,
            query,
            max_ms: vec![ms],
            p99_ms: vec![ms / 2.0],
        };
        let [a, b] = SITES;
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
        assert_eq!(all[0].csv(), "rdma-async,1,auction,50.000");
    }
}
