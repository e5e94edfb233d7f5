//! MT1: mean and longest response time of the auction's interactions by scheme, with other work on some of the nodes
//! (Vaidyanathan et al. 2006, 5.2.1, Table 1).
//!
//! One load tells little of schemes. So the other work grows, and the report says from where on they differ.

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Scheme;

use super::auction::{self, Auction, PERIOD, START, System};
use super::{Schemes, close, drawing, style};
use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::{Error, Result};
use crate::figure::{Axis, Line, Panel};
use crate::statistics::median;
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;

/// Rounds of all runs, in turns, and the duration of one.
const ROUNDS: [u32; 2] = [3, 1];
const TIMES: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(12)];
/// Target for the longest responses by a one-sided scheme, to those by socket-async.
const RATIO_MAX: f64 = 0.5;
/// The schemes that are judged.
const ONE_SIDED: [Scheme; 3] = [Scheme::RdmaAsync, Scheme::RdmaSync, Scheme::ERdmaSync];

/// A load: persons, and busy processes on each node that has other work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Place {
    persons: u32,
    background: u32,
}

const fn place(persons: u32, background: u32) -> Place {
    Place { persons, background }
}

/// The persons at whom the figure shows how the other work counts.
const PERSONS: u32 = 80;
/// A node of two workers is overloaded by twice as many others that run all the time.
const OVERLOADED_MIN: u32 = 4;
const PLACES: &[Place] = &[
    place(PERSONS, 0),
    place(PERSONS, 1),
    place(PERSONS, 2),
    place(PERSONS, 4),
    place(PERSONS, 8),
    place(PERSONS, 16),
    place(PERSONS / 2, 8),
    place(PERSONS * 3 / 2, 8),
];
const PLACES_QUICK: &[Place] = &[place(PERSONS, 0), place(PERSONS, 4), place(PERSONS, 12)];

impl Place {
    const fn is_overloaded(self) -> bool {
        self.background >= OVERLOADED_MIN
    }

    fn describe(self) -> String {
        format!("{} persons, {} busy processes", self.persons, self.background)
    }
}

/// A row of Table 1: the interaction, and mean and longest response in ms by socket-async, socket-sync, rdma-async, rdma-sync
/// and e-rdma-sync.
struct Published {
    interaction: &'static str,
    mean_ms: [u32; 5],
    max_ms: [u32; 5],
}

const fn published(interaction: &'static str, mean_ms: [u32; 5], max_ms: [u32; 5]) -> Published {
    Published { interaction, mean_ms, max_ms }
}

const TABLE: [Published; 8] = [
    published("Home", [3, 3, 3, 3, 2], [416, 274, 36, 33, 31]),
    published("Browse", [3, 3, 3, 3, 2], [495, 348, 197, 81, 45]),
    published("BrowseRegions", [6, 6, 6, 5, 5], [392, 206, 249, 41, 32]),
    published("BrowseCategoriesInRegion", [17, 17, 18, 16, 14], [265, 278, 210, 74, 66]),
    published("SearchItemsInRegion", [4, 4, 4, 4, 3], [150, 180, 78, 43, 32]),
    published("PutBidAuth", [3, 3, 3, 3, 2], [99, 231, 38, 30, 20]),
    published("Sell", [4, 4, 3, 2, 2], [373, 264, 19, 21, 21]),
    published("AboutMeAuth", [3, 3, 3, 3, 2], [178, 220, 32, 35, 32]),
];

/// An interaction in a run, if there was a response.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    system: System,
    #[serde(flatten)]
    place: Place,
    interaction: String,
    requests: u64,
    errors: u64,
    mean_ms: f64,
    max_ms: f64,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    system: System,
    persons: u32,
    background: u32,
    interaction: String,
    requests: u64,
    errors: u64,
    response_ms_mean: Fixed<3>,
    response_ms_max: Fixed<3>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let quick = bench.options.quick;
    let schemes = Schemes::here(bench)?;
    let (places, time) = (if quick { PLACES_QUICK } else { PLACES }, TIMES[usize::from(quick)]);
    study::run(bench, Table { schemes, run_s: time.as_secs_f64(), places, time, without_nginx: None })
}

#[derive(Serialize)]
struct Table {
    schemes: Schemes,
    run_s: f64,
    #[serde(skip)]
    places: &'static [Place],
    #[serde(skip)]
    time: Duration,
    /// Why no nginx could be led.
    without_nginx: Option<String>,
}

impl Table {
    fn systems(&self) -> impl Iterator<Item = System> + use<> {
        let edges: Vec<_> = self.schemes.all.iter().map(|scheme| System::Edges(*scheme)).collect();
        edges.into_iter().chain([System::Nginx])
    }
}

