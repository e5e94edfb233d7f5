//! The demo auction in headless Chromium, through an edge, while a node moves between two sites: a person registers, sells, searches,
//! bids, comments and buys, and sees an auction end. Spoken to by WebDriver (W3C), which chromedriver answers.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::auction::{Auction, Books};
use crate::support::servers::is_there;
use crate::support::{Client, Running, eventually, run, until_it_succeeds};

/// The name under which WebDriver hands out elements (W3C WebDriver, section 12.1).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// Switches of a browser that keeps to itself, also as root.
const SWITCHES: &[&str] = &[
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1100,900",
];

/// A browser for one test.
struct Browser {
    driver: SocketAddr,
    session: String,
    _driver: Running,
}

impl Browser {
    /// One for which `host` is at an address. `None`, with a printed reason, without Chromium and its driver.
    fn start(host: &str, address: SocketAddr, profile: &str) -> Option<Self> {
        if !is_there("chromium", "--version") || !is_there("chromedriver", "--version") {
            return None;
        }
        let mut command = Command::new("chromedriver");
        // A port that is free.
        command.arg("--port=0");
        let mut running = Running::start_command(command);
        let mut port = None;
        eventually("chromedriver's port", || {
            assert!(running.is_running(), "{}", running.err());
            let said = running.out();
            port = said
                .split_once("successfully on port ")
                .and_then(|(_, rest)| rest.split_once('.')?.0.parse().ok());
            port.is_some()
        });
        let driver = SocketAddr::from(([127, 0, 0, 1], port.unwrap()));
        let rules = format!("--host-resolver-rules=MAP {host} {address}");
        let profile = format!("--user-data-dir={profile}");
        let switches: Vec<_> = SWITCHES.iter().copied().chain([&*rules, &*profile]).collect();
        let wanted = json!({"alwaysMatch": {"goog:chromeOptions": {"args": switches}}});
        let begun = ask(driver, "POST", "/session", Some(&json!({ "capabilities": wanted })));
        let session = begun["sessionId"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned();
        Some(Browser { driver, session, _driver: running })
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        ask(self.driver, method, &format!("/session/{}{path}", self.session), body)
    }

    fn open(&self, url: &str) {
        self.ask("POST", "/url", Some(&json!({ "url": url })));
    }

    /// The first element that a CSS selector, or an XPath, finds.
    fn element(&self, selector: &str) -> String {
        let using = if selector.starts_with("//") { "xpath" } else { "css selector" };
        let found = self.ask("POST", "/element", Some(&json!({"using": using, "value": selector})));
        let element = found[ELEMENT].as_str();
        element.unwrap_or_else(|| panic!("no {selector}: {found}\n{}", self.text("body"))).to_owned()
    }

    fn click(&self, selector: &str) {
        let path = format!("/element/{}/click", self.element(selector));
        self.ask("POST", &path, Some(&json!({})));
    }

    /// Follows the link with this text.
    fn follow(&self, text: &str) {
        self.click(&format!("//a[normalize-space()={text:?}]"));
    }

    /// Presses the button with this text, in the page itself.
    fn press(&self, text: &str) {
        self.click(&format!("//button[starts-with(normalize-space(), {text:?})]"));
    }

    /// Fills in a field of the page itself, in the place of what stands there.
    fn fill(&self, name: &str, text: &str) {
        let element = self.element(&format!("main [name={name}]"));
        self.ask("POST", &format!("/element/{element}/clear"), Some(&json!({})));
        self.keys(&element, text);
    }

    fn keys(&self, element: &str, text: &str) {
        self.ask("POST", &format!("/element/{element}/value"), Some(&json!({ "text": text })));
    }

    fn choose(&self, name: &str, option: &str) {
        self.click(&format!("//select[@name={name:?}]/option[normalize-space()={option:?}]"));
    }

    /// Searches all auctions, as the field at the top of each page does.
    fn search(&self, words: &str) {
        let field = self.element(".search [name=q]");
        // U+E007 is the key Enter.
        self.keys(&field, &format!("{words}\u{e007}"));
        self.is_at("SearchItems");
    }

    fn text(&self, selector: &str) -> String {
        let element =
            self.ask("POST", "/element", Some(&json!({"using": "css selector", "value": selector})));
        let Some(element) = element[ELEMENT].as_str() else { return String::new() };
        self.ask("GET", &format!("/element/{element}/text"), None).as_str().unwrap_or_default().to_owned()
    }

    fn attribute(&self, selector: &str, name: &str) -> String {
        let path = format!("/element/{}/attribute/{name}", self.element(selector));
        self.ask("GET", &path, None).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page is the one of an interaction.
    fn is_at(&self, interaction: &str) {
        let mut seen = String::new();
        eventually(&format!("the page {interaction}"), || {
            // The old page may go away under the question.
            let script = json!({"script": "return document.body ? document.body.dataset.interaction : ''", "args": []});
            let found = self.ask("POST", "/execute/sync", Some(&script));
            seen = found.as_str().unwrap_or_default().to_owned();
            assert!(seen != "Error" || interaction == "Error", "{}", self.text("body"));
            seen == interaction
        });
    }

    fn sign_in(&self, nickname: &str, password: &str) {
        self.fill("nickname", nickname);
        self.fill("password", password);
        self.press("Sign in");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.ask("DELETE", "", None);
        }
    }
}

/// A command of WebDriver, and its value.
fn ask(driver: SocketAddr, method: &str, path: &str, body: Option<&Value>) -> Value {
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut client = Client::connect(driver);
    let length = body.len();
    client
        .send(format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ))
        .unwrap();
    let reply = client.reply(true).unwrap();
    let mut answer: Value =
        serde_json::from_str(&reply.body).unwrap_or_else(|error| panic!("{error}: {reply:?}"));
    answer["value"].take()
}

