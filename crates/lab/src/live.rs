//! L1: the cooperative cache of Gu and Wang 2004, live beside simulated, by `sidelong sim live`.
//!
//! Live are the decisions, the memory and the messages, between processes of one machine, which has fewer CPUs than processes. The
//! simulator has hardware of its own. So what depends on decisions is compared by its value: how often reads fail. What depends on
//! the hardware is compared by its order: which protocol answers more requests.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::{Drawing, legend};
use crate::error::{Error, Result, file};
use crate::figure::{Axis, Line, Panel, Style};
use crate::sim;
use crate::story::{Story, number};
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;

/// The protocols, in the order of the figure.
const PROTOCOLS: [&str; 7] = ["rpc", "lazy", "aggressive", "sender", "receiver", "accumulated", "ledger"];
const SIZES: [&[u32]; 2] = [&[4, 8, 16], &[4]];
const REQUESTS: [u32; 2] = [400_000, 100_000];
/// The longest run.
const TIME_MAX: Duration = Duration::from_secs(900);
/// A site by Zipf's law, of which the nodes keep a part however many there are.
const SITE: &str = "profile = \"today\"\n[workload]\nkind = \"zipf\"\nobjects = 20_000\nalpha = 0.9\n[cluster]\nmemory_mb = 24\n";
/// Of fewer reads that fail, chance decides how many there are.
const FAILURES_MIN: f64 = 400.0;
/// Protocols whose simulated throughputs are closer than this have no order.
const APART: f64 = 1.1;

/// Figures of a run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
struct Figures {
    requests: u64,
    requests_per_s: f64,
    response_ms_p50: f64,
    here_rate: f64,
    disk_rate: f64,
    read_rate: f64,
    read_failure_rate: f64,
    update_messages_per_request: f64,
}

impl Figures {
    fn failures(&self) -> f64 {
        self.requests as f64 * self.read_rate * self.read_failure_rate
    }
}

/// One run, as `sidelong sim live --json` prints it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Row {
    protocol: String,
    nodes: u32,
    simulated: Figures,
    live: Figures,
    wrong: u64,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    nodes: u32,
    protocol: String,
    simulated_read_failure_rate: Fixed<6>,
    live_read_failure_rate: Fixed<6>,
    simulated_requests_per_s: Fixed<0>,
    live_requests_per_s: Fixed<0>,
    simulated_disk_rate: Fixed<4>,
    live_disk_rate: Fixed<4>,
    wrong: u64,
}

/// Settings that all runs share.
#[derive(Serialize)]
struct Live {
    site: &'static str,
    requests: u32,
    nodes: &'static [u32],
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let quick = usize::from(bench.options.quick);
    study::run(bench, Live { site: SITE, requests: REQUESTS[quick], nodes: SIZES[quick] })
}

impl Study for Live {
    type Row = Row;
    type Line = TableLine;

