//! The nodes' state for `up` and `top`, read from their memory as an edge reads it, and never changed.

use std::time::Duration;

use sidelong_edge::Loads;
use sidelong_layout::{Hot, NodeId, Ownership, SiteId, Time, valid};
use sidelong_load::Reading;
use sidelong_reconfig::Links;

use crate::Parts;
use crate::failure::Failure;

/// The latest scan, and sums over the scans since they were last taken.
pub struct Monitor {
    links: Links,
    loads: Loads,
    readings: Vec<Reading>,
    /// CPU in use at each node, in thousandths.
    cpu: Vec<RecentMean>,
    at: Time,
    /// For each site, the nodes in use, summed over scans.
    busy: Vec<f64>,
    looks: u64,
}

impl Monitor {
    /// Links to all nodes, for reading only, and scans them.
    ///
    /// # Errors
    /// If the scheme or the fabric cannot be used here.
    pub fn new(parts: &Parts) -> Result<Self, Failure> {
        let mut links = parts.read_only_links()?;
        let mut monitor = Monitor {
            loads: parts.loads(&mut links)?,
            links,
            readings: vec![Reading::default(); parts.cluster.nodes.len()],
            cpu: vec![RecentMean::default(); parts.cluster.nodes.len()],
            at: Time::default(),
            busy: vec![0.0; parts.cluster.sites.len()],
            looks: 0,
        };
        monitor.look();
        Ok(monitor)
    }

    /// Scans all nodes.
    pub fn look(&mut self) {
        self.at = Time::from_ns(sidelong_load::monotonic_ns());
        self.loads.scan(self.at, &mut self.links, &mut self.readings);
        self.looks += 1;
        for (reading, mean) in self.readings.iter().zip(&mut self.cpu) {
            if let Some(hot) = reading.fresh().filter(|hot| hot.valid & valid::CPU != 0) {
                mean.add(self.at, hot.cpu_permille);
            }
        }
        for (index, reading) in self.readings.iter().enumerate() {
            let Some(hot) = reading.fresh().filter(|hot| hot.workers > 0) else { continue };
            let site = self.links.ownership(NodeId::new(index)).and_then(|ownership| ownership.site);
            if let Some(site) = site {
                self.busy[site.index()] +=
                    f64::from(hot.busy.min(hot.workers.into())) / f64::from(hot.workers);
            }
        }
    }

    /// Nodes in use by each site, averaged since the last call. A node counts by the share of its workers that are busy
    /// (Balaji et al. 2004, 4.3.2).
    pub fn take_busy(&mut self) -> Vec<f64> {
        let looks = self.looks.max(1) as f64;
        self.looks = 0;
        self.busy.iter_mut().map(|sum| std::mem::take(sum) / looks).collect()
    }

    /// When the last scan began.
    pub fn at(&self) -> Time {
        self.at
    }

    /// The last sample of `node`.
    pub fn reading(&self, node: NodeId) -> &Reading {
        &self.readings[node.index()]
    }

    /// The record of `node`, if it is fresh.
    pub fn hot(&self, node: NodeId) -> Option<&Hot> {
        self.readings[node.index()].fresh()
    }

    /// CPU in use at `node` in thousandths: the mean over the last second. `None` if its record does not tell.
    pub fn cpu_permille(&self, node: NodeId) -> Option<u16> {
        self.hot(node).filter(|hot| hot.valid & valid::CPU != 0)?;
        self.cpu[node.index()].mean(self.at)
    }

    /// Why the record of `node` could last not be read.
    pub fn problem(&self, node: NodeId) -> Option<&str> {
        self.loads.problem(&self.links, node.index())
    }

    /// Whom `node` serves, as last read.
    pub fn ownership(&self, node: NodeId) -> Option<Ownership> {
        self.links.ownership(node)
    }

    /// Number of nodes that serve `site`.
    pub fn serving(&self, site: SiteId) -> usize {
        let nodes = (0..self.readings.len()).map(NodeId::new);
        nodes.filter(|node| self.ownership(*node).is_some_and(|o| o.serves(site))).count()
    }

    /// Number of nodes that drain or change.
    pub fn draining(&self) -> usize {
        let nodes = (0..self.readings.len()).map(NodeId::new);
        nodes.filter(|node| self.ownership(*node).and_then(Ownership::on_its_way).is_some()).count()
    }

    /// Age of the record of `node` when it was read.
    pub fn age(&self, node: NodeId) -> Option<Duration> {
        let reading = self.reading(node);
        reading.fresh().map(|_| Duration::from_nanos(reading.age_ns))
    }

    /// Age of the oldest record.
    pub fn age_max(&self) -> Option<Duration> {
        (0..self.readings.len()).filter_map(|node| self.age(NodeId::new(node))).max()
    }
}

/// The mean over the last second. A single record covers 10 to 50 ms of its node, which fluctuates.
#[derive(Clone, Copy, Debug, Default)]
struct RecentMean {
    tenths: [Tenth; TENTHS],
}

const TENTHS: usize = 10;
const TENTH_NS: u64 = 100_000_000;

/// The sum over one tenth of a second.
#[derive(Clone, Copy, Debug, Default)]
struct Tenth {
    /// Its number, counted from the clock's start.
    number: u64,
    sum: u64,
    count: u64,
}

impl RecentMean {
    fn add(&mut self, at: Time, value: u16) {
        let number = at.as_ns() / TENTH_NS;
        let tenth = &mut self.tenths[number as usize % TENTHS];
        if tenth.number != number {
            *tenth = Tenth { number, ..Tenth::default() };
        }
        tenth.sum += u64::from(value);
        tenth.count += 1;
    }

    fn mean(&self, at: Time) -> Option<u16> {
        let now = at.as_ns() / TENTH_NS;
        let recent = || self.tenths.iter().filter(|tenth| tenth.number + TENTHS as u64 > now);
        let count: u64 = recent().map(|tenth| tenth.count).sum();
        let sum: u64 = recent().map(|tenth| tenth.sum).sum();
        sum.checked_div(count).map(|mean| mean as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_is_of_the_last_second() {
        let at = |ms: u64| Time::from_ns(ms * 1_000_000);
        let mut mean = RecentMean::default();
        assert_eq!(mean.mean(at(5000)), None);
        (5000..5500).for_each(|ms| mean.add(at(ms), 1000));
        (5500..6000).for_each(|ms| mean.add(at(ms), 0));
        assert_eq!(mean.mean(at(5999)), Some(500));
        assert_eq!(mean.mean(at(6499)), Some(0), "the first half is longer ago");
        assert_eq!(mean.mean(at(9000)), None, "all of it is");
    }
}
