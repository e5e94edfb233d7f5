//! The fabric that a process of a cluster uses: which, why, and how the others' regions are found over it. The one place
//! that knows every backend; all else is handed a host, a directory and initiators.

use std::net::SocketAddr;
use std::sync::Arc;

use sidelong_config::{self as config, Cluster};
use sidelong_fabric::control::{ControlDirectory, Endpoint, Refusals, Secret};
use sidelong_fabric::{Directory, Host, Initiator, Region, RunDirectory, shm::ShmHost, tcp::TcpHost};
use sidelong_load::{self as load, Finder};
use sidelong_reconfig::{BOARD, load_region, words_region};

use crate::failure::Failure;

/// The kind of request that asks a node for the address of its load responder.
const RESPONDER: u8 = 128;

/// How memory is reached.
enum Backend {
    Shm,
    Tcp,
}

/// What a process reaches others by, and is reached by.
pub(crate) struct Fabric {
    backend: Backend,
    note: String,
    run: RunDirectory,
    /// Where parts are on several machines.
    control: Option<Control>,
}

struct Control {
    secret: Secret,
    directory: Arc<ControlDirectory>,
}

impl Fabric {
    /// The one that the cluster file asks for, or the best for where its parts are.
    pub(crate) fn new(cluster: &Cluster, run: &RunDirectory) -> Result<Self, Failure> {
        let (backend, note) = choose(cluster)?;
        let control = match (&backend, &cluster.secret) {
            (Backend::Shm, _) | (_, None) => None,
            (_, Some(secret)) => Some(Control::new(read(secret)?, &cluster.nodes)),
        };
        tracing::info!("{note}");
        Ok(Fabric { backend, note, run: run.clone(), control })
    }

    /// Which it is, and why.
    pub(crate) fn note(&self) -> &str {
        &self.note
    }

    /// Whether memory is shared, and so outlives the process that offered it.
    pub(crate) fn shares_memory(&self) -> bool {
        matches!(self.backend, Backend::Shm)
    }

    /// Whether all parts are on one machine, and so have one clock.
    pub(crate) fn is_of_one_machine(&self) -> bool {
        self.control.is_none()
    }

    /// Where the regions of others are found.
    pub(crate) fn directory(&self) -> Arc<dyn Directory> {
        match &self.control {
            Some(control) => Arc::clone(&control.directory) as _,
            None => Arc::new(self.run.clone()),
        }
    }

    /// Who reaches them, without a link yet.
    pub(crate) fn initiator(&self) -> Initiator {
        Initiator::new()
    }

    /// How others' load responders are found.
    pub(crate) fn responders(&self) -> Finder {
        match &self.control {
            Some(control) => {
                let directory = Arc::clone(&control.directory);
                Box::new(move |node| find_responder(&directory, node))
            }
            None => {
                let run = self.run.path().to_owned();
                Box::new(move |node| load::find_address(&run, node))
            }
        }
    }

    /// How often other processes refused this one, or it them; none where it asks nobody.
    pub(crate) fn refusals(&self) -> Option<Box<dyn Fn() -> Refusals + Send + Sync>> {
        let directory = Arc::clone(&self.control.as_ref()?.directory);
        Some(Box::new(move || directory.refused()))
    }

    /// Where this process offers its own regions, at `listen` where it must be reached over a network.
    pub(crate) fn offer(&self, listen: SocketAddr) -> Result<Offer, Failure> {
        // With an endpoint at it, that tells the port.
        let endpoint = match &self.control {
            Some(control) => Some(Endpoint::listen(listen, control.secret.clone())?),
            None => None,
        };
        let data = match endpoint {
            Some(_) => SocketAddr::new(listen.ip(), 0),
            None => listen,
        };
        let host = match &self.backend {
            Backend::Shm => Host::Shm(ShmHost::new(self.run.path())),
            Backend::Tcp => Host::Tcp(TcpHost::listen(data)?),
        };
        Ok(Offer { host, endpoint, run: self.run.clone() })
    }
}

