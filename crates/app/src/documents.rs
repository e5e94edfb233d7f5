//! The documents that a node keeps where edges read them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sidelong_cache::documents::{Document, Documents};
use sidelong_config::Node;
use sidelong_edge::{Counts, document_key};
use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, RegionSpec};
use sidelong_layout::{ClaimMap, RegionKind};
use sidelong_workload::origin::{self, DocumentChange};

use crate::cache;
use crate::failure::Failure;
use crate::hosts::Hosts;
use crate::parts::Parts;
use crate::regions;

/// Pause before memory that could not be exposed anew is exposed again.
const RETRY: Duration = Duration::from_secs(1);

/// A node's documents, for its origin to keep.
pub(crate) struct NodeDocuments {
    memory: Arc<Mutex<Memory>>,
    max_age: Duration,
    hosts: Arc<Hosts>,
    /// The name of each site.
    sites: Vec<String>,
}

/// The memory that has them. If another process has taken it away, others' reads fail, and the next request that comes to the node
/// for that has it exposed anew.
struct Memory {
    /// `None` while it cannot be exposed.
    documents: Option<Documents>,
    expose_at: Instant,
    parts: Arc<Parts>,
    region: String,
    /// Documents that earlier memory kept and evicted.
    before: [u64; 2],
}

impl Memory {
    fn expose(&mut self) -> Result<(), Failure> {
        let memory_bytes = self.parts.document_bytes();
        let spec = RegionSpec {
            name: &self.region,
            kind: RegionKind::Cache,
            len: Documents::map(memory_bytes).len(),
            access: Access::ReadOnly,
            instance: self.parts.instance(),
        };
        let (name, kind, access) = (&*Documents::claims(&self.region), RegionKind::Claims, Access::Atomic);
        let claims = RegionSpec { name, kind, len: ClaimMap::LEN, access, ..spec };
        let host = Host::Shm(ShmHost::new(self.parts.run.path()));
        let region = regions::expose_owned(&host, &spec, "cache.document_memory_mb")?;
        let claims = host.expose(&claims, |_| ())?;
        self.documents = Some(Documents::exposed(region, claims, memory_bytes, cache::seed()?));
        Ok(())
    }

    /// The documents, in memory that others find.
    fn documents(&mut self) -> Option<&mut Documents> {
        if self.documents.as_ref().is_some_and(Documents::is_lost) {
            self.before = self.counts();
            self.documents = None;
        }
        if self.documents.is_none() && Instant::now() >= self.expose_at {
            self.expose_at = Instant::now() + RETRY;
            if let Err(Failure(why)) = self.expose() {
                tracing::error!(why, "the memory for documents is not exposed anew: no document is kept");
            }
        }
        self.documents.as_mut()
    }

    /// Documents that were kept and evicted.
    fn counts(&self) -> [u64; 2] {
        let usage = self.documents.as_ref().map(Documents::usage).unwrap_or_default();
        let [kept, evicted] = self.before;
        [kept + usage.stored, evicted + usage.evicted]
    }
}

fn lock(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

impl NodeDocuments {
    /// Exposes the memory for a node's documents, if it keeps any.
    pub(crate) fn expose(
        parts: &Arc<Parts>,
        node: &Node,
        hosts: &Arc<Hosts>,
    ) -> Result<Option<Self>, Failure> {
        let Some(region) = parts.documents_region(node) else { return Ok(None) };
        let parts = Arc::clone(parts);
        let max_age = Duration::from_secs(parts.cluster.cache.document_max_age_s.into());
        let sites = parts.cluster.sites.map(|site| site.name.clone()).to_vec();
        let mut memory =
            Memory { documents: None, expose_at: Instant::now(), parts, region, before: Default::default() };
        memory.expose()?;
        Ok(Some(NodeDocuments {
            memory: Arc::new(Mutex::new(memory)),
            max_age,
            hosts: Arc::clone(hosts),
            sites,
        }))
    }

    /// What is counted of them, for the metrics.
    pub(crate) fn counts(&self) -> Counts {
        let memory = Arc::clone(&self.memory);
        Counts {
            name: "documents",
            help: "Documents that were put where edges read them, and that were evicted from there",
            label: "what",
            read: Box::new(move || ["kept", "evicted"].into_iter().zip(lock(&memory).counts()).collect()),
        }
    }

    /// What the origin is to do with its documents.
    pub(crate) fn into_origin(self) -> origin::Documents {
        let NodeDocuments { memory, max_age, hosts, sites } = self;
        let keep = move |told: &DocumentChange<'_>| {
            let Some(site) = hosts.site(told.host) else { return };
            let key = document_key(&sites[site], told.target);
            let mut memory = lock(&memory);
            let Some(documents) = memory.documents() else { return };
            match told.document {
                Some(origin::Current { checked_ns, head, body }) => {
                    documents.keep(&key, &Document { checked_ns, fresh: max_age, head, body });
                }
                None => documents.forget(&key),
            }
        };
        origin::Documents { max_age, keep: Arc::new(keep) }
    }
}
