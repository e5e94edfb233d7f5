//! `sidelong node`: one node of a cluster file, with its built-in origin server.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sidelong_config::{self as config, Cluster, Service};
use sidelong_edge::{Admin, NodeMetrics, Pages};
use sidelong_fabric::{Access, Region, RegionSpec};
use sidelong_layout::{KERNEL_BYTES, LOAD_BYTES, RegionKind, SiteId, WORDS_OWNERSHIP};
use sidelong_load::{
    Choice, Keeper, KeeperSpec, KernelRecord, KernelSpec, OriginGauge, OriginLoad, OwnReader, Recorder,
    Responder, ResponderKind, Scheme, Scope, ServerLine, drop_privileges,
};
use sidelong_reconfig::{load_region, offer_board, offer_words};
use sidelong_state::NodeAgent;
use sidelong_workload::origin::{OriginConfig, OriginGauges, ServiceTime, serve};
use tokio::signal::unix::{SignalKind, signal};

use crate::cgroup;
use crate::cli::PartArgs;
use crate::edge::watch_for_node;
use crate::event::Event;
use crate::fabric::Offer;
use crate::failure::Failure;
use crate::parent::{self, end_with_parent};
use crate::parts::{self, Parts};

pub(crate) fn run(args: &PartArgs) -> Result<(), Failure> {
    end_with_parent(args)?;
    let cluster = parts::read(args)?;
    let nodes = &cluster.nodes;
    let index = nodes.iter().position(|node| node.name == args.name).ok_or_else(|| {
        let (file, name) = (args.config.display(), &args.name);
        let names: Vec<_> = nodes.iter().map(|node| node.name.as_str()).collect();
        Failure::new(format!("{file} has no node {name:?}; it has {}", names.join(", ")))
    })?;
    let node = nodes[index].clone();
    let node = &node;

    let listen = |address| {
        TcpListener::bind(address)
            .map_err(|error| Failure::new(format!("node {}: cannot listen on {address}: {error}", node.name)))
    };
    let listener = listen(node.listen)?;
    listener.set_nonblocking(true)?;
    let admin = node.admin.map(listen).transpose()?;

    // Before there are other threads, as privileges are each thread's own, and before an RDMA device is opened, which
    // serves nobody whose privileges have changed since.
    let began_ms = parts::began_ms();
    let (choice, record) = choose_scheme(&cluster, index, args.join_cgroup.as_deref(), began_ms)?;
    let parts = Arc::new(Parts::begun_at(began_ms, cluster)?);
    let _held = parent::hold(args, &parts.run)?;
    let gauges = Arc::new(OriginGauges::default());
    let offer = parts.fabric.offer(node.fabric_listen)?;
    let memory = Memory::offer(&parts, index, &offer, record.as_ref())?;
    let _kept = match record {
        Some(record) => Kept::Kernel { _line: publish_line(node, &memory, &gauges)?, _record: record },
        None => Kept::Threads(keep_load(&parts, node, choice.scheme, &offer, &memory, &gauges)?),
    };
    let _admin = match admin {
        Some(listener) => {
            Some(Admin::start(listener, pages(&parts, node, choice, &offer, &memory, &gauges)?)?)
        }
        None => None,
    };

    let stop = Arc::new(AtomicBool::new(false));
    let watch = if parts.cluster.reconfig.by == config::MovedBy::Server {
        let watch = watch_for_node(&parts, index, args.events)?;
        let (stop, drain) = (Arc::clone(&stop), parts.cluster.reconfig.drain_max);
        Some(std::thread::Builder::new().name("watch".into()).spawn(move || watch.run(&stop, drain))?)
    } else {
        if args.events {
            Event::Ready.tell();
        }
        None
    };

    let served = serve_origin(listener, origin_config(node, index), gauges);
    stop.store(true, Ordering::Relaxed);
    if let Some(watch) = watch {
        // Its panic was printed where it happened.
        let _ = watch.join();
    }
    served
}

/// What a node offers to others, for as long as it lives.
struct Memory {
    load: Region,
    words: Region,
    /// On the first node; over shared memory it is nobody's.
    _board: Option<Region>,
}

