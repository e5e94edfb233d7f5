//! A real Prometheus server scrapes a cluster, and its promtool checks the metrics.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use sidelong_config::Configuration;

use sidelong_testing::{Client, Cluster, Running, eventually, get, in_bursts, metrics, skipped};

/// The server's port, at a cluster's own address.
const SERVER: u16 = 9501;

/// Whether a program of Debian's package prometheus is installed.
fn is_installed(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if version.is_ok_and(|status| status.success()) {
        return true;
    }
    skipped(&format!("prometheus: no {program} here; Debian's package prometheus has it"));
    false
}

/// A server that scrapes these addresses each second.
struct Prometheus {
    address: SocketAddr,
    _server: Running,
}

impl Prometheus {
    fn start(cluster: &Cluster, targets: &[SocketAddr]) -> Self {
        let targets: Vec<_> = targets.iter().map(|target| format!("{:?}", target.to_string())).collect();
        let config = cluster.path("prometheus.yml");
        let scrape = format!("[{{job_name: s, static_configs: [{{targets: [{}]}}]}}]", targets.join(", "));
        let text = format!("global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs: {scrape}\n");
        std::fs::write(&config, text).unwrap();
        let address = cluster.at(SERVER);
        let option = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let mut command = Command::new("prometheus");
        command
            .arg(option("config.file", &config))
            .arg(option("storage.tsdb.path", &cluster.path("prometheus")))
            .arg(format!("--web.listen-address={address}"));
        let mut server = Running::start_command(command);
        let prometheus_listens = || Client::try_connect(address).is_ok();
        eventually("prometheus listens", || {
            assert!(server.is_running(), "{}", server.err());
            prometheus_listens()
        });
        Prometheus { address, _server: server }
    }

    /// An answer of its API; `None` while it is not ready.
    fn ask(&self, path: &str) -> Option<Value> {
        let mut client = Client::connect(self.address);
        // With HTTP/1.0, so that it sends no chunks.
        client.send(format!("GET /api/v1/{path} HTTP/1.0\r\nhost: prometheus\r\n\r\n")).unwrap();
        let reply = client.reply(true).unwrap();
        let answer: Value = serde_json::from_str(&reply.body).ok()?;
        (answer["status"] == "success").then(|| answer["data"].clone())
    }

    /// Health and last error of each target, by address.
    fn target(&self, address: SocketAddr) -> Option<(String, String)> {
        let answer = self.ask("targets?state=active")?;
        let targets = answer["activeTargets"].as_array()?;
        let target = targets.iter().find(|target| target["labels"]["instance"] == address.to_string())?;
        Some((target["health"].as_str()?.to_owned(), target["lastError"].as_str()?.to_owned()))
    }

    /// The one value of an expression of PromQL.
    fn value(&self, expression: &str) -> Option<f64> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.ask(&format!("query?query={encoded}"))?;
        let [result] = &answer["result"].as_array()?[..] else { return None };
        result["value"][1].as_str()?.parse().ok()
    }
}

