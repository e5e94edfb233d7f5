//! X1: five machines on which parts die and hang and networks fail, by seed, while a cluster serves, moves nodes and changes.
//!
//! Machines are network namespaces. A repetition is a seed: its number. The plan of a seed (`plan`) and the judgement (`judge`) are pure.

mod apart;
mod changes;
mod clients;
mod judge;
mod machines;
mod plan;
mod relay;
mod stage;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::json;
use sidelong_figure::statistics::median;
use sidelong_figure::{self as figure, Axis, Line, Panel, Style};
use sidelong_harness::words::{Look, Words};

use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::{Error, Result};
use crate::experiment::{Experiment, OWN};
use crate::measure::{Dimension, Measure, Word};
use crate::samples::Samples;
use crate::series::most;

pub(crate) use apart::X3;
pub(crate) use changes::X2;
use clients::{Asked, End};
use judge::{BACK, Judged, Made, NEAR, back, judge};
use plan::{Fault, Kind, MACHINES};
use stage::{LEASE, LEAVES, Part, SITES, Stage};

/// How long faults are made, in full and quick.
const TIME: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(20)];
/// Before the first fault, and after the last.
const CALM: Duration = Duration::from_secs(2);
/// Between two looks at all words.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Between two commands.
const COMMAND_EVERY: Duration = Duration::from_millis(1_500);
const POLL: Duration = Duration::from_millis(5);
/// Longest wait for a cluster that does not come to rest.
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// Failures that the log has of each seed.
const TOLD_MAX: usize = 50;
/// Width of a point of the timeline.
const SLOT: Duration = Duration::from_millis(250);
const ALL: &str = "all";
/// The targets.
const SETTLED_MS_MAX: f64 = 3.0 * LEASE.as_millis() as f64;
/// Until all are at one moment. Moves under load go on after the faults, so this takes luck as well.
const CALM_MS_MAX: f64 = 20.0 * LEASE.as_millis() as f64;

/// What nothing may cause.
const WRONG: Measure = Measure::new("wrong", "wrong answers", [0, 0]);
const MISDIRECTED: Measure = Measure::new("misdirected", "at a server of another site", [0, 0]);
const BELOW_FLOOR: Measure = Measure::new("below_floor_ms", "longest below a floor, ms", [0, 0]);
const ENDED: Measure = Measure::new("ended", "parts that ended by themselves", [0, 0]);

