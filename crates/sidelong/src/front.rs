//! `sidelong front`: one front of a cluster file, beside a proxy of another make that it leads.

mod connect;
pub(crate) mod envoy;
pub(crate) mod haproxy;
pub(crate) mod lines;
mod memory;

use std::sync::Arc;

use sidelong_config::{Cluster, FrontEntry, LedBy, Proxy};
use sidelong_edge::{Front, Gatekeeper, Led, LedByMemory};

use crate::cli::{FrontCommand, FrontNamed, PartArgs};
use crate::edge::{Memory, Observed, Threads, events, exchange, tell_notes, watch};
use crate::failure::{Failure, say};
use crate::hangup::Hangup;
use crate::history::Log;
use crate::parent::{self, end_with_parent};
use crate::parts::{Parts, cluster};

pub(crate) fn run(args: &PartArgs) -> Result<(), Failure> {
    end_with_parent(args.with_parent)?;
    let hangup = Hangup::ignore()?;
    let parts = Arc::new(Parts::load(args)?);
    let _held = parent::hold(args, &parts.run)?;
    let (index, entry) = find(&parts.cluster, &args.name)?;
    // Before other threads: it may drop privileges, which are each thread's own.
    let (led, regions) = match entry.proxy {
        Proxy::Haproxy => {
            let choice = (entry.led_by() == LedBy::Choose).then(|| memory::led(&parts, entry)).transpose()?;
            let regions = choice.iter().flat_map(LedByMemory::regions).collect();
            (haproxy::led(&parts, entry, choice)?, regions)
        }
        Proxy::Connect => (connect::led(&parts, entry)?, Vec::new()),
        Proxy::Nginx | Proxy::Httpd | Proxy::Envoy | Proxy::Library => {
            let led = memory::led(&parts, entry)?;
            let regions = led.regions().to_vec();
            (Box::new(led) as Box<dyn Led>, regions)
        }
    };
    hangup.log()?;
    let view = Arc::new(parts.view());
    let Observed { mut counts, reads, history } = Observed::new(&parts, &args.name)?;
    // The proxy counts its requests itself.
    let gatekeeper = parts.gatekeeper(0);
    let gate = gatekeeper.as_ref().map(Gatekeeper::gate);
    let memory = Memory::offer(&parts, index, &regions)?;
    if let Some(offer) = &memory.offer {
        counts.extend(offer.counts());
    }
    let exchange = exchange(&parts, index, &view, gate.as_ref(), &memory)?;
    let peers = exchange.as_ref().map(|exchange| Arc::clone(&exchange.peers));
    let sites = parts.cluster.sites.iter().map(|site| site.name.clone()).collect();
    let names = (parts.node_names(), sites);
    let about = parts.about(parts.scheme()?);
    let front = Front::new(&args.name, entry.admin, names, (Arc::clone(&view), gate), peers, about, counts)?;
    let owner = parts.owner(Some(index), None);
    let brain = parts.brain(parts.decider(None)?, true)?;
    let events = events(args, &parts, history.as_ref(), None);
    let stated = Some((owner, memory.front.clone()));
    let shown = (Some(front.metrics()), Some(front.seen()));
    let mut watch = watch(&parts, owner, brain, events, (view, stated), shown, reads)?;
    watch.gatekeeper = gatekeeper;
    watch.led = Some(led);
    tell_notes(args, &parts)?;
    let threads = Threads::start(watch, exchange)?;
    front.run()?;
    threads.end();
    history.into_iter().for_each(Log::finish);
    memory.guard.map_or(Ok(()), |guard| guard.result())
}

/// The front of that name, with its number among all fronts.
fn find<'a>(cluster: &'a Cluster, name: &str) -> Result<(usize, &'a FrontEntry), Failure> {
    let fronts = || {
        cluster.fronts.iter().enumerate().filter_map(|(index, front)| Some((index, front.leads.as_ref()?)))
    };
    fronts().find(|(_, front)| front.name == name).ok_or_else(|| {
        let names: Vec<_> = fronts().map(|(_, front)| front.name.as_str()).collect();
        let known = if names.is_empty() { "no [[front]]".to_owned() } else { names.join(", ") };
        Failure::new(format!("the cluster file has no front {name:?}; it has {known}"))
    })
}

pub(crate) fn ask(command: &FrontCommand) -> Result<(), Failure> {
    match command {
        FrontCommand::Config(FrontNamed { config, name }) => {
            let cluster = cluster(config, None)?;
            let (_, entry) = find(&cluster, name)?;
            say(lines::lines(&cluster, entry))
        }
        FrontCommand::Check(FrontNamed { config, name }) => {
            let cluster = cluster(config, None)?;
            let (_, entry) = find(&cluster, name)?;
            match entry.proxy {
                Proxy::Haproxy => haproxy::check(&cluster, entry),
                Proxy::Connect => connect::check(&cluster, entry),
                Proxy::Nginx | Proxy::Httpd | Proxy::Envoy | Proxy::Library => memory::check(&cluster, entry),
            }
        }
    }
}
