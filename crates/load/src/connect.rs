//! Connections that the kernel directs: eBPF programs at connect() send a control group's TCP connections from the address
//! of a site to a node, and count them there until TCP has closed them (`bpf/connect.bpf.c`).
//!
//! This is the loader. Programs and maps are pinned in a directory of a BPF file system, so that they outlive this process;
//! the next one takes the maps over with their counts, and puts its own programs in place of the old ones. It knows neither
//! how nodes are chosen nor what the maps say: their owner maps them.

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use libbpf_rs::query::LinkTypeInfo;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, OpenObject};
use rustix::fs::{FlockOperation, flock, statfs};
use rustix::thread::{MembarrierCommand, membarrier};
use sidelong_layout::{ChoiceMap, HEADER_BYTES, NodeId, RegionHeader, RegionKind, SiteId, WorkersMap};

use crate::kernel::{KernelError, privilege, refused, verifier};

/// The programs, as `cargo xtask bpf` builds them.
const OBJECT: &[u8] = include_bytes!("bpf/connect.bpf.o");
/// The programs that choose, and those that end what the first have counted.
const CHOOSE: [&str; 2] = ["on_connect4", "on_connect6"];
const END: [&str; 2] = ["on_state", "on_release"];
/// The maps that are kept: what the front says, what the kernel counts, and where each socket counts.
const CHOICE: &str = "choice";
const COUNTS: &str = "counts";
const KEPT: [&str; 3] = [CHOICE, COUNTS, "sockets"];
const SITES: &str = "sites";
const CONFIG: &str = ".rodata.config";
/// Ending of a pin that is not in its place yet. No name there has a dot.
const NEW: &str = "-new";
/// `BPF_FS_MAGIC` of linux/magic.h.
const BPF_FS: i64 = 0xcafe_4a11;

/// Why the kernel does not direct connections.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The programs cannot be loaded or attached.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The directory cannot be used.
    #[error("{path}: {source}")]
    Directory {
        /// The directory, or a pin in it.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The directory is in another file system.
    #[error(
        "{path} is in no BPF file system, where programs are pinned: name a directory in one (mount -t bpf)"
    )]
    NotPinnable {
        /// The directory.
        path: PathBuf,
    },
    /// The control group cannot be opened.
    #[error("control group {path}: {source}; name a directory of cgroup version 2")]
    Group {
        /// The group.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A live process uses the pins.
    #[error("{path} is used by another process, which runs the front already")]
    Taken {
        /// The directory.
        path: PathBuf,
    },
}

/// What is directed, and by which memory.
#[derive(Clone, Copy, Debug)]
pub struct ConnectSpec<'a> {
    /// Where programs and maps are pinned.
    pub directory: &'a Path,
    /// The control group whose connections are directed.
    pub group: &'a Path,
    /// The sites' addresses.
    pub sites: &'a [(SiteId, SocketAddr)],
    /// The two maps, as their owner uses them.
    pub choice: ChoiceMap,
    /// See `choice`.
    pub counts: WorkersMap,
    /// Hash of what the cluster's parts must have alike: maps of another cluster are not taken over.
    pub cluster: u64,
}

impl ConnectSpec<'_> {
    fn kept(&self) -> [(&'static str, RegionKind, usize); 2] {
        [(CHOICE, RegionKind::Choice, self.choice.len()), (COUNTS, RegionKind::Workers, self.counts.len())]
    }
}

/// The programs of a front. They go on when this is dropped.
#[derive(Debug)]
pub struct Directed {
    /// The lock on it is this process's.
    directory: (PathBuf, File),
    choosers: Vec<Link>,
    maps: [MapHandle; 2],
    sites: MapHandle,
    /// What that map has.
    directed: Vec<(SiteId, SocketAddr)>,
    has_lost_counts: bool,
}

impl Directed {
    /// Loads and attaches the programs. Maps that a former process has left are taken over with their contents.
    ///
    /// # Errors
    /// What is missing, or what the kernel refuses.
    pub fn start(spec: &ConnectSpec<'_>) -> Result<Self, ConnectError> {
        privilege::check(privilege::TO_DIRECT)?;
        verifier::listen();
        let group = File::open(spec.group)
            .map_err(|source| ConnectError::Group { path: spec.group.to_owned(), source })?;
        let lock = claim(spec.directory)?;
        let kept = adopt(spec);
        let mut has_lost_counts = false;
        if kept.is_none() {
            for name in CHOOSE.iter().chain(&END).chain(&KEPT) {
                has_lost_counts |= unpin(&spec.directory.join(name))?;
            }
        }
        let object = load(spec, kept.as_ref())?;
        let attach = |name: &str| -> Result<Link, ConnectError> {
            let program = object.progs_mut().find(|program| program.name() == name);
            let program = program.ok_or_else(|| KernelError::Object { what: name.to_owned() })?;
            let attached = program.attach_cgroup(group.as_raw_fd());
            let mut link = attached.map_err(|source| refused(&format!("program {name}"), source))?;
            // In one step: connections are always directed, if by both the old program and the new one for a moment. The
            // second to run finds no address of a site, or nothing left to end.
            let (path, new) = (spec.directory.join(name), spec.directory.join(format!("{name}{NEW}")));
            unpin(&new)?;
            link.pin(&new).map_err(|source| refused("to pin a program", source))?;
            std::fs::rename(&new, &path).map_err(|source| ConnectError::Directory { path, source })?;
            Ok(link)
        };
        // A connection must not begin before its end is seen.
        END.iter().try_for_each(|name| attach(name).map(drop))?;
        let choosers = CHOOSE.iter().map(|name| attach(name)).collect::<Result<_, _>>()?;
        let maps = [handle(&object, CHOICE)?, handle(&object, COUNTS)?];
        let (directory, sites) = ((spec.directory.to_owned(), lock), handle(&object, SITES)?);
        let directed = spec.sites.to_vec();
        Ok(Directed { directory, choosers, maps, sites, directed, has_lost_counts })
    }

