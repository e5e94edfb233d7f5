//! DA: a day in two minutes. An auction, its files and its JSON get the rates of three days of WorldCup98, whose peaks are some hours
//! apart, on nodes that stay, that move, and that are as many as each site could ever get.
//!
//! What a node can serve is measured first, so that the peaks are as high for the nodes of any machine.

mod rates;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;
use sidelong_config::{
    Baseline, ClusterFile, Configuration, EdgeEntry, Identity, Limits, NodeEntry, RateEntry, Reconfig,
    SiteEntry,
};
use sidelong_figure::Style;
use sidelong_workload::walk::INTERACTIONS_MEAN;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::samples::Samples;
use crate::setup::{CONFIGURATIONS, Ground};
use crate::up::{Fate, Request};

/// The sites, in the order of the days.
const SITES: [&str; 3] = ["auction", "files", "api"];
/// Nodes of each site at the beginning. A site keeps one at least, so the others may leave it this many more.
const NODES_EACH: usize = 2;
const POOL: usize = SITES.len() * NODES_EACH;
const EDGES: u16 = 2;
const WORKERS: u16 = 2;
/// CPUs of each node. With all of the pool busy, more than half of a machine of two CPUs is left to edges and clients.
const SHARE: f64 = 0.15;
/// What a site's peak asks for, in nodes: so much more than it has at the beginning that a peak of seconds makes answers late, and
/// little enough for the pool when two sites ask for much at once.
const PEAK_NODES: f64 = 3.2;
/// Rates of a day: each holds for ten minutes of it.
const RATES: usize = 144;
/// How long a day takes.
const DAYS: [Duration; 2] = [Duration::from_secs(120), Duration::from_secs(48)];
/// To find what a node can serve: more than it can, of one site after the other, as the clients of all wait for answers together. By site
/// the seconds from when on it is asked for so much, from when on that counts, and when it ends. The persons of the auction come last:
/// some seconds pass until they ask for all kinds of pages, and they stay.
const CAPACITY_TURNS: [[u64; 3]; 3] = [[14, 20, 26], [7, 9, 12], [0, 2, 5]];
const CAPACITY_TIME: Duration = Duration::from_secs(26);
const TOO_MUCH_PER_S: [f64; 3] = [60.0, 4000.0, 2000.0];
/// A larger share of it that is served says that it was not too much.
const SERVED_MAX: f64 = 0.9;
/// An answer is late from here on. A node of this share takes a third of a second to hash the password of a new user, and two thirds
/// for two at a time, however many nodes there are.
const LATE: Duration = Duration::from_secs(1);
/// Time to make the data, and to start and end a run.
const START: Duration = Duration::from_secs(15);
/// Targets.
const LATE_MAX: f64 = 1.05;
const NODE_HOURS_MAX: f64 = 0.6;

