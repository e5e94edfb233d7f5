//! DA: a day in two minutes. An auction, its files and its JSON get the rates of three days of WorldCup98, whose peaks are some hours
//! apart, on nodes that stay, that move, and that are as many as each site could ever get.
//!
//! What a node can serve is measured first, so that the peaks are as high for the nodes of any machine.

mod rates;
mod report;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::Serialize;
use sidelong_config::{
    ClusterFile, Configuration, EdgeEntry, Identity, Limits, NodeEntry, RateEntry, Reconfig, SiteEntry,
};
use sidelong_workload::walk::INTERACTIONS_MEAN;

use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::{Drawing, legend};
use crate::error::{Error, Result};
use crate::figure::{Axis, Line, Panel};
use crate::setup::{CONFIGURATIONS, Ground, style_of};
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
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

/// A day of one configuration, for one site.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    configuration: Configuration,
    site: &'static str,
    requests: u64,
    /// Answers that were late, and requests that failed or were rejected.
    late: u64,
    failed: u64,
    /// Of all sites.
    node_hours: f64,
    moves: u64,
    /// By the hour of the day: requests, and those of them that were late.
    by_hour: [(u64, u64); 24],
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    configuration: Configuration,
    site: &'static str,
    requests: u64,
    late: u64,
    failed: u64,
    node_hours: Fixed<0>,
    moves: u64,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let time = DAYS[usize::from(bench.options.quick)];
    study::run(bench, Day { day_s: time.as_secs_f64(), time, pages_per_s_per_node: Vec::new() })
}

#[derive(Serialize)]
struct Day {
    day_s: f64,
    #[serde(skip)]
    time: Duration,
    /// What a node can serve of each site's requests in a second, in each repetition.
    pages_per_s_per_node: Vec<[f64; 3]>,
}

impl Study for Day {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = [3, 1];

