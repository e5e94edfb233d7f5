//! A device as an operator names it: found, checked and opened, and shared by initiators and hosts.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::DeviceError;
use super::sys::{
    AtomicClass, CompletionQueue, Context, Gid, Library, Limits, MemoryRegion, Note, Peer, Port,
    ProtectionDomain, QueuePair, Registered, Rights, Timers, Work,
};
use crate::memory::Memory;

/// Reads and atomics in flight between two queue pairs: what most adapters support.
const READS_MAX: u8 = 16;
/// Most retries that may be configured. With 7, a read from a dead peer was seen to hang for more than 20 s.
pub const RETRIES_MAX: u8 = 6;
/// The acknowledgement timeout: 4.096 us doubled 13 times, 34 ms (IBA volume 1, 9.7.6.1.3). Soft-RoCE waits one timeout
/// more than its retries, the first of them shorter: with a timeout of 14 and 2 retries, a dead peer was reported after
/// 152 to 210 ms.
const TIMEOUT: u8 = 13;
/// Longest time for an atomic of the device on itself.
const CHECK_WAIT: Duration = Duration::from_secs(5);

/// How to wait for completions.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Completions {
    /// Polling: the lowest latency, and a whole CPU while it waits.
    #[default]
    Polling,
    /// Sleeping until the device signals.
    Events,
}

/// Which device to use, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceSpec {
    /// Its name as `ibv_devices` prints it. By default the first device with an active port.
    pub device: Option<String>,
    /// Its port, counted from 1. By default the first active port.
    pub port: Option<u8>,
    /// Index of the port's address. By default the first of RoCE version 2; 0 on InfiniBand.
    pub gid_index: Option<u8>,
    /// How initiators wait.
    pub completions: Completions,
    /// Retries of a request that is not acknowledged within 34 ms, at most 6. With 2, a dead machine is reported within
    /// 200 ms.
    pub retries: u8,
}

impl Default for DeviceSpec {
    fn default() -> Self {
        DeviceSpec {
            device: None,
            port: None,
            gid_index: None,
            completions: Completions::Polling,
            retries: 2,
        }
    }
}

/// Failures of a device since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Failed completions that ended a link.
    pub completions_in_error: u64,
    /// New links to regions whose earlier link had failed.
    pub reconnects: u64,
    /// Connections refused as a target.
    pub refused: u64,
}

/// An open device. Clones are the same device.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    context: Arc<Context>,
    name: String,
    port_number: u8,
    port: Port,
    gid: Gid,
    limits: Limits,
    class: AtomicClass,
    spec: DeviceSpec,
    tallies: Tallies,
}

/// The counters behind [`Counters`].
#[derive(Debug, Default)]
pub(super) struct Tallies {
    pub(super) completions_in_error: AtomicU64,
    pub(super) reconnects: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.describe())
    }
}

impl Device {
    /// Opens the device that `spec` names, and lets it perform two atomics on itself as a check.
    ///
    /// # Errors
    /// If it does not exist, may not be used, or lacks what Sidelong needs.
    pub fn open(spec: &DeviceSpec) -> Result<Device, DeviceError> {
        let library = Library::get().map_err(|reason| DeviceError::NoLibrary { reason })?;
        let names = names(library)?;
        let candidates: Vec<&String> = match &spec.device {
            Some(wanted) => names.iter().filter(|name| *name == wanted).collect(),
            None => names.iter().collect(),
        };
        if candidates.is_empty() {
            let device = spec.device.clone().unwrap_or_default();
            return Err(DeviceError::OtherDevice { device, found: names.join(", ") });
        }
        let mut first_error = None;
        for name in candidates {
            match Device::open_named(library, name, spec) {
                Ok(device) => return Ok(device),
                // Another device may do. If none does, the operator is told what the first one lacks.
                Err(error) => _ = first_error.get_or_insert(error),
            }
        }
        Err(first_error.unwrap_or(DeviceError::NoDevice))
    }

