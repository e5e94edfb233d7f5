//! The walker against a site of one page for each interaction, written by hand.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use http::HeaderValue;
use sidelong_workload::client::{Arrivals, ClientError, ErrorKind, loopback_client};
use sidelong_workload::walk::{Completion, End, Interaction, Mix, Sessions, Summary, WalkConfig, Walker};

/// Longest that anything awaited here may take: a bound for a test that fails, not a measure.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request as the site saw it.
#[derive(Clone, Debug)]
struct Seen {
    method: String,
    path: String,
    cookie: String,
    body: String,
    /// The address that it came from.
    client: IpAddr,
}

/// Answers a request: a status and the interaction that the page says it is.
type Answers = dyn Fn(&Seen) -> (u16, &'static str) + Send + Sync;

/// A site on loopback, which lives as long as the test.
struct Site {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Site {
    fn start(answers: impl Fn(&Seen) -> (u16, &'static str) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, answers): (Arc<Mutex<Vec<Seen>>>, Arc<Answers>) = (Arc::default(), Arc::new(answers));
        let log = Arc::clone(&seen);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (log, answers) = (Arc::clone(&log), Arc::clone(&answers));
                thread::spawn(move || serve(stream, &log, &*answers));
            }
        });
        Site { address, seen }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Four persons who do not think.
    fn persons(&self) -> WalkConfig {
        let host = HeaderValue::from_static("auction.test");
        WalkConfig {
            think_factor: 0.0,
            ..WalkConfig::new(vec![self.address], host, Sessions::Closed { count: 4 })
        }
    }

    /// They walk until they have made so many requests.
    fn walk(&self, requests: u64) -> Summary {
        walk(Walker::new(self.persons()).unwrap(), requests)
    }
}

fn walk(walker: Walker, requests: u64) -> Summary {
    let mut run = walker.start().unwrap();
    let begun = Instant::now();
    while run.live().requests < requests {
        assert!(begun.elapsed() < PATIENCE, "never: {requests} requests");
        thread::sleep(Duration::from_millis(1));
    }
    run.stopper().stop();
    run.wait()
}

/// The interaction of a request, by `demo/auction/PAGES.md`.
fn interaction(seen: &Seen) -> &'static str {
    let like: String =
        seen.path.split('?').next().unwrap().split('/').skip(1).fold(String::new(), |like, part| {
            let is_number = part.parse::<u64>().is_ok();
            format!("{like}/{}", if is_number { "*" } else { part })
        });
    match (seen.method.as_str(), like.as_str()) {
        ("GET", "/") => "Home",
        ("GET", "/register") => "Register",
        ("POST", "/register") => "RegisterUser",
        ("GET", "/browse") => "Browse",
        ("GET", "/categories") => "BrowseCategories",
        ("GET", "/categories/*/items") => "SearchItemsInCategory",
        ("GET", "/regions") => "BrowseRegions",
        ("GET", "/regions/*/categories") => "BrowseCategoriesInRegion",
        ("GET", "/regions/*/categories/*/items") => "SearchItemsInRegion",
        ("GET", "/items/*") => "ViewItem",
        ("GET", "/users/*") => "ViewUserInfo",
        ("GET", "/items/*/bids") => "ViewBidHistory",
        ("GET", "/items/*/buy/sign-in") => "BuyNowAuth",
        ("POST", "/items/*/buy") => "BuyNow",
        ("POST", "/items/*/purchases") => "StoreBuyNow",
        ("GET", "/items/*/bid/sign-in") => "PutBidAuth",
        ("POST" | "GET", "/items/*/bid") => "PutBid",
        ("POST", "/items/*/bids") => "StoreBid",
        ("POST" | "GET", "/items/*/comment") => "PutComment",
        ("POST", "/items/*/comments") => "StoreComment",
        ("GET", "/sell") => "Sell",
        ("POST" | "GET", "/sell/categories") => "SelectCategoryToSellItem",
        ("GET", "/sell/categories/*") => "SellItemForm",
        ("POST", "/items") => "RegisterItem",
        ("GET", "/me/sign-in") => "AboutMeAuth",
        ("POST" | "GET", "/me") => "AboutMe",
        _ => panic!("no interaction is requested so: {seen:?}"),
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Seen>>, answers: &Answers) {
    let mut lines = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let mut words = line.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap(), words.next().unwrap());
        let client = stream.peer_addr().unwrap().ip();
        let mut seen = Seen { method, path, cookie: String::new(), body: String::new(), client };
        let mut length = 0;
        loop {
            let mut field = String::new();
            lines.read_line(&mut field).unwrap();
            match field.trim_end().split_once(": ") {
                Some(("cookie", value)) => seen.cookie = value.to_owned(),
                Some(("content-length", value)) => length = value.parse().unwrap(),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        lines.read_exact(&mut body).unwrap();
        seen.body = String::from_utf8(body).unwrap();
        let number = {
            let mut log = log.lock().unwrap();
            log.push(seen.clone());
            log.len()
        };
        let (status, name) = answers(&seen);
        let page = page(name);
        let head = format!(
            "HTTP/1.1 {status} X\r\nset-cookie: session=s{number}; Path=/; HttpOnly\r\ncontent-length: {}\r\n\r\n",
            page.len()
        );
        if stream.write_all((head + &page).as_bytes()).is_err() {
            return;
        }
    }
}

/// A page that leads everywhere.
fn page(name: &str) -> String {
    let links = [
        "/categories/3/items",
        "/regions/2/categories",
        "/regions/2/categories/3/items",
        "/items/17",
        "/users/5",
        "/items/17/bids",
        "/items/17/buy/sign-in",
        "/items/17/bid/sign-in",
        "/sell/categories/4",
    ];
    let forms = [
        "/register",
        "/items/17/buy",
        "/items/17/purchases",
        "/items/17/bid",
        "/items/17/bids",
        "/items/17/comments",
        "/sell/categories",
        "/items",
        "/me",
    ];
    let links: String = links.iter().map(|path| format!("<a href=\"{path}\">x</a>")).collect();
    let forms: String = forms
        .iter()
        .map(|path| {
            format!(
                "<form method=post action=\"{path}\"><input type=hidden name=csrf value=token>\
                 <input type=hidden name=once value=o1><input name=bid min=42 value=42><input name=qty max=1></form>"
            )
        })
        .collect();
    format!(
        "<head><meta name=\"csrf-token\" content=\"token\"></head><body data-interaction=\"{name}\" data-users=\"9\">{links}{forms}"
    )
}

#[test]
fn sessions_follow_links_and_forms_with_their_cookie_and_the_token() {
    let site = Site::start(|seen| (200, interaction(seen)));
    let summary = site.walk(500);
    assert!(summary.errors == 0 && summary.rejected == 0, "{summary:?}");
    assert!(summary.sessions.ended > 1 && summary.sessions.whole == summary.sessions.ended, "{summary:?}");
    let seen = site.seen();
    assert_eq!(seen.len() as u64, summary.requests);
    let by_name: u64 = summary.interactions.iter().map(|of| of.requests).sum();
    assert_eq!(by_name, summary.requests);
    let first = seen.iter().filter(|seen| seen.cookie.is_empty());
    assert_eq!(first.count() as u64, summary.sessions.begun, "only a session's first request has no cookie");
    assert!(seen.iter().all(|seen| seen.cookie.is_empty() || seen.cookie.starts_with("session=s")));
    for post in seen.iter().filter(|seen| seen.method == "POST") {
        assert!(post.body.contains("csrf=token"), "{post:?}");
        let signs_in = ["BuyNow", "PutBid", "PutComment", "SelectCategoryToSellItem", "AboutMe"];
        if signs_in.contains(&interaction(post)) {
            let user: u64 =
                post.body.split("nickname=user").nth(1).unwrap().split('&').next().unwrap().parse().unwrap();
            assert!(
                (1..=9).contains(&user) && post.body.contains(&format!("password=password{user}")),
                "{post:?}"
            );
        }
    }
}

#[test]
fn what_goes_wrong_is_counted_by_kind_and_the_session_goes_home() {
    let site = Site::start(|seen| match interaction(seen) {
        "Browse" => (500, "Error"),
        "Register" => (200, "Home"),
        "AboutMeAuth" => (409, "Error"),
        name => (200, name),
    });
    let summary = site.walk(500);
    let of = |name: &str| summary.interactions.iter().find(|of| of.interaction == name).unwrap();
    assert_eq!(of("Browse").errors, of("Browse").requests);
    assert_eq!(of("Register").errors, of("Register").requests);
    let refused = of("AboutMeAuth");
    assert_eq!(
        (refused.errors, refused.refused_by_rules),
        (0, refused.requests),
        "the rules of the auction are no error"
    );
    let kinds = &summary.errors_by_kind;
    assert_eq!((kinds.status_5xx, kinds.wrong_page), (of("Browse").errors, of("Register").errors));
    assert_eq!(summary.errors, kinds.total());
    assert!(summary.sessions.whole < summary.sessions.ended, "{summary:?}");
}

#[test]
fn a_person_leaves_at_a_rejection_and_sessions_are_whole_or_not() {
    let site = Site::start(|seen| match interaction(seen) {
        "ViewItem" => (503, "Error"),
        name => (200, name),
    });
    for leave_at in [1, 2] {
        let seen: Arc<Mutex<Vec<Completion>>> = Arc::default();
        let log = Arc::clone(&seen);
        let config = WalkConfig { leave_at: NonZero::new(leave_at), ..site.persons() };
        let walker = Walker::new(config).unwrap().observe(move |done| log.lock().unwrap().push(*done));
        let summary = walk(walker, 500);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len() as u64, summary.requests);
        let count = |is: &dyn Fn(&Completion) -> bool| seen.iter().filter(|done| is(done)).count() as u64;
        let sessions = summary.sessions;
        assert_eq!(sessions.begun, count(&|done| done.is_first));
        assert_eq!(sessions.ended, count(&|done| done.end.is_some()));
        assert_eq!(sessions.whole, count(&|done| done.end == Some(End::Whole)));
        assert_eq!(sessions.left, count(&|done| done.end == Some(End::Left)));
        let marred = count(&|done| done.end == Some(End::Marred));
        assert_eq!(sessions.ended, sessions.whole + sessions.left + marred);
        assert!(sessions.whole > 0 && sessions.left > 0, "{summary:?}");
        let failed = count(&|done| done.error == Some(ErrorKind::Unavailable));
        assert_eq!(failed, count(&|done| done.interaction == Interaction::ViewItem));
        if leave_at == 1 {
            assert_eq!((marred, failed), (0, sessions.left), "the first rejection is the last request");
        } else {
            assert!(failed >= 2 * sessions.left && marred > 0, "{summary:?}");
        }
    }
}

