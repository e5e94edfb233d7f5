//! `sidelong reload`: has the parts of a cluster adopt its changed file; and what it would change.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::fs::{FlockOperation, flock};
use sidelong_app::reload::Reload;
use sidelong_app::some;
use sidelong_config::{Change, FrontEntry, Takes};

use crate::cluster::{self, INSTALLED};
use crate::duration::duration;
use crate::failure::{Failure, say};
use crate::table::table;

/// How long parts may take to adopt a file, unless the command says otherwise.
pub(crate) const WAIT: Duration = Duration::from_secs(10);

#[derive(Args)]
#[command(after_help = RELOAD_END)]
pub(crate) struct ReloadArgs {
    /// Cluster file.
    #[arg(long, value_name = "FILE", default_value = INSTALLED)]
    pub(crate) config: PathBuf,
    /// Say what would change, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Longest wait for the parts to take it over.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Wait for the requests at nodes that leave as long as they take, not `reconfig.drain_ms_max` at most.
    #[arg(long)]
    pub(crate) wait: bool,
}

const RELOAD_END: &str = "\
All parts take the file over, or none does: a file that cannot be used, or that takes a stop of the cluster, changes nothing.
A request ends by the settings with which it began, and no connection is closed.
SIGHUP to a part does the same with the file that the part was started with.

Exit codes: 0 once all parts that run go by the file; 2 if not, with the reason. With --dry-run, 2 if it would be refused.

Examples:
  sidelong reload --config cluster.toml --dry-run
  sidelong reload --config cluster.toml";

/// Has the parts adopt the file.
pub(crate) fn run(args: &ReloadArgs, is_quiet: bool) -> Result<(), Failure> {
    let _alone = if args.dry_run { None } else { Some(alone(&found(&args.config)?)?) };
    let reload = Reload::new(cluster::load(&args.config)?)?;
    let file = args.config.display().to_string();
    let said = carry_out(reload, (&file, &args.config), args.dry_run, (args.timeout, args.wait))?;
    if is_quiet { Ok(()) } else { say(said) }
}

/// Has the parts adopt what messages call `file`, unless it `is_dry`. Returns what was, or would be, done.
pub(crate) fn carry_out(
    reload: Reload,
    (file, config): (&str, &Path),
    is_dry: bool,
    (timeout, waits): (Duration, bool),
) -> Result<String, Failure> {
    let told = told(&reload.changes) + &members(&reload, config) + &proxies(&reload, config);
    if is_dry {
        if reload.changes.iter().any(|change| matches!(change.takes, Takes::Stop(_))) {
            say(told)?;
            return Err(Failure::new(format!("{file}: a reload would be refused: stop all parts first")));
        }
        return Ok(told);
    }
    let (is_needed, restarts) = (reload.is_needed(), restarts(&reload.changes));
    let all = if reload.is_of_several() { "all parts that answer go" } else { "all parts that run go" };
    let epoch = reload.carry_out(timeout, waits)?;
    Ok(match is_needed {
        true => format!("{told}{file}: {all} by it (epoch {epoch}){restarts}\n"),
        false => format!("{file}: nothing has changed, and {all} by it (epoch {epoch})\n"),
    })
}

/// Longest wait for whoever changes the cluster, such as the reload of another unit, and the pause between two looks.
const ALONE_MAX: Duration = Duration::from_secs(5);
const ALONE_EVERY: Duration = Duration::from_millis(20);
/// Most parts that are listed.
const LISTED_MAX: usize = 8;

/// Which parts come and go, a line each.
fn members(reload: &Reload, config: &Path) -> String {
    let (ends, starts, config) = (reload.ends(), reload.starts(), config.display());
    let mut out = String::new();
    for name in ends.iter().take(LISTED_MAX) {
        let _ = writeln!(out, "{name} leaves: its part ends once its requests have");
    }
    for (kind, name) in starts.iter().take(LISTED_MAX) {
        let _ = writeln!(out, "{name} joins: start it by `sidelong {kind} {name} --config {config}`");
    }
    let more = ends.len().saturating_sub(LISTED_MAX) + starts.len().saturating_sub(LISTED_MAX);
    if more > 0 {
        let _ = writeln!(out, "and {} that leave or join", some(more, "more part"));
    }
    out
}