impl Memory {
    fn offer(
        parts: &Parts,
        index: usize,
        offer: &Offer,
        record: Option<&KernelRecord>,
    ) -> Result<Self, Failure> {
        let host = &offer.host;
        let node = &parts.cluster.nodes[index];
        let (kind, len) = match record {
            Some(_) => (RegionKind::Kernel, KERNEL_BYTES),
            None => (RegionKind::Load, LOAD_BYTES),
        };
        let name = &load_region(&node.name);
        let spec = RegionSpec { name, kind, len, access: Access::ReadOnly, incarnation: parts.began_ms };
        let load = match record {
            Some(record) => host.offer_mapped(&spec, &record.memory()?)?,
            None => host.offer(&spec, |_| ())?,
        };
        let words = offer_words(host, &node.name, node.site.map(SiteId::new), parts.began_ms)?;
        let board = match parts.fabric.shares_memory() || index == 0 {
            true => Some(offer_board(host, parts.board_map(), &parts.board_init(), parts.began_ms)?),
            false => None,
        };
        for region in [Some(&load), Some(&words), board.as_ref()].into_iter().flatten() {
            offer.publish(region)?;
        }
        Ok(Memory { load, words, _board: board })
    }
}

/// The scheme that this node's load is had by. Where the kernel keeps the record it does so from here on, and this process
/// has given up all privileges.
fn choose_scheme(
    cluster: &Cluster,
    index: usize,
    joined: Option<&Path>,
    began_ms: u64,
) -> Result<(Choice, Option<KernelRecord>), Failure> {
    if let Some(group) = joined {
        cgroup::join(group)?;
    }
    let keep = || {
        let scope = parts::kernel_scope(cluster, index, joined)?;
        KernelRecord::start(&KernelSpec::new(scope, began_ms)).map_err(|error| error.to_string())
    };
    let (choice, record) = Scheme::resolve(cluster.load.scheme.as_str(), keep)?;
    let alone = parts::kernel_scope(cluster, index, joined).is_ok();
    // What a kernel or a lack of privilege costs is worth a line; that nodes share a machine is in the file.
    if alone && record.is_none() && cluster.load.scheme == config::Scheme::Auto {
        tracing::warn!("load by {}, because {}", choice.scheme, choice.reason);
    } else {
        tracing::info!("load by {}, because {}", choice.scheme, choice.reason);
    }
    if record.is_some() {
        drop_privileges()?;
    }
    Ok((choice, record))
}

