//! What the fronts last saw of a node. Where memory ends with its process, a node that starts again goes on as that: it serves the site that it
//! served, or is held. Without it a process that is replaced would take nodes out of the sites that need them.
//!
//! Movers repair any legal word, so that nothing else than the answers of the fronts is needed. No node lands at another site before all
//! fronts have seen that it leaves. So if the newest that a front has seen of it is that it serves, it serves that site. If it is
//! that the node is on its way, a front that says nothing may have seen where it came, and may send it requests of that site. Such a front is waited
//! for. So is any front that says nothing if the others have not seen a node that has begun before. A front that goes by an older roster may mean
//! another node of the name: if it has seen more than the others, it is waited for until it has the newer one. Nobody reads the node meanwhile, and
//! fronts go by what they know. If the fronts that answer have never seen such a node, as after a power failure of all machines, it does not wait for
//! the others for ever: it begins as the file says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sidelong_edge::View;
use sidelong_fabric::Error;
use sidelong_fabric::control::ControlDirectory;
use sidelong_layout::{NodeId, NodeState, Ownership, SITES_MAX, SiteId};
use sidelong_reconfig::{front_region, words_region};

use crate::fabric::{Exposer, LAST_SEEN, control};
use crate::parts::Parts;
use crate::roster::{SeenEpoch, answered, of_all};

/// Longest wait for fronts that have seen more and go by an older roster, once nothing else is waited for.
const ADOPT_MAX: Duration = Duration::from_secs(2);
/// Longest wait for fronts that say nothing.
const SILENT_MAX: Duration = Duration::from_secs(10);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers for a front.
pub(crate) fn answer(exposer: Option<&Exposer>, parts: &Parts, view: &Arc<View>) {
    let Some(exposer) = exposer else { return };
    let (members, config, view) = (Arc::clone(&parts.members), Arc::clone(&parts.config), Arc::clone(view));
    exposer.serve(LAST_SEEN, move |name| {
        // Read first: members may be of a later one, at worst.
        let epoch = config.epoch();
        let members = members.load();
        let node = members.nodes.position(|known| known.as_bytes() == name).ok_or("it knows no such node")?;
        // A word that was never read is 0.
        let own = view.ownership(NodeId::new(node)).filter(|own| own.encode() != 0);
        let own = own.ok_or("it has not seen that node")?;
        // Who asks may know other sites.
        let site = own.site.and_then(|site| members.sites.get(site.index()));
        let site = site.map_or(&[][..], |site| site.as_bytes());
        Ok([&epoch.to_le_bytes(), &own.encode().to_le_bytes(), site].concat())
    });
}

/// As what a node begins that starts now: its state, and its site.
pub(crate) fn of(parts: &Parts, node: &str) -> Option<(NodeState, Option<SiteId>)> {
    if parts.fabric.shares_memory() || parts.fabric.is_of_one_machine() {
        return None;
    }
    let (control, began) = (control(&parts.cluster).ok()?, Instant::now());
    let begun = SeenEpoch::of(node, &parts.cluster, &parts.run).read();
    let has_begun = begun > 0 || parts.run.ended(&words_region(node)).is_some();
    let (mut was_told, mut behind) = (false, None);
    let (own, site) = loop {
        let Told { answers, silent, is_heard } = ask(&control, parts, node);
        let told: Vec<_> = answers.iter().filter_map(|told| decoded(told)).collect();
        let known = newest(&told, parts.cluster.epoch);
        let seen = known.map(|(own, _)| own);
        let is_over = if silent.is_some() && !is_known(seen, has_begun) {
            began.elapsed() >= SILENT_MAX
        } else if is_behind(&told, seen, parts.cluster.epoch) {
            behind.get_or_insert_with(Instant::now).elapsed() >= ADOPT_MAX
        } else {
            let (own, site) = known?;
            break (own, site.to_owned());
        };
        if is_over {
            return unsaid(is_heard, !told.is_empty());
        }
        if let Some(front) = silent.filter(|_| !std::mem::replace(&mut was_told, true)) {
            tracing::warn!(
                "{node} does not begin yet: {front} may have seen which site it serves, and says nothing"
            );
        }
        std::thread::sleep(PAUSE);
    };
    let place = |name: &str| parts.cluster.sites.position(|site| site.name == name && !parts.closes(site));
    let site = place(&site).map(SiteId::new);
    Some(match own.state {
        NodeState::Free => (NodeState::Free, None),
        state @ (NodeState::Serving | NodeState::Pinned | NodeState::Held) => (state, Some(site?)),
        // Whoever moved it finds another word.
        NodeState::Draining | NodeState::Changing => (NodeState::Serving, Some(site?)),
    })
}

/// Keeps for the node's next life that it has begun, where a restart of the machine empties the run directory.
pub(crate) fn begun(parts: &Parts, node: &str) {
    if parts.cluster.etcd.is_none() {
        return;
    }
    if let Err(error) = SeenEpoch::of(node, &parts.cluster, &parts.run).keep(parts.cluster.epoch) {
        tracing::warn!(%error, "after a restart of this machine {node} does not know that it has begun before");
    }
}

