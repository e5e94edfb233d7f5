//! `sidelong history`: the moves that a cluster has made, and why.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sidelong_app::history::{BY_HAND, Histories, Record, text};
use sidelong_fabric::RunDirectory;
use time::OffsetDateTime;

use crate::cluster;
use crate::completion;
use crate::duration::duration;
use crate::failure::{Failure, say};
use crate::running::running;

#[derive(Args)]
#[command(after_help = HISTORY_FILES)]
pub(crate) struct HistoryArgs {
    /// Cluster file [default: that of the `sidelong up` that runs on this machine, or /etc/sidelong/cluster.toml].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Show only moves of this node.
    #[arg(long, value_name = "NODE", add = completion::nodes())]
    pub(crate) node: Option<String>,
    /// Show only moves from or to this site, and its repairs.
    #[arg(long, value_name = "SITE", add = completion::sites())]
    pub(crate) site: Option<String>,
    /// Show only moves that ended at this time in UTC, which may be shortened: 14:02, 14:02:07, 2026-11-22T14:02.
    #[arg(long, value_name = "TIME", value_parser = time_of_day)]
    pub(crate) at: Option<String>,
    /// Show only moves that ended within this time (30s, 1h).
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) since: Option<Duration>,
    /// Print a JSON array, with the figures of both sites from which each move was decided.
    #[arg(long)]
    pub(crate) json: bool,
}

const HISTORY_FILES: &str = "\
Each edge keeps the history of its own moves in NAME.history.jsonl in the cluster's run directory, of at most
limits.history_bytes_max bytes. Attempts that lost to another edge are left out. On several machines, each
lists the moves of its own edges.

Examples:
  sidelong history --since 1h
  sidelong history --node n3 --json";

/// Whether a time begins with the one asked for, given with or without a date.
fn is_at(at: &str, asked: &str) -> bool {
    let asked = asked.replace(' ', "T");
    at.starts_with(&asked) || at.split_once('T').is_some_and(|(_, time)| time.starts_with(&asked))
}

/// Parses a time given to `--at`.
pub(crate) fn time_of_day(text: &str) -> Result<String, String> {
    let usable = |c: char| c.is_ascii_digit() || matches!(c, '-' | ':' | 'T' | ' ' | '.');
    match text.chars().all(usable) && text.contains([':', '-']) {
        true => Ok(text.to_owned()),
        false => Err("expected a time in UTC or its beginning: 14:02, 14:02:07, 2026-11-22T14:02".to_owned()),
    }
}

pub(crate) fn run(args: &HistoryArgs) -> Result<(), Failure> {
    let config = match &args.config {
        Some(config) => config.clone(),
        None => running()?,
    };
    let cluster = cluster::any(&config, None)?;
    let unknown = |what: &str, name: &str, known: Vec<&str>| {
        let known = known.join(", ");
        Failure::new(format!("{}: no {what} {name:?}; it has {known}", config.display()))
    };
    let nodes = || cluster.nodes.values().map(|node| node.name.as_str());
    let sites = || cluster.sites.values().map(|site| site.name.as_str());
    let fronts = cluster.fronts.values().map(|front| front.name.as_str());
    let all = Histories::read(&RunDirectory::at(&cluster.run_dir), fronts.chain(nodes()).chain([BY_HAND]))?;
    // Who has left is in the history alone.
    let of_node = |node: &str| all.records.iter().any(|record| record.node.as_deref() == Some(node));
    let of_site = |site: &str| {
        all.records.iter().any(|record| record.from.as_deref() == Some(site) || record.to == site)
    };
    if let Some(node) = args.node.as_ref().filter(|name| !nodes().any(|node| node == *name) && !of_node(name))
    {
        return Err(unknown("node", node, nodes().collect()));
    }
    if let Some(site) = args.site.as_ref().filter(|name| !sites().any(|site| site == *name) && !of_site(name))
    {
        return Err(unknown("site", site, sites().collect()));
    }
    if all.unread > 0 {
        tracing::warn!(lines = all.unread, "some lines of the history cannot be read; they are left out");
    }
    let since = args.since.map(|since| text(OffsetDateTime::now_utc() - since));
    let is_asked_for = |record: &&Record| {
        let of = |site: &String| record.from.as_ref() == Some(site) || record.to == *site;
        args.node.as_ref().is_none_or(|node| record.node.as_ref() == Some(node))
            && args.site.as_ref().is_none_or(of)
            && args.at.as_ref().is_none_or(|at| is_at(&record.at, at))
            && since.as_ref().is_none_or(|since| record.at >= *since)
    };
    let asked_for = all.records.iter().filter(is_asked_for);
    if args.json {
        return say(serde_json::to_string_pretty(&asked_for.collect::<Vec<_>>())? + "\n");
    }
    let lines: String = asked_for.map(Record::plain).collect();
    say(if lines.is_empty() { "no moves\n".to_owned() } else { lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_asked_for_by_its_beginning() {
        let at = "2026-11-22T14:02:03.120Z";
        for asked in ["14:02", "14:02:03", "2026-11-22", "2026-11-22T14", "2026-11-22 14:02"] {
            assert!(is_at(at, asked), "{asked}");
        }
        assert!(!is_at(at, "14:03") && !is_at(at, "02:03") && !is_at(at, "2026-11-23"));
        assert!(time_of_day("14:02").is_ok() && time_of_day("noon").is_err() && time_of_day("").is_err());
    }
}
