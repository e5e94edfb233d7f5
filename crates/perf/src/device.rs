//! RDMA devices: the target's host and the measuring side's initiator.

use crate::results::Completion;
use sidelong_fabric::control::{Endpoint, Secret};
use sidelong_fabric::verbs::{Completions, Device, DeviceSpec, VerbsHost};
use sidelong_fabric::{Host, Initiator};

use crate::args::DeviceArgs;
use sidelong_app::Failure;

/// A host that exposes regions through a device and `endpoint`.
pub(super) fn host(args: &DeviceArgs, endpoint: &Endpoint) -> Result<Host, Failure> {
    let device = open(args, Completion::Polling)?;
    Ok(Host::Verbs(VerbsHost::new(&device, endpoint)?))
}

/// An initiator on a device, and the device's description.
pub(super) fn initiator(
    args: &DeviceArgs,
    completion: Completion,
    secret: &Secret,
) -> Result<(Initiator, String), Failure> {
    let device = open(args, completion)?;
    Ok((Initiator::with_verbs(&device, secret)?, device.describe()))
}

fn open(args: &DeviceArgs, completion: Completion) -> Result<Device, Failure> {
    let DeviceArgs { device, port, gid_index } = args.clone();
    let completions = match completion {
        Completion::Polling => Completions::Polling,
        Completion::Events => Completions::Events,
    };
    Ok(Device::open(&DeviceSpec { device, port, gid_index, completions, ..DeviceSpec::default() })?)
}
