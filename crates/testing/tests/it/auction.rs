//! The demo auction on unmodified gunicorn, SQLite and PostgreSQL: its pages, its rules, and its books after everything that may
//! happen to its servers and its database. Each test ends with the audit.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Signal, geteuid, kill_process};
use serde_json::Value;

use sidelong_testing::auction::{Auction, Books, USERS, Visitor, between, demo, interaction, once};
use sidelong_testing::servers::family;
use sidelong_testing::{Client, Reply, Running, eventually, get, skipped};

/// The auctions that this machine can run.
fn auctions() -> impl Iterator<Item = Auction> {
    [Books::Sqlite, Books::PostgreSql].into_iter().filter_map(Auction::new)
}

/// The interactions of the contract: the name, the method, and the path with its capitals.
fn contract() -> Vec<(String, String, String)> {
    let text = std::fs::read_to_string(demo().join("PAGES.md")).unwrap();
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [_, number, name, request, _, _] = cells[..] else { return None };
        number.parse::<u32>().ok()?;
        let (method, path) = request.trim_matches('`').split_once(' ')?;
        let name = if name.starts_with("AboutMe (auth") { "AboutMeAuth" } else { name };
        Some((name.to_owned(), method.to_owned(), path.to_owned()))
    };
    text.lines().filter_map(row).collect()
}

/// A path with the capitals of the contract in the place of numbers.
fn shape(path: &str) -> String {
    let path = path.split('?').next().unwrap();
    let mut before = "";
    let parts = path.split('/').map(|part| {
        let letter = match before {
            "categories" => "C",
            "regions" => "R",
            "users" => "U",
            _ => "I",
        };
        before = part;
        if part.parse::<u64>().is_ok() { letter } else { part }
    });
    parts.collect::<Vec<_>>().join("/")
}

fn found(reply: &Reply, before: &str) -> String {
    between(&reply.body, before, "\"").unwrap_or_else(|| panic!("no {before} in {}", reply.body)).to_owned()
}

/// The first of the items whose auctions are open that has a buy-now price, or has none.
fn an_open_item(visitor: &mut Visitor, with_buy_now: bool) -> u64 {
    let mut path = "/api/items".to_owned();
    loop {
        let page: Value = serde_json::from_str(&visitor.get(&path).body).unwrap();
        let fits = |item: &&Value| (item["buy_now"].as_u64().unwrap() > 0) == with_buy_now;
        if let Some(item) = page["items"].as_array().unwrap().iter().find(fits) {
            return item["id"].as_u64().unwrap();
        }
        page["next"].as_str().expect("an item such as this").clone_into(&mut path);
    }
}

