//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use sidelong_config::{AdmissionRule, ClusterFile, Fabric, Target};
use sidelong_sim::speed::Case;
use sidelong_sim::sweep::Part;

use crate::failure::{Failure, say, some};
use crate::perf::PerfArgs;
use crate::top::Column;
use crate::trace::TraceArgs;

/// Shared clusters that look at their servers from the side.
///
/// Several sites share one pool of servers behind edge proxies. Sidelong reads the servers' load one-sidedly, routes by
/// it, and moves servers between sites in milliseconds.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Say only what is wrong (SIDELONG_LOG=debug says more).
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  sidelong up                              a whole shared data-center on this machine, live
  sidelong up --for 30s --json             the same for 30 s, then its figures as JSON
  sidelong config demo > cluster.toml      a commented cluster file to start from
  sidelong up --config cluster.toml
  sidelong top                             what runs here, as htop shows a machine
  sidelong status                          whom its edges let in, and why not all
  sidelong trace info access.log.gz
  sidelong sim run cluster-sim.toml --set nodes=16,64 --set protocol=lazy,ledger --out results
  sidelong lab run R10 --out results";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a whole shared data-center on this machine: nodes, edges and load.
    Up(UpArgs),
    /// Watch a cluster that runs: its nodes, sites and moves, as htop shows a machine.
    Top(TopArgs),
    /// Say how each site stands: whom the edges let in, whom they turn away and why, whether its target is held.
    Status(StatusArgs),
    /// Run one node of a cluster file: its origin server and its load record.
    Node(PartArgs),
    /// Run one edge of a cluster file: the proxy that clients talk to.
    Edge(PartArgs),
    /// Decide whom to let in, for servers that are no Sidelong edge: httpd with mod_sidelong, and whatever else reads its
    /// verdicts.
    Helper(HelperArgs),
    /// Look into request traces, convert and make them.
    Trace(TraceArgs),
    /// Simulate clusters that serve out of each other's memory.
    Sim(SimArgs),
    /// Run the published experiments again.
    Lab(LabArgs),
    /// Measure operations on memory of another process, here or on another machine.
    Perf(PerfArgs),
    /// Write or check cluster files.
    Config(ConfigArgs),
}

#[derive(Args)]
pub(crate) struct UpArgs {
    /// The cluster file; without it, eight nodes, three sites and two edges on loopback.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// In place of the file's cluster.fabric: auto, shm, tcp or verbs.
    #[arg(long, value_name = "FABRIC", value_parser = fabric)]
    pub(crate) fabric: Option<Fabric>,
    /// End by itself after this time (30s, 500ms, 2m).
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Print nothing but one JSON summary at the end.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write each site's nodes and busy nodes over time as CSV.
    #[arg(long, value_name = "FILE")]
    pub(crate) samples: Option<PathBuf>,
    /// Write what became of each request of the load as CSV.
    #[arg(long, value_name = "FILE")]
    pub(crate) requests: Option<PathBuf>,
    /// Plain lines even on a terminal.
    #[arg(long)]
    pub(crate) plain: bool,
}

#[derive(Args)]
#[command(after_help = TOP_KEYS)]
pub(crate) struct TopArgs {
    /// The cluster file; without it, that of the `sidelong up` which runs here.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// In place of the file's cluster.fabric: auto, shm, tcp or verbs. As its parts have it.
    #[arg(long, value_name = "FABRIC", value_parser = fabric)]
    pub(crate) fabric: Option<Fabric>,
    /// Between two looks (100ms, 1s).
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "100ms")]
    pub(crate) interval: Duration,
    /// Sort by this column: node, site, run, cpu%, mem%, conns, queue, busy, req/s, net/s, age, state.
    #[arg(long, value_name = "COLUMN", default_value = "node", hide_default_value = true)]
    pub(crate) sort: Column,
    /// Show only nodes whose name, site or state has this in it.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,
    /// Print a table and end.
    #[arg(long)]
    pub(crate) once: bool,
    /// With --once: one JSON object of all nodes (docs/top.md).
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
}

const TOP_KEYS: &str = "\
Keys: ? help, F6 or s choose the sort column, < > the one before or after, I the other way round,
/ filter, Space or z freeze, arrows scroll, q quits.

