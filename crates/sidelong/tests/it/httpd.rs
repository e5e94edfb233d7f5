//! A real httpd rejects the clients that a front's verdicts reject, at the connection or at the request, and counts them.

use crate::support::httpd::{CLOSED, Httpd, OPEN, Verdicts};
use crate::support::{Client, Cluster, eventually, get};

#[test]
fn httpd_rejects_the_clients_that_the_verdicts_reject() {
    let cluster = Cluster::new(&[("alpha", 1), ("beta", 1)]);
    let sites = ["alpha", "beta"];
    let verdicts = Verdicts::new(&cluster, &sites);
    let Some(httpd) = Httpd::start(&cluster, Some(&verdicts), &sites, "") else { return };
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
    verdicts.decided_at(1);
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
