//! Parts of a cluster on threads of the test's process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use sidelong_app::by_hand::{Hand, Wish};
use sidelong_app::cache::Setup;
use sidelong_app::edge::{self, EdgeOptions};
use sidelong_app::node::{self, NodeOptions};
use sidelong_app::reload::Reload;
use sidelong_app::{Event, Events, Failure, PartSpec, Parts, Running, Shutdown};
use sidelong_config::ClusterFile;
use sidelong_layout::{NodeId, SiteId};
use sidelong_load::Scheme;

use crate::PATIENCE;
use crate::cluster::Cluster;

/// Events of a part that nobody has looked at. Further ones are dropped.
const EVENTS_MAX: usize = 4096;

/// A part that runs in this process. It ends, and is waited for, when this is dropped.
pub struct Here {
    work: Option<Work>,
    end: End,
    events: Mutex<Receiver<Event>>,
}

/// What a file says, for parts in this process.
fn cluster(file: &ClusterFile) -> Result<sidelong_config::Cluster, String> {
    let mut file = file.clone();
    // A record that the kernel keeps would cost this process its privileges.
    if file.scheme() == Scheme::Auto {
        file.load.scheme = Scheme::RdmaAsync;
    }
    file.cluster().map_err(|error| error.to_string())
}

/// What runs.
enum Work {
    Part(Running),
    Cache(JoinHandle<Result<(), Failure>>),
}

/// What ends it.
enum End {
    Part(Shutdown),
    Cache(Arc<AtomicBool>),
}

impl Work {
    fn wait(self) -> Result<(), Failure> {
        match self {
            Work::Part(part) => part.wait(),
            Work::Cache(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
        }
    }
}

impl Here {
    /// Starts a node, an edge or a cache of a cluster in this process. A cache takes clients then.
    ///
    /// # Errors
    /// The line that the program would print.
    pub fn start(file: &ClusterFile, kind: &str, name: &str) -> Result<Self, String> {
        let cluster = cluster(file)?;
        if kind == "cache" {
            let setup = Setup::of_cluster(cluster, name).map_err(|why| why.0)?;
            return Ok(Here::cache(setup)?.0);
        }
        let (tell, events) = mpsc::sync_channel(EVENTS_MAX);
        let events_of: Events = Arc::new(move |event| _ = tell.try_send(event.clone()));
        let spec = PartSpec { cluster, name: name.to_owned(), events: events_of };
        let part = match kind {
            "node" => node::start(spec, NodeOptions::default()),
            "edge" => edge::start(spec, EdgeOptions::default()),
            _ => panic!("no {kind} can be started here"),
        };
        let part = part.map_err(|why| why.0)?;
        let end = End::Part(part.shutdown());
        Ok(Here { work: Some(Work::Part(part)), end, events: Mutex::new(events) })
    }

    /// Starts a cache in this process, once it takes clients. Returns where its clients connect, too.
    ///
    /// # Errors
    /// The line that the program would print.
    pub fn cache(setup: Setup) -> Result<(Self, Vec<String>), String> {
        let stop = Arc::new(AtomicBool::new(false));
        let (tell, events) = mpsc::sync_channel(EVENTS_MAX);
        let (tell_at, at) = mpsc::sync_channel(1);
        let its = Arc::clone(&stop);
        let serve = move || {
            let ready = |at: &[String]| {
                _ = tell_at.send(at.to_vec());
                _ = tell.send(Event::Ready);
                Ok(())
            };
            setup.serve(ready, &its)
        };
        let thread = thread::Builder::new().name("cache".into()).spawn(serve).unwrap();
        let here =
            Here { work: Some(Work::Cache(thread)), end: End::Cache(stop), events: Mutex::new(events) };
        match at.recv() {
            Ok(at) => Ok((here, at)),
            Err(_) => Err(here.failed()),
        }
    }

    /// Waits for an event.
    pub fn await_event(&self, is_it: impl Fn(&Event) -> bool) {
        let events = self.events.lock().unwrap();
        while !is_it(&events.recv_timeout(PATIENCE).expect("the event comes")) {}
    }

    /// Tells it to end once its requests in flight are answered. It may take new ones meanwhile.
    pub fn finish(&self) {
        match &self.end {
            End::Part(shutdown) => shutdown.finish(),
            End::Cache(stop) => stop.store(true, Ordering::Relaxed),
        }
    }

