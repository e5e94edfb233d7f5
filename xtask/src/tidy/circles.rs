//! Which file names which, inside a crate: where many do so in a circle, none can be read without the others.
//!
//! A file that passes a name on, by `pub use`, does not depend on it. Whoever takes the name from there depends on the file that
//! has it.

use std::collections::{BTreeMap, BTreeSet};

use super::problem::{Found, Problem};
use crate::repo::Repo;

/// Most files in a circle.
const FILES_MAX: usize = 5;

/// How often a name is passed on at most.
const PASSES_MAX: usize = 8;

/// The largest circle of each crate, if it is too large.
pub(super) fn look(repo: &Repo) -> Found {
    let mut crates: BTreeMap<&str, BTreeMap<String, &str>> = BTreeMap::new();
    for (path, text) in repo.texts_with("rs") {
        let Some((at, _)) = path.match_indices("/src/").next() else { continue };
        let (within, file) = path.split_at(at + "/src/".len());
        crates.entry(within).or_default().extend(module(file).map(|module| (module, text)));
    }
    Ok(crates.iter().filter_map(|(within, files)| too_large(within, files)).collect())
}

fn too_large(within: &str, files: &BTreeMap<String, &str>) -> Option<Problem> {
    let named = named(files);
    let circle = largest_circle(&named);
    let what = format!(
        "{} files name each other in a circle, of at most {FILES_MAX}: move what several need below them: {}",
        circle.len(),
        circle.iter().copied().collect::<Vec<_>>().join(" "),
    );
    (circle.len() > FILES_MAX).then(|| Problem::new(within.trim_end_matches('/'), 1, what))
}

/// The path of the module that a file holds, `crate` for the root; `None` for tests.
fn module(path: &str) -> Option<String> {
    let path = path.strip_suffix(".rs")?.trim_end_matches("/mod");
    let is_test = path.split('/').any(|part| part == "tests");
    (!is_test).then(|| match path {
        "lib" | "main" => "crate".to_owned(),
        path => format!("crate::{}", path.replace('/', "::")),
    })
}

/// Which files each file names.
fn named(files: &BTreeMap<String, &str>) -> BTreeMap<String, BTreeSet<String>> {
    let said: BTreeMap<&str, Said> =
        files.iter().map(|(module, text)| (&**module, Said::of(module, text, files))).collect();
    let named = |(module, said_here): (&&str, &Said)| {
        let mut named: BTreeSet<_> =
            said_here.names.iter().filter_map(|name| holder(name.clone(), &said)).collect();
        named.remove(*module);
        ((*module).to_owned(), named)
    };
    said.iter().map(named).collect()
}

/// The file that has what `path` names.
fn holder(mut path: String, said: &BTreeMap<&str, Said>) -> Option<String> {
    for _ in 0..PASSES_MAX {
        // Of a path the longest part that is a file.
        let ends = path.rmatch_indices("::").map(|(end, _)| end);
        let end = std::iter::once(path.len()).chain(ends).find(|end| said.contains_key(&path[..*end]))?;
        let (file, rest) = path.split_at(end);
        let mut parts = rest.trim_start_matches("::").splitn(2, "::");
        let passed = parts.next().and_then(|name| said[file].passed.get(name));
        let Some(passed) = passed else { return Some(file.to_owned()) };
        let passed = passed.as_ref()?;
        path = parts.next().map_or_else(|| passed.clone(), |rest| format!("{passed}::{rest}"));
    }
    None
}

/// What a file says of others.
struct Said {
    /// The paths that it names, from the root on.
    names: Vec<String>,
    /// The paths behind the names that it imports, which others may take from here; `None` for one of another crate.
    passed: BTreeMap<String, Option<String>>,
}

