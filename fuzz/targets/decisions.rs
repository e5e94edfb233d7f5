//! What an edge decides from memory that others write: any ownership words and records, over many scans.
#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use sidelong_layout::{Hot, NodeId, Ownership};
use sidelong_policy::Time;
use sidelong_policy::admission::{AdmissionRule, AdmissionSettings, Controller, Promise, Target};
use sidelong_policy::brain::{Brain, Decider, SiteSeen};
use sidelong_policy::cluster::{NodeView, SiteView, Traffic};
use sidelong_policy::index::Capacity;
use sidelong_policy::reconfigure::{ReconfigureSettings, Reconfigurer};

const NODES: usize = 4;
const SITES: usize = 3;
const SCANS_MAX: usize = 64;

#[derive(Arbitrary, Debug)]
struct Input {
    scans: Vec<Scan>,
}

#[derive(Arbitrary, Debug)]
struct Scan {
    after_us: u32,
    nodes: [Node; NODES],
    waiting: [u32; SITES],
    mover_has_room: bool,
}

#[derive(Arbitrary, Debug)]
struct Node {
    ownership: u64,
    record: Option<[u64; Hot::WORDS]>,
    in_flight: u32,
    answers: u64,
    up: bool,
    dead: bool,
}

fuzz_target!(|input: Input| {
    let settings = AdmissionSettings { rule: AdmissionRule::Target, ..AdmissionSettings::default() };
    let promise = Promise { target: Some(Target::Queue(Duration::from_millis(20))), share: 0.2 };
    let controller = Controller::new(settings, vec![promise; SITES], NODES).expect("the settings are valid");
    let reconfigurer = Reconfigurer::new(ReconfigureSettings::default(), SITES, NODES);
    let decider = Decider::Edge(Box::new(reconfigurer.expect("the settings are valid")));
    let site = SiteView { floor: 1, ceiling: 3, priority: 0, waiting: 0, busy: false };
    let mut brain = Brain::new(Some(controller), decider, vec![site; SITES]);
    let mut now = Time::default();
    for scan in input.scans.into_iter().take(SCANS_MAX) {
        now = now.after(Duration::from_micros(scan.after_us.into()));
        let nodes = scan.nodes.map(|node| {
            let view = NodeView {
                ownership: Ownership::decode(node.ownership, SITES),
                load: node.record.map(bytemuck::cast),
                up: node.up,
                dead: node.dead,
                capacity: Capacity { workers: 2, ..Capacity::default() },
                in_flight: node.in_flight,
            };
            (view, Traffic { in_flight: node.in_flight, answers: node.answers, up: node.up })
        });
        let sites = scan.waiting.map(|waiting| SiteSeen { waiting, ..SiteSeen::default() });
        let decisions =
            brain.scan(nodes.into_iter(), sites.into_iter(), scan.mover_has_room, now, now.as_ns());
        for outlook in decisions.outlooks {
            assert!((0.0..=1.0).contains(&outlook.verdict.admitted()), "{outlook:?}");
        }
        if let Some(plan) = decisions.plan {
            assert!(scan.mover_has_room);
            assert!(plan.node < NodeId::new(NODES) && plan.to.index() < SITES);
            assert_ne!(plan.from(), Some(plan.to));
        }
    }
});
