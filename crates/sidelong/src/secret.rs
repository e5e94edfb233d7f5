//! `sidelong secret`: the secret of a cluster on several machines, and how it is changed.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use sidelong_app::rotation::{Has, Known, Rotation};

use crate::cluster::{self, INSTALLED};
use crate::failure::{Failure, say};
use crate::table::table;

#[derive(Args)]
#[command(after_help = END)]
pub(crate) struct SecretArgs {
    #[command(subcommand)]
    command: SecretCommand,
}

const END: &str = "\
The secret is a file on each machine (secret_file), which you carry there. While it is changed, the file has two: the old one and the new one, a
line each. Parts take a changed file within seconds, without a restart.

Exit codes: 0 once the step is done; 2 if not, with the reason.

Examples:
  sidelong secret rotate --config /etc/sidelong/cluster.toml     first: a new secret beside the old one, in this machine's file
  sidelong secret rotate --config /etc/sidelong/cluster.toml     again, once all machines have that file: the old one goes
  sidelong secret show --config /etc/sidelong/cluster.toml       which parts have which";

#[derive(Subcommand)]
enum SecretCommand {
    /// Say which parts have which secret, by their names. The secrets themselves are not shown.
    Show(OfArgs),
    /// Do the next step: write a new secret beside the old one, or take the old one away once all parts have the new one.
    Rotate(OfArgs),
}

#[derive(Args)]
struct OfArgs {
    /// Cluster file.
    #[arg(long, value_name = "FILE", default_value = INSTALLED)]
    config: PathBuf,
}

/// Carries out a command.
pub(crate) fn run(args: &SecretArgs) -> Result<(), Failure> {
    let of = |args: &OfArgs| Rotation::new(cluster::any(&args.config, None)?);
    match &args.command {
        SecretCommand::Show(args) => show(&of(args)?),
        SecretCommand::Rotate(args) => rotate(&of(args)?),
    }
}

fn show(rotation: &Rotation) -> Result<(), Failure> {
    let (old, new) = rotation.ids();
    let known = rotation.ask()?;
    let path = rotation.path().display();
    let mut out = match new {
        None => format!("{path}: {old}\n"),
        Some(new) => format!("{path}: {old}, and the new one {new}\n"),
    };
    let said = |part: &Known| match (&part.has, part.is_lost) {
        (Has::Unknown(_), true) => "was given up as lost: copy the file before you start it".to_owned(),
        (has, _) => has.to_string(),
    };
    table(
        &mut out,
        &["part", "secret"],
        known.iter().map(|part| vec![part.name.clone(), said(part)]).collect(),
        2,
    );
    let wanted = new.unwrap_or(old);
    let counted = || known.iter().filter(|part| !part.is_lost);
    let have = counted().filter(|part| part.knows(wanted)).count();
    out += &format!("{have} of {} parts have {wanted}", counted().count());
    let outdated = known.iter().filter(|part| part.has_another_than(wanted)).count();
    out += &match (new, outdated) {
        (_, 0) => "\n".to_owned(),
        (None, _) => {
            format!("; another one counts at {outdated}: copy {path} to their machines\n")
        }
        (Some(_), _) => "; once all have, `sidelong secret rotate` takes the old one away\n".to_owned(),
    };
    say(out)
}

fn rotate(rotation: &Rotation) -> Result<(), Failure> {
    let (old, new) = rotation.ids();
    let path = rotation.path().display();
    let known = rotation.ask()?;
    let Some(new) = new else {
        let new = rotation.begin(&known)?;
        return say(format!(
            "{path} has the new secret {new} beside the old one, {old}\n\
             now copy it to all machines; `sidelong secret rotate` on this one, once more, then takes the old one away\n"
        ));
    };
    let counted: Vec<_> = known.iter().filter(|part| !part.is_lost).collect();
    let lack: Vec<_> = counted.iter().filter(|part| !part.knows(new)).collect();
    if !lack.is_empty() {
        let have = counted.len() - lack.len();
        let is_silent = lack.iter().any(|part| matches!(part.has, Has::Unknown(_)));
        let lost = if is_silent {
            ". If nothing is left of one that does not answer, say `sidelong remove PART --lost`"
        } else {
            ""
        };
        let lack: Vec<_> = lack.into_iter().map(|part| format!("{} {}", part.name, part.has)).collect();
        return Err(Failure::new(format!(
            "{have} of {} parts have the new secret {new}: copy {path} to the machines of the others. {}{lost}",
            counted.len(),
            lack.join("; ")
        )));
    }
    rotation.end()?;
    say(format!(
        "all {} parts have {new}, and {path} has the old one no more\n\
         now copy it to all machines; `sidelong secret show` says where the old one, {old}, still counts\n",
        counted.len()
    ))
}