pub(crate) const X1: Experiment = Experiment::new(
    "X1",
    OWN,
    "five machines on which parts and networks fail, by seed",
    Design {
        repeat: [10, 3],
        // Nothing here is judged by how fast it is.
        needs_the_machine: false,
        dimensions: &[Dimension::new(
            "fault",
            "what fails",
            &[
                Word::plain(ALL, "all of it"),
                Word::new("kill", "a part is killed", Style::BASELINE).short("kill"),
                Word::new("stop", "a part hangs", Style::BASELINE).short("stop"),
                Word::new("crash", "a machine loses its power", Style::BASELINE).short("crash"),
                Word::new("cut", "a machine is cut off", Style::OURS).short("cut"),
                Word::new("deaf", "it hears nothing", Style::OURS).short("deaf"),
                Word::new("mute", "it sends nothing", Style::OURS).short("mute"),
                Word::new("reject", "it rejects", Style::OURS).short("reject"),
                Word::new("loss", "it loses packets", Style::OURS).short("loss"),
                Word::new("slow", "its link is slow", Style::OURS).short("slow"),
                Word::new("delay", "frames come later", Style::OURS).short("delay"),
                Word::new("reorder", "frames overtake others", Style::OURS).short("reorder"),
                Word::new("link", "its link is down", Style::OURS).short("link"),
                Word::new("full", "its disk is full", Style::OURS).short("full"),
                Word::new("old", "it comes back with old files", Style::BASELINE).short("old"),
                Word::new("descriptors", "a part can open nothing more", Style::BASELINE).short("descriptors"),
                Word::new("truncate", "a front's memory is truncated", Style::BASELINE).short("truncate"),
                Word::new("scribble", "a front's memory is overwritten", Style::BASELINE).short("scribble"),
                Word::new("etcd", "etcd has no quorum", Style::THIRD).short("etcd"),
            ],
        )],
        cases: &["*"],
        measures: &[
            Measure::new("faults", "faults", [0, 0]),
            Measure::new("failed", "requests that failed meanwhile", [0, 0]),
            Measure::new("back_ms", "until a node there answers again, ms", [0, 0]),
            Measure::new("requests", "requests", [0, 0]),
            Measure::new("late", "failed without a reason", [0, 0]),
            WRONG,
            MISDIRECTED,
            BELOW_FLOOR,
            Measure::new("settled_ms", "each node and site at rest after the last fault, ms", [0, 0]),
            Measure::new("calm_ms", "all at one moment, ms", [0, 0]),
            Measure::new("moves", "moves", [0, 0]),
            Measure::new("commands", "commands", [0, 0]),
            Measure::new("refused", "commands that failed under faults", [0, 0]),
            Measure::new("stuck", "commands that failed afterwards", [0, 0]),
            ENDED,
        ],
        charts: &[Chart::bars("requests that failed during faults of a kind", "failed", "fault", "fault")
            .of(
                "kill,stop,crash,cut,deaf,mute,reject,loss,slow,delay,reorder,link,full,old,descriptors,truncate,scribble,etcd",
            )],
        settings: |quick| {
            json!({
                "time_s": TIME[usize::from(quick)].as_secs(), "near_ms": NEAR.as_millis(), "back_s": BACK.as_secs(), "lease_ms": LEASE.as_millis(),
                "timelines": [],
            })
        },
        template: include_str!("chaos.md"),
        run,
        conclude,
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let time = bench.either(TIME);
    let mut timelines = Vec::new();
    bench.rounds(&[time], |bench| {
        let seed = u64::from(bench.repetition);
        let name = format!("seed-{seed}");
        bench.begin(&name);
        let run = live(bench, &name, seed, time)?;
        bench.end();
        let file = format!("timeline-{seed}.svg");
        bench.write(&file, &timeline(seed, &run)?)?;
        timelines.push(format!("![What failed in seed {seed}, and what clients saw]({file})"));
        bench.set("timelines", timelines.clone());
        record(bench, &run)
    })
}

/// What happened in a run, and what came of it.
struct Run {
    began: Instant,
    endured: Endured,
    asked: Vec<Asked>,
    judged: Judged,
}

/// What was done in a run.
struct Endured {
    made: Vec<Made>,
    rest: Rest,
    /// Commands under faults, each with why it failed; empty if it did not.
    commands: Vec<(String, String)>,
    /// Commands that failed although all was well.
    stuck: Vec<(String, String)>,
    ended: Vec<String>,
}

fn live(bench: &Bench<'_>, name: &str, seed: u64, time: Duration) -> Result<Run> {
    let stage = Stage::set(bench, name)?;
    let targets: Vec<_> = stage.parts.iter().map(Part::target).collect();
    let faults = plan::plan(seed, &targets, time);
    let began = Instant::now();
    let (endured, asked, looks) = under_load(&stage, || endure(bench, &stage, seed, &faults))?;
    let judged = judge(&endured.made, &asked, &looks, stage::machine_of);
    let run = Run { began, endured, asked, judged };
    tell(bench, name, &run, looks.last().filter(|_| run.endured.rest.all.is_none()))?;
    Ok(run)
}

/// What `work` comes to, and what clients and words tell meanwhile.
fn under_load<T>(stage: &Stage, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Asked>, Vec<Look>)> {
    let hosts: Vec<_> = SITES.iter().map(|site| stage::host(site)).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let fronts = stage::fronts();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients = scope.spawn(|| clients::ask(&fronts, &hosts, &over));
        let looks = scope.spawn(|| watch(stage, &over));
        let done = {
            // Whatever fails, the others end.
            let _over = Raise(&over);
            work()
        };
        let asked = clients.join().expect("it does not panic");
        let looks = looks.join().expect("it does not panic")?;
        Ok((done?, asked, looks))
    })
}

