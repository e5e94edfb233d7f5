//! What the fronts last saw of a node. Where memory ends with its process, a node that starts again goes on as that: it serves the site that it
//! served, or is held. Without it a process that is replaced would take nodes out of the sites that need them.
//!
//! Movers repair any legal word, so that nothing else than the answers of the fronts is needed, and a front that does not answer is not waited for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sidelong_edge::View;
use sidelong_fabric::control::ControlDirectory;
use sidelong_layout::{NodeId, NodeState, Ownership, SITES_MAX, SiteId};
use sidelong_reconfig::front_region;

use crate::fabric::{Exposer, LAST_SEEN, control};
use crate::parts::Parts;
use crate::roster::{answered, of_all};

/// Longest wait for fronts that go by an older roster, and the pause between two looks.
const ADOPT_MAX: Duration = Duration::from_secs(2);
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
    let (control, deadline) = (control(&parts.cluster).ok()?, Instant::now() + ADOPT_MAX);
    let (own, site) = loop {
        let told = ask(&control, parts, node);
        let told: Vec<_> = told.iter().filter_map(|told| decoded(told)).collect();
        // One that goes by an older roster may mean a member of the name that has left since.
        let by_it = told.iter().filter(|(epoch, ..)| *epoch >= parts.cluster.epoch);
        // Generations only grow, from one life of a node to the next, too.
        if let Some((_, own, site)) = by_it.max_by_key(|(_, own, _)| own.generation) {
            break (*own, (*site).to_owned());
        }
        if told.is_empty() || Instant::now() >= deadline {
            return None;
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

/// As what a node begins that is not held any more. No request is left there, so any site may have it.
pub(crate) fn without_hold(last: (NodeState, Option<SiteId>)) -> (NodeState, Option<SiteId>) {
    if last.0 == NodeState::Held { (NodeState::Free, None) } else { last }
}

/// What the fronts answer.
fn ask(control: &ControlDirectory, parts: &Parts, node: &str) -> Vec<Vec<u8>> {
    let regions: Vec<_> = parts.cluster.fronts.values().map(|front| front_region(&front.name)).collect();
    let told = of_all(&regions, |region| answered(|| control.exchange(region, LAST_SEEN, node.as_bytes())));
    told.into_iter().filter_map(Result::ok).collect()
}

/// The epoch by which a front goes, the word that it saw, and the name of the site in that.
fn decoded(told: &[u8]) -> Option<(u64, Ownership, &str)> {
    let (epoch, told) = told.split_first_chunk()?;
    let (word, site) = told.split_first_chunk()?;
    let own = Ownership::decode(u64::from_le_bytes(*word), SITES_MAX)?;
    Some((u64::from_le_bytes(*epoch), own, std::str::from_utf8(site).ok()?))
}
