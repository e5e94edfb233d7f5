//! The manifests of the workspace's members, and where in their text a thing stands.

use toml::{Table, Value};

use crate::error::Error;
use crate::repo::Repo;

/// A member's Cargo.toml.
pub(super) struct Manifest<'a> {
    /// From the root.
    pub(super) path: &'a str,
    /// The directory's name: `layout` of `crates/layout`.
    pub(super) member: &'a str,
    text: &'a str,
    table: Table,
}

/// What a manifest asks of another package.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Dependency {
    /// The package's own name.
    pub(super) package: String,
    /// Only tests, examples and benches have it.
    pub(super) dev: bool,
    /// Where it stands.
    pub(super) line: usize,
}

/// The manifests of crates/* and xtask, in the order of their paths. A directory beside them that is a workspace of its own
/// is no member.
pub(super) fn members(repo: &Repo) -> Result<Vec<Manifest<'_>>, Error> {
    let found = repo.texts().filter_map(|(path, text)| {
        let dir = path.strip_suffix("/Cargo.toml")?;
        let member = dir.strip_prefix("crates/").unwrap_or(dir);
        (!member.contains('/')).then(|| Manifest::parse(path, member, text))
    });
    let is_member = |found: &Result<Manifest<'_>, _>| {
        !found.as_ref().is_ok_and(|found| found.table.contains_key("workspace"))
    };
    found.filter(is_member).collect()
}

impl<'a> Manifest<'a> {
    fn parse(path: &'a str, member: &'a str, text: &'a str) -> Result<Manifest<'a>, Error> {
        Ok(Manifest { path, member, text, table: parse_toml(path, text)? })
    }

    /// The value at `keys`.
    pub(super) fn get(&self, keys: &[&str]) -> Option<&Value> {
        let (last, tables) = keys.split_last()?;
        tables.iter().try_fold(&self.table, |table, key| table.get(*key)?.as_table())?.get(*last)
    }

    /// The line of `[section]`, or the first.
    pub(super) fn line_of(&self, section: &str) -> usize {
        let header = format!("[{section}]");
        self.text.lines().position(|line| line.trim() == header).map_or(1, |i| i + 1)
    }

    /// All dependencies: plain, build and dev, those of some targets only included.
    pub(super) fn dependencies(&self) -> Vec<Dependency> {
        let targets = self.table.get("target").and_then(Value::as_table);
        let by_target = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
        let mut found = Vec::new();
        for table in std::iter::once(&self.table).chain(by_target) {
            for (section, dev) in
                [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
            {
                let Some(asked) = table.get(section).and_then(Value::as_table) else { continue };
                found.extend(asked.iter().map(|(key, value)| Dependency {
                    package: value.get("package").and_then(Value::as_str).unwrap_or(key).into(),
                    dev,
                    line: self.line_of_key(section, key),
                }));
            }
        }
        found
    }

    /// Where `key` stands in a section whose name ends in `section`, as a key or as a table of its own.
    fn line_of_key(&self, section: &str, key: &str) -> usize {
        let mut inside = false;
        for (i, line) in self.text.lines().map(str::trim).enumerate() {
            if let Some(header) = line.strip_prefix('[') {
                let header = header.trim_end_matches(']');
                let name = header.rsplit('.').next().unwrap_or(header);
                inside = name == section;
                if header.ends_with(&format!("{section}.{key}")) {
                    return i + 1;
                }
            } else if inside && line.strip_prefix(key).is_some_and(|rest| rest.starts_with([' ', '.', '='])) {
                return i + 1;
            }
        }
        1
    }
}

/// The TOML that the file at `path` holds.
fn parse_toml(path: &str, text: &str) -> Result<toml::Table, Error> {
    text.parse()
        .map_err(|error: toml::de::Error| Error::Parse { what: path.into(), why: error.message().into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_crates_and_xtask() {
        let repo = Repo::of(&[
            ("Cargo.toml", ""),
            ("crates/layout/Cargo.toml", ""),
            ("crates/fabric/tests/ui/Cargo.toml", ""),
            ("fuzz/Cargo.toml", "[workspace]\n"),
            ("xtask/Cargo.toml", ""),
        ]);
        let names: Vec<_> = members(&repo).unwrap().iter().map(|manifest| manifest.member).collect();
        assert_eq!(names, ["layout", "xtask"]);
    }

    #[test]
    fn every_kind_of_dependency_is_seen_where_it_stands() {
        let text = "\
[dependencies]
a.workspace = true
a-b = \"1\"
short = { package = \"sidelong-long\", path = \"..\" }
[dev-dependencies]
d = \"1\"
[build-dependencies.b]
version = \"1\"
[target.'cfg(unix)'.dependencies]
t = \"1\"
";
        let manifest = Manifest::parse("crates/x/Cargo.toml", "x", text).unwrap();
        let seen = |dependency: &Dependency| (dependency.package.clone(), dependency.dev, dependency.line);
        let mut found: Vec<_> = manifest.dependencies().iter().map(seen).collect();
        found.sort();
        let expected = [
            ("a", false, 2),
            ("a-b", false, 3),
            ("b", false, 7),
            ("d", true, 6),
            ("sidelong-long", false, 4),
            ("t", false, 10),
        ];
        assert_eq!(found, expected.map(|(package, dev, line)| (package.to_owned(), dev, line)));
        assert_eq!(manifest.line_of("dev-dependencies"), 5);
    }

    #[test]
    fn a_value_is_found_by_its_keys() {
        let manifest = Manifest::parse("xtask/Cargo.toml", "xtask", "[lints]\nworkspace = true\n").unwrap();
        assert_eq!(manifest.get(&["lints", "workspace"]), Some(&Value::Boolean(true)));
        assert_eq!(manifest.get(&["package", "name"]), None);
    }
}
