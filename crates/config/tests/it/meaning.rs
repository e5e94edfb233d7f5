//! What a cluster file means, and that it is written as it is read.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use sidelong_config::{
    ClusterFile, Configuration, ControlledBy, Drain, Error, Fabric, NodeEntry, Ready, Secret, SecretText,
    Service, Target, Tls, Workload, WorkloadKind, default_run_dir,
};
use sidelong_policy::admission::Request;

#[test]
fn the_demo_is_the_cluster_of_the_readme() {
    let file = ClusterFile::demo();
    let cluster = file.cluster().unwrap();
    let sites: Vec<_> = cluster.sites.values().map(|site| (site.hosts[0].as_str(), site.nodes)).collect();
    assert_eq!(sites, [("alpha.example", 3), ("beta.example", 3), ("gamma.example", 2)]);
    let owners: Vec<_> = cluster.nodes.values().map(|node| node.site.unwrap()).collect();
    assert_eq!(owners, [0, 0, 0, 1, 1, 1, 2, 2]);
    let last = cluster.nodes.values().last().unwrap();
    assert_eq!((last.name.as_str(), last.port().unwrap().port()), ("n8", 7108));
    assert_eq!(last.admin.unwrap().port(), 7308);
    assert_eq!(cluster.sites[0].ceiling, 8);
    assert_eq!(cluster.edges.len(), 2);
    assert_eq!(cluster.edges[1].admin.unwrap().port(), 9082);
    let workload = cluster.workload.unwrap();
    assert_eq!((workload.kind, workload.burst), (WorkloadKind::Trace, 2048));
    assert_eq!(cluster.run_dir, default_run_dir("demo"));
}

#[test]
fn the_example_and_the_demo_name_the_defaults() {
    let bare = ClusterFile::parse(
        "[[site]]\nname=\"a\"\nhosts=[\"a\"]\n[[node]]\nname=\"n\"\nlisten=\"127.0.0.1:1\"\n[[edge]]\nname=\"e\"\n\
         listen=\"127.0.0.1:2\"\n[workload]\n",
        "bare",
    )
    .unwrap();
    let mut example = ClusterFile::parse(ClusterFile::example_text(), "example.toml").unwrap();
    let workload = Workload { burst: 2048, ..bare.workload.clone().unwrap() };
    (example.sites, example.nodes) = (bare.sites.clone(), bare.nodes.clone());
    (example.edges, example.workload) = (bare.edges.clone(), bare.workload.clone());
    example.cluster.name = bare.cluster.name.clone();
    assert_eq!(example, bare);
    let demo = ClusterFile::demo();
    assert_eq!(demo.workload, Some(workload));
    let node = |node: &NodeEntry| (node.workers(), node.service_time(), node.queue_depth_max());
    assert_eq!(node(&demo.nodes[0]), node(&bare.nodes[0]));
}

#[test]
fn the_keys_that_are_commented_out_are_known() {
    for text in [ClusterFile::demo_text(), ClusterFile::example_text()] {
        let uncommented: String = text
            .lines()
            .map(|line| {
                let is_toml = |rest: &&str| rest.starts_with('[') || rest.split(' ').nth(1) == Some("=");
                let bare = line.strip_prefix("# ").filter(is_toml);
                format!("{}\n", bare.unwrap_or(line))
            })
            .collect();
        let error = ClusterFile::parse(&uncommented, "uncommented").unwrap_err();
        assert!(matches!(error, Error::Check { .. }), "only values may clash: {error}");
    }
}

#[test]
fn the_demo_is_written_as_it_is_read() {
    let demo = ClusterFile::demo();
    let text = demo.to_toml().unwrap();
    assert_eq!(ClusterFile::parse(&text, "written").unwrap(), demo);
}

