//! `sidelong init`: writes a cluster file for servers that run already, and says what it found of them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use sidelong_config::{ClusterFile, ServerAddress};

use crate::cli::InitArgs;
use crate::failure::{Failure, say};
use crate::foreign;

/// Port of the edge's admin endpoint: that of its listener and this.
const ADMIN_PORT_OFFSET: u16 = 1000;

pub(crate) fn run(args: &InitArgs) -> Result<(), Failure> {
    let servers: Vec<_> = args.servers.iter().map(|server| resolved(server)).collect::<Result<_, _>>()?;
    if servers.len() < args.hosts.len() {
        return Err(Failure::new(format!(
            "{} sites (--host) and {} servers (--server): each site needs a server of its own",
            args.hosts.len(),
            servers.len()
        )));
    }
    let found: Vec<_> = servers.iter().map(foreign::found).collect();
    let text = text(args, &found);
    // A host or an address that cannot be used is refused as in any cluster file.
    ClusterFile::parse(&text, &args.config.to_string_lossy())?.cluster()?;
    write(&args.config, &text)?;

    for (server, found) in args.servers.iter().zip(&found) {
        say(format_args!("{server}: {found}\n"))?;
    }
    let (config, host) = (args.config.display(), &args.hosts[0]);
    say(format_args!(
        "wrote {config}\nrun:   sidelong up --config {config}\nthen:  curl -H 'Host: {host}' http://{}/\n",
        args.listen
    ))
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

fn text(args: &InitArgs, found: &[String]) -> String {
    let mut text = format!(
        "# Written by `sidelong init`. Run it: sidelong up --config {}\n# `sidelong config demo` prints a file with all keys.\n\n\
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
             # response_ms_p99 = 50  # target: 99 of 100 admitted requests are answered within this; the excess is rejected\n\n",
            site_name(args, index),
        );
    }
    text.push_str("# The servers. For each, `sidelong up` runs an agent that reads its load; it does not touch the server.\n");
    for (index, (server, found)) in args.servers.iter().zip(found).enumerate() {
        let _ = write!(
            text,
            "[[node]]\nname = \"s{}\"\nserver = {server:?}  # {found}\n\
             # workers = 4  # if each worker holds one connection: how many there are; otherwise learned\n\n",
            index + 1,
        );
    }
    let _ = write!(
        text,
        "# The proxy: point clients here.\n[[edge]]\nname = \"edge1\"\nlisten = \"{}\"\n",
        args.listen
    );
    if let Some(port) = args.listen.port().checked_add(ADMIN_PORT_OFFSET) {
        let admin = SocketAddr::new(args.listen.ip(), port);
        let _ = writeln!(text, "admin = \"{admin}\"  # /metrics, /healthz, /status.json");
    }
    text
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
