//! HTTP/2 at the client's side (RFC 9113), in cleartext that the client begins without asking. The server is asked in
//! HTTP/1.1 all the same.

mod exchanges;
mod frames;
mod malformed;
mod websocket;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::conformance::case::Reaches;
use crate::conformance::proxies::{self, Proxy, SITES, Version, edge, haproxy, host, nginx};
use crate::conformance::server::{Act, Scripts, Seen};
use crate::conformance::wire::Message;

/// Where a case runs.
struct Place<'a> {
    proxy: &'a Proxy,
    address: SocketAddr,
    site: usize,
    host: String,
    token: String,
}

impl Place<'_> {
    /// A text with the token and the host in place.
    fn fill(&self, text: &str) -> String {
        crate::conformance::case::place(text, &self.token, &self.host)
    }

    /// What the server has seen of the case's first request.
    fn seen(&self) -> Result<Message, String> {
        let seen = self.proxy.recorder.now().into_iter().find(|seen| seen.is_of(&self.token));
        seen.ok_or("the server has seen nothing")?
            .request
            .map_err(|why| format!("passed on malformed: {why}"))
    }
}

type Outcome = Result<(), String>;
type Run = Box<dyn Fn(&Place<'_>) -> Outcome + Send + Sync>;

struct Case {
    name: String,
    script: Vec<Act>,
    /// What the server may see of it.
    reaches: Reaches,
    run: Run,
}

fn token(index: usize) -> String {
    format!("/c{index:03}")
}

/// Runs all cases, one at a time for each site.
fn run(proxy: &mut Proxy, cases: &[Case]) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(vec![Ok(()); cases.len()]);
    let address = proxy.address(false).unwrap();
    let work = |site: usize| {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(index) else { return };
            let place = Place { proxy, address, site, host: host(site), token: token(index) };
            // A hostile answer may have taken the node out. The peers speak only HTTP/2 here.
            if proxy.is_ours() {
                proxies::await_serving(address, &place.host);
            }
            let outcome = (case.run)(&place);
            outcomes.lock().unwrap()[index] = outcome;
        }
    };
    std::thread::scope(|scope| (0..SITES.len()).for_each(|site| drop(scope.spawn(move || work(site)))));
    proxy.end();
    let seen = proxy.recorder.at_end();
    let mut outcomes = outcomes.into_inner().unwrap();
    for (index, (case, outcome)) in cases.iter().zip(&mut outcomes).enumerate() {
        let mut requests = seen.iter().filter(|seen| seen.is_of(&token(index)));
        let is_whole = |seen: &Seen| seen.request.as_ref().is_ok_and(|request| request.is_whole);
        let bad = match case.reaches {
            Reaches::Nothing => requests.next(),
            Reaches::NoWhole => requests.find(|seen| is_whole(seen)),
            _ => None,
        };
        if let Some(Seen { request, .. }) = bad {
            let what = request.as_ref().map_or("what is no request", |request| &request.start);
            *outcome = Err(format!("passed on: {what}; {}", outcome.clone().err().unwrap_or_default()));
        }
    }
    outcomes
}

fn all() -> Vec<Case> {
    [malformed::cases(), exchanges::cases(), websocket::cases()].into_iter().flatten().collect()
}

/// The names of the cases.
pub(crate) fn names() -> Vec<String> {
    all().into_iter().map(|case| case.name).collect()
}

#[test]
fn an_edge_is_strict_over_http_2() {
    let wanted = std::env::var("SIDELONG_CASE").unwrap_or_default();
    let mut cases = all();
    cases.retain(|case| case.name.contains(&wanted));
    let scripts = |(index, case): (usize, &Case)| (token(index), case.script.clone());
    let scripts: Arc<Scripts> = Arc::new(cases.iter().enumerate().map(scripts).collect());
    let mut cluster = proxies::cluster();
    let peers = [nginx(&cluster, &scripts, Version::Http2), haproxy(&cluster, &scripts, Version::Http2)];
    let mut proxies = vec![edge(&mut cluster, &scripts)];
    proxies.extend(peers.into_iter().flatten());
    let cases = &cases;
    let outcomes: Vec<Vec<Outcome>> = std::thread::scope(|scope| {
        let runs: Vec<_> = proxies.iter_mut().map(|proxy| scope.spawn(move || run(proxy, cases))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    let (mut table, mut failed) = (String::new(), String::new());
    for (index, case) in cases.iter().enumerate() {
        if outcomes.iter().all(|outcomes| outcomes[index].is_ok()) {
            continue;
        }
        let _ = writeln!(table, "{}", case.name);
        for (proxy, outcomes) in proxies.iter().zip(&outcomes) {
            let said = outcomes[index].as_ref().err().map_or("as expected", String::as_str);
            let _ = writeln!(table, "    {:8} {said}", proxy.name);
            if proxy.is_ours() && outcomes[index].is_err() {
                let _ = writeln!(failed, "  {}\n      {said}", case.name);
            }
        }
        if let Some(why) = crate::conformance::judged::why(&case.name) {
            let _ = writeln!(table, "    {:8} {why}", "why");
        }
    }
    for (proxy, outcomes) in proxies.iter().zip(&outcomes) {
        let strict = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        let _ = writeln!(table, "{:8} {strict} of {} cases as expected", proxy.name, cases.len());
    }
    println!("{table}");
    assert!(failed.is_empty(), "cases fail:\n{failed}");
}
