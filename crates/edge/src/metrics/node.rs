//! A node's metrics: its own record, as others see it, read at the scrape.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;
use sidelong_layout::Time;
use sidelong_load::{OriginLoad, OwnRecord};

use super::emit::{About, ConfigState, Counts, Labels, age, family};
use super::figures::{DETAIL, DetailFigure, HOT, Head, Kind};
use super::process::encode;
use crate::clock;

/// Reads a node's own figures, at a time in ns of the monotonic clock. Of a server that is not its own there is only the record.
pub type ReadOwn = Box<dyn FnMut(u64) -> (OwnRecord, Option<OriginLoad>) + Send>;

/// A node's metrics.
#[derive(Debug)]
pub struct NodeMetrics {
    registry: Registry,
    config: Arc<ConfigState>,
}

impl NodeMetrics {
    /// The figures that `read` returns at each scrape, and `about` and `counts`. Of a record older than `stale` only the age
    /// is reported.
    pub fn new(about: About, counts: Vec<Counts>, stale: Duration, read: ReadOwn) -> Self {
        let mut registry = Registry::with_prefix("sidelong_node");
        about.facts.into_iter().for_each(|fact| fact.register(&mut registry));
        registry.register_collector(Box::new(Own { stale, read: Mutex::new(read) }));
        counts.into_iter().for_each(|counts| registry.register_collector(Box::new(counts)));
        NodeMetrics { registry, config: about.config }
    }

    /// The metrics as OpenMetrics text.
    pub fn encode(&self) -> String {
        encode(&self.registry, Some(&self.config))
    }
}

struct Own {
    stale: Duration,
    read: Mutex<ReadOwn>,
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Own")
    }
}

const RECORD_AGE: Head<'static> = Head {
    name: "record_age",
    unit: "seconds",
    help: "Age of the figures in the node's record",
    kind: Kind::Gauge,
};

const FAILED: Head<'static> = Head {
    name: "failed",
    unit: "requests",
    help: "Requests answered with a status of 400 or above since the server started",
    kind: Kind::Counter,
};

const BODY: Head<'static> = Head {
    name: "response_body",
    unit: "bytes",
    help: "Bytes of response bodies since the server started",
    kind: Kind::Counter,
};

impl Collector for Own {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = clock::now();
        let (record, origin) = {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            read(now.as_ns())
        };
        let alone = |value| [(Labels::new(), value)];
        let record_at = record.hot.map(|hot| Time::from_ns(hot.time_ns));
        family(&mut encoder, &RECORD_AGE, alone(age(now, record_at)))?;
        let is_fresh = record_at.is_some_and(|at| now.since(at) <= self.stale);
        let record = if is_fresh { record } else { OwnRecord::default() };

        // The server's own figures are newer than those in the record.
        let mut hot = record.hot.unwrap_or_default();
        if let Some(origin) = &origin {
            origin.fill(&mut hot);
        }
        for figure in HOT.iter().filter(|figure| hot.valid & figure.valid != 0) {
            family(&mut encoder, &figure.head, alone((figure.of)(&hot)))?;
        }
        if let Some(origin) = &origin {
            family(&mut encoder, &FAILED, alone(origin.errors as f64))?;
            family(&mut encoder, &BODY, alone(origin.sent_bytes as f64))?;
        }

        let Some(detail) = record.detail else { return Ok(()) };
        let is_same =
            |a: &DetailFigure, b: &DetailFigure| (a.head.name, a.head.unit) == (b.head.name, b.head.unit);
        for figures in DETAIL.chunk_by(is_same) {
            let known = figures.iter().map(|figure| (figure, (figure.of)(&detail)));
            let known = known.filter(|(_, value)| *value != 0.0);
            let metrics = known.map(|(figure, value)| (figure.label.into_iter().collect(), value));
            family(&mut encoder, &figures[0].head, metrics)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sidelong_layout::{Detail, Hot, valid};

    use super::*;

    const STALE: Duration = Duration::from_secs(5);

    fn lines(record: OwnRecord) -> Vec<String> {
        let origin =
            OriginLoad { connections: 5, served: 7, errors: 2, sent_bytes: 9, ..OriginLoad::default() };
        let about = crate::Fact {
            name: "build",
            help: "The program",
            labels: vec![("version", "1 \"x\"".to_owned())],
        };
        let metrics = NodeMetrics::new(
            About { facts: vec![about], ..About::default() },
            Vec::new(),
            STALE,
            Box::new(move |_| (record, Some(origin))),
        );
        let told = metrics.encode();
        // The process's own are beside them.
        told.lines().filter(|line| !line.contains("process_")).map(str::to_owned).collect()
    }

    #[test]
    fn what_the_record_does_not_have_is_not_told() {
        let none = lines(OwnRecord::default());
        for line in [
            r#"sidelong_node_build_info{version="1 \"x\""} 1"#,
            "sidelong_node_record_age_seconds inf",
            "sidelong_node_open_connections 5.0",
            "sidelong_node_served_requests_total 7.0",
            "sidelong_node_failed_requests_total 2.0",
            "sidelong_node_response_body_bytes_total 9.0",
        ] {
            assert!(none.iter().any(|found| found == line), "{line} in {none:#?}");
        }
        assert!(!none.iter().any(|line| line.contains("cpu") || line.contains("load_average")), "{none:#?}");

        let now_ns = clock::now().as_ns();
        let hot =
            Hot { valid: valid::CPU, cpu_permille: 250, run_queue: 3, time_ns: now_ns, ..Hot::default() };
        let detail = Detail { cpu_user_ns: 1_500_000_000, load_5m_milli: 10, ..Detail::default() };
        let some = lines(OwnRecord { hot: Some(hot), detail: Some(detail) });
        for line in [
            "# UNIT sidelong_node_cpu_ratio ratio",
            "sidelong_node_cpu_ratio 0.25",
            "sidelong_node_cpu_seconds_total{mode=\"user\"} 1.5",
            "sidelong_node_load_average{minutes=\"5\"} 0.01",
        ] {
            assert!(some.iter().any(|found| found == line), "{line} in {some:#?}");
        }
        for absent in ["run_queue", "mode=\"system\"", "minutes=\"1\"", "packets", "inf"] {
            let found = some.iter().find(|line| line.contains(absent) && !line.starts_with('#'));
            assert!(found.is_none_or(|line| line.contains("_info")), "{absent} in {some:#?}");
        }

        let stale = Hot { time_ns: now_ns - 6_000_000_000, ..hot };
        let age_alone = lines(OwnRecord { hot: Some(stale), detail: Some(detail) });
        let without_age = |lines: Vec<String>| -> Vec<String> {
            lines.into_iter().filter(|line| !line.starts_with("sidelong_node_record_age")).collect()
        };
        assert_eq!(without_age(age_alone), without_age(none));
    }
}
