//! `sidelong cluster`: the file of a cluster on several machines, which etcd has.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::{Args, Subcommand};
use sidelong_app::reload::Reload;
use sidelong_app::roster::{Place, Version};
use sidelong_config::{Cluster, ClusterFile, diff, edit};
use sidelong_fabric::RunDirectory;

use crate::cluster::{self, INSTALLED};
use crate::duration::duration;
use crate::failure::{Failure, say};
use crate::reload::{carry_out, told};
use crate::table::table;

#[derive(Args)]
#[command(after_help = END)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    command: FileCommand,
}

const END: &str = "\
A cluster on several machines has its file in etcd, if the file has [etcd]. The file on a machine may then be short: [cluster] with name and
secret_file, and [etcd]. Parts read the rest from etcd when they start, and keep it: they go on, and start, while etcd is away.

Exit codes: 0 once all parts that answer go by the file; 2 if not, with the reason, and with the file as it was.

Examples:
  sidelong cluster init cluster.toml --etcd https://e1.example:2379,https://e2.example:2379
  sidelong cluster edit --config /etc/sidelong/cluster.toml
  sidelong cluster apply cluster.toml --dry-run
  sidelong cluster rollback --config /etc/sidelong/cluster.toml";

#[derive(Subcommand)]
enum FileCommand {
    /// Put the first file of a cluster into etcd, and print what the file on each machine may be.
    Init {
        /// Cluster file, whole.
        file: PathBuf,
        /// Addresses of etcd's servers, if the file has no [etcd]: https://HOST:PORT.
        #[arg(long, value_name = "URL", value_delimiter = ',')]
        etcd: Vec<String>,
    },
    /// Print the file, as it was written.
    Show {
        /// As it was from this epoch on, not as it is now.
        epoch: Option<u64>,
        /// List the files of the past instead: since when, and by whom.
        #[arg(long, conflicts_with = "epoch")]
        history: bool,
        #[command(flatten)]
        of: OfArgs,
    },
    /// Change the file in an editor ($VISUAL, $EDITOR, or vi), and have the parts go by it.
    Edit {
        #[command(flatten)]
        of: OfArgs,
        #[command(flatten)]
        how: HowArgs,
    },
    /// Compare the file with another one: what differs, and what each difference takes.
    Diff {
        /// The changed file.
        file: PathBuf,
    },
    /// Have the parts go by another file.
    Apply {
        /// The changed file, whole.
        file: PathBuf,
        /// Change nothing unless the file is still that of this epoch, of which this one was made.
        #[arg(long, value_name = "EPOCH")]
        base: Option<u64>,
        /// Say what would change, and change nothing.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        how: HowArgs,
    },
    /// Have the parts go by a file of the past.
    Rollback {
        /// Epoch of the file, as `show --history` lists it [default: the one before].
        epoch: Option<u64>,
        #[command(flatten)]
        of: OfArgs,
        #[command(flatten)]
        how: HowArgs,
    },
    /// Put back what etcd has lost: what the parts of this machine, or of others, go by.
    Restore {
        #[command(flatten)]
        of: OfArgs,
    },
}

#[derive(Args)]
struct OfArgs {
    /// A file of the cluster with [etcd]. It may be short.
    #[arg(long, value_name = "FILE", default_value = INSTALLED)]
    config: PathBuf,
}

#[derive(Args)]
struct HowArgs {
    /// Longest wait for the parts to take it over.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    timeout: Duration,
    /// Wait for the requests at nodes that leave as long as they take, not `reconfig.drain_ms_max` at most.
    #[arg(long)]
    wait: bool,
}

/// Carries out a command.
pub(crate) fn run(args: &ClusterArgs, is_quiet: bool) -> Result<(), Failure> {
    let change = |place: Place,
                  (text, base): (String, Option<&str>),
                  name: &str,
                  is_dry: bool,
                  how: &HowArgs,
                  config: &Path| {
        let reload = Reload::of_text(place, text, name, base)?;
        let said = carry_out(reload, (name, config), is_dry, (how.timeout, how.wait))?;
        if is_quiet { Ok(()) } else { say(said) }
    };
    match &args.command {
        FileCommand::Init { file, etcd } => {
            let said = init(file, etcd)?;
            if is_quiet { Ok(()) } else { say(said) }
        }
        FileCommand::Show { epoch: None, history: false, of } => say(place(of)?.text()?),
        FileCommand::Show { epoch: Some(epoch), of, .. } => say(past(&place(of)?, Some(*epoch))?.text),
        FileCommand::Show { of, .. } => say(listed(&place(of)?.history()?)),
        FileCommand::Edit { of, how } => {
            let place = place(of)?;
            let base = place.text()?;
            let path = edited(&place, &base)?;
            let text = std::fs::read_to_string(&path)?;
            let changed = change(place, (text, Some(&base)), "the edited file", false, how, &of.config);
            match changed {
                Ok(()) => Ok(std::fs::remove_file(path)?),
                Err(Failure(why)) => Err(Failure::new(format!("{why}; it is kept as {}", path.display()))),
            }
        }
        FileCommand::Diff { file } => {
            let (text, cluster) = written(file)?;
            let place = place_of(&cluster, file)?;
            let now = ClusterFile::parse(&place.text()?, "the file in etcd")?;
            let then = ClusterFile::parse(&text, &file.display().to_string())?;
            say(told(&diff(&now, &then)?))
        }
        FileCommand::Apply { file, base, dry_run, how } => {
            let (text, cluster) = written(file)?;
            let place = place_of(&cluster, file)?;
            let base = base.map(|epoch| past(&place, Some(epoch))).transpose()?;
            let from = (text, base.as_ref().map(|base| &*base.text));
            change(place, from, &file.display().to_string(), *dry_run, how, file)
        }
        FileCommand::Rollback { epoch, of, how } => {
            let place = place(of)?;
            let Version { epoch, text, .. } = past(&place, *epoch)?;
            change(place, (text, None), &format!("the file of epoch {epoch}"), false, how, &of.config)
        }
        FileCommand::Restore { of } => {
            let epoch = place(of)?.restore()?;
            let said = format!("etcd has again what the parts go by (epoch {epoch})\n");
            if is_quiet { Ok(()) } else { say(said) }
        }
    }
}