Ends with 0; with 2 where it cannot look: no cluster runs, or none of its nodes is heard.";

#[derive(Args)]
#[command(after_help = STATUS_END)]
pub(crate) struct StatusArgs {
    /// The cluster file; without it, that of the `sidelong up` which runs here.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// One JSON object (docs/admission.md).
    #[arg(long)]
    pub(crate) json: bool,
}

const STATUS_END: &str = "\
It asks each edge at its `admin` address and sums up. Counts are since the edges started.

Ends with 0; with 2 where no edge answers.";

#[derive(Args)]
pub(crate) struct PartArgs {
    /// The cluster file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Which of the file's nodes or edges to be.
    pub(crate) name: String,
    /// In place of the file's cluster.fabric: auto, shm, tcp or verbs. The same for all parts.
    #[arg(long, value_name = "FABRIC", value_parser = fabric)]
    pub(crate) fabric: Option<Fabric>,
    /// Tell what happens as JSON lines on standard output.
    #[arg(long)]
    pub(crate) events: bool,
    /// End when the process that started this one does; at once where that is no longer PID.
    #[arg(long, value_name = "PID", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub(crate) with_parent: Option<i32>,
    /// Of a node: move into this control group, whose load is then the node's.
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) join_cgroup: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = HELPER_FILES)]
pub(crate) struct HelperArgs {
    /// The cluster file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// In place of the file's cluster.fabric: auto, shm, tcp or verbs. As its parts have it.
    #[arg(long, value_name = "FABRIC", value_parser = fabric)]
    pub(crate) fabric: Option<Fabric>,
    /// Where the verdicts go, for servers of other users too; made if it is not there. Without it, the cluster's run
    /// directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

const HELPER_FILES: &str = "\
The verdicts lie in DIR/verdicts.region, which httpd's SidelongVerdicts names (docs/httpd.md).
Ends at SIGINT or SIGTERM; from then on everybody is let in.";

#[derive(Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) command: SimCommand,
}

#[derive(Subcommand)]
pub(crate) enum SimCommand {
    /// Run every combination of a configuration's values, and write rows.csv, result.json and report.md to DIR. What was
    /// interrupted (exit code 130) goes on when it is run again.
    Run {
        /// The configuration; an empty file is all defaults.
        file: PathBuf,
        /// In place of the file's: a field, and one or more values for it. A path is taken from where you are, those in
        /// the file from where that is.
        #[arg(long, value_name = "KEY=VALUE[,VALUE...]")]
        set: Vec<String>,
        /// Where the results go.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Runs at a time; without it, as many as there are CPUs.
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
        threads: Option<u16>,
        /// Only the I-th of N parts, from 1/N to N/N, each with a DIR of its own; `sim merge` joins them.
        #[arg(long, value_name = "I/N")]
        shard: Option<Part>,
    },
    /// Join the parts of a sweep: the same bytes as of one that was run whole.
    Merge {
        /// The results of all parts.
        #[arg(required = true, value_name = "DIR")]
        parts: Vec<PathBuf>,
        /// Where the whole goes.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Print every field of a configuration, what it is, and where that comes from.
    Explain {
        /// The configuration; without one, all defaults.
        file: Option<PathBuf>,
        /// As for `run`.
        #[arg(long, value_name = "KEY=VALUE[,VALUE...]")]
        set: Vec<String>,
    },
    /// Print two results side by side, with their confidence over seeds.
    Compare {
        /// The result to compare with.
        first: PathBuf,
        /// The other.
        second: PathBuf,
    },
    /// Time the simulator itself, for `lab run sim-speed`.
    #[command(hide = true)]
    Speed {
        /// What it simulates: hold-PENDING, line, cluster-NODES-MB.
        case: Case,
        /// Requests, or events of the hold model.
        #[arg(value_parser = clap::value_parser!(u64).range(1..=sidelong_sim::fields::REQUESTS_MAX))]
        count: u64,
    },
}

#[derive(Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Subcommand)]
pub(crate) enum LabCommand {
    /// The experiments, and what each reproduces.
    List,
    /// Run one, and write result.json, rows.csv, a figure and report.md to DIR/ID.
    Run {
        /// Which; see `sidelong lab list`.
        id: String,
        /// Where the results go.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// A short run: fewer points, fewer requests.
        #[arg(long)]
        quick: bool,
        /// For C1: logs of real servers, as `sidelong trace info` reads them; the first two by name are used.
        #[arg(long, value_name = "DIR")]
        traces: Option<PathBuf>,
    },
    /// A bare Pingora proxy to one server, for `lab run edge-overhead`.
    #[command(hide = true)]
    BareProxy {
        /// Where it listens.
        listen: std::net::SocketAddr,
        /// Where it sends everything.
        to: std::net::SocketAddr,
    },
}

#[derive(Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print the cluster file that `up` runs without one, with every key explained.
    Demo,
    /// Check a cluster file and say what it means.
    Check {
        /// The cluster file.
        file: PathBuf,
    },
}

