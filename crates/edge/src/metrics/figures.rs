//! The figures of a load record as metrics: what each is called, its unit, and what it means. Nodes tell their own by
//! it, edges what they see of each node, and Ganglia is told by it, too.

use prometheus_client::registry::Unit;
use sidelong_layout::{Detail, Hot, valid};

/// Whether a figure goes up and down, or only up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Gauge,
    Counter,
}

/// What a family of metrics is called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    /// Without what all names of the process begin with, and without the unit.
    pub(crate) name: &'a str,
    /// What the name ends in; empty for a bare number.
    pub(crate) unit: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: Kind,
}

impl Head<'_> {
    pub(crate) fn unit(&self) -> Option<Unit> {
        (!self.unit.is_empty()).then(|| Unit::Other(self.unit.to_owned()))
    }
}

/// A figure of the hot line.
pub(crate) struct HotFigure {
    pub(crate) head: Head<'static>,
    /// The bit of [`Hot::valid`] that says whether it holds a value.
    pub(crate) valid: u16,
    pub(crate) of: fn(&Hot) -> f64,
}

/// A figure of the detail part.
pub(crate) struct DetailFigure {
    pub(crate) head: Head<'static>,
    /// Tells it from the others of its family, which stand beside it.
    pub(crate) label: Option<(&'static str, &'static str)>,
    pub(crate) of: fn(&Detail) -> f64,
}

const fn gauge(name: &'static str, unit: &'static str, help: &'static str) -> Head<'static> {
    Head { name, unit, help, kind: Kind::Gauge }
}

const fn counter(name: &'static str, unit: &'static str, help: &'static str) -> Head<'static> {
    Head { name, unit, help, kind: Kind::Counter }
}

const fn hot(head: Head<'static>, valid: u16, of: fn(&Hot) -> f64) -> HotFigure {
    HotFigure { head, valid, of }
}

/// All that the hot line has.
pub(crate) const HOT: &[HotFigure] = &[
    hot(
        gauge("run_queue", "threads", "Threads that want a CPU, running or waiting"),
        valid::RUN_QUEUE,
        |hot| hot.run_queue.into(),
    ),
    hot(gauge("cpu", "ratio", "CPU in use, of all that the node may use"), valid::CPU, |hot| {
        f64::from(hot.cpu_permille) / 1e3
    }),
    hot(gauge("memory", "ratio", "Memory in use, of all that the node may use"), valid::MEMORY, |hot| {
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
    hot(gauge("open", "connections", "Connections to the server"), valid::ORIGIN, |hot| {
        hot.connections.into()
    }),
    hot(gauge("queued", "requests", "Requests that wait for a worker"), valid::ORIGIN, |hot| {
        hot.queued.into()
    }),
    hot(gauge("busy", "workers", "Workers that serve a request"), valid::ORIGIN, |hot| hot.busy.into()),
    hot(gauge("capacity", "workers", "Requests that the server works on at once"), valid::ORIGIN, |hot| {
        hot.workers.into()
    }),
    hot(gauge("service_mean", "seconds", "Mean time of service of a request"), valid::ORIGIN, |hot| {
        f64::from(hot.service_us) / 1e6
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
    gauge("load_average", "", "Threads that run or wait, averaged over so many minutes");
const CPU_TIME: Head<'static> = counter("cpu", "seconds", "CPU time used, by mode");

/// All that the detail part has of what the kernel counts. What could not be had is 0 there, so a 0 is not told.
pub(crate) const DETAIL: &[DetailFigure] = &[
    labelled(LOAD_AVERAGE, ("minutes", "1"), |detail| f64::from(detail.load_1m_milli) / 1e3),
    labelled(LOAD_AVERAGE, ("minutes", "5"), |detail| f64::from(detail.load_5m_milli) / 1e3),
    labelled(LOAD_AVERAGE, ("minutes", "15"), |detail| f64::from(detail.load_15m_milli) / 1e3),
    detail(gauge("existing", "threads", "Threads that there are"), |detail| detail.threads.into()),
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
    detail(gauge("established", "connections", "TCP connections that are established"), |detail| {
        detail.tcp_established.into()
    }),
    detail(gauge("usable", "cpus", "CPUs that the node may use"), |detail| detail.cpus.into()),
];
