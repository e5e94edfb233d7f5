//! Which crate may depend on which.

use std::collections::BTreeMap;

use super::manifest::{self, Manifest};
use super::problem::{Found, Problem};
use crate::repo::Repo;

/// Each member and the members that it may depend on. ARCHITECTURE.md shows the same picture and says why the arrows
/// run this way: change both, in one commit.
///
/// load and reconfig never import each other: edge composes them. state names operations and does none: its driver
/// brings the fabric. lab runs the program as a child process, so nothing depends on sidelong. Nothing that serves names what runs
/// clusters and experiments (harness, lab, sim), but sidelong does, for its commands.
const ALLOWED: &[(&str, &[&str])] = &[
    ("layout", &[]),
    ("os", &[]),
    ("tls", &["os"]),
    ("rest", &[]),
    ("kubernetes", &["os", "rest", "tls"]),
    ("etcd", &["rest", "tls"]),
    ("policy", &["layout"]),
    ("fabric", &["os", "layout"]),
    ("cache", &["fabric", "layout", "os", "policy", "tls"]),
    ("rams", &["fabric", "layout", "policy"]),
    ("state", &["layout"]),
    ("config", &["os", "layout", "policy", "state"]),
    ("load", &["os", "layout", "fabric", "state"]),
    ("reconfig", &["layout", "fabric", "state", "policy"]),
    ("proxy", &["os", "tls"]),
    ("edge", &["cache", "os", "layout", "fabric", "state", "policy", "load", "reconfig", "proxy", "tls"]),
    ("trace", &["os"]),
    ("figure", &[]),
    ("sim", &["os", "layout", "fabric", "state", "policy", "config", "rams", "reconfig", "trace", "figure"]),
    ("workload", &["layout", "os", "policy", "trace"]),
    (
        "app",
        &[
            "cache",
            "layout",
            "config",
            "policy",
            "fabric",
            "state",
            "load",
            "reconfig",
            "edge",
            "workload",
            "os",
            "tls",
            "etcd",
            "kubernetes",
        ],
    ),
    (
        "harness",
        &[
            "app", "config", "edge", "fabric", "figure", "layout", "load", "os", "reconfig", "state",
            "trace", "workload",
        ],
    ),
    ("testing", &["app", "config", "etcd", "harness", "kubernetes", "layout", "load"]),
    ("perf", &["app", "config", "fabric", "figure", "layout", "load", "os"]),
    ("lab", &["perf", "config", "fabric", "harness", "os", "trace", "workload", "figure"]),
    (
        "sidelong",
        &[
            "app",
            "cache",
            "layout",
            "config",
            "policy",
            "fabric",
            "state",
            "load",
            "reconfig",
            "edge",
            "trace",
            "workload",
            "rams",
            "tls",
            "sim",
            "harness",
            "lab",
            "os",
            "perf",
            "kubernetes",
        ],
    ),
    ("xtask", &[]),
];

/// Compares the manifests with the table, and looks for circles, which dev-dependencies could close.
pub(super) fn look(repo: &Repo) -> Found {
    let members = manifest::members(repo)?;
    let mut problems = Vec::new();
    for manifest in &members {
        against_table(manifest, &mut problems);
    }
    problems.extend(circle(&members));
    Ok(problems)
}

fn against_table(manifest: &Manifest<'_>, problems: &mut Vec<Problem>) {
    let member = manifest.member;
    let named = manifest.get(&["package", "name"]).and_then(toml::Value::as_str);
    if named != Some(&*package_of(member)) {
        let what = format!("the package of this directory is to be called {}", package_of(member));
        problems.push(Problem::new(manifest.path, manifest.line_of("package"), what));
    }
    let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == member) else {
        let what = format!(
            "{member} is a new crate: say what it may depend on in xtask/src/tidy/arrows.rs and ARCHITECTURE.md"
        );
        problems.push(Problem::new(manifest.path, 1, what));
        return;
    };
    for dependency in manifest.dependencies().iter().filter(|dependency| !dependency.dev) {
        let Some(on) = member_of(&dependency.package) else { continue };
        if !allowed.contains(&on) {
            let what = format!(
                "{member} must not depend on {on}: move what it needs to where both may reach it, or let a crate above \
                 them bring it"
            );
            problems.push(Problem::new(manifest.path, dependency.line, what));
        }
    }
}

