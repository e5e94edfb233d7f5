//! The engine against queueing theory: a million requests each, within 1 %.
//!
//! M/M/1, M/M/c: L. Kleinrock, "Queueing Systems" I, 1975, ch. 3. M/G/1-PS: the same, II, 1976, 4.4. Closed networks:
//! M. Reiser and S. Lavenberg, "Mean-value analysis of closed multichain queuing networks", JACM 27(2), 1980.

use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng as _;
use sidelong_sim::Time;
use sidelong_sim::engine::{Model, Pool, Queue, Server, Shared, run};

const REQUESTS: usize = 1_000_000;
const SERVICE_NS: f64 = 1e6;

struct Lots(Pcg64Mcg);

impl Lots {
    fn new(seed: u64) -> Self {
        Lots(Pcg64Mcg::seed_from_u64(seed))
    }

    fn exponential_ns(&mut self, mean_ns: f64) -> u64 {
        let unit: f64 = Exp1.sample(&mut self.0);
        (unit * mean_ns).round() as u64
    }

    /// A tenth of the requests take nine times as long as the others: the given mean, squared variation 2.8.
    fn mixed_ns(&mut self, mean_ns: f64) -> u64 {
        let unit: f64 = Exp1.sample(&mut self.0);
        // 1 in 10, by a sufficiently independent number: whether the next one exceeds -ln(0.1).
        let other: f64 = Exp1.sample(&mut self.0);
        let long = other > 10f64.ln();
        (unit * mean_ns * if long { 5.0 } else { 5.0 / 9.0 }).round() as u64
    }
}

/// Poisson arrivals, each with its service time.
fn poisson(
    seed: u64,
    rate_per_ns: f64,
    mut service: impl FnMut(&mut Lots) -> u64,
) -> impl Iterator<Item = (Time, u64)> {
    let mut lots = Lots::new(seed);
    let mut now_ns = 0;
    (0..REQUESTS).map(move |_| {
        now_ns += lots.exponential_ns(1.0 / rate_per_ns);
        (Time::from_ns(now_ns), service(&mut lots))
    })
}

#[track_caller]
fn within_one_percent(what: &str, measured: f64, theory: f64) {
    let off = measured / theory - 1.0;
    assert!(off.abs() < 0.01, "{what}: {measured:.6e}, in theory {theory:.6e}, {:+.2} %", off * 100.0);
}

/// Requests that wait for a pool; each leaves by an event, so that the queue is tested too.
struct Line {
    pool: Pool,
    left: usize,
    in_system_ns: u64,
}

impl Model for Line {
    type Arrival = u64;
    type Event = u64;

    fn arrive(&mut self, now: Time, service_ns: u64, queue: &mut Queue<u64>) {
        queue.push(self.pool.serve(now, service_ns), now.as_ns());
    }

    fn happen(&mut self, now: Time, came_ns: u64, _queue: &mut Queue<u64>) {
        self.left += 1;
        self.in_system_ns += now.as_ns() - came_ns;
    }
}

/// Mean time in an M/M/c system.
fn line_ns(servers: usize, load: f64, seed: u64) -> f64 {
    let mut line = Line { pool: Pool::new(servers), left: 0, in_system_ns: 0 };
    let rate = load * servers as f64 / SERVICE_NS;
    let arrivals = poisson(seed, rate, |lots| lots.exponential_ns(SERVICE_NS));
    assert_eq!(run(&mut line, &mut Queue::new(), arrivals), 2 * REQUESTS as u64);
    assert_eq!(line.left, REQUESTS);
    line.in_system_ns as f64 / REQUESTS as f64
}

#[test]
fn one_server_queues_as_theory_has_it() {
    for (load, seed) in [(0.3, 1), (0.5, 1), (0.7, 1)] {
        within_one_percent(&format!("M/M/1 at {load}"), line_ns(1, load, seed), SERVICE_NS / (1.0 - load));
    }
}

#[test]
fn several_servers_queue_as_theory_has_it() {
    for (servers, load) in [(2, 0.6), (4, 0.7), (16, 0.8)] {
        // Erlang's C: the probability of having to wait.
        let offered = load * servers as f64;
        let mut blocked = 1.0;
        for server in 1..=servers {
            blocked = offered * blocked / (server as f64 + offered * blocked);
        }
        let waits = blocked / (1.0 - load * (1.0 - blocked));
        let theory = SERVICE_NS * (1.0 + waits / (servers as f64 * (1.0 - load)));
        within_one_percent(&format!("M/M/{servers} at {load}"), line_ns(servers, load, 1), theory);
    }
}

/// A shared server; an event carries its turn.
#[derive(Default)]
struct Sharing {
    server: Shared<u64>,
    left: usize,
    in_system_ns: u64,
}

impl Sharing {
    fn expect(&mut self, queue: &mut Queue<u64>) {
        if let Some(at) = self.server.next() {
            queue.push(at, self.server.turn());
        }
    }
}

impl Model for Sharing {
    type Arrival = u64;
    type Event = u64;

