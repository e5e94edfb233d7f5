//! The time that each part of a node takes for its work, in ns. [`crate::fields`] has the source of each figure.

/// Time for each byte, as a fraction: ns in 2^20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PerByte {
    ns_per_mib: u64,
}

impl PerByte {
    /// The cost of a part that moves `mb_per_s` million bytes a second.
    pub fn of_rate(mb_per_s: f64) -> Self {
        PerByte { ns_per_mib: (f64::from(1 << 20) * 1e3 / mb_per_s).round() as u64 }
    }

    /// The cost of a part that takes `us_per_kib` for 1,024 bytes.
    pub fn of_time(us_per_kib: f64) -> Self {
        PerByte { ns_per_mib: (us_per_kib * 1e3 * 1024.0).round() as u64 }
    }

    /// The time for `bytes`, in ns.
    #[inline]
    pub fn ns(self, bytes: u32) -> u64 {
        // Below 2^32 bytes at up to 2^31 ns/MiB (0.5 MB/s, the slowest that the fields allow): it fits.
        (u64::from(bytes) * self.ns_per_mib) >> 20
    }
}

/// The costs of all parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// CPU for a client's request, and for each byte of the answer to it.
    pub request_ns: u64,
    /// See `request_ns`.
    pub answer: PerByte,
    /// CPU to start a one-sided read, and to take its completion.
    pub post_ns: u64,
    /// See `post_ns`.
    pub completion_ns: u64,
    /// CPU for a message between nodes over the fast network, on either side.
    pub message_ns: u64,
    /// CPU of the receiver for each change in a message.
    pub change_ns: u64,
    /// CPU for a message of the RPC baseline and for each of its bytes, on either side.
    pub rpc_ns: u64,
    /// See `rpc_ns`.
    pub rpc_copy: PerByte,
    /// CPU to make an object's memory readable for other nodes when it is loaded.
    pub pin_ns: u64,
    /// From one node's NIC through the switch to another's, one way.
    pub wire_ns: u64,
    /// From one node's NIC through the switch to another's, one way, for RPC, whose NICs interrupt.
    pub rpc_wire_ns: u64,
    /// NIC for each operation, and links for each byte.
    pub nic_ns: u64,
    /// See `nic_ns`.
    pub link: PerByte,
    /// Disk for each access and each byte.
    pub disk_ns: u64,
    /// See `disk_ns`.
    pub disk: PerByte,
    /// Cores of a node's CPU.
    pub cores: usize,
    /// Accesses that a node's disk makes at a time.
    pub disk_depth: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time() {
        assert_eq!(PerByte::of_rate(100.0).ns(1_000_000), 10_000_000);
        assert_eq!(PerByte::of_time(13.6).ns(2_048), 27_200);
        assert_eq!(PerByte::of_rate(50_000.0).ns(1 << 20), 20_972);
        // The slowest rate and the largest object.
        assert_eq!(PerByte::of_rate(0.5).ns(u32::MAX) / 1_000_000_000, 8_589);
    }
}
