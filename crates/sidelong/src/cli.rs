//! The command line.

use clap::{Parser, Subcommand};

use crate::by_hand::{DrainArgs, MoveArgs, ResumeArgs};
use crate::cache::CacheArgs;
use crate::config::ConfigArgs;
use crate::front::FrontArgs;
use crate::history::HistoryArgs;
use crate::init::InitArgs;
use crate::lab::LabArgs;
use crate::load::LoadArgs;
use crate::part::PartArgs;
use crate::sim::SimArgs;
use crate::status::StatusArgs;
use crate::top::TopArgs;
use crate::trace::TraceArgs;
use crate::up::{ExecArgs, UpArgs};
use sidelong_perf::PerfArgs;

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
}
