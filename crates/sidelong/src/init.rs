//! `sidelong init`: writes a cluster file for servers that run already, and says what it found of them.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;
use sidelong_app::foreign;
use sidelong_config::{Cluster, ClusterFile, HOST_EXPECTED, ServerAddress, is_host};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::cluster::INSTALLED;
use crate::failure::{Failure, say};
use sidelong_harness::up::FrontMake;

#[derive(Args)]
#[command(after_help = INIT_END)]
pub(crate) struct InitArgs {
    /// A server that answers HTTP/1.1, by host and port or Unix socket (unix:/run/app.sock). Give it once for each server.
    #[arg(long = "server", value_name = "HOST:PORT", required = true)]
    pub(crate) servers: Vec<String>,
    /// The Host header of a site. Give it once for each site; the servers are dealt out to the sites.
    #[arg(long = "host", value_name = "NAME", required = true)]
    pub(crate) hosts: Vec<String>,
    /// Where clients will connect.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8000")]
    pub(crate) listen: SocketAddr,
    /// The proxy of yours that clients connect to: a front controls it, in place of an edge.
    #[arg(long, value_name = "MAKE", conflicts_with = "listen")]
    pub(crate) front: Option<FrontMake>,
    /// The file to write, which must not exist.
    #[arg(long, value_name = "FILE", default_value = "sidelong.toml")]
    pub(crate) config: PathBuf,
    /// Write /etc/sidelong/cluster.toml instead, and have systemd start a unit for each part with this machine. It takes the package, and root.
    #[arg(long, conflicts_with = "config")]
    pub(crate) install: bool,
}

const INIT_END: &str = "\
It prints who listens at each server, and the control group whose load is the server's. Without --install it changes nothing but the file.

Examples:
  sidelong init --server 127.0.0.1:8080 --server 127.0.0.1:8081 --host app.example
  sidelong init --server 127.0.0.1:8080 --server 127.0.0.1:8081 --host app.example --front nginx
  sidelong up --config sidelong.toml
  sudo sidelong init --install --server 127.0.0.1:8080 --server 127.0.0.1:8081 --host app.example";

/// Port of the edge's admin endpoint: that of its listener and this.
const ADMIN_PORT_OFFSET: u16 = 1000;

/// The directory that the units make, and the group of what the package installs.
const RUN: &str = "/run/sidelong";
const GROUP: &str = "sidelong";
/// Where an administrator's units are.
const SYSTEMD: &str = "/etc/systemd/system";
/// Name of the front.
const FRONT: &str = "web1";
/// Where Debian's HAProxy opens its Runtime API.
const HAPROXY_SOCKET: &str = "/run/haproxy/admin.sock";
/// The addresses of sites where connections are directed: a part of 127.0.0.0/8 that nothing else uses.
const CONNECT: &str = "127.77.0";

