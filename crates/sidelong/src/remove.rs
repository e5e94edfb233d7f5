//! `sidelong remove`: a person says that nothing is left of an edge, front or cache.

use clap::Args;
use sidelong_app::reload::lose;

use crate::by_hand::RunningArgs;
use crate::cluster;
use crate::completion;
use crate::failure::{Failure, say};
use crate::reload::WAIT;
use crate::running::running;

#[derive(Args)]
#[command(after_help = REMOVE_END)]
pub(crate) struct RemoveArgs {
    /// Name of the edge, front or cache in the cluster file; on several machines also of a node.
    #[arg(add = completion::parts())]
    pub(crate) name: String,
    /// Say that nothing of it is left: neither its process nor, beside a proxy of another make, that proxy.
    #[arg(long, required = true)]
    pub(crate) lost: bool,
    #[command(flatten)]
    pub(crate) of: RunningArgs,
}

const REMOVE_END: &str = "\
Moves wait for an edge or front that says nothing, because it may have requests at their node. `sidelong status` and
sidelong_edge_moves_waiting_seconds name it. Once you have made sure that nothing of it is left, this command has them go on.
The keys of a cache that has died are out of reach until it is back: nothing is stored under them. With this command the other caches take
them over. A node on another machine that does not answer may leave after this command, and if it had the board, by which all
move nodes, another node has it from then on. If the part is started again, it belongs to the
cluster again. Its entry stays in the file.

Exit codes: 0 once no part waits for it; 2 if not, with the reason.

Examples:
  sidelong remove edge2 --lost
  sidelong remove c3 --lost";

/// Has nobody wait for it.
pub(crate) fn run(args: &RemoveArgs, is_quiet: bool) -> Result<(), Failure> {
    let file = args.of.config.clone().map_or_else(running, Ok)?;
    let cluster = cluster::any(&file, args.of.fabric)?;
    let epoch = lose(&cluster, &args.name, WAIT)?;
    let is_cache = cluster.caches.values().any(|cache| cache.name == args.name);
    let name = &args.name;
    let said = match is_cache {
        true => format!("the other caches have the keys of {name} (epoch {epoch})\n"),
        false => format!("nobody waits for {name} any more (epoch {epoch})\n"),
    };
    if is_quiet { Ok(()) } else { say(said) }
}
