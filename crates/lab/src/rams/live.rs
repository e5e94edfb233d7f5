//! L1: C1-C4 live, by `sidelong sim live`, beside what was published and what is simulated.
//!
//! Live are the decisions, the memory and the messages, between processes of one machine, which has fewer CPUs than processes. The
//! simulator has hardware of its own: the paper's, and today's, whose disk the live nodes wait for. So what depends on decisions is
//! compared by its value: how often reads fail. What depends on the hardware is compared by its order: which protocol answers more
//! requests. The paper's statements are judged of the live runs, and stand beside the simulated ones.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sidelong_figure::{Axis, Line, Panel, Style};

use super::judge::{Judge, Statement};
use super::{
    Figures, Of, PROTOCOLS, REQUESTS, REQUESTS_QUICK, Row, SITE, Simulated, Sweep, TRACE_REQUESTS, of_trace,
    style, sweep, traces,
};
use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::{Error, Result, file};
use crate::sim;
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::{self, Fixed};

/// As many as one machine runs as processes.
const SIZES: [&[u32]; 2] = [&[4, 16, 64], &[4, 16]];
/// The longest run.
const TIME_MAX: Duration = Duration::from_secs(1800);
/// Of fewer reads that fail, chance decides how many there are.
const FAILURES_MIN: f64 = 400.0;
/// Protocols whose simulated throughputs are closer than this have no order.
const APART: f64 = 1.1;
/// With more processes on a few CPUs, whose turn it is decides which protocol answers more requests.
const ORDERED_NODES_MAX: u32 = 16;
const FIGURES: [(Of, &str); 4] =
    [(Of::Traces, "C1"), (Of::Response, "C2"), (Of::Throughput, "C3"), (Of::Failures, "C4")];

/// Whose figures they are.
#[derive(Clone, Copy)]
enum By {
    /// Simulated with the paper's hardware.
    Paper,
    /// Simulated with today's hardware.
    Today,
    Live,
}

impl By {
    const ALL: [By; 3] = [By::Paper, By::Today, By::Live];

    const fn name(self) -> &'static str {
        match self {
            By::Paper => "simulated, paper's hardware",
            By::Today => "simulated, today's hardware",
            By::Live => "live",
        }
    }

    const fn word(self) -> &'static str {
        match self {
            By::Paper => "paper",
            By::Today => "today",
            By::Live => "live",
        }
    }
}

/// A run with today's hardware simulated, and live, as `sidelong sim live --json` prints it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Pair {
    protocol: String,
    nodes: u32,
    simulated: Figures,
    live: Figures,
    /// None if the kernel does not count it.
    sharing: Option<Sharing>,
    wrong: u64,
}

/// How the live nodes shared the machine's CPUs.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Sharing {
    cpu_us_per_request: f64,
    running: f64,
    waiting: f64,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Run {
    /// The trace, or empty.
    case: String,
    /// Simulated with the paper's hardware.
    paper: Figures,
    #[serde(flatten)]
    pair: Pair,
}

impl Run {
    const fn figures(&self, by: By) -> &Figures {
        match by {
            By::Paper => &self.paper,
            By::Today => &self.pair.simulated,
            By::Live => &self.pair.live,
        }
    }

    fn place(&self) -> String {
        match self.case.as_str() {
            "" => format!("{} nodes", self.pair.nodes),
            case => case.to_owned(),
        }
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    trace: String,
    nodes: u32,
    protocol: String,
    by: &'static str,
    response_ms_mean: Fixed<4>,
    response_ms_p50: Fixed<4>,
    requests_per_s: Fixed<0>,
    read_failure_rate: Fixed<6>,
    disk_rate: Fixed<4>,
}

/// Settings that all runs share.
#[derive(Serialize)]
struct Live {
    site: &'static str,
    requests: u32,
    nodes: &'static [u32],
    /// Each trace with its workload.
    #[serde(serialize_with = "super::names")]
    traces: Vec<(String, String)>,
    trace_requests: u32,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let quick = bench.options.quick;
    let [requests, trace_requests] = if quick { [REQUESTS_QUICK; 2] } else { [REQUESTS, TRACE_REQUESTS] };
    let (nodes, traces) = (SIZES[usize::from(quick)], traces(bench)?);
    study::run(bench, Live { site: SITE, requests, nodes, traces, trace_requests })
}

impl Live {
    /// What is run, by all protocols each: the case, its requests, and the sweep.
    fn sweeps(&self) -> Vec<(&str, u32, Sweep)> {
        let of_size = |nodes: &u32| {
            let name = format!("nodes-{nodes}");
            ("", self.requests, sweep(&name, self.requests, &format!("nodes={nodes}"), &PROTOCOLS))
        };
        let mut sweeps: Vec<_> = self.nodes.iter().map(of_size).collect();
        for (name, workload) in &self.traces {
            sweeps.push((name, self.trace_requests, of_trace(name, workload, self.trace_requests)));
        }
        sweeps
    }