fn place(of: &OfArgs) -> Result<Place, Failure> {
    place_of(&cluster::short(&of.config)?, &of.config)
}

/// Where the cluster of a file keeps it.
fn place_of(cluster: &Cluster, file: &Path) -> Result<Place, Failure> {
    let place = Place::new(cluster)?;
    match place.is_far() {
        true => Ok(place),
        false => Err(Failure::new(format!(
            "{} has no [etcd], so that nobody knows which etcd has its cluster: begin with what `sidelong cluster show` prints",
            file.display()
        ))),
    }
}

/// A whole file, as it is written and what it means.
fn written(file: &Path) -> Result<(String, Cluster), Failure> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::new(format!("cannot read {}: {error}", file.display())))?;
    Ok((text, cluster::short(file)?))
}

fn init(file: &Path, etcd: &[String]) -> Result<String, Failure> {
    let (mut text, mut cluster) = written(file)?;
    let name = file.display().to_string();
    if !etcd.is_empty() {
        if cluster.etcd.is_some() {
            return Err(Failure::new(format!("{name} has [etcd] already: leave --etcd out")));
        }
        text = edit::add_etcd(&text, etcd).map_err(|why| Failure::new(format!("{name}: {why}")))?;
        cluster = ClusterFile::parse(&text, &format!("{name} with --etcd"))?.cluster()?;
    }
    let place = Place::new(&cluster)?;
    if !place.is_far() {
        return Err(Failure::new(format!("{name} has no [etcd]: add it, or say --etcd https://HOST:PORT")));
    }
    place.found(&cluster, text.clone())?;
    let short = edit::short(&text).map_err(Failure::new)?;
    let cluster = &cluster.name;
    Ok(format!(
        "# etcd has the file of {cluster}. Start its parts with this file on each machine, such as\n# `sidelong node NAME --config FILE`:\n{short}"
    ))
}

/// A file of the past; by default the one before the present one.
fn past(place: &Place, epoch: Option<u64>) -> Result<Version, Failure> {
    let mut history = place.history()?;
    match epoch {
        Some(epoch) => {
            let found = history.into_iter().find(|version| version.epoch == epoch);
            found.ok_or_else(|| {
                Failure::new(format!(
                    "etcd has no file of epoch {epoch}: `sidelong cluster show --history` lists them"
                ))
            })
        }
        None => {
            let now = history.pop();
            let is_other = |version: &Version| now.as_ref().is_some_and(|now| now.text != version.text);
            history
                .into_iter()
                .rfind(is_other)
                .ok_or_else(|| Failure::new("the cluster has never had another file"))
        }
    }
}

fn listed(history: &[Version]) -> String {
    let row = |version: &Version| vec![version.epoch.to_string(), version.at.clone(), version.by.clone()];
    let mut out = String::new();
    table(&mut out, &["EPOCH", "SINCE", "BY"], history.iter().map(row).collect(), 3);
    out
}

/// Has a person edit a copy of the file, and returns where it is.
fn edited(place: &Place, text: &str) -> Result<PathBuf, Failure> {
    let set = ["VISUAL", "EDITOR"].into_iter().find_map(|name| std::env::var(name).ok());
    let editor = set.filter(|editor| !editor.trim().is_empty()).unwrap_or_else(|| "vi".to_owned());
    // It may have arguments.
    let mut words = editor.split_whitespace();
    let run = RunDirectory::open(place.run().path())?;
    let name = format!("edit-{}.toml", std::process::id());
    let path = run.path().join(&name);
    run.replace(&name, text.as_bytes()).map_err(|error| {
        Failure::new(format!("nothing is changed: cannot write {}: {error}", path.display()))
    })?;
    let status = Command::new(words.next().unwrap_or("vi")).args(words).arg(&path).status();
    let status = status
        .map_err(|error| Failure::new(format!("cannot start the editor {editor}: {error}: set $EDITOR")))?;
    match status.success() {
        true => Ok(path),
        false => {
            std::fs::remove_file(path)?;
            Err(Failure::new(format!("nothing is changed, because the editor {editor} ended with {status}")))
        }
    }
}
