//! edge-overhead: what a request costs the edge, beside nginx and HAProxy as Debian has them.
//!
//! Each proxy is on one CPU, and has one thread for requests. The load and the one server behind them, a built-in node that takes
//! no time, are on the other CPUs. The proxies take turns, because the machine's speed drifts, and what is not in its turn is
//! stopped (SIGSTOP), so that it takes no CPU time from the others. The ratios within a round are judged. The load need not be
//! faster than a proxy: what counts is the proxy's CPU time for a request.

mod case;
mod certificate;
mod idle;
mod proxies;
mod report;
mod stage;

use std::time::Duration;

use serde::Serialize;
use sidelong_os::raise_open_files;

use crate::bench::Bench;
use crate::check::Check;
use crate::cpus;
use crate::drawing::Drawing;
use crate::error::Result;
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use crate::turn::Turn;
use case::{Against, Case, TARGETS, Target};
use stage::Stage;

/// Turns of each proxy in each case, and the duration of one.
const ROUNDS: [u32; 2] = [15, 5];
const TIMES: [Duration; 2] = [Duration::from_millis(1500), Duration::from_millis(500)];
/// Warm-up of each proxy in each case before the first round.
const WARM_UP: Duration = Duration::from_millis(200);
/// Rate of the open loop in the warm-up, in requests/s.
const WARM_UP_RATE: f64 = 1000.0;
/// About the time in which the memory of a proxy's idle connections is measured.
const IDLE_TIME: Duration = Duration::from_secs(4);

/// The proxies that take turns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Proxy {
    Edge,
    Nginx,
    Haproxy,
}

impl Proxy {
    const ALL: [Proxy; 3] = [Proxy::Edge, Proxy::Nginx, Proxy::Haproxy];

    const fn name(self) -> &'static str {
        match self {
            Proxy::Edge => "edge",
            Proxy::Nginx => "nginx",
            Proxy::Haproxy => "HAProxy",
        }
    }

    /// All orders have their turn, so that in half of them the edge goes before nginx.
    fn order(round: u32) -> [Proxy; 3] {
        let mut order = Proxy::ALL;
        order.rotate_left(round as usize % 3);
        if (round / 3) % 2 == 1 {
            order.reverse();
        }
        order
    }
}

/// What was measured of a proxy in a case.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(untagged)]
enum Found {
    Turn(Turn),
    Idle { bytes_per_connection: f64 },
}

impl Found {
    fn turn(&self) -> Option<&Turn> {
        if let Found::Turn(turn) = self { Some(turn) } else { None }
    }

    fn cpu_us(&self) -> Option<f64> {
        self.turn().map(|turn| turn.cpu_us_per_request)
    }

    fn p50_ms(&self) -> Option<f64> {
        self.turn().map(|turn| turn.p50_ms)
    }

    fn p99_ms(&self) -> Option<f64> {
        self.turn().map(|turn| turn.p99_ms)
    }

    /// Memory of an idle connection, in KB of 1,000 bytes.
    fn idle_kb(&self) -> Option<f64> {
        if let Found::Idle { bytes_per_connection } = self { Some(bytes_per_connection / 1e3) } else { None }
    }
}

/// The figures of one proxy in one case of a round.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    /// The round, from 1.
    round: u32,
    case: Case,
    proxy: Proxy,
    #[serde(flatten)]
    found: Found,
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    round: u32,
    case: Case,
    proxy: Proxy,
    requests_per_s: Option<Fixed<1>>,
    p50_ms: Option<Fixed<3>>,
    p99_ms: Option<Fixed<3>>,
    cpu_us_per_request: Option<Fixed<2>>,
    cpu_busy: Option<Fixed<3>>,
    errors: Option<u64>,
    idle_kb_per_connection: Option<Fixed<3>>,
}

/// Settings that all turns share.
#[derive(Serialize)]
struct Overhead {
    turn_s: f64,
    connections: u32,
    idle_connections: u32,
    proxy_cpu: usize,
    load_cpus: Vec<usize>,
    #[serde(skip)]
    time: Duration,
    /// Memory of idle connections, measured once: it belongs to each round.
    #[serde(skip)]
    idle: Vec<Row>,
    /// The processes, which run from the first round.
    #[serde(skip)]
    stage: Option<Stage>,
}