#[test]
fn machines_are_several_where_there_is_a_secret() {
    let mut file = ClusterFile::demo();
    assert_eq!(file.cluster().unwrap().secret, None);
    file.cluster.secret_file = Some("s".into());
    file.nodes[0].fabric_listen = Some("10.0.0.1:7000".parse().unwrap());
    let refused = file.cluster().unwrap_err().to_string();
    assert!(refused.contains("edge \"edge1\" has no control endpoint"), "{refused}");
    for (edge, address) in file.edges.iter_mut().zip(["10.0.0.1:7100", "10.0.0.2:7100"]) {
        edge.fabric_listen = Some(address.parse().unwrap());
    }
    let cluster = file.cluster().unwrap();
    assert_eq!(cluster.secret, Some(Secret::File("s".into())));
    assert_eq!(cluster.nodes[7].fabric_listen.port(), 7007);
    file.edges[0].fabric_listen = Some("10.0.0.1:0".parse().unwrap());
    let refused = file.cluster().unwrap_err().to_string();
    assert!(refused.contains("edge \"edge1\" has its control endpoint at 10.0.0.1:0"), "{refused}");
    file.edges[0].fabric_listen = Some("10.0.0.1:7000".parse().unwrap());
    assert!(file.cluster().unwrap_err().to_string().contains("10.0.0.1:7000"), "a node has it");
    file.edges[0].fabric_listen = Some("10.0.0.1:7100".parse().unwrap());
    file.cluster().unwrap();
    (file.cluster.secret_file, file.cluster.secret) = (None, Some(SecretText::new("sixteen bytes it")));
    let read = ClusterFile::parse(&file.to_toml().unwrap(), "written").unwrap();
    assert_eq!(read.cluster().unwrap().secret, file.cluster.secret.map(Secret::Text));
}

#[test]
fn a_secret_is_in_a_file_that_others_do_not_read() {
    use std::os::unix::fs::PermissionsExt as _;

    let mut file = ClusterFile::demo();
    file.cluster.secret = Some(SecretText::new("sixteen bytes it"));
    file.nodes[0].fabric_listen = Some("10.0.0.1:7000".parse().unwrap());
    file.edges.truncate(1);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cluster.toml");
    std::fs::write(&path, file.to_toml().unwrap()).unwrap();
    for (mode, usable) in [(0o644, false), (0o620, false), (0o600, true)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let read = ClusterFile::load(&path).map_err(|error| error.to_string());
        assert_eq!(read.is_ok(), usable, "{read:?}");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let error = ClusterFile::load(&path).unwrap_err().to_string();
    let line = file.to_toml().unwrap().lines().position(|line| line.starts_with("secret = ")).unwrap() + 1;
    let expected = format!("{}:{line}: a secret in a file that other users can read", path.display());
    assert!(
        error.starts_with(&expected) && error.contains("mode 640") && !error.contains("sixteen"),
        "{error}"
    );
}

#[test]
fn over_provisioning_gives_every_site_the_most_that_it_could_get() {
    let mut file = ClusterFile::demo();
    file.baseline.configuration = Configuration::OverProvisioned;
    let cluster = file.cluster().unwrap();
    assert_eq!(cluster.sites.values().map(|site| site.nodes).collect::<Vec<_>>(), [6, 6, 6]);
    assert_eq!(cluster.nodes.len(), 18);
    let last = cluster.nodes.values().last().unwrap();
    assert_eq!((last.name.as_str(), last.port().unwrap().port(), last.site), ("n18", 7118, Some(2)));

    let mut fourth = file.sites[2].clone();
    fourth.name = "delta".into();
    fourth.hosts = vec!["delta.example".into()];
    file.sites.push(fourth);
    file.sites.iter_mut().for_each(|site| site.nodes = 2);
    let cluster = file.cluster().unwrap();
    assert_eq!(cluster.nodes.len(), 20);
    assert!(cluster.sites.values().all(|site| site.nodes == 5));

    file.sites[0].ceiling = Some(3);
    file.sites[1].floor = 2;
    let cluster = file.cluster().unwrap();
    assert_eq!(cluster.sites.values().map(|site| site.nodes).collect::<Vec<_>>(), [3, 5, 4, 4]);
}

#[test]
fn what_the_sites_leave_has_no_site() {
    let mut file = ClusterFile::demo();
    file.sites.iter_mut().for_each(|site| site.nodes = 1);
    let cluster = file.cluster().unwrap();
    assert_eq!(cluster.nodes.values().filter(|node| node.site.is_none()).count(), 5);
}

#[test]
fn entries_of_one_keep_their_name() {
    let mut file = ClusterFile::demo();
    let mut one = file.nodes[0].clone();
    one.name = "big".into();
    one.count = 1;
    one.listen = Some("127.0.0.1:7200".parse().unwrap());
    one.fabric_listen = Some("127.0.0.1:7500".parse().unwrap());
    one.admin = Some("127.0.0.1:7400".parse().unwrap());
    file.nodes.push(one);
    file.baseline.configuration = Configuration::OverProvisioned;
    let cluster = file.cluster().unwrap();
    let named: Vec<_> = cluster.nodes.values().map(|node| node.name.as_str()).collect();
    assert_eq!(&named[7..11], ["n8", "big", "big2", "big3"]);
    assert_eq!(cluster.nodes[9].fabric_listen.port(), 7501);
    assert_eq!(cluster.nodes[9].admin.unwrap().port(), 7401);
    assert_eq!(cluster.nodes[0].fabric_listen.to_string(), "127.0.0.1:0");
}

fn bid() -> Request<'static> {
    Request { method: "POST", target: "/items/17/bids" }
}

