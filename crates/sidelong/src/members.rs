//! `sidelong join` and `sidelong leave`: entries of the cluster file that come and go, and the parts that take this over.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use sidelong_app::reload::Reload;
use sidelong_app::roster::Place;
use sidelong_config::edit;
use sidelong_os::replace_file;

use crate::cluster::{self, INSTALLED};
use crate::completion;
use crate::duration::duration;
use crate::failure::{Failure, say};
use crate::own_part::{OwnPart, Parse, own_part};
use crate::reload::{alone, found, proxies, told};

#[derive(Args)]
#[command(after_help = JOIN_END)]
pub(crate) struct JoinArgs {
    #[command(subcommand)]
    member: Member,
}

#[derive(Subcommand)]
enum Member {
    /// Add a node for a server of yours.
    Node(NodeArgs),
    /// Add a cache for memcached's clients.
    Cache(CacheArgs),
}

#[derive(Args)]
struct NodeArgs {
    /// Name of the node. No other part has it.
    name: String,
    /// Where the server answers: HOST:PORT, or unix:/PATH.
    #[arg(long, value_name = "ADDRESS")]
    server: String,
    /// Its control endpoint, on several machines: an address and a port of its agent's machine that the others can reach.
    #[arg(long, value_name = "ADDRESS")]
    fabric_listen: Option<String>,
    #[command(flatten)]
    of: FileArgs,
}

#[derive(Args)]
struct CacheArgs {
    /// Name of the cache. No other part has it.
    name: String,
    /// Where memcached's clients connect: HOST:PORT.
    #[arg(long, value_name = "ADDRESS")]
    listen: String,
    /// Memory in MiB, tables included. Default 64.
    #[arg(long, value_name = "MIB")]
    memory_mb: Option<u32>,
    #[command(flatten)]
    of: FileArgs,
}

#[derive(Args)]
#[command(after_help = LEAVE_END)]
pub(crate) struct LeaveArgs {
    /// Name of the node, edge, front, cache or site in the cluster file.
    #[arg(required_unless_present = "own", add = completion::parts())]
    name: Option<String>,
    /// The part that runs in the control group of this command leaves, with the cluster file that it was started with: for a unit's
    /// ExecStop, or a container's preStop hook.
    #[arg(long = "self", conflicts_with_all = ["name", "config"])]
    own: bool,
    /// Wait for the requests at a node as long as they take, not `reconfig.drain_ms_max` at most.
    #[arg(long)]
    wait: bool,
    /// Cluster file, which is changed. Its comments stay.
    #[arg(long, value_name = "FILE", default_value = INSTALLED)]
    config: PathBuf,
    /// Longest wait for the parts to take it over.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    timeout: Duration,
}

#[derive(Args)]
struct FileArgs {
    /// Cluster file, which is changed. Its comments stay.
    #[arg(long, value_name = "FILE", default_value = INSTALLED)]
    config: PathBuf,
    /// Longest wait for the parts to take it over.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    timeout: Duration,
}

const JOIN_END: &str = "\
The entry is added to the cluster file, and the parts that run take it over, as by `sidelong reload`. Start the part then. A cache takes its
share of the keys once it has started: they are misses there once.
To add a site, an edge or a front, write its entry into the file and reload.

Exit codes: 0 once all parts that run know it; 2 if not, with the reason, and with the file as it was.

Examples:
  sidelong join node web9 --server 10.0.0.29:8080 --config cluster.toml
  sidelong node web9 --config cluster.toml
  sidelong join node web9 --server 10.0.0.29:8080 --fabric-listen 10.0.0.29:7201 --config cluster.toml
  sidelong join cache c4 --listen 127.0.0.1:11214 --config cluster.toml
  sidelong cache c4 --config cluster.toml";

const LEAVE_END: &str = "\
A node is held first, which takes until no request is left there, and its part ends. An edge ends its requests, and then itself. A site
takes no more requests (421), and its nodes are free then. The front of a proxy leaves once a person has said that nothing is left of both
(`sidelong remove`). A cache hands its share of the keys to the others, where they are misses once, and ends. The entry is taken out of the cluster file. If the command is ended before that
is done, the file stays so: `sidelong reload` then goes on with it.

Exit codes: 0 once all parts that run go on without it; 2 if not, with the reason, and with the file as it was.

Examples:
  sidelong leave web9 --config cluster.toml
  sidelong leave web9 --config cluster.toml --wait
  sidelong leave --self --wait";

