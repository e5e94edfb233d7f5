//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use sidelong_config::{AdmissionRule, ClusterFile, Drain, Fabric, Proxy, Target};
use sidelong_edge::check_tls;
use sidelong_sim::speed::Case;
use sidelong_sim::sweep::Part;
use sidelong_workload::walk::AT_ONCE_MAX;

use crate::cache::CacheArgs;
use crate::cluster;
use crate::failure::{Failure, say, some};
use crate::front::lines::By;
use crate::history::time_of_day;
use crate::lab::LabArgs;
use crate::load::LoadArgs;
use crate::perf::PerfArgs;
use crate::top::Column;
use crate::trace::TraceArgs;
use crate::up::{Demo, FrontMake, Make};

/// Reverse proxies for sites that share one pool of servers.
///
/// The proxies (edges) read each server's load straight from its memory, every millisecond and without its help. By that load
/// they route requests, admit or reject them, and move servers between sites.
#[derive(Parser)]
#[command(version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print no progress, and log errors only (SIDELONG_LOG=info or debug logs more).
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

const EXAMPLES: &str = "\
Examples:
  sidelong up                              run a demo cluster on this machine, with a live screen
  sidelong up --for 30s --json             run it for 30 s, then print a JSON summary
  sidelong init --server 127.0.0.1:8080 --server 127.0.0.1:8081 --host app.example
                                           write a cluster file for two servers of yours
  sidelong config demo > cluster.toml      write a commented cluster file to start from
  sidelong up --config cluster.toml        run that cluster
  sidelong top                             watch the nodes of the cluster that runs here
  sidelong status                          requests admitted and rejected for each site, and why
  sidelong history --since 1h              moves of the last hour, and why each was made
  sidelong drain n3                        take a node out of service; sidelong resume n3 brings it back
  sidelong trace info access.log.gz        what a request trace holds
  sidelong sim run cluster-sim.toml --set nodes=16,64 --set protocol=lazy,ledger --out results
  sidelong lab run R10 --out results";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write a cluster file for servers that run already.
    Init(InitArgs),
    /// Run a whole cluster on this machine: nodes, edges, caches and a load generator.
    Up(UpArgs),
    /// Show the nodes, sites and moves of a running cluster, live.
    Top(TopArgs),
    /// Show admission for each site: requests admitted and rejected, the reason, and whether the target is met.
    Status(StatusArgs),
    /// List the moves of nodes between sites: when, by which edge, how long each took, and why.
    History(HistoryArgs),
    /// Take a node out of service: it finishes its requests, and serves nobody until it is resumed.
    Drain(DrainArgs),
    /// Give a node that was drained or moved by hand back to its site, and to the edges' decisions.
    Resume(ResumeArgs),
    /// Move a node to a site, where it stays until it is resumed.
    Move(MoveArgs),
    /// Run one node of a cluster file: an origin server with a load record that edges read.
    Node(PartArgs),
    /// Run one edge of a cluster file: a reverse proxy that routes by the nodes' load.
    Edge(PartArgs),
    /// Run one front of a cluster file: it leads a proxy of yours, such as nginx or HAProxy, or programs without one, by the nodes' load.
    Front(FrontArgs),
    /// Analyse, convert and generate request traces.
    Trace(TraceArgs),
    /// Run a cache that memcached's clients use.
    Cache(CacheArgs),
    /// Simulate caching clusters and data-centers.
    Sim(SimArgs),
    /// Reproduce published experiments, and compare with other software.
    Lab(LabArgs),
    /// Put a load on a site that runs: persons who look, bid, buy and sell.
    Load(LoadArgs),
    /// Measure operations on the memory of another process, here or on another machine.
    Perf(PerfArgs),
    /// Print a demo cluster file, or check a cluster file.
    Config(ConfigArgs),
    /// Become a server of another make or a command of a site, which ends with its parent.
    #[command(hide = true)]
    Exec(ExecArgs),
}

