//! What the program says of servers that speak HTTP/2.

use crate::support::servers::{nginx, nginx_over_http2};
use crate::support::{Cluster, Running, eventually, run, try_get};

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

#[test]
fn a_file_is_written_for_servers_that_speak_http_2() {
    let mut cluster = Cluster::new(&[("alpha", 2)]).foreign();
    cluster.file.edges.truncate(1);
    let files = cluster.path("files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("index.html"), "two").unwrap();
    let Some(_one) = nginx(&cluster, "one", cluster.node(0)) else { return };
    let Some(_two) = nginx_over_http2(&cluster, cluster.node(1), &files) else { return };
    let file = cluster.path("sidelong.toml");
    let mut init = vec!["init".to_owned(), "--config".into(), file.display().to_string()];
    init.extend(["--host".into(), "alpha.test".into(), "--listen".into(), cluster.edge(0).to_string()]);
    init.extend([0, 1].into_iter().flat_map(|node| ["--server".into(), cluster.node(node).to_string()]));
    let said = run(init).succeeded();
    let lines: Vec<_> = said.lines().map(|line| line.contains("speaks HTTP/2 in clear text")).collect();
    assert_eq!(lines[..2], [false, true], "{said}");
    let up = Running::start(["up", "--plain", "--config", file.to_str().unwrap()]);
    for body in ["one", "two"] {
        let answers = || try_get(cluster.edge(0), "alpha.test", "/").is_ok_and(|reply| reply.body == body);
        eventually(body, answers);
    }
    eventually("it says that it is up", || up.err().contains(" is up: "));
    up.end().succeeded();
}