#[test]
fn a_site_is_promised_what_its_entry_says() {
    let mut file = ClusterFile::demo();
    let cluster = file.cluster().unwrap();
    assert!(cluster.sites.values().all(|site| site.target.is_none() && site.share == 0.0));
    assert!(!cluster.has_admission());
    file.baseline.threshold = Some(1.0);
    assert!(file.cluster().unwrap().has_admission());
    file.baseline.threshold = None;
    file.sites[0].response_p99 = Some(Duration::from_millis(50));
    file.sites[1].queue_max = Some(Duration::from_micros(2_500));
    file.sites[1].share = 0.25;
    file.sites[1].rejected_last = vec!["POST /".into(), "/items/*/bid".into()];
    file.sites[1].visit = Some(Duration::from_millis(90_500));
    file.admission.rotation = Duration::from_millis(1_500);
    let read = ClusterFile::parse(&file.to_toml().unwrap(), "written").unwrap();
    assert_eq!(read, file);
    assert!(read.cluster().unwrap().has_admission());
    let sites = read.cluster().unwrap().sites;
    assert_eq!(sites[0].target, Some(Target::ResponseP99(Duration::from_millis(50))));
    assert_eq!((sites[1].target, sites[1].share), (Some(Target::Queue(Duration::from_micros(2_500))), 0.25));
    let last: Vec<_> = sites[1].rejected_last.iter().map(|requests| requests.contain(bid())).collect();
    assert_eq!((last, sites[1].visit), (vec![true, false], Some(Duration::from_millis(90_500))));
    assert!(sites[0].rejected_last.is_empty() && sites[0].visit.is_none());
}

#[test]
fn each_proxy_is_led_by_choice_and_haproxy_by_weights_unless_its_entry_says() {
    let controlled_by = |keys: &str| {
        let text = format!(
            "[[site]]\nname = \"a\"\nhosts = [\"a\"]\n[[node]]\nname = \"n\"\nserver = \"127.0.0.1:80\"\n\
             [[front]]\nname = \"f\"\n{keys}"
        );
        let file = ClusterFile::parse(&text, "x").unwrap();
        assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "x").unwrap(), file);
        file.fronts[0].controlled_by()
    };
    for proxy in ["nginx", "httpd", "envoy", "library"] {
        for by in ["", "by = \"choose\""] {
            assert_eq!(controlled_by(&format!("proxy = \"{proxy}\"\n{by}")), ControlledBy::Choose);
        }
    }
    let haproxy = "proxy = \"haproxy\"\nsocket = \"/s\"\n";
    assert_eq!(controlled_by(haproxy), ControlledBy::Weights);
    assert_eq!(controlled_by(&format!("{haproxy}by = \"weights\"")), ControlledBy::Weights);
    assert_eq!(controlled_by(&format!("{haproxy}by = \"choose\"")), ControlledBy::Choose);
}

