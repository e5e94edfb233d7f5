//! The traces of C1 and L1, and the logs that `--traces` names.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::bench::Bench;
use crate::error::{Result, file};

/// The built-in sample and up to two real logs, the first by name; each with its workload in the simulator's file.
pub(super) fn all(bench: &Bench<'_>) -> Result<Vec<(String, String)>> {
    let mut traces = vec![("worldcup98-sample".to_owned(), "kind = \"sample\"\n".to_owned())];
    for (name, path) in logs(bench)?.into_iter().take(2) {
        traces.push((name, format!("kind = \"trace\"\ntrace = {:?}\n", path.display().to_string())));
    }
    Ok(traces)
}

/// The logs in the directory of `--traces`, if there is one, by name. Files that describe them are left out.
pub(crate) fn logs(bench: &Bench<'_>) -> Result<Vec<(String, PathBuf)>> {
    let Some(directory) = &bench.options.traces else { return Ok(Vec::new()) };
    let mut logs = Vec::new();
    for entry in file(directory, fs::read_dir(directory))? {
        let path = file(directory, entry)?.path();
        if path.is_file() && !is_about(&path) {
            logs.push(file(&path, path.canonicalize())?);
        }
    }
    if logs.is_empty() {
        let source =
            io::Error::new(io::ErrorKind::NotFound, "no log lies in it (directories in it are not searched)");
        return file(directory, Err(source));
    }
    logs.sort();
    let named = |path: PathBuf| {
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
        (name.chars().map(plain).collect(), path)
    };
    Ok(logs.into_iter().map(named).collect())
}

/// Whether a file is a README, a licence or a notice, and not a log.
fn is_about(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let begins = ["readme", "license", "copyright", "notice", "."];
    name.ends_with(".md") || begins.iter().any(|begin| name.starts_with(begin))
}
