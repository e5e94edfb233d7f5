//! By which roster a part or a command begins where parts are on several machines: the newest one that etcd, another part or this machine
//! has.
//!
//! By an old one nothing may be served: the slot of a site that has left may be another's now, and nobody waits for a part that was lost. etcd
//! may not answer, or have been restored from a backup, so that the other parts are asked, too. A node whose words can be read answers, and
//! knows who has which slot.

use std::net::IpAddr;
use std::sync::mpsc;
use std::time::Duration;

use sidelong_config::{Cluster, ClusterFile, Etcd, ServerAddress, is_nowhere};
use sidelong_fabric::RunDirectory;

use super::kept::{Roster, is_fetched, keep};
use super::place::{Place, Told, absent, older};
use crate::failure::Failure;

/// How long etcd alone is asked.
const ETCD_FIRST: Duration = Duration::from_millis(100);

/// The cluster as the parts go by it now.
pub(super) fn current(cluster: &Cluster) -> Result<Cluster, Failure> {
    present(cluster)?.cluster()
}

/// The whole file of a cluster, of which the one at hand says only where it is.
///
/// # Errors
/// If neither etcd nor this machine has it.
pub fn whole(short: &ClusterFile) -> Result<ClusterFile, Failure> {
    Ok(present(&short.cluster()?)?.file)
}

/// The roster by which the parts go now, on this machine.
fn present(cluster: &Cluster) -> Result<Roster, Failure> {
    let run = RunDirectory::at(&cluster.run_dir);
    let fetched = Roster::from_etcd(&run).filter(|_| is_fetched(&run));
    let roster = fetched.map_or_else(|| newest(cluster, &run), Ok)?;
    Ok(of_machine(roster, &cluster.file))
}

/// A roster with what a machine's own file says of the machine.
fn of_machine(mut roster: Roster, own: &ClusterFile) -> Roster {
    let ClusterFile { cluster, etcd, .. } = &mut roster.file;
    cluster.run_dir = own.cluster.run_dir.clone().or(cluster.run_dir.take());
    cluster.secret_file = own.cluster.secret_file.clone().or(cluster.secret_file.take());
    let own = own.etcd.as_ref().and_then(|own| own.state_dir.clone());
    if let Some(etcd) = etcd {
        etcd.state_dir = own.or(etcd.state_dir.take());
    }
    roster
}

/// The cluster by which the part of that name goes, which starts.
pub(super) fn enter(cluster: &Cluster, run: &RunDirectory, part: &str) -> Result<Cluster, Failure> {
    let mut newest = newest(cluster, run)?;
    if !newest.has(part) {
        return Err(Failure::new(format!(
            "the cluster {} has no part {part} (epoch {}): `sidelong join` or `sidelong cluster apply` has it join",
            cluster.name, newest.epoch
        )));
    }
    if newest.standing.leaving.contains(part) && newest.slots.fronts.0.values().any(|front| front == part) {
        return Err(Failure::new(format!(
            "{part} is leaving the cluster (epoch {}), so that it must not serve: finish that by `sidelong cluster apply` with a file \
             without it, or undo it with a file that has it",
            newest.epoch
        )));
    }
    if newest.standing.lost.contains(part) {
        newest = Place::new(cluster)?.change(&newest, |roster| _ = roster.standing.lost.remove(part))?;
    }
    let cluster = go_by(&newest, cluster, run)?;
    match must_know(&cluster, part).into_iter().any(is_nowhere) {
        true => Err(Failure::new(format!(
            "a host that {part} must know is not found by this machine: look at {part} in `sidelong cluster show`, and at what the \
             machine's name server says"
        ))),
        false => Ok(cluster),
    }
}

/// The cluster as a process goes by it that is no part of it.
pub(super) fn follow(cluster: &Cluster, run: &RunDirectory) -> Result<Cluster, Failure> {
    go_by(&newest(cluster, run)?, cluster, run)
}

/// Has this machine go by that roster, with what its own file says of it.
fn go_by(newest: &Roster, cluster: &Cluster, run: &RunDirectory) -> Result<Cluster, Failure> {
    keep(run, newest)?;
    let entered = of_machine(newest.clone(), &cluster.file).cluster()?;
    // Where its own file says that etcd is remains the second choice.
    let state_dir = entered.etcd.as_ref().and_then(|etcd| etcd.state_dir.clone());
    let etcd = cluster.etcd.clone().map(|own| Etcd { state_dir, ..own });
    let cluster = Cluster { etcd, ..entered };
    newest.keep_over_restart(&cluster);
    Ok(cluster)
}

