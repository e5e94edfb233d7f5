//! `sidelong agents`: the agents of many nodes in one process.

use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use sidelong_app::agents::{self, AgentsSpec, SourceSpec};
use sidelong_config::lowest;
use sidelong_kubernetes::{Access, Server, Service};

use crate::cluster::{self, INSTALLED};
use crate::failure::Failure;
use crate::part::{self, Signals};
use crate::supervisor;

/// Longest wait for a host to be found, and the pause between two attempts.
const FOUND_MAX: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
#[command(after_help = AGENTS_END)]
pub(crate) struct AgentsArgs {
    /// Cluster file, with [etcd].
    #[arg(long, value_name = "FILE", default_value = INSTALLED)]
    config: PathBuf,
    /// This machine's name or address, as it stands in `fabric_listen` of the nodes.
    #[arg(long, value_name = "HOST")]
    at: String,
    /// Where metrics and readiness are asked for: an address and a port.
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// The service of Kubernetes whose endpoints are nodes: its pods join once they are ready, and leave before they end.
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "ports")]
    kubernetes: Option<Service>,
    /// Ports of this machine for the control endpoints of these nodes, of which each needs one.
    #[arg(long, value_name = "FIRST-LAST", value_parser = ports, requires = "kubernetes")]
    ports: Option<RangeInclusive<u16>>,
    /// Which port of the service, by name or number, if it has several.
    #[arg(long, value_name = "PORT", requires = "kubernetes")]
    port: Option<String>,
    /// The API server, where this is no pod.
    #[arg(long, value_name = "URL", requires = "kubernetes")]
    api_server: Option<Server>,
    /// Who has signed its certificate: a PEM file.
    #[arg(long, value_name = "FILE", requires = "api_server")]
    api_ca: Option<PathBuf>,
    /// A file with the token that it asks for.
    #[arg(long, value_name = "FILE", requires = "api_server")]
    api_token: Option<PathBuf>,
}

const AGENTS_END: &str = "\
It runs the agent of each node with a server of yours whose fabric_listen is at HOST: those of nodes that join begin, those of nodes that have
left end. The load of servers on other machines is not known to it: edges go by their own requests there.
SIGTERM and SIGINT stop it. Meanwhile its nodes do not move, and edges go by their own requests there, unless there are other nodes.

Examples:
  sidelong agents --config /etc/sidelong/cluster.toml --at 10.0.0.21
  sidelong agents --config /etc/sidelong/cluster.toml --at agents.example --kubernetes shop/web --ports 7201-7399";

/// Runs the agents.
pub(crate) fn run(args: &AgentsArgs) -> Result<(), Failure> {
    let signals = Signals::take()?;
    let cluster = cluster::short(&args.config)?;
    let at = found(&args.at)?;
    let source = match (&args.kubernetes, &args.ports) {
        (Some(service), Some(ports)) => Some(SourceSpec {
            access: access(args)?,
            service: service.clone(),
            port: args.port.clone(),
            // As an address with a port is written.
            host: if at.is_ipv6() && args.at.trim_matches(['[', ']']).parse() == Ok(at) {
                format!("[{at}]")
            } else {
                args.at.clone()
            },
            ports: ports.clone(),
        }),
        _ => None,
    };
    let agents = agents::start(AgentsSpec { cluster, at, source, admin: args.admin })?;
    part::follow(signals, &agents, &args.config)?;
    supervisor::ready();
    agents.wait()
}

fn access(args: &AgentsArgs) -> Result<Access, Failure> {
    Ok(match &args.api_server {
        Some(server) => Access::new(server.clone(), args.api_ca.clone(), args.api_token.clone()),
        None => Access::of_pod()?,
    })
}

/// The address of this machine that a host means. It is waited for: a pod's name may be known only after the pod has started.
fn found(host: &str) -> Result<IpAddr, Failure> {
    let deadline = Instant::now() + FOUND_MAX;
    loop {
        let found = (host.trim_matches(['[', ']']), 0).to_socket_addrs();
        // A name server may yet tell where the pod was before.
        let is_here = |ip: &IpAddr| TcpListener::bind((*ip, 0)).is_ok();
        match found.map(|found| lowest(found.map(|at| at.ip()).filter(is_here))) {
            Ok(Some(at)) => return Ok(at),
            _ if Instant::now() < deadline => thread::sleep(LOOK_EVERY),
            Ok(None) => return Err(Failure::new(format!("--at: {host} has no address of this machine"))),
            Err(error) => return Err(Failure::new(format!("--at: {host} is not found: {error}"))),
        }
    }
}

fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let range = text.split_once('-').and_then(|(first, last)| Some(first.parse().ok()?..=last.parse().ok()?));
    range
        .filter(|range: &RangeInclusive<u16>| !range.is_empty() && *range.start() > 0)
        .ok_or_else(|| "expected two ports, such as 7201-7399".to_owned())
}
