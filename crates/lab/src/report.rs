//! What the reports and results of all experiments have in common.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use sidelong_config::Scheme;

use crate::bench::Bench;
use crate::check::Check;
use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::machine::Machine;
use crate::setup::{
    CLIENTS_PER_EDGE, Demand, EDGES, Ground, Layout, POOL, Run, SERVICE, Until, WORKERS, node_rate,
};

/// Requests/s of one of R's nodes: 26,000 on three of them (R 4.3.1).
pub(crate) const R_NODE_RATE: f64 = 26_000.0 / 3.0;

/// `result.json`.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome<'a, Row, S = Settings> {
    pub(crate) experiment: &'a Experiment,
    pub(crate) quick: bool,
    pub(crate) machine: &'a Machine,
    pub(crate) versions: Versions,
    pub(crate) settings: S,
    /// Wall-clock time of the whole experiment.
    pub(crate) seconds: f64,
    pub(crate) rows: &'a [Row],
    pub(crate) checks: &'a [Check],
    /// What runs it again.
    pub(crate) command: String,
}

impl<'a, Row: Serialize, S: Serialize> Outcome<'a, Row, S> {
    pub(crate) fn new(
        bench: &Bench<'_>,
        machine: &'a Machine,
        settings: S,
        rows: &'a [Row],
        checks: &'a [Check],
    ) -> Self {
        Outcome {
            experiment: bench.experiment,
            quick: bench.options.quick,
            machine,
            versions: Versions { sidelong: env!("CARGO_PKG_VERSION") },
            settings,
            seconds: bench.elapsed().as_secs_f64(),
            rows,
            checks,
            command: bench.command(),
        }
    }

    pub(crate) fn to_json(&self) -> Result<String> {
        let json = serde_json::to_string_pretty(self);
        json.map_err(|error| Error::Output { path: "result.json".into(), found: error.to_string() })
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Versions {
    pub(crate) sidelong: &'static str,
}

/// What all runs of `up` in an experiment share.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Settings {
    pub(crate) workload: String,
    pub(crate) nodes: usize,
    pub(crate) workers_per_node: u16,
    pub(crate) service_ms: f64,
    pub(crate) requests_per_s_per_node: f64,
    pub(crate) edges: u16,
    pub(crate) clients_per_edge: u32,
    pub(crate) history_ms: f64,
    pub(crate) sensitivity_ms: f64,
    pub(crate) record_period_ms: f64,
    pub(crate) scheme: &'static str,
    pub(crate) balance: &'static str,
    pub(crate) protocol: &'static str,
}

impl Settings {
    pub(crate) fn of(demand: Demand) -> Settings {
        // Any run's file says what all of them say.
        let configuration = sidelong_config::Configuration::Reconfigured;
        let (layout, until) = (Layout::Three, Until::Requests(1));
        let run = Run { layout, demand, configuration, burst: 1, pause: Duration::ZERO, until };
        let file = run.cluster_file(&Ground { name: "any".into(), port: 1, root: None });
        Settings {
            workload: demand.describe(),
            nodes: POOL,
            workers_per_node: WORKERS,
            service_ms: SERVICE.as_secs_f64() * 1e3,
            requests_per_s_per_node: node_rate(),
            edges: EDGES,
            clients_per_edge: CLIENTS_PER_EDGE,
            history_ms: file.reconfig.history.as_secs_f64() * 1e3,
            sensitivity_ms: file.reconfig.sensitivity.as_secs_f64() * 1e3,
            record_period_ms: file.load.period.as_secs_f64() * 1e3,
            scheme: file.load.scheme.as_str(),
            balance: file.balance.policy.as_str(),
            protocol: file.reconfig.protocol.as_str(),
        }
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "{} nodes with {} workers each, every request held for {} ms by waiting (so {} requests/s a node); {} edges, \
             {} closed-loop clients at each; T = {} ms, S = {} ms; load by {}, balancing {}, protocol {}; workload: {}.",
            self.nodes,
            self.workers_per_node,
            self.service_ms,
            self.requests_per_s_per_node,
            self.edges,
            self.clients_per_edge,
            self.history_ms,
            self.sensitivity_ms,
            self.scheme,
            self.balance,
            self.protocol,
            self.workload,
        )
    }
}