/// The addresses that a part must know as it starts: where it listens, its server, and what a cache does not look up again.
fn must_know(cluster: &Cluster, part: &str) -> Vec<IpAddr> {
    let nodes = cluster.nodes.values().filter(|node| node.name == part);
    let servers = nodes.clone().flat_map(|node| node.addresses.iter().filter_map(ServerAddress::tcp));
    let fronts = cluster.fronts.values().filter(|front| front.name == part);
    let edges = cluster.edges.iter().filter(|edge| edge.name == part).map(|edge| edge.listen);
    let is_cache = cluster.caches.values().any(|cache| cache.name == part);
    let caches = cluster.caches.values().filter(|_| is_cache);
    let caches = caches.flat_map(|cache| [Some(cache.listen), cache.fabric_listen, cache.verbs_listen]);
    let own = nodes.map(|node| node.fabric_listen).chain(servers).chain(edges);
    let own = own.chain(fronts.filter_map(|front| front.fabric_listen)).chain(caches.flatten());
    own.map(|address| address.ip()).collect()
}

/// Whether the part that begins by `cluster` knows the members as they are now.
pub(super) fn is_newest(cluster: &Cluster) -> bool {
    let run = RunDirectory::at(&cluster.run_dir);
    let knows =
        |newest: &Roster| newest.epoch <= cluster.epoch || newest.has_members_of(&Roster::from(cluster));
    let Ok(place) = Place::new(cluster) else { return true };
    let here = Roster::from_etcd(&run).unwrap_or_else(|| Roster::from(cluster));
    // The other parts were asked as it entered, and nobody but etcd has had newer ones since. Where nothing can be asked, it goes by what it
    // knows.
    match ask(&place, &here, Place::newer_since) {
        (Ok(Some(found)), _) => knows(&found),
        (_, told) => {
            let told = told.unwrap_or_else(|| place.newer_since(&here));
            knows(&told.ok().and_then(|told| told.newer).unwrap_or(here))
        }
    }
}

/// What etcd has, if it has anything.
type Found = Result<Option<Roster>, Failure>;

/// What etcd has, if it has it soon. Where it takes its time, the parts are asked meanwhile which roster they have that is newer than the
/// one that is here.
fn ask(
    place: &Place,
    here: &Roster,
    newer: impl FnOnce(&Place, &Roster) -> Result<Told, Failure>,
) -> (Found, Option<Result<Told, Failure>>) {
    std::thread::scope(|scope| {
        let (answer, answered) = mpsc::sync_channel(1);
        scope.spawn(move || _ = answer.send(place.newest_soon()));
        match answered.recv_timeout(ETCD_FIRST) {
            Ok(asked) => (asked, None),
            Err(_) => {
                let told = newer(place, here);
                (answered.recv().expect("it answers, or the scope ends with its panic"), Some(told))
            }
        }
    })
}

/// The newest roster that can be had: etcd's, or a part's that is newer, as etcd may have been restored from a backup.
fn newest(cluster: &Cluster, run: &RunDirectory) -> Result<Roster, Failure> {
    let place = Place::new(cluster)?;
    let here = Roster::from_etcd(run).into_iter().chain(Roster::kept(cluster, run));
    let here = here.filter(|here| here.file.cluster.name == cluster.name).max_by_key(|here| here.epoch);
    let Some(here) = here else {
        let known = place.newest()?.ok_or_else(|| absent(&cluster.name))?;
        return newest_with_peers(&place, known);
    };
    let (asked, told) = ask(&place, &here, Place::newer_of_peers);
    let of_it = |asked: Found, here: &Roster| {
        let found = asked?;
        if let Some(found) = &found {
            found.is_of_cluster(here)?;
        }
        Ok(found)
    };
    let (known, trouble) = match of_it(asked, &here) {
        // Others may be parts of it than of the one that is here.
        Ok(Some(found)) if found.epoch > here.epoch => return newest_with_peers(&place, found),
        Ok(Some(found)) if found.epoch == here.epoch => (found, None),
        asked => {
            let why = asked.err().map_or_else(|| older(None, here.epoch).0, |Failure(why)| why);
            (here, Some(why))
        }
    };
    let asks = if trouble.is_none() { Place::newer_than_etcds } else { Place::newer_of_peers };
    let Told { newer, is_heard } = told.unwrap_or_else(|| asks(&place, &known))?;
    // If nobody knows how old it is, etcd is waited for after all: it may be about to choose a leader.
    if trouble.is_some()
        && !is_heard
        && let Ok(Some(found)) = of_it(place.newest(), &known)
    {
        return newest_with_peers(&place, found);
    }
    if let Some(why) = trouble {
        tracing::warn!("goes by the newest file that the parts have, because {why}");
    }
    Ok(newer.unwrap_or(known))
}

/// `known`, which etcd has, or a newer one that parts have.
fn newest_with_peers(place: &Place, known: Roster) -> Result<Roster, Failure> {
    Ok(place.newer_than_etcds(&known)?.newer.unwrap_or(known))
}