    fn plan(&self) -> Vec<Duration> {
        let each = Duration::from_micros(u64::from(self.requests) * 50 * PROTOCOLS.len() as u64);
        vec![each; self.nodes.len()]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Live>) -> Result<()> {
        for nodes in self.nodes {
            let sets = [
                format!("nodes={nodes}"),
                format!("requests={}", self.requests),
                format!("protocol={}", PROTOCOLS.join(",")),
            ];
            let name = bench.name(format!("nodes-{nodes}"));
            let path = sim::live(bench, &name, SITE, &sets, TIME_MAX)?;
            let text = file(&path, fs::read_to_string(&path))?;
            for line in text.lines() {
                let row = serde_json::from_str(line)
                    .map_err(|error| Error::Output { path: path.clone(), found: error.to_string() })?;
                rows.push(self, row)?;
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { protocol, nodes, simulated, live, wrong } = row;
        vec![TableLine {
            nodes: *nodes,
            protocol: protocol.clone(),
            simulated_read_failure_rate: Fixed(simulated.read_failure_rate),
            live_read_failure_rate: Fixed(live.read_failure_rate),
            simulated_requests_per_s: Fixed(simulated.requests_per_s),
            live_requests_per_s: Fixed(live.requests_per_s),
            simulated_disk_rate: Fixed(simulated.disk_rate),
            live_disk_rate: Fixed(live.disk_rate),
            wrong: *wrong,
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("{} nodes, {}: {what}", row.nodes, row.protocol);
        vec![
            Bound::share(of("reads that fail"), row.live.read_failure_rate),
            Bound::share(of("requests answered from own memory"), row.live.here_rate),
            Bound::not_below_zero(of("requests/s"), row.live.requests_per_s),
        ]
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        let nodes = self.nodes[0];
        let panel = |title: String, y: &str, figure: fn(&Figures) -> f64| {
            let line = |style: Style, of: fn(&Row) -> &Figures| {
                let point = |(at, protocol): (u32, &str)| {
                    Some((f64::from(at), figure(of(find(rows, nodes, protocol)?))))
                };
                Line::new(style.bars(), (1..).zip(PROTOCOLS).filter_map(point).collect())
            };
            let lines = vec![line(Style::BASELINE, |row| &row.simulated), line(Style::OURS, |row| &row.live)];
            Panel {
                title,
                x: Axis { label: protocol_at, ..Axis::counting("protocol", PROTOCOLS.len() as u32) },
                y: Axis::from_zero(y, lines.iter().map(Line::most).fold(0.0, f64::max)),
                lines,
            }
        };
        Drawing {
            panels: vec![
                panel(format!("{nodes} nodes: reads that fail"), "of the one-sided reads, %", |of| {
                    of.read_failure_rate * 100.0
                }),
                panel(format!("{nodes} nodes: requests"), "requests/s", |of| of.requests_per_s),
            ],
            legend: legend([("simulated", Style::BASELINE.bars()), ("live", Style::OURS.bars())]),
            ..Drawing::default()
        }
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        story.paragraph(
            "Each node is a process of this machine, with its clients. Objects lie in the memory of their homes, where the other nodes \
             read them one-sidedly; messages go to inboxes in shared memory. What decides is the code that the simulator drives. Disks \
             are emulated by waiting. Each answer is compared with the object's bytes.",
        );
        story.checks();
        story.heading("Measured");
        let columns = [
            "nodes",
            "protocol",
            "reads that fail, %: simulated",
            "live",
            "disk reads a request: simulated",
            "live",
            "update messages a request: simulated",
            "live",
            "requests/s: simulated",
            "live",
        ];
        let cells = |row: &Row| {
            let mut cells = vec![row.nodes.to_string(), row.protocol.clone()];
            let both = |figure: fn(&Figures) -> f64, digits| {
                [&row.simulated, &row.live].map(|of| number(Some(figure(of)), digits))
            };
            cells.extend(both(|of| of.read_failure_rate * 100.0, 3));
            cells.extend(both(|of| of.disk_rate, 4));
            cells.extend(both(|of| of.update_messages_per_request, 4));
            cells.extend(both(|of| of.requests_per_s, 0));
            cells
        };
        story.table(&columns, rows.iter().map(cells));
        story.how(&format!(
            "{} requests to each cluster, of which the first fifth is not counted. The protocols run one after the other. `sidelong sim \
             live FILE` repeats each run from its file in `configs/`.",
            self.requests
        ));
    }
}

fn protocol_at(at: f64) -> String {
    Axis::counted(&PROTOCOLS, at).map_or(String::new(), |name| (*name).to_owned())
}

fn find<'a>(rows: &'a [Row], nodes: u32, protocol: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.nodes == nodes && row.protocol == protocol)
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let mut sizes: Vec<u32> = rows.iter().map(|row| row.nodes).collect();
    sizes.dedup();
    let wrong = rows.iter().map(|row| row.wrong as f64).reduce(|all, one| all + one);
    let mut checks = vec![Check::at_most("answers with other bytes than the object's, all runs", 0.0, wrong)];
    for nodes in sizes {
        let of_size: Vec<&Row> = rows.iter().filter(|row| row.nodes == nodes).collect();
        let matter = of_size.iter().filter(|row| row.simulated.failures() >= FAILURES_MIN);
        let off = |row: &&&Row| (row.live.read_failure_rate / row.simulated.read_failure_rate - 1.0).abs();
        let what = format!(
            "{nodes} nodes: reads that fail, live and simulated differ at most by this part, of the protocols with {FAILURES_MIN} or more"
        );
        checks.push(Check::at_most(what, 0.1, matter.map(|row| off(&row)).reduce(f64::max)));
        let what = format!(
            "{nodes} nodes: pairs of protocols that are simulated to differ in throughput by more than a factor of {APART}, and live \
             stand the other way round"
        );
        checks.push(Check::at_most(what, 0.0, reversed(&of_size)));
    }
    checks
}

/// Pairs of which live the other one answers more requests than simulated.
fn reversed(rows: &[&Row]) -> Option<f64> {
    let pairs = rows.iter().flat_map(|a| rows.iter().map(move |b| (a, b)));
    let apart = pairs.filter(|(a, b)| a.simulated.requests_per_s > APART * b.simulated.requests_per_s);
    let wrong = apart.map(|(a, b)| f64::from(u8::from(a.live.requests_per_s < b.live.requests_per_s)));
    wrong.reduce(|all, one| all + one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(protocol: &str, [simulated, live]: [(f64, f64); 2]) -> Row {
        let figures = |(read_failure_rate, requests_per_s)| Figures {
            requests: 100_000,
            requests_per_s,
            response_ms_p50: 1.0,
            here_rate: 0.5,
            disk_rate: 0.1,
            read_rate: 0.4,
            read_failure_rate,
            update_messages_per_request: 0.0,
        };
        Row {
            protocol: protocol.to_owned(),
            nodes: 4,
            simulated: figures(simulated),
            live: figures(live),
            wrong: 0,
        }
    }

    #[test]
    fn failures_are_judged_by_their_rate_and_throughput_by_its_order() {
        let rows = vec![
            row("rpc", [(0.0, 100.0), (0.0, 10.0)]),
            row("lazy", [(0.1, 150.0), (0.109, 12.0)]),
            row("ledger", [(0.0001, 160.0), (0.0005, 11.0)]),
        ];
        let verdicts = |rows: &[Row]| checks(rows).iter().map(Check::verdict).collect::<Vec<_>>();
        // Of the ledger's reads too few fail, and it is simulated to be as fast as lazy.
        assert_eq!(verdicts(&rows), ["met"; 3]);
        let changed = |change: fn(&mut Vec<Row>)| {
            let mut rows = rows.clone();
            change(&mut rows);
            verdicts(&rows)
        };
        assert_eq!(changed(|rows| rows[2].wrong = 1), ["MISSED", "met", "met"]);
        assert_eq!(changed(|rows| rows[1].live.read_failure_rate = 0.111), ["met", "MISSED", "met"]);
        assert_eq!(changed(|rows| rows[1].live.read_failure_rate = 0.089), ["met", "MISSED", "met"]);
        assert_eq!(changed(|rows| rows[2].live.requests_per_s = 9.0), ["met", "met", "MISSED"]);
    }
}
