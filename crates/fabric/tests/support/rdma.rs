//! The verbs backend as the conformance suite sees it, and the device that all tests of a process share.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use sidelong_fabric::control::{Endpoint, Secret};
use sidelong_fabric::verbs::{Completions, Device, DeviceSpec, RETRIES_MAX, VerbsHost};
use sidelong_fabric::{Host, Initiator, Region};

use crate::backends::Backend;

/// Set where the loopback interface may be cut: in a guest that nobody else uses, one test at a time.
const MAY_CUT: &str = "SIDELONG_TEST_CUTS_LO";
/// Waits by events in place of polling.
const EVENTS: &str = "SIDELONG_TEST_EVENTS";

/// The device, or none, having said why.
pub(crate) fn device() -> Option<&'static Device> {
    static DEVICE: OnceLock<Result<Device, String>> = OnceLock::new();
    let events = std::env::var_os(EVENTS).is_some();
    let completions = if events { Completions::Events } else { Completions::Polling };
    let spec = DeviceSpec { completions, retries: RETRIES_MAX, ..DeviceSpec::default() };
    match DEVICE.get_or_init(|| Device::open(&spec).map_err(|error| error.to_string())) {
        Ok(device) => Some(device),
        Err(why) => skipped(why),
    }
}

fn skipped<T>(why: &str) -> Option<T> {
    // Nobody is left to be told where this cannot be written.
    let _ = writeln!(io::stderr(), "SKIPPED: verbs: {why}");
    None
}

pub(crate) fn secret() -> Secret {
    Secret::new(b"known to all tests of verbs").unwrap()
}

/// Each node's endpoint has the address that it had in its earlier lives.
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
        std::env::var_os(MAY_CUT).is_some() || skipped::<()>(&format!("{MAY_CUT} is not set")).is_some()
    }

    fn stall(&self, _: &str) {
        cut("add");
    }

    fn resume(&self, _: &str) {
        cut("del");
    }
}

/// Has the loopback interface lose every frame, or none. What was lost is sent again.
fn cut(change: &str) {
    let tc = ["qdisc", change, "dev", "lo", "root", "netem", "loss", "100%"];
    assert!(Command::new("tc").args(tc).status().unwrap().success());
}