    /// The runs of a figure.
    fn rows(of: Of, by: By, runs: &[Run]) -> Vec<Row> {
        let is_of = |run: &&Run| run.case.is_empty() != (of == Of::Traces);
        let row = |run: &Run| Row {
            case: run.case.clone(),
            nodes: run.pair.nodes,
            protocol: run.pair.protocol.clone(),
            figures: *run.figures(by),
        };
        runs.iter().filter(is_of).map(row).collect()
    }

    fn statements(&self, of: Of, by: By, runs: &[Run]) -> Vec<Statement> {
        Judge { of, sizes: self.nodes, rows: &Self::rows(of, by, runs) }.statements()
    }
}

/// Simulates a sweep with the paper's hardware and with today's, and runs it live.
fn play(bench: &mut Bench<'_>, case: &str, sweep: &Sweep) -> Result<Vec<Run>> {
    let Sweep { name, config, sets } = sweep;
    let names = ["", "-live"].map(|what| bench.name(format!("{name}{what}")));
    let papers: Vec<Simulated> = table::read(&sim::run(bench, &names[0], config, sets, TIME_MAX)?)?;
    let sets = [sets.as_slice(), &["profile=today".to_owned()]].concat();
    let path = sim::live(bench, &names[1], config, &sets, TIME_MAX)?;
    let failed = |found: String| Error::Output { path: path.clone(), found };
    let run = |line: &str| {
        let pair: Pair = serde_json::from_str(line).map_err(|error| failed(error.to_string()))?;
        let paper =
            papers.iter().find(|paper| (paper.nodes, &paper.protocol) == (pair.nodes, &pair.protocol));
        let paper = paper.ok_or_else(|| failed(format!("{} was not simulated", pair.protocol)))?.figures;
        Ok(Run { case: case.to_owned(), paper, pair })
    };
    file(&path, fs::read_to_string(&path))?.lines().map(run).collect()
}

impl Study for Live {
    type Row = Run;
    type Line = TableLine;

    fn plan(&self) -> Vec<Duration> {
        let live = |requests: u32| Duration::from_micros(u64::from(requests) * 30 * PROTOCOLS.len() as u64);
        self.sweeps()
            .into_iter()
            .flat_map(|(_, requests, _)| [Duration::from_secs(5), live(requests)])
            .collect()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Live>) -> Result<()> {
        for (case, _, sweep) in self.sweeps() {
            for run in play(bench, case, &sweep)? {
                rows.push(self, run)?;
            }
        }
        Ok(())
    }

    fn lines(&self, run: &Run) -> Vec<TableLine> {
        let line = |by: By| {
            let figures = run.figures(by);
            TableLine {
                trace: run.case.clone(),
                nodes: run.pair.nodes,
                protocol: run.pair.protocol.clone(),
                by: by.name(),
                response_ms_mean: Fixed(figures.response_ms_mean),
                response_ms_p50: Fixed(figures.response_ms_p50),
                requests_per_s: Fixed(figures.requests_per_s),
                read_failure_rate: Fixed(figures.read_failure_rate),
                disk_rate: Fixed(figures.disk_rate),
            }
        };
        By::ALL.map(line).into()
    }

    fn bounds(&self, run: &Run) -> Vec<Bound> {
        let of = |what: &str| format!("{}, {}: {what}", run.place(), run.pair.protocol);
        let live = &run.pair.live;
        vec![
            Bound::share(of("reads that fail"), live.read_failure_rate),
            Bound::share(of("requests answered from own memory"), live.here_rate),
            Bound::not_below_zero(of("requests/s"), live.requests_per_s),
        ]
    }

    fn checks(&self, runs: &[Run]) -> Vec<Check> {
        let live = FIGURES.into_iter().flat_map(|(of, id)| {
            let statements = self.statements(of, By::Live, runs).into_iter();
            statements.map(move |Statement { check, .. }| check.named(|what| format!("{id}, live: {what}")))
        });
        beside_simulated(runs).into_iter().chain(live).collect()
    }