    /// Directs connections to these addresses from now on, and no more to others.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub fn direct(&mut self, sites: &[(SiteId, SocketAddr)]) -> Result<(), ConnectError> {
        let wrong = |source| refused("an address of a site", source);
        // Those that go make room. One that an attempt before this has removed is no more there.
        let stays = |address: &SocketAddr| sites.iter().any(|(_, known)| known == address);
        for (_, address) in self.directed.iter().filter(|(_, address)| !stays(address)) {
            match self.sites.delete(&encoded(*address)) {
                Err(source) if source.kind() != libbpf_rs::ErrorKind::NotFound => {
                    return Err(wrong(source).into());
                }
                _ => {}
            }
        }
        for (site, address) in sites.iter().filter(|site| !self.directed.contains(site)) {
            let told =
                self.sites.update(&encoded(*address), &(site.index() as u32).to_ne_bytes(), MapFlags::ANY);
            told.map_err(wrong)?;
        }
        self.directed = sites.to_vec();
        Ok(())
    }

    /// The files to map: the choice, and the counts.
    ///
    /// # Errors
    /// If there are no more descriptors.
    pub fn memory(&self) -> io::Result<[File; 2]> {
        let [choice, counts] = &self.maps;
        Ok([choice.as_fd().try_clone_to_owned()?.into(), counts.as_fd().try_clone_to_owned()?.into()])
    }

    /// Whether a former process has left programs whose counts could not be taken over.
    pub fn has_lost_counts(&self) -> bool {
        self.has_lost_counts
    }

    /// Directs no more connections, whichever CPU makes them. Those that there are still count.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn stop(&mut self) -> Result<(), ConnectError> {
        for (name, link) in CHOOSE.iter().zip(self.choosers.drain(..)) {
            link.detach().map_err(|source| refused("to detach a program", source))?;
            unpin(&self.directory.0.join(name))?;
        }
        // Programs run in RCU's read side, whose end on all CPUs this waits for.
        let passed = membarrier(MembarrierCommand::Global);
        passed
            .map_err(|error| ConnectError::Directory { path: self.directory.0.clone(), source: error.into() })
    }

    /// Removes all that is left: the programs that end counts, the counts, and the directory.
    ///
    /// # Errors
    /// If a pin cannot be removed.
    pub fn remove(self) -> Result<(), ConnectError> {
        let path = &self.directory.0;
        for name in END.iter().chain(&KEPT) {
            unpin(&path.join(name))?;
        }
        std::fs::remove_dir(path).map_err(|source| ConnectError::Directory { path: path.clone(), source })
    }
}

/// What the programs of a front do, for whoever asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connections {
    /// The programs that are not attached to the control group.
    pub missing: Vec<&'static str>,
    /// When the front last scanned, in ns of this machine's monotonic clock; 0 if it has ended.
    pub scanned_ns: u64,
    /// By node, the connections that have not ended.
    pub at: Vec<u64>,
}

impl Connections {
    /// Reads it from the pins.
    ///
    /// # Errors
    /// If there are none, or this process may not read them.
    pub fn read(spec: &ConnectSpec<'_>) -> Result<Self, ConnectError> {
        privilege::check(privilege::TO_DIRECT)?;
        verifier::listen();
        let group = spec.group.metadata();
        let group =
            group.map_err(|source| ConnectError::Group { path: spec.group.to_owned(), source })?.ino();
        let is_attached = |name: &&&str| {
            let info = Link::open(spec.directory.join(name)).and_then(|link| link.info());
            info.is_ok_and(|info| matches!(info.info, LinkTypeInfo::Cgroup(of) if of.cgroup_id == group))
        };
        let missing = CHOOSE.iter().chain(&END).filter(|name| !is_attached(name)).copied().collect();
        let [choice, counts, _] = adopt(spec).ok_or_else(|| ConnectError::Directory {
            path: spec.directory.to_owned(),
            source: io::ErrorKind::NotFound.into(),
        })?;
        let nodes = (0..spec.counts.nodes).map(NodeId::new);
        Ok(Connections {
            missing,
            scanned_ns: word(&choice, ChoiceMap::TIME).unwrap_or_default(),
            at: nodes.map(|node| word(&counts, spec.counts.in_flight(0, node)).unwrap_or_default()).collect(),
        })
    }
}