/// A circle of dependencies, dev-dependencies included, reported at the manifest that closes it.
fn circle(members: &[Manifest<'_>]) -> Option<Problem> {
    let asks = |manifest: &Manifest<'_>| {
        let dependencies = manifest.dependencies();
        let on = dependencies.iter().filter_map(|dependency| member_of(&dependency.package));
        on.map(str::to_owned).filter(|on| on != manifest.member).collect::<Vec<_>>()
    };
    let path = ring(members.iter().map(|manifest| (manifest.member.to_owned(), asks(manifest))).collect())?;
    let at = members.iter().find(|manifest| manifest.member == path[path.len() - 2])?;
    let what = format!(
        "dependencies run in a circle, {}: move the test that needs the last one up",
        path.join(" → ")
    );
    Some(Problem::new(at.path, 1, what))
}

/// A circle among what names others, the first one at its end again.
pub(super) fn ring(mut left: BTreeMap<String, Vec<String>>) -> Option<Vec<String>> {
    // Takes away what depends on nothing that is left, until no more goes: what stays lies on a circle or above one.
    while let Some(free) = left.iter().find(|(_, on)| !on.iter().any(|on| left.contains_key(on))) {
        let free = free.0.clone();
        left.remove(&free);
    }
    let mut path = vec![left.first_key_value()?.0.clone()];
    loop {
        let next = left[path.last()?].iter().find(|on| left.contains_key(*on))?.clone();
        let start = path.iter().position(|on| *on == next);
        path.push(next);
        if let Some(start) = start {
            return Some(path.split_off(start));
        }
    }
}

fn package_of(member: &str) -> String {
    if matches!(member, "sidelong" | "xtask") { member.into() } else { format!("sidelong-{member}") }
}

/// The member that a package is, where it is ours.
fn member_of(package: &str) -> Option<&str> {
    if matches!(package, "sidelong" | "xtask") { Some(package) } else { package.strip_prefix("sidelong-") }
}

#[cfg(test)]
mod tests {
    use super::super::problem::printed;
    use super::*;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{rest}")
    }

    fn seen(manifests: &[(&str, String)]) -> Vec<String> {
        let files: Vec<_> = manifests.iter().map(|(path, text)| (*path, &**text)).collect();
        printed(&look(&Repo::of(&files)).unwrap())
    }

    #[test]
    fn an_arrow_of_the_table_is_allowed() {
        let load = "[dependencies]\nsidelong-fabric.workspace = true\nserde = \"1\"\n";
        assert!(seen(&[("crates/load/Cargo.toml", manifest("sidelong-load", load))]).is_empty());
    }

    #[test]
    fn any_other_is_not() {
        let load = "[dependencies]\nsidelong-fabric.workspace = true\nsidelong-reconfig.workspace = true\n";
        let said = seen(&[("crates/load/Cargo.toml", manifest("sidelong-load", load))]);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].starts_with("crates/load/Cargo.toml:5: load must not depend on reconfig"),
            "{said:?}"
        );
    }

    #[test]
    fn tests_may_reach_further_but_not_in_a_circle() {
        let fabric = "[dev-dependencies]\nsidelong-state.workspace = true\n";
        let fabric = ("crates/fabric/Cargo.toml", manifest("sidelong-fabric", fabric));
        let state = "[dev-dependencies]\nsidelong-fabric.workspace = true\n";
        let state = ("crates/state/Cargo.toml", manifest("sidelong-state", state));
        let load = "[dependencies]\nsidelong-state.workspace = true\n";
        let load = ("crates/load/Cargo.toml", manifest("sidelong-load", load));
        assert!(seen(&[fabric.clone(), load.clone()]).is_empty());
        let said = seen(&[fabric, state, load]);
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("fabric → state → fabric"), "{said:?}");
    }

    #[test]
    fn a_crate_must_be_known_and_well_named() {
        let said = seen(&[("crates/attic/Cargo.toml", manifest("attic", ""))]);
        assert_eq!(said.len(), 2);
        assert!(said[0].contains("called sidelong-attic") && said[1].contains("new crate"), "{said:?}");
    }

    #[test]
    fn what_serves_knows_nothing_of_experiments_and_of_what_runs_them() {
        let research = ["harness", "sim", "testing", "lab"];
        for (member, allowed) in ALLOWED.iter().filter(|(member, _)| !research.contains(member)) {
            let named = allowed.iter().any(|on| research.contains(on));
            assert!(!named || *member == "sidelong", "{member} names {allowed:?}");
        }
    }

    #[test]
    fn the_table_names_only_what_stands_above() {
        for (i, (member, allowed)) in ALLOWED.iter().enumerate() {
            let above = &ALLOWED[..i];
            let known = |on: &&str| above.iter().any(|(name, _)| name == on);
            assert!(allowed.iter().all(known), "{member} comes before what it may depend on");
        }
    }
}