#[test]
fn settle_is_history_unless_given() {
    let mut file = ClusterFile::demo();
    assert_eq!(file.reconfig.settle(), Duration::from_millis(2));
    file.reconfig.settle = Some(Duration::from_micros(300));
    let read = ClusterFile::parse(&file.to_toml().unwrap(), "written").unwrap();
    assert_eq!(read.reconfig.settle(), Duration::from_micros(300));
}

#[test]
fn a_node_of_real_files_takes_the_time_that_these_take() {
    let service = |lines: &str| {
        let text = format!(
            "[[site]]\nname = \"a\"\nhosts = [\"a\"]\n[[edge]]\nname = \"e\"\nlisten = \"127.0.0.1:8081\"\n\
             [[node]]\nname = \"n\"\nlisten = \"127.0.0.1:7101\"\n{lines}"
        );
        let file = ClusterFile::parse(&text, "x").unwrap();
        assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "x").unwrap(), file);
        let node = file.cluster().unwrap().nodes[0].clone();
        (node.service, node.service_time.as_millis())
    };
    assert_eq!(service(""), (Service::Fixed, 5));
    assert_eq!(service("root = \"www\"").0, Service::None);
    assert_eq!(service("root = \"www\"\nservice_ms = 3"), (Service::Fixed, 3));
    assert_eq!(service("root = \"www\"\nservice = \"exponential\""), (Service::Exponential, 5));
}

#[test]
fn an_address_may_be_a_host_name() {
    let text = ClusterFile::demo_text().replace("\"127.0.0.1:8081\"", "\"localhost:8081\"");
    let file = ClusterFile::parse(&text, "x").unwrap();
    assert!(file.edges[0].listen.ip().is_loopback() && file.edges[0].listen.port() == 8081);
}

#[test]
fn relative_paths_are_those_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = ClusterFile::demo();
    file.cluster.run_dir = Some("run".into());
    file.cluster.fabric = Fabric::Shm;
    file.cluster.secret_file = Some("secret".into());
    file.nodes[0].root = Some("www".into());
    file.edges[0].access_log = Some("-".into());
    file.edges[1].access_log = Some("access.log".into());
    let tls =
        |name: &str| Tls { certificate: format!("{name}.pem").into(), key: format!("/{name}.key").into() };
    file.edges[1].tls = vec![tls("a"), tls("b")];
    file.edges[1].client_ca = Some("ca.pem".into());
    file.workload.as_mut().unwrap().trace = Some("/traces/a.clf".into());
    let path = directory.path().join("cluster.toml");
    std::fs::write(&path, file.to_toml().unwrap()).unwrap();

    let read = ClusterFile::load(&path).unwrap();
    assert_eq!(read.cluster.run_dir.as_deref(), Some(directory.path().join("run").as_path()));
    assert_eq!(read.cluster.secret_file.as_deref(), Some(directory.path().join("secret").as_path()));
    assert_eq!(read.nodes[0].root.as_deref(), Some(directory.path().join("www").as_path()));
    assert_eq!(read.edges[0].access_log.as_deref(), Some(Path::new("-")));
    assert_eq!(read.edges[1].access_log.as_deref(), Some(directory.path().join("access.log").as_path()));
    let certificates: Vec<_> = read.edges[1].tls.iter().map(|tls| tls.certificate.clone()).collect();
    assert_eq!(certificates, ["a.pem", "b.pem"].map(|name| directory.path().join(name)));
    assert_eq!(read.edges[1].tls[1].key, Path::new("/b.key"));
    assert_eq!(read.edges[1].client_ca.as_deref(), Some(directory.path().join("ca.pem").as_path()));
    assert_eq!(read.workload.unwrap().trace.as_deref(), Some(Path::new("/traces/a.clf")));
}