    /// What ends a node or an edge.
    pub fn shutdown(&self) -> Shutdown {
        match &self.end {
            End::Part(shutdown) => shutdown.clone(),
            End::Cache(_) => panic!("a cache has no requests in flight to wait for"),
        }
    }

    /// Whether it has not ended.
    pub fn is_running(&self) -> bool {
        match self.work.as_ref().expect("it was not waited for") {
            Work::Part(part) => part.is_running(),
            Work::Cache(thread) => !thread.is_finished(),
        }
    }

    /// Ends it once its requests in flight are answered, and waits until it has.
    pub fn end(self) {
        self.ended();
    }

    /// Ends it likewise, and returns the events that nobody has looked at.
    pub fn ended(mut self) -> Vec<Event> {
        self.finish();
        self.work.take().expect("it is ended once").wait().unwrap_or_else(|why| panic!("{}", why.0));
        self.events.lock().unwrap().try_iter().collect()
    }

    /// Waits until it ends by itself; the reason, in one line.
    pub fn failed(mut self) -> String {
        self.work.take().expect("it is waited for once").wait().expect_err("it has a reason").0
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        self.finish();
        // A panic of it was printed where it happened.
        if let Some(Work::Cache(thread)) = self.work.take() {
            _ = thread.join();
        }
    }
}

/// Has the parts of a cluster go by that file, as `sidelong reload` does; the epoch.
///
/// # Errors
/// The reason why nothing is changed.
pub(crate) fn reload(file: &ClusterFile) -> Result<u64, String> {
    let file = cluster(file)?.file;
    let reload = Reload::new(ClusterFile::clone(&file)).and_then(|reload| reload.carry_out(PATIENCE, false));
    reload.map_err(|why| why.0)
}

impl Cluster {
    /// Starts a node, an edge or a cache of it in this process, as [`Here::start`].
    ///
    /// # Errors
    /// The line that the program would print.
    pub fn try_here(&self, kind: &str, name: &str) -> Result<Here, String> {
        Here::start(&self.file, kind, name)
    }

    /// Starts a node, an edge or a cache of it in this process.
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

    /// Has its parts go by the file as it is now, as `sidelong reload` does; the epoch.
    ///
    /// # Errors
    /// The reason why nothing is changed.
    pub fn reload(&self) -> Result<u64, String> {
        reload(&self.file)
    }

    /// Holds a node, as `sidelong drain` does; what the command would print, without its line's end.
    ///
    /// # Errors
    /// The reason why it stays where it is.
    pub fn drain(&self, node: &str) -> Result<String, String> {
        self.by_hand(node, Wish::Drain, |_| ())
    }

    /// Gives a node back that is held or pinned, as `sidelong resume` does.
    ///
    /// # Errors
    /// The reason why it is not.
    pub fn resume(&self, node: &str) -> Result<String, String> {
        self.by_hand(node, Wish::Resume, |_| ())
    }

    /// Has a node serve a site, as `sidelong move` does.
    ///
    /// # Errors
    /// The reason why it stays where it is.
    pub fn move_to(&self, node: &str, site: &str) -> Result<String, String> {
        let current = self.current()?;
        let slot = current.sites.position(|entry| entry.name == site).expect("it has the site");
        self.by_hand(node, Wish::Move(SiteId::new(slot)), |_| ())
    }

    /// The cluster as its parts go by it.
    ///
    /// # Errors
    /// If that cannot be used.
    pub fn current(&self) -> Result<sidelong_config::Cluster, String> {
        sidelong_app::roster::current(cluster(&self.file)?).map_err(|why| why.0)
    }

    /// Makes of a node what a person wants, who may `change` how.
    ///
    /// # Errors
    /// The reason why it is not done.
    pub fn by_hand(&self, node: &str, wish: Wish, change: impl FnOnce(&mut Hand)) -> Result<String, String> {
        let current = self.current()?;
        let slot = current.nodes.position(|entry| entry.name == node).expect("it has the node");
        let hand = || {
            let mut hand = Hand::new(Parts::new(current)?, NodeId::new(slot), wish)?;
            change(&mut hand);
            hand.await_words().map_err(Failure::new)?;
            hand.carry_out()
        };
        hand().map_err(|why| why.0)
    }
}
