//! Nodes whose servers have a port for each site, in several control groups.

use sidelong_config::Serves;

use crate::support::foreign::foreign;
use crate::support::servers::{ControlGroup, gunicorn};
use crate::support::{eventually, skipped, try_get};

#[test]
fn servers_in_several_control_groups_have_the_machines_load() {
    let mut cluster = foreign(&[("alpha", 1), ("beta", 1)]);
    let [alpha, beta] = [5301, 5302].map(|port| cluster.at(port));
    cluster.file.nodes[0].server = Some(cluster.at(0).into());
    let ports =
        [("alpha", alpha), ("beta", beta)].map(|(site, at)| (site.to_owned(), Serves::Port(at.port())));
    cluster.file.nodes[0].serves = ports.into();
    let Some(one) = gunicorn(&cluster, "one", alpha, 1) else { return };
    // It says so as it starts, when a signal would still end it at once.
    let is_up = || eventually("it is up", || try_get(cluster.node_admin(0), "any", "/healthz").is_ok());
    let agent = cluster.part("node", "n1");
    eventually("it says who does not listen", || agent.err().contains(&format!("nobody listens at {beta}")));
    is_up();
    agent.end().succeeded();
    let Some(two) = gunicorn(&cluster, "two", beta, 1) else { return };
    let group = match ControlGroup::of("serves", &[one.pid()]) {
        Ok(group) => group,
        Err(error) => return skipped(&format!("servers: no control group can be made here: {error}")),
    };
    let agent = cluster.part("node", "n1");
    let said = "the load of n1 is that of this machine, because its servers are in several control groups";
    eventually("it says so", || agent.err().contains(said));
    is_up();
    agent.end().succeeded();
    [one, two].into_iter().for_each(|server| _ = server.end());
    drop(group);
}
