//! One sweep: `sidelong-lab sim run FILE.toml --out DIR --set ...`, or `sidelong-lab sim live`, as a child process.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::bench::Bench;
use crate::error::{Result, file};

/// Describes the files of a sweep, for a report.
pub(crate) const SWEEPS: &str = "Each sweep has a directory in `runs/`: `sidelong-lab sim run DIRECTORY/config.toml --out OUT` \
                                 repeats it, and its rows have every figure.";

/// Runs the configuration `config` with `sets`, the next announced run, for `limit` at most. Returns the path of its rows.
pub(crate) fn run(
    bench: &mut Bench<'_>,
    name: &str,
    config: &str,
    sets: &[String],
    limit: Duration,
) -> Result<PathBuf> {
    let out = bench.path(&format!("runs/{name}"));
    if out.exists() {
        file(&out, fs::remove_dir_all(&out))?;
    }
    let to = ["--out".as_ref(), out.as_os_str()];
    execute(bench, name, config, "run", &to, sets, limit)?;
    Ok(out.join("rows.csv"))
}

/// Runs the configuration live and simulated, likewise. Returns the path of a file with a JSON line for each run.
pub(crate) fn live(
    bench: &mut Bench<'_>,
    name: &str,
    config: &str,
    sets: &[String],
    limit: Duration,
) -> Result<PathBuf> {
    execute(bench, name, config, "live", &["--json".as_ref()], sets, limit)
}

/// Returns the path of what the command has printed.
fn execute(
    bench: &mut Bench<'_>,
    name: &str,
    config: &str,
    what: &str,
    to: &[&OsStr],
    sets: &[String],
    limit: Duration,
) -> Result<PathBuf> {
    bench.begin(name);
    let path = bench.path(&format!("configs/{name}.toml"));
    file(&path, fs::write(&path, config))?;
    let mut command = Command::new(&bench.options.program);
    command.args(["sim", what]).arg(&path).args(to);
    sets.iter().for_each(|set| _ = command.args(["--set", set]));
    let output = bench.output(command, name, "txt", limit)?;
    bench.end();
    Ok(output)
}
