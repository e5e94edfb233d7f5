//! What the program says of servers that listen at Unix sockets.

use std::time::Duration;

use sidelong_config::Scheme;

use crate::support::foreign::{answers, at_sockets, by_agent, by_edge, foreign, server};
use crate::support::servers::{Load, gunicorn};
use crate::support::{eventually, skipped, try_get};

/// Its worker serves a connection, and the others wait to be accepted. Where the kernel keeps the record because the file says so, it
/// has no connections, and the agent says why.
#[test]
fn a_record_has_the_connections_at_a_unix_socket_and_its_queue() {
    for scheme in [Scheme::Auto, Scheme::SocketSync, Scheme::RdmaSync] {
        let mut cluster = at_sockets(foreign(&[("alpha", 1)]));
        cluster.file.set_scheme(scheme);
        cluster.file.nodes[0].workers = Some(1);
        let Some(_server) = gunicorn(&cluster, "one", server(&cluster, 0), 1) else { return };
        let mut agent = cluster.part("node", "n1");
        let is_up = || try_get(cluster.node_admin(0), "any", "/healthz").is_ok();
        eventually("the agent is up or refused", || !agent.is_running() || is_up());
        if !agent.is_running() {
            skipped(&format!("kernel: {}", agent.finish().refused()));
            continue;
        }
        let _edge = cluster.part("edge", "edge1");
        answers(&cluster, "alpha", "one");
        let load = Load::start(cluster.edge(0), "alpha.test", Duration::from_millis(400), 8);
        for told in [by_agent, by_edge] {
            if scheme == Scheme::RdmaSync {
                eventually("the record is read", || told(&cluster, "run_queue_threads").is_some());
                assert_eq!(
                    (told(&cluster, "open_connections"), told(&cluster, "busy_workers")),
                    (None, None)
                );
                let said = "rdma-sync counts connections by port: the record of n1 has none";
                assert!(agent.err().contains(said), "{}", agent.err());
                continue;
            }
            eventually("eight connections", || {
                told(&cluster, "open_connections").is_some_and(|open| open >= 7.0)
            });
            eventually("seven wait", || {
                told(&cluster, "queued_requests").is_some_and(|queued| queued >= 6.0)
            });
            eventually("its worker is busy", || told(&cluster, "busy_workers") == Some(1.0));
        }
        drop(load);
        if scheme != Scheme::RdmaSync {
            for figure in ["open_connections", "queued_requests"] {
                eventually("nobody is there", || {
                    by_agent(&cluster, figure) == Some(0.0) && by_edge(&cluster, figure) == Some(0.0)
                });
            }
        }
        agent.end().succeeded();
    }
}
