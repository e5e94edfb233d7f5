//! Finds the cluster if none is named: the one that an `up` of this user runs on this machine, or that which is installed.

use std::path::{Path, PathBuf};

use sidelong_config::default_run_dir;
use sidelong_fabric::RunDirectory;

use crate::cluster::INSTALLED;
use crate::failure::Failure;
use sidelong_harness::up::RUN_FILE;

/// Run directories that are looked into at most.
const DIRECTORIES_MAX: usize = 1024;

/// The cluster file of the `up` that runs: what all of its parts have read; without one, the installed file.
pub(crate) fn running() -> Result<PathBuf, Failure> {
    let demo = default_run_dir("demo");
    let base = demo.parent().unwrap_or(Path::new("/"));
    let entries = std::fs::read_dir(base).into_iter().flatten().take(DIRECTORIES_MAX).flatten();
    let files = entries
        .filter(|entry| RunDirectory::at(entry.path()).is_claimed())
        .map(|entry| entry.path().join(RUN_FILE));
    let mut files: Vec<_> = files.filter(|file| file.is_file()).collect();
    files.sort();
    choose(base, files, Path::new(INSTALLED))
}

fn choose(base: &Path, mut files: Vec<PathBuf>, installed: &Path) -> Result<PathBuf, Failure> {
    match (files.pop(), files.len()) {
        (Some(file), 0) => Ok(file),
        (Some(last), _) => {
            let all: Vec<_> = files.iter().chain([&last]).map(|file| file.display().to_string()).collect();
            Err(Failure::new(format!("several clusters run here: choose by --config {}", all.join(" or "))))
        }
        (None, _) if installed.exists() => Ok(installed.to_owned()),
        (None, _) => Err(Failure::new(format!(
            "no cluster runs here: there is no {}, and no `sidelong up` has a directory in {}; start one, or name the file of a \
             cluster by --config FILE",
            installed.display(),
            base.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_taken_and_none_or_several_are_told() {
        let chosen = |files: &[&str], installed: &Path| {
            choose(Path::new("/run/base"), files.iter().map(PathBuf::from).collect(), installed)
        };
        let (none, some) = (Path::new("/nonexistent/cluster.toml"), tempfile::NamedTempFile::new().unwrap());
        let running = Path::new("/run/base/a/cluster.toml");
        for installed in [none, some.path()] {
            assert_eq!(chosen(&["/run/base/a/cluster.toml"], installed).unwrap(), running);
        }
        assert_eq!(chosen(&[], some.path()).unwrap(), some.path());
        let Failure(said) = chosen(&[], none).unwrap_err();
        for named in ["/run/base", "/nonexistent/cluster.toml", "sidelong up", "--config"] {
            assert!(said.contains(named), "{said}");
        }
        let Failure(two) = chosen(&["/a/cluster.toml", "/b/cluster.toml"], none).unwrap_err();
        assert!(two.contains("--config /a/cluster.toml or /b/cluster.toml"), "{two}");
    }
}