/// Each of the interactions, by what the pages before it say.
#[test]
fn every_interaction_answers_with_its_page() {
    for auction in auctions() {
        let _server = auction.serve(2);
        let mut visitor = auction.visitor();
        let mut seen = BTreeSet::new();
        let mut go = |visitor: &mut Visitor, method: &str, path: &str, fields: &[(&str, &str)]| {
            let reply = if method == "GET" { visitor.get(path) } else { visitor.post(path, fields) };
            assert_eq!(reply.status, 200, "{method} {path}: {reply:?}");
            assert_eq!(reply.header("x-served-by"), Some("n1"));
            seen.insert((interaction(&reply).to_owned(), method.to_owned(), shape(path)));
            reply
        };
        let home = go(&mut visitor, "GET", "/", &[]);
        assert_eq!(found(&home, "data-users=\""), USERS.to_string());
        let form = go(&mut visitor, "GET", "/register", &[]);
        assert!(form.body.contains("action=\"/register\""));
        let person =
            [("firstname", "Ann"), ("lastname", "Other"), ("nickname", "ann"), ("password", "long enough")];
        let fields = [&person[..], &[("email", "ann@example.org"), ("region", "3")]].concat();
        go(&mut visitor, "POST", "/register", &fields);
        go(&mut visitor, "GET", "/browse", &[]);
        let categories = go(&mut visitor, "GET", "/categories", &[]);
        // Collectibles have the most items.
        assert!(categories.body.contains("href=\"/categories/6/items\""));
        let found_items = go(&mut visitor, "GET", "/categories/6/items?page=1", &[]);
        let number: u64 = found(&found_items, "href=\"/items/").parse().unwrap();
        let regions = go(&mut visitor, "GET", "/regions", &[]);
        assert!(regions.body.contains("href=\"/regions/2/categories\""));
        let categories = go(&mut visitor, "GET", "/regions/2/categories", &[]);
        assert!(categories.body.contains("href=\"/regions/2/categories/6/items\""));
        go(&mut visitor, "GET", "/regions/2/categories/6/items", &[]);
        let number = [number, an_open_item(&mut visitor, true)];
        for item in number {
            let page = go(&mut visitor, "GET", &format!("/items/{item}"), &[]);
            go(&mut visitor, "GET", &format!("/users/{}", found(&page, "href=\"/users/")), &[]);
            go(&mut visitor, "GET", &format!("/items/{item}/bids"), &[]);
        }
        let item = number[1];
        let who = [("nickname", "ann"), ("password", "long enough")];
        let steps = [("buy", "/purchases"), ("bid", "/bids"), ("comment", "/comments"), ("bid", "/bids")];
        for (act, store) in steps {
            let form = go(&mut visitor, "GET", &format!("/items/{item}/{act}/sign-in"), &[]);
            assert!(form.body.contains(&format!("action=\"/items/{item}/{act}\"")));
            let form = go(&mut visitor, "POST", &format!("/items/{item}/{act}"), &who);
            assert!(form.body.contains(&format!("action=\"/items/{item}{store}\"")), "{}", form.body);
            let once = found(&form, "name=\"once\" value=\"");
            let least =
                between(&form.body, "name=\"bid\" type=\"number\" required min=\"", "\"").unwrap_or("");
            let rest = match act {
                "buy" if form.body.contains("max=\"1\"") => continue,
                "buy" => vec![("qty", "1")],
                "bid" => vec![("qty", "1"), ("bid", least)],
                _ => vec![("rating", "3"), ("comment", "Fine.\r\nAs told.")],
            };
            let fields = [&rest[..], &[("once", once.as_str())]].concat();
            go(&mut visitor, "POST", &format!("/items/{item}{store}"), &fields);
        }
        go(&mut visitor, "GET", "/sell", &[]);
        let categories = go(&mut visitor, "POST", "/sell/categories", &who);
        assert!(categories.body.contains("href=\"/sell/categories/20\""));
        go(&mut visitor, "GET", "/sell/categories/2", &[]);
        let sold = visitor.sell("An atlas", 3, 20);
        visitor.sign_in(7);
        // The one on which everything was bought above might have had one piece only.
        go(&mut visitor, "POST", &format!("/items/{sold}/purchases"), &[("qty", "2"), ("once", &once())]);
        go(&mut visitor, "GET", "/me/sign-in", &[]);
        let me = go(&mut visitor, "POST", "/me", &who);
        assert!(
            me.body.contains(&format!("href=\"/items/{item}\""))
                && me.body.contains(&format!("/items/{sold}\""))
        );
        // `sell` has seen its page.
        seen.insert(("RegisterItem".to_owned(), "POST".to_owned(), "/items".to_owned()));
        let missing: Vec<_> = contract().into_iter().filter(|row| !seen.contains(row)).collect();
        assert_eq!((missing, contract().len()), (vec![], 27));
        let sums = auction.audit();
        assert!(sums["purchases"].0 >= 1 && sums["comments"].0 > 1, "{sums:?}");
    }
}

