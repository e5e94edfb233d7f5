//! RDMA devices, if the program was built with verbs: the target's host and the measuring side's initiator.

use sidelong_fabric::control::{Endpoint, Secret};
#[cfg(feature = "verbs")]
use sidelong_fabric::verbs::{Completions, Device, DeviceSpec, VerbsHost};
use sidelong_fabric::{Host, Initiator};
use sidelong_lab::results::perf::Completion;

use crate::failure::Failure;
use crate::perf::args::DeviceArgs;

/// A host that offers regions through a device and `endpoint`.
#[cfg(feature = "verbs")]
pub(super) fn host(args: &DeviceArgs, endpoint: &Endpoint) -> Result<Host, Failure> {
    let device = open(args, Completion::Polling)?;
    Ok(Host::Verbs(VerbsHost::new(&device, endpoint)?))
}

/// An initiator on a device, and the device's description.
#[cfg(feature = "verbs")]
pub(super) fn initiator(
    args: &DeviceArgs,
    completion: Completion,
    secret: &Secret,
) -> Result<(Initiator, String), Failure> {
    let device = open(args, completion)?;
    Ok((Initiator::with_verbs(&device, secret)?, device.describe()))
}

#[cfg(feature = "verbs")]
fn open(args: &DeviceArgs, completion: Completion) -> Result<Device, Failure> {
    let DeviceArgs { device, port, gid_index } = args.clone();
    let completions = match completion {
        Completion::Polling => Completions::Polling,
        Completion::Events => Completions::Events,
    };
    Ok(Device::open(&DeviceSpec { device, port, gid_index, completions, ..DeviceSpec::default() })?)
}

#[cfg(not(feature = "verbs"))]
pub(super) fn host(_: &DeviceArgs, _: &Endpoint) -> Result<Host, Failure> {
    Err(none())
}

#[cfg(not(feature = "verbs"))]
pub(super) fn initiator(_: &DeviceArgs, _: Completion, _: &Secret) -> Result<(Initiator, String), Failure> {
    Err(none())
}

#[cfg(not(feature = "verbs"))]
fn none() -> Failure {
    Failure::new(
        "this program was built without verbs: build it with --features verbs, or measure --fabric tcp",
    )
}
