//! Every member inherits the lints of the workspace.

use toml::Value;

use super::manifest;
use super::problem::{Found, Problem};
use crate::repo::Repo;

/// Each manifest says `[lints] workspace = true`.
pub(super) fn look(repo: &Repo) -> Found {
    let members = manifest::members(repo)?;
    let without = members
        .iter()
        .filter(|manifest| manifest.get(&["lints", "workspace"]).and_then(Value::as_bool) != Some(true));
    let problem = |manifest: &manifest::Manifest<'_>| {
        Problem::new(manifest.path, manifest.line_of("lints"), "add `[lints]` with `workspace = true`")
    };
    Ok(without.map(problem).collect())
}

#[cfg(test)]
mod tests {
    use super::super::problem::printed;
    use super::*;

    #[test]
    fn a_member_inherits_or_is_named() {
        let repo = Repo::of(&[
            ("crates/edge/Cargo.toml", "[lints]\nworkspace = true\n"),
            ("crates/lab/Cargo.toml", "[package]\nname = \"sidelong-lab\"\n"),
            ("crates/load/Cargo.toml", "[package]\n\n[lints]\nworkspace = false\n"),
        ]);
        let said = printed(&look(&repo).unwrap());
        assert_eq!(said.len(), 2);
        assert!(said[0].starts_with("crates/lab/Cargo.toml:1: add"), "{said:?}");
        assert!(said[1].starts_with("crates/load/Cargo.toml:3: add"), "{said:?}");
    }
}
