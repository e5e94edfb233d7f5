//! `--requests`: the outcome of each request of the load as CSV, in the order in which they ended.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use sidelong_config::Cluster;
use sidelong_workload::client::{Completion, ErrorKind};
use tokio::time::Instant;

use super::Listener;
use sidelong_app::Failure;

/// The file. Clones write to the same one.
#[derive(Clone)]
pub(super) struct Requests {
    inner: Arc<Inner>,
}

struct Inner {
    sites: Vec<String>,
    edges: Vec<String>,
    begun: Instant,
    /// With the first error, after which nothing more is written.
    out: Mutex<(BufWriter<File>, io::Result<()>)>,
}

impl Requests {
    /// Creates the file for the load of `cluster`, which begins now.
    pub(super) fn create(path: &Path, cluster: &Cluster, listeners: &[Listener]) -> Result<Self, Failure> {
        let file = File::create(path)
            .map_err(|error| Failure::new(format!("cannot write requests to {}: {error}", path.display())))?;
        let mut out = BufWriter::new(file);
        writeln!(out, "due_s,sent_s,site,edge,client,outcome,response_ms")?;
        let sites = cluster.sites.values().map(|site| site.name.clone()).collect();
        let edges = listeners.iter().map(|listener| listener.name.clone()).collect();
        Ok(Requests {
            inner: Arc::new(Inner { sites, edges, begun: Instant::now(), out: Mutex::new((out, Ok(()))) }),
        })
    }

    /// Writes one line. Called on the threads of the load.
    pub(super) fn take(&self, request: &Completion<'_>) {
        let Inner { sites, edges, begun, out } = &*self.inner;
        let since = |time: Instant| time.saturating_duration_since(*begun).as_secs_f64();
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        let (to, result) = &mut *out;
        if result.is_ok() {
            *result = writeln!(
                to,
                "{:.6},{:.6},{},{},{},{},{:.3}",
                since(request.due_at),
                since(request.sent_at),
                sites[request.site],
                edges[request.edge],
                request.cue.client,
                outcome(request.error),
                request.done_at.saturating_duration_since(request.due_at).as_secs_f64() * 1e3
            );
        }
    }

    /// After the last request.
    pub(super) fn finish(&self) -> Result<(), Failure> {
        let mut out = self.inner.out.lock().unwrap_or_else(PoisonError::into_inner);
        let (to, result) = &mut *out;
        std::mem::replace(result, Ok(())).and_then(|()| to.flush())?;
        Ok(())
    }
}

fn outcome(error: Option<ErrorKind>) -> &'static str {
    match error {
        None => "answered",
        Some(ErrorKind::Rejected) => "rejected",
        Some(ErrorKind::Closed) => "closed",
        Some(_) => "failed",
    }
}