#[test]
fn what_is_not_allowed_is_refused_and_changes_nothing() {
    for auction in auctions() {
        let _server = auction.serve(2);
        let mut visitor = auction.visitor();
        visitor.get("/");
        let before = auction.audit();
        let who = |nickname, password| [("nickname", nickname), ("password", password)];
        for (nickname, password) in [
            ("user1", "password2"),
            ("user1", ""),
            ("nobody", "password1"),
            ("' OR 1=1 --", "x"),
            ("user1\0", "password1\0"),
        ] {
            assert_eq!(visitor.post("/me", &who(nickname, password)).status, 401, "{nickname}");
        }
        let item = an_open_item(&mut visitor, true);
        assert_eq!(visitor.bid(item, 1_000_000, &once()).unwrap().status, 401);
        visitor.sign_in(1);
        let mine = visitor.cookie.clone();
        // Another's token, no token, a cookie that was tampered with.
        let token = std::mem::replace(&mut visitor.token, "0".repeat(64));
        assert_eq!(visitor.bid(item, 1_000_000, &once()).unwrap().status, 403);
        visitor.token.clear();
        assert_eq!(visitor.bid(item, 1_000_000, &once()).unwrap().status, 403);
        visitor.cookie = mine.replacen("session=1.", "session=2.", 1);
        visitor.token.clone_from(&token);
        assert_eq!(visitor.bid(item, 1_000_000, &once()).unwrap().status, 403);
        visitor.cookie = mine;
        visitor.token = token;
        let mut field = |name, value| {
            let mut fields = vec![("bid", "1000000"), ("qty", "1"), ("once", "0123456789")];
            fields.retain(|field| field.0 != name);
            fields.push((name, value));
            visitor.post(&format!("/items/{item}/bids"), &fields).status
        };
        for (name, values) in [
            (
                "bid",
                &["", "x", "-5", "1.5", "0", "99999999999999999999", "１", "1e3", "1; DROP TABLE bids"][..],
            ),
            ("qty", &["", "0", "1001"]),
            ("once", &["", "short", "with space in it", "' OR ''='        "]),
        ] {
            for value in values {
                assert_eq!(field(name, value), 400, "{name}={value}");
            }
        }
        assert_eq!(field("bid", "1"), 409);
        assert_eq!(field("qty", "1000"), 409);
        for (method, path, form, status) in [
            ("GET", "/nothing", "", 404),
            ("GET", "/items/999999999", "", 404),
            ("GET", "/items/0", "", 404),
            ("GET", "/items/%00", "", 404),
            ("GET", "/categories/21/items", "", 404),
            ("GET", "/categories/2/items?page=0", "", 400),
            ("GET", "/categories/2/items?page=1%00", "", 400),
            ("GET", "/categories/2/items?q=%00%25_%5C'%22", "", 200),
            ("DELETE", "/items/1", "", 405),
            ("POST", "/browse", "", 405),
            ("HEAD", "/items/1", "", 200),
            ("POST", "/items", &"x".repeat(70_000), 413),
            ("POST", "/items", "name=%ff", 400),
            ("POST", "/items", &"a=1&".repeat(100), 400),
        ] {
            let reply = visitor.try_send(method, path, form).unwrap();
            assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
        }
        assert_eq!(auction.audit(), before);
    }
}

/// A form in pieces, of which the last never comes.
#[test]
fn who_leaves_in_mid_form_has_sent_nothing() {
    let Some(auction) = Auction::new(Books::Sqlite) else { return };
    let _server = auction.serve(1);
    let mut visitor = auction.visitor();
    let item = visitor.sign_in(1).sell("Pieces", 100, 5);
    visitor.sign_in(2);
    let before = auction.audit();
    let form = format!("csrf={}&once={}&qty=10", visitor.token, once());
    let (length, cookie) = (form.len(), &visitor.cookie);
    for sent in [length - 1, length - 2, 20, 0] {
        let mut client = Client::connect(auction.cluster.node(0));
        let head = format!("host: auction.test\r\ncookie: {cookie}\r\ncontent-length: {length}\r\n");
        client.send(format!("POST /items/{item}/purchases HTTP/1.1\r\n{head}\r\n{}", &form[..sent])).unwrap();
        drop(client);
        // The server's one worker answers this when it has done with that.
        assert_eq!(get(auction.cluster.node(0), "auction.test", "/health").status, 200);
    }
    assert_eq!(auction.audit(), before);
}

#[test]
fn pages_tell_browsers_what_they_may_do() {
    let Some(auction) = Auction::new(Books::Sqlite) else { return };
    let _server = auction.serve(1);
    let mut visitor = auction.visitor();
    let page = visitor.get("/");
    let cookie = page.header("set-cookie").unwrap();
    assert!(cookie.contains("; HttpOnly") && cookie.contains("; SameSite=Lax"), "{cookie}");
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(page.header("cache-control"), Some("no-store"));
    assert!(visitor.get("/browse").header("set-cookie").is_none(), "one cookie is enough");
    let before = visitor.cookie.clone();
    visitor.sign_in(1);
    assert_ne!(visitor.cookie, before, "a session from before the sign-in is worth nothing after it");
    assert!(visitor.get("/").body.contains(">user1</a>"));
    assert_eq!(visitor.post("/sign-out", &[]).status, 303);
    assert_eq!(visitor.get("/me").header("location"), Some("/me/sign-in"));
}

