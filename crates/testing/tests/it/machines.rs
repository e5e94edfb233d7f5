//! A cluster of several machines, in each way in which its parts may reach each other.

use sidelong_app::Event;
use sidelong_config::{Fabric, MovedBy, Scheme};

use sidelong_testing::machines::{FABRIC, Machines};
use sidelong_testing::{Here, eventually, get, metrics};

fn reads_routes_and_moves(change: impl FnOnce(&mut Machines)) {
    let mut machines = Machines::three();
    change(&mut machines);
    let names = ["n1", "n2", "n3"];
    let nodes = names.map(|name| machines.here("node", name));
    let edge = machines.here("edge", "edge1");
    edge.await_event(|event| *event == Event::Ready);
    eventually("both sites answer", || machines.answers("alpha") && machines.answers("beta"));
    machines.await_move();
    assert_eq!(get(machines.cluster.edge(0), "alpha.test", "/o/1/10").status, 200);
    let refused = metrics(machines.cluster.admin(0));
    let refused = refused.iter().filter(|(name, _)| name.contains("control_refused"));
    assert!(refused.clone().count() == 6 && refused.clone().all(|(_, count)| *count == 0.0), "{refused:?}");
    edge.end();
    nodes.into_iter().for_each(Here::end);
    machines.assert_nothing_told(&names);
}

#[test]
fn auto_takes_what_reaches_other_machines() {
    reads_routes_and_moves(|machines| machines.cluster.file.cluster.fabric = Fabric::Auto);
}

#[test]
fn nodes_of_several_machines_may_move_themselves() {
    reads_routes_and_moves(|machines| {
        machines.cluster.file.baseline.by = MovedBy::Server;
        machines.cluster.file.edges[0].fabric_listen = Some(machines.others[1].at(FABRIC + 3));
    });
}

#[test]
fn load_may_be_asked_for_over_sockets_of_other_machines() {
    reads_routes_and_moves(|machines| machines.cluster.file.set_scheme(Scheme::SocketAsync));
}