/// Where a process offers its regions, and lets others find them.
pub(crate) struct Offer {
    pub(crate) host: Host,
    endpoint: Option<Endpoint>,
    run: RunDirectory,
}

impl Offer {
    pub(crate) fn publish(&self, region: &Region) -> Result<(), Failure> {
        match &self.endpoint {
            Some(endpoint) => endpoint.publish(region.key()),
            None => self.run.publish(region.key())?,
        }
        Ok(())
    }

    /// Lets others find who answers for the load of `node`.
    pub(crate) fn publish_responder(&self, node: &str, address: SocketAddr) -> Result<(), Failure> {
        match &self.endpoint {
            Some(endpoint) => {
                let answer = address.to_string().into_bytes();
                endpoint.serve(RESPONDER, move || {
                    let answer = answer.clone();
                    Box::new(move |_| Ok(answer.clone()))
                });
            }
            None => load::publish_address(self.run.path(), node, address)?,
        }
        Ok(())
    }
}

impl Control {
    /// Each node tells of its own regions, the first of the board, too.
    fn new(secret: Secret, nodes: &[config::Node]) -> Self {
        let of_node = |node: &config::Node| {
            [load_region(&node.name), words_region(&node.name)].map(|region| (region, node.fabric_listen))
        };
        let board = nodes.first().map(|node| (BOARD.to_owned(), node.fabric_listen));
        let table = nodes.iter().flat_map(of_node).chain(board);
        let directory = Arc::new(ControlDirectory::new(secret.clone(), table));
        Control { secret, directory }
    }
}

/// What the cluster's parts use, and why.
fn choose(cluster: &Cluster) -> Result<(Backend, String), Failure> {
    let chosen = match (cluster.fabric, &cluster.secret) {
        (config::Fabric::Auto, None) => {
            (Backend::Shm, "fabric shm: all parts share this machine's memory (auto)".to_owned())
        }
        (config::Fabric::Auto, Some(_)) => match verbs(cluster) {
            Ok(backend) => (backend, "fabric verbs: parts are on several machines (auto)".to_owned()),
            Err(Failure(why)) => {
                (Backend::Tcp, format!("fabric tcp: parts are on several machines, and {why} (auto)"))
            }
        },
        (config::Fabric::Shm, _) => (Backend::Shm, "fabric shm, as was asked for".to_owned()),
        (config::Fabric::Tcp, _) => {
            (Backend::Tcp, "fabric tcp, as was asked for: two-sided, the target's CPU answers".to_owned())
        }
        (config::Fabric::Verbs, _) => match verbs(cluster) {
            Ok(backend) => (backend, "fabric verbs, as was asked for".to_owned()),
            Err(Failure(why)) => {
                return Err(Failure::new(format!(
                    "fabric verbs cannot be had: {why}; fabric tcp reaches as far"
                )));
            }
        },
    };
    Ok(chosen)
}

/// The backend on this machine's RDMA device.
///
/// # Errors
/// Why it cannot be had.
fn verbs(_cluster: &Cluster) -> Result<Backend, Failure> {
    Err(Failure::new("this program was built without verbs"))
}

fn read(secret: &config::Secret) -> Result<Secret, Failure> {
    Ok(match secret {
        config::Secret::Text(text) => Secret::new(text.reveal().as_bytes())?,
        config::Secret::File(path) => Secret::read(path)?,
    })
}

fn find_responder(directory: &ControlDirectory, node: &str) -> Result<SocketAddr, load::Error> {
    let asked = directory.exchange(&load_region(node), RESPONDER, b"");
    let told = asked.map_err(|source| load::Error::Ask { name: node.to_owned(), source })?;
    let text = String::from_utf8_lossy(&told);
    text.parse().map_err(|_| load::Error::BadAnswer { name: node.to_owned(), text: text.into_owned() })
}