    fn arrive(&mut self, now: Time, service_ns: u64, queue: &mut Queue<u64>) {
        self.server.arrive(now, service_ns, now.as_ns());
        self.expect(queue);
    }

    fn happen(&mut self, now: Time, turn: u64, queue: &mut Queue<u64>) {
        if turn == self.server.turn() {
            let came_ns = self.server.leave(now).unwrap();
            self.left += 1;
            self.in_system_ns += now.as_ns() - came_ns;
            self.expect(queue);
        }
    }
}

#[test]
fn a_shared_server_is_slow_by_its_load_alone() {
    // The mean does not depend on the distribution of service times: the known property of processor sharing.
    type Law = fn(&mut Lots) -> u64;
    let laws: [(&str, Law); 2] = [
        ("exponential", |lots| lots.exponential_ns(SERVICE_NS)),
        ("mixed", |lots| lots.mixed_ns(SERVICE_NS)),
    ];
    for (name, law) in laws {
        for load in [0.3, 0.6] {
            let mut sharing = Sharing::default();
            run(&mut sharing, &mut Queue::new(), poisson(1, load / SERVICE_NS, law));
            assert_eq!(sharing.left, REQUESTS);
            let mean = sharing.in_system_ns as f64 / REQUESTS as f64;
            within_one_percent(&format!("M/{name}/1-PS at {load}"), mean, SERVICE_NS / (1.0 - load));
        }
    }
}

/// Customers in a loop: they think, then pass through each station once.
struct Closed {
    stations: Vec<(Server, f64)>,
    think_ns: f64,
    lots: Lots,
    rounds: usize,
    begun_ns: u64,
    ended_ns: u64,
    in_stations_ns: u64,
}

#[derive(Clone, Copy)]
struct Step {
    /// The customer's next station.
    to: usize,
    /// Start of this round.
    since_ns: u64,
}

impl Model for Closed {
    type Arrival = ();
    type Event = Step;

    fn arrive(&mut self, now: Time, (): (), queue: &mut Queue<Step>) {
        queue.push(now, Step { to: 0, since_ns: now.as_ns() });
    }

    fn happen(&mut self, now: Time, step: Step, queue: &mut Queue<Step>) {
        if let Some((station, mean_ns)) = self.stations.get_mut(step.to) {
            let done = station.serve(now, self.lots.exponential_ns(*mean_ns));
            queue.push(done, Step { to: step.to + 1, ..step });
            return;
        }
        self.rounds += 1;
        // The first tenth fills the network.
        if self.rounds == REQUESTS / 10 {
            self.begun_ns = now.as_ns();
        }
        if (REQUESTS / 10 + 1..=REQUESTS + REQUESTS / 10).contains(&self.rounds) {
            self.in_stations_ns += now.as_ns() - step.since_ns;
            self.ended_ns = now.as_ns();
        }
        if self.rounds <= REQUESTS + REQUESTS / 10 {
            let at = now.after_ns(self.lots.exponential_ns(self.think_ns));
            queue.push(at, Step { to: 0, since_ns: at.as_ns() });
        }
    }
}

/// Response time and throughput of such a network, by mean-value analysis.
fn mean_values(customers: usize, demands_ns: &[f64], think_ns: f64) -> (f64, f64) {
    let mut waiting = vec![0.0; demands_ns.len()];
    let (mut response, mut throughput) = (0.0, 0.0);
    for present in 1..=customers {
        let at: Vec<f64> = demands_ns.iter().zip(&waiting).map(|(d, q)| d * (1.0 + q)).collect();
        response = at.iter().sum::<f64>();
        throughput = present as f64 / (think_ns + response);
        waiting = at.iter().map(|residence| residence * throughput).collect();
    }
    (response, throughput)
}

#[test]
fn closed_networks_go_as_fast_as_theory_has_it() {
    let cases: [(usize, &[f64], f64); 3] = [
        // The machine repairman; a balanced one; a bottleneck of a disk.
        (8, &[1e6], 5e6),
        (12, &[1e6, 1e6, 1e6], 0.0),
        (20, &[0.2e6, 1.3e6, 0.6e6], 10e6),
    ];
    for (customers, demands_ns, think_ns) in cases {
        let mut closed = Closed {
            stations: demands_ns.iter().map(|mean_ns| (Server::default(), *mean_ns)).collect(),
            think_ns,
            lots: Lots::new(1),
            rounds: 0,
            begun_ns: 0,
            ended_ns: 0,
            in_stations_ns: 0,
        };
        let present = (0..customers).map(|_| (Time::default(), ()));
        run(&mut closed, &mut Queue::new(), present);
        let (response, throughput) = mean_values(customers, demands_ns, think_ns);
        let measured = REQUESTS as f64 / (closed.ended_ns - closed.begun_ns) as f64;
        within_one_percent(&format!("throughput of {customers}"), measured, throughput);
        let measured = closed.in_stations_ns as f64 / REQUESTS as f64;
        within_one_percent(&format!("response of {customers}"), measured, response);
    }
}