pub(crate) fn run(args: &InitArgs) -> Result<(), Failure> {
    if let Some(host) = args.hosts.iter().find(|host| !is_host(host)) {
        return Err(Failure::new(format!("--host {host}: expected {HOST_EXPECTED}")));
    }
    let servers: Vec<_> = args.servers.iter().map(|server| resolved(server)).collect::<Result<_, _>>()?;
    if servers.len() < args.hosts.len() {
        return Err(Failure::new(format!(
            "{} sites (--host) and {} servers (--server): each site needs a server of its own",
            args.hosts.len(),
            servers.len()
        )));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found: Vec<_> = servers.iter().map(|server| runtime.block_on(Found::of(server))).collect();
    let config = if args.install { Path::new(INSTALLED) } else { &args.config };
    if args.install && args.front == Some(FrontMake::Connect) {
        return Err(Failure::new(
            "--install sets nothing up for --front connect, whose unit needs privileges: use init without it, and see docs/fronts.md",
        ));
    }
    if config.exists() {
        return Err(exists(config));
    }
    let text = text(args, config, &found);
    // An address that cannot be used is refused as in any cluster file.
    let cluster = ClusterFile::parse(&text, &config.to_string_lossy())?.cluster()?;
    // Before the file, so that what fails is repeated by the same command.
    if args.install {
        Units::of(&cluster)?.enable()?;
    }
    write(config, &text)?;

    for (server, Found { process, is_http2, .. }) in args.servers.iter().zip(&found) {
        let speech = if *is_http2 { ", which speaks HTTP/2 in clear text" } else { "" };
        say(format_args!("{server}: {process}{speech}\n"))?;
    }
    let (config, host) = (config.display(), &args.hosts[0]);
    let of = if args.install { String::new() } else { format!(" --config {config}") };
    let then = match args.front {
        Some(_) => format!("sidelong front config {FRONT}{of}"),
        None => format!("curl -H 'Host: {host}' http://{}/", args.listen),
    };
    let run = match args.install {
        true => "systemctl start sidelong.target".to_owned(),
        false => format!("sidelong up{of}"),
    };
    say(format_args!("wrote {config}\nrun:   {run}\nthen:  {then}\n"))
}

/// The units of a cluster's parts, which the package brings.
struct Units {
    names: Vec<String>,
    /// Of the edges: each socket's unit, and where it listens.
    sockets: Vec<(String, SocketAddr)>,
}

impl Units {
    /// # Errors
    /// If the package is not installed.
    fn of(cluster: &Cluster) -> Result<Units, Failure> {
        let directory = Path::new(INSTALLED).parent().unwrap_or(Path::new("/"));
        if !directory.is_dir() {
            return Err(Failure::new(format!(
                "there is no {}: --install takes Debian's package of sidelong",
                directory.display()
            )));
        }
        let unit = |kind: &str, name: &str| format!("sidelong-{kind}@{name}.service");
        let nodes = cluster.nodes.values().map(|node| unit("node", &node.name));
        let edges = cluster.edges.iter().map(|edge| unit("edge", &edge.name));
        let fronts = cluster.fronts.values().filter(|front| front.controls.is_some());
        let fronts = fronts.map(|front| unit("front", &front.name));
        let sockets =
            cluster.edges.iter().map(|edge| (format!("sidelong-edge@{}.socket", edge.name), edge.listen));
        let sockets: Vec<_> = sockets.collect();
        let names = ["sidelong.target".to_owned()].into_iter().chain(nodes).chain(edges).chain(fronts);
        Ok(Units { names: names.chain(sockets.iter().map(|(name, _)| name.clone())).collect(), sockets })
    }

    /// Has systemd start them with the machine, and listen for the edges.
    fn enable(&self) -> Result<(), Failure> {
        for (socket, listen) in &self.sockets {
            let directory = Path::new(SYSTEMD).join(format!("{socket}.d"));
            let path = directory.join("listen.conf");
            let text = format!("# `listen` of the edge in {INSTALLED}\n[Socket]\nListenStream={listen}\n");
            let written = fs::create_dir_all(&directory).and_then(|()| fs::write(&path, text));
            written.map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))?;
        }
        let mut systemctl = Command::new("systemctl");
        let done = systemctl.args(["enable", "--quiet"]).args(&self.names).output();
        let why = match done {
            Ok(done) if done.status.success() => return Ok(()),
            Ok(done) => String::from_utf8_lossy(&done.stderr).trim_end().to_owned(),
            Err(error) => error.to_string(),
        };
        Err(Failure::new(format!("systemctl enable {} failed: {why}", self.names.join(" "))))
    }
}

/// What is found of a server.
struct Found {
    /// The process that listens, in words.
    process: String,
    /// The unit of systemd that it belongs to, if that is known. Who runs the agent may not see the process.
    unit: Option<String>,
    /// Whether it speaks HTTP/2 in clear text, and not HTTP/1.
    is_http2: bool,
}

impl Found {
    async fn of(server: &ServerAddress) -> Self {
        Found {
            process: foreign::found(server),
            unit: foreign::unit(server),
            is_http2: speaks_only_http2(server).await,
        }
    }
}

/// A request that no server minds.
const OPTIONS: &[u8] = b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
/// The client's preface, with an empty SETTINGS frame (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// A frame's head, and where in it the type is. A server's first frame is SETTINGS.
const FRAME_HEAD_BYTES: usize = 9;
const TYPE: usize = 3;
const SETTINGS: u8 = 4;
/// Longest wait for each of a server's answers.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// Whether a server gives no answer of HTTP/1, but one of HTTP/2.
async fn speaks_only_http2(server: &ServerAddress) -> bool {
    let is_http1 = |head: &[u8; FRAME_HEAD_BYTES]| head.starts_with(b"HTTP/");
    if head_of_answer(server, OPTIONS).await.is_some_and(|head| is_http1(&head)) {
        return false;
    }
    let head = head_of_answer(server, PREFACE).await;
    head.is_some_and(|head| !is_http1(&head) && head[TYPE] == SETTINGS)
}

async fn head_of_answer(server: &ServerAddress, request: &[u8]) -> Option<[u8; FRAME_HEAD_BYTES]> {
    let answer = async {
        match server {
            ServerAddress::Tcp(address) => ask(TcpStream::connect(address).await?, request).await,
            ServerAddress::Unix(path) => ask(UnixStream::connect(path).await?, request).await,
        }
    };
    timeout(ANSWER_MAX, answer).await.ok()?.ok()
}

