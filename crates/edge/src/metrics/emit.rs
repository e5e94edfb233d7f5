//! Families of metrics that are read at the scrape.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use sidelong_layout::Time;

use super::figures::{Head, Kind};

/// The labels of one metric.
pub(super) type Labels<'a> = Vec<(&'a str, &'a str)>;

/// Writes a family and its metrics; nothing if there are none.
pub(super) fn family<'a>(
    encoder: &mut DescriptorEncoder<'_>,
    head: &Head<'_>,
    metrics: impl IntoIterator<Item = (Labels<'a>, f64)>,
) -> fmt::Result {
    let mut metrics = metrics.into_iter().peekable();
    if metrics.peek().is_none() {
        return Ok(());
    }
    let kind = match head.kind {
        Kind::Gauge => MetricType::Gauge,
        Kind::Counter => MetricType::Counter,
    };
    let unit = head.unit();
    let mut family = encoder.encode_descriptor(head.name, head.help, unit.as_ref(), kind)?;
    for (labels, value) in metrics {
        if labels.is_empty() {
            // The only one of its family: an empty set of labels would be written as `{}`.
            return encode(head.kind, value, family);
        }
        encode(head.kind, value, family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn encode(kind: Kind, value: f64, encoder: MetricEncoder<'_>) -> fmt::Result {
    match kind {
        Kind::Gauge => ConstGauge::new(value).encode(encoder),
        Kind::Counter => ConstCounter::new(value).encode(encoder),
    }
}

/// Seconds since `at`, infinite if it never happened.
pub(super) fn age(now: Time, at: Option<Time>) -> f64 {
    at.map_or(f64::INFINITY, |at| now.since(at).as_secs_f64())
}

/// 1 if it holds, 0 if not.
pub(super) fn flag(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// What a part tells of itself.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// What does not change.
    pub facts: Vec<Fact>,
    /// By which cluster file it goes.
    pub config: Arc<ConfigState>,
}

/// By which cluster file a part goes.
#[derive(Debug, Default)]
pub struct ConfigState {
    epoch: AtomicU64,
    has_refused: AtomicBool,
    lacks_etcd: AtomicBool,
    leaves: AtomicBool,
    is_over: AtomicBool,
    has_successor: Mutex<bool>,
}

impl ConfigState {
    /// It goes by the file of that epoch.
    pub fn adopted(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
        self.has_refused.store(false, Ordering::Relaxed);
    }

    /// The epoch of the file that it goes by.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Relaxed)
    }

    /// Whether etcd, which has the file, cannot be used.
    pub fn set_lacks_etcd(&self, lacks: bool) {
        self.lacks_etcd.store(lacks, Ordering::Relaxed);
    }

    /// It goes by the file of that epoch, and `says` so to others, unless another process does.
    pub fn state(&self, epoch: u64, says: impl FnOnce()) {
        let has_successor = self.successor();
        self.adopted(epoch);
        if !*has_successor {
            says();
        }
    }

    /// Another process says it from now on, if both go by the file of that epoch now. Returns whether that is so.
    pub fn hand_over(&self, epoch: u64) -> bool {
        let mut has_successor = self.successor();
        *has_successor |= self.epoch() == epoch;
        self.epoch() == epoch
    }

    /// Whether another process does.
    pub fn has_successor(&self) -> bool {
        *self.successor()
    }

    fn successor(&self) -> MutexGuard<'_, bool> {
        self.has_successor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It says that the part leaves the cluster.
    pub fn leave(&self) {
        self.leaves.store(true, Ordering::Relaxed);
    }

    /// The part has ended its work. Returns whether that was because it leaves the cluster.
    pub fn end(&self) -> bool {
        self.is_over.store(true, Ordering::Relaxed);
        self.leaves.load(Ordering::Relaxed)
    }

    /// Whether the part has ended its work, and leaves the cluster.
    pub fn has_left(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) && self.leaves.load(Ordering::Relaxed)
    }

    /// It has refused a newer one.
    pub fn refused(&self) {
        self.has_refused.store(true, Ordering::Relaxed);
    }
}

/// Metrics of a [`ConfigState`], which each kind of part has, so that they have no prefix of one.
#[derive(Debug)]
pub(super) struct ConfigCollector(pub(super) Arc<ConfigState>);

impl Collector for ConfigCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        const fn head(name: &'static str, help: &'static str) -> Head<'static> {
            Head { name, unit: "", help, kind: Kind::Gauge }
        }
        const EPOCH: Head<'static> = head(
            "sidelong_config_epoch",
            "The number of the cluster file that the part goes by; 0 if files have none",
        );
        const SUCCESSFUL: Head<'static> = head(
            "sidelong_config_last_reload_successful",
            "0 if the part has refused the newest cluster file",
        );
        const LACKS_ETCD: Head<'static> = head(
            "sidelong_config_lacks_etcd",
            "1 while etcd, which has the cluster file, does not answer or has lost it: the part goes on by what it knows",
        );
        let ConfigState { epoch, has_refused, lacks_etcd, .. } = &*self.0;
        let epoch = epoch.load(Ordering::Relaxed) as f64;
        family(&mut encoder, &EPOCH, [(Labels::new(), epoch)])?;
        let successful = flag(!has_refused.load(Ordering::Relaxed));
        family(&mut encoder, &SUCCESSFUL, [(Labels::new(), successful)])?;
        let lacks = flag(lacks_etcd.load(Ordering::Relaxed));
        family(&mut encoder, &LACKS_ETCD, [(Labels::new(), lacks)])
    }
}

/// Facts about a process that do not change, as an info metric.
#[derive(Clone, Debug)]
pub struct Fact {
    /// Name of the metric, without its prefix.
    pub name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// The facts, each with its name.
    pub labels: Vec<(&'static str, String)>,
}

impl Fact {
    pub(super) fn register(self, registry: &mut Registry) {
        registry.register(self.name, self.help, Info::new(self.labels));
    }
}

/// A family of counters that belong to another part of the process, read at the scrape.
pub struct Counts {
    /// Name of the family, without its prefix.
    pub name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// Name of the label.
    pub label: &'static str,
    /// The label's values, always the same, each with its count.
    pub read: Box<dyn Fn() -> Vec<(&'static str, u64)> + Send + Sync>,
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Counts({})", self.name)
    }
}

impl Collector for Counts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(self.name, self.help, None, MetricType::Counter)?;
        for (value, count) in (self.read)() {
            ConstCounter::new(count).encode(family.encode_family(&[(self.label, value)])?)?;
        }
        Ok(())
    }
}