impl Overhead {
    fn new(quick: bool, proxy_cpu: usize, load_cpus: Vec<usize>) -> Overhead {
        let quick = usize::from(quick);
        let (time, connections, idle_connections) = (TIMES[quick], case::CONNECTIONS, stage::IDLE[quick]);
        let turn_s = time.as_secs_f64();
        Overhead {
            turn_s,
            connections,
            idle_connections,
            proxy_cpu,
            load_cpus,
            time,
            idle: Vec::new(),
            stage: None,
        }
    }
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let (proxy_cpu, load_cpus) = cpus::one_and_others()?;
    // Other proxies take this process's limit for theirs. The idle connections and those of the load need more than 1,024.
    if let Err(error) = raise_open_files(None) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
    bench.expect_for(case::planned(WARM_UP, 3) + 6 * IDLE_TIME);
    study::run(bench, Overhead::new(bench.options.quick, proxy_cpu, load_cpus))
}

impl Overhead {
    /// The row of a proxy in a case. `rows` are those of the round so far.
    fn measure(&self, stage: &Stage, round: u32, case: Case, proxy: Proxy, rows: &[Row]) -> Result<Row> {
        let rate =
            |proxy| figure(rows, Case::Kb, proxy, |found| found.turn().map(|turn| turn.requests_per_s));
        let half = rate(Proxy::Edge).zip(rate(Proxy::Nginx)).map(|(edge, nginx)| edge.min(nginx) / 2.0);
        let found = stage.measure(case, proxy, half.unwrap_or(WARM_UP_RATE), self.time * case.lengths())?;
        Ok(Row { round, case, proxy, found })
    }
}

impl Study for Overhead {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = ROUNDS;

