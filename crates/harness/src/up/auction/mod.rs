//! `up --demo auction`: an auction site on unmodified gunicorns, its static files and its JSON beside it, and a database that
//! does not move.
//!
//! The application is `demo/auction`, which is part of this program: given gunicorn and Python, nothing else has to be there.

mod load;

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use clap::ValueEnum;
use sidelong_config::ClusterFile;

use sidelong_app::Failure;

use crate::programs;

pub(super) use load::{Neighbours, persons};

/// A demonstration that `up` has with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Demo {
    /// An auction on gunicorn and a database, with static files and JSON as sites beside it
    Auction,
}

/// The sites, as the demonstration's cluster file names them.
const AUCTION: &str = "auction";
const FILES: &str = "files";
const API: &str = "api";

/// The directory in the run directory.
const DIRECTORY: &str = "auction";
/// How much data is made: 10,000 users and 5,300 items, in some seconds.
const SCALE: &str = "0.01";
/// Static files, and the bytes of each.
const OBJECTS: u32 = 200;
const FILE_BYTES: u64 = 8 << 10;
/// Time between two looks at a command that runs.
const LOOK_EVERY: Duration = Duration::from_millis(20);

macro_rules! application {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../../../demo/auction/", $name)))),*]
    };
}

/// The application's files, and the one that tells the sites apart.
const APPLICATION: [(&str, &str); 12] = application!(
    "__main__.py" "app.py" "audit.py" "categories.csv" "database.py" "make_data.py" "market.py" "pages.py" "passwords.py"
    "regions.csv" "schema.sql" "style.css"
);
const SITES: (&str, &str) = ("sites.py", include_str!("sites.py"));
/// What asks a database whether it has an auction.
const LOOK: (&str, &str) = ("look.py", include_str!("look.py"));

/// The cluster of the demonstration of an auction.
///
/// # Errors
/// Never: a test reads it.
pub fn cluster() -> Result<ClusterFile, Failure> {
    Ok(ClusterFile::parse(include_str!("cluster.toml"), "the cluster of --demo auction")?)
}

/// What all servers of the auction share.
#[derive(Clone, Debug)]
pub(super) struct Auction {
    /// A path, or `postgres://`.
    database: String,
    files: String,
}