#[derive(Args)]
pub(crate) struct ExecArgs {
    /// The parent, with which the process ends.
    #[arg(long, value_name = "PID")]
    pub(crate) with_parent: i32,
    /// A control group that it joins.
    #[arg(long, value_name = "DIR")]
    pub(crate) join_cgroup: Option<PathBuf>,
    /// The command and its arguments.
    #[arg(required = true, last = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
#[command(after_help = INIT_END)]
pub(crate) struct InitArgs {
    /// A server that answers HTTP/1.1, by host and port or Unix socket (unix:/run/app.sock). Give it once for each server.
    #[arg(long = "server", value_name = "HOST:PORT", required = true)]
    pub(crate) servers: Vec<String>,
    /// The Host header of a site. Give it once for each site; the servers are dealt out to the sites.
    #[arg(long = "host", value_name = "NAME", required = true)]
    pub(crate) hosts: Vec<String>,
    /// Where clients will connect.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    pub(crate) listen: SocketAddr,
    /// The proxy of yours that clients connect to: a front leads it, in place of an edge.
    #[arg(long, value_name = "MAKE", conflicts_with = "listen")]
    pub(crate) front: Option<FrontMake>,
    /// The file to write, which must not exist.
    #[arg(long, value_name = "FILE", default_value = "sidelong.toml")]
    pub(crate) config: PathBuf,
}

const INIT_END: &str = "\
It prints who listens at each server, and the control group whose load is the server's. It changes nothing but the file.

Examples:
  sidelong init --server 127.0.0.1:8080 --server 127.0.0.1:8081 --host app.example
  sidelong init --server 127.0.0.1:8080 --server 127.0.0.1:8081 --host app.example --front nginx
  sidelong up --config sidelong.toml";

#[derive(Args)]
#[command(after_help = UP_END)]
pub(crate) struct UpArgs {
    /// Cluster file [default: that of `sidelong config demo`: 8 nodes, 3 sites and 2 edges on loopback].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Override `cluster.fabric` (auto, shm, tcp, verbs).
    #[arg(long, value_name = "FABRIC")]
    pub(crate) fabric: Option<Fabric>,
    /// Run a demonstration: its sites, servers, data and load. With --config, on the nodes of that file, which has a site auction and may
    /// have sites files and api.
    #[arg(long, value_name = "DEMO", conflicts_with_all = ["servers", "cache"])]
    pub(crate) demo: Option<Demo>,
    /// With --demo, where its data is: an SQLite file, or postgres://USER@HOST/NAME [default: a file that is made, and removed at the end].
    #[arg(long, value_name = "DATABASE", requires = "demo")]
    pub(crate) database: Option<String>,
    /// With --demo, persons who walk the auction; the load on its other sites grows with them. 0 sends no load.
    #[arg(long, value_name = "N", requires = "demo", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=i64::from(AT_ONCE_MAX)))]
    pub(crate) sessions: u32,
    /// Run unmodified servers in place of the built-in origin, each in a control group with a share of CPU. The file's nodes keep
    /// their addresses; for gunicorn also their workers and service times.
    #[arg(long, value_name = "MAKE")]
    pub(crate) servers: Option<Make>,
    /// Run a proxy of another make in place of each edge, at the edge's address, with a front that leads it; or none (connect).
    #[arg(long, value_name = "MAKE")]
    pub(crate) front: Option<FrontMake>,
    /// Who chooses the server of a request behind `--front`.
    #[arg(long, value_name = "WHO", default_value = "sidelong", requires = "front")]
    pub(crate) by: By,
    /// Put a load on the caches of the file: gets and sets by Zipf's law. If it has none, add three.
    #[arg(long)]
    pub(crate) cache: bool,
    /// Stop after this time (500ms, 30s, 1h30m).
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Print one JSON summary at the end and nothing else.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the nodes and busy nodes of each site over time to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) samples: Option<PathBuf>,
    /// Write the outcome of each request of the load generator to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) requests: Option<PathBuf>,
    /// Print lines instead of a live screen, even on a terminal.
    #[arg(long)]
    pub(crate) plain: bool,
}

