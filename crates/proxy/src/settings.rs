//! What a proxy goes by, and what may be replaced while it serves.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ipnet::IpNet;

use crate::forwarding::Forwarding;
use crate::pool::{Server, ServerId};
use crate::service::Limits;
use crate::trust::Trust;

/// What a proxy goes by. A request ends by the limits with which it began, and at the server where it is; a connection by the rest.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Limits on clients and servers. [`Limits::connections_per_client_max`] is that of the start.
    pub limits: Limits,
    /// Networks of proxies before this one. From one of them X-Forwarded-For is believed: the client is the last address there
    /// that is not such a proxy's. From all others the field is dropped. If there are none it is passed on from all, and the
    /// client is who connects.
    pub trusted_proxies: Vec<IpNet>,
    /// By which fields servers are told of a request's way.
    pub forwarding: Forwarding,
    /// The servers, by group and member. Connections to one that stays at its place are kept.
    pub servers: Vec<Vec<Server>>,
}

/// The settings of a proxy, which all of its threads read and anybody may replace.
#[derive(Debug)]
pub struct SharedSettings(ArcSwap<Current>);

#[derive(Debug)]
struct Current {
    settings: Settings,
    trust: Trust,
    forwarding: Arc<Forwarding>,
    /// Each one is the same value for as long as it stays at its place.
    servers: Vec<Vec<Arc<Server>>>,
}

impl SharedSettings {
    /// At first `settings`.
    pub fn new(settings: Settings) -> Self {
        SharedSettings(ArcSwap::from_pointee(Current::after(&[], settings)))
    }

    /// Changes them, for requests and connections that begin from now on. One caller at a time does so.
    pub fn change(&self, change: impl FnOnce(&mut Settings)) {
        let last = self.0.load();
        let mut settings = last.settings.clone();
        change(&mut settings);
        self.0.store(Arc::new(Current::after(&last.servers, settings)));
    }

    /// A copy, so that whoever waits for a client keeps nothing that others share.
    pub(crate) fn limits(&self) -> Limits {
        self.0.load().settings.limits
    }

    /// Asks whose word about clients is believed.
    pub(crate) fn trust<T>(&self, ask: impl FnOnce(&Trust) -> T) -> T {
        ask(&self.0.load().trust)
    }

    /// What `ask` makes of the server that has that place; `None` if none has.
    pub(crate) fn server<T>(&self, id: ServerId, ask: impl FnOnce(&Arc<Server>) -> T) -> Option<T> {
        Some(ask(self.0.load().servers.get(id.group)?.get(id.member)?))
    }

    pub(crate) fn forwarding(&self) -> Arc<Forwarding> {
        Arc::clone(&self.0.load().forwarding)
    }
}

impl Current {
    fn after(last: &[Vec<Arc<Server>>], settings: Settings) -> Self {
        let trust = Trust::new(settings.trusted_proxies.clone());
        let forwarding = Arc::new(settings.forwarding.clone());
        let server = |group: usize, member: usize, server: &Server| {
            let known = last.get(group).and_then(|group| group.get(member));
            known.filter(|known| known.is(server)).map_or_else(|| Arc::new(server.clone()), Arc::clone)
        };
        let groups = settings.servers.iter().enumerate().map(|(group, members)| {
            members.iter().enumerate().map(|(member, known)| server(group, member, known)).collect()
        });
        Current { servers: groups.collect(), settings, trust, forwarding }
    }
}