#[test]
fn what_people_write_is_text() {
    for auction in auctions() {
        let _server = auction.serve(1);
        let mut visitor = auction.visitor();
        visitor.sign_in(1);
        let evil = "<script>alert('1')</script>\"'&{title}";
        let item = visitor.sell(evil, 1, 0);
        visitor.sign_in(2);
        let fields = [("rating", "-5"), ("comment", evil), ("once", &*once())];
        assert_eq!(visitor.post(&format!("/items/{item}/comments"), &fields).status, 200);
        let seller = found(&visitor.get(&format!("/items/{item}")), "href=\"/users/");
        let search = format!("/categories/2/items?q={}", sidelong_testing::auction::escaped(evil));
        for path in
            [format!("/items/{item}"), format!("/items/{item}/bids"), format!("/users/{seller}"), search]
        {
            let page = visitor.get(&path);
            assert_eq!(page.status, 200, "{path}");
            assert!(!page.body.contains("<script"), "{path}: {}", page.body);
            assert!(
                page.body
                    .contains("&lt;script&gt;alert(&#x27;1&#x27;)&lt;/script&gt;&quot;&#x27;&amp;{title}"),
                "{path}"
            );
        }
        auction.audit();
    }
}

#[test]
fn a_form_that_arrives_twice_is_stored_once() {
    for auction in auctions() {
        let _server = auction.serve(2);
        let mut seller = auction.visitor();
        let item = seller.sign_in(1).sell("Pieces", 10, 5);
        let before = auction.audit();
        let [bid, purchase, comment, sale] = [once(), once(), once(), once()];
        let (mut one, mut other) = (auction.visitor(), auction.visitor());
        one.sign_in(2);
        other.sign_in(3);
        for _ in 0..2 {
            assert_eq!(one.bid(item, 50, &bid).unwrap().status, 200);
            assert_eq!(one.buy(item, 2, &purchase).unwrap().status, 200);
            let fields = [("rating", "5"), ("comment", "Good"), ("once", comment.as_str())];
            assert_eq!(one.post(&format!("/items/{item}/comments"), &fields).status, 200);
            let fields = [("name", "Mine"), ("description", "x"), ("category", "1"), ("initial_price", "1")];
            let more = [
                ("reserve_price", "0"),
                ("buy_now", "0"),
                ("quantity", "1"),
                ("duration", "1"),
                ("once", &*sale),
            ];
            assert_eq!(
                one.post("/items", &[fields, [more[0], more[1], more[2], more[3]]].concat()).status,
                400
            );
            assert_eq!(one.post("/items", &[&fields[..], &more].concat()).status, 200);
        }
        // What belongs to another form is not taken for this one's.
        assert_eq!(other.bid(item, 60, &bid).unwrap().status, 409);
        assert_eq!(one.bid(1, 60, &bid).unwrap().status, 409);
        let after = auction.audit();
        assert_eq!(after["bids"], (before["bids"].0 + 1, before["bids"].1 + 50));
        assert_eq!(after["purchases"], (1, 2));
        assert_eq!(after["comments"], (before["comments"].0 + 1, before["comments"].1 + 5));
        assert_eq!(after["items"].0, before["items"].0 + 1);
    }
}

/// Most purchases of each of a crowd, so that all of its pieces are sold only where the test means it.
const PURCHASES_MAX: i64 = 20;

