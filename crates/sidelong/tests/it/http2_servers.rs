//! What the program says of servers that speak HTTP/2.

use crate::support::servers::{nginx, nginx_over_http2};
use crate::support::{Cluster, eventually, try_get};

/// One speaks HTTP/1 and one HTTP/2, and the file says the opposite of each.
#[test]
fn a_server_that_speaks_another_version_than_the_file_says_is_named_in_the_log() {
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]).foreign();
    cluster.file.edges.truncate(1);
    cluster.file.nodes[0].http2 = true;
    let Some(_one) = nginx(&cluster, "one", cluster.node(0)) else { return };
    let Some(_two) = nginx_over_http2(&cluster, cluster.node(1), &cluster.path("files")) else { return };
    let _agents = [cluster.part("node", "n1"), cluster.part("node", "n2")];
    let edge = cluster.part("edge", "edge1");
    for (site, said) in [("alpha", "remove http2 = true"), ("beta", "add http2 = true")] {
        let asked = || try_get(cluster.edge(0), &format!("{site}.test"), "/").is_ok();
        eventually(said, || asked() && edge.err().contains(said));
    }
    assert_eq!(edge.err().matches("answered something else").count(), 2, "{}", edge.err());
}
