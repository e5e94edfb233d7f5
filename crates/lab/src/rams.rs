//! C1-C4: the cooperative cache of Gu and Wang 2004, simulated by `sidelong-lab sim run`.
//!
//! Values that the paper does not print (memory of a node, the site, the cost of a request) are fixed here before anything
//! runs, and not changed afterwards. If a published shape does not come out, further runs vary those unknowns, and the
//! report gives the values for which it does.

mod judge;
mod live;
mod traces;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sidelong_figure::Style;

pub(crate) use live::L1;
pub(crate) use traces::logs;

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::{Check, Verdict};
use crate::design::Design;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::measure::{Dimension, Measure, Word};
use crate::samples::Samples;
use crate::sim;
use crate::table;
use judge::{Judge, Of, Statement};

const SIZES: [u32; 4] = [4, 16, 64, 256];
/// Nodes of C1.
const TRACE_NODES: u32 = 64;
/// Requests in full and quick, and those of a trace: several times a short log.
const REQUESTS: [u32; 2] = [1_000_000, 100_000];
const TRACE_REQUESTS: [u32; 2] = [300_000, 100_000];
/// About how long a sweep takes; simulated time is no guide, as it depends on the machine alone. One that varies the unknowns takes this
/// many times as long.
const TIMES: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(10)];
const LONGER: u32 = 5;
/// A sweep may take this many times as long.
const SLOWER_MAX: u32 = 60;
/// A site of 40,000 objects (1.1 GB) by Zipf's law, on nodes that keep 64 MB: the caches of 16 nodes hold half of it.
const SITE: &str = "profile = \"rams\"\n[workload]\nkind = \"zipf\"\nobjects = 40_000\nalpha = 0.9\n[cluster]\nmemory_mb = 64\n";
/// The unknowns for the further runs: their names, units and values.
const UNKNOWNS: [(&str, &str, &str); 3] = [
    ("memory_mb", "MB", "8,32,128,512"),
    ("request_us", "µs", "20,60,180"),
    ("answer_us_per_kib", "µs/KiB", "2.5,10"),
];

const PROTOCOL: Dimension = Dimension::new(
    "protocol",
    "protocol",
    &[
        Word::new("rpc", "rpc", Style::BASELINE),
        Word::new("lazy", "lazy", Style::FOURTH),
        Word::new("aggressive", "aggressive", Style::series(6)),
        Word::new("sender", "sender", Style::THIRD),
        Word::new("receiver", "receiver", Style::series(5)),
        Word::new("accumulated", "accumulated", Style::FIFTH),
        Word::new("ledger", "ledger", Style::OURS),
    ],
);
/// The simulator's figures, under its names, and [`L1`]'s own at the end.
const MEASURES: [Measure; 16] = [
    Measure::new("requests", "requests", [0, 0]),
    Measure::new("response_ms_mean", "response, ms", [4, 3]),
    Measure::new("response_ms_p50", "median, ms", [4, 3]),
    Measure::new("response_ms_p99", "p99, ms", [4, 2]),
    Measure::new("requests_per_s", "requests/s", [1, 0]),
    Measure::new("here_rate", "answered from own memory", [4, 4]).possible(|_| 0.0..=1.0),
    Measure::new("disk_rate", "disk reads a request", [4, 4]),
    Measure::new("read_rate", "one-sided reads a request", [4, 4]),
    Measure::new("read_failure_rate", "reads that fail", [6, 6]).possible(|_| 0.0..=1.0),
    Measure::derived("failing_percent", "reads that fail, %", 3),
    Measure::new("update_messages_per_request", "update messages a request", [4, 4]),
    Measure::new("update_bytes_per_request", "bytes for updates a request", [1, 1]),
    // What a protocol makes of the baseline's figure, as the paper has it.
    Measure::derived("to_baseline", "to the baseline", 3),
    Measure::new("wrong", "wrong answers", [0, 0]),
    // How the live nodes shared the machine's CPUs, where the kernel counts it.
    Measure::new("cpu_us_per_request", "CPU time of a request, µs", [1, 1]),
    Measure::new("waiting_percent", "nodes wait for a CPU, % of time", [1, 0]),
];
const SIMULATED: &[Measure] = MEASURES.split_at(MEASURES.len() - 4).0;

const DESIGN: Design = Design {
    needs_the_machine: false,
    dimensions: &[Dimension::new("nodes", "nodes", &[]), PROTOCOL],
    cases: &["4,16,64,256/*"],
    measures: SIMULATED,
    settings: |quick| {
        let mut settings = json!({
            "site": SITE,
            "nodes": SIZES,
            "trace_nodes": TRACE_NODES,
            "requests": REQUESTS[usize::from(quick)],
            "traces": null,
            // How many values of the unknowns were tried, and for which each check held.
            "varied": [],
            "is_left_out": false,
            "requests_varied": REQUESTS[0],
            "sweeps": sim::SWEEPS,
        });
        for (name, _, values) in UNKNOWNS {
            settings[name] = values.replace(',', ", ").into();
        }
        settings
    },
    template: include_str!("rams.md"),
    ..Design::DEFAULT
};