const UP_END: &str = "\
Ctrl-C, q, SIGTERM or the end of the terminal stop it: requests in flight are answered, and a summary is printed.

Examples:
  sidelong up
  sidelong up --for 30s --json
  sidelong up --demo auction
  sidelong up --servers gunicorn --front nginx
  sidelong up --cache
  sidelong up --config cluster.toml --fabric tcp
  sidelong up --servers gunicorn
  sidelong up --for 1m --plain --samples nodes.csv --requests requests.csv";

#[derive(Args)]
#[command(after_help = TOP_KEYS)]
pub(crate) struct TopArgs {
    /// Cluster file [default: that of the `sidelong up` that runs on this machine].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Override `cluster.fabric` (auto, shm, tcp, verbs). It must be the value that the cluster uses.
    #[arg(long, value_name = "FABRIC")]
    pub(crate) fabric: Option<Fabric>,
    /// Time between scans (100ms, 1s).
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "100ms")]
    pub(crate) interval: Duration,
    /// Sort by a column: node, site, run, cpu%, mem%, conns, queue, busy, req/s, net/s, age, state [default: node].
    #[arg(long, value_name = "COLUMN", default_value = "node", hide_default_value = true)]
    pub(crate) sort: Column,
    /// Show only nodes whose name, site or state contains TEXT.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) filter: String,
    /// Print a table once and exit.
    #[arg(long)]
    pub(crate) once: bool,
    /// With --once, print one JSON object (docs/top.md).
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
}

const TOP_KEYS: &str = "\
Keys: ? help, F6 or s choose the sort column, < and > sort by the column before or after, I reverse,
/ filter, Space or z freeze, arrows scroll, q quit.

Exit codes: 0; 2 if no cluster runs or none of its nodes answers.

Examples:
  sidelong top
  sidelong top --interval 1s --sort cpu% --filter alpha
  sidelong top --once --json";

#[derive(Args)]
#[command(after_help = STATUS_END)]
pub(crate) struct StatusArgs {
    /// Cluster file [default: that of the `sidelong up` that runs on this machine].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print one JSON object (docs/admission.md).
    #[arg(long)]
    pub(crate) json: bool,
}

const STATUS_END: &str = "\
It reads /status.json at the `admin` address of each edge and adds up. Counts are since the edges started.

Exit codes: 0; 2 if no edge answers.

Examples:
  sidelong status
  sidelong status --config cluster.toml --json";

#[derive(Args)]
#[command(after_help = HISTORY_FILES)]
pub(crate) struct HistoryArgs {
    /// Cluster file [default: that of the `sidelong up` that runs on this machine].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Show only moves of this node.
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Show only moves from or to this site, and its repairs.
    #[arg(long, value_name = "SITE")]
    pub(crate) site: Option<String>,
    /// Show only moves that ended at this time in UTC, which may be shortened: 14:02, 14:02:07, 2026-11-22T14:02.
    #[arg(long, value_name = "TIME", value_parser = time_of_day)]
    pub(crate) at: Option<String>,
    /// Show only moves that ended within this time (30s, 1h).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) since: Option<Duration>,
    /// Print a JSON array, with the figures of both sites from which each move was decided.
    #[arg(long)]
    pub(crate) json: bool,
}

const HISTORY_FILES: &str = "\
Each edge keeps the history of its own moves in NAME.history.jsonl in the cluster's run directory, of at most
limits.history_bytes_max bytes. Attempts that lost to another edge are left out. On several machines, each
lists the moves of its own edges.

Examples:
  sidelong history --since 1h
  sidelong history --node n3 --json";