#[test]
fn a_person_buys_and_sells_while_nodes_move() {
    let Some(auction) = Auction::new(Books::Sqlite) else { return };
    let cluster = &auction.cluster;
    let profile = cluster.path("profile");
    let Some(browser) = Browser::start("auction.test", cluster.edge(0), profile.to_str().unwrap()) else {
        return;
    };
    let _servers: Vec<_> = (0..3).map(|node| auction.serve_as(node, 2, &[])).collect();
    let config = cluster.config().to_str().unwrap().to_owned();
    let _agents = ["n1", "n2", "n3"].map(|name| cluster.part("node", name));
    let _edge = cluster.part("edge", "edge1");
    eventually("the edge has nodes", || {
        ["auction.test", "api.test"].iter().all(|host| {
            crate::support::try_get(cluster.edge(0), host, "/health").is_ok_and(|reply| reply.status == 200)
        })
    });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for (moves, site) in ["api", "auction"].into_iter().cycle().enumerate() {
                if stop.load(Ordering::Relaxed) {
                    return moves;
                }
                until_it_succeeds(|| run(["move", "n2", site, "--config", &config]));
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            unreachable!("a cycle has no end");
        });
        // A failed step must not leave the mover behind.
        let walked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| walk(&browser, &auction)));
        stop.store(true, Ordering::Relaxed);
        let moves = mover.join().unwrap();
        walked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert!(moves >= 2, "{moves} moves");
    });
    let sums = auction.audit();
    assert_eq!(sums["purchases"], (1, 1));
}

