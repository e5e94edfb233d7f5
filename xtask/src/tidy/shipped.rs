//! The data that we ship is the data that was published: a trace that someone has touched proves nothing, and its notice
//! is the condition on which we may pass it on.

use std::process::Command;

use super::problem::{Found, Problem};
use crate::exec;
use crate::repo::Repo;

/// SHA-256 and path of each.
const SHIPPED: &[(&str, &str)] = &[
    (
        "9fac2b030f8465aaecc254f4e018094d7566d7b4706b04b02a89ab7ba2af3fcf",
        "traces/worldcup98/wc_day50_4.first10000.bin",
    ),
    (
        "3df1fb44ea74a7e6cc3cc3432070af150ef0f61855c5500fc2bc2fc4b7dc40e2",
        "traces/worldcup98/wc_day50_4.copyright.txt",
    ),
    (
        "7bb4881ee9d3520e52dcfc2a63600e16e0429a3c55962bd51682d13dd5b28174",
        "traces/worldcup98/requests_per_minute.csv",
    ),
];

/// Compares the files with their digests.
pub(super) fn look(repo: &Repo) -> Found {
    against(repo, SHIPPED)
}

fn against(repo: &Repo, shipped: &[(&str, &str)]) -> Found {
    let mut problems = Vec::new();
    for (digest, path) in shipped {
        if repo.file(path).is_none() {
            problems.push(Problem::new(path, 1, "it is missing: take it from git again"));
            continue;
        }
        let said = exec::output(Command::new("sha256sum").current_dir(&repo.root).args(["--", path]))?;
        let found = said.split_whitespace().next().unwrap_or_default();
        if found != *digest {
            let what = format!("its SHA-256 is {found}, published was {digest}: take it from git again");
            problems.push(Problem::new(path, 1, what));
        }
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::super::problem::printed;
    use super::*;

    #[test]
    fn a_touched_or_missing_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "abc").unwrap();
        std::fs::write(dir.path().join("b"), "abd").unwrap();
        let repo = Repo { root: dir.path().into(), ..Repo::of(&[("a", "abc"), ("b", "abd")]) };
        // FIPS 180-2, appendix B.1.
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let said = printed(&against(&repo, &[(abc, "a"), (abc, "b"), (abc, "c")]).unwrap());
        assert_eq!(said.len(), 2);
        assert!(said[0].starts_with("b:1: its SHA-256 is a52d159f"), "{said:?}");
        assert!(said[1].starts_with("c:1: it is missing"), "{said:?}");
    }
}
