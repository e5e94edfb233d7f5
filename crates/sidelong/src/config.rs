//! `sidelong config`: prints a cluster file, or checks one.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use sidelong_config::{AdmissionRule, ClusterFile, Drain, Proxy, Target, diff};
use sidelong_edge::check_tls;

use crate::cluster;
use crate::failure::{Failure, say, some};
use crate::reload;

#[derive(Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Print a cluster file with every key explained, to start one of your own from.
    Example,
    /// Print the cluster file that `up` uses by default, with the load that it plays.
    Demo,
    /// Compare two cluster files: what differs, and what each difference takes in a cluster that runs.
    Diff {
        /// Cluster file.
        old: PathBuf,
        /// The changed one.
        new: PathBuf,
    },
    /// Check a cluster file and the certificates that it names, and print its sites and nodes.
    Check {
        /// Cluster file.
        file: PathBuf,
    },
}

pub(crate) fn run(args: &ConfigArgs) -> Result<(), Failure> {
    match &args.command {
        ConfigCommand::Example => say(ClusterFile::example_text())?,
        ConfigCommand::Demo => say(ClusterFile::demo_text())?,
        ConfigCommand::Diff { old, new } => {
            say(reload::told(&diff(&cluster::load(old)?, &cluster::load(new)?)?))?;
        }
        ConfigCommand::Check { file } => {
            let cluster = cluster::load(file)?.cluster()?;
            for edge in &cluster.edges {
                check_tls(&edge.name, &sidelong_app::certificates(edge), edge.client_ca.as_deref())?;
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
                cluster.baseline.configuration,
            );
            for (index, site) in cluster.sites.entries() {
                let nodes = cluster.nodes.values().filter(|node| node.site == Some(index));
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
            for front in cluster.fronts.values().filter_map(|front| front.controls.as_ref()) {
                let cuts = front.proxy == Proxy::Haproxy
                    || cluster.sites.values().all(|site| site.drain == Drain::Wait);
                let note =
                    if cuts { "" } else { ", which cuts no requests: drain = \"cut\" waits for them there" };
                text += &format!(
                    "  front {}: {}, by {:?}{note}\n",
                    front.name,
                    front.proxy,
                    front.controlled_by().as_str()
                );
            }
            say(&text)?;
        }
    }
    Ok(())
}
