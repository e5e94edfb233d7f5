//! F1: proxies of other makes, each led by Sidelong, by its own best method, and before one pool of all servers, under R10's
//! bursts and under loads that show what leading costs and where it pays.
//!
//! The pool that all sites share is what a sceptic asks for. On these nodes every server can serve every site at any time, so that it
//! is the fastest by far; it has no floors and no targets.

mod judge;
mod load;
mod report;

use std::time::Duration;

use serde::Serialize;
use sidelong_figure::Style;

use crate::bench::Bench;
use crate::check::Check;
use crate::drawing::Drawing;
use crate::error::{Error, Result};
use crate::report::Settings;
use crate::story::Story;
use crate::study::{self, Bound, Conclusion, Rows, Study};
use crate::table::Fixed;
use crate::up::{Spread, Summary};
use load::{Case, Extent, Load};

/// What clients connect to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Proxy {
    Nginx,
    Httpd,
    Haproxy,
    /// The same, whose Lua asks for the server of each request.
    HaproxyByChoice,
    Envoy,
    /// Sidelong's own.
    Edge,
}

impl Proxy {
    const ALL: [Proxy; 6] =
        [Proxy::Nginx, Proxy::Httpd, Proxy::Haproxy, Proxy::HaproxyByChoice, Proxy::Envoy, Proxy::Edge];
    /// Those of other makes.
    const OTHERS: [Proxy; 5] =
        [Proxy::Nginx, Proxy::Httpd, Proxy::Haproxy, Proxy::HaproxyByChoice, Proxy::Envoy];

    const fn name(self) -> &'static str {
        match self {
            Proxy::Nginx => "nginx",
            Proxy::Httpd => "httpd",
            Proxy::Haproxy => "haproxy",
            Proxy::HaproxyByChoice => "haproxy by choice",
            Proxy::Envoy => "envoy",
            Proxy::Edge => "edge",
        }
    }

    /// In the names of files.
    fn word(self) -> String {
        self.name().replace(' ', "-")
    }

    /// The program itself, which `up --front` names, whoever chooses for it.
    const fn program(self) -> Proxy {
        match self {
            Proxy::HaproxyByChoice => Proxy::Haproxy,
            Proxy::Nginx | Proxy::Httpd | Proxy::Haproxy | Proxy::Envoy | Proxy::Edge => self,
        }
    }

    const fn style(self) -> Style {
        match self {
            Proxy::Nginx => Style::BASELINE,
            Proxy::Httpd => Style::THIRD,
            Proxy::Haproxy => Style::FOURTH,
            Proxy::HaproxyByChoice => Style::series(5),
            Proxy::Envoy => Style::FIFTH,
            Proxy::Edge => Style::OURS,
        }
    }

    /// How Sidelong leads it.
    const fn led_by(self) -> &'static str {
        match self {
            Proxy::Haproxy => "Sidelong, weights",
            Proxy::Nginx | Proxy::Httpd | Proxy::HaproxyByChoice | Proxy::Envoy | Proxy::Edge => {
                "Sidelong, choice"
            }
        }
    }

    /// Its own best method.
    const fn own_method(self) -> &'static str {
        match self {
            Proxy::Nginx => "least_conn",
            Proxy::Httpd => "bybusyness",
            Proxy::Haproxy | Proxy::HaproxyByChoice => "leastconn",
            Proxy::Envoy => "LEAST_REQUEST",
            Proxy::Edge => "Sidelong, no moves",
        }
    }
}

/// Who chooses the server of a request, as `up --by` names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    Own,
    Sidelong,
    Shared,
}

impl By {
    const ALL: [By; 3] = [By::Own, By::Sidelong, By::Shared];

    const fn name(self) -> &'static str {
        match self {
            By::Own => "own",
            By::Sidelong => "sidelong",
            By::Shared => "shared",
        }
    }
}

/// The systems that a load is put on, in the order of their turns. The edge has no pool that all sites share, and among the servers
/// of one site it has one method. HAProxy by itself has its turns once.
fn systems(load: Load) -> impl Iterator<Item = (Proxy, By)> {
    let all = Proxy::ALL.into_iter().flat_map(|proxy| By::ALL.map(|by| (proxy, by)));
    all.filter(move |(proxy, by)| match by {
        By::Sidelong => true,
        By::Own | By::Shared if proxy.program() != *proxy => false,
        By::Own => load.has_sites() || *proxy != Proxy::Edge,
        By::Shared => load.has_sites() && *proxy != Proxy::Edge,
    })
}

/// The figures of one run.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    case: Case,
    proxy: Proxy,
    by: By,
    requests_per_s: f64,
    /// Answers within the target, of what the servers can answer. Where there is a target.
    goodput: Option<f64>,
    p50_ms: f64,
    p99_ms: f64,
    moves: u64,
    move_ms: Option<Spread>,
    step_ms: Option<Spread>,
    /// CPU time of the proxies for each request, answered or not.
    cpu_us: f64,
    /// What a front takes of one CPU.
    front_cpu: Option<f64>,
    /// Requests that came to a server of another site. In a pool that all sites share there are no such servers.
    misdirected: Option<u64>,
    errors: u64,
}

