//! Sends a Ganglia monitor the figures of all nodes, as if each node had run gmetric (Vaidyanathan et al. 2006, 5.2.2).
//! The edge has them from its view; no node is asked.
//!
//! Figures that are too old to decide from are not sent, so Ganglia's own ages (TN) grow for a node that is gone or hangs.
//! Packets are small datagrams, sent without acknowledgement; those that the system refuses are counted.

mod wire;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sidelong_layout::{Hot, Slots, Time};
use sidelong_os::Worker;

use crate::clock;
use crate::metrics::{Counts, Figure, HOT, Kind};
use crate::seen::ScanDisplay;
use crate::settings::NodeAddress;
use wire::{Description, Name, Slope};

/// gmond forgets a figure without values after this many periods, and this many seconds at least.
const FORGET: (u32, u32) = (4, 60);

/// The monitor, and how often it is sent figures.
#[derive(Clone, Debug)]
pub struct GangliaSettings {
    /// Address of a gmond's `udp_recv_channel`.
    pub gmond: SocketAddr,
    /// Time between two values of a figure.
    pub period: Duration,
    /// Time between two descriptions of a figure.
    pub metadata: Duration,
    /// Group under which Ganglia shows the figures.
    pub group: String,
    /// Prefix of each figure's name.
    pub prefix: String,
}

/// Packets by outcome.
#[derive(Debug, Default)]
struct Packets {
    sent: AtomicU64,
    failed: AtomicU64,
}

/// A sender that is ready to start.
#[derive(Debug)]
pub struct Ganglia {
    settings: GangliaSettings,
    socket: UdpSocket,
    packets: Arc<Packets>,
}

impl Ganglia {
    /// A sender.
    ///
    /// # Errors
    /// If the address cannot be reached.
    pub fn new(settings: GangliaSettings) -> io::Result<Self> {
        let any: IpAddr = match settings.gmond {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(settings.gmond)?;
        // With a full buffer a packet is dropped.
        socket.set_nonblocking(true)?;
        Ok(Ganglia { settings, socket, packets: Arc::default() })
    }

    /// Its counters, for the edge's metrics.
    pub fn counts(&self) -> Counts {
        let packets = Arc::clone(&self.packets);
        let read = move || {
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            vec![("sent", count(&packets.sent)), ("failed", count(&packets.failed))]
        };
        Counts {
            name: "ganglia_packets",
            help: "Packets for the Ganglia monitor, by outcome",
            label: "end",
            read: Box::new(read),
        }
    }

    /// Starts to send the figures in `seen`, of the `nodes` that there are then.
    ///
    /// # Errors
    /// If the thread cannot start.
    pub fn start(
        self,
        seen: Arc<ScanDisplay>,
        nodes: impl Fn() -> Slots<NodeAddress> + Send + 'static,
    ) -> io::Result<Worker> {
        let mut work = Work { ganglia: self, described: BTreeMap::new(), packet: Vec::new() };
        Worker::start("ganglia", move |stop| work.run(&seen, nodes, stop))
    }
}

/// The host under which gmond lists each node. gmond tells hosts apart by the part before the colon, where gmetric puts
/// an address. A node that shares its address, or whose address contains colons, has its name there.
fn hosts(nodes: &Slots<NodeAddress>) -> Slots<String> {
    let ip = |node: &NodeAddress| node.addresses.iter().find_map(|address| Some(address.tcp()?.ip()));
    let mut sharing = BTreeMap::<IpAddr, usize>::new();
    for ip in nodes.values().filter_map(ip) {
        *sharing.entry(ip).or_default() += 1;
    }
    let host = |node: &NodeAddress| match (&node.name, ip(node)) {
        (name, Some(ip)) if ip.is_ipv4() && sharing[&ip] == 1 => format!("{ip}:{name}"),
        (name, _) => format!("{name}:{name}"),
    };
    nodes.map(host)
}

/// The figures of one node that gmond has descriptions of.
#[derive(Clone, Copy, Debug, Default)]
struct Described {
    /// A bit for each of [`HOT`].
    figures: u32,
    /// When a description was last sent.
    since: Option<Time>,
}

const _: () = assert!(HOT.len() <= 32, "a bit for each");

struct Work {
    ganglia: Ganglia,
    /// By host.
    described: BTreeMap<String, Described>,
    packet: Vec<u8>,
}

impl Work {
    fn run(&mut self, seen: &ScanDisplay, nodes: impl Fn() -> Slots<NodeAddress>, stop: &AtomicBool) {
        let period = self.ganglia.settings.period;
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now < next {
                // It may wake early, because it is stopped or spuriously.
                std::thread::park_timeout(next - now);
                continue;
            }
            // A fixed rate; missed periods are not made up for.
            next = (next + period).max(now);
            self.tell(seen, &nodes());
        }
    }