/// Whether the newest word that a front has seen tells which site a node serves. One that has never begun serves that of the file.
fn is_known(newest: Option<Ownership>, has_begun: bool) -> bool {
    match newest.map(|own| own.state) {
        Some(NodeState::Draining | NodeState::Changing) => false,
        Some(_) => true,
        None => !has_begun,
    }
}

/// As what a node begins if a front that says nothing, or goes by an older roster, was waited for in vain: free, which any mover may end, since
/// nobody says where it came. If there are fronts that answer, and none has seen it, it begins as the file says.
fn unsaid(is_heard: bool, is_seen: bool) -> Option<(NodeState, Option<SiteId>)> {
    if is_heard && !is_seen { None } else { Some((NodeState::Free, None)) }
}

/// The newest of what fronts have seen, by a roster that is not older than `epoch`: another one may mean a member of the name that has left
/// since. Generations only grow, from one life of a node to the next, too.
fn newest<'a>(told: &[(u64, Ownership, &'a str)], epoch: u64) -> Option<(Ownership, &'a str)> {
    let by_it = told.iter().filter(|(of, ..)| *of >= epoch);
    by_it.max_by_key(|(_, own, _)| own.generation).map(|(_, own, site)| (*own, *site))
}

/// Whether a front has seen more than the `newest`, by a roster that is older than `epoch`.
fn is_behind(told: &[(u64, Ownership, &str)], newest: Option<Ownership>, epoch: u64) -> bool {
    let mut older = told.iter().filter(|(of, ..)| *of < epoch);
    older.any(|(_, own, _)| newest.is_none_or(|newest| own.generation > newest.generation))
}

/// As what a node begins that is not held any more. No request is left there, so any site may have it.
pub(crate) fn without_hold(last: (NodeState, Option<SiteId>)) -> (NodeState, Option<SiteId>) {
    if last.0 == NodeState::Held { (NodeState::Free, None) } else { last }
}

/// What the fronts answer.
struct Told {
    answers: Vec<Vec<u8>>,
    /// The name of one that says nothing, and may live.
    silent: Option<String>,
    /// Whether any answers, if only that it has not seen the node.
    is_heard: bool,
}

fn ask(control: &ControlDirectory, parts: &Parts, node: &str) -> Told {
    let lost = &parts.cluster.standing.lost;
    let fronts = parts.cluster.fronts.values().filter(|front| front.fabric_listen.is_some());
    let fronts: Vec<_> = fronts.filter(|front| !lost.contains(&front.name)).collect();
    let told = of_all(&fronts, |front| {
        let region = front_region(&front.name);
        match answered(|| control.exchange(&region, LAST_SEEN, node.as_bytes())) {
            Ok(told) => Ok(Some(Some(told))),
            // It has not seen the node.
            Err(Error::Declined { .. }) => Ok(Some(None)),
            // The requests of a proxy go on when its front has ended.
            Err(_) if front.controls.is_none() && control.has_ended(&region, None) => Ok(None),
            Err(_) => Err(front.name.clone()),
        }
    });
    let silent = told.iter().find_map(|told| told.as_ref().err().cloned());
    let heard: Vec<_> = told.into_iter().filter_map(|told| told.ok()?).collect();
    let is_heard = !heard.is_empty();
    Told { answers: heard.into_iter().flatten().collect(), silent, is_heard }
}

/// The epoch by which a front goes, the word that it saw, and the name of the site in that.
fn decoded(told: &[u8]) -> Option<(u64, Ownership, &str)> {
    let (epoch, told) = told.split_first_chunk()?;
    let (word, site) = told.split_first_chunk()?;
    let own = Ownership::decode(u64::from_le_bytes(*word), SITES_MAX)?;
    Some((u64::from_le_bytes(*epoch), own, std::str::from_utf8(site).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_front_that_says_nothing_is_waited_for_where_it_alone_may_know_where_a_node_came() {
        let word =
            |state, generation| Ownership { state, site: Some(SiteId::new(0)), next: None, generation };
        let [serves, leaves] = [NodeState::Serving, NodeState::Draining].map(|state| word(state, 7));
        // It may have landed elsewhere since.
        assert!(!is_known(Some(leaves), true));
        assert!(!is_known(None, true));
        assert!(is_known(Some(serves), true));
        assert!(is_known(None, false));
        assert_eq!(unsaid(true, false), None);
        for (is_heard, is_seen) in [(false, false), (true, true)] {
            assert_eq!(unsaid(is_heard, is_seen), Some((NodeState::Free, None)));
        }
        let told = [(4, word(NodeState::Serving, 9), "old"), (5, leaves, "alpha"), (6, serves, "beta")];
        assert_eq!(newest(&told, 5).unwrap().0.generation, 7);
        assert_eq!(newest(&told[..1], 5), None);
        // By an older roster it may mean another node of the name, and may also have seen where this one came.
        let newest_of = |told, epoch| newest(told, epoch).map(|(own, _)| own);
        assert!(is_behind(&told, newest_of(&told, 5), 5));
        assert!(is_behind(&told[..1], None, 5));
        assert!(!is_behind(&told[1..], newest_of(&told[1..], 6), 6));
        assert!(!is_behind(&told, newest_of(&told, 4), 4));
    }
}