impl Row {
    fn new(case: Case, (proxy, by): (Proxy, By), summary: &Summary, goodput: Option<f64>) -> Row {
        let is_led = by == By::Sidelong && proxy != Proxy::Edge;
        let of_a_front = summary.fronts_cpu_s / summary.seconds / f64::from(case.proxies);
        Row {
            case,
            proxy,
            by,
            requests_per_s: summary.requests_per_s,
            goodput,
            p50_ms: summary.p50_ms,
            p99_ms: summary.p99_ms,
            moves: summary.moves,
            move_ms: summary.move_ms,
            step_ms: summary.step_to_first_request_ms,
            cpu_us: summary.proxies_cpu_s * 1e6 / summary.requests as f64,
            front_cpu: is_led.then_some(of_a_front),
            misdirected: (by != By::Shared).then_some(summary.misdirected),
            errors: summary.errors,
        }
    }

    /// Requests/s for which the proxy needs the whole of a CPU.
    fn per_core(&self) -> f64 {
        1e6 / self.cpu_us
    }
}

/// A line of `rows.csv`.
#[derive(Debug, Serialize)]
struct TableLine {
    load: Load,
    proxies: u16,
    proxy: Proxy,
    by: By,
    requests_per_s: Fixed<1>,
    goodput: Option<Fixed<4>>,
    p50_ms: Fixed<3>,
    p99_ms: Fixed<3>,
    moves: u64,
    move_ms_p50: Option<Fixed<3>>,
    step_ms_p50: Option<Fixed<3>>,
    cpu_us_per_request: Fixed<2>,
    front_cpu: Option<Fixed<4>>,
    misdirected: Option<u64>,
    errors: u64,
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<Conclusion> {
    let extent = if bench.options.quick { Extent::QUICK } else { Extent::FULL };
    study::run(bench, Fronts { settings: Settings::of(load::DEMAND), extent, missing: Vec::new() })
}

#[derive(Serialize)]
struct Fronts {
    #[serde(flatten)]
    settings: Settings,
    #[serde(skip)]
    extent: Extent,
    /// Proxies that are not here, with what `up` says of it.
    missing: Vec<(Proxy, String)>,
}

impl Fronts {
    fn turns(&self) -> Vec<(Case, Proxy, By)> {
        let of = |case: &Case| systems(case.load).map(|(proxy, by)| (*case, proxy, by)).collect::<Vec<_>>();
        self.extent.cases.iter().flat_map(of).collect()
    }

    /// Makes one run. `None` if the proxy is not here.
    fn turn(
        &mut self,
        bench: &Bench<'_>,
        case: Case,
        proxy: Proxy,
        by: By,
        name: &str,
    ) -> Result<Option<Row>> {
        let time = self.extent.time(case.load, by);
        let file = case.cluster_file(&bench.ground, by, &self.extent);
        let about = format!("{}, {} by {}", case.describe(), proxy.name(), by.name());
        let by_whom = if proxy == Proxy::HaproxyByChoice { "choose" } else { by.name() };
        let front = ["--front", proxy.program().name(), "--by", by_whom];
        let with: &[_] = if proxy == Proxy::Edge { &[] } else { &front };
        let ran = match case.load.target() {
            Some(_) => bench.up_by_request(with, name, &about, &file, time),
            None => bench.up_on(with, name, &about, &file, time).map(|summary| (summary, Vec::new())),
        };
        let (summary, requests) = match ran {
            Err(Error::Failed { said, .. }) if said.contains("--front") => {
                self.missing.push((proxy, said.trim_start_matches("sidelong: ").to_owned()));
                return Ok(None);
            }
            ran => ran?,
        };
        let goodput = case.load.target().map(|target| load::goodput(&requests, target, time));
        Ok(Some(Row::new(case, (proxy, by), &summary, goodput)))
    }
}

impl Study for Fronts {
    type Row = Row;
    type Line = TableLine;

    const REPEAT: [u32; 2] = [3, 1];

    fn plan(&self) -> Vec<Duration> {
        self.turns().into_iter().map(|(case, _, by)| self.extent.time(case.load, by)).collect()
    }

    fn run(&mut self, bench: &mut Bench<'_>, rows: &mut Rows<Fronts>) -> Result<()> {
        for (case, proxy, by) in self.turns() {
            if self.missing.iter().any(|(missing, _)| [proxy, proxy.program()].contains(missing)) {
                bench.skip();
                continue;
            }
            let name = bench.name(format!("{}-{}-{}", case.word(), proxy.word(), by.name()));
            bench.begin(&name);
            let row = self.turn(bench, case, proxy, by, &name)?;
            bench.end();
            if let Some(row) = row {
                rows.push(self, row)?;
            }
        }
        Ok(())
    }

