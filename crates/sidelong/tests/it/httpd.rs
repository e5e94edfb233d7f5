//! A real httpd rejects the clients that Sidelong's verdicts reject, and the C library decides as the edges do.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use sidelong_layout::{LAYOUT_VERSION, NAME_BYTES, RegionKind};
use sidelong_load::monotonic_ns;
use sidelong_policy::admission::{Client as Asker, Treatment, Verdict, Why, decide};

use crate::support::httpd::{CIRCLE, CLOSED, Httpd, OPEN, ROTATION, Verdicts, made, readable, word};
use crate::support::{Client, Cluster, Done, Running, eventually, get, try_get};

/// The library's own decision on connections from these addresses.
fn asked(build: &Path, file: &Path, site: &str, addresses: &[SocketAddr]) -> Done {
    let mut ask = Command::new(build.join("decide"));
    ask.arg(file).arg(site);
    for address in addresses {
        ask.arg(address.ip().to_string()).arg(address.port().to_string());
    }
    Running::start_command(ask).finish()
}

#[test]
fn the_library_decides_as_an_edge_does() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    let Some(build) = made(&cluster, "decide") else { return };
    let long_name = "n".repeat(NAME_BYTES);
    let verdicts = Verdicts::new(&cluster, &["alpha", &long_name]);
    let ips = ["127.0.0.1", "203.0.113.7", "::1", "2001:db8::1:2", "::ffff:203.0.113.7"];
    let addresses: Vec<SocketAddr> = (0..40u16)
        .map(|k| SocketAddr::new(ips[usize::from(k) % ips.len()].parse().unwrap(), 1000 + 977 * k))
        .collect();
    let parts = [0, 1, CIRCLE / 7, CIRCLE / 2, CIRCLE - 1, CIRCLE];
    for (part, turn, why) in
        parts.into_iter().flat_map(|part| [(part, 0, 3), (part, CIRCLE / 3, 4), (part, CIRCLE - 1, 5)])
    {
        let word = word(part, turn, why);
        for (site, name) in [(0, "alpha"), (1, long_name.as_str())] {
            verdicts.decide(site, word);
            let said = asked(&build, &verdicts.file, name, &addresses).succeeded();
            let verdict = Verdict::decode(word);
            let expected: String = addresses
                .iter()
                .map(|address| {
                    let client = Asker::new(*address);
                    match decide(verdict, Treatment::ByConnection, client, 0, ROTATION) {
                        Ok(()) => format!("1 {} 0\n", verdict.why().word()),
                        Err(refused) => format!("0 {} {}\n", refused.why.word(), refused.retry_after_s),
                    }
                })
                .collect();
            assert_eq!(said, expected, "{part} {turn} {why}");
        }
    }
    let one = |site: &str| asked(&build, &verdicts.file, site, &addresses[..1]).succeeded();
    for (code, why) in Why::ALL.iter().enumerate() {
        verdicts.decide(0, word(CIRCLE, 0, code as u64));
        assert_eq!(one("alpha"), format!("1 {} 0\n", why.word()), "{why:?}");
    }
    verdicts.decide(0, CLOSED);
    assert!(one("alpha").starts_with("0 over-target"));
    assert_eq!(one("gamma"), "1 no-such-site 0\n");
    verdicts.decided_at(0, monotonic_ns() - 200_000_000);
    assert_eq!(one("alpha"), "1 stale-verdict 0\n");
    verdicts.decided_at(0, 0);
    assert_eq!(one("alpha"), "1 stale-verdict 0\n");
    verdicts.decide(0, word(0, 0, 7));
    assert_eq!(one("alpha"), "1 no-target 0\n", "a word that no verdict is");
}

/// The message about a file of the next version.
fn of_another_version() -> String {
    format!("of layout version {}, this library reads {LAYOUT_VERSION}", LAYOUT_VERSION + 1)
}

