//! Three caches of one cluster: of one machine, or as if each had a machine of its own.

use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use sidelong_app::reload::lose;
use sidelong_app::roster::current;
use sidelong_config::{CachePeer, ClusterFile, Fabric};

use crate::here::reload;
use crate::memcached::Client;
use crate::{Cluster, Here, PATIENCE, eventually};

/// The secret of those on several machines.
pub const SECRET: &str = "what everybody here knows";
/// The first port of the caches' clients.
const LISTEN: u16 = 11211;
/// The first port at which caches of other machines connect.
pub const FABRIC: u16 = 6001;
/// And of the network between.
const RELAYS: u16 = 6101;
/// The first port at which they ask how to read each other's memory.
const VERBS: u16 = 6201;

/// What is between the caches.
enum Between {
    /// The memory of one machine.
    Memory,
    /// A network, of which each cache has a way in.
    Network(Vec<Relay>),
}

/// What runs each cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    /// A thread of the test.
    Thread,
    /// A process of the program, which may be stopped and killed.
    Process,
}

/// A cache that runs.
pub enum Running {
    /// On a thread of the test.
    Here(Here),
    /// In a process of the program.
    Process(crate::Running),
}

impl Running {
    /// Its process.
    pub fn process(&self) -> &crate::Running {
        match self {
            Running::Process(process) => process,
            Running::Here(_) => panic!("it has no process"),
        }
    }

    /// Ends it, and waits until it has.
    pub fn end(self) {
        match self {
            Running::Here(here) => here.end(),
            Running::Process(process) => _ = process.end().succeeded(),
        }
    }

    /// Kills its process.
    pub fn kill(self) {
        match self {
            Running::Process(process) => _ = process.kill(),
            Running::Here(_) => panic!("it has no process"),
        }
    }

    /// The reason why it has ended by itself, in one line.
    pub fn failed(self) -> String {
        match self {
            Running::Here(here) => here.failed(),
            Running::Process(process) => process.finish().refused(),
        }
    }
}

/// Three caches of one cluster, c1 to c3.
pub struct Caches {
    /// The caches that run, by number. They end before their directory goes.
    pub running: Vec<Option<Running>>,
    /// Their cluster.
    pub cluster: Cluster,
    /// Where clients connect.
    pub at: Vec<SocketAddr>,
    between: Between,
    by: By,
}

impl Caches {
    /// On one machine.
    pub fn start(by: By, memory_mb: u32) -> Self {
        Caches::begin(by, memory_mb, Cluster::new(&[("alpha", 1)]), Between::Memory)
    }

    /// On three, whose cluster file has caches alone.
    pub fn over_network(by: By, memory_mb: u32) -> Self {
        Caches::with_copies(by, memory_mb, Duration::ZERO)
    }

    /// Caches on three machines; reads may be as old as `fresh`.
    pub fn with_copies(by: By, memory_mb: u32, fresh: Duration) -> Self {
        let mut cluster = Caches::on_machines(Fabric::Tcp);
        cluster.file.cache.fresh = fresh;
        let relays = relays(&cluster);
        Caches::begin(by, memory_mb, cluster, relays)
    }

    /// On three, whose devices read the others' memory.
    pub fn over_verbs(memory_mb: u32) -> Self {
        let mut cluster = Caches::on_machines(Fabric::Verbs);
        // For emulated ones.
        (cluster.file.verbs.completion, cluster.file.verbs.retries) =
            (sidelong_config::Completion::Events, 6);
        let relays = relays(&cluster);
        Caches::begin(By::Process, memory_mb, cluster, relays)
    }

    fn on_machines(fabric: Fabric) -> Cluster {
        let mut cluster = Cluster::new(&[]);
        cluster.file.edges.clear();
        cluster.file.cluster.secret_file = Some("secret".into());
        cluster.file.cluster.fabric = fabric;
        cluster
    }

    fn begin(by: By, memory_mb: u32, mut cluster: Cluster, between: Between) -> Self {
        let at: Vec<_> = (0..3).map(|number| cluster.at(LISTEN + number)).collect();
        let names = ["c1", "c2", "c3"];
        cluster.file.cache.peers = names
            .iter()
            .zip(&at)
            .map(|(name, at)| CachePeer { memory_mb, ..CachePeer::new(*name, *at) })
            .collect();
        let mut caches = Caches { running: vec![None, None, None], cluster, at, between, by };
        (0..3).for_each(|number| caches.restart(number));
        caches.await_all();
        caches
    }