/// Bidders and buyers of one item, who repeat a form that was not answered until it is. Returns what was answered with success:
/// bids, the sum of the bids, purchases.
fn crowd(address: SocketAddr, item: u64, stop: &AtomicBool) -> (i64, i64, i64) {
    let person = move |user: u64| {
        let mut visitor = Visitor::at(address);
        // Servers may be away already.
        eventually("a page", || visitor.try_send("GET", "/", "").is_ok_and(|reply| reply.status == 200));
        let who = [("nickname", format!("user{user}")), ("password", format!("password{user}"))];
        let who = [(who[0].0, &*who[0].1), (who[1].0, &*who[1].1)];
        eventually("a sign-in", || visitor.try_post("/me", &who).is_ok_and(|reply| reply.status == 200));
        let (mut bids, mut sum, mut purchases) = (0, 0, 0);
        let mut next = 1 + user;
        while !stop.load(Ordering::Relaxed) {
            let once = once();
            let mut status = 0;
            let buys = next.is_multiple_of(5) && purchases < PURCHASES_MAX;
            eventually("an answer", || {
                let reply = if buys { visitor.buy(item, 1, &once) } else { visitor.bid(item, next, &once) };
                status = reply.map_or(0, |reply| reply.status);
                assert!([0, 200, 409, 503].contains(&status), "{status}");
                status == 200 || status == 409
            });
            match status {
                200 if buys => purchases += 1,
                200 => (bids, sum) = (bids + 1, sum + next as i64),
                _ => {}
            }
            next += 1 + user % 3;
        }
        (bids, sum, purchases)
    };
    std::thread::scope(|scope| {
        let people: Vec<_> = (2..8).map(|user| scope.spawn(move || person(user))).collect();
        let told = people.into_iter().map(|person| person.join().unwrap());
        told.fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2))
    })
}

/// Waits until an item has another bid.
fn another_bid(auction: &Auction, item: u64) {
    let mut visitor = auction.visitor();
    let mut first = None;
    eventually("another bid", || {
        let Ok(reply) = visitor.try_send("GET", &format!("/api/items/{item}"), "") else { return false };
        let Ok(item) = serde_json::from_str::<Value>(&reply.body) else { return false };
        let Some(bids) = item["nb_of_bids"].as_u64() else { return false };
        bids > *first.get_or_insert(bids)
    });
}

/// Runs a crowd during `events`, and compares what it was told with the books.
fn crowd_during(auction: &mut Auction, pieces: u64, events: impl FnOnce(&mut Auction, u64)) {
    let item = auction.visitor().sign_in(1).sell("Pieces", pieces, 3);
    let before = auction.audit();
    let stop = AtomicBool::new(false);
    // The crowd asks over the network alone, and needs nothing of the auction but its address.
    let address = auction.cluster.node(0);
    let told = std::thread::scope(|scope| {
        let crowd = scope.spawn(|| crowd(address, item, &stop));
        events(auction, item);
        stop.store(true, Ordering::Relaxed);
        crowd.join().unwrap()
    });
    let after = auction.audit();
    let stored =
        (after["bids"].0 - before["bids"].0, after["bids"].1 - before["bids"].1, after["purchases"].1);
    assert_eq!(stored, told, "bids, their sum, purchases");
    assert!(told.0 > 0, "somebody has bid");
}

#[test]
fn bids_and_purchases_at_once_add_up() {
    for mut auction in auctions() {
        let _server = auction.serve(4);
        crowd_during(&mut auction, 20, |auction, _| {
            // Until all are bought, and a while after that.
            let mut visitor = auction.visitor();
            eventually("the auction ends", || {
                visitor.get("/api/items?q=Pieces").body.contains("\"items\": []")
            });
        });
        assert_eq!(auction.audit()["purchases"], (20, 20), "each piece is sold, and none twice");
    }
}

#[test]
fn servers_killed_in_the_middle_lose_and_repeat_nothing() {
    for mut auction in auctions() {
        let server = auction.serve(3);
        crowd_during(&mut auction, 1000, |auction, item| {
            for _ in 0..5 {
                another_bid(auction, item);
                let mut workers = vec![];
                eventually("workers", || {
                    workers = family(&server)[1..].to_vec();
                    workers.len() == 3
                });
                workers.iter().for_each(|pid| _ = kill_process(*pid, Signal::KILL));
            }
        });
    }
}

#[test]
fn a_database_killed_in_the_middle_loses_nothing_and_is_found_again() {
    let Some(mut auction) = Auction::new(Books::PostgreSql) else { return };
    let _server = auction.serve(3);
    crowd_during(&mut auction, 1000, |auction, item| {
        for _ in 0..3 {
            another_bid(auction, item);
            auction.kill_postgresql();
            let mut visitor = auction.visitor();
            let page = visitor.get("/items/1");
            assert_eq!((page.status, page.header("retry-after")), (503, Some("1")), "{page:?}");
            auction.start_postgresql();
            eventually("a page", || visitor.get("/items/1").status == 200);
        }
    });
    // Each of the connections that were in a pool has been thrown away by now.
    let mut visitor = auction.visitor();
    for _ in 0..50 {
        assert_eq!(visitor.get("/items/1").status, 200);
    }
}

