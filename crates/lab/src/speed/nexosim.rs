//! M/M/1 in NexoSim, on one thread: requests at random to one server, of which they take 70 %.

use std::time::{Duration, Instant};

use nexosim::model::{Context, Model, schedulable};
use nexosim::simulation::{Mailbox, SimInit};
use nexosim::time::MonotonicTime;
use rand_distr::{Distribution as _, Exp1};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng as _;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Line {
    delays_ns: Vec<u64>,
    left: u64,
    now_ns: u64,
    free_ns: u64,
    in_system_ns: u64,
}

impl Line {
    fn delay_ns(&self, i: u64) -> u64 {
        self.delays_ns[i as usize & (self.delays_ns.len() - 1)].max(1)
    }
}

#[Model]
impl Line {
    #[nexosim(init)]
    async fn init(&mut self, cx: &Context<Self>) {
        cx.schedule_event(Duration::from_nanos(1), schedulable!(Self::arrive), 1).unwrap();
    }

    #[nexosim(schedulable)]
    fn arrive(&mut self, gap_ns: u64, cx: &Context<Self>) {
        self.now_ns += gap_ns;
        let service_ns = self.delay_ns(self.left * 31 + 7) * 7 / 10 + 1;
        self.free_ns = self.free_ns.max(self.now_ns) + service_ns;
        let in_system_ns = self.free_ns - self.now_ns;
        cx.schedule_event(Duration::from_nanos(in_system_ns), schedulable!(Self::leave), in_system_ns).unwrap();
        self.left -= 1;
        if self.left > 0 {
            let gap_ns = self.delay_ns(self.left);
            cx.schedule_event(Duration::from_nanos(gap_ns), schedulable!(Self::arrive), gap_ns).unwrap();
        }
    }

    #[nexosim(schedulable)]
    fn leave(&mut self, in_system_ns: u64) {
        self.in_system_ns += in_system_ns;
    }
}

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    let count: u64 = std::env::args().nth(1).and_then(|count| count.parse().ok()).expect("how many requests");
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut draw = || -> f64 { Exp1.sample(&mut random) };
    let delays_ns = (0..1 << 16).map(|_| (draw() * 1e6) as u64).collect();
    let line = Line { delays_ns, left: count, now_ns: 0, free_ns: 0, in_system_ns: 0 };
    let bench = SimInit::with_num_threads(1).add_model(line, Mailbox::new(), "line");
    let mut simulation = bench.init(MonotonicTime::EPOCH).expect("a bench");
    let (cpu, begun) = (cpu_s(), Instant::now());
    simulation.run().expect("a run");
    let (cpu_s, wall_s) = (cpu_s() - cpu, begun.elapsed().as_secs_f64());
    println!("{{\"requests\": {count}, \"events\": {}, \"cpu_s\": {cpu_s}, \"wall_s\": {wall_s}}}", 2 * count);
}
