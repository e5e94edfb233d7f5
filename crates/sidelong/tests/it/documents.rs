//! What the program shows of documents, and documents of nodes that hang or die.

use rustix::process::Signal;
use sidelong_testing::documents::Site;

use crate::support::{Terminal, eventually, skipped, try_get};

#[test]
fn what_edges_answer_from_memory_is_shown() {
    let site = Site::new(3600);
    let parts = site.cluster.serving_here();
    site.await_memory(0, "/page.html");
    let status = site.cluster.run(&["status", "--json"]).json();
    let [first, second] = [0, 1].map(|edge| &status["edges"][edge]["documents"]);
    assert!(first["memory"].as_u64() > Some(0) && first["memory_bytes"].as_u64() > Some(10), "{status}");
    assert_eq!((first["server"].as_u64() > Some(0), second["memory"].as_u64()), (true, Some(0)), "{status}");
    let top = site.cluster.run(&["top", "--once", "--json"]).json();
    assert!(top["documents"]["memory_total"].as_u64() >= first["memory"].as_u64(), "{top}");
    let plain = site.cluster.run(&["status"]).succeeded();
    assert!(plain.contains("from memory") && plain.contains("failed reads"), "{plain}");
    drop(parts);

    let config = site.cluster.config();
    let arguments = ["up", "--config", config.to_str().unwrap()];
    let Some(mut page) = Terminal::start(&arguments, 40, 118, &[]) else {
        return skipped("no pseudo-terminal");
    };
    page.sees("the edges, with where their answers come from", |text| {
        let row = text.lines().find(|line| line.contains("│edge1 ")).unwrap_or_default();
        // Nobody asks the edge while it begins.
        _ = try_get(site.cluster.edge(0), "www.test", "/page.html");
        text.contains(" documents ") && row.contains(" 100.0 ")
    });
    page.press("q");
    assert_eq!(page.finish(), 0);
}

#[test]
fn a_home_that_hangs_or_dies_is_read_on_and_one_that_is_back_keeps_documents_anew() {
    let site = Site::new(3600);
    let _up = site.cluster.serving(&["--json"]);
    let home = site.home("/page.html");
    let node = site.cluster.find("node", &home);
    node.signal(Signal::STOP);
    for _ in 0..20 {
        let reply = site.get("/page.html");
        assert_eq!((reply.body.as_str(), reply.node()), ("0123456789", &*home), "it hangs");
        assert!(reply.header("age").is_some());
    }
    node.signal(Signal::CONT);
    node.kill();
    // In the memory that it has left, from another node's, or asked for anew: the same.
    eventually("it is back", || {
        assert_eq!(site.get("/page.html").body, "0123456789");
        site.cluster.parts().iter().any(|part| part.name == home && part.pid() != node.pid())
    });
    eventually("it keeps documents again", || {
        site.get("/page.html").body == "0123456789" && site.await_memory(0, "/page.html").node() == home
    });
}