/// The demo or the example with one line replaced: close enough to a usable file to get past the TOML reader.
fn mutated_file() -> impl Strategy<Value = String> {
    let text = prop::sample::select(vec![ClusterFile::demo_text(), ClusterFile::example_text()]);
    let value = prop_oneof![
        "[ -~]{0,40}",
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string())
    ];
    (text, any::<prop::sample::Index>(), value).prop_map(|(text, at, value)| {
        let at = at.index(text.lines().count());
        let mutate = |(i, line): (usize, &str)| match line.split_once(" = ") {
            Some((key, _)) if i == at => format!("{} = {value}\n", key.trim_start_matches("# ")),
            _ => format!("{line}\n"),
        };
        text.lines().enumerate().map(mutate).collect()
    })
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,400}") {
        let _ = ClusterFile::parse(&text, "x");
    }

    #[test]
    fn no_value_panics_and_errors_are_one_line(text in mutated_file()) {
        match ClusterFile::parse(&text, "x") {
            Ok(file) => {
                prop_assert_eq!(&ClusterFile::parse(&file.to_toml().unwrap(), "again").unwrap(), &file);
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}

#[test]
fn servers_of_others_have_ports_in_a_row_and_unknown_workers() {
    let text = ClusterFile::demo().to_toml().unwrap();
    let mut file = ClusterFile::parse(&text, "demo").unwrap();
    file.nodes = vec![NodeEntry::foreign("web", 8, "10.0.0.21:8080".parse().unwrap())];
    let cluster = ClusterFile::parse(&file.to_toml().unwrap(), "written").unwrap().cluster().unwrap();
    let last = &cluster.nodes[7];
    assert_eq!((last.name.as_str(), last.addresses[0].to_string().as_str()), ("web8", "10.0.0.21:8087"));
    assert!(cluster.nodes.values().all(|node| node.is_foreign && node.workers.is_none()));
    file.nodes[0].workers = Some(4);
    assert_eq!(file.cluster().unwrap().nodes[0].workers, Some(4));

    let unix = "name = \"a\"\nserver = \"unix:/run/app.sock\"\n";
    let text_of = |node: &str| {
        format!(
            "[[site]]\nname = \"s\"\nhosts = [\"h\"]\n[[edge]]\nname = \"e\"\nlisten = \"127.0.0.1:80\"\n[[node]]\n{node}"
        )
    };
    let file = ClusterFile::parse(&text_of(unix), "unix").unwrap();
    assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "written").unwrap(), file);
    let node = &file.cluster().unwrap().nodes[0];
    assert_eq!((node.addresses[0].to_string().as_str(), node.is_exclusive), ("unix:/run/app.sock", true));
    assert!(node.fabric_listen.ip().is_loopback());

    for (node, addresses, port) in [
        ("server = \"127.0.0.1\"\nserves = { s = 8080 }", ["127.0.0.1:8080"; 2], true),
        ("server = \"::1\"\nserves = { t = \"unix:/t\", s = 8080 }", ["[::1]:8080", "unix:/t"], false),
        ("server = \"localhost\"\nserves = { s = 82, t = 82 }", ["127.0.0.1:82"; 2], false),
        ("serves = { s = \"unix:/s\", t = \"unix:/t\" }", ["unix:/s", "unix:/t"], false),
    ] {
        let second =
            "[[site]]\nname = \"t\"\nhosts = [\"t\"]\n[[node]]\nname = \"b\"\nlisten = \"127.0.0.1:81\"\n";
        let text = text_of(&format!("name = \"a\"\n{node}\n")) + if port { "" } else { second };
        let file = ClusterFile::parse(&text, "serves").unwrap();
        assert_eq!(ClusterFile::parse(&file.to_toml().unwrap(), "written").unwrap(), file);
        let node = &file.cluster().unwrap().nodes[0];
        assert_eq!([0, 1].map(|site| node.address(site).to_string()), addresses);
        assert!(node.is_foreign && node.is_exclusive && node.port().is_some() == port);
    }

    let builtin =
        text.replace("listen = \"127.0.0.1:7101\"", "listen = \"127.0.0.1:7101\"\nserver = \"builtin\"");
    assert_ne!(builtin, text);
    let cluster = ClusterFile::parse(&builtin, "demo").unwrap().cluster().unwrap();
    assert!(!cluster.nodes[0].is_foreign && cluster.nodes[0].workers == Some(2));
}