/// Makes the faults, has commands go on meanwhile, and waits until all rests.
fn endure(bench: &Bench<'_>, stage: &Stage, seed: u64, faults: &[Fault]) -> Result<Endured> {
    let calm = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _calm = Raise(&calm);
        let commands = scope.spawn(|| change(stage, seed, &calm));
        let mut ended = Vec::new();
        let made = make(bench, stage, faults, &mut ended)?;
        calm.store(true, Ordering::Relaxed);
        // The last command is one of those that may fail.
        while !commands.is_finished() {
            bench.go_on()?;
            ended.extend(stage.tend()?);
            std::thread::sleep(POLL);
        }
        let commands = commands.join().expect("it does not panic")?;
        let mut seen = stage.words()?;
        let rest = settle(bench, stage, &mut seen, &mut ended, |_| stage.serves())?;
        let mut stuck: Vec<_> =
            put_back(bench, stage, &mut seen)?.into_iter().filter(|(_, said)| !said.is_empty()).collect();
        std::thread::sleep(CALM);
        let is_whole = |look: &Look| look.all_serve() && stage.serves();
        if settle(bench, stage, &mut seen, &mut ended, is_whole)?.all.is_none() {
            stuck.push(("at the end".into(), "it does not come to rest, or a node serves no site".into()));
        }
        Ok(Endured { made, rest, commands, stuck, ended })
    })
}

/// The median of some times in ms, and the longest.
fn median_and_longest(ms: Vec<f64>) -> [f64; 2] {
    let longest = ms.iter().copied().fold(0.0, f64::max);
    [median(ms).unwrap_or_default(), longest]
}

struct Raise<'a>(&'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes the faults, each in its time.
fn make(bench: &Bench<'_>, stage: &Stage, faults: &[Fault], ended: &mut Vec<String>) -> Result<Vec<Made>> {
    std::thread::sleep(CALM);
    let began = Instant::now();
    let mut made = BTreeMap::<usize, Made>::new();
    let mut steps: Vec<_> = faults
        .iter()
        .enumerate()
        .flat_map(|(at, fault)| [(fault.from, at, true), (fault.until, at, false)])
        .collect();
    steps.sort();
    for (due, at, begins) in steps {
        while began.elapsed() < due {
            bench.go_on()?;
            ended.extend(stage.tend()?);
            std::thread::sleep(POLL.min(due.saturating_sub(began.elapsed())));
        }
        let Fault { kind, machine, part, .. } = faults[at];
        let before = Instant::now();
        if begins {
            stage.begin_fault(kind, machine, part)?;
            let part = part.map(|part| stage.parts[part].name.clone());
            let times = [before, Instant::now()];
            made.insert(at, Made { kind, machine, part, begins: times, ends: times });
        } else {
            stage.end_fault(kind, machine, part)?;
            made.entry(at).and_modify(|made| made.ends = [before, Instant::now()]);
        }
    }
    Ok(made.into_values().collect())
}

