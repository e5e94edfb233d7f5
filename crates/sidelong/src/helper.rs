//! `sidelong helper`: decides whom to let in for servers that are no Sidelong edge, in memory that they read (A: the
//! admission control module "uses shared memory to communicate with the load monitoring daemon").

use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, Region, RegionSpec, RunDirectory};
use sidelong_layout::{NAME_BYTES, NodeId, RegionKind, SiteId, Time, VerdictsMap};
use sidelong_policy::admission::{Answers, Controller, Outlook, Snapshot, Traffic};
use sidelong_policy::index::Capacity;
use sidelong_policy::reconfigure::NodeView;

use crate::cli::HelperArgs;
use crate::failure::{Failure, say};
use crate::monitor::Monitor;
use crate::parts::{Parts, cluster};

/// The region of verdicts, in the file `verdicts.region`.
const NAME: &str = "verdicts";
/// Everybody may read what everybody is told by.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

pub(crate) fn run(args: &HelperArgs, quiet: bool) -> Result<(), Failure> {
    let parts = Parts::new(cluster(&args.config, args.fabric)?)?;
    let Some((settings, promises)) = parts.admission_settings() else {
        return Err(Failure::new(format!(
            "{}: there is nothing to decide: no site has response_ms_p99 or queue_ms_max, and admission.rule is not \
             \"paper\" (docs/admission.md)",
            args.config.display()
        )));
    };
    let rotation = settings.rotation;
    let mut controller = Controller::new(settings, promises, parts.cluster.nodes.len())?;
    let directory = args.dir.as_deref().unwrap_or(parts.run.path());
    let verdicts = Verdicts::offer(directory, &parts, rotation)?;

    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    if !quiet {
        say(format_args!(
            "{}; {}\nverdicts on {} sites in {}\n",
            parts.fabric.note(),
            parts.scheme_note()?,
            parts.cluster.sites.len(),
            directory.join("verdicts.region").display()
        ))?;
    }
    let mut monitor = Monitor::new(&parts)?;
    let capacities = parts.capacities();
    let (sites, answers) = (parts.sites(), vec![Answers::default(); parts.cluster.sites.len()]);
    // Other servers' requests are known by the nodes' records alone.
    let (traffic, others) = (vec![Traffic::default(); capacities.len()], vec![None; sites.len()]);
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        monitor.look();
        let nodes: Vec<_> = capacities
            .iter()
            .enumerate()
            .map(|(index, capacity)| view(&monitor, NodeId::new(index), *capacity))
            .collect();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_ns = since_1970.as_nanos() as u64;
        let (nodes, sites, traffic, answers, others) = (&nodes, &sites, &traffic, &answers, &others);
        let snapshot = Snapshot { nodes, sites, traffic, answers, others, wall_ns };
        verdicts.show(controller.step(&snapshot, monitor.at()), monitor.at());
        // As an edge's watch thread: at a fixed rate, and looks that were missed are not made up for.
        next = (next + parts.cluster.reconfig.sensitivity).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// As the last look found it. What waits at a node its record says; who sent it there does not matter here.
fn view(monitor: &Monitor, node: NodeId, capacity: Capacity) -> NodeView {
    let load = monitor.hot(node).copied();
    NodeView { ownership: monitor.ownership(node), load, up: load.is_some(), capacity, in_flight: 0 }
}

/// The region that others read.
struct Verdicts {
    region: Region,
    map: VerdictsMap,
}

impl Verdicts {
    fn offer(directory: &Path, parts: &Parts, rotation: Duration) -> Result<Self, Failure> {
        let named = |source: std::io::Error| Failure::new(format!("{}: {source}", directory.display()));
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory).map_err(named)?;
        let run = RunDirectory::open(directory)?;
        let sites = &parts.cluster.sites;
        let map = VerdictsMap { sites: sites.len() };
        let (kind, access) = (RegionKind::Verdicts, Access::ReadOnly);
        let spec = RegionSpec { name: NAME, kind, len: map.len(), access, incarnation: parts.began_ms };
        let region = Host::Shm(ShmHost::new(run.path())).offer(&spec, |_| ())?;
        let file = run.path().join(format!("{NAME}.region"));
        std::fs::set_permissions(file, Permissions::from_mode(FILE_MODE)).map_err(named)?;

        let verdicts = Verdicts { region, map };
        // What an earlier life left is of its sites.
        verdicts.withdraw();
        for (index, site) in sites.iter().enumerate() {
            let id = SiteId::new(index);
            verdicts.region.store(
                map.stale(id),
                parts.cluster.load.stale.as_nanos() as u64,
                Ordering::Relaxed,
            );
            verdicts.region.store(map.rotation(id), rotation.as_nanos() as u64, Ordering::Relaxed);
            let mut name = [0; NAME_BYTES];
            name[..site.name.len()].copy_from_slice(site.name.as_bytes());
            for (word, bytes) in name.as_chunks::<8>().0.iter().enumerate() {
                verdicts.region.store(map.name(id) + word * 8, u64::from_le_bytes(*bytes), Ordering::Relaxed);
            }
        }
        Ok(verdicts)
    }

    fn show(&self, outlooks: &[Outlook], now: Time) {
        for (index, outlook) in outlooks.iter().enumerate() {
            let site = SiteId::new(index);
            self.region.store(self.map.verdict(site), outlook.verdict.encode(), Ordering::Relaxed);
            self.region.store(self.map.time(site), now.as_ns(), Ordering::Release);
        }
    }

    /// From now on nobody is told anything.
    fn withdraw(&self) {
        for site in (0..self.map.sites).map(SiteId::new) {
            self.region.store(self.map.time(site), 0, Ordering::Release);
        }
    }
}

impl Drop for Verdicts {
    fn drop(&mut self) {
        self.withdraw();
    }
}