    fn open_named(library: &'static Library, name: &str, spec: &DeviceSpec) -> Result<Device, DeviceError> {
        let device = name.to_owned();
        let failed = |call| {
            let device = device.clone();
            move |source| DeviceError::Call { device, call, source }
        };
        let context = Context::open(library, name).map_err(|source| match source.kind() {
            // If libibverbs may not open the file, it looks elsewhere and then reports that there is none.
            io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound if is_forbidden() => {
                DeviceError::Permission { device: device.clone() }
            }
            _ => failed("ibv_open_device")(source),
        })?;
        if context.iwarp {
            return Err(DeviceError::Iwarp { device });
        }
        let limits = context.limits().map_err(failed("ibv_query_device"))?;
        let Some(class) = limits.atomics else { return Err(DeviceError::NoAtomics { device }) };
        let (port_number, port) = choose_port(&context, name, limits.ports, spec.port)?;
        let gids = context.gids(port.gids_max * usize::from(limits.ports));
        let gids = gids.map_err(failed("ibv_query_gid_table"))?;
        let gid = choose_gid(&gids, name, port_number, port.ethernet, spec.gid_index)?;
        let spec = DeviceSpec { retries: spec.retries.min(RETRIES_MAX), ..spec.clone() };
        let tallies = Tallies::default();
        let inner = Inner { context, name: device, port_number, port, gid, limits, class, spec, tallies };
        let opened = Device { inner: Arc::new(inner) };
        opened.check_atomics()?;
        Ok(opened)
    }

    /// Name, port, address and abilities, for the log.
    pub fn describe(&self) -> String {
        let Inner { name, port_number, port, gid, limits, class, .. } = &*self.inner;
        let link = if port.ethernet { "RoCE" } else { "InfiniBand" };
        let atomics = match class {
            AtomicClass::Device => "HCA (among this device's atomics)",
            AtomicClass::Machine => "GLOB (among the CPU's atomics too)",
        };
        let windows = if limits.windows { "type 2B" } else { "none" };
        let completions = match self.inner.spec.completions {
            Completions::Polling => "polling",
            Completions::Events => "events",
        };
        let (mtu, address) = (128 << port.mtu, Ipv6Addr::from(gid.raw));
        format!(
            "{name} port {port_number} ({link}, MTU {mtu}), GID {} {address}, atomics {atomics}, memory windows {windows}, completions by {completions}",
            gid.index,
        )
    }

    /// Failures so far.
    pub fn counters(&self) -> Counters {
        let Tallies { completions_in_error, reconnects, refused } = self.tallies();
        Counters {
            completions_in_error: completions_in_error.load(Ordering::Relaxed),
            reconnects: reconnects.load(Ordering::Relaxed),
            refused: refused.load(Ordering::Relaxed),
        }
    }

    pub(super) fn tallies(&self) -> &Tallies {
        &self.inner.tallies
    }

    pub(super) fn has_windows(&self) -> bool {
        self.inner.limits.windows
    }

    pub(super) fn waits_by_events(&self) -> bool {
        self.inner.spec.completions == Completions::Events
    }

    /// The address by which peers reach a queue pair of this device.
    pub(super) fn address(&self, queue: &QueuePair, sequence: u32) -> Peer {
        let Inner { port, gid, .. } = &*self.inner;
        Peer { number: queue.number(), sequence, gid: gid.raw, lid: port.lid, mtu: port.mtu }
    }

    /// Most reads and atomics in flight on one connection, in either direction.
    pub(super) fn reads_in(&self) -> u8 {
        self.inner.limits.reads_in.min(READS_MAX)
    }

    pub(super) fn reads_out(&self) -> u8 {
        self.inner.limits.reads_out.min(READS_MAX)
    }

    /// The settings of this end of a connection to `peer`.
    pub(super) fn timers(&self, sequence: u32, reads_out: u8, reads_in: u8) -> Timers {
        let Inner { port_number, port, gid, spec, .. } = &*self.inner;
        Timers {
            port: *port_number,
            gid_index: gid.index as u8,
            routed: port.ethernet || port.lid == 0,
            sequence,
            timeout: TIMEOUT,
            retries: spec.retries,
            reads_out,
            reads_in,
        }
    }

    pub(super) fn domain(&self) -> Result<Arc<ProtectionDomain>, DeviceError> {
        ProtectionDomain::new(&self.inner.context).map_err(self.failed("ibv_alloc_pd"))
    }

    pub(super) fn completion_queue(&self, len: u32, events: bool) -> Result<CompletionQueue, DeviceError> {
        CompletionQueue::new(&self.inner.context, len, events).map_err(self.failed("ibv_create_cq"))
    }