async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    request: &[u8],
) -> io::Result<[u8; FRAME_HEAD_BYTES]> {
    stream.write_all(request).await?;
    let mut head = [0; FRAME_HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    Ok(head)
}

fn resolved(server: &str) -> Result<ServerAddress, Failure> {
    if let Some(path) = server.strip_prefix(ServerAddress::UNIX) {
        return Ok(ServerAddress::Unix(path.into()));
    }
    let failed = |why: String| {
        Failure::new(format!(
            "--server {server}: {why}; give a host and a port, such as 127.0.0.1:8080, or unix:/run/app.sock"
        ))
    };
    let mut addresses = server.to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    addresses.next().map(ServerAddress::from).ok_or_else(|| failed("the name has no address".to_owned()))
}

fn text(args: &InitArgs, config: &Path, found: &[Found]) -> String {
    let name = site_name(args, 0);
    let (run, run_dir) = match args.install {
        true => (
            "systemctl start sidelong.target".to_owned(),
            format!("run_dir = \"{RUN}/{name}\"  # below what the units make\n"),
        ),
        false => (format!("sidelong up --config {}", config.display()), String::new()),
    };
    let mut text = format!(
        "# Written by `sidelong init`. Run it: {run}\n# `sidelong config example` prints a file with all keys.\n\n\
         [cluster]\nname = {name:?}\n{run_dir}\n\
         # A site for each host name. It starts with `nodes` servers, and never has fewer than `floor`.\n"
    );
    for (index, host) in args.hosts.iter().enumerate() {
        let nodes = (found.len() + args.hosts.len() - 1 - index) / args.hosts.len();
        let _ = write!(
            text,
            "[[site]]\nname = {:?}\nhosts = [{host:?}]\nnodes = {nodes}\nfloor = 1\n\
             # response_ms_p99 = 50  # target: 99 of 100 admitted requests are answered within this; the excess is rejected\n",
            site_name(args, index),
        );
        if args.front == Some(FrontMake::Connect) {
            let port = args.listen.port();
            let _ = writeln!(text, "connect = \"{CONNECT}.{}:{port}\"  # programs connect here", index + 1);
        }
        text.push('\n');
    }
    text.push_str(
        "# The servers. Beside each runs an agent that reads its load; it does not touch the server.\n",
    );
    for (index, (server, Found { process, unit, is_http2 })) in args.servers.iter().zip(found).enumerate() {
        let http2 = if *is_http2 { "http2 = true\n" } else { "" };
        let unit = unit.as_ref().map(|unit| format!("unit = {unit:?}  # its load is that of the server\n"));
        let unit = unit.filter(|_| args.install).unwrap_or_default();
        let _ = write!(
            text,
            "[[node]]\nname = \"s{}\"\nserver = {server:?}  # {process}\n{http2}{unit}\
             # workers = 4  # if each worker holds one connection: how many there are; otherwise learned\n\n",
            index + 1,
        );
    }
    text + &args.front.map_or_else(|| edge(args), |make| front(args, make))
}

fn edge(args: &InitArgs) -> String {
    let listen = args.listen;
    let mut text =
        format!("# The proxy: point clients here.\n[[edge]]\nname = \"edge1\"\nlisten = \"{listen}\"\n");
    if let Some(port) = listen.port().checked_add(ADMIN_PORT_OFFSET) {
        let admin = SocketAddr::new(listen.ip(), port);
        let _ = writeln!(text, "admin = \"{admin}\"  # /metrics, /healthz, /status.json");
    }
    text
}

fn front(args: &InitArgs, make: FrontMake) -> String {
    let listen = args.listen;
    let socket = match make {
        FrontMake::Haproxy => format!("socket = {HAPROXY_SOCKET:?}  # of HAProxy's line `stats socket`\n"),
        FrontMake::Nginx | FrontMake::Httpd | FrontMake::Envoy | FrontMake::Connect => String::new(),
    };
    let admin = SocketAddr::new(listen.ip(), listen.port().saturating_add(ADMIN_PORT_OFFSET));
    let dir = match (args.install, make) {
        (true, FrontMake::Nginx | FrontMake::Httpd | FrontMake::Envoy) => {
            format!(
                "dir = \"{RUN}\"  # where the proxy's workers find its memory\ngroup = \"{GROUP}\"  # theirs, too\n"
            )
        }
        _ => String::new(),
    };
    format!(
        "# What controls the proxy. Its lines: sidelong front config {FRONT}\n[[front]]\nname = \"{FRONT}\"\nproxy = \"{}\"\n{socket}{dir}admin = \"{admin}\"  # /metrics, /healthz, /status.json\n",
        make.of_file()
    )
}

/// The first label of the site's host; with a number if an earlier site has it.
fn site_name(args: &InitArgs, index: usize) -> String {
    let label = |host: &str| host.split('.').next().unwrap_or(host).to_owned();
    let name = label(&args.hosts[index]);
    let is_taken = args.hosts[..index].iter().any(|host| label(host) == name);
    if is_taken { format!("{name}{}", index + 1) } else { name }
}

fn exists(path: &Path) -> Failure {
    let instead = match path == Path::new(INSTALLED) {
        true => "edit it, and have its parts go by it: sidelong reload",
        false => "name another file with --config",
    };
    Failure::new(format!("{} exists already: {instead}", path.display()))
}

/// Creates the file, which must not exist. It belongs to the user to whom its directory does.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let make = || {
        let file = std::fs::File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o644))?);
        if geteuid().is_root() {
            let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let owner = std::fs::metadata(above)?;
            std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()))?;
        }
        (&file).write_all(text.as_bytes())
    };
    let written = make();
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => exists(path),
        _ => Failure::new(format!("cannot write {}: {error}", path.display())),
    })
}
