//! What a proxy goes by, and what may be replaced while it serves.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ipnet::IpNet;

use crate::forwarding::Forwarding;
use crate::service::Limits;
use crate::trust::Trust;

/// What a proxy goes by. A request ends by the limits with which it began, and a connection by the rest.
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
}

/// The settings of a proxy, which all of its threads read and anybody may replace.
#[derive(Debug)]
pub struct SharedSettings(ArcSwap<Current>);

#[derive(Debug)]
struct Current {
    settings: Settings,
    trust: Trust,
    forwarding: Arc<Forwarding>,
}

impl SharedSettings {
    /// At first `settings`.
    pub fn new(settings: Settings) -> Self {
        SharedSettings(ArcSwap::from_pointee(settings.into()))
    }

    /// Changes them, for requests and connections that begin from now on. One caller at a time does so.
    pub fn change(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.0.load().settings.clone();
        change(&mut settings);
        self.0.store(Arc::new(settings.into()));
    }

    /// A copy, so that whoever waits for a client keeps nothing that others share.
    pub(crate) fn limits(&self) -> Limits {
        self.0.load().settings.limits
    }

    /// Asks whose word about clients is believed.
    pub(crate) fn trust<T>(&self, ask: impl FnOnce(&Trust) -> T) -> T {
        ask(&self.0.load().trust)
    }

    pub(crate) fn forwarding(&self) -> Arc<Forwarding> {
        Arc::clone(&self.0.load().forwarding)
    }
}

impl From<Settings> for Current {
    fn from(settings: Settings) -> Self {
        let trust = Trust::new(settings.trusted_proxies.clone());
        let forwarding = Arc::new(settings.forwarding.clone());
        Current { settings, trust, forwarding }
    }
}
