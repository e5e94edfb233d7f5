//! `sidelong drain`, `resume` and `move`: what a person decides about a node.

use std::path::{Path, PathBuf};

use clap::Args;
use sidelong_app::Parts;
use sidelong_app::by_hand::{Hand, Wish, check};
use sidelong_config::{Cluster, Fabric};
use sidelong_layout::{NodeId, SiteId};

use crate::cluster;
use crate::completion;
use crate::failure::{Failure, say};
use crate::running::running;
use crate::top;

#[derive(Args)]
#[command(after_help = DRAIN_END)]
pub(crate) struct DrainArgs {
    /// Name of the node in the cluster file.
    #[arg(add = completion::nodes())]
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) of: RunningArgs,
    /// Wait for the node's requests as long as they take, and not for `reconfig.drain_ms_max`.
    #[arg(long)]
    pub(crate) wait: bool,
    /// Take the node although its site falls below its floor, and say so.
    #[arg(long)]
    pub(crate) force: bool,
}

const DRAIN_END: &str = "\
It is done when it returns: no request is under way at the node, and no edge sends it one.
If requests have not ended within reconfig.drain_ms_max, the node stays with its site, unless --wait is given.
Those of a site with drain = \"cut\" are cut then.
Ctrl-C ends the command only: an edge then finishes the drain or takes it back, within two leases.

Exit codes: 0 if the node is held; 2 if not, with the reason.

Examples:
  sidelong drain n3
  sidelong drain n3 --wait && systemctl restart app
  sidelong resume n3";

#[derive(Args)]
#[command(after_help = RESUME_END)]
pub(crate) struct ResumeArgs {
    /// Name of the node in the cluster file.
    #[arg(add = completion::nodes())]
    pub(crate) node: String,
    #[command(flatten)]
    pub(crate) of: RunningArgs,
}

const RESUME_END: &str = "\
A node that was drained serves its site again. One that was moved by hand stays there, and may be moved by the edges again.

Exit codes: 0; 2 if it failed, with the reason.";

#[derive(Args)]
#[command(after_help = MOVE_END)]
pub(crate) struct MoveArgs {
    /// Name of the node in the cluster file.
    #[arg(add = completion::nodes())]
    pub(crate) node: String,
    /// Name of the site that it will serve; its own, to keep it there.
    #[arg(add = completion::sites())]
    pub(crate) site: String,
    #[command(flatten)]
    pub(crate) of: RunningArgs,
    /// Take the node although its site falls below its floor, and say so.
    #[arg(long)]
    pub(crate) force: bool,
}

const MOVE_END: &str = "\
The move is that of the edges: the node finishes its site's requests first. It is then pinned, which means that the edges leave
it where it is, until `sidelong resume`.

Exit codes: 0 if the node serves the site; 2 if not, with the reason.

Examples:
  sidelong move n3 alpha
  sidelong resume n3";

/// Which running cluster.
#[derive(Args)]
pub(crate) struct RunningArgs {
    /// Cluster file [default: that of the `sidelong up` that runs on this machine, or /etc/sidelong/cluster.toml].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Override `cluster.fabric` (auto, shm, tcp, verbs). It must be the value that the cluster uses.
    #[arg(long, value_name = "FABRIC")]
    pub(crate) fabric: Option<Fabric>,
}

/// Takes a node out of service.
pub(crate) fn drain(args: &DrainArgs, is_quiet: bool) -> Result<(), Failure> {
    let change = |hand: &mut Hand| (hand.force, hand.waits) = (args.force, args.wait);
    carry_out(named(&args.of, &args.node)?, Wish::Drain, change, is_quiet)
}

/// Gives a node back to its site.
pub(crate) fn resume(args: &ResumeArgs, is_quiet: bool) -> Result<(), Failure> {
    carry_out(named(&args.of, &args.node)?, Wish::Resume, |_| (), is_quiet)
}

/// Moves a node to a site, where it stays.
pub(crate) fn move_to(args: &MoveArgs, is_quiet: bool) -> Result<(), Failure> {
    let named = named(&args.of, &args.node)?;
    let names = || named.cluster.sites.values().map(|site| site.name.as_str());
    let site = named.cluster.sites.position(|site| site.name == args.site);
    let site = site.ok_or_else(|| unknown(&named.file, "site", &args.site, names().collect()))?;
    carry_out(named, Wish::Move(SiteId::new(site)), |hand| hand.force = args.force, is_quiet)
}

fn carry_out(
    named: Named,
    wish: Wish,
    change: impl FnOnce(&mut Hand),
    is_quiet: bool,
) -> Result<(), Failure> {
    let Named { file, cluster, node } = named;
    check(&cluster)?;
    top::refuse_absent(&cluster, &file)?;
    let mut hand = Hand::new(Parts::new(cluster.clone())?, node, wish)?;
    change(&mut hand);
    hand.await_words().map_err(|why| match hand.hears_somebody() {
        true => {
            Failure::new(format!("{why}, while other nodes are heard: `sidelong status` says what is away"))
        }
        false => top::not_running(&cluster, &file, &why),
    })?;
    let said = hand.carry_out()?;
    if is_quiet { Ok(()) } else { say(format!("{said}\n")) }
}

/// A node of a cluster file.
struct Named {
    file: PathBuf,
    cluster: Cluster,
    node: NodeId,
}

fn named(of: &RunningArgs, name: &str) -> Result<Named, Failure> {
    let file = match &of.config {
        Some(file) => file.clone(),
        None => running()?,
    };
    let cluster = cluster::cluster(&file, of.fabric)?;
    let names = || cluster.nodes.values().map(|node| node.name.as_str());
    let node = cluster.nodes.position(|node| node.name == name);
    let node = NodeId::new(node.ok_or_else(|| unknown(&file, "node", name, names().collect()))?);
    Ok(Named { file, cluster, node })
}

fn unknown(file: &Path, what: &str, name: &str, known: Vec<&str>) -> Failure {
    Failure::new(format!("{}: no {what} {name:?}; it has {}", file.display(), known.join(", ")))
}
