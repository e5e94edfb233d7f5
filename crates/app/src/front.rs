//! One front of a cluster, beside a proxy of another make that it controls.

mod connect;
mod envoy;
mod haproxy;
mod memory;

use std::collections::HashMap;
use std::sync::Arc;

use sidelong_config::{Cluster, ControlledBy, FrontEntry, Proxy};
use sidelong_edge::{Adapter, AdapterMembers, Front, Gatekeeper};
use sidelong_layout::ChoiceMap;
use sidelong_os::Worker;

pub use self::connect::{Attached, connect_failure};
pub use self::envoy::endpoints;
pub use self::haproxy::{haproxy_backend, haproxy_cluster, haproxy_socket};
pub use self::memory::{choice_map, directory};
use crate::edge::{
    MOVE_DRAIN_MAX, Memory, Observed, Ready, adopting, by_newest, events, exchange, exchanging, overtaken,
    tell_notes, watch,
};
use crate::failure::Failure;
use crate::history::Log;
use crate::last_seen;
use crate::part::{PartSpec, Running, Shutdown};
use crate::parts::Parts;
use crate::roster;

/// Starts a front. It is ready once its events say so.
///
/// The calling thread may have dropped privileges that the front needs no longer, and must be the only one.
///
/// # Errors
/// If the cluster has no front of that name, or the front cannot expose its memory or control its proxy.
pub fn start(spec: PartSpec) -> Result<Running, Failure> {
    by_newest(&spec.name, || attempt(&spec))
}

/// `None` if the cluster has changed meanwhile.
fn attempt(spec: &PartSpec) -> Result<Option<Running>, Failure> {
    let parts = Arc::new(Parts::new(roster::enter(spec.cluster.clone(), &spec.name)?)?);
    let (index, entry) = find(&parts.cluster, &spec.name)?;
    // Before other threads: it may drop privileges, which are each thread's own.
    let adapter = match entry.proxy {
        Proxy::Haproxy => {
            let choice = (entry.controlled_by() == ControlledBy::Choose)
                .then(|| memory::adapter(&parts, entry))
                .transpose()?;
            haproxy::adapter(&parts, entry, choice)?
        }
        Proxy::Connect => connect::adapter(&parts, entry)?,
        Proxy::Nginx | Proxy::Httpd | Proxy::Envoy | Proxy::Library => {
            let adapter = memory::adapter(&parts, entry)?;
            add_servers(&parts, entry)?;
            Box::new(adapter) as Box<dyn Adapter>
        }
    };
    let view = Arc::new(parts.view());
    let Observed { mut counts, reads, history } = Observed::new(&parts, &spec.name)?;
    // The proxy counts its requests itself.
    let gatekeeper = parts.gatekeeper(0);
    let gate = gatekeeper.as_ref().map(Gatekeeper::gate);
    let shutdown = Shutdown::new();
    let mut memory = Memory::expose(&parts, index, HashMap::new())?;
    last_seen::answer(memory.exposer.as_ref(), &parts, &view);
    let exchange = exchange(&parts, &spec.name, &view, gate.as_ref(), &memory)?;
    let room = choice_map(&parts.cluster);
    let adapter_name = spec.name.clone();
    let prepare = move |parts: &Parts| {
        let adapter = Some(adapted(parts, &adapter_name, room)?);
        Ok(Ready { adapter, publish: Box::new(|| ()) })
    };
    let (adopts, take) = adopting(&parts, (&spec.name, &shutdown), exchange.as_ref(), prepare);
    if !memory.guard(&parts, index, (take, None), &shutdown)? {
        // One that attaches programs has dropped the privileges with which it began.
        return overtaken(&parts, &spec.name, entry.proxy != Proxy::Connect);
    }
    if let Some(exposer) = &memory.exposer {
        counts.extend(exposer.counts());
    }
    let about = parts.about(parts.scheme()?);
    let members = (Arc::clone(&parts.members), exchange.as_ref().map(|exchange| Arc::clone(&exchange.peers)));
    let front = Front::new(&spec.name, entry.admin, (Arc::clone(&view), gate), members, about, counts)?;
    let owner = parts.owner(Some(index), None);
    let brain = parts.brain(parts.decider(None)?, true)?;
    let heard = events(&spec.events, spec.name.clone(), &parts, history.as_ref());
    let stated = Some((owner, memory.front.clone(), None));
    let shown = (Some(front.metrics()), Some(front.seen()));
    let mut watch = watch(&parts, owner, brain, heard, (view, stated), shown, reads)?;
    watch.gatekeeper = gatekeeper;
    watch.adopts = Some(adopts);
    watch.adapter = Some(adapter);
    tell_notes(&spec.events, &parts)?;
    let pulse = watch.pulse.clone();
    let exchange = exchanging(exchange)?;
    let watching = Worker::start("watch", move |stop| watch.run(stop, MOVE_DRAIN_MAX))?;
    let (mut told, config) = (shutdown.told(), Arc::clone(&parts.config));
    let running = Running::start("front", shutdown, move || {
        let served = front.run(async || told.next().await);
        drop((exchange, watching));
        history.into_iter().for_each(Log::finish);
        served?;
        memory.end(&config)
    })?;
    Ok(Some(running.with_pulse(pulse)))
}

/// Has Envoy know the servers of all nodes, if the front adds them.
fn add_servers(parts: &Parts, entry: &FrontEntry) -> Result<(), Failure> {
    if entry.proxy == Proxy::Envoy && entry.add_servers.is_some() {
        envoy::write(parts, entry)
    } else {
        Ok(())
    }
}

/// What the adapter of that front is told of the sites and nodes, whose memory has that room.
///
/// # Errors
/// If there is no room for them.
fn adapted(parts: &Parts, name: &str, room: ChoiceMap) -> Result<AdapterMembers, Failure> {
    let (_, entry) = find(&parts.cluster, name)?;
    if choice_map(&parts.cluster) != room {
        return Err(Failure::new(
            "its memory has room for one server of each node, and now a node has one for each site: restart this front",
        ));
    }
    // A server that its memory does not know yet, or no more, gets no request.
    add_servers(parts, entry)?;
    let haproxy = || Arc::new(haproxy_cluster(&parts.cluster, entry, &parts.capacities()));
    let haproxy = (entry.proxy == Proxy::Haproxy).then(haproxy);
    Ok(AdapterMembers {
        memory: memory::described(&parts.cluster),
        haproxy,
        connect: connect::addresses(&parts.cluster),
    })
}

/// The front of that name that controls a proxy, with its number among all fronts.
///
/// # Errors
/// If there is none.
pub fn find<'a>(cluster: &'a Cluster, name: &str) -> Result<(usize, &'a FrontEntry), Failure> {
    let fronts =
        || cluster.fronts.entries().filter_map(|(index, front)| Some((index, front.controls.as_ref()?)));
    fronts().find(|(_, front)| front.name == name).ok_or_else(|| {
        let names: Vec<_> = fronts().map(|(_, front)| front.name.as_str()).collect();
        let known = if names.is_empty() { "no [[front]]".to_owned() } else { names.join(", ") };
        Failure::new(format!("the cluster file has no front {name:?}; it has {known}"))
    })
}