    fn tell(&mut self, seen: &ScanDisplay, nodes: &Slots<NodeAddress>) {
        let look = seen.last();
        let now = clock::now();
        let hosts = hosts(nodes);
        self.described.retain(|described, _| hosts.values().any(|host| host == described));
        for (slot, host) in hosts.entries() {
            let Some(hot) = seen.fresh(&look.nodes[slot], now) else { continue };
            let described = self.described.entry(host.clone()).or_default();
            let is_old = |since| now.since(since) >= self.ganglia.settings.metadata;
            if described.since.is_none_or(is_old) {
                *described = Described { figures: 0, since: Some(now) };
            }
            for (bit, figure) in HOT.iter().enumerate().filter(|(_, figure)| hot.valid & figure.valid != 0) {
                self.tell_figure(host, bit, figure, hot);
            }
        }
    }

    fn tell_figure(&mut self, host: &str, bit: usize, figure: &Figure, hot: &Hot) {
        let settings = &self.ganglia.settings;
        let figure_name = format!("{}{}_{}", settings.prefix, figure.head.name, figure.head.unit);
        let name = Name { host, figure: &figure_name };
        let (kind, value) = written(figure, hot);
        let described = self.described.entry(host.to_owned()).or_default();
        if described.figures & 1 << bit == 0 {
            described.figures |= 1 << bit;
            let tmax_s = u32::try_from(settings.period.as_secs_f64().ceil() as u64).unwrap_or(u32::MAX);
            let description = Description {
                kind,
                units: figure.head.unit,
                slope: match figure.head.kind {
                    Kind::Gauge => Slope::Both,
                    Kind::Counter => Slope::Positive,
                },
                tmax_s,
                dmax_s: tmax_s.saturating_mul(FORGET.0).max(FORGET.1),
                group: &settings.group,
                text: figure.head.help,
            };
            wire::metadata(&mut self.packet, &name, &description);
            self.ganglia.send(&self.packet);
        }
        wire::value(&mut self.packet, &name, &value);
        self.ganglia.send(&self.packet);
    }
}

