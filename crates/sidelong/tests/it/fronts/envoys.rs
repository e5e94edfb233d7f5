//! What is asked of Envoy alone.

use super::*;

/// Envoy has its endpoints from the front's files. The operator changes the cluster file alone.
#[test]
fn a_node_that_joins_needs_no_reload_of_envoy() {
    let adds = |cluster: &mut Cluster| {
        by_hand(cluster);
        cluster.file.fronts[0].add_servers = Some("eds".into());
    };
    let Some(mut controlled) = Controlled::start(Kind::Envoy, adds) else { return };
    let watched = controlled.watch();
    let reload = |controlled: &Controlled| {
        controlled.cluster.config();
        until_it_succeeds(|| run(["reload", "--wait", "--config", &controlled.config()]))
    };
    let address = controlled.cluster.at(5004);
    let Some(_server) = gunicorn(&controlled.cluster, "four", address, 4) else { return };
    let fourth = NodeEntry { workers: Some(4), ..NodeEntry::foreign("n4", 1, address) };
    let entry = &controlled.cluster.file.fronts[0];
    let place = entry.dir.clone().unwrap_or_else(|| controlled.cluster.run_dir());
    let endpoints = |site: &str| {
        let path = place.join(format!("web1.{site}.eds.json"));
        std::fs::read_to_string(path).unwrap().matches("socket_address").count()
    };
    assert_eq!([endpoints("alpha"), endpoints("beta")], [3, 3]);
    for _ in 0..2 {
        controlled.cluster.file.nodes.push(fourth.clone());
        reload(&controlled);
        assert_eq!([endpoints("alpha"), endpoints("beta")], [4, 4]);
        let agent = controlled.cluster.part("node", "n4");
        until_it_succeeds(|| run(["move", "n4", "beta", "--config", &controlled.config()]));
        let had = requests_at(&controlled.cluster, "four");
        eventually("it gets requests", || requests_at(&controlled.cluster, "four") > had);
        watched.go_on();
        controlled.cluster.file.nodes.pop();
        reload(&controlled);
        assert_eq!([endpoints("alpha"), endpoints("beta")], [3, 3]);
        let had = requests_at(&controlled.cluster, "four");
        (0..4).for_each(|_| watched.go_on());
        assert_eq!(requests_at(&controlled.cluster, "four"), had, "it has left");
        assert_eq!(agent.finish().code, Some(0));
    }
    watched.end();
    controlled.end();
}

/// Envoy with the lines that `sidelong front config` prints, where one word is replaced by a wrong one.
fn envoy_with(cluster: &Cluster, (right, wrong): (&str, &str), module: &Path) -> Command {
    let command = proxy(cluster, Kind::Envoy, cluster.at(PROXY), module);
    let file = cluster.path("proxy/proxy.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(right), "{text}");
    std::fs::write(&file, text.replace(right, wrong)).unwrap();
    command
}

#[test]
fn envoy_refuses_a_wrong_configuration() {
    let mut cluster = Cluster::new(&[("alpha", 1)]).foreign();
    cluster.file.fronts.push(FrontEntry::new("web1", Proxy::Envoy));
    let Some(module) = module(Kind::Envoy) else { return };
    for (right, wrong, said) in [
        ("/web1 alpha\"", "/web1\"", "it must be a StringValue with the prefix of the front"),
        ("filter_name: request", "filter_name: requests", "it must be \"request\" in a cluster"),
        ("lb_policy_config", "# ", "the configuration of the load-balancing policy is \"\""),
    ] {
        let mut envoy = envoy_with(&cluster, (right, wrong), &module);
        envoy.args(["--mode", "validate"]);
        let done = Running::start_command(envoy).finish();
        assert!(done.code != Some(0) && done.err.contains(said), "{done:?}");
    }
}

/// Nobody would see the requests end.
#[test]
fn a_cluster_of_envoy_without_the_filter_gets_no_requests() {
    let Some(mut controlled) = Controlled::start(Kind::Envoy, by_hand) else { return };
    controlled.proxy.take().unwrap().end();
    let mistake = ("filter_name: request", "filter_name: admission");
    controlled.proxy =
        Some(Running::start_command(envoy_with(&controlled.cluster, mistake, &controlled.module)));
    eventually("requests are rejected", || {
        try_get(controlled.address(), "beta.test", "/0").is_ok_and(|reply| reply.status == 503)
    });
    let said = controlled.proxy.take().unwrap().end().err;
    assert!(said.contains("has no filter \"request\""), "{said}");
}
