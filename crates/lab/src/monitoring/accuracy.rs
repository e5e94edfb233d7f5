//! M5: threads and CPU load as the record has them, against the truth (M 5.1.3).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelong_config::Scheme;

use super::{Placement, START, Schemes, legend, load, panel};
use crate::bench::Bench;
use crate::check::Check;
use crate::error::Result;
use crate::figure::{self, Axis};
use crate::machine::Machine;
use crate::report::{Markdown, Outcome, number};

/// Threads that come and go.
const LOADS: &[u32] = &[1, 4, 16, 64];
const LOADS_QUICK: &[u32] = &[4, 64];
const SECONDS: u64 = 20;
const SECONDS_QUICK: u64 = 3;
/// Runs of each, in turns.
const ROUNDS: u32 = 3;
const ROUNDS_QUICK: u32 = 1;
/// With which rdma-sync is compared: all others but its own variant.
const OTHERS: [Scheme; 3] = [Scheme::SocketAsync, Scheme::SocketSync, Scheme::RdmaAsync];

/// What `perf load accuracy` prints, as far as it is used.
#[derive(Clone, PartialEq, Debug, Deserialize)]
struct Found {
    looks: u64,
    cpu_truth: String,
    threads: Deviation,
    cpu_percent: Deviation,
    #[serde(flatten)]
    placement: Placement,
}

#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
struct Deviation {
    mean: Option<f64>,
    max: Option<f64>,
}

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
    /// Of its runs.
    deviation_mean: Option<f64>,
    deviation_max: Option<f64>,
}

impl Row {
    fn of(scheme: Scheme, field: Field, load: u32, runs: &[Found]) -> Row {
        let of = |found: &Found| if field == Field::Threads { found.threads } else { found.cpu_percent };
        let means: Vec<f64> = runs.iter().filter_map(|run| of(run).mean).collect();
        let mean = (!means.is_empty()).then(|| means.iter().sum::<f64>() / means.len() as f64);
        let max = runs.iter().filter_map(|run| of(run).max).reduce(f64::max);
        Row { scheme, field, load, deviation_mean: mean, deviation_max: max }
    }

