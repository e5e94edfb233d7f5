//! The fabric that a process of a cluster uses: which, why, and how the others' regions are found over it. All else of the
//! cluster is handed a host, a directory and initiators, and knows no backend; `perf` alone takes the one it is told to.

use std::net::SocketAddr;
use std::sync::Arc;

use sidelong_config::{self as config, Cluster};
use sidelong_edge::{Counts, share_region};
use sidelong_fabric::control::{ControlDirectory, Endpoint, Secret};
#[cfg(feature = "verbs")]
use sidelong_fabric::verbs::{Completions, Device, DeviceSpec, VerbsHost};
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
    #[cfg(feature = "verbs")]
    Verbs(Device),
}

/// What a process reaches others by, and is reached by.
pub(crate) struct Fabric {
    backend: Backend,
    note: String,
    run: RunDirectory,
    /// What control endpoints are shown, where there are any.
    secret: Option<Secret>,
    /// Who tells of which region, where parts are on several machines; else the run directory does.
    control: Option<Arc<ControlDirectory>>,
}

impl Fabric {
    /// The one that the cluster file asks for, or the best for where its parts are.
    pub(crate) fn new(cluster: &Cluster, run: &RunDirectory) -> Result<Self, Failure> {
        let (backend, note) = choose(cluster)?;
        let secret = match (&backend, &cluster.secret) {
            (Backend::Shm, _) | (Backend::Tcp, None) => None,
            (_, Some(secret)) => Some(read(secret)?),
            #[cfg(feature = "verbs")]
            (Backend::Verbs(_), None) => Some(run.secret()?),
        };
        let told = secret.as_ref().filter(|_| cluster.secret.is_some());
        let control = told.map(|secret| Arc::new(ControlDirectory::new(secret.clone(), table(cluster))));
        tracing::info!("{note}");
        Ok(Fabric { backend, note, run: run.clone(), secret, control })
    }

    /// Which it is, and why.
    pub(crate) fn note(&self) -> &str {
        &self.note
    }

    /// Which it is, in a word.
    pub(crate) fn name(&self) -> &'static str {
        match self.backend {
            Backend::Shm => "shm",
            Backend::Tcp => "tcp",
            #[cfg(feature = "verbs")]
            Backend::Verbs(_) => "verbs",
        }
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
            Some(control) => Arc::clone(control) as _,
            None => Arc::new(self.run.clone()),
        }
    }

    /// Who reaches them, without a link yet.
    pub(crate) fn initiator(&self) -> Result<Initiator, Failure> {
        match (&self.backend, &self.secret) {
            #[cfg(feature = "verbs")]
            (Backend::Verbs(device), Some(secret)) => Ok(Initiator::with_verbs(device, secret)?),
            _ => Ok(Initiator::new()),
        }
    }

    /// How others' load responders are found.
    pub(crate) fn responders(&self) -> Finder {
        match &self.control {
            Some(control) => {
                let directory = Arc::clone(control);
                Box::new(move |node| find_responder(&directory, node))
            }
            None => {
                let run = self.run.path().to_owned();
                Box::new(move |node| load::find_address(&run, node))
            }
        }
    }

    /// What a process tells of it in its metrics.
    pub(crate) fn counts(&self) -> Vec<Counts> {
        let mut counts = Vec::new();
        if let Some(control) = self.control.clone() {
            counts.push(Counts {
                name: "control_refused",
                help: "Sessions with nodes for their keys that either side refused, by cause",
                label: "cause",
                read: Box::new(move || control.refused().iter().collect()),
            });
        }
        #[cfg(feature = "verbs")]
        if let Backend::Verbs(device) = &self.backend {
            let device = device.clone();
            counts.push(Counts {
                name: "verbs_links",
                help: "Links over verbs that ended by a completion in error, were made again, or turned away as target",
                label: "what",
                read: Box::new(move || {
                    let counters = device.counters();
                    vec![
                        ("failed", counters.completions_in_error),
                        ("made_again", counters.reconnects),
                        ("refused", counters.refused),
                    ]
                }),
            });
        }
        counts
    }

    /// Where this process offers its own regions, at `listen` where it must be reached over a network.
    pub(crate) fn offer(&self, listen: SocketAddr) -> Result<Offer, Failure> {
        let endpoint = match &self.secret {
            Some(secret) => Some(Endpoint::listen(listen, secret.clone())?),
            None => None,
        };
        let host = match &self.backend {
            Backend::Shm => Host::Shm(ShmHost::new(self.run.path())),
            Backend::Tcp => {
                // An endpoint has that port, and tells this one's.
                let port = if endpoint.is_some() { 0 } else { listen.port() };
                Host::Tcp(TcpHost::listen(SocketAddr::new(listen.ip(), port))?)
            }
            #[cfg(feature = "verbs")]
            Backend::Verbs(device) => {
                let endpoint = endpoint.as_ref().expect("where verbs is there is a secret");
                Host::Verbs(VerbsHost::new(device, endpoint)?)
            }
        };
        Ok(Offer { host, endpoint: endpoint.filter(|_| self.control.is_some()), run: self.run.clone() })
    }
}