fn walk(browser: &Browser, auction: &Auction) {
    browser.open("http://auction.test/");
    browser.is_at("Home");
    // The stylesheet is there, and the page may use it.
    let color =
        browser.ask("GET", &format!("/element/{}/css/background-color", browser.element("header")), None);
    assert_eq!(color, "rgba(255, 255, 255, 1)");
    browser.follow("Register");
    browser.is_at("Register");
    for (name, text) in [
        ("firstname", "Jane"),
        ("lastname", "O'Neil <b>"),
        ("nickname", "jane"),
        ("password", "correct horse"),
        ("email", "jane@example.org"),
    ] {
        browser.fill(name, text);
    }
    browser.choose("region", "CA · Oakland");
    browser.press("Register");
    browser.is_at("RegisterUser");
    let sell = |name: &str, buy_now: &str| {
        browser.follow("Sell");
        browser.is_at("SelectCategoryToSellItem");
        browser.follow("Music");
        browser.is_at("SellItemForm");
        browser.fill("name", name);
        browser.fill("description", "Plays by itself.\nSometimes.");
        browser.fill("initial_price", "10");
        browser.fill("buy_now", buy_now);
        browser.press("Open the auction");
        browser.is_at("RegisterItem");
        browser.follow("The item");
        browser.is_at("ViewItem");
    };
    sell("Singing kettle <i>one</i>", "0");
    sell("Singing kettle two", "99");
    browser.click("header button.link");
    browser.is_at("Home");
    browser.search("singing kettle");
    browser.follow("Singing kettle <i>one</i>");
    browser.is_at("ViewItem");
    assert_eq!(browser.text("h1"), "Singing kettle <i>one</i>");
    browser.follow("Bid");
    browser.is_at("PutBidAuth");
    browser.sign_in("user2", "wrong");
    browser.is_at("Error");
    browser.ask("POST", "/back", Some(&json!({})));
    browser.is_at("PutBidAuth");
    browser.sign_in("user2", "password2");
    browser.is_at("PutBid");
    // The browser itself holds back what is too low.
    assert_eq!(browser.attribute("main [name=bid]", "min"), "10");
    browser.fill("bid", "42");
    browser.press("Bid");
    browser.is_at("StoreBid");
    // A reload sends the form again, which is stored once: the audit counts one bid on it.
    browser.ask("POST", "/refresh", Some(&json!({})));
    browser.is_at("StoreBid");
    browser.follow("The item");
    browser.is_at("ViewItem");
    assert!(browser.text(".bid").starts_with("$42 1 bid"), "{}", browser.text(".bid"));
    browser.follow("comment on the seller");
    browser.is_at("PutComment");
    browser.choose("rating", "Good");
    browser.fill("comment", "Answered <quickly>.");
    browser.press("Publish");
    browser.is_at("StoreComment");
    browser.follow("The seller");
    browser.is_at("ViewUserInfo");
    assert!(browser.text(".comment").contains("Answered <quickly>."));
    browser.search("kettle two");
    browser.follow("Singing kettle two");
    browser.is_at("ViewItem");
    browser.follow("Buy now for $99");
    browser.is_at("BuyNow");
    browser.press("Buy for $99");
    browser.is_at("StoreBuyNow");
    browser.follow("The item");
    browser.is_at("ViewItem");
    assert!(browser.text(".verdict").starts_with("Sold out"), "{}", browser.text(".verdict"));
    // The first one ends, too.
    browser.search("kettle");
    browser.follow("Singing kettle <i>one</i>");
    browser.is_at("ViewItem");
    auction.change(
        "UPDATE items SET end_date = (SELECT max(date) FROM bids) WHERE name LIKE 'Singing kettle <%'",
    );
    let mut verdict = String::new();
    eventually("the auction ends", || {
        browser.ask("POST", "/refresh", Some(&json!({})));
        browser.is_at("ViewItem");
        verdict = browser.text(".verdict");
        verdict.starts_with("Sold to user2 for $42")
    });
    browser.follow("user2");
    // The link in the verdict and the one of the session lead to different pages; both name the person.
    eventually("a page of user2", || browser.text("h1") == "user2");
    browser.open("http://auction.test/me");
    browser.is_at("AboutMe");
    let page = browser.text("main");
    assert!(page.contains("Won in the last 30 days") && page.contains("Singing kettle two"), "{page}");
    assert!(["n1", "n2", "n3"].contains(&&*browser.attribute("body", "data-server")));
}
