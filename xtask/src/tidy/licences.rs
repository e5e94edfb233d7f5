//! Licences and sources of what we depend on, by the lists of deny.toml. cargo-deny checks more (advisories, licence
//! texts), but takes minutes to build: whoever has it runs `cargo deny check` over the same file.

use std::process::Command;

use serde_json::Value as Json;
use toml::{Table, Value};

use super::{Found, Problem, parse_toml, spdx};
use crate::error::Error;
use crate::exec;
use crate::repo::Repo;

const LISTS: &str = "deny.toml";
const LOCK: &str = "Cargo.lock";

/// Sources of all that the lock file names, and licences of what is built on this machine's kind.
pub(super) fn look(repo: &Repo) -> Found {
    let (Some(lists), Some(lock)) = (repo.file(LISTS), repo.file(LOCK)) else {
        return Ok(vec![Problem::new(LISTS, 1, "it or Cargo.lock is missing: take it from git again")]);
    };
    let lists = parse_toml(LISTS, lists.text.as_deref().unwrap_or_default())?;
    let lock = lock.text.as_deref().unwrap_or_default();
    let mut problems = sources(&strings(&lists, "sources", "allow-registry"), lock)?;
    problems.extend(licences(&strings(&lists, "licenses", "allow"), lock, &metadata(repo)?)?);
    Ok(problems)
}

/// What cargo knows of the packages. Those of other platforms are left out: their manifests would have to be fetched.
fn metadata(repo: &Repo) -> Result<Json, Error> {
    let rustc = exec::output(Command::new("rustc").arg("-vV"))?;
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).ok_or_else(|| Error::Parse {
        what: "`rustc -vV`".into(),
        why: "no line begins with `host: `".into(),
    })?;
    let asked = ["metadata", "--format-version", "1", "--locked", "--filter-platform", host];
    let said = exec::output(exec::cargo().current_dir(&repo.root).args(asked))?;
    serde_json::from_str(&said)
        .map_err(|error| Error::Parse { what: "`cargo metadata`".into(), why: error.to_string() })
}

fn sources(registries: &[&str], lock: &str) -> Found {
    let table = parse_toml(LOCK, lock)?;
    let packages = table.get("package").and_then(Value::as_array).into_iter().flatten();
    let mut problems = Vec::new();
    for package in packages {
        let name = package.get("name").and_then(Value::as_str).unwrap_or_default();
        // Our own have none.
        let Some(source) = package.get("source").and_then(Value::as_str) else { continue };
        if !source.strip_prefix("registry+").is_some_and(|registry| registries.contains(&registry)) {
            let what =
                format!("{name} comes from {source}, which {LISTS} does not allow: take it from crates.io");
            problems.push(Problem::new(LOCK, line_of(lock, name), what));
        }
    }
    Ok(problems)
}

fn licences(allowed: &[&str], lock: &str, metadata: &Json) -> Found {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut problems = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let licence = package["license"].as_str();
        let wrong = match licence.map(|licence| spdx::is_met(licence, allowed)) {
            Some(Ok(true)) => continue,
            Some(Ok(false)) => format!("has the licence {}", licence.unwrap_or_default()),
            Some(Err(why)) => format!("has a licence that cannot be read, {why}"),
            None => "names no licence".into(),
        };
        let version = package["version"].as_str().unwrap_or_default();
        let what = format!("{name} {version} {wrong}: do without it, or allow that in {LISTS} and say why");
        problems.push(Problem::new(LOCK, line_of(lock, name), what));
    }
    Ok(problems)
}

fn strings<'a>(table: &'a Table, section: &str, key: &str) -> Vec<&'a str> {
    let list = table.get(section).and_then(|section| section.get(key)).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

fn line_of(lock: &str, package: &str) -> usize {
    let wanted = format!("name = {package:?}");
    lock.lines().position(|line| line == wanted).map_or(1, |i| i + 1)
}

#[cfg(test)]
mod tests {
    use super::super::printed;
    use super::*;
    use serde_json::json;

    const LOCKED: &str = "\
version = 4

[[package]]
name = \"ours\"

[[package]]
name = \"theirs\"
source = \"registry+https://one.example/index\"
";

    #[test]
    fn a_source_that_is_not_listed_is_named() {
        assert!(sources(&["https://one.example/index"], LOCKED).unwrap().is_empty());
        let said = printed(&sources(&[], LOCKED).unwrap());
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("Cargo.lock:7: theirs comes from registry+https://one"), "{said:?}");
    }

    #[test]
    fn a_licence_that_is_not_listed_is_named() {
        let metadata = json!({ "packages": [
            { "name": "ours", "version": "1.0.0", "license": "MIT OR Apache-2.0" },
            { "name": "theirs", "version": "2.0.0", "license": "GPL-3.0" },
            { "name": "mute", "version": "3.0.0", "license": null },
        ]});
        let said = printed(&licences(&["MIT"], LOCKED, &metadata).unwrap());
        assert_eq!(said.len(), 2);
        assert!(said[0].starts_with("Cargo.lock:7: theirs 2.0.0 has the licence GPL-3.0"), "{said:?}");
        assert!(said[1].contains("mute 3.0.0 names no licence"), "{said:?}");
    }

    #[test]
    fn the_lists_are_read() {
        let lists = parse_toml(LISTS, "[licenses]\nallow = [\"MIT\", \"ISC\"]\n").unwrap();
        assert_eq!(strings(&lists, "licenses", "allow"), ["MIT", "ISC"]);
        assert!(strings(&lists, "sources", "allow-registry").is_empty());
    }
}
