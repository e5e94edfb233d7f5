//! The documents that a node keeps where edges read them.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sidelong_cache::documents::{Document, Documents};
use sidelong_config::Node;
use sidelong_edge::{Counts, document_key};
use sidelong_fabric::{Access, Host, RegionSpec};
use sidelong_layout::RegionKind;
use sidelong_workload::origin::{self, Told};

use crate::cache;
use crate::failure::Failure;
use crate::parts::Parts;
use crate::regions;

/// A node's documents, for its origin to keep.
pub(crate) struct Kept {
    documents: Arc<Mutex<Documents>>,
    max_age: Duration,
    /// The hosts of each site, and its name.
    sites: Vec<(Vec<String>, String)>,
}

impl Kept {
    /// Offers the memory for a node's documents, if it keeps any.
    pub(crate) fn offer(parts: &Parts, node: &Node, host: &Host) -> Result<Option<Self>, Failure> {
        let Some(name) = parts.documents_region(node) else { return Ok(None) };
        let (memory_bytes, (cluster, incarnation)) = (parts.document_bytes(), parts.life());
        let spec = RegionSpec {
            name: &name,
            kind: RegionKind::Cache,
            len: Documents::map(memory_bytes).len(),
            access: Access::ReadOnly,
            cluster,
            incarnation,
        };
        let region = regions::offer_owned(host, &spec, "cache.document_memory_mb")?;
        let documents = Documents::offered(region, memory_bytes, cache::seed()?);
        Ok(Some(Kept {
            documents: Arc::new(Mutex::new(documents)),
            max_age: Duration::from_secs(parts.cluster.cache.document_max_age_s.into()),
            sites: parts.cluster.sites.iter().map(|site| (site.hosts.clone(), site.name.clone())).collect(),
        }))
    }

    /// What is counted of them, for the metrics.
    pub(crate) fn counts(&self) -> Counts {
        let documents = Arc::clone(&self.documents);
        Counts {
            name: "documents",
            help: "Documents that were put where edges read them, and that were evicted from there",
            label: "what",
            read: Box::new(move || {
                let usage = documents.lock().unwrap_or_else(PoisonError::into_inner).usage();
                vec![("kept", usage.stored), ("evicted", usage.evicted)]
            }),
        }
    }

    /// What the origin is to do with its documents.
    pub(crate) fn into_origin(self) -> origin::Documents {
        let Kept { documents, max_age, sites } = self;
        let keep = move |told: &Told<'_>| {
            let host = told.host.split(|byte| *byte == b':').next().unwrap_or_default();
            let is_its =
                |hosts: &Vec<String>| hosts.iter().any(|own| host.eq_ignore_ascii_case(own.as_bytes()));
            let Some((_, site)) = sites.iter().find(|(hosts, _)| is_its(hosts)) else { return };
            let key = document_key(site, told.target);
            let mut documents = documents.lock().unwrap_or_else(PoisonError::into_inner);
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