/// Makes the directory, and locks it against another process.
fn claim(path: &Path) -> Result<File, ConnectError> {
    let failed = |source| ConnectError::Directory { path: path.to_owned(), source };
    std::fs::create_dir_all(path).map_err(failed)?;
    let directory = File::open(path).map_err(failed)?;
    let found = statfs(path).map_err(|error| failed(error.into()))?;
    if found.f_type != BPF_FS {
        let _ = std::fs::remove_dir(path);
        return Err(ConnectError::NotPinnable { path: path.to_owned() });
    }
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(directory),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(ConnectError::Taken { path: path.to_owned() }),
        Err(error) => Err(failed(error.into())),
    }
}

/// The maps of a former process, if all are there and of this cluster.
fn adopt(spec: &ConnectSpec<'_>) -> Option<[MapHandle; 3]> {
    let open = |name| MapHandle::from_pinned_path(spec.directory.join(name)).ok();
    for (name, kind, len) in spec.kept() {
        let map = open(name)?;
        let header = |index| word(&map, 8 * index).unwrap_or_default();
        let words: [u64; HEADER_BYTES / 8] = std::array::from_fn(header);
        RegionHeader::checked(&words, spec.cluster, kind, len).ok()?;
        if map.max_entries() as usize != len / 8 {
            return None;
        }
    }
    let [choice, counts, sockets] = KEPT.map(open);
    let is_ours =
        |map: &MapHandle| (map.map_type(), map.key_size(), map.value_size()) == (MapType::Hash, 8, 8);
    Some([choice?, counts?, sockets.filter(is_ours)?])
}

/// The word at `offset` bytes of a map of words.
fn word(map: &MapHandle, offset: usize) -> Option<u64> {
    let found = map.lookup(&((offset / 8) as u32).to_ne_bytes(), MapFlags::ANY).ok()??;
    Some(u64::from_ne_bytes(found.try_into().ok()?))
}

/// Loads the programs, with the maps that are kept or with new ones, which are pinned.
fn load(spec: &ConnectSpec<'_>, kept: Option<&[MapHandle; 3]>) -> Result<Object, ConnectError> {
    let opened = ObjectBuilder::default().name("sidelong").and_then(|builder| builder.open_memory(OBJECT));
    let mut object = opened.map_err(|source| refused("the object", source))?;
    size(&mut object, spec, kept).map_err(|source| refused("the maps", source))?;
    let object = object.load().map_err(|source| match verifier::take() {
        Some(reason) => KernelError::Verifier { reason },
        None => refused("the programs", source),
    })?;
    let sites = handle(&object, SITES)?;
    for (site, address) in spec.sites {
        let site = site.index() as u32;
        let told = sites.update(&encoded(*address), &site.to_ne_bytes(), MapFlags::ANY);
        told.map_err(|source| refused("an address of a site", source))?;
    }
    if kept.is_none() {
        for name in KEPT {
            let pinned = handle(&object, name)?.pin(spec.directory.join(name));
            pinned.map_err(|source| refused("to pin a map", source))?;
        }
    }
    Ok(object)
}

fn size(
    object: &mut OpenObject,
    spec: &ConnectSpec<'_>,
    kept: Option<&[MapHandle; 3]>,
) -> Result<(), libbpf_rs::Error> {
    let words = spec.kept().map(|(name, _, len)| (name, len / 8));
    for mut map in object.maps_mut() {
        let name = map.name().to_owned();
        let former = kept.zip(KEPT.iter().position(|one| name == *one));
        if let Some((kept, index)) = former {
            map.reuse_fd(kept[index].as_fd())?;
        } else if let Some((_, words)) = words.iter().find(|(one, _)| name == *one) {
            map.set_max_entries(*words as u32)?;
        } else if name == SITES {
            map.set_max_entries(spec.choice.sites as u32)?;
        } else if name == CONFIG {
            let counts = [spec.choice.nodes as u32, spec.choice.sites as u32];
            map.set_initial_value(bytemuck::bytes_of(&counts))?;
        }
    }
    Ok(())
}

fn handle(object: &Object, name: &str) -> Result<MapHandle, ConnectError> {
    let map = object.maps().find(|map| map.name() == name);
    let map = map.ok_or_else(|| KernelError::Object { what: name.to_owned() })?;
    Ok(MapHandle::try_from(&map).map_err(|source| refused("a map", source))?)
}

/// An address as the programs compare it: `struct address` of `bpf/connect.bpf.c`.
fn encoded(address: SocketAddr) -> [u8; 20] {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; 20];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..18].copy_from_slice(&address.port().to_be_bytes());
    bytes
}

/// Removes a pin, if it is there. Whether it was.
fn unpin(path: &Path) -> Result<bool, ConnectError> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(ConnectError::Directory { path: path.to_owned(), source }),
    }
}
