//! Whole clusters of caches under random commands and faults: each key's history must be linearizable.
//!
//! `SIDELONG_SEED=N cargo test -p sidelong --test it cache_histories::` replays the commands and the faults of a run, though not its
//! timing. `SIDELONG_ROUNDS` sets the rounds of the long run.

use std::collections::HashMap;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::caches::{By, Caches};
use crate::support::eventually;
use crate::support::histories::{Event, Op, Verdict, judge, seed};
use crate::support::memcached::Client;

/// Clients at a time.
const CLIENTS: u64 = 6;
/// Keys of a round. Numbers are in the odd ones.
const KEYS: u64 = 6;
/// Commands of a client in a round.
const COMMANDS: u64 = 120;
/// How old copies of others' items may be where there are some: some tens of commands.
const FRESH: Duration = Duration::from_millis(20);

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        sidelong_layout::mix64(self.0) % bound
    }
}

/// What happened, by key.
#[derive(Default)]
struct Recorded(Mutex<HashMap<String, Vec<Event>>>);

impl Recorded {
    fn add(&self, key: &str, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(key.to_owned()).or_default().push(event);
    }
}

/// A client that asks all caches in turn, and records.
struct Recorder<'a> {
    caches: &'a Caches,
    clients: Vec<Client>,
    random: Random,
    recorded: &'a Recorded,
    began: Instant,
    /// For values that nobody else stores.
    number: u64,
    next: &'a AtomicU64,
    /// What was read of each key, in a client that believes it without asking: the control.
    believed: Option<HashMap<String, String>>,
    /// Asks no other cache.
    only: Option<usize>,
}

/// What a run is to be like.
#[derive(Clone, Copy)]
struct Plan {
    rounds: u64,
    seed: u64,
    has_faults: bool,
    /// Clients believe what they read once.
    believes: bool,
    /// What was read may have been so long ago.
    fresh: Duration,
    /// All clients ask the first cache.
    asks_one: bool,
}

impl Plan {
    fn new(rounds: u64) -> Self {
        let (has_faults, believes, asks_one) = (true, false, false);
        Plan { rounds, seed: seed(), has_faults, believes, fresh: Duration::ZERO, asks_one }
    }
}

