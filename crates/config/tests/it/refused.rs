//! What a cluster file is refused for: the line, what is wrong, and what was expected.

use std::fmt::Write as _;

use sidelong_config::ClusterFile;

use crate::support::{BASE, refused, refused_after};

/// The base with line `line` replaced.
fn refused_at(line: usize, with: &str) -> String {
    let mut text = String::new();
    for (i, old) in BASE.lines().enumerate() {
        writeln!(text, "{}", if i + 1 == line { with } else { old }).unwrap();
    }
    refused(&text)
}

#[test]
fn the_base_is_usable() {
    let cluster = ClusterFile::parse(BASE, "cluster.toml").unwrap().cluster().unwrap();
    assert_eq!(cluster.nodes[0].site, Some(0));
}

#[test]
fn an_unknown_key_lists_the_known_ones() {
    let error = refused_after("[load]\nperiod_ms = 2\nperid_ms = 1\n");
    assert_eq!(
        error,
        "cluster.toml:12: unknown field `perid_ms`, expected one of `scheme`, `period_ms`, `proc_period_ms`, `stale_ms`"
    );
    let error = refused_after("[lode]\n");
    assert!(
        error.starts_with(
            "cluster.toml:10: unknown field `lode`, expected one of `cluster`, `etcd`, `verbs`, `load`,"
        ),
        "{error}"
    );
    let error = refused_at(2, "nam = \"a\"");
    assert!(
        error.starts_with("cluster.toml:2: unknown field `nam`, expected one of `name`, `hosts`,"),
        "{error}"
    );
}

#[test]
fn an_unknown_word_lists_the_known_ones() {
    assert_eq!(
        refused_after("[load]\nscheme = \"telepathy\"\n"),
        "cluster.toml:11: load.scheme: unknown variant `telepathy`, expected one of `auto`, `socket-async`, `socket-sync`, \
         `rdma-async`, `rdma-sync`, `e-rdma-sync`"
    );
}

