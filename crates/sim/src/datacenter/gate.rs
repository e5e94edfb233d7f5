//! An edge's admission: the model's `edge::gate`, with the same decision for each request.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use sidelong_policy::admission::{BUCKETS, Census, Client, Outlook, Treatment, Verdict, decide};

use crate::Time;
use crate::datacenter::Setup;

pub(super) struct Gate {
    verdicts: Vec<Verdict>,
    census: Census,
    asked: Vec<u32>,
    treatments: Vec<Treatment>,
    rotation: Duration,
}

impl Gate {
    /// `None` if all requests are admitted.
    pub(super) fn new(setup: &Setup) -> Option<Gate> {
        setup.admission.map(|(settings, _)| Gate {
            verdicts: vec![Verdict::default(); setup.sites],
            census: Census::default(),
            asked: vec![0; BUCKETS],
            treatments: vec![Treatment::default(); BUCKETS],
            rotation: settings.rotation,
        })
    }

    /// Takes the outlooks.
    pub(super) fn show(&mut self, outlooks: &[Outlook], now: Time) {
        self.verdicts.iter_mut().zip(outlooks).for_each(|(verdict, outlook)| *verdict = outlook.verdict);
        let (asked, treatments) = (&self.asked, &mut self.treatments);
        self.census.count(now, |bucket| asked[bucket], |bucket, treatment| treatments[bucket] = treatment);
    }

    /// Whether a request of a client is admitted.
    pub(super) fn lets_in(&mut self, site: usize, client: u32, now: Time) -> bool {
        let client = Client::new(address(client));
        let bucket = client.bucket();
        self.asked[bucket] = self.asked[bucket].wrapping_add(1);
        decide(self.verdicts[site], self.treatments[bucket], client, now.as_ns(), self.rotation).is_ok()
    }
}

/// Each client has its own address.
fn address(client: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from_bits(client), 0))
}