#[test]
fn a_server_takes_the_metrics_of_every_part() {
    if !is_installed("prometheus") {
        return;
    }
    let mut cluster = Cluster::new(&[("alpha", 2), ("beta", 1)]);
    cluster.file.edges.truncate(1);
    // Its nodes are counted by site, so none may move.
    cluster.file.baseline.configuration = Configuration::Rigid;
    let _up = cluster.serving_here();
    for _ in 0..7 {
        assert_eq!(get(cluster.edge(0), "alpha.test", "/o/1/1000").status, 200);
    }
    let targets = [cluster.admin(0), cluster.node_admin(0), cluster.node_admin(1), cluster.node_admin(2)];
    let prometheus = Prometheus::start(&cluster, &targets);
    for target in targets {
        eventually("the target is up", || {
            prometheus.target(target).is_some_and(|(health, _)| health == "up")
        });
    }
    eventually("all targets are up", || prometheus.value("sum(up)") == Some(4.0));

    // The edge gets no more requests, so its counts do not change.
    let own = metrics(cluster.admin(0));
    let count = own[r#"sidelong_edge_requests_total{site="alpha",code="2xx"}"#];
    assert!(count >= 7.0, "{own:?}");
    for (expression, expected) in [
        (r#"sidelong_edge_requests_total{site="alpha",code="2xx"}"#, count),
        (r#"sidelong_edge_request_duration_seconds_count{site="alpha"}"#, count),
        (r#"sum(sidelong_node_served_requests_total) == bool sum(sidelong_edge_requests_total)"#, 1.0),
        (r#"count(sidelong_edge_node_capacity_workers == 2)"#, 3.0),
        (r#"sum(sidelong_node_capacity_workers)"#, 6.0),
        (r#"sum(sidelong_edge_node_site{site="alpha"})"#, 2.0),
        (r#"count(sidelong_edge_node_site == 0)"#, 3.0),
        (r#"count(process_cpu_seconds_total > 0)"#, 4.0),
        (r#"count(process_resident_memory_bytes > 1e6)"#, 4.0),
        (r#"count(process_open_fds > 3 and process_open_fds <= process_max_fds)"#, 4.0),
        (r#"count(time() - process_start_time_seconds < 86400)"#, 4.0),
        (r#"count(sidelong_node_load_scheme_info{scheme="rdma-async"})"#, 3.0),
        (r#"count(sidelong_edge_record_age_seconds < 5)"#, 3.0),
        (r#"count(sidelong_edge_words_age_seconds < 5)"#, 3.0),
        (r#"count(sidelong_edge_board_age_seconds < 5)"#, 2.0),
        (r#"count(sidelong_node_record_age_seconds < 5)"#, 3.0),
    ] {
        eventually(expression, || prometheus.value(expression) == Some(expected));
    }
    let metadata = prometheus.ask("metadata?metric=sidelong_edge_requests").unwrap();
    assert_eq!(metadata["sidelong_edge_requests"][0]["type"], "counter", "{metadata}");
    let metadata = prometheus.ask("metadata?metric=sidelong_edge_record_age_seconds").unwrap();
    assert_eq!(metadata["sidelong_edge_record_age_seconds"][0]["unit"], "seconds", "{metadata}");
}

/// Answers every scrape with these metrics.
fn tell(listener: TcpListener, metrics: &'static str) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let length = metrics.len();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close"
            );
            let _ = write!(stream, "{head}\r\n\r\n{metrics}");
        }
    });
}

/// The control: invalid OpenMetrics is refused, so that acceptance means something.
#[test]
fn a_server_refuses_what_is_not_openmetrics() {
    if !is_installed("prometheus") {
        return;
    }
    let cluster = Cluster::new(&[("alpha", 1)]);
    let cases = [
        ("# TYPE a counter\na_total 1\n# EOF\n", None),
        // The age of something never seen.
        ("# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds inf\n# EOF\n", None),
        ("# TYPE a counter\na_total 1\n", Some("data does not end with # EOF")),
        ("# TYPE a_seconds gauge\n# UNIT a_seconds bytes\na_seconds 1\n# EOF\n", Some("unit")),
    ];
    let listeners = cases.map(|(text, _)| {
        let listener = TcpListener::bind(cluster.at(0)).unwrap();
        let address = listener.local_addr().unwrap();
        tell(listener, text);
        address
    });
    let prometheus = Prometheus::start(&cluster, &listeners);
    for (address, (text, problem)) in listeners.into_iter().zip(cases) {
        let expected = if problem.is_some() { "down" } else { "up" };
        eventually(text, || {
            prometheus.target(address).is_some_and(|(health, said)| {
                health == expected && said.contains(problem.unwrap_or_default())
            })
        });
    }
}

/// promtool's complaints about metrics in the text format.
fn lint(text: &str) -> String {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let done = child.wait_with_output().unwrap();
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert_eq!(done.status.success(), said.is_empty(), "{}: {said}", done.status);
    said
}

#[test]
fn promtool_finds_nothing_wrong_with_the_names() {
    if !is_installed("promtool") {
        return;
    }
    let mut cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    cluster.file.edges.truncate(1);
    cluster.file.edges[0].access_log = Some(cluster.path("access.log"));
    cluster.file.ganglia.gmond = Some(cluster.at(8649));
    let _up = cluster.serving_here();
    _ = in_bursts(&cluster, 64, || {
        let answered = r#"requests_total{site="beta",code="2xx"}"#;
        eventually("both sites are asked", || cluster.figure(0, answered) > Some(64.0));
    });
    for (admin, sample) in [(cluster.admin(0), "sidelong_edge_"), (cluster.node_admin(0), "sidelong_node_")] {
        let mut client = Client::connect(admin);
        client
            .send("GET /metrics HTTP/1.1\r\nhost: any\r\naccept: text/plain; version=0.0.4\r\n\r\n")
            .unwrap();
        let page = client.reply(true).unwrap();
        assert!(page.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"), "{page:?}");
        assert!(page.body.contains(sample) && !page.body.contains("# EOF"), "{}", page.body);
        assert_eq!(lint(&page.body), "", "{}", page.body);
    }
    // The control.
    let said = lint("# TYPE a counter\na 1\n");
    assert!(said.contains("_total") && said.contains("no help text"), "{said}");
}

#[test]
fn the_alerts_are_of_metrics_that_there_are_and_fire() {
    if !is_installed("promtool") {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let directory = root.join("deploy/prometheus");
    let done = Command::new("promtool")
        .args(["test", "rules"])
        .arg(directory.join("sidelong.test.yml"))
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    // The page is compared with what parts report.
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let (rules, page) = (read(&directory.join("sidelong.rules.yml")), read(&root.join("docs/metrics.md")));
    let words = rules.split(|c: char| !c.is_alphanumeric() && c != '_');
    let names: Vec<_> = words.filter(|word| word.starts_with("sidelong_")).collect();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        assert!(page.contains(&format!("`{name}`")) || page.contains(&format!("`{name}{{")), "{name}");
    }
}
