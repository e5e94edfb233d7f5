//! The files of the project, as git knows them, read once. Checks look at this and never at the disk.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::exec;

/// Where cargo builds.
pub(crate) fn target(root: &Path) -> Result<PathBuf, Error> {
    let mut cargo = exec::cargo();
    cargo.current_dir(root).args(["metadata", "--no-deps", "--format-version", "1", "--locked"]);
    let metadata: serde_json::Value = serde_json::from_str(&exec::output(&mut cargo)?)
        .map_err(|error| Error::Parse { what: "`cargo metadata`".into(), why: error.to_string() })?;
    Ok(metadata["target_directory"].as_str().unwrap_or("target").into())
}

/// The project's files.
pub(crate) struct Repo {
    /// Where they lie.
    pub(crate) root: PathBuf,
    /// In the order of their paths.
    pub(crate) files: Vec<SourceFile>,
}

/// One file.
pub(crate) struct SourceFile {
    /// From the root, with `/`.
    pub(crate) path: String,
    /// What it holds, where that is text.
    pub(crate) text: Option<String>,
    /// Whether git has it, or would only take it at the next `git add`.
    pub(crate) tracked: bool,
}

impl Repo {
    /// All files under `root` that git tracks or would track.
    pub(crate) fn read(root: PathBuf) -> Result<Repo, Error> {
        let tracked = list(&root, &["--cached"])?;
        let others = list(&root, &["--others", "--exclude-standard"])?;
        let mut files = Vec::new();
        for path in tracked.union(&others) {
            match std::fs::read(root.join(path)) {
                Ok(bytes) => files.push(SourceFile {
                    path: path.clone(),
                    text: String::from_utf8(bytes).ok().filter(|text| !text.contains('\0')),
                    tracked: tracked.contains(path),
                }),
                // Deleted, and the deletion not yet told to git; or a link to a directory.
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => {}
                Err(source) => return Err(Error::Read { path: root.join(path), source }),
            }
        }
        Ok(Repo { root, files })
    }

    /// The file at `path`.
    pub(crate) fn file(&self, path: &str) -> Option<&SourceFile> {
        self.files.binary_search_by(|file| file.path.as_str().cmp(path)).ok().map(|i| &self.files[i])
    }

    /// Whether `path` is a file, or a directory that holds one.
    pub(crate) fn has(&self, path: &str) -> bool {
        path.is_empty() || self.files.iter().any(|file| Path::new(&file.path).starts_with(path))
    }

    /// Path and text of all that we wrote ourselves. Recorded data is left out: it stays as it came.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let ours = self.files.iter().filter(|file| !is_data(&file.path));
        ours.filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
    }

    /// The texts whose names end in `.extension`.
    pub(crate) fn texts_with(&self, extension: &str) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(move |(path, _)| Path::new(path).extension() == Some(OsStr::new(extension)))
    }

    /// A project with the given paths and texts, all tracked.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Repo {
        let file = |&(path, text): &(&str, &str)| SourceFile {
            path: path.into(),
            text: Some(text.into()),
            tracked: true,
        };
        let mut files: Vec<_> = files.iter().map(file).collect();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Repo { root: PathBuf::from("."), files }
    }
}

/// Files that others made and that we ship or test with: traces with their notices, and fixtures.
fn is_data(path: &str) -> bool {
    path.split('/').any(|part| part == "testdata") || (path.starts_with("traces/") && !path.ends_with(".md"))
}

fn list(root: &Path, which: &[&str]) -> Result<BTreeSet<String>, Error> {
    let said = exec::output(Command::new("git").current_dir(root).args(["ls-files", "-z"]).args(which))?;
    Ok(said.split_terminator('\0').map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_not_ours() {
        let repo = Repo::of(&[
            ("crates/trace/testdata/log.txt", ""),
            ("crates/trace/src/lib.rs", ""),
            ("traces/wc/notice.txt", ""),
            ("traces/wc/README.md", ""),
        ]);
        let paths: Vec<_> = repo.texts().map(|(path, _)| path).collect();
        assert_eq!(paths, ["crates/trace/src/lib.rs", "traces/wc/README.md"]);
        assert_eq!(repo.texts_with("md").count(), 1);
    }

    #[test]
    fn a_directory_is_there_when_it_holds_something() {
        let repo = Repo::of(&[("crates/trace/src/lib.rs", "")]);
        assert!(repo.has("crates/trace") && repo.has("crates/trace/src/lib.rs") && repo.has(""));
        assert!(!repo.has("crates/tra"));
        assert!(repo.file("crates/trace/src/lib.rs").is_some() && repo.file("crates/trace").is_none());
    }

    #[test]
    fn reads_what_git_tracks_and_would_track() {
        let dir = tempfile::tempdir().unwrap();
        let git =
            |args: &[&str]| exec::output(Command::new("git").current_dir(dir.path()).args(args)).unwrap();
        git(&["init", "--quiet"]);
        for (path, bytes) in [
            (".gitignore", b"ignored\n".as_slice()),
            ("ignored", b""),
            ("new.txt", b"a\n"),
            ("old.bin", b"\0"),
            ("gone.txt", b""),
        ] {
            std::fs::write(dir.path().join(path), bytes).unwrap();
        }
        git(&["add", "old.bin", "gone.txt"]);
        std::fs::remove_file(dir.path().join("gone.txt")).unwrap();

        let repo = Repo::read(dir.path().into()).unwrap();
        let seen: Vec<_> =
            repo.files.iter().map(|file| (file.path.as_str(), file.tracked, file.text.is_some())).collect();
        assert_eq!(seen, [(".gitignore", false, true), ("new.txt", false, true), ("old.bin", true, false)]);
    }
}
