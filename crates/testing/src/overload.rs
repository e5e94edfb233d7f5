//! Clusters whose clients ask for more than can be served in time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sidelong_config::Configuration;

use crate::{Client, Cluster, SetOnDrop};

/// Clients that send requests all the time, each on its own connection: many more than can be served in time. 28 of them wait at a
/// node, for 280 ms.
pub const CLIENTS: usize = 30;
/// Service time of a request. A node has two workers, so it serves 100 requests a second.
pub const SERVICE: Duration = Duration::from_millis(20);

/// Sites of one node each that does not move, behind two edges. The first site has a queue target of 100 ms: ten requests may wait. The
/// others have no target.
pub fn cluster(sites: &[&str]) -> Cluster {
    let sites: Vec<_> = sites.iter().map(|site| (*site, 1)).collect();
    let mut cluster = Cluster::new(&sites).with_service(SERVICE);
    cluster.file.baseline.configuration = Configuration::Rigid;
    cluster.file.sites[0].queue_max = Some(Duration::from_millis(100));
    cluster
}

/// While `work` runs, [`CLIENTS`] clients send requests for alpha to the first edge, and reconnect if they lose it.
pub fn while_asked(cluster: &Cluster, work: impl FnOnce()) {
    let over = AtomicBool::new(false);
    let ask = || {
        let mut client = None;
        while !over.load(Ordering::Relaxed) {
            let connected = client.take().map_or_else(|| Client::try_connect(cluster.edge(0)), Ok);
            client = connected.ok().and_then(|mut client| {
                let reply = client.ask("GET", "alpha.test", "/o/1/100").ok()?;
                (reply.status == 200).then_some(client)
            });
            if client.is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    };
    std::thread::scope(|scope| {
        let _ends_them = SetOnDrop(&over);
        (0..CLIENTS).for_each(|_| drop(scope.spawn(ask)));
        work();
    });
}