    /// Waits until each finds the others' items.
    pub fn await_all(&self) {
        for key in 0..32 {
            let mut client = self.client(key % 3);
            eventually("it reaches the home", || {
                client.try_ask(&format!("set begin{key} 0 0 1\r\nx\r\n")).unwrap() == "STORED\r\n"
            });
        }
        for number in 0..3 {
            eventually("it finds the others' items", || self.holds(number, "begin", 32));
        }
    }

    /// Whether a cache answers all of some keys.
    fn holds(&self, number: usize, prefix: &str, keys: usize) -> bool {
        let keys: Vec<_> = (0..keys).map(|key| format!("{prefix}{key}")).collect();
        let found = self.client(number).list(&format!("get {}", keys.join(" ")));
        found.matches("VALUE ").count() == keys.len()
    }

    /// Starts a cache, and waits until it takes clients.
    pub fn restart(&mut self, number: usize) {
        let cache = self.part(number);
        if let Running::Process(process) = &cache {
            eventually("it says where it is", || {
                process.out().ends_with(&format!("at {}\n", self.at[number]))
            });
        }
        self.running[number] = Some(cache);
    }

    /// Starts a cache.
    pub fn part(&self, number: usize) -> Running {
        match self.between {
            Between::Memory => self.started(&self.cluster.file, &self.cluster.config(), number),
            Between::Network(_) => self.part_of(number, SECRET, |_| {}),
        }
    }