impl Said {
    fn of(module: &str, text: &str, files: &BTreeMap<String, &str>) -> Said {
        let begins_tests = |(at, mark): &(usize, &str)| {
            text[at + mark.len()..]
                .lines()
                .next()
                .is_some_and(|line| after_visibility(line, "mod ").is_some())
        };
        let tests = text.match_indices("#[cfg(test)]\n").find(begins_tests);
        let code = tests.map_or(text, |(at, _)| &text[..at]);
        let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let (mut imports, mut rest) = (Vec::new(), String::new());
        while let Some(line) = lines.next() {
            let Some((is_public, tree)) = after_visibility(line, "use ") else {
                if after_visibility(line, "mod ").is_some_and(|(_, module)| module.ends_with(';')) {
                    continue;
                }
                // Who may see something is no use of theirs.
                let (before, seen) = line.split_once("pub(in ").unwrap_or((line, ""));
                rest.extend([before, seen.split_once(')').map_or(seen, |(_, after)| after), "\n"]);
                continue;
            };
            let mut tree = tree.to_owned();
            while !tree.contains(';') {
                let Some(more) = lines.next() else { break };
                tree.push_str(more.trim());
            }
            leaves("", tree.trim_end_matches(';'), &mut |path, name| {
                imports.push((is_public, absolute(module, &path, files), name.to_owned()));
            });
        }
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let words: BTreeSet<&str> = rest.split(|c| !is_word(c)).collect();
        let paths = rest.split(|c| !is_word(c) && c != ':').map(|path| path.trim_matches(':'));
        let mut names: Vec<String> = paths
            .filter(|path| path.contains("::"))
            .filter_map(|path| absolute(module, path, files))
            .collect();
        let own = imports.iter().filter(|(is_public, _, name)| !is_public || words.contains(&**name));
        names.extend(own.filter_map(|(_, path, _)| path.clone()));
        Said { names, passed: imports.into_iter().map(|(_, path, name)| (name, path)).collect() }
    }
}

/// What follows `keyword` in a line that begins with it, and whether others see it.
fn after_visibility<'a>(line: &'a str, keyword: &str) -> Option<(bool, &'a str)> {
    let line = line.trim_start();
    let Some(public) = line.strip_prefix("pub") else { return Some((false, line.strip_prefix(keyword)?)) };
    let public = if public.starts_with('(') { public.split_once(')')?.1 } else { public };
    Some((true, public.trim_start().strip_prefix(keyword)?))
}

/// Each path of an import, and the name that it gets here.
fn leaves(before: &str, tree: &str, leaf: &mut impl FnMut(String, &str)) {
    let tree = tree.trim();
    let Some((head, list)) = tree.split_once('{') else {
        let (path, renamed) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name)));
        let path = format!("{before}{path}");
        let path = path.strip_suffix("::self").unwrap_or(&path);
        let last = path.rsplit("::").next().unwrap_or_default();
        return leaf(path.to_owned(), renamed.unwrap_or(last).trim());
    };
    let before = format!("{before}{head}");
    let list = list.rsplit_once('}').map_or(list, |(list, _)| list);
    let (mut depth, mut from) = (0, 0);
    for (at, c) in list.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                leaves(&before, &list[from..at], leaf);
                from = at + 1;
            }
            _ => {}
        }
    }
    if !list[from..].trim().is_empty() {
        leaves(&before, &list[from..], leaf);
    }
}

/// `path` from the root on, as `module` means it; `None` if it leads out of the crate, or to what `module` itself has.
fn absolute(module: &str, path: &str, files: &BTreeMap<String, &str>) -> Option<String> {
    let (mut base, mut rest) = (module, path);
    while let Some(further) = rest.strip_prefix("super") {
        base = base.rsplit_once("::").map_or(base, |(parent, _)| parent);
        rest = further.trim_start_matches("::");
    }
    let first = rest.split("::").next().unwrap_or_default();
    match first {
        "crate" => Some(rest.to_owned()),
        "self" => Some(format!("{base}{}", &rest["self".len()..])),
        "" => Some(base.to_owned()),
        _ if rest.len() < path.len() || files.contains_key(&format!("{module}::{first}")) => {
            Some(format!("{base}::{rest}"))
        }
        _ => None,
    }
}