#[derive(Args)]
#[command(after_help = PART_END)]
pub(crate) struct PartArgs {
    /// Cluster file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Its name in the cluster file.
    pub(crate) name: String,
    /// Override `cluster.fabric` (auto, shm, tcp, verbs). All parts of a cluster must use the same value.
    #[arg(long, value_name = "FABRIC")]
    pub(crate) fabric: Option<Fabric>,
    /// Print events as JSON lines on standard output.
    #[arg(long)]
    pub(crate) events: bool,
    /// Exit when the parent process does; with PID, exit at once unless PID is the parent.
    #[arg(long, value_name = "PID", num_args = 0..=1, require_equals = true, default_missing_value = "0")]
    pub(crate) with_parent: Option<i32>,
    /// Move a node into this control group, whose load is then the node's.
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) join_cgroup: Option<PathBuf>,
}

const PART_END: &str = "\
SIGTERM and SIGINT stop it, SIGTERM once the requests in flight are answered; SIGHUP is ignored. On SIGUSR1 an edge opens its
access log anew.
It logs to standard error: SIDELONG_LOG=info logs more, SIDELONG_LOG_FORMAT=json logs JSON (docs/running.md).

Examples:
  sidelong node n1 --config cluster.toml
  sidelong edge edge1 --config cluster.toml";

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = FRONT_END)]
pub(crate) struct FrontArgs {
    #[command(subcommand)]
    pub(crate) ask: Option<FrontCommand>,
    #[command(flatten)]
    pub(crate) part: Option<PartArgs>,
}

#[derive(Subcommand)]
pub(crate) enum FrontCommand {
    /// Print the lines that the proxy's own configuration needs, or the addresses to connect to.
    Config(FrontNamed),
    /// Say whether the proxy that runs does what it should; exit with 2 if not.
    Check(FrontNamed),
}

#[derive(Args)]
pub(crate) struct FrontNamed {
    /// Cluster file.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Name of the front in the cluster file.
    pub(crate) name: String,
}

const FRONT_END: &str = "\
SIGTERM and SIGINT stop it; SIGHUP is ignored. The proxy then sends requests by itself, to the nodes that served each site last,
and no node moves until the front is back (docs/fronts.md).

Examples:
  sidelong front config web1 --config cluster.toml
  sidelong front web1 --config cluster.toml
  sidelong front check web1 --config cluster.toml";

#[derive(Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    pub(crate) command: SimCommand,
}