impl Study for Table {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = ROUNDS;

    fn plan(&self) -> Vec<Duration> {
        vec![self.time + START; self.places.len() * self.systems().count()]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Table>) -> Result<()> {
        for &place in self.places {
            // The systems take turns, so that a drift of the machine affects all of them.
            for system in self.systems() {
                if system == System::Nginx && self.without_nginx.is_some() {
                    bench.skip();
                    continue;
                }
                let Place { persons, background } = place;
                let name = bench.name(format!("{persons}-{background}-{}", system.word()));
                let time = self.time;
                let (granularity, files_alpha, gmond) = (PERIOD, None, None);
                let auction = Auction { system, granularity, persons, background, files_alpha, gmond, time };
                bench.begin(&name);
                let ran = auction.run(bench, &name);
                bench.end();
                let walk = match ran {
                    Err(Error::Failed { said, .. }) if said.contains("--front") => {
                        self.without_nginx = Some(said.trim_start_matches("sidelong: ").to_owned());
                        continue;
                    }
                    ran => ran?.1,
                };
                for of in walk.interactions.into_iter().filter(|of| of.max_ms > 0.0) {
                    let row = Row {
                        system,
                        place,
                        interaction: of.interaction,
                        requests: of.requests,
                        errors: of.errors + of.turned_away,
                        mean_ms: of.mean_ms,
                        max_ms: of.max_ms,
                    };
                    rows.push(self, row)?;
                }
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { system, place: Place { persons, background }, requests, errors, .. } = *row;
        vec![TableLine {
            system,
            persons,
            background,
            interaction: row.interaction.clone(),
            requests,
            errors,
            response_ms_mean: Fixed(row.mean_ms),
            response_ms_max: Fixed(row.max_ms),
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let what = format!("{}, {}, {}: mean, ms", row.system.word(), row.place.describe(), row.interaction);
        vec![Bound::new(what, row.mean_ms, 0.0..=row.max_ms)]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(self.places, rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(self, rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        tell(self, rows, story);
    }
}

fn find<'a>(rows: &'a [Row], system: System, place: Place, interaction: &str) -> Option<&'a Row> {
    let is_it = |row: &&Row| row.system == system && row.place == place && row.interaction == interaction;
    rows.iter().find(is_it)
}

/// The ratio of a figure to the same by socket-async: the median over the interactions of Table 1.
fn over_sockets(rows: &[Row], system: System, place: Place, figure: fn(&Row) -> f64) -> Option<f64> {
    let ratios = TABLE.iter().filter_map(|Published { interaction, .. }| {
        let of = |system| find(rows, system, place, interaction).map(figure);
        Some(of(system)? / of(System::Edges(Scheme::SocketAsync)).filter(|ms| *ms > 0.0)?)
    });
    median(ratios.collect())
}

const fn max_ms(row: &Row) -> f64 {
    row.max_ms
}

const fn mean_ms(row: &Row) -> f64 {
    row.mean_ms
}

fn checks(places: &[Place], rows: &[Row]) -> Vec<Check> {
    let check = |scheme| {
        let overloaded = places.iter().filter(|place| place.is_overloaded());
        let ratios = overloaded.filter_map(|place| over_sockets(rows, System::Edges(scheme), *place, max_ms));
        let what = format!(
            "longest responses, {scheme} / socket-async, from {OVERLOADED_MIN} busy processes on: the median"
        );
        Check::at_most(what, RATIO_MAX, median(ratios.collect()))
    };
    ONE_SIDED.map(check).into()
}

fn draw(study: &Table, rows: &[Row]) -> Drawing {
    let places = || study.places.iter().filter(|place| place.persons == PERSONS);
    let most = places().map(|place| place.background).max().unwrap_or(1);
    let panel = |title: &str, y: &str, figure: fn(&Row) -> f64| {
        let line = |scheme: &Scheme| {
            let points = places().filter_map(|place| {
                let of_table = TABLE.iter().filter_map(|Published { interaction, .. }| {
                    find(rows, System::Edges(*scheme), *place, interaction).map(figure)
                });
                Some((f64::from(place.background), median(of_table.collect())?))
            });
            Line::new(style(*scheme), points.collect())
        };
        let lines: Vec<Line> = study.schemes.all.iter().map(line).collect();
        let highest = lines.iter().map(Line::most).fold(1.0, f64::max);
        let x = Axis::between("busy processes on each of two nodes", 0.0, f64::from(most));
        Panel { title: title.to_owned(), x, y: Axis::from_zero(y, highest), lines }
    };
    let panels = [
        panel("(a) longest response, the median interaction", "longest response (ms)", max_ms),
        panel("(b) mean response, the median interaction", "mean response (ms)", mean_ms),
    ];
    drawing(&study.schemes, panels)
}

fn tell(study: &Table, rows: &[Row], report: &mut Story) {
    report.heading("The paper beside ours");
    report.paragraph(
        "Vaidyanathan et al. 2006, 5.2.1: \"both RDMA-Sync and e-RDMA-Sync schemes perform consistently better than the other three schemes. Since the \
         maximum response time is considerably low for RDMA-Sync scheme [...], it validates the fact that completely removing the need \
         for another process on the server brings down the maximum response time.\" Times in ms, mean and longest, as the paper has \
         them and as they are here where the other work is most.",
    );
    let worst = study.places.iter().filter(|place| place.persons == PERSONS).max_by_key(|at| at.background);
    let systems: Vec<System> = study.systems().collect();
    let columns: Vec<String> = ["interaction", "paper, in the order of the schemes"]
        .map(str::to_owned)
        .into_iter()
        .chain(systems.iter().map(|system| system.word()))
        .collect();
    report.table(
        &columns.iter().map(String::as_str).collect::<Vec<_>>(),
        TABLE.iter().map(|Published { interaction, mean_ms, max_ms }| {
            let paper = mean_ms.iter().zip(max_ms).map(|(mean, max)| format!("{mean}, {max}"));
            let paper = paper.collect::<Vec<_>>().join("; ");
            let ours = systems.iter().map(|system| {
                let row = worst.and_then(|place| find(rows, *system, *place, interaction));
                format!("{}, {}", number(row.map(|row| row.mean_ms), 0), number(row.map(|row| row.max_ms), 0))
            });
            [(*interaction).to_owned(), paper].into_iter().chain(ours).collect()
        }),
    );
    report.checks();
    report.heading("Where the schemes differ");
    report.paragraph(
        "Longest and mean response over socket-async's in the same repetition: the medians of the paper's eight interactions.",
    );
    let others = || systems.iter().filter(|system| **system != System::Edges(Scheme::SocketAsync));
    let columns: Vec<String> = ["persons".to_owned(), "busy processes".to_owned()]
        .into_iter()
        .chain(others().map(|system| format!("{}: longest, mean", system.word())))
        .collect();
    report.table(
        &columns.iter().map(String::as_str).collect::<Vec<_>>(),
        study.places.iter().map(|place| {
            let ratios = others().map(|system| {
                let of = |figure| number(over_sockets(rows, *system, *place, figure), 2);
                format!("{}, {}", of(max_ms), of(mean_ms))
            });
            [place.persons.to_string(), place.background.to_string()].into_iter().chain(ratios).collect()
        }),
    );
    let absent = study.without_nginx.iter().map(|why| format!("nginx: {why}."));
    let background = "Other work: the paper tells of none beside RUBiS; here two of the nodes have some, so that there is a choice to get \
                      wrong.";
    let absent: Vec<String> = absent.chain([background.to_owned()]).collect();
    let how = format!(
        "{} Runs of {} s, the schemes in turns; nginx is led by choice, by rdma-sync, and counts the requests since the last scan, too. {} requests were rejected or failed in all runs.",
        auction::describe(),
        study.run_s,
        rows.iter().map(|row| row.errors).sum::<u64>()
    );
    close(report, &study.schemes, &absent, &how);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(scheme: Scheme, background: u32, max_ms: f64) -> Vec<Row> {
        let row = |of: &Published| Row {
            system: System::Edges(scheme),
            place: place(PERSONS, background),
            interaction: of.interaction.to_owned(),
            requests: 9,
            errors: 0,
            mean_ms: 3.0,
            max_ms,
        };
        TABLE.iter().map(row).collect()
    }

    #[test]
    fn one_sided_schemes_are_judged_where_nodes_are_overloaded() {
        let mut all = [
            rows(Scheme::SocketAsync, 0, 20.0),
            rows(Scheme::RdmaSync, 0, 20.0),
            rows(Scheme::SocketAsync, 12, 400.0),
            rows(Scheme::RdmaSync, 12, 40.0),
            rows(Scheme::RdmaAsync, 12, 240.0),
        ]
        .concat();
        let verdicts =
            |rows: &[Row]| checks(PLACES_QUICK, rows).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&all), ["MISSED", "met", "not measured"]);
        // One interaction does not decide.
        all.iter_mut().filter(|row| row.interaction == "Home").for_each(|row| row.max_ms = 900.0);
        assert_eq!(verdicts(&all), ["MISSED", "met", "not measured"]);
    }
}