impl Ganglia {
    fn send(&self, packet: &[u8]) {
        // The error may concern an earlier packet, if no process listens there.
        let counter = match self.socket.send(packet) {
            Ok(_) => &self.packets.sent,
            Err(_) => &self.packets.failed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// A figure's Ganglia type and value. Counters outgrow 32 bits, and Ganglia has no larger integer.
fn written(figure: &Figure, hot: &Hot) -> (&'static str, String) {
    let value = (figure.of)(hot);
    let is_count = figure.head.kind == Kind::Gauge
        && !matches!(figure.head.unit, "ratio" | "seconds" | "bytes_per_second");
    (if is_count { "uint32" } else { "double" }, value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node_at(name: &str, address: SocketAddr) -> NodeAddress {
        NodeAddress { name: name.into(), addresses: vec![address.into()], http2: false }
    }

    #[test]
    fn hosts_are_told_apart_by_what_stands_before_the_colon() {
        let node = |name: &str, address: &str| node_at(name, address.parse().unwrap());
        let nodes = [
            node("n1", "10.0.0.1:80"),
            node("n2", "10.0.0.2:80"),
            node("n3", "10.0.0.2:81"),
            node("n4", "[fd00::1]:80"),
        ];
        let hosts = hosts(&nodes.into_iter().collect());
        let hosts: Vec<_> = hosts.values().collect();
        assert_eq!(hosts, ["10.0.0.1:n1", "n2:n2", "n3:n3", "n4:n4"]);
    }

    #[test]
    fn values_are_written_as_their_type_has_them() {
        let hot = Hot {
            run_queue: 7,
            cpu_permille: 250,
            served: 123_456_789_012,
            net_bytes_per_s: 10_000_000_000,
            ..Hot::default()
        };
        let of = |name| written(HOT.iter().find(|figure| figure.head.name == name).unwrap(), &hot);
        assert_eq!(of("run_queue"), ("uint32", "7".to_owned()));
        assert_eq!(of("cpu"), ("double", "0.25".to_owned()));
        assert_eq!(of("served"), ("double", "123456789012".to_owned()));
        assert_eq!(of("network"), ("double", "10000000000".to_owned()));
        for (index, figure) in HOT.iter().enumerate() {
            assert!(!figure.head.unit.is_empty(), "{}", figure.head.name);
            let name = |figure: &Figure| (figure.head.name, figure.head.unit);
            assert!(HOT[..index].iter().all(|other| name(other) != name(figure)), "{}", figure.head.name);
        }
    }

    /// The names and values that arrive at `monitor`, until none arrives for a while.
    fn heard(monitor: &UdpSocket) -> Vec<(u32, String)> {
        let mut heard = Vec::new();
        let mut packet = [0; 2048];
        while let Ok(length) = monitor.recv(&mut packet) {
            let id = u32::from_be_bytes(packet[..4].try_into().unwrap());
            heard.push((id, String::from_utf8_lossy(&packet[4..length]).into_owned()));
        }
        heard
    }

    #[test]
    fn what_is_stale_is_not_told_and_what_is_new_is_described_first() {
        let monitor = UdpSocket::bind("127.0.0.1:0").unwrap();
        monitor.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let settings = GangliaSettings {
            gmond: monitor.local_addr().unwrap(),
            period: Duration::from_secs(15),
            metadata: Duration::from_secs(3600),
            group: "g".into(),
            prefix: "p_".into(),
        };
        let node = |name: &str, port| node_at(name, ([127, 0, 0, 1], port).into());
        let nodes = [node("n1", 1), node("n2", 2)].into_iter().collect();
        let ganglia = Ganglia::new(settings).unwrap();
        let counts = ganglia.counts();
        let mut work = Work { ganglia, described: BTreeMap::new(), packet: Vec::new() };
        let hot = Hot { valid: sidelong_layout::valid::CPU, ..Hot::default() };
        let seen = ScanDisplay::of_records(
            Duration::from_secs(3600),
            &[(Some(hot), clock::now()), (None, clock::now())],
        );

        work.tell(&seen, &nodes);
        let first = heard(&monitor);
        assert_eq!(first.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [128, 133], "{first:?}");
        assert!(
            first.iter().all(|(_, text)| text.contains("n1:n1") && text.contains("p_cpu_ratio")),
            "{first:?}"
        );
        work.tell(&seen, &nodes);
        let second = heard(&monitor);
        assert_eq!(second.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [133], "described once: {second:?}");
        assert_eq!((counts.read)(), [("sent", 3), ("failed", 0)]);

        let old = ScanDisplay::of_records(
            Duration::ZERO,
            &[(Some(hot), Time::from_ns(1)), (None, Time::from_ns(1))],
        );
        work.tell(&old, &nodes);
        assert_eq!(heard(&monitor), []);
        work.ganglia.settings.metadata = Duration::ZERO;
        work.tell(&seen, &nodes);
        assert_eq!(heard(&monitor).len(), 2, "described again when it is time");
    }

    #[test]
    fn nobody_there_is_counted_and_no_matter() {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let settings = GangliaSettings {
            gmond: free,
            period: Duration::from_millis(1),
            metadata: Duration::from_millis(1),
            group: "g".into(),
            prefix: "p_".into(),
        };
        let node = node_at("n", free);
        let ganglia = Ganglia::new(settings).unwrap();
        let counts = ganglia.counts();
        let hot = Hot { valid: sidelong_layout::valid::ALL, ..Hot::default() };
        let seen = ScanDisplay::of_records(Duration::from_secs(3600), &[(Some(hot), clock::now())]);
        let thread = ganglia.start(Arc::new(seen), move || [node.clone()].into_iter().collect()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while (counts.read)()[1].1 == 0 {
            assert!(Instant::now() < deadline, "{:?}", (counts.read)());
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(thread);
    }
}
