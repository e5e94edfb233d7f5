//! Families of metrics that are read at the scrape.

use std::fmt;

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

/// Facts about a process that do not change, as an info metric.
#[derive(Clone, Debug)]
pub struct About {
    /// Name of the metric, without its prefix.
    pub name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// The facts, each with its name.
    pub labels: Vec<(&'static str, String)>,
}

impl About {
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

impl prometheus_client::collector::Collector for Counts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut family = encoder.encode_descriptor(self.name, self.help, None, MetricType::Counter)?;
        for (value, count) in (self.read)() {
            ConstCounter::new(count).encode(family.encode_family(&[(self.label, value)])?)?;
        }
        Ok(())
    }
}
