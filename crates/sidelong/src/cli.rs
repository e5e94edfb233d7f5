//! The command line of `sidelong`.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::agents::{self, AgentsArgs};
use crate::by_hand::{self, DrainArgs, MoveArgs, ResumeArgs};
use crate::cache::{self, CacheArgs};
use crate::config::{self, ConfigArgs};
use crate::doctor::{self, DoctorArgs};
use crate::etcd::{self, ClusterArgs};
use crate::event::{self, Event};
use crate::failure::Failure;
use crate::front::{self, FrontArgs};
use crate::history::{self, HistoryArgs};
use crate::init::{self, InitArgs};
use crate::manual::{self, ManualArgs};
use crate::members::{self, JoinArgs, LeaveArgs};
use crate::part::{self, EdgeArgs, PartArgs};
use crate::reload::{self, ReloadArgs};
use crate::remove::{self, RemoveArgs};
use crate::secret::{self, SecretArgs};
use crate::status::{self, StatusArgs};
use crate::top::{self, TopArgs};
use crate::up::{self, ExecArgs, UpArgs};

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
  sidelong config example > cluster.toml   write a commented cluster file to start from
  sidelong up --config cluster.toml        run that cluster
  sidelong top                             watch the nodes of the cluster that runs here
  sidelong status                          requests admitted and rejected for each site, and why
  sidelong history --since 1h              moves of the last hour, and why each was made
  sidelong drain n3                        take a node out of service; sidelong resume n3 brings it back";

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
    /// Say what is wrong with this machine and the cluster, what it costs, and what mends it.
    Doctor(DoctorArgs),
    /// List the moves of nodes between sites: when, by which edge, how long each took, and why.
    History(HistoryArgs),
    /// Take a node out of service: it finishes its requests, and serves nobody until it is resumed.
    Drain(DrainArgs),
    /// Give a node that was drained or moved by hand back to its site, and to the edges' decisions.
    Resume(ResumeArgs),
    /// Move a node to a site, where it stays until it is resumed.
    Move(MoveArgs),
    /// Have the parts of a running cluster adopt its changed file: all of them, or none.
    Reload(ReloadArgs),
    /// Show or change the file of a cluster on several machines, which etcd has.
    Cluster(ClusterArgs),
    /// Show which parts of a cluster on several machines have which secret, or change the secret.
    Secret(SecretArgs),
    /// Have a node or a cache join a running cluster.
    Join(JoinArgs),
    /// Have a node, edge, front, cache or site leave a running cluster, once no request is left there.
    Leave(LeaveArgs),
    /// Say that nothing is left of an edge or front, so that moves no longer wait for it; or of a cache, whose keys others take.
    Remove(RemoveArgs),
    /// Run one node of a cluster file: an origin server with a load record that edges read.
    Node(PartArgs),
    /// Run the agents of many nodes in one process, such as those of the pods of a Kubernetes service.
    Agents(AgentsArgs),
    /// Run one edge of a cluster file: a reverse proxy that routes by the nodes' load.
    Edge(EdgeArgs),
    /// Run one front of a cluster file: it controls a proxy of yours, such as nginx or HAProxy, or programs without one, by the nodes' load.
    Front(FrontArgs),
    /// Run a cache that memcached's clients use.
    Cache(CacheArgs),
    /// Print a demo cluster file, or check a cluster file.
    Config(ConfigArgs),
    /// Write the pages of the manual.
    #[command(hide = true)]
    Manual(ManualArgs),
    /// Become a server of another make or a command of a site, which ends with its parent.
    #[command(hide = true)]
    Exec(ExecArgs),
}

/// The part of a cluster that runs by this command line, if it is one.
fn part_of(words: &[OsString]) -> Option<PartArgs> {
    match Cli::try_parse_from(words).ok()?.command {
        Command::Node(part) => Some(part),
        Command::Edge(edge) => Some(edge.part),
        Command::Front(front) => front.part.filter(|_| front.ask.is_none()),
        Command::Cache(cache) => cache.part(),
        _ => None,
    }
}

impl Command {
    /// Whether it shows on a screen what it would warn of.
    pub(crate) fn has_screen(&self) -> bool {
        matches!(self, Command::Top(_))
    }

    pub(crate) fn run(&self, is_quiet: bool) -> Result<ExitCode, Failure> {
        let done = match self {
            Command::Doctor(args) => return doctor::run(args, part_of),
            Command::Up(args) => up::run(args, is_quiet),
            Command::Top(args) => top::run(args),
            Command::Status(args) => status::run(args),
            Command::History(args) => history::run(args),
            Command::Drain(args) => by_hand::drain(args, is_quiet),
            Command::Resume(args) => by_hand::resume(args, is_quiet),
            Command::Move(args) => by_hand::move_to(args, is_quiet),
            Command::Reload(args) => reload::run(args, is_quiet),
            Command::Cluster(args) => etcd::run(args, is_quiet),
            Command::Secret(args) => secret::run(args),
            Command::Join(args) => members::join(args, is_quiet),
            Command::Leave(args) => members::leave(args, is_quiet, part_of),
            Command::Remove(args) => remove::run(args, is_quiet),
            Command::Node(args) => run_part(args, part::node),
            Command::Agents(args) => agents::run(args),
            Command::Edge(args) => return tell(args.part.events, part::edge(args)),
            Command::Front(args) => match &args.ask {
                Some(ask) => front::ask(ask),
                None => {
                    run_part(args.part.as_ref().expect("clap asks for it without a subcommand"), part::front)
                }
            },
            Command::Cache(args) => tell(args.events, cache::run(args, is_quiet)),
            Command::Config(args) => config::run(args),
            Command::Init(args) => init::run(args),
            Command::Manual(args) => manual::write(args),
            Command::Exec(args) => up::exec(args),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

/// Runs a part of a cluster, and reports its failure as an event too.
fn run_part(args: &PartArgs, run: fn(&PartArgs) -> Result<(), Failure>) -> Result<(), Failure> {
    tell(args.events, run(args))
}

/// Reports a failure as an event too, if a part prints events.
fn tell<T>(events: bool, done: Result<T, Failure>) -> Result<T, Failure> {
    if let (true, Err(Failure(reason))) = (events, &done) {
        event::print(&Event::Failed { reason: reason.clone() });
    }
    done
}

#[cfg(test)]
#[path = "../tests/it/documented/commands.rs"]
mod commands;

#[cfg(test)]
pub(crate) mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// Whether `words` name a command of `named` and nothing else, as prose does.
    fn is_name(mut named: clap::Command, words: &[String]) -> bool {
        words[1..].iter().all(|word| match named.find_subcommand(word).cloned() {
            Some(subcommand) => {
                named = subcommand;
                true
            }
            None => false,
        })
    }

    /// Parses each command of that program that the documentation shows.
    pub(crate) fn parse_documented<P: Parser>(program: &str) {
        let shown = commands::shown();
        let ours = shown.iter().filter(|(command, _)| command.split(' ').next() == Some(program));
        for (command, place) in ours {
            let words = commands::words(command);
            if is_name(P::command(), &words) || words.iter().any(|word| word == "--help") {
                continue;
            }
            if let Err(error) = P::try_parse_from(&words) {
                panic!("{place}: {command}: {error}");
            }
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_in_the_documentation_is_understood() {
        parse_documented::<Cli>("sidelong");
    }
}