#[test]
fn what_holds_no_verdicts_is_refused_by_name() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let Some(build) = made(&cluster, "decide") else { return };
    let verdicts = Verdicts::new(&cluster, &["alpha"]);
    let bytes = std::fs::read(&verdicts.file).unwrap();
    let file = cluster.path("file");
    let refused = |bytes: &[u8]| {
        std::fs::write(&file, bytes).unwrap();
        let done = asked(&build, &file, "alpha", &[]);
        assert_eq!(done.code, Some(1), "{done:?}");
        done.err.strip_prefix(&format!("decide: {}: ", file.display())).unwrap().trim().to_owned()
    };
    let mut other = bytes.clone();
    other[8] += 1;
    assert_eq!(refused(&other), format!("{}: install those of one release", of_another_version()));
    other.clone_from(&bytes);
    other[12] = RegionKind::Raw as u8;
    assert_eq!(refused(&other), "a region, and none of verdicts");
    assert_eq!(refused(b""), "no Sidelong region");
    assert_eq!(refused(&[0; 4096]), "no Sidelong region");
    assert_eq!(refused(&bytes[..bytes.len() - 8]), "of another length than its header says");
    let nowhere = asked(&build, Path::new("/nowhere"), "alpha", &[]).err;
    assert_eq!(nowhere, "decide: /nowhere: No such file or directory; `sidelong helper` makes it\n");
}

#[test]
fn verdicts_that_are_truncated_admit_all_and_end_no_server() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    let sites = ["alpha", "beta"];
    let file = Verdicts::new(&cluster, &sites).file;
    readable(file.parent().unwrap(), 0o755);
    let Some(httpd) = Httpd::start(&cluster, Some(&file), &sites, "") else { return };
    for left in [0, 100] {
        let verdicts = Verdicts::new(&cluster, &sites);
        verdicts.decide(0, CLOSED);
        eventually("the verdict is read", || httpd.status("alpha") == 503);
        File::options().write(true).open(&verdicts.file).unwrap().set_len(left).unwrap();
        eventually("all are admitted", || httpd.status("alpha") == 200);
        assert_eq!(sites.map(|site| httpd.status(site)), [200, 200]);
    }
}

#[test]
fn httpd_turns_away_whom_the_verdicts_do() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    let sites = ["alpha", "beta"];
    let verdicts = Verdicts::new(&cluster, &sites);
    readable(verdicts.file.parent().unwrap(), 0o755);
    let Some(httpd) = Httpd::start(&cluster, Some(&verdicts.file), &sites, "") else { return };
    assert_eq!(sites.map(|site| httpd.status(site)), [200, 200]);

    verdicts.decide(0, CLOSED);
    let refused = get(httpd.address, "alpha.test", "/file");
    let retry_after_s: u32 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!(refused.status == 503 && (1..=5).contains(&retry_after_s), "{refused:?}");
    assert_eq!(refused.header("x-sidelong-reason"), Some("over-target"));
    assert_eq!(httpd.status("beta"), 200, "a connection may be for the other site");

    // Established connections are never cut.
    let mut kept = [0, 1].map(|_| Client::connect(httpd.address));
    for client in &mut kept {
        assert_eq!(client.ask("GET", "beta.test", "/file").unwrap().status, 200);
    }
    verdicts.decide(1, CLOSED);
    assert!(httpd.closes(), "no site lets it in");
    let refused = kept[0].ask("GET", "beta.test", "/file").unwrap();
    // After a 503 httpd ends every connection, and announces it.
    assert_eq!((refused.status, refused.header("connection")), (503, Some("close")));
    verdicts.decide(1, OPEN);
    assert_eq!(kept[1].ask("GET", "beta.test", "/file").unwrap().status, 200);

    // The last verdict is older than a verdict may be.
    verdicts.decide(1, CLOSED);
    assert!(httpd.closes());
    for site in [0, 1] {
        verdicts.decided_at(site, monotonic_ns() - 1_000_000_000);
    }
    assert_eq!(sites.map(|site| httpd.status(site)), [200, 200]);
    eventually("it says so", || httpd.said().contains("nothing is known of site"));

    // mod_status counts.
    let status = get(httpd.address, "alpha.test", "/server-status?auto").body;
    let counts = |site: &str| -> Vec<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("Sidelong-{site}: ")));
        line.unwrap_or_else(|| panic!("{status}"))
            .split(' ')
            .skip(1)
            .map(|word| word.parse().unwrap())
            .collect()
    };
    // Admitted, of these without a verdict, rejected.
    assert_eq!(counts("beta")[..3], [6, 1, 1], "{status}");
    assert_eq!(counts("alpha")[2], 1, "{status}");
    let closed: u64 = sites.iter().map(|site| counts(site)[3]).sum();
    assert_eq!(closed, 2, "{status}");
}