/// Connections that died while nobody used them cost no visitor an error.
#[test]
fn a_database_that_was_away_while_nobody_asked_is_not_missed() {
    let Some(mut auction) = Auction::new(Books::PostgreSql) else { return };
    let _server = auction.serve(2);
    let mut visitor = auction.visitor();
    for _ in 0..20 {
        assert_eq!(visitor.get("/items/1").status, 200);
    }
    auction.kill_postgresql();
    auction.start_postgresql();
    for _ in 0..20 {
        assert_eq!(visitor.get("/items/1").status, 200);
    }
}

#[test]
fn a_locked_database_is_told_and_still_read() {
    let Some(auction) = Auction::new(Books::Sqlite) else { return };
    let _server = auction.serve(2);
    let mut visitor = auction.visitor();
    let item = visitor.sign_in(1).sell("Pieces", 1, 0);
    visitor.sign_in(2);
    let before = auction.audit();
    let (locked, release) = (auction.cluster.path("locked"), auction.cluster.path("release"));
    let holder = auction.python(&format!(
        "db = sqlite3.connect(DATABASE, isolation_level=None)\ndb.execute('BEGIN IMMEDIATE')\nopen({locked:?}, 'w')\n\
         while not os.path.exists({release:?}):\n    time.sleep(0.01)\n"
    ));
    eventually("a lock", || locked.exists());
    let mark = once();
    let refused = visitor.bid(item, 10, &mark).unwrap();
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(visitor.get(&format!("/items/{item}")).status, 200);
    assert_eq!(visitor.sign_in(2).get("/").status, 200);
    assert_eq!(auction.audit(), before);
    std::fs::write(release, "").unwrap();
    holder.finish().succeeded();
    assert_eq!(visitor.bid(item, 10, &mark).unwrap().status, 200);
    assert_eq!(auction.audit()["bids"], (before["bids"].0 + 1, before["bids"].1 + 10));
}