impl Recorder<'_> {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    fn cache(&mut self) -> usize {
        let any = self.random.below(3) as usize;
        self.only.unwrap_or(any)
    }

    /// A value that is stored once, of any size.
    fn value(&mut self) -> String {
        self.number = self.next.fetch_add(1, Ordering::Relaxed);
        let word = format!("{};", self.number);
        word.repeat(1 + self.random.below(200) as usize)
    }

    /// The line that answers; `None` if the connection has ended, after which there is a new one.
    fn ask(&mut self, cache: usize, command: &str) -> Option<String> {
        let answer = self.clients[cache].try_ask(command);
        if answer.is_none() {
            self.clients[cache].reconnect(self.caches.at[cache]);
        }
        answer
    }

    /// What `gets` finds, and its unique number.
    fn gets(&mut self, cache: usize, key: &str) -> Option<(String, String)> {
        match self.clients[cache].try_gets(key) {
            Some(found) => found,
            None => {
                self.clients[cache].reconnect(self.caches.at[cache]);
                None
            }
        }
    }

    /// One random command.
    fn step(&mut self, round: u64) {
        let key_number = self.random.below(KEYS);
        let (key, is_number) = (format!("r{round}k{key_number}"), key_number % 2 == 1);
        let cache = self.cache();
        let mut begun = self.now();
        let op = match self.random.below(if is_number { 14 } else { 20 }) {
            0..6 => {
                if let Some(believed) = &self.believed
                    && let Some(value) = believed.get(&key)
                {
                    Some(Op::Read(value.clone()))
                } else {
                    let found = self.gets(cache, &key);
                    if let (Some((value, _)), Some(believed)) = (&found, &mut self.believed) {
                        believed.insert(key.clone(), value.clone());
                    }
                    found.map(|(value, _)| Op::Read(value))
                }
            }
            6..9 if is_number => {
                let amount = 1 + self.random.below(9);
                let answer = self.ask(cache, &format!("incr {key} {amount}\r\n"));
                match answer.as_deref().map(str::trim_end) {
                    Some("NOT_FOUND") => Some(Op::Absent),
                    Some(answer) if answer.ends_with("nothing was changed") => None,
                    answer => Some(match answer.and_then(|sum| sum.parse().ok()) {
                        Some(sum) => Op::Sum(amount, sum),
                        None => Op::Perhaps(Box::new(Op::Sum(amount, 0))),
                    }),
                }
            }
            6..9 => {
                let value = self.value();
                let command = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
                self.said(cache, &command, &[("STORED", Op::Set(value.clone()))], Op::Set(value))
            }
            9..11 => {
                let value = if is_number { self.random.below(1000).to_string() } else { self.value() };
                let command = format!("add {key} 0 0 {}\r\n{value}\r\n", value.len());
                let known = [("STORED", Op::Added(value.clone())), ("NOT_STORED", Op::NotAdded)];
                self.said(cache, &command, &known, Op::Added(value))
            }
            11..13 => {
                let known = [("DELETED", Op::Deleted), ("NOT_FOUND", Op::Absent)];
                self.said(cache, &format!("delete {key}\r\n"), &known, Op::Deleted)
            }
            13 if self.random.below(4) == 0 => {
                let op = self.said(cache, "flush_all\r\n", &[("OK", Op::Flushed)], Op::Flushed);
                // Of all keys: also of those to which nothing else happens.
                let ended = self.now();
                for other in (0..KEYS).filter(|other| *other != key_number) {
                    let events = op.clone().map(|op| Event { op, begun, ended });
                    events
                        .into_iter()
                        .for_each(|event| self.recorded.add(&format!("r{round}k{other}"), event));
                }
                op
            }
            13 => None,
            14..17 => {
                let words = format!("+{};", self.next.fetch_add(1, Ordering::Relaxed));
                let command = format!("append {key} 0 0 {}\r\n{words}\r\n", words.len());
                let known = [("STORED", Op::Appended(words.clone())), ("NOT_STORED", Op::Absent)];
                self.said(cache, &command, &known, Op::Appended(words))
            }
            _ => {
                let Some((old, unique)) = self.gets(cache, &key) else { return };
                let (ended, op) = (self.now(), Op::Read(old.clone()));
                self.recorded.add(&key, Event { op, begun, ended });
                let (value, through) = (self.value(), self.cache());
                begun = self.now();
                let command = format!("cas {key} 0 0 {} {unique}\r\n{value}\r\n", value.len());
                let swapped = Op::Swapped(old.clone(), value);
                let known =
                    [("STORED", swapped.clone()), ("EXISTS", Op::NotSwapped(old)), ("NOT_FOUND", Op::Absent)];
                self.said(through, &command, &known, swapped)
            }
        };
        if let Some(op) = op {
            self.recorded.add(&key, Event { op, begun, ended: self.now() });
        }
    }

    /// What a command did by its answer; if nobody knows, perhaps `op`. `None` if it did nothing.
    fn said(&mut self, cache: usize, command: &str, known: &[(&str, Op)], op: Op) -> Option<Op> {
        let answer = self.ask(cache, command);
        let answer = answer.as_deref().map(str::trim_end);
        match known.iter().find(|(word, _)| Some(*word) == answer) {
            Some((_, op)) => Some(op.clone()),
            None if answer.is_some_and(|answer| answer.ends_with("nothing was changed")) => None,
            None => {
                let is_failure = answer.is_none_or(|answer| answer.starts_with("SERVER_ERROR"));
                assert!(is_failure, "{command:?}: {answer:?}");
                Some(Op::Perhaps(Box::new(op)))
            }
        }
    }
}