/// A burst in seconds of one node: how long a node alone would take for it. Comparable between machines, unlike its
/// number of requests.
pub(crate) fn node_seconds(burst: u64) -> f64 {
    burst as f64 / node_rate()
}

/// `report.md` as it grows.
pub(crate) struct Markdown(String);

impl Markdown {
    /// With the title and the figure.
    pub(crate) fn new(experiment: &Experiment, quick: bool) -> Markdown {
        let Experiment { id, title, figure, .. } = experiment;
        let mut report = Markdown(format!("# {id}: {title} ({figure})\n"));
        if quick {
            report.paragraph("A quick run: fewer runs, and shorter ones. What it left out is marked.");
        }
        report.paragraph(&format!("![{id}](figure.svg)"));
        report
    }

    pub(crate) fn heading(&mut self, text: &str) {
        self.paragraph(&format!("## {text}"));
    }

    pub(crate) fn paragraph(&mut self, text: &str) {
        self.0.push('\n');
        self.0.push_str(text);
        self.0.push('\n');
    }

    pub(crate) fn list(&mut self, items: impl IntoIterator<Item = String>) {
        let items: Vec<_> = items.into_iter().map(|item| format!("- {item}")).collect();
        self.paragraph(&items.join("\n"));
    }

    pub(crate) fn table(&mut self, columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut table = line(&columns.iter().map(|&column| column.to_owned()).collect::<Vec<_>>());
        table.push_str(&"|---".repeat(columns.len()));
        table.push_str("|\n");
        table.extend(rows.into_iter().map(|cells| line(&cells)));
        self.paragraph(table.trim_end());
    }

    /// The targets, and plainly whether they are met.
    pub(crate) fn checks(&mut self, checks: &[Check]) {
        self.heading("Targets");
        let missed = checks.iter().filter(|check| check.holds == Some(false)).count();
        let left_out = checks.iter().filter(|check| check.holds.is_none()).count();
        let mut verdict = match missed {
            0 if left_out == checks.len() => "Nothing that would tell was measured.".to_owned(),
            0 => "All that were measured are met.".to_owned(),
            1 => "One is MISSED.".to_owned(),
            _ => format!("{missed} are MISSED."),
        };
        if (1..checks.len()).contains(&left_out) {
            let were = if left_out == 1 { "One was".to_owned() } else { format!("{left_out} were") };
            let _ = write!(verdict, " {were} not measured.");
        }
        self.paragraph(&verdict);
        self.table(
            &["what", "target", "measured", ""],
            checks.iter().map(|check| {
                let verdict = check.verdict().to_owned();
                vec![check.what.clone(), check.target.clone(), number(check.measured, 2), verdict]
            }),
        );
    }

    /// For an experiment of R's: the scale, what could not be had, and all that [`Markdown::close`] says.
    pub(crate) fn close_beside_r<Row>(mut self, outcome: &Outcome<'_, Row>, errors: u64) -> String {
        self.heading("Scale");
        self.paragraph(&format!(
            "R's nodes serve about {R_NODE_RATE:.0} requests/s each (26,000 on three), ours {:.0}: throughput measures the \
             decisions, not the machine. A burst of the same number of requests therefore lasts {:.0} times as long here, and \
             is given in seconds of one node too, in which the two compare: R's bursts of 512 to 16384 are {:.2} s to \
             {:.2} s of one of its nodes, ours {:.2} s to {:.1} s.",
            node_rate(),
            R_NODE_RATE / node_rate(),
            512.0 / R_NODE_RATE,
            16384.0 / R_NODE_RATE,
            node_seconds(512),
            node_seconds(16384),
        ));
        self.heading("What could not be had");
        self.list([
            "R's hardware: 16 nodes on InfiniBand. Here all processes share one machine, and one-sided reads and atomics \
             go through its shared memory. A node waits for its service time instead of burning CPU, so that the machine \
             does not become the limit."
                .to_owned(),
            "R's number of load-balancers, and the values of T and S: it does not print them. Ours are below.".to_owned(),
            "The points of R's figures: its text gives a few of them, and those are the ones compared here.".to_owned(),
        ]);
        self.close(outcome, &outcome.settings.describe(), errors)
    }