/// A file system of a few megabytes, unmounted when this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, with a printed reason, for those who may not mount.
    fn mount(at: PathBuf) -> Option<Self> {
        std::fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m", "sidelong-test"]).arg(&at);
        if !geteuid().is_root() || !mount.output().is_ok_and(|output| output.status.success()) {
            skipped("auction: a full disk needs a mount, and this user may not");
            return None;
        }
        Some(SmallDisk(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, since a failed test has not ended its server yet.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_told_and_forgotten_when_there_is_room() {
    let Some(mut auction) = Auction::without_data(Books::Sqlite) else { return };
    let Some(disk) = SmallDisk::mount(auction.cluster.path("disk")) else { return };
    auction.database = disk.0.join("auction.db").to_str().unwrap().to_owned();
    auction.command(&["make-data", "--scale", "0.0005"]).succeeded();
    let server = auction.serve(2);
    let mut visitor = auction.visitor();
    let item = visitor.sign_in(1).sell("Pieces", 1, 0);
    visitor.sign_in(2);
    let rest = disk.0.join("rest");
    // To the last page: what is written until no more is taken.
    let mut file = std::fs::File::create(&rest).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    let (mut bid, mut taken) = (1, 0);
    // What room the log has left is used up first.
    eventually("no room", || {
        bid += 1;
        let reply = visitor.bid(item, bid, &once()).unwrap();
        assert!([200, 503].contains(&reply.status), "{reply:?}");
        taken += i64::from(reply.status == 200);
        reply.status == 503
    });
    for _ in 0..5 {
        assert_eq!(visitor.bid(item, bid, &once()).unwrap().status, 503);
        assert_eq!(visitor.get(&format!("/items/{item}")).status, 200);
    }
    drop(file);
    std::fs::remove_file(rest).unwrap();
    let before = auction.audit();
    assert_eq!(visitor.bid(item, bid, &once()).unwrap().status, 200);
    let after = auction.audit();
    assert_eq!(after["bids"].0, before["bids"].0 + 1);
    assert!(visitor.get(&format!("/items/{item}")).body.contains(&format!("{} bid", taken + 1)));
    server.end();
}

#[test]
fn a_server_that_hangs_is_replaced() {
    let Some(auction) = Auction::new(Books::Sqlite) else { return };
    let server = auction.serve_as(0, 2, &["--timeout", "2"]);
    let mut visitor = auction.visitor();
    visitor.sign_in(1);
    let hung = family(&server)[1];
    kill_process(hung, Signal::STOP).unwrap();
    // What it had accepted waits; the others answer the rest.
    let mut seen = 0;
    eventually("another worker", || {
        seen += usize::from(visitor.try_send("GET", "/items/1", "").is_ok_and(|reply| reply.status == 200));
        let workers = family(&server)[1..].to_vec();
        workers.len() == 2 && !workers.contains(&hung)
    });
    assert!(seen > 0);
    assert_eq!(visitor.get("/items/1").status, 200);
    auction.audit();
}

#[test]
fn an_auction_that_ends_has_one_winner() {
    for auction in auctions() {
        let _server = auction.serve(2);
        let mut visitor = auction.visitor();
        let item = visitor.sign_in(1).sell("Three pieces", 3, 9);
        for (user, bid) in [(2, 4), (3, 6), (4, 5)] {
            let status = visitor.sign_in(user).bid(item, bid, &once()).unwrap().status;
            assert_eq!(status, if bid == 5 { 409 } else { 200 });
        }
        auction.change(&format!("UPDATE items SET end_date = start_date WHERE id = {item}"));
        // The bids came in time.
        auction.change(&format!(
            "UPDATE bids SET date = (SELECT end_date FROM items WHERE id = {item}) WHERE item = {item}"
        ));
        let page = visitor.get(&format!("/items/{item}"));
        assert!(page.body.contains("Sold</b> to <a href=\"/users/3\">user3</a> for $6"), "{}", page.body);
        assert!(!page.body.contains("/bid\""));
        assert_eq!(visitor.bid(item, 100, &once()).unwrap().status, 409);
        assert_eq!(visitor.buy(item, 1, &once()).unwrap().status, 409);
        assert_eq!(visitor.get(&format!("/items/{item}/bid")).status, 409);
        let state = |visitor: &mut Visitor| {
            let item: Value = serde_json::from_str(&visitor.get(&format!("/api/items/{item}")).body).unwrap();
            item["state"].as_str().unwrap().to_owned()
        };
        assert_eq!(state(&mut visitor), "sold");
        let me = visitor.sign_in(3).get("/me");
        let won = between(&me.body, "<h2>Won", "<h2>").unwrap();
        assert!(won.contains(&format!("/items/{item}\"")), "{won}");
        let me = visitor.sign_in(2).get("/me");
        assert!(!between(&me.body, "<h2>Won", "<h2>").unwrap().contains(&format!("/items/{item}\"")));
        auction.change(&format!("UPDATE items SET reserve_price = 7 WHERE id = {item}"));
        assert_eq!(state(&mut visitor), "unsold");
        auction.audit();
    }
}

#[test]
fn programs_are_answered_in_json() {
    let Some(auction) = Auction::new(Books::Sqlite) else { return };
    let _server = auction.serve(1);
    let mut visitor = auction.visitor();
    let mut json = |path: &str| {
        let reply = visitor.get(path);
        assert_eq!(reply.header("content-type"), Some("application/json; charset=utf-8"));
        assert!(reply.header("set-cookie").is_none());
        (reply.status, serde_json::from_str::<Value>(&reply.body).unwrap())
    };
    assert_eq!(json("/api/categories").1.as_array().unwrap().len(), 20);
    assert_eq!(json("/api/regions").1.as_array().unwrap().len(), 62);
    let (_, page) = json("/api/items?category=6");
    let item = page["items"][0]["id"].as_u64().unwrap();
    assert_eq!(json(&format!("/api/items/{item}")).1["category"], 6);
    let bids = json(&format!("/api/items/{item}/bids")).1;
    let most = json(&format!("/api/items/{item}")).1["max_bid"].as_u64().unwrap();
    assert_eq!(bids[0]["bid"].as_u64().unwrap_or(0), most);
    for path in ["/api/items/999999999", "/api/nothing"] {
        let (status, error) = json(path);
        assert!(status == 404 && error["error"].is_string(), "{error}");
    }
    let mut all = 0;
    let mut path = "/api/items".to_owned();
    loop {
        let page = json(&path).1;
        all += page["items"].as_array().unwrap().len();
        let Some(next) = page["next"].as_str() else { break };
        next.clone_into(&mut path);
    }
    assert!(all > 20, "{all} items are on several pages");
    let before = auction.audit();
    let client = |authorization: &str, body: &str| {
        let mut client = Client::connect(auction.cluster.node(0));
        let length = body.len();
        client
            .send(format!(
                "POST /api/items/{item}/bids HTTP/1.1\r\nhost: api.test\r\nauthorization: {authorization}\r\n\
                 content-length: {length}\r\nconnection: close\r\n\r\n{body}"
            ))
            .unwrap();
        client.reply(true).unwrap().status
    };
    let bid = format!("{{\"bid\": {}, \"qty\": 1, \"once\": \"{}\"}}", most + 10_000, once());
    // user2:password2, and user2:password3.
    let right = "Basic dXNlcjI6cGFzc3dvcmQy";
    assert_eq!(client("Basic dXNlcjI6cGFzc3dvcmQz", &bid), 401);
    assert_eq!(client("Bearer dXNlcjI6cGFzc3dvcmQy", &bid), 401);
    for wrong in ["", "[]", "{}", "null", "{\"bid\": true, \"once\": \"0123456789\"}", &"[".repeat(50_000)] {
        assert_eq!(client(right, wrong), 400, "{wrong:.20}");
    }
    assert_eq!((client(right, &bid), client(right, &bid)), (200, 200));
    assert_eq!(auction.audit()["bids"].0, before["bids"].0 + 1);
}

#[test]
fn the_same_seed_gives_the_same_data() {
    let made = |auction: &Auction, seed: &str| {
        auction.command(&["make-data", "--scale", "0.001", "--seed", seed]).succeeded();
        auction.command(&["digest"]).succeeded()
    };
    let Some(one) = Auction::without_data(Books::Sqlite) else { return };
    let digest = made(&one, "1");
    let sums = one.audit();
    assert_eq!(sums["users"].0, 1000);
    // 32,667 and 500,000 at this scale, each category rounded; a mean of 9.5 bids on each.
    let (items, bids) = (sums["items"].0, sums["bids"].0);
    assert!((520..550).contains(&items) && (9..=10).contains(&((bids + items / 2) / items)), "{sums:?}");
    assert_eq!(sums["comments"].0, items);
    let refused = one.command(&["make-data"]);
    assert!(refused.code == Some(1) && refused.err.contains("exists: remove it"), "{refused:?}");
    let other = Auction::without_data(Books::Sqlite).unwrap();
    assert_ne!(made(&other, "2"), digest);
    let Some(there) = Auction::without_data(Books::PostgreSql) else { return };
    assert_eq!(made(&there, "1"), digest, "the same rows in PostgreSQL as in SQLite");
    assert_eq!(there.audit(), sums);
    let refused = there.command(&["make-data"]);
    assert!(refused.code == Some(1) && refused.err.contains("has an auction already"), "{refused:?}");
}

#[test]
fn books_that_were_tampered_with_do_not_pass_the_audit() {
    for sql in [
        "UPDATE items SET max_bid = max_bid + 1 WHERE id = 1",
        "UPDATE items SET quantity = quantity + 1, offered = offered + 2 WHERE id = 1",
        "UPDATE users SET rating = rating + 1 WHERE id = 1",
        "DELETE FROM bids WHERE id = (SELECT min(id) FROM bids)",
        "UPDATE bids SET bidder = (SELECT seller FROM items WHERE items.id = item) WHERE id = 1",
        "UPDATE items SET offered = offered + 1 WHERE id = 2",
    ] {
        let Some(auction) = Auction::new(Books::Sqlite) else { return };
        auction.change(sql);
        let done = auction.command(&["audit"]);
        assert!(done.code == Some(1) && done.out.contains("WRONG: "), "{sql}: {done:?}");
    }
}

#[test]
fn a_command_without_an_auction_says_how_to_make_one() {
    let Some(auction) = Auction::without_data(Books::Sqlite) else { return };
    let done = auction.command(&["audit"]);
    assert!(done.code == Some(1) && done.err.contains("make one with make-data"), "{done:?}");
    assert!(!PathBuf::from(&auction.database).exists(), "nothing is made by looking");
    let done: Running = auction.commanding(&["make-data", "--scale", "11"]);
    assert!(done.finish().err.contains("must be from 0.0001 to 10"));
}
