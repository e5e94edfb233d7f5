//! The run directory of an `up`, which it makes again if it is gone.

use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sidelong_fabric::RunDirectory;

use sidelong_app::Failure;

/// The cluster file that an `up` writes into the run directory, for its parts.
pub const RUN_FILE: &str = "cluster.toml";

/// Interval between two looks at the file.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A claimed run directory, and the cluster file in it.
pub(super) struct Home {
    pub(super) run: RunDirectory,
    claim: File,
    text: String,
    looked: Instant,
}

impl Home {
    /// Writes `text` as the cluster file of the parts.
    pub(super) fn new(run: RunDirectory, claim: File, text: String) -> Result<Self, Failure> {
        let home = Home { run, claim, text, looked: Instant::now() };
        home.write()?;
        Ok(home)
    }

    /// Writes the file again if somebody else has changed it: commands read it, too.
    pub(super) fn look(&mut self, now: Instant) {
        if now.duration_since(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = now;
        if self.run.is_claimed_by(&self.claim) && !self.is_written() {
            let path = self.config();
            match self.write() {
                Ok(()) => tracing::warn!("{} was changed, and is written again", path.display()),
                Err(Failure(why)) => tracing::warn!("{why}"),
            }
        }
    }

    /// The cluster file of the parts.
    pub(super) fn config(&self) -> PathBuf {
        self.run.path().join(RUN_FILE)
    }

    /// Makes the directory again if it is gone, and the file if it is not as written. Returns whether the directory was gone,
    /// and with it all regions.
    pub(super) fn restore(&mut self) -> Result<bool, Failure> {
        let is_gone = !self.run.is_claimed_by(&self.claim);
        if is_gone {
            self.run = RunDirectory::open(self.run.path())?;
            self.claim = self.run.claim()?;
        }
        if !self.is_written() {
            self.write()?;
        }
        Ok(is_gone)
    }

    fn is_written(&self) -> bool {
        let (mut found, most) = (String::new(), self.text.len() as u64 + 1);
        let read = self.run.read(RUN_FILE).and_then(|file| file.take(most).read_to_string(&mut found));
        read.is_ok() && found == self.text
    }

    fn write(&self) -> Result<(), Failure> {
        let written = self.run.replace(RUN_FILE, self.text.as_bytes());
        written.map_err(|error| Failure::new(format!("cannot write {}: {error}", self.config().display())))
    }
}