    pub(super) fn register(
        &self,
        domain: &Arc<ProtectionDomain>,
        memory: Arc<Memory>,
        rights: Rights,
    ) -> Result<Arc<MemoryRegion>, DeviceError> {
        let len = memory.len();
        MemoryRegion::register(domain, memory, rights).map_err(|source| self.not_registered(len, source))
    }

    /// `count` buffers of `words` words each.
    pub(super) fn buffers(
        &self,
        domain: &Arc<ProtectionDomain>,
        count: usize,
        words: usize,
    ) -> Result<Vec<Registered>, DeviceError> {
        Registered::carve(domain, count, words)
            .map_err(|source| self.not_registered(count * words * 8, source))
    }

    fn not_registered(&self, need: usize, source: io::Error) -> DeviceError {
        let device = self.inner.name.clone();
        let short = [Errno::NOMEM, Errno::AGAIN].map(Some).contains(&Errno::from_io_error(&source));
        match getrlimit(Resource::Memlock).current {
            Some(limit) if short => DeviceError::Locked { device, need, limit },
            _ => self.failed("ibv_reg_mr")(source),
        }
    }

    pub(super) fn failed(&self, call: &'static str) -> impl Fn(io::Error) -> DeviceError + use<> {
        let device = self.inner.name.clone();
        move |source| DeviceError::Call { device: device.clone(), call, source }
    }

    /// Adds to a word and swaps it, over a connection of a queue pair with itself. The values returned must be those
    /// that the CPU stored, so that both use the same byte order.
    fn check_atomics(&self) -> Result<(), DeviceError> {
        const BEFORE: u64 = 0x0123_4567_89ab_cdef;
        let domain = self.domain()?;
        let memory = Memory::anonymous(4096).map_err(self.failed("mmap"))?;
        memory.store(0, BEFORE, Ordering::SeqCst);
        let memory = Arc::new(memory);
        let region = self.register(&domain, Arc::clone(&memory), Rights::Atomic)?;
        let mut completions = self.completion_queue(4, false)?;
        let created = QueuePair::new(&completions, &domain, 0, 2, 0);
        let mut queue = created.map_err(self.failed("ibv_create_qp"))?;
        let itself = self.address(&queue, 0);
        let connected = queue.connect(&self.timers(0, 1, 1), &itself, Rights::Atomic);
        connected.map_err(self.failed("ibv_modify_qp"))?;
        queue.use_rkey(region.rkey());
        let at = region.address();
        let steps =
            [(Work::fetch_and_add(at, 1), BEFORE), (Work::compare_and_swap(at, BEFORE + 1, 7), BEFORE + 1)];
        for ((work, expected), buffer) in steps.into_iter().zip(self.buffers(&domain, 2, 1)?) {
            let posted = queue.stage(&work, buffer, Note::default()).map(|()| queue.post());
            posted.expect("there is room for one").map_err(self.failed("ibv_post_send"))?;
            let deadline = Instant::now() + CHECK_WAIT;
            let found = loop {
                let polled = completions.poll().map_err(self.failed("ibv_poll_cq"))?;
                if let Some(completion) = polled.first() {
                    let source = |failure| io::Error::other(format!("an atomic on itself: {failure}"));
                    completion.outcome().map_err(source).map_err(self.failed("ibv_poll_cq"))?;
                    break queue
                        .retire(completion)
                        .and_then(|mut done| done.next())
                        .map(|(buffer, _)| buffer.words()[0]);
                }
                if Instant::now() > deadline {
                    return Err(self.failed("an atomic on itself")(io::ErrorKind::TimedOut.into()));
                }
            };
            let found = found.unwrap_or_default();
            if found != expected {
                return Err(DeviceError::AtomicOrder { device: self.inner.name.clone(), found, expected });
            }
        }
        let found = memory.load(0);
        if found == 7 {
            Ok(())
        } else {
            Err(DeviceError::AtomicOrder { device: self.inner.name.clone(), found, expected: 7 })
        }
    }
}

