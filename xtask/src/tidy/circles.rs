//! Which file names which, inside a crate: where they do so in a circle, none can be read without the others.

use std::collections::BTreeMap;

use super::arrows::ring;
use super::{Found, Problem};
use crate::repo::Repo;

/// The crates whose files are looked at: the one that decides and the one that composes.
const CRATES: &[&str] = &["crates/policy/src/", "crates/edge/src/"];

/// A circle of each crate, if it has one.
pub(super) fn look(repo: &Repo) -> Found {
    Ok(CRATES.iter().filter_map(|within| circle(repo, within)).collect())
}

fn circle(repo: &Repo, within: &str) -> Option<Problem> {
    let files: BTreeMap<String, (&str, &str)> = repo
        .texts_with("rs")
        .filter_map(|(path, text)| Some((module(path.strip_prefix(within)?)?, (path, text))))
        .collect();
    let named = |(module, (_, text)): (&String, &(&str, &str))| {
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let paths = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>();
        let named = names(module, &paths.join("\n")).into_iter();
        // Of a path the longest part that is a file.
        let file = |name: String| {
            let ends = name.rmatch_indices("::").map(|(end, _)| end);
            let mut parts = std::iter::once(name.len()).chain(ends).map(|end| &name[..end]);
            parts.find(|part| files.contains_key(*part)).map(str::to_owned)
        };
        (module.clone(), named.filter_map(file).filter(|name| name != module).collect())
    };
    let path = ring(files.iter().map(named).collect())?;
    let (at, _) = files.get(&path[path.len() - 2])?;
    let what =
        format!("files name each other in a circle, {}: move what both need below both", path.join(" → "));
    Some(Problem::new(at, 1, what))
}

/// The path of the module that a file holds, `crate` for the root; `None` for tests.
fn module(path: &str) -> Option<String> {
    let path = path.strip_suffix(".rs")?.trim_end_matches("/mod");
    let is_test = path.split('/').any(|part| part == "tests");
    (!is_test).then(|| match path {
        "lib" => "crate".to_owned(),
        path => format!("crate::{}", path.replace('/', "::")),
    })
}

/// Every path in `code` of `module` that begins with `crate`, `super`, or after `use` with any name, from the root on.
fn names(module: &str, code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (prefix, base) in
        [("crate::", "crate"), ("super::", parent(module)), ("\nuse ", module), ("pub use ", module)]
    {
        for (at, _) in code.match_indices(prefix) {
            let before = code[..at].chars().next_back();
            let is_inside = before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':');
            if is_inside {
                continue;
            }
            let (mut rest, mut base) = (&code[at + prefix.len()..], base);
            while let Some(further) = rest.strip_prefix("super::") {
                (rest, base) = (further, parent(base));
            }
            let items = match rest.strip_prefix('{') {
                Some(list) => list.split('}').next().unwrap_or_default(),
                None => rest
                    .split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':')
                    .next()
                    .unwrap_or_default(),
            };
            let item =
                |item: &str| format!("{base}::{}", item.trim().split("::{").next().unwrap_or_default());
            names.extend(items.split(',').map(item));
        }
    }
    names
}

fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or(module, |(parent, _)| parent)
}

#[cfg(test)]
mod tests {
    use super::super::printed;
    use super::*;

    fn said(files: &[(&str, &str)]) -> Vec<String> {
        printed(&look(&Repo::of(files)).unwrap())
    }

    #[test]
    fn a_circle_is_found_however_it_is_written() {
        for (a, b) in [
            ("use crate::b::B;", "use crate::a::A;"),
            ("use crate::{b::B, c};", "fn f() { crate::a::g() }"),
            ("use super::b;", "use super::{a::A, c::C};"),
        ] {
            let files = [("crates/edge/src/a.rs", a), ("crates/edge/src/b.rs", b)];
            let said = said(&files);
            assert_eq!(said.len(), 1, "{a} {b}");
            assert!(said[0].contains("crate::a → crate::b → crate::a"), "{said:?}");
        }
    }

    #[test]
    fn a_file_and_what_lies_below_it_are_two() {
        let below = ("crates/policy/src/a/b.rs", "use super::A;");
        assert_eq!(said(&[("crates/policy/src/a.rs", "mod b;\nuse b::B;"), below]).len(), 1);
        assert_eq!(said(&[("crates/policy/src/a.rs", "mod b;\n"), below]).len(), 0);
    }

    #[test]
    fn tests_and_prose_may_name_what_they_like() {
        let files = [
            ("crates/edge/src/a.rs", "use crate::b::B;"),
            (
                "crates/edge/src/b.rs",
                "//! Beside crate::a.\n#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}",
            ),
            ("crates/edge/src/b/tests.rs", "use crate::a::A;"),
        ];
        assert!(said(&files).is_empty());
    }
}
