//! The processes of edge-overhead, and a turn of one proxy.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderValue, Uri};
use serde::Serialize;
use sidelong_config::{ClusterFile, EdgeEntry, Identity, NodeEntry, Service, SiteEntry, default_run_dir};
use sidelong_workload::client::{ClientConfig, Generator, Load, Shot};

use super::Proxy;
use crate::bench::Bench;
use crate::cpus::{self, Pinned};
use crate::error::{Error, Result, file};
use crate::process::{Process, last_line};

/// Clients, each with one request under way.
pub(super) const CONNECTIONS: u32 = 48;
/// 1 KB that the server makes up.
pub(super) const OBJECT: &str = "/o/0/1024";
const HOST: &str = "a.example";
/// The bare proxy does not look at it, the edge has the node under it.
const NODE: &str = "n1";
const EDGE: &str = "edge1";
/// A process has this long to serve.
const READY_MAX: Duration = Duration::from_secs(20);
/// To answer one request, of those that ask whether it serves.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Between two looks at a load under way, or at a process that is to serve.
const POLL: Duration = Duration::from_millis(10);

/// What came of one proxy's turn.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Turn {
    pub(super) requests: u64,
    pub(super) requests_per_s: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    /// Of the proxy's process, user and system.
    pub(super) cpu_us_per_request: f64,
    /// Of the turn, how much the proxy's process was on its CPU.
    pub(super) cpu_busy: f64,
    pub(super) errors: u64,
}

/// All processes, up and serving. The proxies are stopped but in their turns. They end in this order.
pub(super) struct Stage {
    edge: Server,
    bare: Server,
    _node: Server,
    _run: RunFiles,
    /// The proxies', and that of the load and the node.
    pub(super) cpus: [usize; 2],
    stop: Arc<AtomicBool>,
}

impl Stage {
    pub(super) fn set(bench: &Bench<'_>) -> Result<Stage> {
        let cpus = cpus::two()?;
        let [proxy_cpu, load_cpu] = cpus;
        let config = bench.path("configs/edge.toml");
        let cluster = cluster_file(&bench.ground.name, bench.ground.port);
        let run = RunFiles::clear(default_run_dir(&cluster.cluster.name));
        let (node, edge) = (cluster.nodes[0].listen, cluster.edges[0].listen);
        let bare = SocketAddr::from((Ipv4Addr::LOCALHOST, bench.ground.port + 2));
        let text = format!("# {}: one edge before one node, which takes no time.\n\n", bench.experiment.id);
        file(&config, fs::write(&config, text + &cluster.to_toml()?))?;

        let part = |kind, name| {
            let mut command = Command::new(&bench.options.program);
            command.args([kind, name, "--with-parent", "--config"]).arg(&config);
            command
        };
        let mut bare_proxy = Command::new(&bench.options.program);
        bare_proxy.args(["lab", "bare-proxy"]).args([bare, node].map(|address| address.to_string()));
        let stop = Arc::clone(&bench.options.stop);
        let node = Server::start(bench, "node", part("node", NODE), node, load_cpu)?;
        let bare = Server::start(bench, "bare", bare_proxy, bare, proxy_cpu)?;
        bare.process.pause();
        let edge = Server::start(bench, "edge", part("edge", EDGE), edge, proxy_cpu)?;
        edge.process.pause();
        Ok(Stage { edge, bare, _node: node, _run: run, cpus, stop })
    }

    /// Puts the load on `proxy` for `time`.
    pub(super) fn turn(&mut self, proxy: Proxy, time: Duration) -> Result<Turn> {
        let server = match proxy {
            Proxy::Bare => &mut self.bare,
            Proxy::Edge => &mut self.edge,
        };
        server.process.resume();
        let turn = server.turn(time, self.cpus[1], &self.stop);
        server.process.pause();
        turn
    }
}

fn cluster_file(name: &str, port: u16) -> ClusterFile {
    let at = |offset: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port + offset));
    ClusterFile {
        cluster: Identity { name: name.to_owned(), ..Identity::default() },
        sites: vec![SiteEntry::new("a", HOST, 1)],
        nodes: vec![NodeEntry { service: Service::None, ..NodeEntry::new(NODE, 1, at(0)) }],
        edges: vec![EdgeEntry::new(EDGE, at(1))],
        ..ClusterFile::default()
    }
}

/// The run directory, which goes with this value.
struct RunFiles(PathBuf);

