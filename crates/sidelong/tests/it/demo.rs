//! `up --demo auction` and `load --walk auction`: persons on an auction whose servers are unmodified gunicorns.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use sidelong_config::RateEntry;

use crate::support::auction::{Auction, Books, Visitor, demo, once};
use crate::support::servers::processes_of;
use crate::support::{Client, Cluster, Running, eventually, get, run_lab, skipped, until_it_succeeds};

/// Small data for a test; `None`, with a printed reason, where gunicorn or Python is missing.
fn data(cluster: &Cluster) -> Option<PathBuf> {
    for program in ["gunicorn", "python3"] {
        let asked =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if asked.is_err() {
            skipped(&format!("auction: there is no {program} here"));
            return None;
        }
    }
    let database = cluster.path("auction.db");
    python(&["make-data", "--scale", "0.002"], &database);
    Some(database)
}

/// Runs one of the application's commands, which must succeed, on a database.
fn python(arguments: &[&str], database: &Path) {
    let done =
        Command::new("python3").arg(demo()).args(arguments).arg("--database").arg(database).output().unwrap();
    assert!(
        done.status.success(),
        "{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

/// The number of rows of a table.
fn rows(database: &Path, table: &str) -> u64 {
    let count = format!(
        "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute('SELECT COUNT(*) FROM {table}').fetchone()[0])"
    );
    let done = Command::new("python3").args(["-c", &count]).arg(database).output().unwrap();
    String::from_utf8(done.stdout).unwrap().trim().parse().unwrap()
}

/// Requests of an interaction that succeeded.
fn stored(walk: &Value, interaction: &str) -> u64 {
    let all = walk["interactions"].as_array().unwrap();
    let Some(of) = all.iter().find(|of| of["interaction"] == interaction) else { return 0 };
    let number = |name: &str| of[name].as_u64().unwrap();
    number("requests") - number("errors") - number("rejected") - number("refused_by_rules")
}

/// The sites of the demo.
fn sites() -> Cluster {
    Cluster::new(&[("auction", 2), ("files", 1), ("api", 1)])
}

/// The sites of the demo, with rates that a machine full of other tests can serve, too.
fn calm() -> Cluster {
    let mut cluster = sites();
    for (site, per_s) in [(1, 40.0), (2, 10.0)] {
        cluster.file.sites[site].rates = vec![RateEntry { at: Duration::ZERO, per_s }];
    }
    cluster
}

/// The demo, once it is up; `None`, with a printed reason, where it may not hold its servers to their part of a CPU.
fn up(cluster: &Cluster, database: &str, persons: &str) -> Option<Running> {
    let mut up = cluster.up(&["--json", "--demo", "auction", "--database", database, "--sessions", persons]);
    let mut why = None;
    eventually("it is up, or says why not", || {
        why = (!up.is_running()).then(|| up.err());
        why.is_some() || up.err().contains(" is up: ")
    });
    if let Some(why) = why {
        assert!(why.contains("cannot create a control group"), "{why}");
        skipped(&format!("up --demo auction: {}", why.trim()));
        return None;
    }
    Some(up)
}

#[test]
fn persons_bid_and_buy_while_nodes_move_and_the_audit_finds_nothing() {
    let cluster = calm();
    let Some(database) = data(&cluster) else { return };
    let (bids, purchases) = (rows(&database, "bids"), rows(&database, "purchases"));
    let Some(up) = up(&cluster, database.to_str().unwrap(), "20") else { return };
    assert!(
        up.err().contains(&format!("open http://auction.test:{}/", cluster.edge(0).port())),
        "{}",
        up.err()
    );
    // Connections that stay open have no request, whichever node answered the last one, and keep none at its site.
    let mut kept: Vec<_> = (0..8).map(|_| Client::connect(cluster.edge(0))).collect();
    for client in &mut kept[..6] {
        assert_eq!(client.ask("GET", "auction.test", "/").unwrap().status, 200);
    }
    // A node is taken from the auction, whatever the load asks for, and then left to the edges; pages come meanwhile. Both are
    // brought there first, whatever that leaves the files, because the edges may have moved either.
    let page = || get(cluster.edge(0), "auction.test", "/").body;
    assert!(page().contains("data-interaction=\"Home\""));
    for node in ["n1", "n2"] {
        until_it_succeeds(|| cluster.run(&["move", node, "auction", "--force"]));
    }
    until_it_succeeds(|| cluster.run(&["move", "n1", "files"]));
    drop(kept);
    assert!(page().contains("data-interaction=\"Home\""));
    assert_eq!(get(cluster.edge(0), "files.test", "/o/3/8192").body.len(), 8192);
    assert!(get(cluster.edge(0), "api.test", "/api/categories").body.contains("Antiques"));
    cluster.run(&["resume", "n1"]).succeeded();
    cluster.run(&["resume", "n2"]).succeeded();
    assert!(!processes_of(&cluster, "n1-server").is_empty(), "it is a gunicorn");
    std::thread::sleep(Duration::from_secs(3));
    let summary = up.end().json();
    let walk = &summary["walk"];
    assert_eq!((&summary["errors"], &walk["errors"]), (&Value::from(0), &Value::from(0)), "{summary}");
    for site in summary["sites"].as_array().unwrap() {
        assert!(site["requests"].as_u64() > Some(0), "{summary}");
    }
    assert!(walk["sessions"]["begun"].as_u64() >= Some(10), "{walk}");
    // Each bid and purchase that was answered is stored, and no other.
    assert_eq!(rows(&database, "bids"), bids + stored(walk, "StoreBid"));
    assert_eq!(rows(&database, "purchases"), purchases + stored(walk, "StoreBuyNow"));
    python(&["audit"], &database);
    assert!(!cluster.run_dir().join("auction").exists(), "what it made is gone");
}

#[test]
fn they_do_so_on_postgresql_too() {
    let Some(books) = Auction::new(Books::PostgreSql) else { return };
    let before = books.audit();
    let cluster = calm();
    let Some(up) = up(&cluster, &books.database, "20") else { return };
    // Somebody beside the persons, of whom few get that far in a short time.
    let (mut seller, mut bidder) = (Visitor::at(cluster.edge(0)), Visitor::at(cluster.edge(0)));
    let item = seller.sign_in(1).sell("Pieces", 10, 5);
    assert_eq!(bidder.sign_in(2).bid(item, 50, &once()).unwrap().status, 200);
    // Nodes move meanwhile, whatever the load asks for.
    until_it_succeeds(|| cluster.run(&["move", "n1", "files"]));
    cluster.run(&["resume", "n1"]).succeeded();
    std::thread::sleep(Duration::from_secs(3));
    let summary = up.end().json();
    let walk = &summary["walk"];
    assert_eq!((&summary["errors"], &walk["errors"]), (&Value::from(0), &Value::from(0)), "{summary}");
    let after = books.audit();
    for (table, interaction, more) in [("bids", "StoreBid", 1), ("purchases", "StoreBuyNow", 0)] {
        let added = (after[table].0 - before[table].0) as u64;
        assert_eq!(added, stored(walk, interaction) + more, "{table}: {walk}");
    }
}

/// On a machine of any speed.
#[test]
fn its_own_load_moves_nodes() {
    let cluster = sites();
    let Some(database) = data(&cluster) else { return };
    let Some(up) = up(&cluster, database.to_str().unwrap(), "50") else { return };
    eventually("an edge moves a node by load", || {
        let history = cluster.run(&["history", "--json"]).json();
        let by_edge = |moved: &Value| moved["by"].as_str().is_some_and(|by| by.starts_with("edge"));
        history.as_array().unwrap().iter().any(|moved| moved["how"] == "moved" && by_edge(moved))
    });
    assert!(up.end().json()["moves"].as_u64() > Some(0));
}

#[test]
fn a_database_without_an_auction_is_refused() {
    let cluster = sites();
    if data(&cluster).is_none() {
        return;
    }
    let empty = cluster.path("empty.db");
    std::fs::write(&empty, "").unwrap();
    for (database, why) in [
        (empty.to_str().unwrap(), "empty.db (no such table: items): make one with make-data"),
        (cluster.path("none.db").to_str().unwrap(), "there is no such file"),
    ] {
        let said = cluster.up(&["--demo", "auction", "--database", database]).finish().refused();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_load_walks_any_server_of_the_auction_and_ends_with_a_summary() {
    let cluster = Cluster::new(&[("auction", 1)]);
    let Some(database) = data(&cluster) else { return };
    let address = cluster.node(0).to_string();
    let mut command = Command::new("gunicorn");
    command.args(["--bind", &address, "--workers", "2", "--log-level", "warning", "--chdir"]).arg(demo());
    command.arg("--env").arg(format!("AUCTION_DATABASE={}", database.display())).arg("app");
    let server = Running::start_command(command);
    eventually("it answers", || crate::support::try_get(cluster.node(0), "any", "/health").is_ok());

    let url = format!("http://{address}");
    let load =
        ["load", "--walk", "auction", "--rate", "20", "--think", "0.01", "--json", "--for", "2s", &url];
    let done = run_lab(load).json();
    assert_eq!((&done["errors"], &done["refused_by_rules"].is_u64()), (&Value::from(0), &true), "{done}");
    assert!(done["sessions"]["whole"].as_u64() > Some(0), "{done}");
    assert_eq!(done["sessions"]["left"], 0, "{done}");

    let walk = Running::start_lab([
        "load",
        "--walk",
        "auction",
        "--mix",
        "browsing",
        "--sessions",
        "30",
        "--think",
        "0.05",
        &url,
    ]);
    eventually("it tells of progress", || walk.err().contains(" sessions  "));
    walk.signal(Signal::INT);
    let done = walk.finish();
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.contains("interaction ") && done.out.contains("SearchItemsInCategory "), "{done:?}");
    assert!(!done.out.contains("StoreBid"), "who browses stores nothing: {done:?}");
    python(&["audit"], &database);
    server.end();

    let mut nobody = vec!["load", "--walk", "auction", "--for", "200ms", "--think", "0.01", &url];
    nobody.extend(["--leave-at", "1", "--addresses", "50"]);
    let done = run_lab(nobody);
    assert_eq!(done.code, Some(2), "{done:?}");
    let sessions = done.out.lines().find(|line| line.contains("sessions began")).unwrap();
    let counts: Vec<u64> = sessions.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [_, ended, whole, left] = counts[..] else { panic!("{sessions}") };
    assert!(ended > 0 && whole == 0 && left == ended, "{sessions}");
    assert!(done.err.contains("found no server"), "{done:?}");
}