pub(crate) const C1: Experiment = Experiment::new(
    "C1",
    "Gu and Wang 2004, Figure 1",
    "response time by trace and update protocol, 64 nodes",
    Design {
        dimensions: &[Dimension::new("trace", "trace", &[]), PROTOCOL],
        cases: &["worldcup98-sample/*"],
        charts: &[Chart::bars("", "response_ms_mean", "trace", "protocol").unit(1.0, RESPONSE)],
        run: |bench| run(bench, Of::Traces),
        conclude: |samples| conclude(samples, Of::Traces),
        ..DESIGN
    },
);
pub(crate) const C2: Experiment = Experiment::new(
    "C2",
    "Gu and Wang 2004, Figure 2",
    "response time by cluster size",
    Design {
        charts: &[Chart::lines("", "response_ms_mean", "nodes", "protocol").unit(1.0, RESPONSE)],
        run: |bench| run(bench, Of::Response),
        conclude: |samples| conclude(samples, Of::Response),
        ..DESIGN
    },
);
pub(crate) const C3: Experiment = Experiment::new(
    "C3",
    "Gu and Wang 2004, Figure 3",
    "throughput by cluster size",
    Design {
        charts: &[Chart::lines("", "requests_per_s", "nodes", "protocol")],
        run: |bench| run(bench, Of::Throughput),
        conclude: |samples| conclude(samples, Of::Throughput),
        ..DESIGN
    },
);
pub(crate) const C4: Experiment = Experiment::new(
    "C4",
    "Gu and Wang 2004, Figure 4",
    "one-sided reads that fail, by cluster size",
    Design {
        charts: &[Chart::lines("", "failing_percent", "nodes", "protocol")
            .of("*/lazy,aggressive,sender,receiver,accumulated,ledger")],
        run: |bench| run(bench, Of::Failures),
        conclude: |samples| conclude(samples, Of::Failures),
        ..DESIGN
    },
);
const RESPONSE: &str = "mean response time (ms)";

/// A sweep of the simulator: all protocols with one trace, or with some sizes.
struct Sweep {
    name: String,
    trace: Option<String>,
    config: String,
    sets: Vec<String>,
}

impl Sweep {
    fn new(name: String, trace: Option<String>, config: String, requests: u32) -> Sweep {
        let protocols: Vec<&str> = PROTOCOL.words.iter().map(|word| word.word).collect();
        let sets = vec![format!("requests={requests}"), format!("protocol={}", protocols.join(","))];
        Sweep { name, trace, config, sets }
    }

    fn of_sizes(name: &str, requests: u32, sizes: &[u32]) -> Sweep {
        let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
        let sweep = Sweep::new(name.to_owned(), None, SITE.to_owned(), requests);
        sweep.with(format!("nodes={}", sizes.join(",")))
    }

    fn of_trace((name, workload): &(String, String), requests: u32) -> Sweep {
        let config = format!(
            "profile = \"rams\"\n[workload]\n{workload}[cluster]\nmemory_mb = 64\nnodes = {TRACE_NODES}\n"
        );
        Sweep::new(name.clone(), Some(name.clone()), config, requests)
    }

    fn with(mut self, set: String) -> Sweep {
        self.sets.push(set);
        self
    }

    /// This sweep with other values of what the paper does not print.
    fn with_unknowns(self) -> Sweep {
        let sweep =
            UNKNOWNS.iter().fold(self, |sweep, (name, _, values)| sweep.with(format!("{name}={values}")));
        let name = sweep.trace.as_ref().map_or("unknowns".to_owned(), |name| format!("unknowns-{name}"));
        Sweep { name, ..sweep }
    }

    /// Its trace, or the number of nodes; and the protocol.
    fn case(&self, nodes: &str, protocol: &str) -> String {
        format!("{}/{protocol}", self.trace.as_deref().unwrap_or(nodes))
    }

    /// Runs `sidelong-lab sim run`, which may take `time_max`. Returns the rows, by column, each with its case.
    fn simulate(
        &self,
        bench: &mut Bench<'_>,
        time_max: Duration,
    ) -> Result<Vec<(String, BTreeMap<String, String>)>> {
        let path = sim::run(bench, &bench.name(&*self.name), &self.config, &self.sets, time_max)?;
        let cased = |row: BTreeMap<String, String>| {
            let of = |column: &str| row.get(column).map_or("", String::as_str);
            (self.case(of("nodes"), of("protocol")), row)
        };
        Ok(table::read(&path)?.into_iter().map(cased).collect())
    }
}