#[test]
fn sessions_come_from_the_addresses_in_turn_each_from_one() {
    let site = Site::start(|seen| (200, interaction(seen)));
    let clients: Vec<IpAddr> = (0..3).map(loopback_client).collect();
    let arrivals = Arrivals::Given([Duration::ZERO; 7].into());
    let config = WalkConfig {
        clients: clients.clone(),
        sessions: Sessions::Open { arrivals, at_once_max: 7 },
        ..site.persons()
    };
    let summary = Walker::new(config).unwrap().start().unwrap().wait();
    assert_eq!((summary.sessions.whole, summary.errors), (7, 0), "{summary:?}");
    let seen = site.seen();
    let begun = |client| seen.iter().filter(|seen| seen.cookie.is_empty() && seen.client == client).count();
    assert_eq!(clients.iter().map(|client| begun(*client)).collect::<Vec<_>>(), [3, 2, 2]);
    assert!(seen.iter().all(|seen| clients.contains(&seen.client)), "{seen:?}");
}

#[test]
fn sessions_that_arrive_do_not_wait_for_others_and_are_dropped_beyond_the_bound() {
    // Nobody answers: the connections are accepted by the kernel alone.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let arrivals = Arrivals::Given((0..5).map(Duration::from_millis).collect());
    let config = WalkConfig {
        timeout: Duration::from_millis(500),
        mix: Mix::Browsing,
        ..WalkConfig::new(
            vec![listener.local_addr().unwrap()],
            HeaderValue::from_static("auction.test"),
            Sessions::Open { arrivals, at_once_max: 3 },
        )
    };
    let mut run = Walker::new(config).unwrap().start().unwrap();
    let begun = Instant::now();
    while run.live().dropped < 2 {
        assert!(begun.elapsed() < PATIENCE, "never: two sessions are dropped");
        thread::sleep(Duration::from_millis(1));
    }
    run.stopper().stop();
    let summary = run.wait();
    assert_eq!((summary.sessions.begun, summary.sessions.dropped, summary.sessions.ended), (3, 2, 0));
    assert!(summary.requests >= 3, "{summary:?}");
    assert_eq!(summary.requests, summary.errors_by_kind.timeout);
    assert_eq!(summary.interactions.len(), 1);
    assert_eq!(summary.interactions[0].interaction, Interaction::Home.name());
}