/// Where a process offers its regions, and lets others find them.
pub(crate) struct Offer {
    pub(crate) host: Host,
    /// Where others ask for keys; else they look into the run directory.
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

    /// What a process tells of it in its metrics.
    pub(crate) fn counts(&self) -> Option<Counts> {
        let endpoint = self.endpoint.clone()?;
        Some(Counts {
            name: "control_endpoint_refused",
            help: "Sessions for this process's keys that it refused, by cause",
            label: "cause",
            read: Box::new(move || endpoint.refused().iter().collect()),
        })
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

/// Where to ask for each region: each node and edge tells of its own, the first node of the board, too.
fn table(cluster: &Cluster) -> impl Iterator<Item = (String, SocketAddr)> + '_ {
    let nodes = &cluster.nodes;
    let of_node = |node: &config::Node| {
        [load_region(&node.name), words_region(&node.name)].map(|region| (region, node.fabric_listen))
    };
    let board = nodes.first().map(|node| (BOARD.to_owned(), node.fabric_listen));
    let of_edge = |edge: &config::Edge| Some((share_region(&edge.name), edge.fabric_listen?));
    nodes.iter().flat_map(of_node).chain(board).chain(cluster.edges.iter().filter_map(of_edge))
}

/// What the cluster's parts use, and why.
fn choose(cluster: &Cluster) -> Result<(Backend, String), Failure> {
    let chosen = match (cluster.fabric, &cluster.secret) {
        (config::Fabric::Auto, None) => {
            (Backend::Shm, "fabric shm: all parts share this machine's memory (auto)".to_owned())
        }
        (config::Fabric::Auto, Some(_)) => match verbs(cluster) {
            Ok((backend, device)) => (
                backend,
                format!("fabric verbs: parts are on several machines, and this one has {device} (auto)"),
            ),
            Err(Failure(why)) => {
                (Backend::Tcp, format!("fabric tcp: parts are on several machines, and {why} (auto)"))
            }
        },
        (config::Fabric::Shm, _) => (Backend::Shm, "fabric shm, as was asked for".to_owned()),
        (config::Fabric::Tcp, _) => {
            (Backend::Tcp, "fabric tcp, as was asked for: two-sided, the target's CPU answers".to_owned())
        }
        (config::Fabric::Verbs, _) => match verbs(cluster) {
            Ok((backend, device)) => (backend, format!("fabric verbs, as was asked for, on {device}")),
            Err(Failure(why)) => {
                return Err(Failure::new(format!(
                    "fabric verbs cannot be had: {why}; fabric tcp reaches as far"
                )));
            }
        },
    };
    Ok(chosen)
}

/// The backend on this machine's RDMA device, and what that is.
///
/// # Errors
/// Why it cannot be had.
#[cfg(feature = "verbs")]
fn verbs(cluster: &Cluster) -> Result<(Backend, String), Failure> {
    let config::Verbs { device, port, gid_index, completion, retries } = cluster.verbs.clone();
    let completions = match completion {
        config::Completion::Polling => Completions::Polling,
        config::Completion::Events => Completions::Events,
    };
    let spec = DeviceSpec { device, port, gid_index, completions, retries };
    let device = Device::open(&spec)?;
    let described = device.describe();
    Ok((Backend::Verbs(device), described))
}

#[cfg(not(feature = "verbs"))]
fn verbs(_: &Cluster) -> Result<(Backend, String), Failure> {
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
