//! Parts of a cluster on threads of the test's process.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};

use sidelong_app::edge::{self, EdgeOptions};
use sidelong_app::node::{self, NodeOptions};
use sidelong_app::{Event, Events, PartSpec, Running, Shutdown};
use sidelong_load::Scheme;

use crate::PATIENCE;
use crate::cluster::Cluster;

/// Events of a part that nobody has looked at. Further ones are dropped.
const EVENTS_MAX: usize = 4096;

/// A part that runs in this process. It ends, and is waited for, when this is dropped.
pub struct Here {
    part: Option<Running>,
    shutdown: Shutdown,
    events: Mutex<Receiver<Event>>,
}

impl Here {
    /// Waits for an event.
    pub fn await_event(&self, is_it: impl Fn(&Event) -> bool) {
        let events = self.events.lock().unwrap();
        while !is_it(&events.recv_timeout(PATIENCE).expect("the event comes")) {}
    }

    /// Tells it to end once its requests in flight are answered. It may take new ones meanwhile.
    pub fn finish(&self) {
        self.shutdown.finish();
    }

    /// What ends it.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Ends it once its requests in flight are answered, and waits until it has.
    pub fn end(mut self) {
        self.finish();
        self.part.take().expect("it is ended once").wait().unwrap_or_else(|why| panic!("{}", why.0));
    }

    /// Waits until it ends by itself; the reason, in one line.
    pub fn failed(mut self) -> String {
        self.part.take().expect("it is waited for once").wait().expect_err("it has a reason").0
    }
}

impl Cluster {
    /// Starts a node or an edge of it in this process.
    ///
    /// # Errors
    /// The line that the program would print.
    pub fn try_here(&self, kind: &str, name: &str) -> Result<Here, String> {
        let mut file = self.file.clone();
        // A record that the kernel keeps would cost this process its privileges.
        if file.load.scheme == Scheme::Auto {
            file.load.scheme = Scheme::RdmaAsync;
        }
        let (tell, events) = mpsc::sync_channel(EVENTS_MAX);
        let events_of: Events = Arc::new(move |event| _ = tell.try_send(event.clone()));
        let cluster = file.cluster().map_err(|error| error.to_string())?;
        let spec = PartSpec { cluster, name: name.to_owned(), events: events_of };
        let part = match kind {
            "node" => node::start(spec, NodeOptions::default()),
            "edge" => edge::start(spec, EdgeOptions::default()),
            _ => panic!("no {kind} can be started here"),
        };
        let part = part.map_err(|why| why.0)?;
        Ok(Here { shutdown: part.shutdown(), part: Some(part), events: Mutex::new(events) })
    }

    /// Starts a node or an edge of it in this process.
    pub fn here(&self, kind: &str, name: &str) -> Here {
        self.try_here(kind, name).unwrap_or_else(|why| panic!("{kind} {name}: {why}"))
    }

    /// Starts all of its nodes and edges in this process, and waits until each is ready. Of the returned parts the edges, which come
    /// first, end first: their clients would see the nodes go.
    pub fn all_here(&self) -> Vec<Here> {
        let nodes = self.file.nodes.iter().map(|node| self.here("node", &node.name));
        let edges = self.file.edges.iter().map(|edge| self.here("edge", &edge.name));
        let mut parts: Vec<_> = nodes.chain(edges).collect();
        parts.iter().for_each(|part| part.await_event(|event| *event == Event::Ready));
        parts.reverse();
        parts
    }

    /// Starts all of its nodes and edges in this process, and waits until every edge answers for every site.
    pub fn serving_here(&self) -> Vec<Here> {
        let parts = self.all_here();
        self.await_answers(|| ());
        parts
    }
}
