//! One sweep: `sidelong sim run FILE.toml --out DIR --set ...` as a child process.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::bench::Bench;
use crate::error::{Error, Result, file};
use crate::process::{Ended, Process, last_line, quoted};

/// Describes the files of a sweep, for a report.
pub(crate) const SWEEPS: &str = "Each sweep has a directory in `runs/`: `sidelong sim run DIRECTORY/config.toml --out OUT` \
                                 repeats it, and its rows have every figure.";

/// Runs the configuration `config` with `sets`, the next announced run, for `limit` at most. Returns the path of its rows.
pub(crate) fn run(
    bench: &mut Bench<'_>,
    name: &str,
    config: &str,
    sets: &[String],
    limit: Duration,
) -> Result<PathBuf> {
    bench.begin(name);
    let (path, out) = (bench.path(&format!("configs/{name}.toml")), bench.path(&format!("runs/{name}")));
    file(&path, fs::write(&path, config))?;
    if out.exists() {
        file(&out, fs::remove_dir_all(&out))?;
    }
    let program = &bench.options.program;
    let mut command = Command::new(program);
    command.args(["sim", "run"]).arg(&path).arg("--out").arg(&out);
    sets.iter().for_each(|set| _ = command.args(["--set", set]));
    let repeat = || {
        let sets: Vec<_> = sets.iter().map(|set| format!("--set {set}")).collect();
        format!("{} sim run {} --out DIR {}", quoted(program), quoted(&path), sets.join(" "))
    };
    let (output, log) = (bench.path(&format!("runs/{name}.txt")), bench.path(&format!("runs/{name}.log")));
    let mut sim = Process::start(command, &output, &log)?;
    match sim.wait(limit, &bench.options.stop)? {
        Ended::Stopped => return Err(Error::Interrupted),
        Ended::TooLong => return Err(Error::TooLong { run: name.to_owned(), limit, repeat: repeat() }),
        Ended::Itself(status) if !status.success() => {
            let said = last_line(&log).unwrap_or_else(|| format!("ended with {status}"));
            return Err(Error::Failed { run: name.to_owned(), said, repeat: repeat() });
        }
        Ended::Itself(_) => (),
    }
    bench.end();
    Ok(out.join("rows.csv"))
}