#[derive(Subcommand)]
pub(crate) enum SimCommand {
    /// Run every combination of a configuration's values, and write rows.csv, result.json and report.md to DIR.
    ///
    /// An interrupted sweep (exit code 130) continues when it is run again.
    Run {
        /// Configuration file; an empty file means all defaults.
        file: PathBuf,
        /// Override a field of the file with one or more values. A relative path is resolved from the current directory;
        /// in the file, from the file's directory.
        #[arg(long, value_name = "KEY=VALUE[,VALUE...]")]
        set: Vec<String>,
        /// Directory for the results.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
        /// Runs at a time [default: the number of CPUs].
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
        threads: Option<u16>,
        /// Run only the I-th of N parts, 1/N to N/N, each with its own DIR; `sim merge` joins them.
        #[arg(long, value_name = "I/N")]
        shard: Option<Part>,
    },
    /// Join the parts of a sweep into the result of the whole sweep, byte for byte.
    Merge {
        /// Directories with the results of all parts.
        #[arg(required = true, value_name = "DIR")]
        parts: Vec<PathBuf>,
        /// Directory for the joined result.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Print every field of a configuration: its value, its meaning and its source.
    Explain {
        /// Configuration file [default: all defaults].
        file: Option<PathBuf>,
        /// Override a field, as for `run`.
        #[arg(long, value_name = "KEY=VALUE[,VALUE...]")]
        set: Vec<String>,
    },
    /// Print two results side by side, with confidence intervals over seeds.
    Compare {
        /// Directory of the first result.
        first: PathBuf,
        /// Directory of the second result.
        second: PathBuf,
    },
    /// Run a cooperative cache live on this machine, beside its simulation: a process for each node, which reads the others' memory.
    ///
    /// The clients, the requests and the caches are those of the file; disks take the time that it says. All else takes the
    /// time that it takes here.
    Live {
        /// Configuration file; an empty file means all defaults.
        file: PathBuf,
        /// Override a field, as for `run`. Each combination of several values is a run.
        #[arg(long, value_name = "KEY=VALUE[,VALUE...]")]
        set: Vec<String>,
        /// Print a JSON line for each run.
        #[arg(long)]
        json: bool,
    },
    /// One node of `sim live`.
    #[command(hide = true)]
    LiveNode {
        file: PathBuf,
        #[arg(long)]
        set: Vec<String>,
        #[arg(long)]
        point: usize,
        #[arg(long)]
        node: u32,
        #[arg(long)]
        run_dir: PathBuf,
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
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print the cluster file that `up` uses by default, with every key explained.
    Demo,
    /// Check a cluster file and the certificates that it names, and print its sites and nodes.
    Check {
        /// Cluster file.
        file: PathBuf,
    },
}

pub(crate) fn config(args: &ConfigArgs) -> Result<(), Failure> {
    match &args.command {
        ConfigCommand::Demo => say(ClusterFile::demo_text())?,
        ConfigCommand::Check { file } => {
            let cluster = ClusterFile::load(file)?.cluster()?;
            for edge in &cluster.edges {
                check_tls(&edge.name, &sidelong_app::parts::certificates(edge), edge.client_ca.as_deref())?;
            }
            let caches = match cluster.cache.peers.len() {
                0 => String::new(),
                caches => format!("{}, ", some(caches, "cache")),
            };
            let mut text = format!(
                "{}: cluster {}, {}, {}, {}, {caches}{}\n",
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
                    Some(Target::ResponseP99(time)) => format!(", p99 at most {} ms", ms(time)),
                    Some(Target::Queue(time)) => format!(", at most {} ms in a queue", ms(time)),
                    None => String::new(),
                };
                let (name, count, floor) = (&site.name, site.nodes, site.floor);
                // Defaults are left out.
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
            for front in cluster.fronts.iter().filter_map(|front| front.leads.as_ref()) {
                let cuts = front.proxy == Proxy::Haproxy
                    || cluster.sites.iter().all(|site| site.drain == Drain::Wait);
                let note =
                    if cuts { "" } else { ", which cuts no requests: drain = \"cut\" waits for them there" };
                text += &format!(
                    "  front {}: {}, by {:?}{note}\n",
                    front.name,
                    front.proxy,
                    front.led_by().as_str()
                );
            }
            say(&text)?;
        }
    }
    Ok(())
}

/// A duration as every argument takes it: `500ms`, `30s`, `1.5m`, `1h30m`; a day at most.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; expected a number with ms, s, m or h, such as 30s or 1h30m"))?;
    let fits = (Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&time);
    fits.then_some(time).ok_or_else(|| "between 1ms and 24h".to_owned())
}

/// A [`duration`] that a screen can show and a scan can take.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    let fits = (Duration::from_millis(10)..=Duration::from_secs(60)).contains(&interval);
    fits.then_some(interval).ok_or_else(|| "between 10ms and 1m".to_owned())
}

#[cfg(test)]
#[path = "../tests/it/documented/commands.rs"]
mod commands;

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// Whether `words` name a command and nothing else, as prose does.
    fn is_name(words: &[String]) -> bool {
        let mut named = Cli::command();
        words[1..].iter().all(|word| match named.find_subcommand(word).cloned() {
            Some(subcommand) => {
                named = subcommand;
                true
            }
            None => false,
        })
    }

    #[test]
    fn every_command_in_the_documentation_is_understood() {
        let shown = commands::shown();
        let ours = shown.iter().filter(|(command, _)| command.starts_with("sidelong "));
        for (command, place) in ours {
            let words = commands::words(command);
            if is_name(&words) || words.iter().any(|word| word == "--help") {
                continue;
            }
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{place}: {command}: {error}");
            }
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert!(duration("30").is_err() && duration("s").is_err() && duration("-1s").is_err());
        assert!(duration("1e9h").is_err() && duration("NaNs").is_err() && duration("").is_err());
    }
}
