//! Whom an edge lets in: what `edge::gate` is to a live one, around the same controller and the same decision.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sidelong_policy::SettingsError;
use sidelong_policy::admission::{
    Answers, BUCKETS, Census, Client, Controller, Settings, Snapshot, Traffic, Treatment, Verdict, decide,
};
use sidelong_policy::reconfigure::{NodeView, SiteView, Standing};

use crate::Time;
use crate::datacenter::Setup;

pub(super) struct Gate {
    controller: Controller,
    verdicts: Vec<Verdict>,
    answers: Vec<Answers>,
    traffic: Vec<Traffic>,
    /// The model's balancers do not hear each other.
    others: Vec<Option<f64>>,
    census: Census,
    counted: Time,
    asked: Vec<u32>,
    treatments: Vec<Treatment>,
    rotation: Duration,
}

impl Gate {
    /// None where everybody is let in.
    pub(super) fn new(setup: &Setup) -> Result<Option<Gate>, SettingsError> {
        let Some((settings, promise)) = setup.admission else { return Ok(None) };
        let Settings { rotation, .. } = settings;
        Ok(Some(Gate {
            controller: Controller::new(settings, vec![promise; setup.sites], setup.nodes.len())?,
            verdicts: vec![Verdict::default(); setup.sites],
            answers: vec![Answers::default(); setup.sites],
            traffic: vec![Traffic::default(); setup.nodes.len()],
            others: vec![None; setup.sites],
            census: Census::default(),
            counted: Time::default(),
            asked: vec![0; BUCKETS],
            treatments: vec![Treatment::default(); BUCKETS],
            rotation,
        }))
    }

    /// One look.
    pub(super) fn look(&mut self, nodes: &[NodeView], sites: &[SiteView], now: Time) {
        if now.since(self.counted) >= Census::EVERY {
            self.counted = now;
            let (asked, treatments) = (&self.asked, &mut self.treatments);
            self.census.count(|bucket| asked[bucket], |bucket, treatment| treatments[bucket] = treatment);
        }
        for (traffic, node) in self.traffic.iter_mut().zip(nodes) {
            *traffic = Traffic { in_flight: node.in_flight, up: node.up, ..*traffic };
        }
        let Gate { controller, verdicts, traffic, answers, others, .. } = self;
        // The model's time of day is its own.
        let snapshot = Snapshot { nodes, sites, traffic, answers, others, wall_ns: now.as_ns() };
        let outlooks = controller.step(&snapshot, now);
        verdicts.iter_mut().zip(outlooks).for_each(|(verdict, outlook)| *verdict = outlook.verdict);
    }

    /// How the promises stood at that look.
    pub(super) fn standings(&self) -> impl Iterator<Item = Standing> + '_ {
        self.controller.standings()
    }

    /// Whether a request of a client is let in.
    pub(super) fn lets_in(&mut self, site: usize, client: u32, now: Time) -> bool {
        let client = Client::new(address(client));
        let bucket = client.bucket();
        self.asked[bucket] = self.asked[bucket].wrapping_add(1);
        decide(self.verdicts[site], self.treatments[bucket], client, now.as_ns(), self.rotation).is_ok()
    }
}

/// Each client has an address of its own.
fn address(client: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from_bits(client), 0))
}
