//! A cache that memcached's clients use, alone or as one of a cluster's.

mod member;
mod metrics;

use std::fs::{self, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use rustix::fs::{Mode, fchmod};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::rand::{GetRandomFlags, getrandom};
use sidelong_cache::neighbours::{Neighbours, Peer};
use sidelong_cache::server::{self, Listener, Options};
use sidelong_cache::{Cache, Login, Near, Published, Settings, Users};
use sidelong_config::Cluster;
use sidelong_edge::Admin;
use sidelong_fabric::{Access, RegionSpec};
use sidelong_layout::RegionKind;
use sidelong_os::{monotonic_ns, raise_open_files};
use sidelong_policy::cache::store::Eviction;
use sidelong_tls::{Certificate, ClientCa, RENEW_EVERY, Tls, TlsError};

use crate::failure::Failure;
use crate::listen;
use crate::parts::Parts;
use crate::regions;
use member::Member;

/// Bytes in a MiB.
pub const MIB: usize = 1 << 20;
/// Access to the socket at which other caches connect.
const SOCKET_MASK: u32 = 0o600;
/// Descriptors beside those of clients: other caches, both ways, and unauthenticated connections.
const OTHER_DESCRIPTORS: u64 = 256;

/// What a cache is to be, whoever says it.
pub struct Setup {
    /// Memory in MiB, tables included.
    pub memory_mib: usize,
    /// Most bytes of an item.
    pub item_bytes_max: usize,
    /// Which item is evicted.
    pub eviction: Eviction,
    /// Whether items are evicted; otherwise what finds no room is refused.
    pub evicts: bool,
    /// Threads that serve clients.
    pub threads: u32,
    /// Most clients at a time.
    pub clients_max: u32,
    /// After how many seconds a client that says nothing is let go, if it is.
    pub idle_max_s: Option<u32>,
    /// Where clients connect.
    pub place: Place,
    /// What TLS at TCP ports goes by.
    pub tls: Option<TlsFiles>,
    /// Access to a Unix socket.
    pub unix_mask: u32,
    /// The port of addresses without one.
    pub tcp_port: u16,
    /// The file of users and how they log in, if clients must.
    pub users: Option<(PathBuf, Login)>,
    /// The admin endpoint.
    pub admin: Option<SocketAddr>,
    /// What `stats settings` tells of the log.
    pub verbosity: u8,
    /// The cache of a cluster file that it is.
    pub member: Option<Member>,
}

/// PEM files.
pub struct TlsFiles {
    /// The certificate and its chain.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authority whose certificates clients must show, if they must.
    pub client_ca: Option<PathBuf>,
}

impl TlsFiles {
    fn read(&self) -> Result<Tls, Failure> {
        let certificate = Certificate::read(&self.certificate, &self.key).map_err(|error| match error {
            TlsError::File { .. } | TlsError::Empty { .. } => Failure::new(error.to_string()),
            error => Failure::new(format!("{}: {error}", self.certificate.display())),
        })?;
        let client_ca = self.client_ca.as_deref().map(ClientCa::read).transpose();
        let client_ca = client_ca.map_err(|error| Failure::new(error.to_string()))?;
        Tls::new(vec![certificate], client_ca, &[]).map_err(|error| Failure::new(error.to_string()))
    }
}

/// Takes over certificates that were replaced on disk, for as long as the process runs.
fn renew(tls: Tls) -> Result<(), Failure> {
    let renewing = move || loop {
        thread::sleep(RENEW_EVERY);
        tls.renew();
    };
    thread::Builder::new().name("tls".into()).spawn(renewing)?;
    Ok(())
}

/// A secret of the hash of keys.
pub(crate) fn seed() -> Result<[u64; 2], Failure> {
    let mut secret = [0; 16];
    getrandom(&mut secret, GetRandomFlags::empty())?;
    let (halves, _) = secret.as_chunks::<8>();
    Ok([u64::from_ne_bytes(halves[0]), u64::from_ne_bytes(halves[1])])
}

/// Where clients connect.
pub enum Place {
    /// At TCP ports.
    Tcp(Vec<SocketAddr>),
    /// At a Unix socket.
    Unix(PathBuf),
}

impl Setup {
    /// The cache of that name in a cluster.
    ///
    /// # Errors
    /// If the cluster has none, or its fabric cannot be used.
    pub fn of_cluster(cluster: Cluster, name: &str) -> Result<Self, Failure> {
        Ok(Setup::of_member(Member::find(cluster, name)?))
    }

    fn of_member(member: Member) -> Setup {
        let (cache, peer) = (&member.parts.cluster.cache, member.peer());
        Setup {
            memory_mib: peer.memory_mb as usize,
            item_bytes_max: cache.item_bytes_max as usize,
            eviction: cache.eviction,
            evicts: true,
            // One alone talks to the other caches.
            threads: 1,
            clients_max: peer.clients_max,
            idle_max_s: None,
            place: Place::Tcp(vec![peer.listen]),
            tls: None,
            unix_mask: 0o700,
            tcp_port: peer.listen.port(),
            users: None,
            admin: peer.admin,
            verbosity: 0,
            member: Some(member),
        }
    }

    /// Serves clients on this thread until `stop` is set. `ready` hears the addresses before the first client is served.
    ///
    /// # Errors
    /// If the memory, a port or a file cannot be used, or as `ready`.
    pub fn serve(
        &self,
        ready: impl FnOnce(&[String]) -> Result<(), Failure>,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        self.raise_descriptors()?;
        let published = self.admin.map(|_| Arc::new(Published::new()));
        let options = self.options(published.clone())?;
        let (cache, cluster) = self.cache(options.began_ns)?;
        // Before clients can come, whose commands others may have to carry out.
        let for_caches = self.member.as_ref().map(Member::listener).transpose()?.flatten();
        let tls = self.tls.as_ref().map(TlsFiles::read).transpose()?;
        let mut listeners = self.listeners(tls.as_ref())?;
        tls.map(renew).transpose()?;
        let _admin = match (self.admin, published) {
            (Some(address), Some(published)) => {
                let config = self.member.as_ref().map(|member| Arc::clone(&member.parts.config));
                Some(Admin::start(listen(address)?, metrics::pages(&options.version, published, config))?)
            }
            _ => None,
        };
        let at: Vec<String> = listeners.iter().map(ToString::to_string).collect();
        listeners.extend(for_caches);
        ready(&at)?;
        let _entering = self.member.as_ref().and_then(Member::enter);
        server::serve(&listeners, &options, cache, cluster, stop)?;
        Ok(())
    }

    /// The cache, whose second 0 was at `began_ns`, and the others of its cluster.
    fn cache(&self, began_ns: u64) -> Result<(Cache, Option<server::Cluster>), Failure> {
        let settings = self.settings()?;
        let Some(member) = &self.member else {
            let refused = |error| Failure::new(format!("-m {}: {error}", self.memory_mib));
            return Ok((Cache::new(settings).map_err(refused)?, None));
        };
        let Parts { cluster, fabric, .. } = &member.parts;
        let exposing = member.exposing()?;
        let server::Roster { peers, placement, addresses } = member.caches();
        let directory = exposing.as_ref().map(|_| fabric.directory());
        let neighbours = Neighbours::new(member.slot, &peers, placement, directory, fabric.initiator()?);
        let capacity = cluster.capacity.caches;
        let Some(exposing) = exposing else {
            let near_bytes = cluster.cache.near_bytes(member.peer()) as usize;
            let neighbours = match near_bytes {
                0 => neighbours,
                _ => neighbours.keeping(Near::new(cluster.cache.fresh, near_bytes)),
            };
            let own = Settings { memory_bytes: settings.memory_bytes - near_bytes, ..settings };
            let others = server::Cluster { neighbours, addresses, capacity, news: None };
            return Ok((Cache::new(own)?, Some(others)));
        };
        let Peer { region, map, .. } = &peers[member.slot];
        let spec = RegionSpec {
            name: region,
            kind: RegionKind::Cache,
            len: map.len(),
            access: Access::ReadOnly,
            instance: member.parts.instance(),
        };
        let region = regions::expose_owned(&exposing.host, &spec, "memory_mb of the cache")?;
        region.key().map_or(Ok(()), |key| exposing.publish(key))?;
        let cache = Cache::exposed(settings, region, *map, began_ns);
        Ok((cache, Some(server::Cluster { neighbours, addresses, capacity, news: member.news() })))
    }

    fn settings(&self) -> Result<Settings, Failure> {
        Ok(Settings {
            memory_bytes: self.memory_mib * MIB,
            item_bytes_max: self.item_bytes_max,
            eviction: self.eviction,
            evicts: self.evicts,
            seed: seed()?,
        })
    }

    fn options(&self, published: Option<Arc<Published>>) -> Result<Options, Failure> {
        Ok(Options {
            threads: self.threads as usize,
            clients_max: self.clients_max as usize,
            idle_max_s: self.idle_max_s,
            users: self.users.as_ref().map(|(file, login)| users(file, *login)).transpose()?,
            version: sidelong_cache::VERSION.to_owned(),
            settings: self.shown(),
            // Its first second is 1.
            began_ns: monotonic_ns().saturating_sub(1_000_000_000),
            published,
        })
    }

    /// The rows of `stats settings` that dashboards know.
    fn shown(&self) -> Vec<(&'static str, String)> {
        let (port, socket) = match &self.place {
            Place::Tcp(_) => (self.tcp_port, "NULL".to_owned()),
            Place::Unix(path) => (0, path.display().to_string()),
        };
        let login = |login| {
            let is_so = self.users.as_ref().is_some_and(|(_, by)| *by == login);
            if is_so { "yes" } else { "no" }.to_owned()
        };
        let mut rows = vec![
            ("tcpport", port.to_string()),
            ("udpport", "0".to_owned()),
            ("domain_socket", socket),
            ("umask", format!("{:o}", self.unix_mask)),
            ("verbosity", self.verbosity.to_string()),
            ("evictions", if self.evicts { "on" } else { "off" }.to_owned()),
            ("eviction_rule", self.eviction.to_string()),
            ("num_threads", self.threads.to_string()),
            ("idle_timeout", self.idle_max_s.unwrap_or(0).to_string()),
            ("cas_enabled", "yes".to_owned()),
            ("hash_algorithm", "siphash13".to_owned()),
            ("auth_enabled_ascii", login(Login::Text)),
            ("auth_enabled_sasl", login(Login::Sasl)),
        ];
        rows.push(("ssl_enabled", if self.tls.is_some() { "yes" } else { "no" }.to_owned()));
        if let Some(tls) = &self.tls {
            rows.push(("ssl_chain_cert", tls.certificate.display().to_string()));
            rows.push(("ssl_key", tls.key.display().to_string()));
            rows.push(("ssl_verify_mode", if tls.client_ca.is_some() { "2" } else { "0" }.to_owned()));
        }
        if let Some(member) = &self.member {
            rows.push(("name", member.peer().name.clone()));
            rows.push(("fresh_ms", (member.parts.cluster.cache.fresh.as_secs_f64() * 1e3).to_string()));
        }
        rows
    }

    fn listeners(&self, tls: Option<&Tls>) -> Result<Vec<Listener>, Failure> {
        match &self.place {
            Place::Tcp(addresses) => {
                addresses.iter().map(|address| Ok(Listener::Tcp(listen(*address)?, tls.cloned()))).collect()
            }
            Place::Unix(path) => {
                Ok(vec![Listener::Unix(unix_listener(path, self.unix_mask)?, path.to_owned())])
            }
        }
    }

    /// Lets this process have as many descriptors as its clients need.
    fn raise_descriptors(&self) -> Result<(), Failure> {
        let needed = u64::from(self.clients_max) + OTHER_DESCRIPTORS;
        let key = if self.member.is_some() { "clients_max" } else { "-c" };
        raise_open_files(Some(needed)).map_err(|error| Failure::new(format!("{key}: {error}")))
    }
}

fn unix_listener(path: &Path, mask: u32) -> Result<UnixListener, Failure> {
    let named = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    // A socket at which nobody answers was left by a process that was killed.
    if UnixStream::connect(path).is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) {
        fs::remove_file(path).map_err(named)?;
    }
    bind(path, mask).map_err(named)
}

/// Listens at `path`, whose file has the access of `mask` or less from its first moment. The umask, which all threads of a process share,
/// is left as it is.
fn bind(path: &Path, mask: u32) -> io::Result<UnixListener> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // The file gets the socket's mode, without what the umask takes away.
    fchmod(&socket, Mode::from_raw_mode(mask))?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(mask))?;
    listen::widen(&socket)?;
    Ok(socket.into())
}

fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    listen::listen(address).map_err(|error| Failure::new(format!("{address}: {error}")))
}

fn users(path: &Path, login: Login) -> Result<Users, Failure> {
    let named = |error: std::io::Error| Failure::new(format!("{}: {error}", path.display()));
    let text = std::io::read_to_string(sidelong_os::open_regular(path).map_err(named)?).map_err(named)?;
    let users = Users::parse(&text, login);
    if users.is_empty() {
        return Err(Failure::new(format!("{}: it has no line NAME:PASSWORD", path.display())));
    }
    Ok(users)
}
