//! The backends as the conformance suite uses them: nodes that expose, stall, die and come back.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use sidelong_fabric::control::Endpoint;
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::sim::{Faults, Network};
use sidelong_fabric::tcp::TcpHost;
use sidelong_fabric::verbs::{Device, VerbsHost};
use sidelong_fabric::{Host, Initiator, Region};

use crate::support::rdma::{device, secret, skipped};
use crate::support::relay::{Passing, Relay};

/// One backend, fresh for each property. To the backend, each node is a process of its own.
pub(crate) trait Backend {
    /// Whether memory, links and keys outlive the process that exposed the memory. True for shm; on the others a
    /// process takes its memory with it.
    const MEMORY_OUTLIVES_ITS_PROCESS: bool;
    /// Whether nothing can be late, because the initiator's CPU does the work. True for shm.
    const NEVER_LATE: bool;

    /// `None`, with a printed reason, if this machine lacks it.
    fn new() -> Option<Self>
    where
        Self: Sized;

    fn initiator() -> Initiator {
        Initiator::new()
    }

    /// Starts or restarts the process on `node`.
    fn start(&self, node: &str) -> Host;

    /// Kills the process on `node`, which held these regions.
    fn kill(&self, node: &str, host: Host, region: Region);

    /// Makes the process on `node` die in the middle of the next batch.
    fn kill_during_the_next_batch(&self, node: &str, host: &Host);

    /// Whether targets can be stalled; if not, it prints the reason.
    fn can_stall(&self) -> bool {
        true
    }

    /// Operations on `node` take effect from now on, but are not answered until `resume`.
    fn stall(&self, node: &str);

    fn resume(&self, node: &str);
}

pub(crate) struct Shm {
    directory: tempfile::TempDir,
}

impl Backend for Shm {
    const MEMORY_OUTLIVES_ITS_PROCESS: bool = true;
    const NEVER_LATE: bool = true;

    fn new() -> Option<Self> {
        Some(Shm { directory: tempfile::tempdir().unwrap() })
    }

    fn start(&self, _: &str) -> Host {
        Host::Shm(ShmHost::new(self.directory.path()))
    }

    fn kill(&self, _: &str, _: Host, _: Region) {}

    fn kill_during_the_next_batch(&self, _: &str, _: &Host) {}

    fn stall(&self, _: &str) {}

    fn resume(&self, _: &str) {}
}

/// Each node is behind a relay. Its keys hold the relay's address, which survives restarts.
pub(crate) struct Tcp {
    relays: RefCell<BTreeMap<String, Relay>>,
}

impl Tcp {
    fn relay(&self, node: &str) -> Relay {
        self.relays.borrow_mut().entry(node.to_owned()).or_insert_with(Relay::start).clone()
    }
}

impl Backend for Tcp {
    const MEMORY_OUTLIVES_ITS_PROCESS: bool = false;
    const NEVER_LATE: bool = false;

    fn new() -> Option<Self> {
        Some(Tcp { relays: RefCell::default() })
    }

    fn start(&self, node: &str) -> Host {
        let relay = self.relay(node);
        let host = TcpHost::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        relay.set_target(host.address());
        relay.pass(Passing::Everything);
        Host::Tcp(host.advertising(relay.address()))
    }

    fn kill(&self, _: &str, _: Host, _: Region) {}

    fn kill_during_the_next_batch(&self, node: &str, _: &Host) {
        self.relay(node).pass(Passing::UntilAnswered(10_001));
    }

    fn stall(&self, node: &str) {
        self.relay(node).pass(Passing::Requests);
    }

    fn resume(&self, node: &str) {
        self.relay(node).pass(Passing::Everything);
    }
}

pub(crate) struct Sim {
    network: Network,
}

impl Backend for Sim {
    const MEMORY_OUTLIVES_ITS_PROCESS: bool = false;
    const NEVER_LATE: bool = false;

    fn new() -> Option<Self> {
        Some(Sim { network: Network::new(7, Faults::default()) })
    }

    fn start(&self, node: &str) -> Host {
        let host = self.network.host(node);
        self.network.restart(&host);
        Host::Sim(host)
    }

    fn kill(&self, node: &str, _: Host, _: Region) {
        self.network.crash(&self.network.host(node));
    }

    fn kill_during_the_next_batch(&self, node: &str, _: &Host) {
        let soon = self.network.now() + Duration::from_micros(2);
        self.network.crash_at(soon, &self.network.host(node));
    }

    fn stall(&self, _: &str) {
        self.network.set_faults(Faults { late_permille: 1000, ..Faults::default() });
    }

    fn resume(&self, _: &str) {
        self.network.set_faults(Faults::default());
    }
}

/// Each node's endpoint keeps its address across lives.
pub(crate) struct Verbs {
    device: &'static Device,
    addresses: RefCell<BTreeMap<String, SocketAddr>>,
}

impl Backend for Verbs {
    const MEMORY_OUTLIVES_ITS_PROCESS: bool = false;
    const NEVER_LATE: bool = false;

    fn new() -> Option<Self> {
        Some(Verbs { device: device()?, addresses: RefCell::default() })
    }

    fn initiator() -> Initiator {
        Initiator::with_verbs(device().unwrap(), &secret()).unwrap()
    }

    fn start(&self, node: &str) -> Host {
        let mut addresses = self.addresses.borrow_mut();
        let address = addresses.get(node).copied().unwrap_or_else(|| "127.0.0.1:0".parse().unwrap());
        let endpoint = Endpoint::listen(address, secret()).unwrap();
        addresses.insert(node.to_owned(), endpoint.address());
        Host::Verbs(VerbsHost::new(self.device, &endpoint).unwrap())
    }

    fn kill(&self, _: &str, _: Host, _: Region) {}

    fn kill_during_the_next_batch(&self, _: &str, host: &Host) {
        let Host::Verbs(host) = host else { unreachable!("this backend's") };
        let host = host.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(1));
            for connected in host.connected() {
                host.evict(connected.id);
            }
        });
    }

    fn can_stall(&self) -> bool {
        skipped::<()>("a device answers whatever its machine does, and nobody comes between two ends of one")
            .is_some()
    }

    fn stall(&self, _: &str) {}

    fn resume(&self, _: &str) {}
}