    fn csv(&self) -> String {
        let value = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.3}"));
        let Row { scheme, field, load, deviation_mean, deviation_max } = self;
        format!("{scheme},{},{load},{},{}", field.name(), value(*deviation_mean), value(*deviation_max))
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
struct Settings {
    schemes: Schemes,
    loads: Vec<u32>,
    seconds: u64,
    rounds: u32,
    looks: u64,
    cpu_truth: String,
    placement: Option<Placement>,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Vec<Check>> {
    let quick = bench.options.quick;
    let (loads, seconds, rounds) =
        if quick { (LOADS_QUICK, SECONDS_QUICK, ROUNDS_QUICK) } else { (LOADS, SECONDS, ROUNDS) };
    let schemes = Schemes::here(bench)?;
    let time = Duration::from_secs(seconds) + START;
    let count = loads.len() * schemes.all.len() * rounds as usize;
    (0..count).for_each(|_| bench.expect_for(time));
    let mut table = bench.table("rows.csv", bench.experiment.columns)?;
    let mut settings = Settings {
        loads: loads.to_vec(),
        seconds,
        rounds,
        looks: 0,
        cpu_truth: String::new(),
        placement: None,
        schemes,
    };
    let schemes = settings.schemes.clone();
    let mut rows = Vec::new();
    for &threads in loads {
        let mut runs = vec![Vec::new(); schemes.all.len()];
        for round in 1..=rounds {
            for (scheme, runs) in schemes.all.iter().zip(&mut runs) {
                let name = format!("{threads}-{scheme}-{round}");
                bench.begin(&name);
                let (count, time_s) = (threads.to_string(), seconds.to_string());
                let arguments =
                    ["accuracy", "--scheme", scheme.as_str(), "--background", &count, "--for", &time_s];
                let found: Found = load(bench, &name, &arguments, time)?;
                settings.looks += found.looks;
                settings.cpu_truth.clone_from(&found.cpu_truth);
                settings.placement = Some(found.placement);
                runs.push(found);
                bench.end();
            }
        }
        for field in Field::ALL {
            let of_field =
                schemes.all.iter().zip(&runs).map(|(scheme, runs)| Row::of(*scheme, field, threads, runs));
            let of_field: Vec<Row> = of_field.collect();
            table.rows(of_field.iter().map(Row::csv))?;
            rows.extend(of_field);
        }
    }
    let checks = checks(&rows, loads);
    bench.write("figure.svg", &draw(bench, &settings, &rows)?)?;
    let machine = Machine::here();
    let outcome = Outcome::new(bench, &machine, settings, &rows, &checks);
    bench.write("result.json", &outcome.to_json()?)?;
    bench.write("report.md", &markdown(&outcome))?;
    Ok(checks)
}

fn mean(rows: &[Row], scheme: Scheme, field: Field, load: u32) -> Option<f64> {
    let is_it = |row: &&Row| row.scheme == scheme && row.field == field && row.load == load;
    rows.iter().find(is_it)?.deviation_mean
}

/// rdma-sync's mean deviation over the least of the others'. None where one of them is missing.
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

fn draw(bench: &Bench<'_>, settings: &Settings, rows: &[Row]) -> Result<String> {
    let title = format!("{}: {}", bench.experiment.id, bench.experiment.title);
    let x = ("threads that come and go", &settings.loads[..]);
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
    Ok(figure::draw(&title, &panels, &legend(&settings.schemes))?)
}

fn markdown(outcome: &Outcome<'_, Row, Settings>) -> String {
    let (rows, settings) = (outcome.rows, &outcome.settings);
    let mut report = Markdown::new(outcome.experiment, outcome.quick);
    report.heading("The paper beside ours");
    report.paragraph(
        "M 5.1.3: \"as the load on the server increases, we see that Socket-Async, Socket-Sync and RDMA-Async show deviations with \
         respect to the number of threads reported by the kernel module. On the other hand, RDMA-Sync scheme consistently reports \
         no deviation\"; of CPU load the others \"show deviations in comparison with the actual load while RDMA-Sync scheme reports \
         very few deviations\". It prints no figures of Figure 5.",
    );
    for field in Field::ALL {
        let told = settings.loads.iter().map(|&load| {
            let verdict = match against_others(rows, field, load) {
                None => "not measured",
                Some(ratio) if ratio <= 1.0 => "it holds",
                Some(_) => "it does **not** hold",
            };
            format!("{}, {load} threads: rdma-sync deviates least: {verdict}.", field.name())
        });
        report.list(told);
    }
    report.checks(outcome.checks);
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
         requests come and go; T is 50 ms. Each 10 ms the side that looks takes the record and then asks the kernel: the threads \
         that run or wait to (procs_running of /proc/stat, less the one that asks), and the CPU time of all in the last 20 ms \
         ({}). Deviations are absolute: of CPU load in percent of all CPUs. /proc counts CPU time in ticks of 10 ms, which is why \
         records that are made from it are means over 50 ms and more. The truth is exact where it is cpuacct.usage: the side that looks has the kernel account for \
         what runs just before it asks. M runs the \
         schemes at the same time; here they take turns, with the same draws.",
        settings.cpu_truth
    ));
    let describe = settings.placement.map(Placement::describe).unwrap_or_default();
    let how = format!(
        "{describe} The record is the machine's. {} runs of {} s for each row, {} looks in all.",
        settings.rounds, settings.seconds, settings.looks
    );
    report.close_beside_m(outcome, &settings.schemes.refused, &[], &how)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn runs_of_one_row_are_taken_together() {
        let found = |mean, max| Found {
            looks: 1,
            cpu_truth: String::new(),
            threads: Deviation { mean: Some(mean), max: Some(max) },
            cpu_percent: Deviation { mean: None, max: None },
            placement: Placement { node_cpu: None, this_cpu: None },
        };
        let runs = [found(1.0, 5.0), found(2.0, 3.0)];
        let row = Row::of(Scheme::RdmaAsync, Field::Threads, 16, &runs);
        assert_eq!(row.csv(), "rdma-async,threads,16,1.500,5.000");
        assert_eq!(Row::of(Scheme::RdmaAsync, Field::Cpu, 16, &runs).csv(), "rdma-async,cpu,16,,");
    }
}
