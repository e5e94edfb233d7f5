//! Metrics of the gate: requests admitted and rejected, and whether targets are met.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use sidelong_layout::SiteId;

use super::emit::{Labels, family, flag};
use super::figures::{Head, Kind, gauge};
use crate::clock;
use crate::gate::Gate;
use crate::status::State;

/// Reads the gate at the scrape.
#[derive(Debug)]
pub(super) struct GateCollector {
    pub(super) gate: Arc<Gate>,
    pub(super) state: Arc<State>,
}

const fn counter(name: &'static str, help: &'static str) -> Head<'static> {
    Head { name, unit: "", help, kind: Kind::Counter }
}

const ADMITTED: Head<'static> = counter("admitted", "Requests admitted, by site and reason");
const REJECTED: Head<'static> = counter("rejected", "Requests rejected with 503, by site and reason");
const CLOSED: Head<'static> =
    counter("closed_at_accept", "Connections closed at accept, because no site would have admitted them");
const ANSWERS: Head<'static> =
    counter("target_answers", "Successful answers of sites with a p99 target, by whether they were late");
const RATIO: Head<'static> =
    gauge("admitted_ratio", "", "Admitted part of the site's clients, averaged over about a second");
const LENT: Head<'static> =
    gauge("verdict_lent", "", "1 while this edge knows nothing of the site and uses another edge's verdict");
const OUTLOOK: [Head<'static>; 3] = [
    gauge("queue_delay", "seconds", "Time that a request of the site waits at a node"),
    gauge("queue_budget", "seconds", "Time that a request may wait for the site's target to be met"),
    gauge(
        "target_met",
        "",
        "1 while the site's target is met: a p99 over about the last second, a queue now",
    ),
];

impl Collector for GateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (gate, members) = (&self.gate, self.state.members.load());
        let sites = || members.sites.entries().map(|(slot, name)| (SiteId::new(slot), name.as_str()));
        let by_why = |(name, (why, count)): (_, (_, u64))| -> (Labels<'_>, f64) {
            (vec![("site", name), ("why", why)], count as f64)
        };
        let each = |(site, name)| gate.admitted(site).map(move |counted| (name, counted));
        family(&mut encoder, &ADMITTED, sites().flat_map(each).map(by_why))?;
        let each = |(site, name)| gate.rejected(site).map(move |counted| (name, counted));
        family(&mut encoder, &REJECTED, sites().flat_map(each).map(by_why))?;
        family(&mut encoder, &CLOSED, [(Labels::new(), gate.closed() as f64)])?;
        let answers = |(site, name)| {
            let [late, all] = gate.late(site)?;
            let of = |is_late, count: u64| (vec![("site", name), ("late", is_late)], count as f64);
            Some([of("no", all - late), of("yes", late)])
        };
        family(&mut encoder, &ANSWERS, sites().filter_map(answers).flatten())?;
        let ratio = |(site, name)| (vec![("site", name)], gate.ratio(site));
        family(&mut encoder, &RATIO, sites().map(ratio))?;
        let now = clock::now();
        let is_lent = |site| gate.is_lent(site, now, self.state.view.is_stale(now));
        let lent = |(site, name)| (vec![("site", name)], flag(is_lent(site)));
        family(&mut encoder, &LENT, sites().map(lent))?;
        for (place, head) in OUTLOOK.iter().enumerate() {
            let known = |(site, name)| Some((vec![("site", name)], gate.outlook(site)[place]?));
            family(&mut encoder, head, sites().filter_map(known))?;
        }
        Ok(())
    }
}
