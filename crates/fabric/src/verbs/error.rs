//! Why a device cannot be used, each in one line that says what to do.

use std::io;

/// Why an RDMA device could not be opened, or did not do what was asked of it.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The library is not there.
    #[error(
        "verbs is not to be had: no libibverbs.so.1 (install Debian's libibverbs1 and ibverbs-providers, or use tcp)"
    )]
    NoLibrary,
    /// The machine has no device.
    #[error(
        "no RDMA device: /sys/class/infiniband is empty (load the adapter's driver, or for one in software: \
         modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0)"
    )]
    NoDevice,
    /// The machine has others.
    #[error("no RDMA device {device}: this machine has {found}")]
    OtherDevice {
        /// As asked for.
        device: String,
        /// Those there are.
        found: String,
    },
    /// No device has a port that is active.
    #[error("no active port on {found}: is the link up? (rdma link show)")]
    NoActivePort {
        /// The devices that were looked at.
        found: String,
    },
    /// The device has no such port.
    #[error("{device} has no port {port}: it has 1 to {ports}")]
    NoPort {
        /// Which device.
        device: String,
        /// As asked for.
        port: u8,
        /// How many there are.
        ports: u8,
    },
    /// The port's link is down.
    #[error("port {port} of {device} is not active: bring its link up (rdma link show {device})")]
    PortDown {
        /// Which device.
        device: String,
        /// Which port.
        port: u8,
    },
    /// The port has no such address.
    #[error("port {port} of {device} has no GID at index {index}: it has {found}")]
    NoGid {
        /// Which device.
        device: String,
        /// Which port.
        port: u8,
        /// As asked for.
        index: u8,
        /// The addresses there are.
        found: String,
    },
    /// The port has no address that others could reach.
    #[error(
        "port {port} of {device} has no GID for RoCE version 2: give its network interface an IP address"
    )]
    NoRoutableGid {
        /// Which device.
        device: String,
        /// Which port.
        port: u8,
    },
    /// A device whose connections are set up by TCP.
    #[error("{device} speaks iWARP, which needs the RDMA connection manager: use tcp with it")]
    Iwarp {
        /// Which device.
        device: String,
    },
    /// The files of the device may not be opened.
    #[error(
        "{device}: permission denied: /dev/infiniband/uverbs* must be readable and writable by this user"
    )]
    Permission {
        /// Which device.
        device: String,
    },
    /// Memory cannot be pinned.
    #[error(
        "cannot pin {need} bytes for {device}: RLIMIT_MEMLOCK is {limit} in all; raise it (ulimit -l, systemd's \
         LimitMEMLOCK=)"
    )]
    Locked {
        /// Which device.
        device: String,
        /// What was to be registered.
        need: usize,
        /// The limit in bytes.
        limit: u64,
    },
    /// The device has no atomics, without which nothing is locked or moved.
    #[error("{device} has no atomics (its atomic_cap is NONE): use another device, or tcp")]
    NoAtomics {
        /// Which device.
        device: String,
    },
    /// The device counts otherwise than this machine's CPU.
    #[error(
        "{device}: atomics give {found:#x} where {expected:#x} stood: its byte order is another; use tcp with it"
    )]
    AtomicOrder {
        /// Which device.
        device: String,
        /// What came back.
        found: u64,
        /// What was there.
        expected: u64,
    },
    /// Any other call that failed.
    #[error("{device}: {call}: {source}")]
    Call {
        /// Which device.
        device: String,
        /// The verb.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
}
