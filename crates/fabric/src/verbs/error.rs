//! Why a device cannot be used, and what to do about it, in one line each.

use std::io;

/// Why an RDMA device could not be opened, or failed.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The library is not installed, or is too old.
    #[error(
        "libibverbs cannot be loaded: {reason} (apt-get install libibverbs1 ibverbs-providers, or use tcp)"
    )]
    NoLibrary {
        /// What the dynamic linker says.
        reason: &'static str,
    },
    /// The machine has no device.
    #[error(
        "no RDMA device: /sys/class/infiniband is empty (load the adapter's driver, or for one in software: \
         modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0)"
    )]
    NoDevice,
    /// The machine has other devices.
    #[error("no RDMA device {device}: this machine has {found}")]
    OtherDevice {
        /// The device asked for.
        device: String,
        /// The devices found.
        found: String,
    },
    /// No device has an active port.
    #[error("no active port on {found}: is the link up? (rdma link show)")]
    NoActivePort {
        /// The devices found.
        found: String,
    },
    /// The device has no such port.
    #[error("{device} has no port {port}: it has 1 to {ports}")]
    NoPort {
        /// The device.
        device: String,
        /// The port asked for.
        port: u8,
        /// The number of its ports.
        ports: u8,
    },
    /// The port's link is down.
    #[error("port {port} of {device} is not active: bring its link up (rdma link show {device})")]
    PortDown {
        /// The device.
        device: String,
        /// The port.
        port: u8,
    },
    /// The port has no address at that index.
    #[error("port {port} of {device} has no GID at index {index}: it has {found}")]
    NoGid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
        /// The index asked for.
        index: u8,
        /// The addresses found.
        found: String,
    },
    /// The port has no routable address.
    #[error(
        "port {port} of {device} has no GID for RoCE version 2: give its network interface an IP address"
    )]
    NoRoutableGid {
        /// The device.
        device: String,
        /// The port.
        port: u8,
    },
    /// An iWARP device.
    #[error("{device} is an iWARP device, which needs the RDMA connection manager: use tcp")]
    Iwarp {
        /// The device.
        device: String,
    },
    /// The device's files may not be opened.
    #[error(
        "{device}: permission denied: /dev/infiniband/uverbs* must be readable and writable by this user"
    )]
    Permission {
        /// The device.
        device: String,
    },
    /// The memory cannot be pinned.
    #[error(
        "cannot pin {need} bytes for {device}: RLIMIT_MEMLOCK is {limit} in all; raise it (ulimit -l, systemd's \
         LimitMEMLOCK=)"
    )]
    Locked {
        /// The device.
        device: String,
        /// The bytes to be registered.
        need: usize,
        /// The limit in bytes.
        limit: u64,
    },
    /// The device lacks atomics, which locks and moves need.
    #[error("{device} has no atomics (its atomic_cap is NONE): use another device, or tcp")]
    NoAtomics {
        /// The device.
        device: String,
    },
    /// The device's byte order differs from this machine's CPU.
    #[error(
        "{device}: atomics give {found:#x} where {expected:#x} stood: its byte order is another; use tcp with it"
    )]
    AtomicOrder {
        /// The device.
        device: String,
        /// The value returned.
        found: u64,
        /// The value expected.
        expected: u64,
    },
    /// Any other call that failed.
    #[error("{device}: {call}: {source}")]
    Call {
        /// The device.
        device: String,
        /// The verb.
        call: &'static str,
        /// The system's error.
        source: io::Error,
    },
}
