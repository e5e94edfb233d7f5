//! `--samples`: each site's nodes over time, as CSV.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::time::Duration;

use sidelong_config::Cluster;
use sidelong_layout::SiteId;

use sidelong_app::Failure;
use sidelong_app::Monitor;

/// The interval of a row.
const INTERVAL: Duration = Duration::from_millis(100);

/// The file, and the time of its next row.
pub(super) struct Samples {
    out: BufWriter<File>,
    due: Duration,
}

impl Samples {
    pub(super) fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path)
            .map_err(|error| Failure::new(format!("cannot write samples to {}: {error}", path.display())))?;
        let mut out = BufWriter::new(file);
        writeln!(out, "t_s,site,nodes,nodes_busy")?;
        Ok(Samples { out, due: INTERVAL })
    }

    /// Writes a row for each site if one is due `elapsed` after the start.
    pub(super) fn take(
        &mut self,
        elapsed: Duration,
        cluster: &Cluster,
        monitor: &mut Monitor,
    ) -> Result<(), Failure> {
        if elapsed < self.due {
            return Ok(());
        }
        self.due = elapsed + INTERVAL;
        let busy = monitor.take_busy();
        for (slot, site) in cluster.sites.entries() {
            let nodes = monitor.serving(SiteId::new(slot));
            writeln!(self.out, "{:.3},{},{nodes},{:.3}", elapsed.as_secs_f64(), site.name, busy[slot])?;
        }
        Ok(())
    }

    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        Ok(self.out.flush()?)
    }
}