fn names(library: &'static Library) -> Result<Vec<String>, DeviceError> {
    match library.device_names() {
        Ok(names) if names.is_empty() => Err(DeviceError::NoDevice),
        Ok(names) => Ok(names),
        Err(error) => Err(match Errno::from_io_error(&error) {
            // This kernel has no RDMA.
            Some(Errno::NOSYS | Errno::NOENT) => DeviceError::NoDevice,
            _ => DeviceError::Call {
                device: "libibverbs".to_owned(),
                call: "ibv_get_device_list",
                source: error,
            },
        }),
    }
}

/// Whether a device's file exists but may not be opened.
fn is_forbidden() -> bool {
    let files = std::fs::read_dir("/dev/infiniband").into_iter().flatten().flatten();
    let mut uverbs = files.filter(|file| file.file_name().to_string_lossy().starts_with("uverbs"));
    uverbs.any(|file| {
        let opened = File::options().read(true).write(true).open(file.path());
        opened.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    })
}

fn choose_port(
    context: &Context,
    name: &str,
    ports: u8,
    wanted: Option<u8>,
) -> Result<(u8, Port), DeviceError> {
    let device = name.to_owned();
    let query = |port| {
        let failed = |source| DeviceError::Call { device: name.to_owned(), call: "ibv_query_port", source };
        context.port(port).map_err(failed)
    };
    if let Some(port) = wanted {
        if !(1..=ports).contains(&port) {
            return Err(DeviceError::NoPort { device, port, ports });
        }
        let found = query(port)?;
        return if found.active { Ok((port, found)) } else { Err(DeviceError::PortDown { device, port }) };
    }
    for port in 1..=ports {
        let found = query(port)?;
        if found.active {
            return Ok((port, found));
        }
    }
    Err(DeviceError::NoActivePort { found: device })
}

fn choose_gid(
    gids: &[Gid],
    name: &str,
    port: u8,
    ethernet: bool,
    wanted: Option<u8>,
) -> Result<Gid, DeviceError> {
    let device = name.to_owned();
    let of_port = || gids.iter().filter(|gid| gid.port == u32::from(port));
    if let Some(index) = wanted {
        let found = of_port().find(|gid| gid.index == u32::from(index));
        return found.copied().ok_or_else(|| {
            let list: Vec<_> =
                of_port().map(|gid| format!("{} {}", gid.index, Ipv6Addr::from(gid.raw))).collect();
            DeviceError::NoGid { device, port, index, found: list.join(", ") }
        });
    }
    if !ethernet {
        return of_port().next().copied().ok_or(DeviceError::NoGid {
            device,
            port,
            index: 0,
            found: "none".into(),
        });
    }
    // An IPv4 address is routed, a link-local one is not.
    let rank = |gid: &&Gid| match Ipv6Addr::from(gid.raw) {
        address if address.to_ipv4_mapped().is_some() => 0,
        address if address.is_unicast_link_local() => 2,
        _ => 1,
    };
    let routable = of_port().filter(|gid| gid.routable && gid.index <= u32::from(u8::MAX));
    routable.min_by_key(rank).copied().ok_or(DeviceError::NoRoutableGid { device, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(index: u32, address: &str, routable: bool) -> Gid {
        Gid { port: 1, index, raw: address.parse::<Ipv6Addr>().unwrap().octets(), routable }
    }

    #[test]
    fn the_address_that_is_routed_furthest_is_taken() {
        let gids = [
            gid(0, "fe80::1", false),
            gid(1, "fe80::1", true),
            gid(2, "2001:db8::1", true),
            gid(3, "::ffff:10.0.0.1", false),
            gid(4, "::ffff:10.0.0.1", true),
        ];
        let chosen = |gids: &[Gid], wanted| choose_gid(gids, "rxe0", 1, true, wanted).map(|gid| gid.index);
        assert_eq!(chosen(&gids, None).unwrap(), 4);
        assert_eq!(chosen(&gids[..3], None).unwrap(), 2);
        assert_eq!(chosen(&gids[..2], None).unwrap(), 1);
        assert!(matches!(chosen(&gids[..1], None), Err(DeviceError::NoRoutableGid { .. })));
        assert_eq!(chosen(&gids, Some(0)).unwrap(), 0);
        let said = chosen(&gids[..2], Some(9)).unwrap_err().to_string();
        assert_eq!(said, "port 1 of rxe0 has no GID at index 9: it has 0 fe80::1, 1 fe80::1");
        assert_eq!(choose_gid(&gids, "mlx5_0", 1, false, None).unwrap().index, 0);
    }
}