#[test]
fn a_change_of_sites_takes_as_long_as_its_steps_may() {
    let mut file = ClusterFile::demo();
    let meaning = |file: &ClusterFile| {
        let read = ClusterFile::parse(&file.to_toml().unwrap(), "written").unwrap();
        assert_eq!(read, *file);
        let cluster = read.cluster().unwrap();
        (cluster.has_commands(), cluster.change_max().as_secs(), cluster)
    };
    assert!(!meaning(&file).0);

    // 5 s for the node to notice, and 4 s to kill a command; the way back leaves the new site and enters the old one.
    file.reconfig.command_max = Duration::from_secs(100);
    file.sites[1].on_leave = Some(vec!["/bin/stop".into(), "beta's \"server\"".into(), String::new()]);
    let (has_commands, change_max, cluster) = meaning(&file);
    assert_eq!((has_commands, change_max), (true, 213));
    assert_eq!(cluster.sites[1].on_leave, ["/bin/stop", "beta's \"server\"", ""]);
    assert!(cluster.sites[1].on_enter.is_empty() && cluster.sites[0].on_leave.is_empty());
    file.sites[0].on_enter = Some(vec!["start".into()]);
    assert_eq!(meaning(&file).1, 421);
    file.sites[1].on_leave = None;
    assert_eq!(meaning(&file).1, 213);
    file.sites[0].on_enter = None;
    assert!(!meaning(&file).0);

    file.nodes[0] = NodeEntry::foreign("web", 7, "127.0.0.1:8081".parse().unwrap());
    file.nodes[0].ready = Some(Ready::new("/healthz?full"));
    let last = NodeEntry::foreign("last", 1, "127.0.0.1:9000".parse().unwrap());
    let ready = Ready { status: 204, timeout: Duration::from_secs(7), ..Ready::new("/") };
    file.nodes.push(NodeEntry { ready: Some(ready.clone()), ..last });
    file.edges.truncate(1);
    file.edges[0].listen = "127.0.0.1:8080".parse().unwrap();
    let (has_commands, change_max, cluster) = meaning(&file);
    assert_eq!((has_commands, change_max), (true, 25), "two times the longest");
    assert_eq!(cluster.nodes[7].ready, Some(ready));
    let first = cluster.nodes[6].ready.clone().unwrap();
    assert_eq!((first.path.as_str(), first.status, first.timeout.as_secs()), ("/healthz?full", 200, 10));
}

#[test]
fn a_sites_requests_are_waited_for_unless_it_says_otherwise() {
    let mut file = ClusterFile::demo();
    file.sites[1].drain = Drain::Cut;
    let text = file.to_toml().unwrap();
    assert!(text.contains("drain = \"cut\""), "{text}");
    let sites = ClusterFile::parse(&text, "written").unwrap().cluster().unwrap().sites;
    let drains: Vec<_> = sites.values().map(|site| site.drain).collect();
    assert_eq!(drains, [Drain::Wait, Drain::Cut, Drain::Wait]);
}