/// Looks at all words until it is over.
fn watch(stage: &Stage, over: &AtomicBool) -> Result<Vec<Look>> {
    let (mut words, mut looks) = (stage.words()?, Vec::new());
    while !over.load(Ordering::Relaxed) {
        looks.push(look(&mut words)?);
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(looks)
}

fn look(words: &mut Words) -> Result<Look> {
    words.look().map_err(|why| Error::Serve { what: "the fabric".into(), said: why.0 })
}

/// Changes the cluster until it is told to end. Commands may fail while others are cut off. Returns each, with why it failed.
fn change(stage: &Stage, seed: u64, calm: &AtomicBool) -> Result<Vec<(String, String)>> {
    let mut random = Pcg64Mcg::seed_from_u64(!seed);
    let (mut done, mut has_left, mut held) = (Vec::new(), false, None::<String>);
    let mut next = Instant::now();
    while !calm.load(Ordering::Relaxed) {
        if Instant::now() < next {
            std::thread::sleep(POLL);
            continue;
        }
        let node = format!("n{}", random.random_range(1..12));
        let site = *SITES.choose(&mut random).expect("there are some");
        let words = match (random.random_range(0..7), &held) {
            (0, _) if has_left => stage.join(),
            (0, _) => words(&["leave", LEAVES]),
            (1 | 2, _) => words(&["move", &node, site]),
            (3, _) => words(&["cluster", "edit"]),
            (4, _) => words(&["secret", "rotate"]),
            (_, Some(held)) => words(&["resume", held]),
            (_, None) => words(&["drain", &node]),
        };
        let said = stage.command(&words)?;
        let is_done = said.is_empty();
        done.push((words.join(" "), said));
        match words[0].as_str() {
            "leave" | "join" => has_left = has_left != is_done,
            "drain" if is_done => held = Some(node),
            "resume" if is_done => held = None,
            _ => {}
        }
        next = Instant::now() + COMMAND_EVERY;
    }
    Ok(done)
}

/// How a cluster came to rest.
#[derive(Default)]
struct Rest {
    /// How long it took until each node and site was at rest once: what was under way has ended.
    each: Option<Duration>,
    /// How long it took until all of them were at one moment. Under load another node may move at each.
    all: Option<Duration>,
    /// What was not, each with the time since the last fault.
    unrest: Vec<String>,
}

/// Waits until all is at rest, and `also` holds.
fn settle(
    bench: &Bench<'_>,
    stage: &Stage,
    seen: &mut Words,
    ended: &mut Vec<String>,
    also: impl Fn(&Look) -> bool,
) -> Result<Rest> {
    let (healed, mut rest) = (Instant::now(), Rest::default());
    let mut restless: Option<BTreeSet<String>> = None;
    while healed.elapsed() < SETTLE_MAX {
        bench.go_on()?;
        ended.extend(stage.tend()?);
        let look = look(seen)?;
        let took = look.until.saturating_duration_since(healed);
        let unrest = look.unrest();
        let restless = restless.get_or_insert_with(|| unrest.keys().cloned().collect());
        restless.retain(|one| unrest.contains_key(one));
        // It asks each front, so it is called at the end only.
        let also = restless.is_empty() && also(&look);
        if also {
            rest.each.get_or_insert(took);
        }
        if unrest.is_empty() && also {
            rest.all = Some(took);
            break;
        }
        let mut what =
            unrest.iter().map(|(one, what)| format!("{one} {what}")).collect::<Vec<_>>().join(", ");
        if what.is_empty() {
            "a proxy does not serve yet".clone_into(&mut what);
        }
        if rest.unrest.last().is_none_or(|last| !last.ends_with(&what)) {
            rest.unrest.push(format!("after {} ms: {what}", took.as_millis()));
        }
        std::thread::sleep(POLL);
    }
    Ok(rest)
}

/// Commands that succeed once all is well: all nodes are there, and none is held or pinned, so that each serves a site again.
fn put_back(bench: &Bench<'_>, stage: &Stage, seen: &mut Words) -> Result<Vec<(String, String)>> {
    let is_there = look(seen)?.nodes.iter().any(|(name, _)| name == LEAVES);
    let joins = (!is_there).then(|| stage.join());
    let resumes = (1..12).map(|node| words(&["resume", &format!("n{node}")]));
    let run = |words: Vec<String>| {
        bench.go_on()?;
        Ok((words.join(" "), stage.command(&words)?))
    };
    joins.into_iter().chain(resumes).chain([words(&["secret", "rotate"])]).map(run).collect()
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Writes what is to be looked at into the log of the run.
fn tell(bench: &Bench<'_>, name: &str, run: &Run, unsettled: Option<&Look>) -> Result<()> {
    let at = |time: Instant| time.saturating_duration_since(run.began).as_secs_f64();
    let fault = |Made { kind, machine, part, begins, ends }: &Made| {
        let of = part.clone().unwrap_or_else(|| format!("m{machine}"));
        format!("{:.3} to {:.3} s: {} {of}", at(begins[1]), at(ends[1]), kind.word())
    };
    let late = |(from, what): &(Instant, String)| {
        let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("{:.3} s: {what}", at(*from))
    };
    let failed = run.endured.commands.iter().filter(|(_, said)| !said.is_empty());
    let told = |(words, said): &(String, String)| format!("{words}: {said}");
    let lists = [
        ("faults", run.endured.made.iter().map(fault).collect()),
        ("failed without a reason", run.judged.late.iter().map(late).collect::<Vec<_>>()),
        ("wrong", run.judged.wrong.clone()),
        ("misdirected", run.judged.misdirected.iter().map(late).collect()),
        (
            "below a floor",
            run.judged.below_floor.iter().map(|below| late(&(below.since, below.told()))).collect(),
        ),
        ("commands that failed under faults", failed.map(told).collect()),
        ("commands that failed afterwards", run.endured.stuck.iter().map(told).collect()),
        ("parts that ended", run.endured.ended.clone()),
        ("until all was at rest", run.endured.rest.unrest.clone()),
        ("not at rest", unsettled.iter().map(|look| format!("{look:?}")).collect()),
    ];
    write_lists(bench, name, &lists)
}

/// Writes the beginning of each list into the log of a run.
fn write_lists(bench: &Bench<'_>, name: &str, lists: &[(&str, Vec<String>)]) -> Result<()> {
    let mut text = String::new();
    for (what, all) in lists {
        text += &format!("{what}: {}\n", all.len());
        all.iter().take(TOLD_MAX).for_each(|one| text += &format!("  {one}\n"));
    }
    bench.write(&format!("runs/{name}.txt"), &text)
}

fn record(bench: &mut Bench<'_>, run: &Run) -> Result<()> {
    let is_failed = |one: &&Asked| one.has_failed();
    for kind in Kind::ALL {
        let of_kind: Vec<_> = run.endured.made.iter().filter(|made| made.kind == kind).collect();
        let during = |one: &&Asked| of_kind.iter().any(|made| made.is_during(one));
        let failed = run.asked.iter().filter(is_failed).filter(during).count();
        let back =
            of_kind.iter().filter_map(|fault| back(fault, &run.endured.made, &run.asked, stage::machine_of));
        let back = back.max().map(|longest| ("back_ms", longest.as_millis() as f64));
        let figures = [("faults", of_kind.len() as f64), ("failed", failed as f64)];
        bench.sample(kind.word(), figures.into_iter().chain(back))?;
    }
    let Judged { late, moves, .. } = &run.judged;
    let refused = run.endured.commands.iter().filter(|(_, said)| !said.is_empty()).count();
    let figures = [
        ("faults", run.endured.made.len() as f64),
        ("failed", run.asked.iter().filter(is_failed).count() as f64),
        ("requests", run.asked.len() as f64),
        ("late", late.len() as f64),
        ("settled_ms", run.endured.rest.each.unwrap_or(SETTLE_MAX).as_millis() as f64),
        ("calm_ms", run.endured.rest.all.unwrap_or(SETTLE_MAX).as_millis() as f64),
        ("moves", *moves as f64),
        ("commands", run.endured.commands.len() as f64),
        ("refused", refused as f64),
        ("stuck", run.endured.stuck.len() as f64),
    ];
    bench.sample(ALL, figures.into_iter().chain(suffered(&run.judged, &run.endured.ended)))
}

/// The faults of a seed, and what clients saw.
fn timeline(seed: u64, run: &Run) -> Result<String> {
    let at = |time: Instant| time.saturating_duration_since(run.began).as_secs_f64();
    let last = run.asked.iter().map(|one| at(one.until)).fold(1.0, f64::max);
    // One colour for each machine; what is of several has that of a paper's figures.
    let style = |machine: usize| machine.checked_sub(1).map_or(Style::PAPER, Style::series).bare();
    let line = |made: &Made| {
        let row = Kind::ALL.iter().position(|kind| *kind == made.kind).map_or(0.0, |row| row as f64 + 1.0);
        Line::new(style(made.machine), vec![(at(made.begins[0]), row), (at(made.ends[1]), row)])
    };
    let x = || Axis::from_zero("s", last);
    let faults = Panel {
        title: "faults".to_owned(),
        x: x(),
        y: Axis::categories("", Kind::ALL.iter().map(|kind| kind.word().to_owned()).collect()),
        lines: run.endured.made.iter().map(line).collect(),
    };
    let slots = (last / SLOT.as_secs_f64()).ceil() as usize + 1;
    let rate = |is_of: fn(&End) -> bool| {
        let mut counts = vec![0.0; slots];
        for one in run.asked.iter().filter(|one| is_of(&one.end)) {
            counts[(at(one.until) / SLOT.as_secs_f64()) as usize] += 1.0 / SLOT.as_secs_f64();
        }
        (0..)
            .zip(counts)
            .map(|(slot, count)| (f64::from(slot) * SLOT.as_secs_f64(), count))
            .collect::<Vec<_>>()
    };
    let [is_answered, is_failed] = [Style::PAPER, Style::series(MACHINES)].map(Style::bare);
    let answered = Line::new(is_answered, rate(|end| matches!(end, End::Answered(_))));
    let failed = Line::new(is_failed, rate(|end| !matches!(end, End::Answered(_))));
    let most = answered.most().max(failed.most());
    let seen = Panel {
        title: "what clients saw".to_owned(),
        x: x(),
        y: Axis::from_zero("requests/s", most),
        lines: vec![answered, failed],
    };
    let machines = (1..=MACHINES).map(|machine| (format!("m{machine}"), style(machine)));
    let seen_by = [("answered".to_owned(), is_answered), ("failed".to_owned(), is_failed)];
    let legend: Vec<_> = machines.chain(seen_by).collect();
    Ok(figure::draw(
        &format!("X1, seed {seed}: {} faults", run.endured.made.len()),
        &[faults, seen],
        &legend,
    )?)
}

fn conclude(samples: &mut Samples) -> Vec<Check> {
    let none = |what: &str, measure| Check::at_most(what, 0.0, samples.total(ALL, measure));
    let own = vec![
        none("requests that failed without a reason, all seeds", "late"),
        none("commands that failed once all was well, all seeds", "stuck"),
        Check::at_most(
            "from the end of the last fault until each node and site is at rest, ms, longest of the seeds",
            SETTLED_MS_MAX,
            most(samples[ALL]["settled_ms"].known().collect()),
        ),
        Check::at_most(
            "from the end of the last fault until all are at one moment, ms, longest of the seeds",
            CALM_MS_MAX,
            most(samples[ALL]["calm_ms"].known().collect()),
        ),
    ];
    suffered_none(samples).into_iter().chain(own).collect()
}

/// What a run caused of that which nothing may cause.
fn suffered(judged: &Judged, ended: &[String]) -> [(&'static str, f64); 4] {
    [
        (WRONG.name, judged.wrong.len() as f64),
        (MISDIRECTED.name, judged.misdirected.len() as f64),
        (BELOW_FLOOR.name, judged.below_floor.as_ref().map_or(0.0, |below| below.lasted.as_millis() as f64)),
        (ENDED.name, ended.len() as f64),
    ]
}

fn suffered_none(samples: &Samples) -> [Check; 4] {
    let checks = [
        ("wrong answers, all runs", WRONG),
        ("requests at a server of another site, all runs", MISDIRECTED),
        ("time below a floor, ms, all runs", BELOW_FLOOR),
        ("parts that ended by themselves, all runs", ENDED),
    ];
    checks.map(|(what, measure)| Check::at_most(what, 0.0, samples.total(ALL, measure.name)))
}