impl Auction {
    /// Makes the files, and the data unless `database` has them, in the run directory.
    ///
    /// # Errors
    /// If they cannot be made, or `is_stopped` says so meanwhile.
    pub(super) fn prepare(
        run: &Path,
        database: Option<&str>,
        is_quiet: bool,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Self, Failure> {
        let directory = run.join(DIRECTORY);
        let files = directory.join(FILES);
        let written = remove(&directory).and_then(|()| {
            fs::create_dir_all(&files)?;
            write_application(&directory)?;
            let bytes = vec![b'x'; FILE_BYTES as usize];
            (0..OBJECTS).try_for_each(|id| fs::write(files.join(format!("{id}-{FILE_BYTES}")), &bytes))
        });
        written
            .map_err(|error| Failure::new(format!("cannot write into {}: {error}", directory.display())))?;
        let files = text(files)?;
        let database = match database {
            Some(named) => {
                let database = place(named)?;
                look(&directory, &database, &is_stopped)?;
                database
            }
            None => {
                let database = text(directory.join("auction.db"))?;
                make_data(&directory, &database, is_quiet, &is_stopped)?;
                database
            }
        };
        Ok(Auction { database, files })
    }

    /// Removes what was made.
    pub(super) fn clear(run: &Path) -> io::Result<()> {
        remove(&run.join(DIRECTORY))
    }

    /// The arguments of a gunicorn that is one of its servers, with so many synchronous workers. Its application goes into `at`.
    pub(super) fn arguments(
        &self,
        at: &Path,
        name: &str,
        address: SocketAddr,
        workers: u16,
    ) -> io::Result<Vec<OsString>> {
        write_application(at)?;
        // In a file, because others see arguments, and a database may have a password.
        let variables = [
            format!("AUCTION_DATABASE={}", self.database),
            format!("AUCTION_FILES={}", self.files),
            format!("AUCTION_SERVER={name}"),
        ];
        let (settings, variables) = (at.join("settings.py"), serde_json::to_string(&variables)?);
        fs::write(&settings, format!("raw_env = {variables}\n"))?;
        let all = programs::gunicorn(at, &address.to_string(), workers, "sites");
        Ok(["--config".into(), settings.into()].into_iter().chain(all).collect())
    }
}

/// Where a database is that was named: a URL, or a file, which servers run elsewhere than `up`.
fn place(named: &str) -> Result<String, Failure> {
    if named.contains("://") {
        return Ok(named.to_owned());
    }
    match Path::new(named).is_file() {
        true => text(std::path::absolute(named)?),
        false => Err(Failure::new(format!(
            "--database {named}: there is no such file; make it with `python3 demo/auction make-data --database {named}`"
        ))),
    }
}

/// A path for Python, which reads it as text.
fn text(path: PathBuf) -> Result<String, Failure> {
    let found = path.into_os_string().into_string();
    found.map_err(|path| Failure::new(format!("{}: expected a path in UTF-8", path.display())))
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn write_application(at: &Path) -> io::Result<()> {
    APPLICATION.iter().chain([&SITES]).try_for_each(|(name, text)| fs::write(at.join(name), text))
}

fn make_data(
    directory: &Path,
    database: &str,
    is_quiet: bool,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    let log = directory.join("make-data.log");
    let shows = !is_quiet && io::stderr().is_terminal();
    let errors = if shows { Stdio::inherit() } else { fs::File::create(&log)?.into() };
    let mut command = Command::new("python3");
    command.arg(directory).args(["make-data", "--scale", SCALE, "--database", database]).stderr(errors);
    run(command, &log, "the auction's data cannot be made", is_stopped)
}

/// Whether a database has an auction. It is asked by gunicorn's Python, which need not be the first one on PATH.
fn look(directory: &Path, database: &str, is_stopped: &dyn Fn() -> bool) -> Result<(), Failure> {
    let (name, program) = LOOK;
    fs::write(directory.join(name), program)?;
    let log = directory.join("look.log");
    let mut command = Command::new("gunicorn");
    command.arg("--check-config").arg("--chdir").arg(directory).arg("look");
    command.env("AUCTION_DATABASE", database).stderr(fs::File::create(&log)?);
    run(command, &log, "--database cannot be used", is_stopped)
}

/// Runs a command to its end. If it fails, the reason is the last line of its log.
fn run(mut command: Command, log: &Path, what: &str, is_stopped: &dyn Fn() -> bool) -> Result<(), Failure> {
    // Ctrl-C is for `up`.
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0).spawn();
    let mut child = spawned.map_err(|error| {
        Failure::new(format!("--demo auction: cannot run {}: {error}", command.get_program().display()))
    })?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if is_stopped() {
            end(&mut child);
            return Err(Failure::new("interrupted while the auction was prepared"));
        }
        sleep(LOOK_EVERY);
    };
    if status.success() {
        return Ok(());
    }
    let said = fs::read_to_string(log).unwrap_or_default();
    let said = said.trim_end().lines().next_back().unwrap_or("see above").to_owned();
    Err(Failure::new(format!("{what} ({status}): {said}")))
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_has_the_three_sites_and_the_program_all_files_of_the_application() {
        let file = cluster().unwrap();
        let names: Vec<_> = file.sites.iter().map(|site| site.name.as_str()).collect();
        assert_eq!(names, [AUCTION, FILES, API]);
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../demo/auction");
        for entry in fs::read_dir(&directory).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            let is_part = ["py", "sql", "csv", "css"].iter().any(|kind| name.ends_with(&format!(".{kind}")));
            assert!(!is_part || APPLICATION.iter().any(|(known, _)| *known == name), "{name} is left out");
        }
    }
}