    fn plan(&self) -> Vec<Duration> {
        vec![case::planned(self.time, 3)]
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Overhead>) -> Result<()> {
        let round = bench.repetition;
        let turns = |case: Case| {
            let proxies = Proxy::order(round).into_iter();
            proxies.filter(move |proxy| *proxy == Proxy::Edge || case.stand().has_others())
        };
        let stage = match self.stage.take() {
            Some(stage) => {
                self.idle.iter().for_each(|row| rows.keep(row.clone()));
                stage
            }
            None => {
                bench.begin("warm-up");
                let stage = Stage::set(bench)?;
                // Memory first, of processes that have served nothing.
                for case in Case::ALL {
                    for proxy in turns(case) {
                        if case.is_idle() {
                            let row = self.measure(&stage, round, case, proxy, &[])?;
                            self.idle.push(row.clone());
                            rows.push(self, row)?;
                        } else {
                            stage.measure(case, proxy, WARM_UP_RATE, WARM_UP)?;
                        }
                    }
                }
                bench.end();
                // The warm-up is not judged, and memory does not depend on other work.
                bench.take_spoilt();
                stage
            }
        };
        bench.begin(&format!("round-{round}"));
        for case in Case::ALL.into_iter().filter(|case| !case.is_idle()) {
            for proxy in turns(case) {
                let row = self.measure(&stage, round, case, proxy, rows.all())?;
                rows.push(self, row)?;
            }
        }
        bench.end();
        self.stage = Some(stage);
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { round, case, proxy, found } = row;
        let turn = found.turn();
        vec![TableLine {
            round: *round,
            case: *case,
            proxy: *proxy,
            requests_per_s: turn.map(|turn| Fixed(turn.requests_per_s)),
            p50_ms: turn.map(|turn| Fixed(turn.p50_ms)),
            p99_ms: turn.map(|turn| Fixed(turn.p99_ms)),
            cpu_us_per_request: turn.map(|turn| Fixed(turn.cpu_us_per_request)),
            cpu_busy: turn.map(|turn| Fixed(turn.cpu_busy)),
            errors: turn.map(|turn| turn.errors),
            idle_kb_per_connection: found.idle_kb().map(Fixed),
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of = |what: &str| format!("{}, {}: {what}", row.case.title(), row.proxy.name());
        match &row.found {
            Found::Turn(turn) => vec![
                // The proxy is held to one CPU. Its time is read a little later than the clock.
                Bound::new(of("CPUs in use"), turn.cpu_busy, 0.0..=1.1),
                Bound::new(of("p50, ms"), turn.p50_ms, 0.0..=turn.p99_ms),
            ],
            Found::Idle { bytes_per_connection } => {
                vec![Bound::not_below_zero(of("bytes of an idle connection"), *bytes_per_connection)]
            }
        }
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        report::draw(rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        report::tell(self, rows, story);
    }
}

/// A figure of `proxy` in a case. `None` if that was not measured in this round.
fn figure(rows: &[Row], case: Case, proxy: Proxy, of: fn(&Found) -> Option<f64>) -> Option<f64> {
    of(&rows.iter().find(|row| (row.case, row.proxy) == (case, proxy))?.found)
}

/// The ratio of a proxy's figure to nginx's. `None` if one is missing.
fn to_nginx(rows: &[Row], target: &Target, proxy: Proxy) -> Option<f64> {
    let nginx = figure(rows, target.case, Proxy::Nginx, target.figure).filter(|nginx| *nginx > 0.0);
    Some(figure(rows, target.case, proxy, target.figure)? / nginx?)
}

/// What is judged by a target.
fn judged(rows: &[Row], target: &Target) -> Option<f64> {
    let edge = figure(rows, target.case, Proxy::Edge, target.figure);
    match target.against {
        Against::Nginx(_) => to_nginx(rows, target, Proxy::Edge),
        Against::Own(case, _) => {
            let own = figure(rows, case, Proxy::Edge, target.figure).filter(|own| *own > 0.0);
            Some(edge? / own?)
        }
        Against::Itself(_) => edge,
    }
}

fn checks(rows: &[Row]) -> Vec<Check> {
    let check = |target: &Target| {
        let case = target.case.title();
        // Without its unit, which a ratio does not have.
        let what = target.what.split(',').next().unwrap_or_default();
        let (what, at_most) = match target.against {
            Against::Nginx(at_most) => (format!("{case}: {what}, edge / nginx"), at_most),
            Against::Own(served, at_most) => {
                (format!("{case}: CPU, to that of one served ({})", served.title()), at_most)
            }
            Against::Itself(at_most) => (format!("{case}: {}", target.what), at_most),
        };
        Check::at_most(what, at_most, judged(rows, target))
    };
    let mut checks: Vec<Check> = TARGETS.iter().map(check).collect();
    let errors: u64 = rows.iter().filter_map(|row| row.found.turn()).map(|turn| turn.errors).sum();
    checks.push(Check::at_most(
        "requests that did not end as they should, all turns of a round",
        0.0,
        Some(errors as f64),
    ));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Verdict;

    fn turn(case: Case, proxy: Proxy, cpu_us_per_request: f64) -> Row {
        let turn = Turn {
            requests: 20_000,
            requests_per_s: 1e6 / cpu_us_per_request,
            p50_ms: cpu_us_per_request / 10.0,
            p99_ms: cpu_us_per_request / 5.0,
            cpu_us_per_request,
            cpu_busy: 0.99,
            errors: 0,
        };
        Row { round: 1, case, proxy, found: Found::Turn(turn) }
    }

    /// A round in which nginx takes 20 us for each request, and HAProxy 30; an idle connection takes the edge 10 KB.
    fn rows(edge_us: f64, rejection_us: f64) -> Vec<Row> {
        let row = |case: Case, proxy| match (case, proxy) {
            _ if case.is_idle() => {
                Row { round: 1, case, proxy, found: Found::Idle { bytes_per_connection: 10_000.0 } }
            }
            _ if case.stand().rejects() => turn(case, proxy, rejection_us),
            (_, Proxy::Edge) => turn(case, proxy, edge_us),
            (_, Proxy::Nginx) => turn(case, proxy, 20.0),
            (_, Proxy::Haproxy) => turn(case, proxy, 30.0),
        };
        let proxies = |case: Case| {
            let here = move |proxy: &Proxy| *proxy == Proxy::Edge || case.stand().has_others();
            Proxy::ALL.into_iter().filter(here).map(move |proxy| row(case, proxy))
        };
        Case::ALL.into_iter().flat_map(proxies).collect()
    }

    #[test]
    fn each_target_is_judged_within_the_round() {
        let verdicts = |rows: &[Row]| checks(rows).iter().map(|check| check.verdict).collect::<Vec<_>>();
        let good = verdicts(&rows(18.0, 2.0));
        let missed: Vec<_> = (0..good.len()).filter(|at| good[*at] != Verdict::Met).collect();
        assert_eq!(missed, [11], "10 KB are too much without TLS");
        // 21 / 20 is met by handshakes alone, and the rejections cost a third.
        let bad = verdicts(&rows(21.0, 7.0));
        let met: Vec<_> = (0..bad.len()).filter(|at| bad[*at] == Verdict::Met).collect();
        assert_eq!(met, [7, 12, 15]);
        assert!(verdicts(&[])[..15].iter().all(|verdict| *verdict == Verdict::NotMeasured));
        let what = checks(&rows(18.0, 2.0))[0].what.clone();
        assert_eq!(what, "1 KB, 32 kept connections: CPU a request, edge / nginx");
        let mut broken = rows(18.0, 2.0);
        if let Found::Turn(turn) = &mut broken[10].found {
            turn.errors = 1;
        }
        assert_eq!(verdicts(&broken)[15], Verdict::Missed);
    }

    #[test]
    fn the_edge_goes_before_nginx_in_half_of_the_rounds() {
        let place = |order: [Proxy; 3], proxy| order.iter().position(|one| *one == proxy).unwrap();
        let orders: Vec<_> = (1..=6).map(Proxy::order).collect();
        let before = |order: &&[Proxy; 3]| place(**order, Proxy::Edge) < place(**order, Proxy::Nginx);
        assert_eq!(orders.iter().filter(before).count(), 3);
        for at in 0..3 {
            assert_eq!(orders.iter().filter(|order| order[at] == Proxy::Haproxy).count(), 2);
        }
    }

    #[test]
    fn a_row_has_the_columns_of_its_experiment() {
        let study = Overhead::new(false, 0, vec![1]);
        let line = |row: Row| crate::table::written(study.lines(&row).remove(0));
        let [columns, of_turn] = line(turn(Case::Mb, Proxy::Edge, 20.0));
        assert_eq!(
            columns,
            "round,case,proxy,requests_per_s,p50_ms,p99_ms,cpu_us_per_request,cpu_busy,errors,\
             idle_kb_per_connection"
        );
        assert_eq!(of_turn, "1,mb,edge,50000.0,2.000,4.000,20.00,0.990,0,");
        assert_eq!(line(rows(18.0, 2.0).remove(1))[1], "1,idle,nginx,,,,,,,10.000");
    }

    #[test]
    fn the_figure_has_a_point_for_each_proxy_and_the_targets() {
        let drawing = report::draw(&rows(18.0, 2.0));
        let points = |panel: usize| {
            let lines = drawing.panels[panel].lines.iter().filter(|line| !line.style.is_dashed());
            lines.flat_map(|line| line.points.clone()).collect::<Vec<_>>()
        };
        let sizes: Vec<_> = drawing.panels.iter().map(|panel| panel.x.ticks.len()).collect();
        assert_eq!(sizes, [6, 5, 2]);
        assert_eq!((points(0).len(), points(1).len(), points(2).len()), (18, 15, 6));
        assert_eq!((points(0)[0], points(0)[6], points(0)[12]), ((1.0, 1.0), (1.0, 1.5), (1.0, 0.9)));
        assert_eq!(points(2)[0], (1.0, 1.0), "10 KB, as a power of ten");
        let labels: Vec<_> =
            drawing.panels[1].x.ticks.iter().map(|at| (drawing.panels[1].x.label)(*at)).collect();
        assert_eq!(labels, ["kept", "new", "h2", "p50", "p99"]);
        crate::drawing::draw("t", vec![drawing]).unwrap();
    }
}