    fn plan(&self) -> Vec<Duration> {
        let days = CONFIGURATIONS.map(|_| self.time + START);
        [CAPACITY_TIME + START].into_iter().chain(days).collect()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Day>) -> Result<()> {
        let name = bench.name("capacity");
        bench.begin(&name);
        let capacity = capacity(bench, &name)?;
        bench.end();
        self.pages_per_s_per_node.push(capacity);
        for configuration in CONFIGURATIONS {
            let rates = rates::of_a_day(self.time).into_iter().zip(capacity).enumerate().map(
                |(site, (day, of_a_node))| {
                    let whole = PEAK_NODES * of_a_node / if site == 0 { INTERACTIONS_MEAN } else { 1.0 };
                    day.into_iter().map(|rate| RateEntry { per_s: rate.per_s * whole, ..rate }).collect()
                },
            );
            let file = cluster_file(&bench.ground, configuration, rates.collect());
            let name = bench.name(configuration.to_string());
            bench.begin(&name);
            let (moves, requests) = up(bench, &name, &format!("a day, {configuration}"), &file, self.time)?;
            bench.end();
            let node_hours = 24.0 * nodes(configuration) as f64;
            for site in SITES {
                let of_site = requests.iter().filter(|request| request.site == site);
                rows.push(self, Row::of(configuration, site, of_site, (node_hours, moves), self.time))?;
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { configuration, site, requests, late, failed, moves, .. } = *row;
        vec![TableLine {
            configuration,
            site,
            requests,
            late,
            failed,
            node_hours: Fixed(row.node_hours),
            moves,
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("{}, {}: {what}", row.configuration, row.site);
        let may_move = row.configuration == Configuration::Reconfigured;
        let moves_max = if may_move { f64::INFINITY } else { 0.0 };
        vec![
            Bound::new(of("late"), row.late as f64, row.failed as f64..=row.requests as f64),
            Bound::new(of("moves"), row.moves as f64, 0.0..=moves_max),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        report::tell(self, rows, story);
    }
}

impl Row {
    fn of<'a>(
        configuration: Configuration,
        site: &'static str,
        requests: impl Iterator<Item = &'a Request>,
        (node_hours, moves): (f64, u64),
        day: Duration,
    ) -> Row {
        let (mut all, mut late, mut failed, mut by_hour) = (0, 0, 0, [(0, 0); 24]);
        for request in requests {
            let is_answered = request.fate == Fate::Answered;
            let is_late = !is_answered || request.response_ms > LATE.as_secs_f64() * 1e3;
            let hour = (request.due_s / day.as_secs_f64() * 24.0) as usize;
            all += 1;
            late += u64::from(is_late);
            failed += u64::from(!is_answered);
            let (in_hour, late_in_hour) = &mut by_hour[hour.min(23)];
            *in_hour += 1;
            *late_in_hour += u64::from(is_late);
        }
        Row { configuration, site, requests: all, late, failed, node_hours, moves, by_hour }
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
            configuration,
            history: Duration::from_millis(50),
            sensitivity: Duration::from_millis(5),
            drain_max: Duration::from_secs(2),
            ..Reconfig::default()
        },
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

fn of(rows: &[Row], configuration: Configuration) -> impl Iterator<Item = &Row> {
    rows.iter().filter(move |row| row.configuration == configuration)
}

/// Late answers of all sites.
fn late(rows: &[Row], configuration: Configuration) -> Option<u64> {
    let late: Vec<u64> = of(rows, configuration).map(|row| row.late).collect();
    (late.len() == SITES.len()).then(|| late.iter().sum())
}

/// The share of all requests that are answered in time.
fn in_time(rows: &[Row], configuration: Configuration) -> Option<f64> {
    let requests: u64 = of(rows, configuration).map(|row| row.requests).sum();
    (requests > 0).then_some(1.0 - late(rows, configuration)? as f64 / requests as f64)
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let [reconfigured, over] = [Configuration::Reconfigured, Configuration::OverProvisioned];
    // Where nodes that stay are late with nothing, the day does not tell.
    let tells = late(rows, Configuration::Rigid).is_some_and(|late| late > 0);
    let both = late(rows, reconfigured).zip(late(rows, over)).filter(|_| tells);
    let late = both.map(|(ours, theirs)| match (ours, theirs) {
        (0, 0) => 1.0,
        (ours, theirs) => ours as f64 / theirs as f64,
    });
    let node_hours = |configuration| of(rows, configuration).next().map(|row| row.node_hours);
    vec![
        Check::at_most("late answers: reconfigured / over-provisioned", LATE_MAX, late),
        Check::at_most(
            "node-hours: reconfigured / over-provisioned",
            NODE_HOURS_MAX,
            node_hours(reconfigured).zip(node_hours(over)).map(|(ours, theirs)| ours / theirs),
        ),
    ]
}

fn draw(rows: &[Row]) -> Drawing {
    let panel = |(site, part): (&'static str, char)| {
        let line = |configuration: &Configuration| {
            let by_hour = of(rows, *configuration).find(|row| row.site == site).map(|row| row.by_hour);
            let hours = (0..).zip(by_hour.into_iter().flatten()).filter(|(_, (requests, _))| *requests > 0);
            let share = |(hour, (requests, late)): (u32, (u64, u64))| {
                (f64::from(hour) + 0.5, 100.0 * late as f64 / requests as f64)
            };
            Line::new(style_of(*configuration), hours.map(share).collect())
        };
        let lines: Vec<Line> = CONFIGURATIONS.iter().map(line).collect();
        let most = lines.iter().map(Line::most).fold(1.0, f64::max);
        let ticks = (0..=4).map(|n| 6.0 * f64::from(n)).collect();
        Panel {
            title: format!("({part}) {site}"),
            x: Axis { ticks, ..Axis::between("hour of the day", 0.0, 24.0) },
            y: Axis::from_zero("late (% of the requests)", most),
            lines,
        }
    };
    Drawing {
        panels: SITES.into_iter().zip('a'..).map(panel).collect(),
        legend: legend(CONFIGURATIONS.map(|configuration| (configuration.as_str(), style_of(configuration)))),
        ..Drawing::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_its_nodes_and_its_rates() {
        let ground = Ground { name: "lab-da".into(), port: 20_000, root: None };
        for configuration in CONFIGURATIONS {
            let file = cluster_file(&ground, configuration, rates::of_a_day(DAYS[0]).into());
            assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "run.toml").unwrap(), file);
            let cluster = file.cluster().unwrap();
            assert_eq!(cluster.nodes.len(), nodes(configuration));
            assert!(cluster.sites.iter().all(|site| site.rates.len() == RATES));
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
            request(120.0, Fate::TurnedAway, 1.0),
        ];
        let row = |configuration| Row::of(configuration, "api", requests.iter(), (144.0, 0), DAYS[0]);
        let Row { requests, late, failed, by_hour, .. } = row(Configuration::Rigid);
        assert_eq!((requests, late, failed), (4, 3, 2));
        assert_eq!((by_hour[0], by_hour[1], by_hour[23]), ((1, 0), (2, 2), (1, 1)));
    }

    #[test]
    fn late_answers_and_node_hours_are_judged() {
        let rows = |configuration, late, node_hours| {
            SITES.map(|site| Row {
                configuration,
                site,
                requests: 1000,
                late,
                failed: 0,
                node_hours,
                moves: 0,
                by_hour: [(0, 0); 24],
            })
        };
        let rigid = rows(Configuration::Rigid, 9, 144.0);
        let verdicts = |ours, theirs, hours| {
            let ours = rows(Configuration::Reconfigured, ours, hours);
            let all =
                [rigid.to_vec(), ours.to_vec(), rows(Configuration::OverProvisioned, theirs, 288.0).to_vec()]
                    .concat();
            checks(&all).iter().map(Check::verdict).collect::<Vec<_>>()
        };
        assert_eq!(verdicts(20, 20, 144.0), ["met", "met"]);
        assert_eq!(verdicts(22, 20, 180.0), ["MISSED", "MISSED"]);
        assert_eq!(verdicts(0, 0, 144.0), ["met", "met"]);
        assert_eq!(verdicts(1, 0, 144.0), ["MISSED", "met"]);
        assert_eq!(checks(&rigid).iter().map(Check::verdict).collect::<Vec<_>>(), ["not measured"; 2]);
        assert_eq!(in_time(&rigid, Configuration::Rigid), Some(0.991));
    }
}
