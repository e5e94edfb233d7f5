//! Memory use of a simulation, counted at the allocator.

use std::path::Path;
use std::sync::Arc;

use sidelong_sim::cluster::Cluster;
use sidelong_sim::config::Config;

/// Most bytes for each object that a node holds or has a reference to.
const ENTRY_BYTES_MAX: f64 = 64.0;
/// Bytes of an empty node, and of the cluster of any size: queue, histogram, requests in flight.
const NODE_BYTES: f64 = 4_096.0;
const CLUSTER_BYTES: f64 = 400_000.0;

#[test]
fn an_object_takes_64_bytes_on_a_node_that_has_it() {
    for sets in [
        "nodes=16 protocol=lazy objects=20000 memory_mb=64",
        "nodes=64 protocol=sender objects=3000 memory_mb=16",
        "nodes=64 protocol=ledger objects=9000 memory_mb=512 clients_per_node=2",
        "nodes=256 protocol=rpc objects=5000 memory_mb=64",
        "nodes=32 protocol=lazy objects=40000 memory_mb=32 eviction=sieve",
    ] {
        let sets: Vec<_> = format!("requests=150000 {sets}").split(' ').map(str::to_owned).collect();
        let point = Config::parse("", "memory", Path::new(""), &sets).unwrap().points().remove(0);
        let setup = point.setup(Arc::new(point.requests().unwrap())).unwrap();
        let nodes = f64::from(setup.nodes);
        let mut entries = 0;
        let counted = allocation_counter::measure(|| entries = Cluster::run(setup).table_entries);
        let each = (counted.bytes_max as f64 - CLUSTER_BYTES - nodes * NODE_BYTES) / entries as f64;
        assert!(
            entries > 20_000 && each <= ENTRY_BYTES_MAX,
            "{sets:?}: {entries} entries, {each:.1} bytes each"
        );
        // Shows that the measurement works.
        assert!(each > 24.0, "{sets:?}: {each:.1} bytes each");
    }
}