pub(crate) fn config(args: &ConfigArgs) -> Result<(), Failure> {
    match &args.command {
        ConfigCommand::Demo => say(ClusterFile::demo_text())?,
        ConfigCommand::Check { file } => {
            let cluster = ClusterFile::load(file)?.cluster()?;
            let mut text = format!(
                "{}: cluster {}, {}, {}, {}, {}\n",
                file.display(),
                cluster.name,
                some(cluster.sites.len(), "site"),
                some(cluster.nodes.len(), "node"),
                some(cluster.edges.len(), "edge"),
                cluster.reconfig.configuration,
            );
            for (index, site) in cluster.sites.iter().enumerate() {
                let nodes = cluster.nodes.iter().filter(|node| node.site == Some(index));
                let nodes: Vec<_> = nodes.map(|node| node.name.as_str()).collect();
                let nodes = nodes.join(" ");
                let ms = |time: Duration| time.as_nanos() as f64 / 1e6;
                let promise = match site.target.filter(|_| cluster.admission.rule != AdmissionRule::None) {
                    Some(Target::ResponseP99(time)) => format!(", 99 % answered in {} ms", ms(time)),
                    Some(Target::QueueMax(time)) => format!(", {} ms in a queue", ms(time)),
                    None => String::new(),
                };
                let (name, count, floor) = (&site.name, site.nodes, site.floor);
                // What is as it is without a word is passed over.
                let ceiling = match site.ceiling < cluster.nodes.len() {
                    true => format!(", ceiling {}", site.ceiling),
                    false => String::new(),
                };
                let priority = match site.priority {
                    0 => String::new(),
                    priority => format!(", priority {priority}"),
                };
                let share = if site.share > 0.0 { format!(", share {}", site.share) } else { String::new() };
                text += &format!(
                    "  site {name}: {count} (floor {floor}{ceiling}{priority}{share}{promise}): {nodes}\n"
                );
            }
            say(&text)?;
        }
    }
    Ok(())
}

/// As the cluster file has it.
fn fabric(text: &str) -> Result<Fabric, String> {
    let known = Fabric::ALL.iter().find(|fabric| fabric.as_str() == text);
    let words = || Fabric::ALL.iter().map(|fabric| fabric.as_str()).collect::<Vec<_>>().join(", ");
    known.copied().ok_or_else(|| format!("one of {}", words()))
}

/// `30s`, `500ms`, `2m`, `1h`; a day at most.
fn duration(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(char::is_alphabetic);
    let unit_s = match &text[number.len()..] {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err("a number with ms, s, m or h".to_owned()),
    };
    let seconds: f64 = number.parse().map_err(|_| "a number with ms, s, m or h".to_owned())?;
    let seconds = seconds * unit_s;
    if (0.001..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("between 1ms and 24h".to_owned())
    }
}

/// What [`duration`] takes, within what a screen can show and a look can take.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    let fits = (Duration::from_millis(10)..=Duration::from_secs(60)).contains(&interval);
    fits.then_some(interval).ok_or_else(|| "between 10ms and 1m".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert!(duration("30").is_err() && duration("s").is_err() && duration("-1s").is_err());
        assert!(duration("1e9h").is_err() && duration("NaNs").is_err() && duration("").is_err());
    }
}
