//! Why a part does not start: the one line that the program prints, with the error and its place.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use sidelong_config::{Fabric, Scheme};

use sidelong_testing::Cluster;

/// The line of a part that does not start.
fn refused(cluster: &Cluster, kind: &str, name: &str) -> String {
    cluster.try_here(kind, name).err().unwrap_or_else(|| panic!("{kind} {name} starts"))
}

#[test]
fn a_port_in_use_of_the_fabric_is_named() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    let address = cluster.at(6001);
    cluster.file.cluster.fabric = Fabric::Tcp;
    cluster.file.nodes[0].fabric_listen = Some(address);
    let _taken = TcpListener::bind(address).unwrap();
    let line = refused(&cluster, "node", "n1");
    assert!(line.contains(&format!("cannot listen on {address}: ")), "{line}");
}

#[test]
fn a_run_directory_that_cannot_be_had_is_named() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    let (file, open) = (cluster.path("file"), cluster.path("open"));
    fs::write(&file, "no directory").unwrap();
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    for (directory, reason) in [(file.join("run"), "Not a directory"), (open, "others may write in it")] {
        cluster.file.cluster.run_dir = Some(directory.clone());
        for (kind, name) in [("node", "n1"), ("edge", "edge1")] {
            let line = refused(&cluster, kind, name);
            let place = format!("run directory {}: ", directory.display());
            assert!(line.starts_with(&place) && line.contains(reason), "{line}");
        }
    }
}

#[test]
fn a_scheme_that_cannot_be_had_is_refused_with_the_reason() {
    // Two nodes on one machine, which the kernel cannot tell apart.
    let mut cluster = Cluster::new(&[("alpha", 2)]);
    for (scheme, name) in [(Scheme::RdmaSync, "rdma-sync"), (Scheme::ERdmaSync, "e-rdma-sync")] {
        cluster.file.set_scheme(scheme);
        let line = refused(&cluster, "node", "n1");
        assert!(line.starts_with(name) && line.contains("n1 shares its machine"), "{line}");
        assert!(line.contains("cgroup") && line.ends_with("use rdma-async, or auto"), "{line}");
    }
}

#[test]
fn an_access_log_that_cannot_be_written_is_named() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    cluster.file.edges[0].access_log = Some("/nowhere/access.log".into());
    let line = refused(&cluster, "edge", "edge1");
    assert!(line.starts_with("edge edge1: cannot open access log /nowhere/access.log: "), "{line}");
}

#[test]
fn a_part_that_the_file_does_not_have_is_refused_with_those_it_has() {
    let cluster = Cluster::new(&[("alpha", 2)]);
    let line = refused(&cluster, "node", "n3");
    assert!(line.contains("no node \"n3\"") && line.contains("n1, n2"), "{line}");
    let line = refused(&cluster, "edge", "n1");
    assert!(line.contains("no edge \"n1\"") && line.contains("edge1, edge2"), "{line}");
}