    /// Starts a cache whose machine has this secret, and another cluster file.
    pub fn part_of(&self, number: usize, secret: &str, change: impl FnOnce(&mut Vec<CachePeer>)) -> Running {
        let directory = self.cluster.path(&format!("c{}", number + 1));
        fs::create_dir_all(&directory).unwrap();
        let mut file = self.cluster.file.clone();
        file.cluster.run_dir = Some(directory.join("run"));
        file.cluster.secret_file = Some(directory.join("secret"));
        for (peer, port) in file.cache.peers.iter_mut().zip(0..) {
            let first = if usize::from(port) == number { FABRIC } else { RELAYS };
            peer.fabric_listen = Some(self.cluster.at(first + port));
            peer.verbs_listen = Some(self.cluster.at(VERBS + port));
        }
        change(&mut file.cache.peers);
        fs::write(directory.join("secret"), secret).unwrap();
        fs::set_permissions(directory.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        let config = directory.join("cluster.toml");
        fs::write(&config, file.to_toml().unwrap()).unwrap();
        self.started(&file, &config, number)
    }

    fn started(&self, file: &ClusterFile, config: &Path, number: usize) -> Running {
        let name = format!("c{}", number + 1);
        match self.by {
            By::Thread => Running::Here(Here::start(file, "cache", &name).unwrap()),
            By::Process => {
                let command: [&OsStr; 4] =
                    ["cache".as_ref(), name.as_ref(), "--config".as_ref(), config.as_ref()];
                Running::Process(crate::Running::start(command))
            }
        }
    }

    /// Has a fourth cache, c4, take its share of the keys, while `meanwhile` goes on, and leave. It starts after `pause`: by that it looks at
    /// the roster before or after others. All are on one machine.
    pub fn with_fourth(&self, pause: Duration, meanwhile: impl FnOnce(SocketAddr)) {
        let mut file = self.cluster.file.clone();
        let at = self.cluster.at(LISTEN + 3);
        file.cache.peers.push(CachePeer { memory_mb: 8, ..CachePeer::new("c4", at) });
        reload(&file).unwrap();
        thread::sleep(pause);
        let fourth = Here::start(&file, "cache", "c4").unwrap();
        self.await_homes(4);
        meanwhile(at);
        reload(&self.cluster.file).unwrap();
        self.await_homes(3);
        assert!(!fourth.is_running(), "it has ended by itself");
    }

    /// Waits until so many caches have a share of the keys, as each tells clients that ask for their addresses, and none changes homes.
    pub fn await_homes(&self, count: usize) {
        let settled = || {
            let current = current(self.cluster.file.cluster().unwrap()).unwrap();
            let is_known = |at: &SocketAddr| {
                // It may be starting.
                let Ok(stream) = TcpStream::connect(at) else { return false };
                let (version, caches) = Client::of(stream).addresses();
                (version, caches.len()) == (current.epoch, count)
            };
            !current.standing.caches.is_changing() && self.at.iter().all(is_known)
        };
        eventually("keys have their homes", settled);
    }

    /// Has the others take over the keys of one that has died.
    pub fn lose(&self, number: usize) {
        let cluster = self.cluster.file.cluster().unwrap();
        lose(&cluster, &format!("c{}", number + 1), PATIENCE).unwrap();
    }

    /// Has the network lose what is sent to a cache by others, or no more.
    pub fn cut(&self, number: usize, is_cut: bool) {
        let Between::Network(relays) = &self.between else { panic!("there is no network") };
        relays[number].is_cut.store(is_cut, Ordering::SeqCst);
    }

    /// Whether there is a network between them.
    pub fn has_network(&self) -> bool {
        matches!(self.between, Between::Network(_))
    }

    /// A client of a cache.
    pub fn client(&self, number: usize) -> Client {
        Client::connect(self.at[number])
    }

    /// A client of each.
    pub fn clients(&self) -> [Client; 3] {
        [0, 1, 2].map(|number| self.client(number))
    }

    /// Sends a signal to a cache's process.
    pub fn signal(&self, number: usize, signal: Signal) {
        self.running[number].as_ref().unwrap().process().signal(signal);
    }

    /// A key whose home is the cache with a number: no other is asked for it.
    pub fn key_of(&self, number: usize) -> String {
        let mut home = self.client(number);
        let is_its = |key: &String| {
            let before = home.stat("forwarded");
            home.say(format!("delete {key}\r\n"));
            home.line();
            home.stat("forwarded") == before
        };
        (0..).map(|key| format!("of{number}-{key}")).find(is_its).unwrap()
    }

    /// Checks what clients see while the home of a key is silent: `silence` and `end` begin and end that.
    pub fn is_missed_while_silent(&self, silence: impl Fn(), end: impl Fn()) {
        let (key, own) = (self.key_of(1), self.key_of(0));
        let mut client = self.client(0);
        client.asks(format!("set {key} 0 0 3\r\nold\r\n"), "STORED\r\n");
        silence();
        // What cannot be read is a miss, and no more than the first is waited for.
        for _ in 0..100 {
            client.asks(format!("get {key}\r\nmg {key} v\r\n"), "END\r\nEN\r\n");
        }
        let refused = "SERVER_ERROR cache c2 is not reached: nothing was changed\r\n";
        for _ in 0..100 {
            client.asks(format!("set {key} 0 0 3\r\nnew\r\n"), refused);
        }
        client.asks(
            format!("set {own} 0 0 1\r\nx\r\nget {own} {key}\r\n"),
            format!("STORED\r\nVALUE {own} 0 1\r\nx\r\nEND\r\n"),
        );
        assert!(client.stat("neighbour_read_failures") >= 200);
        end();
        let value = format!("VALUE {key} 0 3\r\nold\r\nEND\r\n");
        eventually("it is asked again", || client.list(&format!("get {key}")) == value);
        client.asks(format!("set {key} 0 0 3\r\nyet\r\n"), "STORED\r\n");
        client.asks(format!("get {key}\r\n"), format!("VALUE {key} 0 3\r\nyet\r\nEND\r\n"));
    }
}

/// The network on the way to one address. It hands on bytes both ways, and while it is cut holds them, as a sender does whose
/// packets are lost.
struct Relay {
    is_cut: Arc<AtomicBool>,
}

impl Relay {
    fn start(at: SocketAddr, to: SocketAddr) -> Self {
        let is_cut = Arc::new(AtomicBool::new(false));
        let listener = TcpListener::bind(at).unwrap();
        let relay = Relay { is_cut: Arc::clone(&is_cut) };
        thread::spawn(move || {
            for from in listener.incoming().map_while(Result::ok) {
                let is_cut = Arc::clone(&is_cut);
                thread::spawn(move || {
                    await_network(&is_cut);
                    // Nobody is there: whoever asked sees the connection end.
                    let Ok(to) = TcpStream::connect(to) else { return };
                    for stream in [&from, &to] {
                        _ = stream.set_nodelay(true);
                    }
                    let (back_from, back_to) = (to.try_clone().unwrap(), from.try_clone().unwrap());
                    let back = Arc::clone(&is_cut);
                    thread::spawn(move || pump(back_from, back_to, &back));
                    pump(from, to, &is_cut);
                });
            }
        });
        relay
    }
}

impl Drop for Relay {
    /// Its threads go on to live in the process of the other tests, and must not wait there.
    fn drop(&mut self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}

fn relays(cluster: &Cluster) -> Between {
    let relay = |number| Relay::start(cluster.at(RELAYS + number), cluster.at(FABRIC + number));
    Between::Network((0..3).map(relay).collect())
}

fn await_network(is_cut: &AtomicBool) {
    while is_cut.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = match from.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read.unwrap_or(0),
        };
        await_network(is_cut);
        if read == 0 || to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    _ = from.shutdown(Shutdown::Both);
    _ = to.shutdown(Shutdown::Both);
}
