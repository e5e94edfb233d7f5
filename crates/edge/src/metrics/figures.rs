//! The figures of a load record as metrics: name, unit and meaning of each. Nodes report their own figures by this table,
//! edges those of every node, to Prometheus and to Ganglia.

use prometheus_client::registry::Unit;
use sidelong_layout::{Detail, Hot, valid};

/// Whether a figure goes up and down, or only up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Gauge,
    Counter,
}

/// The name, unit, help and type of a family of metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    /// Name, without prefix and unit.
    pub(crate) name: &'a str,
    /// The unit, in which the name ends; empty for a plain number.
    pub(crate) unit: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: Kind,
}

impl Head<'_> {
    pub(crate) fn unit(&self) -> Option<Unit> {
        (!self.unit.is_empty()).then(|| Unit::Other(self.unit.to_owned()))
    }
}

/// A figure of the record's hot line.
pub(crate) struct HotFigure {
    pub(crate) head: Head<'static>,
    /// The bit of [`Hot::valid`] that is set if the figure holds a value.
    pub(crate) valid: u16,
    pub(crate) of: fn(&Hot) -> f64,
}

/// A figure of the record's detail part.
pub(crate) struct DetailFigure {
    pub(crate) head: Head<'static>,
    /// The label that distinguishes it from its neighbours of the same family.
    pub(crate) label: Option<(&'static str, &'static str)>,
    pub(crate) of: fn(&Detail) -> f64,
}

pub(super) const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Head<'static> {
    Head { name, unit, help, kind: Kind::Gauge }
}

pub(super) const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Head<'static> {
    Head { name, unit, help, kind: Kind::Counter }
}

const fn hot(head: Head<'static>, valid: u16, of: fn(&Hot) -> f64) -> HotFigure {
    HotFigure { head, valid, of }
}

/// All figures of the hot line.
pub(crate) const HOT: &[HotFigure] = &[
    hot(gauge("run_queue", "threads", "Threads that run or wait for a CPU"), valid::RUN_QUEUE, |hot| {
        hot.run_queue.into()
    }),
    hot(gauge("cpu", "ratio", "CPU in use, of what the node may use"), valid::CPU, |hot| {
        f64::from(hot.cpu_permille) / 1e3
    }),
    hot(gauge("memory", "ratio", "Memory in use, of what the node may use"), valid::MEMORY, |hot| {
        f64::from(hot.memory_permille) / 1e3
    }),
    hot(
        gauge(
            "network",
            "bytes_per_second",
            "Received and sent; where only the server counts, what it sends",
        ),
        valid::NETWORK,
        |hot| hot.net_bytes_per_s as f64,
    ),
    hot(
        gauge("pending", "interrupts", "Interrupts and softirqs raised and not yet served"),
        valid::INTERRUPTS,
        |hot| hot.pending_interrupts.into(),
    ),
    hot(
        gauge("open", "connections", "Connections to the server"),
        valid::ORIGIN | valid::CONNECTIONS,
        |hot| hot.connections.into(),
    ),
    hot(
        gauge("queued", "requests", "Requests that wait for a worker"),
        valid::ORIGIN | valid::CONNECTIONS,
        |hot| hot.queued.into(),
    ),
    hot(
        gauge(
            "bypassing",
            "connections",
            "Connections to the foreign server of others than the edges, of late",
        ),
        valid::CONNECTIONS,
        |hot| hot.bypassing().unwrap_or(0).into(),
    ),
    hot(gauge("busy", "workers", "Workers that serve a request"), valid::ORIGIN | valid::WORKERS, |hot| {
        hot.busy.into()
    }),
    hot(
        gauge("capacity", "workers", "Requests that the server handles at once"),
        valid::ORIGIN | valid::WORKERS,
        |hot| hot.workers.into(),
    ),
    hot(gauge("service_mean", "seconds", "Mean service time of a request"), valid::ORIGIN, |hot| {
        f64::from(hot.service_us().unwrap_or(0)) / 1e6
    }),
    hot(counter("served", "requests", "Requests served since the server started"), valid::ORIGIN, |hot| {
        hot.served as f64
    }),
];

const fn detail(head: Head<'static>, of: fn(&Detail) -> f64) -> DetailFigure {
    DetailFigure { head, label: None, of }
}

const fn labelled(
    head: Head<'static>,
    label: (&'static str, &'static str),
    of: fn(&Detail) -> f64,
) -> DetailFigure {
    DetailFigure { head, label: Some(label), of }
}

const LOAD_AVERAGE: Head<'static> =
    gauge("load_average", "", "Threads that run or wait, averaged over 1, 5 or 15 minutes");
const CPU_TIME: Head<'static> = counter("cpu", "seconds", "CPU time used, by mode");

/// All figures of the detail part that the kernel counts. A figure that the kernel did not give is 0, so a 0 is left out.
pub(crate) const DETAIL: &[DetailFigure] = &[
    labelled(LOAD_AVERAGE, ("minutes", "1"), |detail| f64::from(detail.load_1m_milli) / 1e3),
    labelled(LOAD_AVERAGE, ("minutes", "5"), |detail| f64::from(detail.load_5m_milli) / 1e3),
    labelled(LOAD_AVERAGE, ("minutes", "15"), |detail| f64::from(detail.load_15m_milli) / 1e3),
    detail(gauge("existing", "threads", "Threads that exist"), |detail| detail.threads.into()),
    labelled(CPU_TIME, ("mode", "user"), |detail| detail.cpu_user_ns as f64 / 1e9),
    labelled(CPU_TIME, ("mode", "system"), |detail| detail.cpu_system_ns as f64 / 1e9),
    labelled(CPU_TIME, ("mode", "iowait"), |detail| detail.cpu_iowait_ns as f64 / 1e9),
    labelled(CPU_TIME, ("mode", "idle"), |detail| detail.cpu_idle_ns as f64 / 1e9),
    detail(counter("context", "switches", "Context switches"), |detail| detail.context_switches as f64),
    detail(counter("served", "interrupts", "Interrupts served"), |detail| detail.interrupts as f64),
    detail(gauge("memory_used", "bytes", "Memory in use"), |detail| detail.memory_used_bytes as f64),
    detail(gauge("memory_size", "bytes", "Memory that the node may use"), |detail| {
        detail.memory_total_bytes as f64
    }),
    detail(counter("network_received", "bytes", "Received over the network"), |detail| {
        detail.net_received_bytes as f64
    }),
    detail(counter("network_sent", "bytes", "Sent over the network"), |detail| detail.net_sent_bytes as f64),
    detail(counter("network_received", "packets", "Received over the network"), |detail| {
        detail.net_received_packets as f64
    }),
    detail(counter("network_sent", "packets", "Sent over the network"), |detail| {
        detail.net_sent_packets as f64
    }),
    detail(gauge("established", "connections", "Established TCP connections"), |detail| {
        detail.tcp_established.into()
    }),
    detail(gauge("usable", "cpus", "CPUs that the node may use"), |detail| detail.cpus.into()),
];
