//! Servers of etcd, from Debian's etcd-server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use sidelong_etcd::{Access, Client, Keys, Then};
use sidelong_harness::programs;

use crate::{Cluster, Running, skipped};

/// The port of the first for clients; each has another one for the others.
const PORT: u16 = 2_379;

/// The servers of one etcd, at the addresses of a test's cluster, with their data in its directory.
pub struct Etcd {
    /// Each as long as it runs.
    pub servers: Vec<Option<Running>>,
    cluster: String,
    addresses: Vec<[SocketAddr; 2]>,
    data: Vec<PathBuf>,
    options: Vec<String>,
    scheme: &'static str,
}

impl Etcd {
    /// So many servers, with these options besides. `None`, with a printed reason, without etcd.
    pub fn start(cluster: &Cluster, count: u16, options: &[&str]) -> Option<Self> {
        Self::start_at(cluster, count, options, "http")
    }

    /// As [`start`](Self::start), whose clients come by TLS, for which `options` name certificates.
    pub fn start_tls(cluster: &Cluster, count: u16, options: &[&str]) -> Option<Self> {
        Self::start_at(cluster, count, options, "https")
    }

    fn start_at(cluster: &Cluster, count: u16, options: &[&str], scheme: &'static str) -> Option<Self> {
        if let Err(error) = Command::new("etcd").arg("--version").output() {
            skipped(&format!("etcd: no etcd program: {error}"));
            return None;
        }
        let addresses = |server| [cluster.at(PORT + 10 * server), cluster.at(PORT + 10 * server + 1)];
        let addresses: Vec<_> = (0..count).map(addresses).collect();
        let member = |(server, [_, peers]): (usize, &[SocketAddr; 2])| format!("e{server}=http://{peers}");
        let members: Vec<_> = addresses.iter().enumerate().map(member).collect();
        let mut etcd = Etcd {
            servers: (0..count).map(|_| None).collect(),
            cluster: members.join(","),
            data: (0..count).map(|server| cluster.path(&format!("etcd{server}"))).collect(),
            addresses,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
            scheme,
        };
        (0..usize::from(count)).for_each(|server| etcd.begin(server));
        Some(etcd)
    }

    /// Starts a server, or starts it again with what it had.
    pub fn begin(&mut self, server: usize) {
        let [clients, peers] = self.addresses[server];
        let urls = [format!("{}://{clients}", self.scheme), format!("http://{peers}")];
        let mut command = Command::new("etcd");
        let name = format!("e{server}");
        command.args(programs::etcd(&name, &self.data[server], &urls, &self.cluster)).args(&self.options);
        // On a busy machine elections take their time, and nothing here is timed.
        command.args(["--heartbeat-interval=100", "--election-timeout=1000"]);
        self.servers[server] = Some(Running::start_command(command));
    }

    /// Ends a server as a crash would.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].take().map(Running::kill);
    }

    /// Takes all that a server has, which does not run.
    pub fn wipe(&self, server: usize) {
        std::fs::remove_dir_all(&self.data[server]).unwrap();
    }

    /// Copies all that a server has, which does not run.
    pub fn back_up(&self, server: usize) {
        let copied = Command::new("cp").arg("-a").args([&self.data[server], &self.backup(server)]).status();
        assert!(copied.unwrap().success(), "the data is copied");
    }

    /// Gives a server back what it had at [`back_up`](Self::back_up), and nothing else. It does not run.
    pub fn restore(&self, server: usize) {
        self.wipe(server);
        std::fs::rename(self.backup(server), &self.data[server]).unwrap();
    }

    fn backup(&self, server: usize) -> PathBuf {
        self.data[server].with_extension("backup")
    }

    fn client(&self) -> Client {
        let endpoints = self.endpoints().iter().map(|endpoint| endpoint.parse().unwrap()).collect();
        Client::new(Access::new(endpoints, None, None, None).unwrap()).unwrap()
    }

    /// Stores an entry.
    pub fn put(&self, key: &str, value: &str) {
        self.client().transact(&[], &[Then::Put { key, value: value.as_bytes(), lease: None }]).unwrap();
    }

    /// What an entry holds.
    pub fn get(&self, key: &str) -> String {
        String::from_utf8(self.client().get(Keys::One(key)).unwrap().entries.pop().unwrap().value).unwrap()
    }

    /// Whether there is such an entry.
    pub fn has(&self, key: &str) -> bool {
        !self.client().get(Keys::One(key)).unwrap().entries.is_empty()
    }

    /// Where clients ask.
    pub fn endpoints(&self) -> Vec<String> {
        self.addresses.iter().map(|[clients, _]| format!("{}://{clients}", self.scheme)).collect()
    }
}