/// Runs rounds of random commands, with one fault in most, and returns why the first key's history that is wrong is so.
fn run(caches: &mut Caches, plan: Plan) -> Option<String> {
    let Plan { rounds, seed, has_faults, believes, fresh, asks_one } = plan;
    let next = AtomicU64::new(1);
    let mut faults = Random(seed);
    let (mut known, mut unknown, mut decided, mut undecided) = (0, 0, 0, 0);
    for round in 0..rounds {
        let recorded = Recorded::default();
        let began = Instant::now();
        let victim = faults.below(3) as usize;
        let fault = if has_faults { faults.below(5) } else { 4 };
        // Where caches come and go, this takes as long as it does; otherwise clients are as fast as they can.
        let comes_and_goes = (2..4).contains(&fault) && !caches.has_network();
        let is_over = AtomicBool::new(!comes_and_goes);
        let pause = Duration::from_millis(10 + faults.below(40));
        let mut victims = caches.running[victim].take();
        thread::scope(|scope| {
            let all = &*caches;
            let (recorded, next, is_over) = (&recorded, &next, &is_over);
            let clients: Vec<_> = (0..CLIENTS)
                .map(|client| {
                    scope.spawn(move || {
                        let clients = all.at.iter().map(|at| Client::connect(*at)).collect();
                        let random = Random(seed ^ round << 20 ^ client << 8);
                        let believed = believes.then(HashMap::new);
                        let mut recorder = Recorder {
                            caches: all,
                            clients,
                            random,
                            recorded,
                            began,
                            number: 0,
                            next,
                            believed,
                            only: asks_one.then_some(0),
                        };
                        for number in 0.. {
                            let is_enough = is_over.load(Ordering::Relaxed) || number > 100 * COMMANDS;
                            if number >= COMMANDS && is_enough {
                                break;
                            }
                            recorder.step(round);
                            if comes_and_goes {
                                thread::sleep(Duration::from_micros(recorder.random.below(8_000)));
                            }
                        }
                    })
                })
                .collect();
            thread::sleep(pause);
            // A process that hangs, is killed and comes back, or is not reached.
            match fault {
                0 => {
                    let one = victims.as_ref().unwrap().process();
                    one.signal(Signal::STOP);
                    thread::sleep(pause * 30);
                    one.signal(Signal::CONT);
                }
                2 if comes_and_goes => {
                    victims.take().unwrap().kill();
                    all.lose(victim);
                    victims = Some(all.part(victim));
                    all.await_homes(3);
                }
                3 if comes_and_goes => all.with_fourth(pause, |_| {}),
                1 | 2 => {
                    victims.take().unwrap().kill();
                    thread::sleep(if fault == 1 { Duration::ZERO } else { pause * 4 });
                    victims = Some(all.part(victim));
                }
                3 if all.has_network() => {
                    all.cut(victim, true);
                    thread::sleep(pause * 30);
                    all.cut(victim, false);
                }
                _ => {}
            }
            is_over.store(true, Ordering::Relaxed);
            clients.into_iter().for_each(|client| client.join().unwrap());
        });
        caches.running[victim] = victims;
        eventually("it takes clients", || TcpStream::connect(caches.at[victim]).is_ok());
        for (key, mut events) in recorded.0.into_inner().unwrap() {
            for event in events.iter_mut().filter(|event| matches!(event.op, Op::Read(_))) {
                event.begun = event.begun.saturating_sub(fresh.as_nanos() as u64);
            }
            let pending = events.iter().filter(|event| matches!(event.op, Op::Perhaps(_))).count();
            unknown += pending;
            known += events.len() - pending;
            match judge(events) {
                Verdict::Linearizable => decided += 1,
                Verdict::Undecided => undecided += 1,
                Verdict::Wrong(problem) => {
                    return Some(format!("seed {seed}, round {round}, key {key}: {problem}"));
                }
            }
        }
    }
    println!(
        "{known} commands whose outcome is known, {unknown} others; {decided} histories, {undecided} undecided"
    );
    assert!(known > 10 * unknown && decided > 10 * undecided, "so little tells nothing");
    None
}

#[test]
fn histories_over_memory_are_linearizable() {
    assert_eq!(run(&mut Caches::start(By::Process, 8), Plan::new(6)), None);
}

#[test]
fn histories_over_a_network_are_linearizable() {
    assert_eq!(run(&mut Caches::over_network(By::Process, 8), Plan::new(6)), None);
}

#[test]
fn histories_over_verbs_are_linearizable() {
    if crate::support::has_rdma() {
        let mut caches = Caches::over_verbs(8);
        assert_eq!(run(&mut caches, Plan::new(6)), None);
    }
}

#[test]
fn with_copies_reads_are_as_old_as_they_may_be_and_no_older() {
    let mut caches = Caches::with_copies(By::Process, 16, FRESH);
    assert_eq!(run(&mut caches, Plan { fresh: FRESH, ..Plan::new(6) }), None);
    let copies: u64 = caches.clients().iter_mut().map(|client| client.stat("near_hits")).sum();
    assert!(copies > 0, "nobody read one");
    // The control: they are older than without.
    let problem = run(&mut caches, Plan { has_faults: false, ..Plan::new(20) });
    assert!(problem.is_some(), "copies passed for what was there");
}

#[test]
fn through_one_cache_nobody_sees_that_there_are_copies() {
    let mut caches = Caches::with_copies(By::Thread, 16, FRESH);
    assert_eq!(run(&mut caches, Plan { asks_one: true, has_faults: false, ..Plan::new(6) }), None);
    assert!(caches.client(0).stat("near_hits") > 0, "nobody read one");
}

#[test]
fn clients_that_believe_what_they_read_once_are_found_out() {
    let plan = Plan { has_faults: false, believes: true, ..Plan::new(20) };
    let problem = run(&mut Caches::start(By::Thread, 8), plan);
    assert!(problem.is_some(), "stale reads passed for right");
}

#[test]
#[ignore = "takes minutes: cargo xtask ci cache"]
fn long_histories_are_linearizable() {
    let given = std::env::var("SIDELONG_ROUNDS").ok().and_then(|rounds| rounds.parse().ok());
    let plan = Plan::new(given.unwrap_or(200));
    assert_eq!(run(&mut Caches::start(By::Process, 8), plan), None);
    assert_eq!(run(&mut Caches::over_network(By::Process, 8), plan), None);
    assert_eq!(run(&mut Caches::with_copies(By::Process, 16, FRESH), Plan { fresh: FRESH, ..plan }), None);
}