#[test]
fn broken_toml_and_wrong_types_name_their_line() {
    let cases = [
        ("[load]\nperiod_ms =\n", "cluster.toml:11: "),
        ("[load]\nscheme = auto\n", "cluster.toml:11: "),
        (
            "[load]\nperiod_ms = \"fast\"\n",
            "cluster.toml:11: load.period_ms: invalid type: string \"fast\", expected f64",
        ),
        (
            "[load]\nperiod_ms = -1\n",
            "cluster.toml:11: load.period_ms: invalid value: -1.0, expected a number of milliseconds from 0 to 1e12",
        ),
        ("[load]\nperiod_ms = nan\n", "cluster.toml:11: load.period_ms: invalid value"),
        (
            "[load]\nperiod_ms = 1e300\n",
            "cluster.toml:11: load.period_ms: invalid value: 1e300, expected a number",
        ),
        ("[load]\n[load]\n", "cluster.toml:11: duplicate key"),
        ("[limits]\nretries = -1\n", "cluster.toml:11: limits.retries: invalid value"),
        ("[[node]]\nlisten = \"127.0.0.1:1\"\n", "cluster.toml:10: missing field `name`"),
        (
            "[[edge]]\nname = \"f\"\nlisten = \"localhost\"\n",
            "cluster.toml:12: edge.listen: \"localhost\" is not an address; expected \"host:port\", such as",
        ),
        (
            "tls = { certificate = \"c.pem\" }\n",
            "cluster.toml:10: missing field `key`; add `key = ...` to this table",
        ),
        ("tls = {}\n", "cluster.toml:10: missing field `certificate`; add `certificate = ...` to this table"),
        (
            "tls = [{ certificate = \"c\", key = \"k\" }, { key = \"k\" }]\n",
            "cluster.toml:10: edge.tls: missing field `certificate`",
        ),
        ("tls = []\n", "cluster.toml:10: edge.tls: invalid length 0, expected { certificate = "),
        (
            "tls = \"c.pem\"\n",
            "cluster.toml:10: edge.tls: invalid type: string \"c.pem\", expected { certificate = ",
        ),
    ];
    for (lines, expected) in cases {
        let error = refused_after(lines);
        assert!(error.starts_with(expected), "{error}\nexpected {expected}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn every_section_is_checked() {
    let cases = [
        (
            "[cluster]\nname = \"../x\"\n",
            "11: cluster name \"../x\"; expected 1 to 64 of a-z, 0-9 and -: it names files",
        ),
        (
            "[cluster]\nname = \"\"\n",
            "11: cluster name \"\"; expected 1 to 64 of a-z, 0-9 and -: it names files",
        ),
        (
            "[cluster]\nsecret = \"too short\"\n",
            "11: the secret has 9 bytes; expected from 16 to 1024 random ones",
        ),
        (
            "[cluster]\nsecret = \"sixteen bytes it\"\nsecret_file = \"s\"\n",
            "12: secret and secret_file are given; expected one of them",
        ),
        (
            "[cluster]\nsecret_file = \"s\"\n",
            "4: node \"n\" has its control endpoint at 127.0.0.1:0; expected with a secret, an address and a port \
             that other machines can reach",
        ),
        ("[verbs]\nport = 0\n", "11: port is 0; expected from 1 to 255"),
        ("[verbs]\nretries = 7\n", "11: retries is 7; expected from 0 to 6"),
        ("[verbs]\ndevice = \"mlx5 0\"\n", "11: device \"mlx5 0\"; expected a name as ibv_devices lists it"),
        ("[load]\nperiod_ms = 0\n", "11: period_ms is 0; expected from 0.01 to 60000"),
        ("[load]\nproc_period_ms = 0.5\n", "11: proc_period_ms is 0.5; expected from 1 to 60000"),
        (
            "[load]\nperiod_ms = 150\n",
            "10: stale_ms is 150, period_ms is 150; expected stale_ms >= 2 x period_ms, otherwise every record is too old",
        ),
        (
            "[balance]\nweights = { cpu = -1 }\n",
            "11: the weight of cpu is -1; expected a number from 0 to 1000000",
        ),
        (
            "[balance]\nweights = { cpu = nan }\n",
            "11: the weight of cpu is NaN; expected a number from 0 to 1000000",
        ),
        (
            "[balance.weights]\ncpu = 0\nmemory = 0\nnetwork = 0\nconnections = 0\n",
            "10: all weights are 0; expected at least one above 0",
        ),
        ("[baseline]\nthreshold = -1\n", "11: threshold is -1; expected from 0 to 1000000"),
        (
            "[baseline]\nscheme = \"rdma-sync\"\n",
            "11: scheme is \"rdma-sync\"; expected socket-async, socket-sync, or load.scheme",
        ),
        (
            "[baseline]\nbalance = \"ewma\"\n",
            "11: balance is \"ewma\"; expected last-look, or balance.policy",
        ),
        (
            "[load]\nscheme = \"socket-sync\"\n",
            "11: scheme is \"socket-sync\", a baseline of the papers; expected scheme in [baseline], for sidelong-lab",
        ),
        (
            "[balance]\npolicy = \"last-look\"\n",
            "11: policy is \"last-look\", a baseline of the papers; expected balance in [baseline], for sidelong-lab",
        ),
        (
            "[admission]\nrule = \"paper\"\n",
            "11: rule is \"paper\", a baseline of the papers; expected threshold in [baseline], for sidelong-lab",
        ),
        ("[admission]\nrotation_s = 0\n", "11: rotation_s is 0; expected from 0.1 to 3600"),
        ("[reconfig]\nsensitivity_ms = 0\n", "11: sensitivity_ms is 0; expected from 0.01 to 60000"),
        ("[reconfig]\nhistory_ms = 60001\n", "11: history_ms is 60001; expected from 0 to 60000"),
        ("[reconfig]\ncommand_ms_max = 0.5\n", "11: command_ms_max is 0.5; expected from 1 to 3600000"),
        ("[reconfig]\nhigh = nan\n", "11: high is NaN; expected from 0 to 1000000"),
        (
            "[reconfig]\nhigh = 0.4\n",
            "10: low is 0.5, high is 0.4; expected low < high, otherwise a site would take and give a node at once",
        ),
        (
            "[reconfig]\n\nlease_ms = 2\n",
            "12: lease_ms is 2, sensitivity_ms is 1; expected lease_ms >= 3 x sensitivity_ms, so that a holder can \
             renew it",
        ),
        ("[limits]\nheader_bytes_max = 1\n", "11: header_bytes_max is 1; expected from 256 to 1048576"),
        ("[limits]\nconnections_max = 0\n", "11: connections_max is 0; expected from 1 to 1048576"),
        (
            "[limits]\nconnections_per_client_max = 0\n",
            "11: connections_per_client_max is 0; expected from 1 to 1048576",
        ),
        ("[limits]\nretries = 17\n", "11: retries is 17; expected from 0 to 16"),
        ("[limits]\nconnect_timeout_ms = 0\n", "11: connect_timeout_ms is 0; expected from 1 to 3600000"),
        (
            "[etcd]\n",
            "10: no endpoint; expected the addresses of etcd's servers, such as [\"https://e1.example:2379\"]",
        ),
        (
            "[etcd]\nendpoints = [\"e1:2379\"]\n",
            "11: endpoint e1:2379; expected https://HOST:PORT or http://HOST:PORT",
        ),
        (
            "[etcd]\nendpoints = [\"http://e1:2379\"]\nuser = \"me\"\n",
            "12: one of user and password_file; expected both, or none",
        ),
        (
            "[etcd]\nendpoints = [\"http://e1:2379\"]\nkey = \"key\"\n",
            "10: one of certificate and key; expected both, or none",
        ),
        (
            "[etcd]\nendpoints = [\"http://e1:2379\"]\n",
            "10: [etcd] in the file of a cluster on one machine; expected secret_file, and a fabric that reaches other machines",
        ),
        (
            "[cluster]\nsecret = \"quite unguessable\"\n[etcd]\nendpoints = [\"http://e1:2379\"]\n",
            "12: a secret in the file, which etcd would hold; expected secret_file, a path on each machine",
        ),
        ("[ganglia]\ngmond = \"127.0.0.1:0\"\n", "11: address 127.0.0.1:0 has port 0; expected a fixed port"),
        ("[ganglia]\nedge = \"f\"\n", "11: no edge \"f\"; expected the name of an [[edge]]"),
        ("[ganglia]\nperiod_ms = 0.5\n", "11: period_ms is 0.5; expected from 1 to 3600000"),
        ("[ganglia]\nmetadata_ms = 0\n", "11: metadata_ms is 0; expected from 1 to 3600000"),
        ("[ganglia]\nprefix = \"a b\"\n", "11: prefix \"a b\"; expected letters, digits, -, _ and ."),
        ("[cache]\nitem_bytes_max = 1023\n", "11: item_bytes_max is 1023; expected from 1024 to 1073741824"),
        (
            "[cache]\nevicts = true\n",
            "11: unknown field `evicts`, expected one of `eviction`, `item_bytes_max`, `fresh_ms`, `documents`, \
             `document_memory_mb`, `document_max_age_s`, `peer`",
        ),
        ("[cache]\ndocument_memory_mb = 7\n", "11: document_memory_mb is 7; expected from 8 to 65536"),
        ("[cache]\ndocument_max_age_s = 0\n", "11: document_max_age_s is 0; expected from 1 to 31536000"),
        (
            "[cache]\ndocuments = true\n",
            "11: documents is true, and no [[node]] has root; expected a node that serves files",
        ),
        ("[workload]\nburst = 0\n", "11: burst is 0; expected from 1 to 1099511627776"),
        ("[workload]\nduration_s = 0\n", "11: duration_s is 0; expected from 0.001 to 31622400"),
        ("[workload]\nrequests = 0\n", "11: requests is 0; expected from 1 to 1099511627776"),
        (
            "[workload]\nmode = \"open\"\n",
            "10: rate is not given with mode = \"open\"; expected requests/s with mode = \"open\", and nothing with \
             \"closed\"",
        ),
        (
            "[workload]\nrate = 100\n",
            "11: rate is given with mode = \"closed\"; expected requests/s with mode = \"open\", and nothing with \
             \"closed\"",
        ),
        ("[workload]\naddresses = 5000\n", "11: addresses is 5000; expected from 0 to 4096"),
        (
            "[workload]\nkind = \"zipf\"\ntrace = \"x\"\n",
            "12: trace is given with kind = \"zipf\"; expected kind = \"trace\" with it",
        ),
    ];
    for (lines, expected) in cases {
        assert_eq!(refused_after(lines), format!("cluster.toml:{expected}"));
    }
}

#[test]
fn every_entry_is_checked() {
    let cases = [
        (2, "name = \"A\"", "2: site name \"A\"; expected 1 to 64 of a-z, 0-9 and -: it names files"),
        (3, "hosts = []", "3: site \"a\" has 0 hosts; expected from 1 to 256"),
        (
            3,
            "hosts = [\"a.example\", \"B.example:80\"]",
            "3: site \"a\": host \"B.example:80\"; expected a host in lower case without its port or last dot, such as \"a.example\" or \"[2001:db8::1]\"",
        ),
        (
            3,
            "hosts = [\"a.example\"]\nnodes = 1\nfloor = 0",
            "5: site \"a\": floor is 0; expected at least 1: a site without a node cannot answer",
        ),
        (
            3,
            "hosts = [\"a.example\"]\nnodes = 2\nfloor = 4",
            "5: site \"a\": floor is 4 but the site starts with 2 nodes; expected floor <= nodes",
        ),
        (
            3,
            "hosts = [\"a.example\"]\nnodes = 3\nceiling = 2",
            "5: site \"a\": ceiling is 2 but the site starts with 3 nodes; expected nodes <= ceiling",
        ),
        (
            3,
            "hosts = [\"a.example\"]\nnodes = 2",
            "4: site \"a\": with its 2 nodes the sites start with 2 nodes, but the pool has 1; expected at most as many nodes \
             at the sites as in the pool",
        ),
        (3, "hosts = [\"a.example\"]\nshare = 1.5", "4: share is 1.5; expected from 0 to 1"),
        (
            3,
            "hosts = [\"a.example\"]\nresponse_ms_p99 = 20\nqueue_ms_max = 9",
            "5: site \"a\": response_ms_p99 and queue_ms_max are given; expected one of them",
        ),
        (
            3,
            "hosts = [\"a.example\"]\nrates = [{ at_s = 2, per_s = 1 }, { at_s = 1, per_s = 2 }]",
            "4: site \"a\": rates that are not in order of at_s; expected each later than the one before",
        ),
        (
            3,
            "hosts = [\"a.example\"]\nrates = [{ at_s = 0, per_s = -1 }]",
            "4: site \"a\": per_s = -1; expected from 0 to 10000000 requests/s",
        ),
        (
            3,
            "hosts = [\"a.example\"]\nqueue_ms_max = 9\nrejected_last = [\"/me\", \"get /\"]",
            "5: site \"a\": \"get /\"; expected a path such as \"/items/*/bid\", after a method if only that is meant, such as \"POST /\"",
        ),
        (
            3,
            "hosts = [\"a.example\"]\nrejected_last = [\"/me\"]",
            "4: site \"a\" has rejected_last and no target; expected response_ms_p99 or queue_ms_max: without one nothing is rejected",
        ),
        (
            3,
            "hosts = [\"a.example\"]\nqueue_ms_max = 9\nvisit_s = 0",
            "5: visit_s is 0; expected from 0.1 to 3600",
        ),
        (3, "hosts = [\"a.example\"]\nqueue_ms_max = 0", "4: queue_ms_max is 0; expected from 1 to 60000"),
        (
            3,
            "hosts = [\"a.example\"]\nresponse_ms_p99 = 5",
            "4: site \"a\": response_ms_p99 is 5, but a request takes 5 at a node; expected more than the service_ms of every \
             node",
        ),
        (5, "name = \"n/1\"", "5: node name \"n/1\"; expected 1 to 64 of a-z, 0-9 and -: it names files"),
        (5, "name = \"n\"\ncount = 0", "6: count is 0; expected from 1 to 16383"),
        (5, "name = \"n\"\ncount = 18446744073709551615", "6: "),
        (5, "name = \"n\"\nworkers = 0", "6: workers is 0; expected from 1 to 4096"),
        (5, "name = \"n\"\ncpus = 0", "6: cpus is 0; expected from 0.05 to 65536"),
        (5, "name = \"n\"\nnet_mbit = -1", "6: net_mbit is -1; expected from 0.001 to 10000000"),
        (
            5,
            "name = \"n\"\nservice_ms = 0",
            "6: node \"n\": service_ms is 0 with service = \"fixed\"; expected a time above 0, or service = \"none\"",
        ),
        (
            5,
            "name = \"n\"\ncount = 2\ncgroup = \"/sys/fs/cgroup/n\"",
            "7: node \"n\": 2 nodes in one cgroup; expected count = 1: one entry for each node that has a cgroup",
        ),
        (
            6,
            "listen = \"127.0.0.1:65535\"\ncount = 2",
            "6: the nodes from 127.0.0.1:65535 on would need port 65536; expected at most 65535",
        ),
        (6, "listen = \"127.0.0.1:0\"", "6: address 127.0.0.1:0 has port 0; expected a fixed port"),
        (
            6,
            "listen = \"127.0.0.1:8081\"",
            "9: edge \"e\" would listen on 127.0.0.1:8081, as node \"n\" does; expected a different address",
        ),
        (
            6,
            "listen = \"0.0.0.0:8080\"\ncount = 2",
            "10: edge \"e\" would listen on 127.0.0.1:8081, as node \"n2\" does; expected a different address",
        ),
        (8, "name = \"n\"", "8: name \"n\" is already used by a node; expected unique names"),
        (9, "listen = \"127.0.0.1:8081\"\nthreads = 0", "10: threads is 0; expected from 1 to 1024"),
        (
            9,
            "listen = \"127.0.0.1:8081\"\ntls = { certificate = \"c\", key = \"\" }",
            "10: edge \"e\": a file name in tls is empty; expected certificate and key, both PEM files",
        ),
        (
            9,
            "listen = \"127.0.0.1:8081\"\ntls = [{ certificate = \"c\", key = \"k\" }, { certificate = \"\", key = \"k\" }]",
            "10: edge \"e\": a file name in tls is empty; expected certificate and key, both PEM files",
        ),
        (
            9,
            "listen = \"127.0.0.1:8081\"\nclient_ca = \"ca.pem\"",
            "10: edge \"e\" has client_ca, but no tls; expected both, since clients show certificates over TLS only",
        ),
        (
            9,
            "listen = \"127.0.0.1:8081\"\nclient_ca = \"\"\ntls = { certificate = \"c\", key = \"k\" }",
            "10: edge \"e\": client_ca is empty; expected a PEM file",
        ),
        (
            9,
            "listen = \"127.0.0.1:8081\"\nvia = \"a b\"",
            "10: edge \"e\": via \"a b\"; expected 1 to 64 letters, digits, -, _ and .",
        ),
    ];
    for (line, with, expected) in cases {
        let error = refused_at(line, with);
        assert!(error.starts_with(&format!("cluster.toml:{expected}")), "{error}\nexpected {expected}");
    }
}

#[test]
fn an_open_load_has_one_rate_or_each_site_its_own() {
    let sites = BASE.replacen("\n[[node]]", "\nrates = [{ at_s = 0.5, per_s = 100 }]\n[[node]]", 1);
    let with = |workload: &str| format!("{sites}[workload]\n{workload}\n");
    let cluster = ClusterFile::parse(&with("mode = \"open\"\naddresses = 8"), "cluster.toml");
    let rates = &cluster.unwrap().cluster().unwrap().sites[0].rates;
    assert_eq!((rates[0].at.as_millis(), rates[0].per_s), (500, 100.0));
    assert_eq!(
        refused(&with("mode = \"open\"\nrate = 5")),
        "cluster.toml:13: rate is given, and site \"a\" has rates; expected either a rate or rates for the sites"
    );
    assert_eq!(
        refused(&with("mode = \"closed\"")),
        "cluster.toml:4: site \"a\" has rates with workload.mode = \"closed\"; expected mode = \"open\" with them"
    );
    let elsewhere = BASE.replace("127.0.0.1:8081", "0.0.0.0:8081");
    assert_eq!(
        refused(&format!("{elsewhere}[workload]\naddresses = 2\n")),
        "cluster.toml:11: 2 addresses of 127.0.0.0/8, and edges elsewhere; expected every edge to listen on one of \
         those, or addresses = 0"
    );
}

#[test]
fn nothing_stands_twice() {
    let site = "[[site]]\nname = \"a\"\nhosts = [\"b.example\"]\n";
    assert_eq!(
        refused_after(site),
        "cluster.toml:11: name \"a\" is already used by a site; expected unique names"
    );
    let site = "[[site]]\nname = \"b\"\nhosts = [\"b.example\",\n \"a.example\"]\n";
    assert_eq!(
        refused_after(site),
        "cluster.toml:13: host \"a.example\" is already used by site \"a\"; expected unique names"
    );
    let node = "[[node]]\nname = \"n\"\nlisten = \"127.0.0.1:7102\"\n";
    assert_eq!(
        refused_after(node),
        "cluster.toml:11: name \"n\" is already used by a node; expected unique names"
    );
    let admin = "admin = \"127.0.0.1:8081\"\n";
    assert_eq!(
        refused_after(admin),
        "cluster.toml:10: edge \"e\" would listen on 127.0.0.1:8081, as edge \"e\" does; expected a different address"
    );
    let admin =
        "[[node]]\nname = \"m\"\nlisten = \"127.0.0.1:7102\"\nadmin = \"127.0.0.1:8080\"\ncount = 2\n";
    assert_eq!(
        refused_after(admin),
        "cluster.toml:9: edge \"e\" would listen on 127.0.0.1:8081, as node \"m2\" does; expected a different address"
    );
}

#[test]
fn a_cluster_has_sites_nodes_and_edges() {
    assert_eq!(refused(""), "cluster.toml:1: no [[site]]; expected from 1 to 4095 of them");
    let without = |section: &str| {
        let parts = BASE.split_inclusive("[[").collect::<String>();
        let start = parts.find(&format!("[[{section}]]")).unwrap();
        let end = parts[start + 2..].find("[[").map_or(parts.len(), |next| start + 2 + next);
        refused(&format!("{}{}", &parts[..start], &parts[end..]))
    };
    for (section, or, max) in [("site", "", 4095), ("node", "", 16383), ("edge", " or [[front]]", 4095)] {
        assert_eq!(
            without(section),
            format!("cluster.toml:1: no [[{section}]]{or}; expected from 1 to {max} of them")
        );
    }
}

#[test]
fn promises_that_contradict_each_other_are_refused_with_their_sum() {
    let site = |promise: &str| format!("[[site]]\nname = \"b\"\nhosts = [\"b.example\"]\n{promise}\n");
    let pool = "[[node]]\nname = \"m\"\ncount = 3\nlisten = \"127.0.0.1:7201\"\n";
    let refused = |first: &str, second: &str| {
        let text = format!("{BASE}{}{pool}", site(second));
        refused(&text.replacen("hosts = [\"a.example\"]", &format!("hosts = [\"a.example\"]\n{first}"), 1))
    };
    assert_eq!(
        refused("nodes = 2\nfloor = 2", "nodes = 3\nfloor = 3"),
        "cluster.toml:16: site \"b\": with its floor of 3 the floors sum to 5 nodes, but the pool has 4; expected floors that \
         fit the pool"
    );
    assert_eq!(
        refused("share = 0.7", "share = 0.4"),
        "cluster.toml:14: site \"b\": with its share of 0.4 the shares sum to 1.1; expected at most 1, which is the whole pool"
    );
    assert_eq!(
        refused("share = 0.75\nceiling = 2", ""),
        "cluster.toml:4: site \"a\": a share of 0.75 is 3 of 4 nodes, but its ceiling is 2; expected a share within \
         the ceiling"
    );
    assert_eq!(
        refused("share = 0.75", "nodes = 2\nfloor = 2"),
        "cluster.toml:11: site \"b\": with it, the sites are guaranteed 5 nodes (the greater of floor and \
         share), but the pool has 4; expected floors and shares that fit the pool together"
    );
    let kept =
        format!("{BASE}{}{pool}", site("share = 0.25")).replacen("[[node]]", "share = 0.75\n[[node]]", 1);
    let cluster = ClusterFile::parse(&kept, "cluster.toml").unwrap().cluster().unwrap();
    assert_eq!((cluster.sites[0].share, cluster.sites[0].target), (0.75, None));
}

#[test]
fn a_pool_fits_the_words() {
    let over = "[[node]]\nname = \"m\"\nlisten = \"127.0.0.1:10000\"\ncount = 16383\n";
    assert_eq!(refused_after(over), "cluster.toml:13: the pool has 16384 nodes; expected at most 16383");
    let grown = "[baseline]\nconfiguration = \"over-provisioned\"\n[[site]]\nname = \"b\"\nhosts = [\"b.example\"]\n\
                 [[node]]\nname = \"m\"\nlisten = \"127.0.0.1:10000\"\ncount = 9000\n";
    assert_eq!(
        refused_after(grown),
        "cluster.toml:18: the pool has 18000 nodes, 8999 of them to over-provision; expected at most 16383"
    );
    let owners =
        "[baseline]\nby = \"server\"\n[[node]]\nname = \"m\"\nlisten = \"127.0.0.1:10000\"\ncount = 4094\n";
    assert_eq!(
        refused_after(owners),
        "cluster.toml:11: 4096 edges, fronts and nodes would take locks; expected at most 4095"
    );
}

#[test]
fn copies_share_no_cgroup() {
    let copied = "[baseline]\nconfiguration = \"over-provisioned\"\n[[site]]\nname = \"b\"\nhosts = [\"b.example\"]\n\
                  [[node]]\nname = \"m\"\nlisten = \"127.0.0.1:7201\"\n[[node]]\nname = \"o\"\n\
                  listen = \"127.0.0.1:7301\"\ncgroup = \"/c\"\n";
    assert_eq!(
        refused_after(copied),
        "cluster.toml:21: node \"o\" is copied 1 times to over-provision; expected no cgroup: the copies cannot share \
         one"
    );
}

#[test]
fn a_file_that_a_program_made_names_its_key() {
    let mut file = ClusterFile::demo();
    file.sites[1].floor = 4;
    assert_eq!(
        file.cluster().unwrap_err().to_string(),
        "cluster file, site[1].floor: site \"beta\": floor is 4 but the site starts with 3 nodes; expected floor <= nodes"
    );
}

#[test]
fn a_file_that_is_missing_or_too_long_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none.toml");
    let error = ClusterFile::load(&path).unwrap_err().to_string();
    assert!(error.starts_with(&path.display().to_string()) && error.contains("No such file"), "{error}");

    let path = directory.path().join("long.toml");
    std::fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
    let error = ClusterFile::load(&path).unwrap_err().to_string();
    assert!(error.ends_with("a cluster file has at most 1048576 bytes"), "{error}");
}

#[test]
fn a_foreign_server_has_no_key_of_the_built_in_one() {
    let server = "name = \"n\"\nserver = \"127.0.0.1:80\"\n";
    let cases = [
        (
            "",
            "listen = \"127.0.0.1:7101\"",
            "8: node \"n\": listen and server are given; expected listen for the built-in origin, or server = \"host:port\" \
             for a server of yours",
        ),
        (
            "",
            "service_ms = 5",
            "8: node \"n\": service_ms with server = \"127.0.0.1:80\"; expected no service_ms: it is of the built-in origin",
        ),
        ("", "service = \"none\"", "8: node \"n\": service with server = "),
        ("", "slowdown = 8", "8: node \"n\": slowdown with server = "),
        ("", "queue_depth_max = 5", "8: node \"n\": queue_depth_max with server = "),
        ("", "root = \"/srv\"", "8: node \"n\": root with server = "),
        ("", "cpu_share = 0.5", "8: node \"n\": cpu_share with server = "),
        ("", "workers = 0", "8: workers is 0; expected from 1 to 4096"),
        (
            "cgroup = \"/c\"\n",
            "unit = \"a.service\"",
            "8: node \"n\": cgroup and unit are given; expected one of them",
        ),
        (
            "pid_file = \"/p\"\n",
            "unit = \"a.service\"",
            "9: node \"n\": unit and pid_file are given; expected one",
        ),
        (
            "count = 2\n",
            "pid_file = \"/p\"",
            "9: node \"n\": 2 nodes in one cgroup; expected count = 1: one entry",
        ),
        (
            "",
            "unit = \"app\"",
            "8: node \"n\": unit \"app\"; expected a unit of systemd, such as \"app.service\"",
        ),
        ("", "unit = \"../x.service\"", "8: node \"n\": unit \"../x.service\"; expected a unit of systemd"),
    ];
    for (before, key, expected) in cases {
        let text =
            BASE.replace("name = \"n\"\nlisten = \"127.0.0.1:7101\"\n", &format!("{server}{before}{key}\n"));
        // The cases count from the file's first line; the server's is 6.
        let error = refused(&text);
        let expected = expected.split_once(": ").map(|(line, what)| {
            let line: usize = line.parse().unwrap();
            format!("cluster.toml:{}: {what}", line - 1)
        });
        assert!(error.starts_with(&expected.unwrap()), "{error}\nfor {before}{key}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn a_server_has_an_address_of_its_own() {
    let node = |server: &str| format!("[[node]]\nname = \"m\"\nserver = {server:?}\n");
    let cases = [
        (
            "127.0.0.1:8081",
            "edge \"e\" would listen on 127.0.0.1:8081, as the server of node \"m\" does; expected a different address",
        ),
        (
            "127.0.0.1:7101",
            "the server of node \"m\" would listen on 127.0.0.1:7101, as node \"n\" does; expected a different address",
        ),
        ("0.0.0.0:80", "node \"m\": server 0.0.0.0:80; expected an address that edges can connect to"),
        (
            "127.0.0.1:0",
            "node \"m\": server 127.0.0.1 has no port; expected \"host:port\", or serves with a port for each site",
        ),
        ("127.0.0.1", "node \"m\": server 127.0.0.1 has no port; expected"),
        ("a:b:80", "node.server: \"a:b:80\" is not an address; expected \"host:port\""),
    ];
    for (server, expected) in cases {
        let error = refused_after(&node(server));
        assert!(error.contains(expected), "{error}\nexpected {expected}");
    }
    let twice = node("127.0.0.1:80") + &node("127.0.0.1:80").replace("\"m\"", "\"o\"");
    assert_eq!(
        refused_after(&twice),
        "cluster.toml:15: the server of node \"o\" would listen on 127.0.0.1:80, as the server of node \"m\" does; expected a \
         different address"
    );
    let neither = refused_after("[[node]]\nname = \"m\"\n");
    assert!(
        neither.starts_with("cluster.toml:11: node \"m\": neither listen nor server; expected listen"),
        "{neither}"
    );
}

#[test]
fn a_unix_socket_is_of_one_server_on_this_machine() {
    let expected = "an absolute path of at most 107 bytes, such as \"unix:/run/app.sock\"";
    for path in ["", "app.sock", "./app.sock", "@app", &format!("/{}", "a".repeat(107))] {
        let node = format!("[[node]]\nname = \"m\"\nserver = \"unix:{path}\"\n");
        let shown: String = path.chars().take(65).collect();
        let found = format!("node \"m\": Unix socket {shown:?} of {} bytes", path.len());
        assert_eq!(refused_after(&node), format!("cluster.toml:12: {found}; expected {expected}"));
    }
    let node = "[[node]]\nname = \"m\"\nserver = \"unix:/run/app.sock\"\n";
    assert_eq!(
        refused_after(&format!("{node}count = 2\n")),
        "cluster.toml:13: node \"m\": 2 nodes at server = \"unix:/run/app.sock\"; expected count = 1: one entry for \
         each server that is not at a single port"
    );
    let again = node.replace("\"m\"", "\"o\"").replace("/run/", "/run//./");
    assert_eq!(
        refused_after(&(node.to_owned() + &again)),
        "cluster.toml:15: the server of node \"o\" would listen on unix:/run//./app.sock, as the server of node \"m\" does; \
         expected a different address"
    );
    let secret = "[cluster]\nfabric = \"shm\"\nsecret = \"0123456789abcdef0123456789abcdef\"\n";
    assert_eq!(
        refused_after(&format!("{node}{secret}")),
        "cluster.toml:12: node \"m\" is at a Unix socket, and the cluster has a secret; expected ports: the edges may be on \
         other machines; or no secret"
    );
}

#[test]
fn a_server_with_a_port_for_each_site_has_all_on_one_host() {
    const HOST: &str = "server = \"127.0.0.1\"\n";
    let cases = [
        (
            HOST,
            "{ a = 80, c = 81 }",
            13,
            "serves names \"c\", which is no site; expected the names of the sites",
        ),
        (
            HOST,
            "{ a = 80 }",
            13,
            "serves has nothing for site \"b\"; expected a port or a Unix socket for each site",
        ),
        (
            "",
            "{ a = 80, b = \"unix:/b\" }",
            12,
            "serves has port 80, and there is no server; expected server = \"host\", which has these ports",
        ),
        (
            "server = \"127.0.0.1:80\"\n",
            "{ a = 80, b = 81 }",
            12,
            "server = \"127.0.0.1:80\" with serves; expected a host without a port: serves has the ports",
        ),
        (
            "server = \"unix:/s\"\n",
            "{ a = 80, b = 81 }",
            12,
            "server = \"unix:/s\" with serves; expected a host",
        ),
        (
            HOST,
            "{ a = \"unix:/a\", b = \"unix:/b\" }",
            12,
            "server is given, and serves has no port; expected no server beside Unix sockets alone",
        ),
        (
            "",
            "{ a = \"unix:a\", b = \"unix:/b\" }",
            12,
            "Unix socket \"a\" of 1 bytes; expected an absolute path",
        ),
        (
            "server = \"0.0.0.0\"\n",
            "{ a = 80, b = 81 }",
            12,
            "server 0.0.0.0:80; expected an address that edges",
        ),
        (
            "listen = \"127.0.0.1:80\"\n",
            "{ a = 80, b = 81 }",
            12,
            "listen and serves are given; expected listen",
        ),
        (
            "server = \"127.0.0.1\"\ncount = 2\n",
            "{ a = 80, b = 81 }",
            13,
            "2 nodes at serves; expected count = 1: one entry for each server that is not at a single port",
        ),
    ];
    let site = "[[site]]\nname = \"b\"\nhosts = [\"b.example\"]\n";
    for (before, serves, line, expected) in cases {
        let node = format!("[[node]]\nname = \"m\"\n{before}serves = {serves}\n{site}");
        let error = refused_after(&node);
        assert!(error.starts_with(&format!("cluster.toml:{line}: node \"m\": {expected}")), "{error}");
    }
    for (value, found) in [
        ("0", "invalid value: integer `0`"),
        ("65536", "invalid value: integer `65536`"),
        ("\"80\"", "invalid value: string \"80\""),
        ("1.5", "invalid type: floating point `1.5`"),
    ] {
        let node = format!("[[node]]\nname = \"m\"\n{HOST}serves = {{ a = {value} }}\n");
        let expected = "a port from 1 to 65535, or a Unix socket such as \"unix:/run/app.sock\"";
        let error = format!("cluster.toml:13: node.serves.a: {found}, expected {expected}");
        assert_eq!(refused_after(&node), error);
    }
    let front = "[[front]]\nname = \"f\"\nproxy = \"nginx\"\n";
    let error = refused_after(&format!("[[node]]\nname = \"m\"\n{HOST}serves = {{ a = 80 }}\n{front}"));
    let expected = "serves with front \"f\", whose proxy knows one address of each node; expected server with its port; or no front";
    assert_eq!(error, format!("cluster.toml:13: {expected}"));
    let taken = format!("[[node]]\nname = \"m\"\n{HOST}serves = {{ a = 7101, b = 81 }}\n{site}");
    assert_eq!(
        refused_after(&taken),
        "cluster.toml:13: the server of node \"m\" would listen on 127.0.0.1:7101, as node \"n\" does; expected a different \
         address"
    );
}

#[test]
fn what_is_rejected_last_is_told_apart_by_edges_alone() {
    let site = "[[site]]\nname = \"a\"\nhosts = [\"a.example\"]\nqueue_ms_max = 9\nvisit_s = 5\n";
    let node = "[[node]]\nname = \"n\"\nserver = \"127.0.0.1:80\"\n";
    assert_eq!(
        refused(&format!("{site}{node}[[front]]\nname = \"f\"\nproxy = \"nginx\"\n")),
        "cluster.toml:5: site \"a\" has visit_s, and the file has no [[edge]]; expected an edge: proxies of other makes reject \
         all requests alike"
    );
}

#[test]
fn a_unit_and_a_process_are_of_a_foreign_server() {
    for key in ["unit = \"a.service\"", "pid_file = \"/p\"", "exclusive = true", "http2 = true"] {
        let error = refused_at(6, &format!("listen = \"127.0.0.1:7101\"\n{key}"));
        assert!(
            error.starts_with("cluster.toml:7: node \"n\": ") && error.contains("without server"),
            "{error}"
        );
    }
}

#[test]
fn a_server_that_speaks_http2_is_asked_nothing_over_http1() {
    let error = refused_at(6, "server = \"127.0.0.1:7101\"\nhttp2 = true\nready = { path = \"/\" }");
    assert!(
        error.ends_with("node \"n\": ready, which asks over HTTP/1, with http2; expected only one of them"),
        "{error}"
    );
}

#[test]
fn a_node_whose_server_changes_is_of_a_group_that_stays() {
    let hosts = "hosts = [\"a.example\"]";
    let commands = BASE.replace(hosts, &format!("{hosts}\non_enter = [\"true\"]"));
    for (key, found) in [("unit = \"a.service\"", "unit"), ("pid_file = \"/p\"", "pid_file")] {
        let node = format!("[[node]]\nname = \"m\"\nserver = \"127.0.0.1:80\"\n{key}\n");
        assert_eq!(
            refused(&(commands.clone() + &node)),
            format!(
                "cluster.toml:14: node \"m\": {found}, and sites have commands that change what runs there; expected cgroup, of a \
                 slice that has the servers of all sites"
            )
        );
    }
}

#[test]
fn a_command_is_a_program_and_its_words() {
    let many = format!("on_leave = [\"true\"{}]", ", \"x\"".repeat(64));
    let long = format!("on_enter = [\"true\",\n\"{}\"]", "x".repeat(4097));
    let cases = [
        (
            "on_enter = []",
            "4: site \"a\": on_enter is empty; expected a program and its arguments, or no such key",
        ),
        (
            "on_leave = [\"\", \"x\"]",
            "4: site \"a\": on_leave: program \"\"; expected a name to look up in PATH, or an absolute path",
        ),
        (
            "on_enter = [\"./enter\"]",
            "4: site \"a\": on_enter: program \"./enter\"; expected a name to look up in PATH, or an absolute path",
        ),
        (
            "on_enter = [\"true\",\n\"a\\u0000b\"]",
            "5: site \"a\": on_enter: \"a\\0b\"; expected words without NUL, which ends them",
        ),
        (many.as_str(), "4: site \"a\": on_leave has 65 words; expected at most 64"),
        (long.as_str(), "5: site \"a\": on_enter: a word of 4097 bytes; expected at most 4096"),
        (
            "on_enter = \"true\"",
            "4: site.on_enter: invalid type: string \"true\", expected an array, such as [\"a\", \"b\"]",
        ),
    ];
    for (key, expected) in cases {
        assert_eq!(
            refused_at(3, &format!("hosts = [\"a.example\"]\n{key}")),
            format!("cluster.toml:{expected}")
        );
    }
}

#[test]
fn a_server_is_ready_by_an_answer_that_it_can_give() {
    let node =
        |ready: &str| format!("[[node]]\nname = \"m\"\nserver = \"127.0.0.1:80\"\nready = {{ {ready} }}\n");
    let path = "expected \"/\" and at most 1023 visible ASCII characters, such as \"/healthz\"";
    for (ready, expected) in [
        ("path = \"healthz\"", format!("ready.path is \"healthz\"; {path}")),
        ("path = \"\"", format!("ready.path is \"\"; {path}")),
        ("path = \"/a b\"", format!("ready.path is \"/a b\"; {path}")),
        ("path = \"/\\r\\nHost: x\"", format!("ready.path is \"/\\r\\nHost: x\"; {path}")),
        ("path = \"/\", status = 99", "ready.status is 99; expected from 100 to 599".into()),
        ("path = \"/\", status = 600", "ready.status is 600; expected from 100 to 599".into()),
        ("path = \"/\", timeout_ms = 0", "ready.timeout_ms is 0; expected from 1 to 3600000".into()),
        (
            "path = \"/\", timeout_ms = 3_600_001",
            "ready.timeout_ms is 3600001; expected from 1 to 3600000".into(),
        ),
    ] {
        assert_eq!(refused_after(&node(ready)), format!("cluster.toml:13: node \"m\": {expected}"));
    }
    let unknown = refused_after(&node("path = \"/\", body = \"ok\""));
    assert!(
        unknown.ends_with("unknown field `body`, expected one of `path`, `status`, `timeout_ms`"),
        "{unknown}"
    );
    assert!(refused_after(&node("status = 200")).contains("missing field `path`"));
    assert_eq!(
        refused_at(6, "listen = \"127.0.0.1:7101\"\nready = { path = \"/\" }"),
        "cluster.toml:7: node \"n\": ready without server; expected no ready: the built-in origin always is"
    );
}

#[test]
fn the_published_protocol_runs_no_commands_and_does_not_drain() {
    let paper = "[baseline]\nprotocol = \"paper\"\n";
    let expected = "expected protocol = \"lease\": the published one has no step for it";
    let site = "[[site]]\nname = \"b\"\nhosts = [\"b\"]\non_leave = [\"true\"]\n[[node]]\nname = \"m\"\n\
                listen = \"127.0.0.1:7102\"\n";
    assert_eq!(
        refused_after(&format!("{paper}{site}")),
        format!("cluster.toml:11: protocol is \"paper\", and site \"b\" has on_leave; {expected}")
    );
    let cut = site.replace("on_leave = [\"true\"]", "drain = \"cut\"");
    assert_eq!(
        refused_after(&format!("{paper}{cut}")),
        format!("cluster.toml:11: protocol is \"paper\", and site \"b\" has drain = \"cut\"; {expected}")
    );
    let node = "[[node]]\nname = \"m\"\nserver = \"127.0.0.1:80\"\nready = { path = \"/\" }\n";
    assert_eq!(
        refused_after(&format!("{paper}{node}")),
        format!("cluster.toml:11: protocol is \"paper\", and node \"m\" has ready; {expected}")
    );
}