    /// For an experiment that `sidelong perf` measures: what could not be had, the devices, and how to repeat it.
    pub(crate) fn close_perf<Row, S>(
        mut self,
        outcome: &Outcome<'_, Row, S>,
        devices: &[String],
        placement: &str,
        without_verbs: Option<&str>,
    ) -> String {
        self.heading("What could not be had");
        self.list(without_verbs.map(|why| format!("RDMA by verbs: {why}.")).into_iter().chain([
            "The papers' hardware: InfiniBand adapters and two machines. Over shm the initiator's own CPU does what an adapter \
             does for verbs, so its times say what a one-sided operation need not wait for, and nothing of a wire. TCP on the \
             loopback device stands for IPoIB."
                .to_owned(),
        ]));
        self.heading("How it was measured");
        self.paragraph(&format!(
            "On {}; Sidelong {}. {placement}.",
            outcome.machine.describe(),
            outcome.versions.sidelong
        ));
        self.list(devices.iter().cloned());
        self.paragraph(
            "Figures taken under emulation (soft-RoCE, a virtual machine) say nothing about hardware.",
        );
        self.paragraph(&format!(
            "The whole took {:.0} s. What each run of `sidelong perf` printed is in `runs/`.",
            outcome.seconds
        ));
        self.paragraph(&format!("```\n{}\n```", outcome.command));
        self.0
    }

    /// For an experiment of M's: what could not be had, and how it was measured.
    pub(crate) fn close_beside_m<Row, S>(
        mut self,
        outcome: &Outcome<'_, Row, S>,
        refused: &[Refused],
        absent: &[&str],
        settings: &str,
    ) -> String {
        self.heading("What could not be had");
        let refused = refused.iter().map(|Refused { scheme, why }| format!("{scheme}: {why}."));
        let hardware = "M's hardware: nodes and a front end that are machines of their own, joined by InfiniBand. Here all share \
                        one machine, one-sided reads go through its memory, and TCP through its loopback device; each side is \
                        held to a CPU.";
        self.list(refused.chain([hardware.to_owned()]).chain(absent.iter().map(|&line| line.to_owned())));
        self.heading("How it was measured");
        self.paragraph(&format!(
            "On {}; Sidelong {}.",
            outcome.machine.describe(),
            outcome.versions.sidelong
        ));
        self.paragraph(settings);
        self.paragraph(&format!(
            "The whole took {:.0} s. What each run printed is in `runs/`.",
            outcome.seconds
        ));
        self.paragraph(&format!("```\n{}\n```", outcome.command));
        self.0
    }

    /// The machine, the settings, and how to repeat it.
    pub(crate) fn close<Row, S>(self, outcome: &Outcome<'_, Row, S>, settings: &str, errors: u64) -> String {
        let failed = format!("{errors} requests failed in all runs. ");
        let files = "The cluster files are in `configs/`, and what was printed is in `runs/`; the first lines of a file for `up` \
                     name the command that repeats its run.";
        self.end(outcome, settings, &failed, files)
    }

    /// The same where nothing but simulations ran; `files` says what they left, and is [`SWEEPS`] for `sidelong sim run`.
    pub(crate) fn close_simulated<Row, S>(
        self,
        outcome: &Outcome<'_, Row, S>,
        settings: &str,
        files: &str,
    ) -> String {
        self.end(outcome, settings, "", files)
    }

    fn end<Row, S>(
        mut self,
        outcome: &Outcome<'_, Row, S>,
        settings: &str,
        failed: &str,
        files: &str,
    ) -> String {
        self.heading("How it was measured");
        self.paragraph(&format!(
            "On {}; Sidelong {}.",
            outcome.machine.describe(),
            outcome.versions.sidelong
        ));
        self.paragraph(settings);
        self.paragraph(&format!("{failed}The whole took {:.0} s. {files}", outcome.seconds));
        self.paragraph(&format!("```\n{}\n```", outcome.command));
        self.0
    }
}

/// A scheme that this machine refuses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Refused {
    pub(crate) scheme: Scheme,
    pub(crate) why: String,
}

/// What sweeps leave.
pub(crate) const SWEEPS: &str = "Each sweep has a directory in `runs/`: `sidelong sim run DIRECTORY/config.toml --out OUT` \
                                 repeats it, and its rows have every figure.";

/// A number of a report with `digits` decimals, or a dash.
pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.is_infinite() => "∞".to_owned(),
        Some(value) => format!("{value:.digits$}"),
    }
}
