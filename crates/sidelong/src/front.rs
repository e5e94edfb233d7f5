//! `sidelong front config` and `check`: what a proxy needs to be controlled by a front, and whether it is.

mod connect;
mod haproxy;
mod memory;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sidelong_app::front::find;
use sidelong_app::roster::as_it_serves;
use sidelong_config::{Cluster, FrontEntry, Proxy};
use sidelong_harness::front::lines;

use crate::cluster::{self, INSTALLED};
use crate::completion;
use crate::failure::{Failure, say};
use crate::part::PartArgs;

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
    #[arg(long, value_name = "FILE", default_value = INSTALLED)]
    pub(crate) config: PathBuf,
    /// Name of the front in the cluster file.
    #[arg(add = completion::parts())]
    pub(crate) name: String,
}

const FRONT_END: &str = "\
SIGTERM and SIGINT stop it; SIGHUP is a `sidelong reload`. The proxy then sends requests by itself, to the nodes that served each site last,
and no node moves until the front is back (docs/fronts.md).

Examples:
  sidelong front config web1 --config cluster.toml
  sidelong front web1 --config cluster.toml
  sidelong front check web1 --config cluster.toml";

pub(crate) fn ask(command: &FrontCommand) -> Result<(), Failure> {
    match command {
        FrontCommand::Config(FrontNamed { config, name }) => {
            let cluster = as_it_serves(cluster::of_file(config, None)?);
            let (_, entry) = find(&cluster, name)?;
            say(lines(&cluster, entry))
        }
        FrontCommand::Check(FrontNamed { config, name }) => {
            let cluster = cluster::of_file(config, None)?;
            let (_, entry) = find(&cluster, name)?;
            say(survey(&cluster, entry)?)
        }
    }
}

/// What shows that the front controls its proxy.
///
/// # Errors
/// If it does not.
pub(crate) fn survey(cluster: &Cluster, entry: &FrontEntry) -> Result<String, Failure> {
    match entry.proxy {
        Proxy::Haproxy => haproxy::survey(cluster, entry),
        Proxy::Connect => connect::survey(cluster, entry),
        Proxy::Nginx | Proxy::Httpd | Proxy::Envoy | Proxy::Library => memory::survey(cluster, entry),
    }
}
