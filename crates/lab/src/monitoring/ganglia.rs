//! M8: the longest response times of the auction while a real Ganglia monitor receives the nodes' load, by granularity
//! (Vaidyanathan et al. 2006, 5.2.2).

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use super::auction::{self, Auction, START, System};
use super::{SCHEME, schemes, settings};
use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::{Error, Result, file};
use crate::experiment::Experiment;
use crate::measure::{Dimension, Measure};
use crate::process::{Process, last_line};
use crate::samples::Samples;
use crate::setup::PORTS;

/// Granularities in ms, in full and quick.
const GRANULARITIES: [&[u32]; 2] = [&[1, 4, 16, 64, 256, 1024], &[1, 1024]];
/// The interactions of the paper's figure.
const QUERIES: [&str; 2] = ["SearchItemsInCategory", "Browse"];
/// As many as leave the nodes some time for what monitoring takes.
const PERSONS: u32 = 60;
const TIMES: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(10)];
/// Largest ratio that counts as "unaffected", which an affected scheme exceeds.
const UNAFFECTED_MAX: f64 = 1.2;
/// Time limit for gmond to listen.
const READY_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

pub(crate) const M8: Experiment = Experiment::new(
    "M8",
    "Vaidyanathan et al. 2006, Figure 8",
    "longest responses of the auction while Ganglia is told of the load, by granularity",
    Design {
        repeat: [3, 1],
        dimensions: &[
            SCHEME,
            Dimension::new("granularity_ms", "granularity (ms)", &[]),
            Dimension::new("query", "query", &[]),
        ],
        cases: &["*/1,4,16,64,256,1024/SearchItemsInCategory,Browse"],
        measures: &[
            Measure::new("max_ms", "longest response, ms", [3, 1]),
            Measure::new("p99_ms", "p99, ms", [3, 1]).possible(|case| 0.0..=case.most("max_ms")),
        ],
        charts: &[
            Chart::lines("(a) SearchItemsInCategory", "max_ms", "granularity_ms", "scheme")
                .of("*/*/SearchItemsInCategory"),
            Chart::lines("(b) Browse", "max_ms", "granularity_ms", "scheme").of("*/*/Browse"),
        ],
        settings: |quick| {
            settings(json!({
                "run_s": TIMES[usize::from(quick)].as_secs_f64(),
                "persons": PERSONS,
                "set_up": auction::describe(),
            }))
        },
        template: include_str!("ganglia.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let (granularities, time) = (bench.either(GRANULARITIES), bench.either(TIMES));
    let gmond = Gmond::start(bench)?;
    let schemes = schemes(bench)?;
    bench.rounds(&vec![time + START; granularities.len() * schemes.len()], |bench| {
        for granularity_ms in granularities {
            for &scheme in &schemes {
                let auction = Auction {
                    system: System::Edges(scheme),
                    granularity: Duration::from_millis((*granularity_ms).into()),
                    persons: PERSONS,
                    background: 0,
                    files_alpha: None,
                    gmond: Some(gmond.address),
                    time,
                };
                let name = bench.name(format!("{granularity_ms}ms-{scheme}"));
                bench.begin(&name);
                let (_, walk) = auction.run(bench, &name)?;
                bench.end();
                for of in walk.interactions.iter().filter(|of| QUERIES.contains(&of.interaction.as_str())) {
                    let case = format!("{scheme}/{granularity_ms}/{}", of.interaction);
                    bench.sample(&case, [("max_ms", of.max_ms), ("p99_ms", of.p99_ms)])?;
                }
            }
        }
        Ok(())
    })
}

/// A gmond for this experiment alone.
struct Gmond {
    address: SocketAddr,
    process: Process,
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
        let mut gmond = Gmond { address, process };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            if bench.options.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if gmond.process.status()?.is_some() || begun.elapsed() > READY_MAX {
                let said = last_line(&log).unwrap_or_else(|| format!("nobody listens at {address}"));
                return Err(Error::Serve { what: "gmond".to_owned(), said });
            }
            std::thread::sleep(POLL);
        }
        Ok(gmond)
    }
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    // The finest granularity beside the coarsest, of the worse query.
    let grown = |scheme: &str| {
        let [one, other] = QUERIES.map(|query| {
            let at = |granularity| &samples[format!("{scheme}/{granularity}/{query}")]["max_ms"];
            at(1) / at(1024)
        });
        one.max(&other)
    };
    let flat = ["rdma-async", "rdma-sync"].map(|scheme| {
        let what = format!("longest response while told by {scheme}: at 1 ms / at 1024 ms, the worse query");
        Check::at_most(what, UNAFFECTED_MAX, grown(scheme))
    });
    let grows = ["socket-async", "socket-sync"].map(|scheme| {
        Check::at_least(format!("the same by {scheme}: it grows"), UNAFFECTED_MAX, grown(scheme))
    });
    flat.into_iter().chain(grows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn the_worse_query_is_judged() {
        let verdicts = judged(&M8, |samples| {
            for (scheme, fine) in
                [("rdma-async", [50.0, 70.0]), ("rdma-sync", [50.0, 55.0]), ("socket-async", [50.0, 250.0])]
            {
                for (query, fine) in QUERIES.iter().zip(fine) {
                    samples.put(&format!("{scheme}/1/{query}"), [("max_ms", fine)]);
                    samples.put(&format!("{scheme}/1024/{query}"), [("max_ms", 50.0)]);
                }
            }
        });
        assert_eq!(verdicts, ["MISSED", "met", "met", "not measured"]);
    }
}