/// What keeps the node's record for as long as it lives.
enum Kept {
    Kernel {
        // The farewell goes before the record.
        _line: Arc<ServerLine>,
        _record: KernelRecord,
    },
    Threads(#[expect(dead_code, reason = "it is held, not used")] LoadThreads),
}

/// Has the server publish its own line whenever something begins or ends.
fn publish_line(
    node: &config::Node,
    memory: &Memory,
    gauges: &Arc<OriginGauges>,
) -> Result<Arc<ServerLine>, Failure> {
    let line = Arc::new(ServerLine::open(memory.load.clone(), gauge(node, gauges))?);
    let published = Arc::downgrade(&line);
    gauges.watch(move || {
        if let Some(line) = published.upgrade() {
            line.publish();
        }
    });
    Ok(line)
}

/// What keeps the node's record, acknowledges moves, and answers where load is asked for.
struct LoadThreads {
    _keeper: Keeper,
    _responder: Option<Responder>,
}

fn keep_load(
    parts: &Parts,
    node: &config::Node,
    scheme: Scheme,
    offer: &Offer,
    memory: &Memory,
    gauges: &Arc<OriginGauges>,
) -> Result<LoadThreads, Failure> {
    let recorder = || Recorder::new(&scope(parts, node), Some(gauge(node, gauges)));
    let load = &parts.cluster.load;
    let spec = KeeperSpec { period: load.period, proc_period: load.proc_period };
    let acknowledge = acknowledge(memory.words.clone(), Arc::clone(gauges));
    let kept = if scheme.is_kept_by_thread() { Some(recorder()?) } else { None };
    let keeper = Keeper::start(memory.load.clone(), kept, acknowledge, spec)?;

    let kind = match scheme {
        Scheme::SocketAsync => Some(ResponderKind::Async(memory.load.clone())),
        Scheme::SocketSync => Some(ResponderKind::Sync(memory.load.clone(), Box::new(recorder()?))),
        Scheme::RdmaAsync | Scheme::RdmaSync | Scheme::ERdmaSync => None,
    };
    let any_port = SocketAddr::new(node.fabric_listen.ip(), 0);
    let responder = kind.map(|kind| Responder::listen(any_port, kind)).transpose()?;
    if let Some(responder) = &responder {
        offer.publish_responder(&node.name, responder.address())?;
    }
    Ok(LoadThreads { _keeper: keeper, _responder: responder })
}

/// What the node has to tell at its admin endpoint.
fn pages(
    parts: &Parts,
    node: &config::Node,
    choice: Choice,
    offer: &Offer,
    memory: &Memory,
    gauges: &Arc<OriginGauges>,
) -> Result<Pages, Failure> {
    let origin = gauge(node, gauges);
    let mut own = OwnReader::new(memory.load.clone());
    // Where nobody keeps the record, a scrape makes it, as a request of an edge does.
    let mut recorder = match choice.scheme {
        Scheme::SocketSync => Some(Recorder::new(&scope(parts, node), Some(gauge(node, gauges)))?),
        Scheme::SocketAsync | Scheme::RdmaAsync | Scheme::RdmaSync | Scheme::ERdmaSync => None,
    };
    let read = move |now_ns| {
        let record = match &mut recorder {
            Some(recorder) => recorder.own(now_ns),
            None => own.read(),
        };
        (record, origin())
    };
    let counts = parts.fabric.counts().into_iter().chain(offer.counts()).collect();
    let metrics = NodeMetrics::new(parts.about(choice), counts, parts.cluster.load.stale, Box::new(read));
    Ok(Pages { metrics: Box::new(move || metrics.encode()), health: Box::new(|| "ok\n") })
}

/// As the kernel would keep it, so that records say the same whoever keeps them; else that of this process.
fn scope(parts: &Parts, node: &config::Node) -> Scope {
    let index = parts.cluster.nodes.iter().position(|other| other.name == node.name).unwrap_or(0);
    parts.kernel_scope(index, None).unwrap_or_else(|_| Scope::Process(std::process::id()))
}

fn gauge(node: &config::Node, gauges: &Arc<OriginGauges>) -> OriginGauge {
    let gauges = Arc::clone(gauges);
    let workers = node.workers;
    Box::new(move || OriginLoad {
        connections: gauges.connections.load(Ordering::Relaxed),
        queued: gauges.queued(),
        busy: gauges.in_service(),
        workers,
        service_us: u32::try_from(gauges.service_mean().as_micros()).unwrap_or(u32::MAX),
        served: gauges.served_total.load(Ordering::Relaxed),
        errors: gauges.errors_total.load(Ordering::Relaxed),
        sent_bytes: gauges.sent_bytes_total.load(Ordering::Relaxed),
    })
}

/// What to acknowledge, from the node's own word and the requests that it still has.
fn acknowledge(words: Region, gauges: Arc<OriginGauges>) -> impl FnMut() -> Option<u64> + Send {
    let mut agent = NodeAgent::new();
    move || {
        let word = words.load(WORDS_OWNERSHIP);
        // Looked at after the word: see `NodeAgent::observe`.
        let in_flight = gauges.outstanding.load(Ordering::Relaxed);
        agent.observe(word, in_flight).map(|ack| ack.encode())
    }
}

fn origin_config(node: &config::Node, index: usize) -> OriginConfig {
    OriginConfig {
        name: Some(node.name.clone()),
        workers: u32::from(node.workers),
        service: match node.service {
            Service::Fixed => ServiceTime::Fixed(node.service_time),
            Service::Exponential => ServiceTime::Exponential { mean: node.service_time },
            Service::Burn => ServiceTime::Burn { mean: node.service_time },
            Service::None => ServiceTime::None,
        },
        seed: index as u64,
        queue_depth_max: node.queue_depth_max,
        root: node.root.clone(),
        ..OriginConfig::default()
    }
}

/// Serves until SIGTERM or SIGINT, then finishes what is under way.
fn serve_origin(
    listener: TcpListener,
    config: OriginConfig,
    gauges: Arc<OriginGauges>,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let shutdown = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        };
        let drained = serve(listener, config, gauges, shutdown).await?;
        if drained.cut > 0 {
            tracing::warn!(cut = drained.cut, "connections were cut: their requests did not end in time");
        }
        Ok(())
    })
}