    fn lines(&self, row: &Row) -> Vec<TableLine> {
        let Row { case, proxy, by, requests_per_s, goodput, p50_ms, p99_ms, moves, .. } = *row;
        vec![TableLine {
            load: case.load,
            proxies: case.proxies,
            proxy,
            by,
            requests_per_s: Fixed(requests_per_s),
            goodput: goodput.map(Fixed),
            p50_ms: Fixed(p50_ms),
            p99_ms: Fixed(p99_ms),
            moves,
            move_ms_p50: row.move_ms.map(|took| Fixed(took.p50)),
            step_ms_p50: row.step_ms.map(|took| Fixed(took.p50)),
            cpu_us_per_request: Fixed(row.cpu_us),
            front_cpu: row.front_cpu.map(Fixed),
            misdirected: row.misdirected,
            errors: row.errors,
        }]
    }

    fn bounds(&self, row: &Row) -> Vec<Bound> {
        let of =
            |what: &str| format!("{}, {} by {}: {what}", row.case.word(), row.proxy.name(), row.by.name());
        let most = row.case.load.requests_per_s_max(row.by);
        let goodput = row.goodput.map(|goodput| Bound::new(of("goodput"), goodput, 0.0..=load::NOISE));
        let figures = [
            Bound::new(of("requests/s"), row.requests_per_s, 0.0..=most),
            Bound::new(of("p50, ms"), row.p50_ms, 0.0..=row.p99_ms),
            Bound::not_below_zero(of("CPU time of a request"), row.cpu_us),
        ];
        figures.into_iter().chain(goodput).collect()
    }

    fn checks(&self, rows: &[Row]) -> Vec<Check> {
        judge::checks(rows)
    }

    fn draw(&self, rows: &[Row]) -> Drawing {
        report::draw(rows)
    }

    fn tell(&self, rows: &[Row], story: &mut Story) {
        report::tell(self, rows, story);
    }
}

fn find(rows: &[Row], load: Load, proxies: u16, system: (Proxy, By)) -> Option<&Row> {
    rows.iter().find(|row| row.case == Case { load, proxies } && (row.proxy, row.by) == system)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a full run on a machine where leading costs nothing, and pays.
    pub(super) fn rows() -> Vec<Row> {
        let spread = |p50| Spread { count: 15, p50, p99: 40.0, max: 41.0 };
        let row = |(case, proxy, by): (Case, Proxy, By)| {
            let is_led = by == By::Sidelong;
            let has_moves = is_led && case.load.has_sites();
            let [slower, faster] =
                if case.load == Load::Slow && !is_led { [30.0, 900.0] } else { [20.0, 1100.0] };
            Row {
                case,
                proxy,
                by,
                requests_per_s: match (case.load.has_sites(), by) {
                    (false, _) => faster,
                    (true, By::Own) => 1044.0,
                    (true, By::Sidelong) => 2350.0,
                    (true, By::Shared) => 3200.0,
                },
                goodput: case.load.target().map(|_| if is_led { 0.95 } else { 0.1 }),
                p50_ms: 13.0,
                p99_ms: slower,
                moves: if has_moves { 33 } else { 0 },
                move_ms: has_moves.then(|| spread(1.1)),
                step_ms: has_moves.then(|| spread(17.0)),
                cpu_us: 30.0,
                front_cpu: is_led.then_some(0.02),
                misdirected: (by != By::Shared).then_some(0),
                errors: 0,
            }
        };
        fronts(Extent::FULL).turns().into_iter().map(row).collect()
    }

    pub(super) fn fronts(extent: Extent) -> Fronts {
        Fronts { settings: Settings::of(load::DEMAND), extent, missing: Vec::new() }
    }

    #[test]
    fn a_row_has_the_columns_of_its_experiment() {
        let fronts = fronts(Extent::QUICK);
        let [columns, line] = crate::table::written(fronts.lines(&rows()[1]).remove(0));
        assert_eq!(
            columns,
            "load,proxies,proxy,by,requests_per_s,goodput,p50_ms,p99_ms,moves,move_ms_p50,step_ms_p50,cpu_us_per_request,front_cpu,\
             misdirected,errors"
        );
        assert_eq!(line, "bursts,2,nginx,sidelong,2350.0,,13.000,20.000,33,1.100,17.000,30.00,0.0200,0,0");
        let with_target = rows().into_iter().find(|row| row.goodput.is_some()).unwrap();
        assert_eq!((fronts.bounds(&rows()[1]).len(), fronts.bounds(&with_target).len()), (3, 4));
    }

    #[test]
    fn each_proxy_has_its_turns_under_each_load() {
        let count = |load| systems(load).count();
        assert_eq!((count(Load::Bursts), count(Load::Equal)), (15, 10));
        assert_eq!(fronts(Extent::QUICK).turns().len(), 15 + 4 * 10);
        assert_eq!(fronts(Extent::FULL).plan().len(), 15 + 8 * 10);
        // The figures of what is compared come from runs that follow each other.
        for (case, proxy, by) in fronts(Extent::FULL).turns() {
            assert!(
                by != By::Own
                    || proxy == Proxy::Edge
                    || systems(case.load).any(|other| other == (proxy, By::Sidelong))
            );
        }
    }
}
