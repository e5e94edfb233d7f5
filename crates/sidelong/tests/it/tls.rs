//! What the program says of certificates.

use sidelong_config::Tls;
use sidelong_testing::certificates::certificate;

use crate::support::{Cluster, run};

#[test]
fn a_file_whose_certificates_cannot_be_used_is_found_by_its_check() {
    let mut cluster = Cluster::new(&[("alpha", 1)]);
    let (Some(one), Some(other)) = (certificate(&cluster, "one"), certificate(&cluster, "other")) else {
        return;
    };
    cluster.file.edges[0].tls = vec![Tls { key: other.key, ..one }];
    let check = run(["config", "check", cluster.config().to_str().unwrap()]).refused();
    assert_eq!(check, cluster.part("edge", "edge1").finish().refused());
    cluster.file.edges[0].tls = vec![certificate(&cluster, "own").unwrap()];
    cluster.file.edges[0].client_ca = Some(cluster.path("nobody.pem"));
    let line = run(["config", "check", cluster.config().to_str().unwrap()]).refused();
    assert!(line.contains("client_ca") && line.contains("nobody.pem"), "{line}");
}

#[test]
fn up_says_that_its_load_does_not_speak_tls() {
    let mut cluster = Cluster::new(&[("alpha", 1)]).with_load(10, Some(10));
    cluster.file.edges[1].tls = vec![Tls { certificate: cluster.path("a.pem"), key: cluster.path("a.key") }];
    let line = cluster.up(&["--json"]).finish().refused();
    assert!(line.contains("edge edge2 has tls") && line.contains("remove [workload]"), "{line}");
}