/// Has a node or a cache join.
pub(crate) fn join(args: &JoinArgs, is_quiet: bool) -> Result<(), Failure> {
    let (kind, name, of) = match &args.member {
        Member::Node(node) => ("node", &node.name, &node.of),
        Member::Cache(cache) => ("cache", &cache.name, &cache.of),
    };
    if let Member::Node(NodeArgs { fabric_listen: None, .. }) = &args.member
        && cluster::short(&of.config)?.etcd.is_some()
    {
        return Err(Failure::new(format!(
            "with {name}: parts on other machines must reach its agent: say --fabric-listen ADDRESS"
        )));
    }
    let file = (&*of.config, of.timeout);
    let Changed { epoch, others, proxies } =
        change(file, ("with", name), false, |text| match &args.member {
            Member::Node(node) => edit::add_node(text, name, &node.server, node.fabric_listen.as_deref()),
            Member::Cache(cache) => edit::add_cache(text, name, &cache.listen, cache.memory_mb),
        })?;
    let file = of.config.display();
    let said = format!(
        "{others}{name} belongs to the cluster (epoch {epoch}): start it by `sidelong {kind} {name} --config {file}`\n{proxies}"
    );
    if is_quiet { Ok(()) } else { say(said) }
}

/// Has a node, edge, front, cache or site leave.
pub(crate) fn leave(args: &LeaveArgs, is_quiet: bool, parse: Parse) -> Result<(), Failure> {
    let OwnPart { name, config } = match &args.name {
        Some(name) => OwnPart { name: name.clone(), config: args.config.clone() },
        None => own_part(parse)?,
    };
    let Changed { epoch, others, proxies } =
        change((&config, args.timeout), ("without", &name), args.wait, |text| edit::remove(text, &name))?;
    if is_quiet {
        Ok(())
    } else {
        say(format!("{others}{name} has left the cluster (epoch {epoch})\n{proxies}"))
    }
}

/// What was done.
struct Changed {
    epoch: u64,
    /// What else the parts go by since, in words: somebody had edited the file, and not reloaded it.
    others: String,
    /// What else was changed, and what is left to do for proxies of other makes.
    proxies: String,
}

/// Changes the file, and has the parts go by it, `how` being with or without that name. If they do not, the file is as it was.
fn change(
    (config, timeout): (&Path, Duration),
    (how, name): (&str, &str),
    waits: bool,
    edit: impl FnOnce(&str) -> Result<String, String>,
) -> Result<Changed, Failure> {
    let refused = |Failure(why): Failure| Failure::new(format!("{how} {name}: {why}"));
    let place = Place::new(&cluster::short(config)?)?;
    if place.is_far() {
        let reload = Reload::of_edit(place, edit).map_err(refused)?;
        return carry_out(reload, String::new(), (config, timeout), waits);
    }
    let path = found(config)?;
    let _alone = alone(&path)?;
    let named = |why: String| Failure::new(format!("{}: {why}", config.display()));
    let before = std::fs::read_to_string(&path)?;
    let others =
        match cluster::load(&path).and_then(Reload::new).map(|reload| reload.changes).unwrap_or_default() {
            changes if changes.is_empty() => String::new(),
            changes => format!("the file had been changed, too:\n{}", told(&changes)),
        };
    let after = edit(&before).map_err(named)?;
    replace(&path, &after)?;
    let reload = cluster::load(&path).and_then(Reload::new).map_err(refused);
    let reloaded = reload.and_then(|reload| carry_out(reload, others, (config, timeout), waits));
    reloaded.map_err(|Failure(why)| {
        let is_untouched = std::fs::read_to_string(&path).is_ok_and(|text| text == after);
        let back = if is_untouched { replace(&path, &before) } else { Ok(()) };
        let _ = back.inspect_err(|Failure(error)| tracing::error!("the file stays changed: {error}"));
        Failure::new(why)
    })
}

fn carry_out(
    reload: Reload,
    others: String,
    (config, timeout): (&Path, Duration),
    waits: bool,
) -> Result<Changed, Failure> {
    let at_first = reload.changes.iter().filter(|change| change.key.ends_with(".nodes"));
    let at_first = at_first.filter_map(|change| Some((&change.key, change.new.as_ref()?)));
    let fewer =
        at_first.map(|(key, now)| format!("{key} is {now} now, as there are fewer nodes to start with\n"));
    let proxies = fewer.collect::<String>() + &proxies(&reload, config);
    Ok(Changed { epoch: reload.carry_out(timeout, waits)?, others, proxies })
}

/// Replaces a cluster file. Who is not root has files of their own, and perhaps of another of their groups.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    Ok(replace_file(path, text.as_bytes(), |error| {
        tracing::warn!("{} gets another owner or group: {error}", path.display());
        Ok(())
    })?)
}