#[test]
fn httpd_says_what_is_wrong_with_its_configuration_and_its_file() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let verdicts = Verdicts::new(&cluster, &["alpha"]);
    readable(verdicts.file.parent().unwrap(), 0o755);
    verdicts.decide(0, CLOSED);
    let mut bytes = std::fs::read(&verdicts.file).unwrap();
    bytes[8] += 1;
    let other = cluster.path("verdicts").join("other");
    std::fs::write(&other, bytes).unwrap();
    let Some(httpd) = Httpd::start(&cluster, Some(&other), &["alpha"], "") else { return };
    assert_eq!(httpd.status("alpha"), 200);
    let said = httpd.said();
    assert!(said.contains(&of_another_version()) && said.contains("all clients are admitted"), "{said}");
    // It is replaced by a file that can be read.
    std::fs::rename(&verdicts.file, &other).unwrap();
    eventually("the new file is taken", || httpd.closes());
}

#[test]
fn restarts_of_httpd_leave_nothing_behind() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let verdicts = Verdicts::new(&cluster, &["alpha"]);
    readable(verdicts.file.parent().unwrap(), 0o755);
    let Some(httpd) = Httpd::start(&cluster, Some(&verdicts.file), &["alpha"], "") else { return };
    for _ in 0..3 {
        httpd.restart();
        assert_eq!(httpd.status("alpha"), 200);
    }
    assert_eq!(httpd.descriptors(&verdicts.file), 1);
    verdicts.decide(0, CLOSED);
    eventually("those who serve now decide by it", || httpd.closes());
}

/// All parts together: load on a node, a helper that reads it one-sidedly, and httpd in front of the node.
#[test]
fn a_helper_decides_by_what_waits_at_the_nodes() {
    let mut cluster = Cluster::new(&[("alpha", 1)]).with_service(Duration::from_millis(20));
    cluster.file.sites[0].queue_max = Some(Duration::from_millis(40));
    let node = cluster.node(0);
    let directory = cluster.path("shown");
    let file = directory.join("verdicts.region");
    let proxied = format!("ProxyPass /server-status !\nProxyPass / http://{node}/");
    let helper = || {
        let config = cluster.config();
        let arguments =
            ["helper", "--config", config.to_str().unwrap(), "--dir", directory.to_str().unwrap()];
        let helper = Running::start(arguments);
        eventually("the helper says where its verdicts are", || helper.out().contains("verdicts on 1 sites"));
        helper
    };
    let _node = cluster.part("node", "n1");
    eventually("the node serves", || try_get(node, "any", "/healthz").is_ok());
    let first = helper();
    let Some(httpd) = Httpd::start(&cluster, Some(&file), &["alpha"], &proxied) else { return };
    // Until the node was seen to answer, nothing is known of it.
    let asks = || get(httpd.address, "alpha.test", "/o/1/100").status;
    for _ in 0..20 {
        assert_eq!(asks(), 200);
    }
    let stop = AtomicBool::new(false);
    let turned_away =
        || (0..40).filter(|_| try_get(httpd.address, "alpha.test", "/o/1/100").is_err()).count();
    std::thread::scope(|scope| {
        // Sixteen clients other than httpd's send eight times what the node does in the time that they may wait.
        for _ in 0..16 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = try_get(node, "alpha.test", "/o/1/100");
                }
            });
        }
        eventually("some are rejected", || turned_away() > 0);
        first.signal(Signal::STOP);
        eventually("a helper that hangs turns nobody away", || turned_away() == 0);
        first.signal(Signal::CONT);
        eventually("and again", || turned_away() > 0);
        first.kill();
        eventually("a dead one neither", || turned_away() == 0);
        let second = helper();
        eventually("and again", || turned_away() > 0);
        second.end().succeeded();
        assert_eq!(turned_away(), 0, "from its end on");
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_helper_of_sites_without_promises_says_so() {
    let cluster = Cluster::new(&[("alpha", 1)]);
    let line = cluster.run(&["helper"]).refused();
    assert!(line.contains("no site has response_ms_p99 or queue_ms_max"), "{line}");
}