/// The cluster file, which may be a link to where it is kept.
///
/// # Errors
/// If there is none.
pub(crate) fn found(file: &Path) -> Result<PathBuf, Failure> {
    std::fs::canonicalize(file)
        .map_err(|error| Failure::new(format!("cannot find {}: {error}", file.display())))
}

/// Which parts keep old values of which keys until they restart, as the end of a sentence.
fn restarts(changes: &[Change]) -> String {
    let mut keys = BTreeMap::<&str, Vec<&str>>::new();
    for change in changes {
        let Takes::Restart(parts) = &change.takes else { continue };
        parts.iter().for_each(|part| keys.entry(part).or_default().push(&change.key));
    }
    let of = |(part, keys): (&&str, &Vec<&str>)| format!("{part} for {}", keys.join(", "));
    let all: Vec<_> = keys.iter().map(of).collect();
    match all.len() {
        0 => String::new(),
        1..=4 => format!("; still to be restarted: {}", all.join("; ")),
        parts => format!("; still to be restarted: {}", some(parts, "part")),
    }
}

/// Has the cluster file to itself, as long as this value lives: nobody else edits or adopts it by a command.
///
/// # Errors
/// If somebody does, and goes on with it.
pub(crate) fn alone(path: &Path) -> Result<File, Failure> {
    // The file itself is replaced.
    let directory =
        File::open(path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new(".")))?;
    let deadline = Instant::now() + ALONE_MAX;
    while flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= deadline {
            return Err(Failure::new(format!(
                "somebody else changes the cluster of {} at this moment: try again",
                path.display()
            )));
        }
        thread::sleep(ALONE_EVERY);
    }
    Ok(directory)
}

/// Has the parts adopt the file of one that was told to by SIGHUP.
pub(crate) fn hang_up(path: &Path) {
    let reloaded = cluster::load(path).and_then(|file| Reload::new(file)?.carry_out(WAIT, false));
    match reloaded {
        Ok(epoch) => tracing::info!(epoch, "SIGHUP: all parts that run go by {}", path.display()),
        Err(Failure(why)) => tracing::error!("SIGHUP: {why}"),
    }
}

/// What is left to do for proxies of other makes, a line each.
pub(crate) fn proxies(reload: &Reload, config: &Path) -> String {
    let lines = |(fronts, names): (Vec<&FrontEntry>, Vec<&str>), line: &dyn Fn(&str, &str) -> String| {
        let line = |front: &FrontEntry| {
            format!("{} of {}{}", front.proxy, front.name, line(&front.name, &names.join(" and ")))
        };
        fronts.into_iter().map(line).collect::<String>()
    };
    let config = config.display();
    let no_servers = lines(reload.proxies(), &|front, nodes| {
        format!(
            " has no server of {nodes} yet: give it the lines of `sidelong front config {front} --config {config}`, and reload it\n"
        )
    });
    let no_rules = lines(reload.proxies_of_sites(), &|front, sites| {
        format!(
            " sends no request to {sites} before it has rules for the hosts: `sidelong front config {front} --config {config}` prints \
             what else it needs\n"
        )
    });
    let no_nodes = lines(reload.haproxys_of_leaving(), &|_, nodes| {
        format!(
            ": if its own file has servers of {nodes}, take these lines out before its next reload, or they get requests by the \
             weights there\n"
        )
    });
    no_servers + &no_rules + &no_nodes
}

/// What changes, and what each change takes, as a table.
pub(crate) fn told(changes: &[Change]) -> String {
    let takes = |takes: &Takes| match takes {
        Takes::Nothing => "live".to_owned(),
        Takes::Restart(parts) if parts.len() > 4 => format!("restart of {}", some(parts.len(), "part")),
        Takes::Restart(parts) => format!("restart of {}", parts.join(", ")),
        Takes::Stop(why) => format!("stop of all parts: {why}"),
    };
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let row = |change: &Change| {
        vec![change.key.clone(), value(&change.old), value(&change.new), takes(&change.takes)]
    };
    let mut out = String::new();
    if changes.is_empty() {
        let _ = writeln!(out, "nothing differs");
    } else {
        table(&mut out, &["KEY", "OLD", "NEW", "TAKES"], changes.iter().map(row).collect(), 4);
    }
    out
}
