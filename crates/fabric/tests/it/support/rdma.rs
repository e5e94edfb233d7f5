//! The device that all tests of a process share.

use std::io::{self, Write as _};
use std::sync::OnceLock;

use sidelong_fabric::control::Secret;
use sidelong_fabric::verbs::{Completions, Device, DeviceSpec, RETRIES_MAX};

/// Set to wait by events instead of polling.
const EVENTS: &str = "SIDELONG_TEST_EVENTS";

/// The device, or `None` with a printed reason.
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

/// Prints why a test is skipped.
pub(crate) fn skipped<T>(why: &str) -> Option<T> {
    // If this cannot be written, there is no one to tell.
    let _ = writeln!(io::stderr(), "SKIPPED: verbs: {why}");
    None
}

pub(crate) fn secret() -> Secret {
    Secret::new(b"known to all tests of verbs").unwrap()
}
