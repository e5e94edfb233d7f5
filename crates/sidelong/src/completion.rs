//! What a shell completes beside commands and options: names of the cluster file.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use sidelong_config::ClusterFile;

use crate::running::running;

/// Names of nodes.
pub(crate) fn nodes() -> ArgValueCompleter {
    completer(|cluster| cluster.nodes)
}

/// Names of sites.
pub(crate) fn sites() -> ArgValueCompleter {
    completer(|cluster| cluster.sites)
}

/// Names of what the command on the line is about: those of nodes for `sidelong node`, and all for `sidelong leave`.
pub(crate) fn parts() -> ArgValueCompleter {
    completer(|Names { nodes, edges, fronts, caches, sites }| {
        let kinds = [("node", &nodes), ("edge", &edges), ("front", &fronts), ("cache", &caches)];
        let is_named = |kind: &str| std::env::args_os().any(|word| word == kind);
        match kinds.iter().find(|(kind, _)| is_named(kind)) {
            Some((_, names)) => (*names).clone(),
            None => [nodes, edges, fronts, caches, sites].concat(),
        }
    })
}

#[derive(Default)]
struct Names {
    nodes: Vec<String>,
    edges: Vec<String>,
    fronts: Vec<String>,
    caches: Vec<String>,
    sites: Vec<String>,
}

fn completer(of: fn(Names) -> Vec<String>) -> ArgValueCompleter {
    ArgValueCompleter::new(move |current: &OsStr| {
        let begins = |name: &String| current.to_str().is_some_and(|current| name.starts_with(current));
        let names = file(std::env::args_os()).and_then(|file| names(&file)).unwrap_or_default();
        of(names).into_iter().filter(begins).map(CompletionCandidate::new).collect()
    })
}

/// The cluster file that the line names, or that its command would take.
fn file(words: impl IntoIterator<Item = OsString>) -> Option<PathBuf> {
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if word == "--config" {
            return words.next().map(PathBuf::from);
        }
        if let Some(file) = word.to_str().and_then(|word| word.strip_prefix("--config=")) {
            return Some(file.into());
        }
    }
    running().ok()
}

/// `None` where the file cannot be used: nobody is there to be told why.
fn names(file: &Path) -> Option<Names> {
    let cluster = ClusterFile::load(file).ok()?.cluster().ok()?;
    let edges = cluster.edges.iter().map(|edge| edge.name.clone());
    let fronts = cluster.fronts.values().filter(|front| front.controls.is_some());
    Some(Names {
        nodes: cluster.nodes.values().map(|node| node.name.clone()).collect(),
        edges: edges.collect(),
        fronts: fronts.map(|front| front.name.clone()).collect(),
        caches: cluster.caches.values().map(|cache| cache.name.clone()).collect(),
        sites: cluster.sites.values().map(|site| site.name.clone()).collect(),
    })
}