impl RunFiles {
    /// Without what a lab that was killed left there.
    fn clear(path: PathBuf) -> RunFiles {
        drop(RunFiles(path.clone()));
        RunFiles(path)
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        // What is not there need not go.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process that serves HTTP.
struct Server {
    name: &'static str,
    process: Process,
    address: SocketAddr,
    log: PathBuf,
}

impl Server {
    /// Starts it on `cpu`, and waits until it serves.
    fn start(
        bench: &Bench<'_>,
        name: &'static str,
        command: Command,
        address: SocketAddr,
        cpu: usize,
    ) -> Result<Server> {
        let output = |extension: &str| bench.path(&format!("runs/{name}.{extension}"));
        let log = output("log");
        let pinned = Pinned::to(cpu)?;
        let process = Process::start(command, &output("out"), &log)?;
        drop(pinned);
        let mut server = Server { name, process, address, log };
        server.await_service(&bench.options.stop)?;
        Ok(server)
    }

    fn await_service(&mut self, stop: &AtomicBool) -> Result<()> {
        let deadline = Instant::now() + READY_MAX;
        while !answers(self.address) {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            if let Some(status) = self.process.status()? {
                return Err(self.failed(format!("ended with {status}")));
            }
            if Instant::now() > deadline {
                return Err(self.failed(format!(
                    "no answer at {} in {} s",
                    self.address,
                    READY_MAX.as_secs()
                )));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn failed(&self, otherwise: String) -> Error {
        Error::Serve { what: self.name.to_owned(), said: last_line(&self.log).unwrap_or(otherwise) }
    }

    /// Puts the load on it for `time`, from `cpu`.
    fn turn(&mut self, time: Duration, cpu: usize, stop: &AtomicBool) -> Result<Turn> {
        let host = HeaderValue::from_static(HOST);
        let uri = Uri::from_static(OBJECT);
        let load = Load::Closed { connections_per_edge: CONNECTIONS, think: Duration::ZERO };
        let config = ClientConfig {
            duration_max: Some(time),
            ..ClientConfig::new(vec![self.address], vec!["a".into()], load)
        };
        let generator = Generator::new(config, move |_| Shot::get(0, host.clone(), uri.clone()))?;

        let (begun, cpu_before) = (Instant::now(), self.process.cpu_time()?);
        let pinned = Pinned::to(cpu)?;
        let load = generator.start()?;
        while !load.is_finished() {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            std::thread::sleep(POLL);
        }
        drop(pinned);
        let elapsed = begun.elapsed();
        let summary = load.wait()?;
        let cpu = (self.process.cpu_time()? - cpu_before).as_secs_f64();
        if summary.requests == summary.errors {
            return Err(self.failed(format!("no request was answered, {} errors", summary.errors)));
        }
        Ok(Turn {
            requests: summary.requests,
            requests_per_s: summary.requests_per_s,
            p50_ms: summary.latency.p50_ms,
            p99_ms: summary.latency.p99_ms,
            cpu_us_per_request: cpu * 1e6 / summary.requests as f64,
            cpu_busy: cpu / elapsed.as_secs_f64(),
            errors: summary.errors,
        })
    }
}

/// Whether a request is answered there as it should be.
fn answers(address: SocketAddr) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_MAX)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        write!(stream, "GET {OBJECT} HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n")?;
        let mut status = [0; 12];
        stream.read_exact(&mut status)?;
        std::io::Result::Ok(status)
    };
    ask().is_ok_and(|status| &status == b"HTTP/1.1 200")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_one_node_that_takes_no_time() {
        let cluster = cluster_file("lab", 20_000).cluster().unwrap();
        assert_eq!((cluster.nodes.len(), cluster.sites.len(), cluster.edges.len()), (1, 1, 1));
        assert_eq!(cluster.nodes[0].service, Service::None);
        assert_eq!(cluster.sites[0].hosts, [HOST]);
        assert_eq!((cluster.nodes[0].name.as_str(), cluster.edges[0].name.as_str()), (NODE, EDGE));
        assert_eq!(cluster.edges[0].threads, 1);
    }

    #[test]
    fn nobody_answers_where_nobody_listens() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert!(!answers(address));
    }

    #[test]
    fn run_files_go_with_their_stage() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        fs::create_dir(&run).unwrap();
        drop(RunFiles(run.clone()));
        assert!(!run.exists());
    }
}
