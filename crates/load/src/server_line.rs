//! The server's part of a kernel-kept record. The server publishes it at its own events, because no other thread runs.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use sidelong_fabric::Region;
use sidelong_layout::{Detail, Hot, LOAD_DETAIL, LOAD_HOT, RegionKind};
use sidelong_os::monotonic_ns;
use sidelong_state::{Publisher, Record};

use crate::Error;
use crate::origin::{OriginGauge, OriginLoad};
use crate::snapshot::incarnation_of;

/// Publishes a server's gauges. When it is dropped, it publishes that the server leaves.
pub struct ServerLine {
    /// Threads publish in turn, each the gauges at that moment.
    writer: Mutex<Writer>,
}

struct Writer {
    gauge: OriginGauge,
    region: Region,
    hot: Publisher,
    detail: Publisher,
    last: Option<OriginLoad>,
}

impl ServerLine {
    /// Publishes into `region`, whose record the kernel keeps; a first line at once. A region has one `ServerLine` in
    /// its life.
    ///
    /// # Errors
    /// If the region is of another kind.
    pub fn open(region: Region, gauge: OriginGauge) -> Result<Self, Error> {
        let generation = incarnation_of(&region, RegionKind::Kernel)? as u32;
        let (hot, detail) = (Publisher::new(generation), Publisher::new(generation));
        let line = ServerLine { writer: Mutex::new(Writer { gauge, region, hot, detail, last: None }) };
        line.publish();
        Ok(line)
    }

    /// Publishes the current gauges if they changed. Call it when a request begins or ends, or a connection opens or
    /// closes.
    pub fn publish(&self) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that the last to publish has the latest figures.
        let now = (writer.gauge)();
        if writer.last != Some(now) {
            writer.publish(&now);
        }
    }
}

impl Drop for ServerLine {
    fn drop(&mut self) {
        let writer = self.writer.get_mut().unwrap_or_else(PoisonError::into_inner);
        let farewell = Hot { time_ns: monotonic_ns(), ..Hot::default() };
        store(&writer.region, LOAD_HOT, &mut writer.hot, farewell);
    }
}

impl Writer {
    fn publish(&mut self, now: &OriginLoad) {
        let time_ns = monotonic_ns();
        let mut hot = Hot { time_ns, ..Hot::default() };
        now.fill(&mut hot);
        store(&self.region, LOAD_HOT, &mut self.hot, hot);
        let totals = |load: &OriginLoad| (load.errors, load.sent_bytes);
        if self.last.as_ref().map(totals) != Some(totals(now)) {
            let detail = Detail {
                pid: std::process::id(),
                time_ns,
                errors: now.errors,
                origin_sent_bytes: now.sent_bytes,
                ..Detail::default()
            };
            store(&self.region, LOAD_DETAIL, &mut self.detail, detail);
        }
        self.last = Some(*now);
    }
}

impl std::fmt::Debug for ServerLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerLine").finish_non_exhaustive()
    }
}

/// Stores a record in the way that readers expect.
pub(crate) fn store<const W: usize, R: Record<W> + Copy>(
    region: &Region,
    offset: usize,
    publisher: &mut Publisher,
    record: R,
) {
    for (index, value) in publisher.publish(record) {
        region.store(offset + index * 8, value, Ordering::Release);
    }
}