#[test]
fn a_walk_is_stopped_while_its_sessions_think() {
    let site = Site::start(|seen| (200, interaction(seen)));
    let config =
        WalkConfig::new(vec![site.address], HeaderValue::from_static("a"), Sessions::Closed { count: 1000 });
    let mut run = Walker::new(config).unwrap().start().unwrap();
    while run.live().requests == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    run.stopper().stop();
    let summary = run.wait();
    assert!(summary.requests > 0 && summary.errors == 0, "{summary:?}");
}

#[test]
fn a_walk_that_cannot_be_is_refused() {
    let to = |addresses, sessions| WalkConfig::new(addresses, HeaderValue::from_static("a"), sessions);
    let somewhere = || vec!["127.0.0.1:1".parse().unwrap()];
    let none = Walker::new(to(Vec::new(), Sessions::Closed { count: 1 }));
    assert!(matches!(none.err(), Some(ClientError::NoEdges)));
    let nobody = Walker::new(to(somewhere(), Sessions::Closed { count: 0 }));
    assert!(matches!(nobody.err(), Some(ClientError::Count { value: 0, .. })));
    let arrivals = Arrivals::Poisson { per_s: f64::NAN, seed: 1 };
    let never = Walker::new(to(somewhere(), Sessions::Open { arrivals, at_once_max: 1 }));
    assert!(matches!(never.err(), Some(ClientError::Rate { .. })));
    let hasty =
        Walker::new(WalkConfig { think_factor: -1.0, ..to(somewhere(), Sessions::Closed { count: 1 }) });
    assert!(matches!(hasty.err(), Some(ClientError::ThinkFactor { .. })));
    let clients = vec!["192.0.2.1".parse().unwrap()];
    let abroad = Walker::new(WalkConfig { clients, ..to(somewhere(), Sessions::Closed { count: 1 }) });
    assert!(matches!(abroad.err(), Some(ClientError::Client { .. })));
}
