//! `sidelong init`: writes a cluster file for servers that run already, and says what it found of them.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::fs::{Mode, OFlags};
use sidelong_app::foreign;
use sidelong_config::{ClusterFile, HOST_EXPECTED, ServerAddress, is_host};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

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
}

const INIT_END: &str = "\
It prints who listens at each server, and the control group whose load is the server's. It changes nothing but the file.

Examples:
  sidelong init --server 127.0.0.1:8080 --server 127.0.0.1:8081 --host app.example
  sidelong init --server 127.0.0.1:8080 --server 127.0.0.1:8081 --host app.example --front nginx
  sidelong up --config sidelong.toml";

/// Port of the edge's admin endpoint: that of its listener and this.
const ADMIN_PORT_OFFSET: u16 = 1000;

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
    let text = text(args, &found);
    // An address that cannot be used is refused as in any cluster file.
    ClusterFile::parse(&text, &args.config.to_string_lossy())?.cluster()?;
    write(&args.config, &text)?;

    for (server, Found { process, is_http2 }) in args.servers.iter().zip(&found) {
        let speech = if *is_http2 { ", which speaks HTTP/2 in clear text" } else { "" };
        say(format_args!("{server}: {process}{speech}\n"))?;
    }
    let (config, host) = (args.config.display(), &args.hosts[0]);
    let then = match args.front {
        Some(_) => format!("sidelong front config {FRONT} --config {config}"),
        None => format!("curl -H 'Host: {host}' http://{}/", args.listen),
    };
    say(format_args!("wrote {config}\nrun:   sidelong up --config {config}\nthen:  {then}\n"))
}

/// What is found of a server.
struct Found {
    /// The process that listens, in words.
    process: String,
    /// Whether it speaks HTTP/2 in clear text, and not HTTP/1.
    is_http2: bool,
}

impl Found {
    async fn of(server: &ServerAddress) -> Self {
        Found { process: foreign::found(server), is_http2: speaks_only_http2(server).await }
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

fn text(args: &InitArgs, found: &[Found]) -> String {
    let mut text = format!(
        "# Written by `sidelong init`. Run it: sidelong up --config {}\n# `sidelong config example` prints a file with all keys.\n\n\
         [cluster]\nname = {:?}\n\n\
         # A site for each host name. It starts with `nodes` servers, and never has fewer than `floor`.\n",
        args.config.display(),
        site_name(args, 0),
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
    text.push_str("# The servers. For each, `sidelong up` runs an agent that reads its load; it does not touch the server.\n");
    for (index, (server, Found { process, is_http2 })) in args.servers.iter().zip(found).enumerate() {
        let http2 = if *is_http2 { "http2 = true\n" } else { "" };
        let _ = write!(
            text,
            "[[node]]\nname = \"s{}\"\nserver = {server:?}  # {process}\n{http2}\
             # workers = 4  # if each worker holds one connection: how many there are; otherwise learned\n\n",
            index + 1,
        );
    }
    text + &args.front.map_or_else(|| edge(args), |make| front(make, args.listen))
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

fn front(make: FrontMake, listen: SocketAddr) -> String {
    let socket = match make {
        FrontMake::Haproxy => format!("socket = {HAPROXY_SOCKET:?}  # of HAProxy's line `stats socket`\n"),
        FrontMake::Nginx | FrontMake::Httpd | FrontMake::Envoy | FrontMake::Connect => String::new(),
    };
    let admin = SocketAddr::new(listen.ip(), listen.port().saturating_add(ADMIN_PORT_OFFSET));
    format!(
        "# What controls the proxy. Its lines: sidelong front config {FRONT}\n[[front]]\nname = \"{FRONT}\"\nproxy = \"{}\"\n{socket}admin = \"{admin}\"  # /metrics, /healthz, /status.json\n",
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

/// Creates the file, which must not exist.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let made = rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).map_err(std::io::Error::from);
    let written = made.and_then(|file| std::fs::File::from(file).write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::new(format!("{} exists already: name another file with --config", path.display()))
        }
        _ => Failure::new(format!("cannot write {}: {error}", path.display())),
    })
}
