//! A front: what an edge knows, decides and tells, without its data path. The requests go through a proxy of another make.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sidelong_proxy::Stop;
use sidelong_reconfig::SharedMembers;

use crate::admin::Admin;
use crate::gate::Gate;
use crate::metrics::{About, Counts, Metrics};
use crate::peers::Peers;
use crate::seen::ScanDisplay;
use crate::server::{Error, pages};
use crate::status::State;
use crate::view::View;

/// A front that is ready to run.
pub struct Front {
    name: String,
    state: Arc<State>,
    metrics: Arc<Metrics>,
    admin: Option<TcpListener>,
}

impl Front {
    /// The front of that name, with an admin endpoint at `admin`. Its metrics
    /// include `peers`, `about` and `counts`.
    ///
    /// # Errors
    /// If the port cannot be bound.
    pub fn new(
        name: &str,
        admin: Option<SocketAddr>,
        (view, gate): (Arc<View>, Option<Arc<Gate>>),
        (members, peers): (Arc<SharedMembers>, Option<Arc<Peers>>),
        about: About,
        counts: Vec<Counts>,
    ) -> Result<Self, Error> {
        let listen = |address| {
            let failed = |source| Error::Listen { edge: name.to_owned(), address, source };
            TcpListener::bind(address).map_err(failed)
        };
        let admin = admin.map(listen).transpose()?;
        let seen = Arc::new(ScanDisplay::new(view.room(), view.stale()));
        let state = Arc::new(State { view, gate, peers, seen, members, documents: None });
        let metrics = Arc::new(Metrics::new(Arc::clone(&state), None, 0, about, counts));
        Ok(Front { name: name.to_owned(), state, metrics, admin })
    }

    /// Its metrics.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// What its watch thread saw in the last scan.
    pub fn seen(&self) -> Arc<ScanDisplay> {
        Arc::clone(&self.state.seen)
    }

    /// Answers at the admin endpoint until `stop` says so.
    ///
    /// # Errors
    /// If the endpoint does not start.
    pub fn run(self, mut stop: impl AsyncFnMut() -> Stop) -> Result<(), Error> {
        let failed = |source| Error::Admin { edge: self.name.clone(), source };
        let pages = pages(Arc::clone(&self.state), self.metrics(), Arc::<AtomicBool>::default());
        let _admin = self.admin.map(|listener| Admin::start(listener, pages)).transpose().map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(stop());
        Ok(())
    }
}
