//! What a proxy makes of requests and answers, byte by byte, by the sections of RFC 9110, 9112 and 9113. The parts are real:
//! an edge before a recording server. The same cases run against nginx and HAProxy, for comparison.
//!
//! The rule: what RFC 9112 calls an error is an error, never a guess, and what is passed on is rebuilt from what was parsed.
//! Only the edge can fail. `SIDELONG_CASE=TEXT` runs the cases with that text in their names. `-- --nocapture` shows the
//! table of differences.

mod case;
mod cases;
mod client;
mod http2;
mod judged;
mod proxies;
mod server;
mod wire;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use case::{Case, Outcome, complaints, summary};
use client::converse;
use proxies::{Proxy, SITES, Version, await_serving, edge, haproxy, host, nginx};
use server::Scripts;

/// A case that takes the edge longer than this is mentioned: usually it waits for bytes that do not come.
const SLOW: Duration = Duration::from_secs(1);

/// What a proxy made of a case.
struct Judgement {
    summary: String,
    /// Why it is not what the case expects. `None`: the case did not run here.
    complaints: Option<Vec<String>>,
}

impl Judgement {
    fn cell(&self) -> String {
        match self.complaints.as_deref() {
            None => "does not apply".to_owned(),
            Some([]) => format!("as expected ({})", self.summary),
            Some(complaints) => format!("{} ({})", complaints.join("; "), self.summary),
        }
    }

    fn differs(&self) -> bool {
        self.complaints.as_ref().is_some_and(|complaints| !complaints.is_empty())
    }
}

fn token(index: usize) -> String {
    format!("/c{index:03}")
}

/// Runs all cases, one at a time for each site, and then judges what the client and the server saw.
fn run(proxy: &mut Proxy, cases: &[Case]) -> Vec<Judgement> {
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::new());
    outcomes.lock().unwrap().resize_with(cases.len(), || None);
    let work = |site: usize| {
        let host = host(site);
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(index) else { return };
            let Some(address) = proxy.address(case.needs_short) else { continue };
            await_serving(address, &host);
            let token = token(index);
            let case = case.clone().placed(&token, &host);
            let begin = Instant::now();
            let got = converse(address, &case.steps, || proxy.recorder.is_done(&token));
            if proxy.is_ours() && begin.elapsed() > SLOW {
                println!("{}: {}: {:.1} s", proxy.name, case.name, begin.elapsed().as_secs_f64());
            }
            outcomes.lock().unwrap()[index] = Some(Outcome { token, host: host.clone(), got });
        }
    };
    let begin = Instant::now();
    std::thread::scope(|scope| (0..SITES.len()).for_each(|site| drop(scope.spawn(move || work(site)))));
    println!("{}: {} cases in {:.1} s", proxy.name, cases.len(), begin.elapsed().as_secs_f64());
    proxy.end();
    let seen = proxy.recorder.at_end();
    let judge = |(case, outcome): (&Case, &Option<Outcome>)| match outcome {
        None => Judgement { summary: String::new(), complaints: None },
        Some(outcome) => {
            Judgement { summary: summary(outcome, &seen), complaints: Some(complaints(case, outcome, &seen)) }
        }
    };
    let outcomes = outcomes.into_inner().unwrap();
    cases.iter().zip(&outcomes).map(judge).collect()
}

#[test]
fn an_edge_is_strict_where_the_protocol_is() {
    let wanted = std::env::var("SIDELONG_CASE").unwrap_or_default();
    let mut cases = cases::all();
    cases.retain(|case| case.name.contains(&wanted));
    assert!(cases.len() <= 1000, "a token has three digits");
    let scripts = |(index, case): (usize, &Case)| (token(index), case.script.clone());
    let scripts: Arc<Scripts> = Arc::new(cases.iter().enumerate().map(scripts).collect());
    let mut cluster = proxies::cluster();
    let peers = [nginx(&cluster, &scripts, Version::Http1), haproxy(&cluster, &scripts, Version::Http1)];
    let mut proxies = vec![edge(&mut cluster, &scripts)];
    proxies.extend(peers.into_iter().flatten());
    let cases = &cases;
    let judgements: Vec<Vec<Judgement>> = std::thread::scope(|scope| {
        let runs: Vec<_> = proxies.iter_mut().map(|proxy| scope.spawn(move || run(proxy, cases))).collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    println!("{}", differences(cases, &proxies, &judgements));
    let ours = proxies.iter().position(Proxy::is_ours).unwrap();
    let failed: Vec<_> =
        cases.iter().zip(&judgements[ours]).filter(|(_, judgement)| judgement.differs()).collect();
    let list = failed.iter().fold(String::new(), |mut list, (case, judgement)| {
        let _ = writeln!(list, "  {}\n      {}", case.name, judgement.cell());
        list
    });
    assert!(failed.is_empty(), "{} of {} cases fail:\n{list}", failed.len(), cases.len());
}

#[test]
fn every_judgement_is_of_a_case() {
    let names: Vec<_> = cases::all().into_iter().map(|case| case.name).chain(http2::names()).collect();
    for (index, name) in names.iter().enumerate() {
        assert!(!names[..index].contains(name), "twice: {name}");
    }
    for (begin, _) in judged::JUDGED {
        assert!(names.iter().any(|name| name.starts_with(begin)), "no case {begin:?} is there to be judged");
    }
}

/// The cases in which the proxies do not do the same.
fn differences(cases: &[Case], proxies: &[Proxy], judgements: &[Vec<Judgement>]) -> String {
    let mut table = String::new();
    for (index, case) in cases.iter().enumerate() {
        if !judgements.iter().any(|judgements| judgements[index].differs()) {
            continue;
        }
        let _ = writeln!(table, "{}", case.name);
        for (proxy, judgements) in proxies.iter().zip(judgements) {
            let _ = writeln!(table, "    {:8} {}", proxy.name, judgements[index].cell());
        }
        if let Some(text) = judged::why(&case.name) {
            let _ = writeln!(table, "    {:8} {text}", "why");
        }
    }
    for (proxy, judgements) in proxies.iter().zip(judgements) {
        let ran = judgements.iter().filter(|judgement| judgement.complaints.is_some()).count();
        let strict = ran - judgements.iter().filter(|judgement| judgement.differs()).count();
        let _ = writeln!(table, "{:8} {strict} of {ran} cases as expected", proxy.name);
    }
    table
}