pub(crate) const DA: Experiment = Experiment::new(
    "DA",
    OWN,
    "a day of WorldCup98 in two minutes: rigid, reconfigured, over-provisioned",
    Design {
        repeat: [3, 1],
        dimensions: &[
            Dimension::new(
                "configuration",
                "configuration",
                &[
                    Word::new("rigid", "rigid", Style::BASELINE),
                    Word::new("reconfigured", "reconfigured", Style::OURS),
                    Word::new("over-provisioned", "over-provisioned", Style::THIRD),
                    Word::plain("capacity", "capacity"),
                ],
            ),
            Dimension::new("site", "site", &[]),
            // The whole of it, or an hour.
            Dimension::new("hour", "hour of the day", &[]),
        ],
        cases: &[
            "rigid,reconfigured,over-provisioned/all,auction,files,api/day",
            "capacity/auction,files,api/day",
        ],
        measures: &[
            Measure::new("node_hours", "node-hours", [0, 0]),
            Measure::new("requests", "requests", [0, 0]),
            // What fails or is rejected is late, too.
            Measure::new("late", "late", [0, 0]).possible(|case| 0.0..=case.most("requests")),
            Measure::derived("in_time_percent", "in time, %", 2),
            Measure::derived("late_percent", "late (% of the requests)", 1),
            Measure::new("failed", "failed or rejected", [0, 0]).possible(|case| 0.0..=case.most("late")),
            Measure::new("moves", "moves", [0, 0])
                .possible(|case| 0.0..=if case.is("reconfigured/*/*") { f64::INFINITY } else { 0.0 }),
            // What a node can serve of a site's requests.
            Measure::new("capacity_per_s", "requests/s of a node", [1, 0]),
        ],
        charts: &[
            Chart::lines("(a) auction", "late_percent", "hour", "configuration")
                .linear()
                .of("rigid,reconfigured,over-provisioned/auction/*"),
            Chart::lines("(b) files", "late_percent", "hour", "configuration")
                .linear()
                .of("rigid,reconfigured,over-provisioned/files/*"),
            Chart::lines("(c) api", "late_percent", "hour", "configuration")
                .linear()
                .of("rigid,reconfigured,over-provisioned/api/*"),
        ],
        settings: |quick| {
            json!({
                "day_s": DAYS[usize::from(quick)].as_secs_f64(),
                "nodes_each": NODES_EACH,
                "peak_nodes": PEAK_NODES,
                "late_ms": LATE.as_millis(),
                "pool": POOL,
                "nodes_most": nodes(Configuration::OverProvisioned),
                "workers": WORKERS,
                "share": SHARE,
            })
        },
        template: include_str!("day.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let time = bench.either(DAYS);
    let plan = [CAPACITY_TIME, time, time, time].map(|time| time + START);
    bench.rounds(&plan, |bench| {
        let name = bench.name("capacity");
        bench.begin(&name);
        let capacity = capacity(bench, &name)?;
        bench.end();
        for (site, per_s) in SITES.into_iter().zip(capacity) {
            bench.sample(&format!("capacity/{site}/day"), [("capacity_per_s", per_s)])?;
        }
        for configuration in CONFIGURATIONS {
            let rates =
                rates::of_a_day(time).into_iter().zip(capacity).zip(SITES).map(|((day, of_a_node), site)| {
                    let whole = PEAK_NODES * of_a_node / requests_of(site);
                    day.into_iter().map(|rate| RateEntry { per_s: rate.per_s * whole, ..rate }).collect()
                });
            let file = cluster_file(&bench.ground, configuration, rates.collect());
            let name = bench.name(configuration.to_string());
            bench.begin(&name);
            let (moves, requests) = up(bench, &name, &format!("a day, {configuration}"), &file, time)?;
            bench.end();
            let figures = [("node_hours", 24.0 * nodes(configuration) as f64), ("moves", moves as f64)];
            let all = Counts::of(requests.iter());
            bench.sample(&format!("{configuration}/all/day"), all.figures().into_iter().chain(figures))?;
            for site in SITES {
                let of_site = || requests.iter().filter(|request| request.site == site);
                bench.sample(&format!("{configuration}/{site}/day"), Counts::of(of_site()).figures())?;
                for hour in 0..24 {
                    let counts = Counts::of(of_site().filter(|request| hour_of(request, time) == hour));
                    if counts.requests > 0 {
                        bench.sample(&format!("{configuration}/{site}/{hour}"), counts.figures())?;
                    }
                }
            }
        }
        Ok(())
    })
}

/// The hour of the day in which a request is due.
fn hour_of(request: &Request, day: Duration) -> usize {
    ((request.due_s / day.as_secs_f64() * 24.0) as usize).min(23)
}

/// Requests, those of them that are late, and those of them that failed or were rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counts {
    requests: u64,
    late: u64,
    failed: u64,
}

impl Counts {
    fn of<'a>(requests: impl Iterator<Item = &'a Request>) -> Counts {
        requests.fold(Counts::default(), |counts, request| {
            let is_answered = request.fate == Fate::Answered;
            let is_late = !is_answered || request.response_ms > LATE.as_secs_f64() * 1e3;
            Counts {
                requests: counts.requests + 1,
                late: counts.late + u64::from(is_late),
                failed: counts.failed + u64::from(!is_answered),
            }
        })
    }

    fn figures(self) -> [(&'static str, f64); 3] {
        let Counts { requests, late, failed } = self;
        [("requests", requests), ("late", late), ("failed", failed)].map(|(name, count)| (name, count as f64))
    }
}

/// Nodes in all.
const fn nodes(configuration: Configuration) -> usize {
    match configuration {
        Configuration::Rigid | Configuration::Reconfigured => POOL,
        Configuration::OverProvisioned => SITES.len() * (POOL - (SITES.len() - 1)),
    }
}

/// Requests of each that comes to the site: pages of a person, in the mean (docs/auction.md), or one.
fn requests_of(site: &str) -> f64 {
    if site == SITES[0] { INTERACTIONS_MEAN } else { 1.0 }
}

/// Runs `up` for `time`. Returns the moves and the requests.
fn up(
    bench: &Bench<'_>,
    name: &str,
    about: &str,
    file: &ClusterFile,
    time: Duration,
) -> Result<(u64, Vec<Request>)> {
    let length = format!("{}ms", time.as_millis());
    let with = ["--demo", "auction", "--for", &length];
    let (summary, requests) = bench.up_by_request(&with, name, about, file, time + START)?;
    Ok((summary.moves, requests))
}

/// What a node can serve of each site's requests, in requests/s.
fn capacity(bench: &Bench<'_>, name: &str) -> Result<[f64; 3]> {
    let too_much = CAPACITY_TURNS.into_iter().zip(TOO_MUCH_PER_S).map(|([begin, _, end], per_s)| {
        let rate = |at, per_s| RateEntry { at: Duration::from_secs(at), per_s };
        vec![rate(begin, per_s), rate(end, 0.0)]
    });
    let file = cluster_file(&bench.ground, Configuration::Rigid, too_much.collect());
    let (_, requests) = up(bench, name, "what a node can serve", &file, CAPACITY_TIME)?;
    let ended = |request: &Request| request.due_s + request.response_ms / 1e3;
    let per_node = std::array::from_fn(|site| {
        let [_, from, end] = CAPACITY_TURNS[site];
        let window = from as f64..end as f64;
        let served = requests.iter().filter(|request| {
            request.site == SITES[site] && request.fate == Fate::Answered && window.contains(&ended(request))
        });
        served.count() as f64 / (window.end - window.start) / NODES_EACH as f64
    });
    for ((site, per_s), offered) in SITES.into_iter().zip(per_node).zip(TOO_MUCH_PER_S) {
        let served = per_s * NODES_EACH as f64 / (offered * requests_of(site));
        if served == 0.0 || served > SERVED_MAX {
            let path = bench.path(&format!("runs/{name}.requests.csv"));
            let found = format!(
                "{:.0} % of what {site} was asked for was served: what a node can serve is unknown",
                100.0 * served
            );
            return Err(Error::Output { path, found });
        }
    }
    Ok(per_node)
}

fn cluster_file(ground: &Ground, configuration: Configuration, rates: Vec<Vec<RateEntry>>) -> ClusterFile {
    let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, ground.port + offset));
    let edge =
        |i: u16| EdgeEntry { admin: Some(at(EDGES + i)), ..EdgeEntry::new(format!("edge{}", i + 1), at(i)) };
    let site = |(name, rates): (&str, _)| SiteEntry {
        rates,
        ..SiteEntry::new(name, format!("{name}.example"), NODES_EACH)
    };
    ClusterFile {
        cluster: Identity { name: ground.name.clone(), ..Identity::default() },
        // As the demonstration has them.
        reconfig: Reconfig {
            history: Duration::from_millis(50),
            sensitivity: Duration::from_millis(5),
            drain_max: Duration::from_secs(2),
            ..Reconfig::default()
        },
        baseline: Baseline { configuration, ..Baseline::default() },
        limits: Limits { connect_timeout: Duration::from_millis(500), ..Limits::default() },
        sites: SITES.into_iter().zip(rates).map(site).collect(),
        nodes: vec![NodeEntry {
            workers: Some(WORKERS),
            cpu_share: Some(SHARE),
            ..NodeEntry::new("n", POOL, at(2 * EDGES))
        }],
        edges: (0..EDGES).map(edge).collect(),
        ..ClusterFile::default()
    }
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    samples.derive("late_percent", "*/*/*", |samples, case| {
        &samples[case]["late"] / &samples[case]["requests"] * 100.0
    });
    samples
        .derive("in_time_percent", "*/*/day", |samples, case| &samples[case]["late_percent"] * -1.0 + 100.0);
    let of = |configuration, measure| &samples[format!("{configuration}/all/day")][measure];
    // Where nodes that stay are late with nothing, the day does not tell.
    let tells = of("rigid", "late").map(|late| if late > 0.0 { 1.0 } else { f64::NAN });
    let ratio = of("reconfigured", "late").with(of("over-provisioned", "late"), |ours, theirs| {
        match (ours, theirs) {
            (0.0, 0.0) => 1.0,
            _ => ours / theirs,
        }
    });
    vec![
        Check::at_most("late answers: reconfigured / over-provisioned", LATE_MAX, ratio * tells),
        Check::at_most(
            "node-hours: reconfigured / over-provisioned",
            NODE_HOURS_MAX,
            of("reconfigured", "node_hours") / of("over-provisioned", "node_hours"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn each_file_has_its_nodes_and_its_rates() {
        let ground = Ground { name: "lab-da".into(), port: 20_000, root: None };
        for configuration in CONFIGURATIONS {
            let file = cluster_file(&ground, configuration, rates::of_a_day(DAYS[0]).into());
            assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "run.toml").unwrap(), file);
            let cluster = file.cluster().unwrap();
            assert_eq!(cluster.nodes.len(), nodes(configuration));
            assert!(cluster.sites.values().all(|site| site.rates.len() == RATES));
        }
    }

    #[test]
    fn what_is_not_answered_in_time_is_late() {
        let request = |due_s, fate, response_ms| Request {
            due_s,
            sent_s: due_s,
            site: "api".into(),
            edge: "edge1".into(),
            fate,
            response_ms,
        };
        let requests = [
            request(0.0, Fate::Answered, 999.0),
            request(5.1, Fate::Answered, 1001.0),
            request(5.2, Fate::Failed, 1.0),
            request(120.0, Fate::Rejected, 1.0),
        ];
        assert_eq!(Counts::of(requests.iter()), Counts { requests: 4, late: 3, failed: 2 });
        assert_eq!(requests.each_ref().map(|request| hour_of(request, DAYS[0])), [0, 1, 1, 23]);
    }

    #[test]
    fn late_answers_and_node_hours_are_judged() {
        let verdicts = |rigid: f64, ours: f64, theirs: f64, hours: f64| {
            judged(&DA, |samples| {
                for (configuration, late, node_hours) in [
                    ("rigid", rigid, 144.0),
                    ("reconfigured", ours, hours),
                    ("over-provisioned", theirs, 288.0),
                ] {
                    samples.put(
                        &format!("{configuration}/all/day"),
                        [("late", late), ("node_hours", node_hours)],
                    );
                }
            })
        };
        assert_eq!(verdicts(9.0, 20.0, 20.0, 144.0), ["met", "met"]);
        assert_eq!(verdicts(9.0, 22.0, 20.0, 180.0), ["MISSED", "MISSED"]);
        assert_eq!(verdicts(9.0, 0.0, 0.0, 144.0), ["met", "met"]);
        assert_eq!(verdicts(9.0, 1.0, 0.0, 144.0), ["MISSED", "met"]);
        assert_eq!(verdicts(0.0, 1.0, 1.0, 144.0), ["not measured", "met"], "it does not tell");
    }
}