/// The figures that are known by their names.
fn figures(known: impl Fn(&str) -> Option<f64>) -> Vec<(&'static str, f64)> {
    SIMULATED.iter().filter_map(|measure| Some((measure.name, known(measure.name)?))).collect()
}

fn of_row(row: &BTreeMap<String, String>) -> Vec<(&'static str, f64)> {
    figures(|name| row.get(name)?.parse().ok())
}

fn run(bench: &mut Bench<'_>, of: Of) -> Result<()> {
    let traces = traces::all(bench)?;
    let names: Vec<&str> = traces.iter().map(|(name, _)| name.as_str()).collect();
    bench.set("traces", names.join(", "));
    let sweeps = |sizes: &str, [requests, of_trace]: [u32; 2]| match of {
        Of::Traces => traces.iter().map(|trace| Sweep::of_trace(trace, of_trace)).collect(),
        _ => vec![Sweep::of_sizes(sizes, requests, &SIZES)],
    };
    let all = sweeps("sizes", [bench.either(REQUESTS), bench.either(TRACE_REQUESTS)]);
    // Logs are repeated more often here: with few requests, most of the time goes into the first load of each object from disk, which
    // is the same for all protocols.
    let further: Vec<Sweep> = match bench.options.quick {
        true => Vec::new(),
        false => sweeps("unknowns", [REQUESTS[0]; 2]).into_iter().map(Sweep::with_unknowns).collect(),
    };
    let time = bench.either(TIMES);
    let plan = [vec![time; all.len()], vec![LONGER * time; further.len()]].concat();
    bench.rounds(&plan, |bench| {
        for sweep in &all {
            for (case, row) in sweep.simulate(bench, SLOWER_MAX * time)? {
                bench.sample(&case, of_row(&row))?;
            }
        }
        let is_missed = Verdict::of(&checks(&bench.samples, of)) == Verdict::Missed;
        bench.set("is_left_out", is_missed && further.is_empty());
        if is_missed && !further.is_empty() {
            return vary(bench, of, &further, LONGER * time);
        }
        further.iter().for_each(|_| bench.skip());
        Ok(())
    })
}

/// Runs these sweeps and finds the values for which each check holds.
fn vary(bench: &mut Bench<'_>, of: Of, sweeps: &[Sweep], time: Duration) -> Result<()> {
    let mut tried: BTreeMap<String, Samples> = BTreeMap::new();
    for sweep in sweeps {
        for (case, row) in sweep.simulate(bench, SLOWER_MAX * time)? {
            let value = |(name, unit, _): &(&str, _, _)| Some(format!("{} {unit}", row.get(*name)?));
            let values: Vec<String> = UNKNOWNS.iter().filter_map(value).collect();
            let samples = tried.entry(values.join(", ")).or_insert_with(|| {
                let Samples { dimensions, measures, settings, .. } = &bench.samples;
                let mut samples = Samples::new(dimensions, measures, &[]);
                samples.settings = settings.clone();
                samples.begin();
                samples
            });
            samples.put(&case, of_row(&row));
        }
    }
    let judged: Vec<_> = tried.iter().map(|(values, samples)| (values, checks(samples, of))).collect();
    let line = |(at, check): (usize, Check)| {
        let holds = judged.iter().filter(|(_, checks)| checks[at].verdict == Verdict::Met);
        let held: Vec<&str> = holds.map(|(values, _)| values.as_str()).collect();
        let shown = match held.len() {
            0 => "none".to_owned(),
            count if count == judged.len() => "all".to_owned(),
            _ => held.join("; "),
        };
        json!([check.what, shown, held.len(), judged.len()])
    };
    let checks = checks(&bench.samples, of).into_iter().enumerate();
    bench.set("varied", checks.map(line).collect::<Vec<Value>>());
    Ok(())
}

/// Judges the simulated runs of a figure.
fn checks(samples: &Samples, of: Of) -> Vec<Check> {
    Judge { of, by: "", samples }.statements().into_iter().map(|statement| statement.check).collect()
}

fn conclude(samples: &mut Samples, of: Of) -> Vec<Check> {
    samples.derive("failing_percent", "*/*", |samples, case| &samples[case]["read_failure_rate"] * 100.0);
    let stated = Judge { of, by: "", samples }
        .statements()
        .into_iter()
        .filter_map(|Statement { published, check }| Some(json!([check.what, published?, check.figure(2)])));
    let stated: Vec<Value> = stated.collect();
    samples.settings.insert("stated".to_owned(), stated.into());
    checks(samples, of)
}