    fn draw(&self, runs: &[Run]) -> Drawing {
        let shown = &PROTOCOLS[1..];
        let panel = |(of, id): (Of, &str)| {
            let rows = By::ALL.map(|by| Self::rows(of, by, runs));
            let judges = rows.iter().map(|rows| Judge { of, sizes: self.nodes, rows });
            let line = |protocol: &&str| {
                let points = (1..).zip(judges.clone());
                let point = |(at, judge): (u32, Judge<'_>)| Some((f64::from(at), judge.beside(protocol)?));
                Line::new(style(protocol).bars(), points.filter_map(point).collect())
            };
            let published = judges.clone().next().map_or(0.0, Judge::published);
            let ends = [0.5, By::ALL.len() as f64 + 0.5];
            let mut lines: Vec<Line> = shown.iter().map(line).collect();
            lines.push(Line::new(Style::TARGET, ends.map(|x| (x, published)).into()));
            let y = match of {
                Of::Traces => "response / RPC's, second best trace",
                Of::Response => "response / RPC's, worst size",
                Of::Throughput => "requests/s / RPC's, mean of sizes",
                Of::Failures => "failing reads / lazy's, best size",
            };
            Panel {
                title: id.to_owned(),
                x: Axis {
                    label: by_at,
                    ..Axis::counting("hardware simulated, or live", By::ALL.len() as u32)
                },
                y: Axis::from_zero(y, lines.iter().map(Line::most).fold(0.0, f64::max)),
                lines,
            }
        };
        Drawing {
            panels: FIGURES.map(panel).into(),
            legend: shown.iter().map(|name| ((*name).to_owned(), style(name).bars())).collect(),
            dashed: Some("published"),
            ..Drawing::default()
        }
    }

    fn tell(&self, runs: &[Run], story: &mut Story) {
        story.paragraph(
            "Each node is a process of this machine, with its clients. Objects lie in the memory of their homes, where the other nodes \
             read them one-sidedly; messages go to inboxes in shared memory. What decides is the code that the simulator drives. Disks \
             are emulated by waiting. Each answer is compared with the object's bytes.",
        );
        story.checks();
        story.heading("What Gu and Wang 2004 state, simulated and live");
        let columns = ["figure", "what", "published"].into_iter().chain(By::ALL.map(By::name));
        let stated = FIGURES.into_iter().flat_map(|(of, id)| {
            let by = By::ALL.map(|by| self.statements(of, by, runs));
            (0..by[0].len()).map(move |at| {
                let Statement { published, check } = &by[0][at];
                let head = [id, &check.what, published.unwrap_or(OURS)].map(str::to_owned);
                head.into_iter().chain(by.iter().map(|by| by[at].check.figure(2))).collect()
            })
        });
        story.table(&columns.collect::<Vec<_>>(), stated);
        story.heading("Measured");
        story.table(
            &[
                "",
                "protocol",
                "response, ms: paper's hardware",
                "today's",
                "live",
                "median, ms: today's",
                "live",
                "requests/s: paper's hardware",
                "today's",
                "live",
                "live: CPU time of a request, µs",
                "nodes wait for a CPU, % of time",
            ],
            runs.iter().map(|run| {
                let mut cells = vec![run.place(), run.pair.protocol.clone()];
                let mut put = |all: &[By], figure: fn(&Figures) -> f64, digits| {
                    cells.extend(all.iter().map(|by| number(Some(figure(run.figures(*by))), digits)));
                };
                put(&By::ALL, |of| of.response_ms_mean, 3);
                put(&[By::Today, By::Live], |of| of.response_ms_p50, 3);
                put(&By::ALL, |of| of.requests_per_s, 0);
                let sharing = run.pair.sharing;
                cells.push(number(sharing.map(|of| of.cpu_us_per_request), 1));
                cells.push(number(sharing.map(|of| 100.0 * of.waiting), 0));
                cells
            }),
        );
        story.table(
            &[
                "",
                "protocol",
                "reads that fail, %: paper's hardware",
                "today's",
                "live",
                "disk reads a request: paper's hardware",
                "today's",
                "live",
                "update messages a request: paper's hardware",
                "today's",
                "live",
            ],
            runs.iter().map(|run| {
                let mut cells = vec![run.place(), run.pair.protocol.clone()];
                let mut put = |figure: fn(&Figures) -> f64, digits| {
                    cells.extend(By::ALL.map(|by| number(Some(figure(run.figures(by))), digits)));
                };
                put(|of| 100.0 * of.read_failure_rate, 3);
                put(|of| of.disk_rate, 4);
                put(|of| of.update_messages_per_request, 4);
                cells
            }),
        );
        story.how(&format!(
            "{} requests to each cluster, and {} of each trace with 64 nodes, of which the first fifth is not counted. The protocols run \
             one after the other. `sidelong sim live configs/RUN.toml --set profile=today --set protocol=lazy`, with --set nodes and --set \
             requests, repeats a run, and `sidelong sim run` its simulation.",
            self.requests, self.trace_requests
        ));
    }
}

/// What is aimed at beyond the paper.
const OURS: &str = "–";

fn by_at(at: f64) -> String {
    Axis::counted(&By::ALL, at).map_or(String::new(), |by| by.word().to_owned())
}

/// Live beside today's hardware simulated.
fn beside_simulated(runs: &[Run]) -> Vec<Check> {
    let wrong = runs.iter().map(|run| run.pair.wrong as f64).reduce(|all, one| all + one);
    let failures = |of: &Figures| of.requests as f64 * of.read_rate * of.read_failure_rate;
    let matter = runs.iter().filter(|run| failures(&run.pair.simulated) >= FAILURES_MIN);
    let off =
        |run: &Run| (run.pair.live.read_failure_rate / run.pair.simulated.read_failure_rate - 1.0).abs();
    vec![
        Check::at_most("answers with other bytes than the object's, all runs", 0.0, wrong),
        Check::at_most(
            format!(
                "reads that fail, live and simulated differ at most by this part, of the runs with {FAILURES_MIN} or more"
            ),
            0.1,
            matter.map(off).reduce(f64::max),
        ),
        Check::at_most(
            format!(
                "pairs of protocols with up to {ORDERED_NODES_MAX} nodes that are simulated to differ in throughput by more than a factor of \
                 {APART}, and live stand the other way round"
            ),
            0.0,
            reversed(runs),
        ),
    ]
}

/// Pairs of which live the other one answers more requests than simulated.
fn reversed(runs: &[Run]) -> Option<f64> {
    let of_same = |a: &Run, b: &Run| (&a.case, a.pair.nodes) == (&b.case, b.pair.nodes);
    let pairs =
        runs.iter().flat_map(|a| runs.iter().filter(move |b| of_same(a, b)).map(move |b| (&a.pair, &b.pair)));
    let pairs = pairs.filter(|(a, _)| a.nodes <= ORDERED_NODES_MAX);
    let apart = pairs.filter(|(a, b)| a.simulated.requests_per_s > APART * b.simulated.requests_per_s);
    let wrong = apart.map(|(a, b)| f64::from(u8::from(a.live.requests_per_s < b.live.requests_per_s)));
    wrong.reduce(|all, one| all + one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(nodes: u32, protocol: &str, [simulated, live]: [(f64, f64); 2]) -> Run {
        let figures = |(read_failure_rate, requests_per_s)| Figures {
            requests: 100_000,
            requests_per_s,
            response_ms_mean: 800.0 / requests_per_s,
            read_rate: 0.4,
            read_failure_rate,
            ..Figures::default()
        };
        let (simulated, live) = (figures(simulated), figures(live));
        let (protocol, sharing) = (protocol.to_owned(), None);
        let pair = Pair { protocol, nodes, simulated, live, sharing, wrong: 0 };
        Run { case: String::new(), paper: simulated, pair }
    }

    fn runs() -> Vec<Run> {
        vec![
            run(4, "rpc", [(0.0, 100.0), (0.0, 10.0)]),
            run(4, "lazy", [(0.1, 150.0), (0.109, 12.0)]),
            run(4, "ledger", [(0.0001, 160.0), (0.0005, 11.0)]),
        ]
    }

    #[test]
    fn failures_are_judged_by_their_rate_and_throughput_by_its_order() {
        let verdicts = |runs: &[Run]| beside_simulated(runs).iter().map(Check::verdict).collect::<Vec<_>>();
        // Of the ledger's reads too few fail, and it is simulated to be as fast as lazy.
        assert_eq!(verdicts(&runs()), ["met"; 3]);
        let changed = |change: fn(&mut Vec<Run>)| {
            let mut runs = runs();
            change(&mut runs);
            verdicts(&runs)
        };
        assert_eq!(changed(|runs| runs[2].pair.wrong = 1), ["MISSED", "met", "met"]);
        assert_eq!(changed(|runs| runs[1].pair.live.read_failure_rate = 0.111), ["met", "MISSED", "met"]);
        assert_eq!(changed(|runs| runs[1].pair.live.read_failure_rate = 0.089), ["met", "MISSED", "met"]);
        assert_eq!(changed(|runs| runs[2].pair.live.requests_per_s = 9.0), ["met", "met", "MISSED"]);
        // Nobody asks for an order of many processes on a few CPUs.
        assert_eq!(
            changed(|runs| {
                runs.iter_mut().for_each(|run| run.pair.nodes = 64);
                runs[2].pair.live.requests_per_s = 9.0;
            }),
            ["met", "met", "not measured"]
        );
        // Other sizes are another matter.
        assert_eq!(changed(|runs| runs[2].pair.nodes = 16), ["met", "met", "met"]);
    }

    #[test]
    fn a_statement_is_judged_of_each_by_itself() {
        let study = Live { site: SITE, requests: 1, nodes: &[4], traces: Vec::new(), trace_requests: 1 };
        let told = |by| study.statements(Of::Response, by, &runs()).pop().unwrap().check.figure(3);
        assert_eq!([By::Paper, By::Today, By::Live].map(told), ["0.625", "0.625", "0.909"]);
        assert_eq!(study.statements(Of::Traces, By::Live, &runs())[0].check.verdict(), "not measured");
    }
}
