//! M5: threads and CPU load in the record against the truth (Vaidyanathan et al. 2006, 5.1.3).

use std::time::Duration;

use serde::Serialize;
use sidelong_config::Scheme;

use super::{START, Schemes, close, drawing, load, panel};
use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::figure::Axis;
use crate::results::load::{Accuracy as Found, Placement};
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;

/// Numbers of threads that come and go.
const LOADS: &[u32] = &[1, 4, 16, 64];
const LOADS_QUICK: &[u32] = &[4, 64];
const SECONDS: u64 = 20;
const SECONDS_QUICK: u64 = 3;
/// Number of runs of each case, in turns.
const ROUNDS: [u32; 2] = [3, 1];
/// The schemes that rdma-sync is compared with: all others but its own variant.
const OTHERS: [Scheme; 3] = [Scheme::SocketAsync, Scheme::SocketSync, Scheme::RdmaAsync];

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Field {
    Threads,
    Cpu,
}

impl Field {
    const ALL: [Field; 2] = [Field::Threads, Field::Cpu];

    const fn name(self) -> &'static str {
        match self {
            Field::Threads => "threads",
            Field::Cpu => "cpu",
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Row {
    scheme: Scheme,
    field: Field,
    load: u32,
    /// `None` if its runs had no samples.
    deviation_mean: Option<f64>,
    deviation_max: Option<f64>,
}

impl Row {
    fn of(scheme: Scheme, field: Field, load: u32, found: &Found) -> Row {
        let of = if field == Field::Threads { found.threads } else { found.cpu_percent };
        Row { scheme, field, load, deviation_mean: of.mean, deviation_max: of.max }
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    scheme: Scheme,
    field: Field,
    load: u32,
    deviation_mean: Option<Fixed<3>>,
    deviation_max: Option<Fixed<3>>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let quick = bench.options.quick;
    let (loads, seconds) = if quick { (LOADS_QUICK, SECONDS_QUICK) } else { (LOADS, SECONDS) };
    let schemes = Schemes::here(bench)?;
    study::run(
        bench,
        Accuracy { schemes, loads, seconds, samples: 0, cpu_truth: String::new(), placement: None },
    )
}

#[derive(Serialize)]
struct Accuracy {
    schemes: Schemes,
    loads: &'static [u32],
    seconds: u64,
    samples: u64,
    cpu_truth: String,
    placement: Option<Placement>,
}

impl Accuracy {
    fn time(&self) -> Duration {
        Duration::from_secs(self.seconds) + START
    }
}

impl Study for Accuracy {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = ROUNDS;

    fn plan(&self) -> Vec<Duration> {
        vec![self.time(); self.loads.len() * self.schemes.all.len()]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Accuracy>) -> Result<()> {
        for &threads in self.loads {
            let mut runs = Vec::new();
            for scheme in self.schemes.all.clone() {
                let name = bench.name(format!("{threads}-{scheme}"));
                bench.begin(&name);
                let (count, time_s) = (threads.to_string(), self.seconds.to_string());
                let arguments =
                    ["accuracy", "--scheme", scheme.as_str(), "--background", &count, "--for", &time_s];
                let (placement, found): (_, Found) = load(bench, &name, &arguments, self.time())?;
                self.samples += found.samples;
                self.cpu_truth.clone_from(&found.cpu_truth);
                self.placement = Some(placement);
                runs.push((scheme, found));
                bench.end();
            }
            for field in Field::ALL {
                for (scheme, found) in &runs {
                    rows.push(self, Row::of(*scheme, field, threads, found))?;
                }
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { scheme, field, load, deviation_mean, deviation_max } = *row;
        let [deviation_mean, deviation_max] = [deviation_mean, deviation_max].map(|value| value.map(Fixed));
        vec![TableLine { scheme, field, load, deviation_mean, deviation_max }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let most = if row.field == Field::Cpu { 100.0 } else { f64::INFINITY };
        let what = format!("{}, {} threads, {}: deviation", row.scheme, row.load, row.field.name());
        row.deviation_max
            .map(|max| Bound::new(what, max, row.deviation_mean.unwrap_or(0.0)..=most))
            .into_iter()
            .collect()
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows, self.loads)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        draw(self, rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        tell(self, rows, story);
    }
}

fn mean(rows: &[Row], scheme: Scheme, field: Field, load: u32) -> Option<f64> {
    let is_it = |row: &&Row| row.scheme == scheme && row.field == field && row.load == load;
    rows.iter().find(is_it)?.deviation_mean
}

/// The ratio of rdma-sync's mean deviation to the least of the others. `None` if one is missing.
fn against_others(rows: &[Row], field: Field, load: u32) -> Option<f64> {
    let others: Option<Vec<f64>> = OTHERS.iter().map(|other| mean(rows, *other, field, load)).collect();
    let least = others?.into_iter().reduce(f64::min)?;
    let ours = mean(rows, Scheme::RdmaSync, field, load)?;
    match (ours, least) {
        (0.0, _) => Some(0.0),
        (_, 0.0) => Some(f64::INFINITY),
        _ => Some(ours / least),
    }
}

fn checks(rows: &[Row], loads: &[u32]) -> Vec<Check> {
    let check = |field: Field| {
        let ratios: Option<Vec<f64>> = loads.iter().map(|load| against_others(rows, field, *load)).collect();
        let worst = ratios.and_then(|ratios| ratios.into_iter().reduce(f64::max));
        let what = format!(
            "{}: mean deviation of rdma-sync / the least of the others, at the load where that is most",
            field.name()
        );
        Check::at_most(what, 1.0, worst)
    };
    Field::ALL.map(check).to_vec()
}

fn draw(settings: &Accuracy, rows: &[Row]) -> Drawing {
    let x = ("threads that come and go", settings.loads);
    let y = |title: &'static str| {
        move |values: &[f64]| Axis::from_zero(title, values.iter().copied().fold(0.0, f64::max))
    };
    let panels = [
        panel("(a) threads", x, y("mean deviation (threads)"), &settings.schemes, |scheme, load| {
            mean(rows, scheme, Field::Threads, load)
        }),
        panel(
            "(b) CPU load",
            x,
            y("mean deviation (percent of the CPUs)"),
            &settings.schemes,
            |scheme, load| mean(rows, scheme, Field::Cpu, load),
        ),
    ];
    drawing(&settings.schemes, panels)
}

fn tell(settings: &Accuracy, rows: &[Row], report: &mut Story) {
    report.heading("The paper beside ours");
    report.paragraph(
        "Vaidyanathan et al. 2006, 5.1.3: \"as the load on the server increases, we see that Socket-Async, Socket-Sync and RDMA-Async show deviations with \
         respect to the number of threads reported by the kernel module. On the other hand, RDMA-Sync scheme consistently reports \
         no deviation\"; of CPU load the others \"show deviations in comparison with the actual load while RDMA-Sync scheme reports \
         very few deviations\". It prints no figures of Figure 5.",
    );
    for field in Field::ALL {
        let told = settings.loads.iter().map(|&load| {
            let holds = report.holds(against_others(rows, field, load).map(|ratio| ratio <= 1.0));
            format!("{}, {load} threads: rdma-sync deviates least: {holds}.", field.name())
        });
        let told: Vec<_> = told.collect();
        report.list(told);
    }
    report.checks();
    report.heading("Measured");
    report.table(
        &["field", "threads", "scheme", "deviation, mean", "deviation, most"],
        rows.iter().map(|row| {
            let Row { scheme, field, load, deviation_mean, deviation_max } = row;
            let [mean, max] = [deviation_mean, deviation_max].map(|value| number(*value, 2));
            vec![field.name().to_owned(), load.to_string(), scheme.to_string(), mean, max]
        }),
    );
    report.paragraph(&format!(
        "Threads on the node's CPU are busy and asleep for times that are drawn (20 ms each on average, from a fixed seed), as \
         requests come and go; T is 50 ms. Each 10 ms the sampling side takes the record and then asks the kernel: the threads \
         that run or wait to (procs_running of /proc/stat, less the one that asks), and the CPU time of all in the last 20 ms \
         ({}). Deviations are absolute: of CPU load in percent of all CPUs. /proc counts CPU time in ticks of 10 ms, which is why \
         records that are made from it are means over 50 ms and more. The truth is exact where it is cpuacct.usage: the sampling side has the kernel account for \
         what runs just before it asks. The paper runs the \
         schemes at the same time; here they take turns, with the same draws.",
        settings.cpu_truth
    ));
    let describe = settings.placement.map(Placement::describe).unwrap_or_default();
    let how = format!(
        "{describe} The record is the machine's. Runs of {} s, {} samples in all.",
        settings.seconds, settings.samples
    );
    close(report, &settings.schemes, &[], &how);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::load::Deviation;

    fn rows(ours: f64, other: f64) -> Vec<Row> {
        let row = |(scheme, mean)| {
            Field::ALL.map(|field| Row {
                scheme,
                field,
                load: 4,
                deviation_mean: Some(mean),
                deviation_max: Some(9.0),
            })
        };
        let others = OTHERS.map(|scheme| (scheme, other));
        others.into_iter().chain([(Scheme::RdmaSync, ours)]).flat_map(row).collect()
    }

    #[test]
    fn the_kernel_s_record_is_to_deviate_least() {
        let verdicts = |rows: &[Row]| checks(rows, &[4]).iter().map(Check::verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&rows(0.5, 1.0)), ["met", "met"]);
        assert_eq!(verdicts(&rows(1.5, 1.0)), ["MISSED", "MISSED"]);
        assert_eq!(verdicts(&rows(0.0, 0.0)), ["met", "met"]);
        assert_eq!(verdicts(&rows(0.5, 1.0)[..6]), ["not measured", "not measured"]);
    }

    #[test]
    fn a_row_has_the_columns() {
        let found = Found {
            samples: 1,
            unusable: 0,
            cpu_truth: String::new(),
            threads: Deviation { mean: Some(1.5), max: Some(5.0) },
            cpu_percent: Deviation { mean: None, max: None },
        };
        let schemes = Schemes { all: Vec::new(), refused: Vec::new() };
        let study = Accuracy {
            schemes,
            loads: LOADS,
            seconds: 20,
            samples: 0,
            cpu_truth: String::new(),
            placement: None,
        };
        let written = |field| {
            let row = Row::of(Scheme::RdmaAsync, field, 16, &found);
            crate::table::written(study.lines(&row).remove(0))
        };
        assert_eq!(
            written(Field::Threads),
            ["scheme,field,load,deviation_mean,deviation_max", "rdma-async,threads,16,1.500,5.000"]
        );
        assert_eq!(written(Field::Cpu)[1], "rdma-async,cpu,16,,");
    }
}
