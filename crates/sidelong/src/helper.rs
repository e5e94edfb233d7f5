//! `sidelong helper`, which `sidelong front` replaces: decides which requests to admit, for servers other than Sidelong's edge. They read its verdicts
//! in shared memory (Lai et al. 2008: the admission control module "uses shared memory to communicate with the load
//! monitoring daemon").

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sidelong_fabric::shm::ShmHost;
use sidelong_fabric::{Access, Host, Region, RegionSpec, RunDirectory};
use sidelong_layout::{NAME_BYTES, NodeId, RegionKind, SiteId, Time, VerdictsMap};
use sidelong_policy::admission::Outlook;
use sidelong_policy::brain::{Decider, SiteSeen};
use sidelong_policy::cluster::{NodeView, Traffic};

use crate::cli::HelperArgs;
use crate::failure::{Failure, say};
use crate::hangup::Hangup;
use crate::monitor::Monitor;
use crate::parts::{Parts, cluster};

/// The region of verdicts, in the file `verdicts.region`, which every user may read.
const NAME: &str = "verdicts";

pub(crate) fn run(args: &HelperArgs, quiet: bool) -> Result<(), Failure> {
    Hangup::ignore()?.log()?;
    let parts = Parts::new(cluster(&args.config, args.fabric)?)?;
    let Some((settings, _)) = parts.admission_settings() else {
        return Err(Failure::new(format!(
            "{}: there is nothing to decide: no site has response_ms_p99 or queue_ms_max, and admission.rule is not \
             \"paper\" (docs/admission.md)",
            args.config.display()
        )));
    };
    let rotation = settings.rotation;
    let mut brain = parts.brain(Decider::Nobody, true)?;
    let directory = args.dir.as_deref().unwrap_or(parts.run.path());
    let mut verdicts = Some(Verdicts::offer(directory, &parts, rotation)?);

    tracing::warn!(
        "`sidelong helper` is in this version for the last time: `sidelong front` replaces it (docs/httpd.md)"
    );

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
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        monitor.look();
        let nodes = capacities.iter().enumerate().map(|(index, capacity)| {
            let node = NodeId::new(index);
            let (ownership, load) = (monitor.ownership(node), monitor.hot(node).copied());
            let seen = NodeView { ownership, load, up: true, dead: false, capacity: *capacity, in_flight: 0 };
            // Other servers' requests show only in the nodes' records.
            (seen, Traffic::default())
        });
        let sites = parts.cluster.sites.iter().map(|_| SiteSeen::default());
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let decisions = brain.scan(nodes, sites, true, monitor.at(), since_1970.as_nanos() as u64);
        if verdicts.as_ref().is_none_or(|verdicts| verdicts.region.is_lost()) {
            // The lock on the lost file goes first.
            drop(verdicts.take());
            verdicts = Some(Verdicts::offer(directory, &parts, rotation)?);
        }
        if let Some(verdicts) = &verdicts {
            verdicts.show(decisions.outlooks, monitor.at());
        }
        // As in an edge's watch thread: a fixed rate, and missed scans are skipped.
        next = (next + parts.cluster.reconfig.sensitivity).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(())
}

/// The region that other servers read.
struct Verdicts {
    region: Region,
    map: VerdictsMap,
}

impl Verdicts {
    fn offer(directory: &Path, parts: &Parts, rotation: Duration) -> Result<Self, Failure> {
        let run = RunDirectory::open_public(directory)?;
        let sites = &parts.cluster.sites;
        let map = VerdictsMap { sites: sites.len() };
        let (kind, access) = (RegionKind::Verdicts, Access::ReadOnly);
        let spec =
            RegionSpec { cluster: 0, name: NAME, kind, len: map.len(), access, incarnation: parts.began_ms };
        let region = Host::Shm(ShmHost::new(run.path())).offer(&spec, |_| ())?;
        let named = |error| Failure::new(format!("{}: {error}", directory.display()));
        run.publish_file(&format!("{NAME}.region")).map_err(named)?;

        let verdicts = Verdicts { region, map };
        // The verdicts of an earlier life are for its own sites.
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

    /// Withdraws the verdicts: servers then admit all requests.
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
