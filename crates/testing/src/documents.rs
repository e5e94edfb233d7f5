//! A site whose nodes keep documents that edges answer with.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use crate::{Client, Cluster, Reply, eventually, metrics};

/// A site, www, whose nodes serve one directory. Its parts are not started.
pub struct Site {
    /// The cluster.
    pub cluster: Cluster,
    /// The directory. It has `page.html` of the ten digits, which last changed in 1994.
    pub root: PathBuf,
}

impl Site {
    /// One of three nodes. Answers are fresh for `max_age_s`.
    pub fn new(max_age_s: u32) -> Self {
        Site::of(Cluster::new(&[("www", 3)]), max_age_s)
    }

    /// One of a cluster that has a site of that name.
    pub fn of(mut cluster: Cluster, max_age_s: u32) -> Self {
        let root = cluster.path("root");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("page.html"), "0123456789").unwrap();
        // As a file that was there before: one that has just changed has no validators yet.
        let file = File::options().write(true).open(root.join("page.html")).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(784_111_777)).unwrap();
        cluster.file.nodes.iter_mut().for_each(|node| node.root = Some(root.clone()));
        cluster.file.cache.documents = true;
        cluster.file.cache.document_memory_mb = 8;
        cluster.file.cache.document_max_age_s = max_age_s;
        Site { cluster, root }
    }

    /// Asks the edge of that index, with further header fields.
    pub fn ask(&self, edge: usize, method: &str, path: &str, fields: &str) -> Reply {
        let mut client = Client::connect(self.cluster.edge(edge));
        client.send(format!("{method} {path} HTTP/1.1\r\nhost: www.test\r\n{fields}\r\n")).unwrap();
        // 304 has no body, and no length.
        let may_be_same =
            ["if-none-match", "if-modified-since"].iter().any(|field| fields.starts_with(field));
        client.reply(method != "HEAD" && !may_be_same).unwrap()
    }

    /// Asks the first edge for a document.
    pub fn get(&self, path: &str) -> Reply {
        self.ask(0, "GET", path, "")
    }

    /// Requests that nodes have answered.
    pub fn served(&self) -> f64 {
        let served = |node| metrics(self.cluster.node_admin(node))["sidelong_node_served_requests_total"];
        (0..self.cluster.file.nodes.len()).map(served).sum()
    }

    /// Waits until an answer comes from memory.
    pub fn await_memory(&self, edge: usize, path: &str) -> Reply {
        let mut reply = None;
        eventually("the document is answered from memory", || {
            reply = Some(self.ask(edge, "GET", path, "")).filter(|reply| reply.header("age").is_some());
            reply.is_some()
        });
        reply.unwrap()
    }

    /// The node in whose memory a document lies.
    pub fn home(&self, path: &str) -> String {
        self.await_memory(0, path).node().to_owned()
    }
}