/// The most files of which each leads to each other.
fn largest_circle(named: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<&str> {
    let led: BTreeMap<&str, BTreeSet<&str>> =
        named.keys().map(|file| (&**file, led_to(named, file))).collect();
    let circles = led.iter().map(|(file, all)| -> BTreeSet<&str> {
        all.iter().filter(|other| led[**other].contains(file)).copied().collect()
    });
    circles.max_by_key(BTreeSet::len).unwrap_or_default()
}

/// All files that those which `file` names lead to.
fn led_to<'a>(named: &'a BTreeMap<String, BTreeSet<String>>, file: &'a str) -> BTreeSet<&'a str> {
    let (mut led_to, mut left) = (BTreeSet::new(), vec![file]);
    while let Some(file) = left.pop() {
        left.extend(named[file].iter().map(String::as_str).filter(|next| led_to.insert(*next)));
    }
    led_to
}

#[cfg(test)]
mod tests {
    use super::super::problem::printed;
    use super::*;

    fn circle(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(path, text)| (module(path).unwrap(), *text)).collect();
        let named = named(&files);
        largest_circle(&named).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn a_circle_is_found_however_it_is_written() {
        for (a, b) in [
            ("use crate::b::B;", "use crate::a::A;"),
            ("use crate::{b::B, c};", "fn f() { crate::a::g() }"),
            ("use super::b;", "use super::{\n    a::{A, D},\n    c::C,\n};"),
            ("pub(super) use super::b::B;\nfn f(_: B) {}", "use super::a as other;"),
        ] {
            assert_eq!(
                circle(&[("a.rs", a), ("b.rs", b), ("c.rs", "")]),
                ["crate::a", "crate::b"],
                "{a} {b}"
            );
        }
    }

    #[test]
    fn a_file_and_what_lies_below_it_are_two() {
        let below = ("a/b.rs", "use super::A;");
        for a in ["mod b;\nuse b::B;", "mod b;\nfn f() { b::f() }"] {
            assert_eq!(circle(&[("a.rs", a), below]).len(), 2, "{a}");
        }
        assert_eq!(circle(&[("a.rs", "mod b;\n"), below]).len(), 0);
    }

    #[test]
    fn a_name_belongs_to_the_file_that_has_it() {
        let root = ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;\npub use self::b::B;\n");
        let (a, c) = (("a.rs", "use crate::B;"), ("c.rs", "use crate::{A, B};"));
        assert_eq!(circle(&[root, a, ("b.rs", ""), c]).len(), 0);
        assert_eq!(circle(&[root, a, ("b.rs", "use crate::A;"), c]), ["crate::a", "crate::b"]);
        let root = ("lib.rs", "use crate::a::A;\npub use other::Time;\nfn f(_: A) {}");
        assert!(circle(&[root, ("a.rs", "use crate::Time;")]).is_empty());
    }

    #[test]
    fn tests_and_prose_may_name_what_they_like() {
        let b = "//! Beside crate::a.\npub(in crate::a) fn f() {}\n#[cfg(test)]\npub(crate) mod tests {\n    use crate::a::A;\n}";
        assert!(circle(&[("a.rs", "use crate::b::B;"), ("b.rs", b)]).is_empty());
        assert_eq!(module("b/tests.rs"), None);
    }

    #[test]
    fn one_that_is_too_large_is_a_problem() {
        let said = |files: usize| {
            let texts: Vec<_> = (0..files)
                .map(|file| {
                    (format!("crates/x/src/f{file}.rs"), format!("use crate::f{};", (file + 1) % files))
                })
                .collect();
            let files: Vec<_> = texts.iter().map(|(path, text)| (&**path, &**text)).collect();
            printed(&look(&Repo::of(&files)).unwrap())
        };
        assert!(said(FILES_MAX).is_empty());
        assert!(said(FILES_MAX + 1)[0].contains("6 files"), "{:?}", said(FILES_MAX + 1));
    }
}
