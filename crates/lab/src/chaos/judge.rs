//! What must hold whatever happens, and whether it did.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sidelong_harness::words::{Look, Said};

use super::clients::{Asked, End};
use super::plan::Kind;
use super::stage::{FRONTS, SITES};

/// Requests may fail that began so long after a fault began or ended, at most.
pub(super) const NEAR: Duration = Duration::from_millis(100);
/// A part that goes on, or a machine that is reached again, may take so long before it serves as before.
pub(super) const BACK: Duration = Duration::from_secs(3);
/// Words are read one after the other, so that a move may seem to leave a site below its floor in so many looks.
const SKEWED: usize = 2;

/// A fault as it was made.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Made {
    pub(super) kind: Kind,
    pub(super) machine: usize,
    /// The name of the part that it is of.
    pub(super) part: Option<String>,
    /// Before it began, and once it had; before it ended, and once it had.
    pub(super) begins: [Instant; 2],
    /// As `begins`.
    pub(super) ends: [Instant; 2],
}

impl Made {
    /// Whether a request was under way at any time of it.
    pub(super) fn is_during(&self, one: &Asked) -> bool {
        one.from <= self.ends[1] && one.until >= self.begins[0]
    }

    /// Whether a request was under way at any time of it, or began while what it was of may not have been back.
    fn lasts_for(&self, one: &Asked) -> bool {
        one.from <= self.ends[1] + BACK && one.until >= self.begins[0]
    }

    /// Whether the agent of a node on this machine had ended by it before a request did.
    fn ended(&self, node: &str, one: &Asked) -> bool {
        let is_its = self.part.as_ref().is_none_or(|part| part == node || part.starts_with("agents"));
        is_its && matches!(self.kind, Kind::Kill | Kind::Crash | Kind::Old) && self.begins[0] <= one.until
    }

    /// Whether it keeps its machine, or its part, from what they do. Parts go on where their disk is full.
    fn hinders(&self) -> bool {
        self.kind != Kind::Full
    }
}

/// What a run came to.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Judged {
    /// Requests that failed without a fault that is a reason, and when they began.
    pub(super) late: Vec<(Instant, String)>,
    /// Answers that were not what was asked for.
    pub(super) wrong: Vec<String>,
    /// Answers of nodes that did not serve the site meanwhile, and when they were asked for.
    pub(super) misdirected: Vec<(Instant, String)>,
    /// The longest time for which a site seemed below its floor, if in more looks than words that are read one after the other may cause.
    pub(super) below_floor: Option<Below>,
    /// How often a node came to another site.
    pub(super) moves: usize,
}

/// A time for which a site seemed below its floor.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Below {
    /// Its slot.
    pub(super) site: usize,
    pub(super) since: Instant,
    pub(super) lasted: Duration,
    /// The first look at it.
    pub(super) first: Look,
}

impl Below {
    /// What is to be looked at.
    pub(super) fn told(&self) -> String {
        let said = |(node, said): &(String, Option<Said>)| match said {
            Some(Said { word, site, serves, moves }) => {
                let site = site.map_or("none", |site| SITES[site]);
                format!("{node} {word:#x} {site} serves {serves} moves {moves}")
            }
            None => format!("{node} unread"),
        };
        let nodes: Vec<_> = self.first.nodes.iter().map(said).collect();
        format!("{} for {} ms: {}", SITES[self.site], self.lasted.as_millis(), nodes.join(", "))
    }
}

/// Judges a run, in which each node is on the machine that `machine_of` names.
pub(super) fn judge(
    made: &[Made],
    asked: &[Asked],
    looks: &[Look],
    machine_of: impl Fn(&str) -> usize,
) -> Judged {
    let mut judged = Judged { below_floor: below_floor(looks), moves: moves(looks), ..Judged::default() };
    let words = words_by_node(looks);
    for one in asked {
        match &one.end {
            End::Failed(_) if made.iter().any(|fault| excuses(fault, made, one)) => {}
            End::Failed(_) if has_no_server(made, one, looks, &machine_of) => {}
            End::Failed(why) => {
                let [front, site] = [FRONTS[one.front], SITES[one.site]];
                judged.late.push((one.from, format!("{front} for {site}: {why}")));
            }
            End::Wrong(body) => judged.wrong.push(body.clone()),
            End::Answered(node) => {
                let found = words.get(node.as_str()).and_then(|words| standing(words, one));
                // One that begins anew while it hears no front says less than it served, until fronts hear it.
                let is_anew = |said: &Said| {
                    let is_there = |fault: &&Made| fault.machine == machine_of(node);
                    let ended = made.iter().filter(is_there).any(|fault| fault.ended(node, one));
                    said.site.is_none()
                        && ended
                        && made.iter().filter(is_there).any(|fault| fault.lasts_for(one))
                };
                let other = found.filter(|said| said.site != Some(one.site) && !is_anew(said));
                if let Some(said) = other {
                    let [front, site] = [FRONTS[one.front], SITES[one.site]];
                    let what = format!("{front} sent a request of {site} to {node}, which says {said:?}");
                    judged.misdirected.push((one.from, what));
                }
            }
        }
    }
    judged.late.sort();
    judged.misdirected.sort();
    judged
}

/// How long it took from the end of a machine's fault until a node there answered a request that began since; `None` if it was of something else, or
/// the machine had another one before.
pub(super) fn back(
    fault: &Made,
    made: &[Made],
    asked: &[Asked],
    machine_of: impl Fn(&str) -> usize,
) -> Option<Duration> {
    let (machine, ended) = (fault.machine, fault.ends[1]);
    let is_there = |one: &&Asked| {
        one.from >= ended && matches!(&one.end, End::Answered(node) if machine_of(node) == machine)
    };
    let first = asked.iter().filter(is_there).map(|one| one.until).min()?;
    let is_next = |other: &&Made| {
        let is_its = other.machine == machine || other.machine == 0;
        is_its && *other != fault && other.begins[0] < first && other.ends[1] > ended
    };
    (fault.part.is_none() && machine > 0 && !made.iter().any(|other| is_next(&other))).then(|| first - ended)
}

/// Whether a fault is a reason for a request to fail.
fn excuses(fault: &Made, made: &[Made], one: &Asked) -> bool {
    let machine = one.front + 1;
    // nginx and HAProxy go on without the fronts that lead them.
    let client_facing = ["edge1", "nginx", "haproxy"][one.front];
    let is_its = match &fault.part {
        Some(part) => part == client_facing,
        None => fault.machine == machine,
    };
    let [begins, begun] = fault.begins;
    let [ends, ended] = fault.ends;
    // What is sent during a fault may not wait for its end.
    let is_begun_near =
        one.from <= begun + NEAR && one.until >= begins || (ends..=ended + NEAR).contains(&one.from);
    let lasts = fault.begins[0] <= one.until && one.from <= asks_until(fault, made) + BACK;
    is_its && fault.hinders() && lasts || is_begun_near
}

/// Until when a machine that came back with old files, and without what was in its memory, may be unable to ask others for what it does not know: they
/// had faults when it came back.
fn asks_until(fault: &Made, made: &[Made]) -> Instant {
    let ended = fault.ends[1];
    if fault.kind != Kind::Old {
        return ended;
    }
    let is_then = |other: &&Made| other.part.is_none() && other.hinders() && other.begins[0] <= ended + BACK;
    made.iter().filter(is_then).map(|other| other.ends[1]).fold(ended, Instant::max)
}

/// Whether there was a fault of the server of each node that served the site when the request began.
fn has_no_server(made: &[Made], one: &Asked, looks: &[Look], machine_of: impl Fn(&str) -> usize) -> bool {
    let before = looks.partition_point(|look| look.until <= one.from);
    let Some(look) = looks[..before].last() else { return false };
    // One that is not read, or has begun anew, serves what it did; one that never was read has just joined.
    let last_said = |node: &str| {
        let of_it = |look: &Look| {
            look.nodes
                .iter()
                .find(|(name, _)| name == node)
                .and_then(|(_, said)| said.filter(|said| said.site.is_some()))
        };
        looks[..before].iter().rev().find_map(of_it)
    };
    let serves = |node: &str| last_said(node).is_some_and(|said| said.site == Some(one.site));
    let mut nodes = look.nodes.iter().filter(|(node, _)| serves(node)).peekable();
    nodes.peek().is_some()
        && nodes.all(|(node, _)| {
            let machine = machine_of(node);
            let is_of_it = |fault: &&Made| match &fault.part {
                Some(part) => *part == format!("servers{machine}"),
                None => fault.machine == machine,
            };
            let mut its = made.iter().filter(is_of_it);
            its.any(|fault| fault.hinders() && fault.lasts_for(one))
        })
}

/// What each node's word said, and when.
type Words = Vec<(Instant, Instant, Option<Said>)>;

fn words_by_node(looks: &[Look]) -> BTreeMap<&str, Words> {
    let mut words = BTreeMap::<&str, Words>::new();
    for look in looks {
        for (name, said) in &look.nodes {
            words.entry(name).or_default().push((look.from, look.until, *said));
        }
    }
    words
}

/// What a node's word said from before a request began until after it ended, if it said one thing.
fn standing(words: &Words, one: &Asked) -> Option<Said> {
    let after = words.partition_point(|(_, until, _)| *until <= one.from);
    let before = words[..after].last()?;
    let until = words[after..].iter().position(|(from, ..)| *from >= one.until)?;
    let said = before.2?;
    words[after..=after + until].iter().all(|(.., other)| *other == Some(said)).then_some(said)
}

fn below_floor(looks: &[Look]) -> Option<Below> {
    let mut since = BTreeMap::<usize, (usize, &Look)>::new();
    let mut longest: Option<Below> = None;
    for look in looks {
        // Any node that was not read may serve a site.
        let unread = look.nodes.iter().filter(|(_, said)| said.is_none()).count();
        for site in &look.sites {
            let there = look.serving(site.slot);
            if there >= site.floor {
                since.remove(&site.slot);
            } else if there + unread < site.floor {
                let (times, first) = since.entry(site.slot).or_insert((0, look));
                *times += 1;
                let lasted = look.until - first.from;
                if *times > SKEWED && longest.as_ref().is_none_or(|longest| longest.lasted < lasted) {
                    let first = (*first).clone();
                    longest = Some(Below { site: site.slot, since: first.from, lasted, first });
                }
            }
        }
    }
    longest
}

fn moves(looks: &[Look]) -> usize {
    let mut at = BTreeMap::<&str, usize>::new();
    let mut moves = 0;
    for look in looks {
        for (name, said) in &look.nodes {
            let Some(site) = said.filter(|said| said.serves).and_then(|said| said.site) else { continue };
            moves += usize::from(at.insert(name, site).is_some_and(|before| before != site));
        }
    }
    moves
}

#[cfg(test)]
mod tests {
    use sidelong_harness::words::SiteSaid;

    use super::*;

    /// A node has the number of its machine, but for one.
    fn on(node: &str) -> usize {
        node[1..].parse::<usize>().unwrap() + 2
    }

    fn after(began: Instant, ms: u64) -> Instant {
        began + Duration::from_millis(ms)
    }

    fn asked(began: Instant, [from, until]: [u64; 2], end: End) -> Asked {
        Asked { from: after(began, from), until: after(began, until), front: 0, site: 0, end }
    }

    fn look(began: Instant, at: u64, sites: &[Option<usize>]) -> Look {
        let node = |(number, site): (usize, &Option<usize>)| {
            let said = Said { word: 7, site: *site, serves: true, moves: false };
            (format!("n{number}"), Some(said))
        };
        let site = |slot: usize| SiteSaid { slot, floor: 1, is_settled: Some(true) };
        let [from, until] = [after(began, at), after(began, at + 1)];
        Look {
            from,
            until,
            nodes: sites.iter().enumerate().map(node).collect(),
            sites: vec![site(0), site(1)],
        }
    }

    #[test]
    fn a_failure_is_excused_near_a_fault_and_while_its_front_has_one() {
        let began = Instant::now();
        let fault = |part: Option<&str>, machine| Made {
            kind: if part.is_some() { Kind::Kill } else { Kind::Cut },
            machine,
            part: part.map(str::to_owned),
            begins: [1_000, 1_010].map(|ms| after(began, ms)),
            ends: [8_990, 9_000].map(|ms| after(began, ms)),
        };
        let failed = |times| asked(began, times, End::Failed("no".into()));
        let excused = |fault: Made, times| judge(&[fault], &[failed(times)], &[], on).late.is_empty();
        for (part, machine) in [(None, 2), (Some("n1"), 1), (Some("servers1"), 1)] {
            let fault = || fault(part, machine);
            assert!(!excused(fault(), [500, 900]) && !excused(fault(), [1_200, 1_300]));
            assert!(excused(fault(), [900, 1_400]) && excused(fault(), [1_050, 3_000]));
            assert!(excused(fault(), [9_050, 9_060]) && !excused(fault(), [9_200, 9_300]));
            assert!(!excused(fault(), [8_000, 11_000]), "it waits for the end of the fault");
        }
        for (part, machine) in [(None, 1), (Some("edge1"), 1)] {
            assert!(excused(fault(part, machine), [5_000, 5_100]));
            assert!(excused(fault(part, machine), [9_500, 9_600]));
            assert!(!excused(fault(part, machine), [12_500, 12_600]));
        }
        // The others may have been unable to tell it what it did not know.
        let old = Made { kind: Kind::Old, ..fault(None, 1) };
        let other = Made {
            begins: [11_000; 2].map(|ms| after(began, ms)),
            ends: [14_000; 2].map(|ms| after(began, ms)),
            ..fault(None, 3)
        };
        for (made, is_excused) in [
            (vec![old.clone()], false),
            (vec![old, other.clone()], true),
            (vec![fault(None, 1), other], false),
        ] {
            let late = judge(&made, &[failed([15_500, 15_600])], &[], on).late;
            assert_eq!(late.is_empty(), is_excused, "{made:?}");
        }
        let late = judge(&[fault(None, 2)], &[failed([1_200, 1_300])], &[], on).late;
        assert_eq!(late, [(after(began, 1_200), "edge1 for alpha: no".to_owned())]);
    }

    #[test]
    fn a_failure_is_excused_while_no_server_of_its_site_can_answer() {
        let began = Instant::now();
        let fault = |machine, part: Option<&str>| Made {
            kind: Kind::Cut,
            machine,
            part: part.map(str::to_owned),
            begins: [after(began, 1_000); 2],
            ends: [after(began, 2_000); 2],
        };
        let failed = [asked(began, [1_500, 1_600], End::Failed("no".into()))];
        let excused = |made: &[Made], sites: &[Option<usize>]| {
            judge(made, &failed, &[look(began, 1_400, sites)], on).late.is_empty()
        };
        // The first node is on the second machine, the second on the third.
        for other in [fault(3, None), fault(3, Some("servers3"))] {
            assert!(excused(&[fault(2, None), other.clone()], &[Some(0), Some(0)]));
            assert!(!excused(std::slice::from_ref(&other), &[Some(0), Some(0)]));
            assert!(excused(&[other], &[Some(1), Some(0)]));
        }
        assert!(!excused(&[fault(3, Some("n1"))], &[Some(1), Some(0)]), "its server goes on");

        // The second serves it, and is no longer read. The third has just joined.
        let mut unread = look(began, 1_400, &[None, None, None]);
        unread.nodes.iter_mut().for_each(|(_, said)| *said = None);
        let looks = [look(began, 1_300, &[Some(1), Some(0)]), unread];
        let excused = |made: Made| judge(&[made], &failed, &looks, on).late.is_empty();
        assert!(excused(fault(3, None)) && !excused(fault(2, None)));
    }

    #[test]
    fn an_answer_is_misdirected_if_its_node_served_another_site_all_the_time() {
        let began = Instant::now();
        let answered = [asked(began, [15, 25], End::Answered("n1".into()))];
        let misdirected = |sites: [usize; 4]| {
            let looks = (0..).zip(sites).map(|(at, site)| look(began, at * 10, &[Some(0), Some(site)]));
            judge(&[], &answered, &looks.collect::<Vec<_>>(), on).misdirected.len()
        };
        assert_eq!(misdirected([1, 1, 1, 1]), 1);
        // It came, or left, meanwhile or at about that time.
        for sites in [[0, 0, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0]] {
            assert_eq!(misdirected(sites), 0, "{sites:?}");
        }
        assert_eq!(judge(&[], &answered, &[], on).misdirected.len(), 0);
        // One that serves no site may have begun anew, if its machine had a fault.
        let ended = Made {
            kind: Kind::Crash,
            machine: 3,
            part: None,
            begins: [after(began, 0); 2],
            ends: [after(began, 9); 2],
        };
        for (site, made, expected) in [
            (None, vec![], 1),
            (None, vec![ended.clone()], 0),
            (None, vec![Made { machine: 4, ..ended.clone() }], 1),
            (None, vec![Made { kind: Kind::Cut, ..ended.clone() }], 1),
            (None, vec![Made { part: Some("n1".into()), ..ended.clone() }], 0),
            (None, vec![Made { part: Some("n2".into()), ..ended.clone() }], 1),
            (Some(1), vec![ended], 1),
        ] {
            let looks: Vec<_> = (0..4).map(|at| look(began, at * 10, &[Some(0), site])).collect();
            assert_eq!(judge(&made, &answered, &looks, on).misdirected.len(), expected, "{site:?}");
        }
    }

    #[test]
    fn a_machine_is_back_once_a_node_there_answers() {
        let began = Instant::now();
        let fault = |machine, [from, until]: [u64; 2]| Made {
            kind: Kind::Cut,
            machine,
            part: None,
            begins: [after(began, from); 2],
            ends: [after(began, until); 2],
        };
        let cut = fault(3, [10, 20]);
        let answered = |times, node: &str| asked(began, times, End::Answered(node.into()));
        let others = [answered([21, 30], "n2"), answered([19, 25], "n1")];
        let its = [&others[..], &[answered([30, 60], "n1"), answered([40, 55], "n1")]].concat();
        let ms = |ms| Some(Duration::from_millis(ms));
        assert_eq!(back(&cut, std::slice::from_ref(&cut), &others, on), None);
        assert_eq!(back(&cut, std::slice::from_ref(&cut), &its, on), ms(35));
        for (other, expected) in
            [(fault(3, [50, 70]), None), (fault(3, [56, 70]), ms(35)), (fault(4, [50, 70]), ms(35))]
        {
            assert_eq!(back(&cut, &[cut.clone(), other], &its, on), expected);
        }
        assert_eq!(back(&Made { part: Some("n1".into()), ..cut.clone() }, &[], &its, on), None);
    }

    #[test]
    fn a_site_is_below_its_floor_if_it_stays_there() {
        let began = Instant::now();
        let below = |served: [usize; 10]| {
            let looks = (0..).zip(served).map(|(at, site)| look(began, at * 100, &[Some(0), Some(site)]));
            let below = judge(&[], &[], &looks.collect::<Vec<_>>(), on).below_floor;
            below.map(|below| (below.site, below.since, below.lasted))
        };
        assert_eq!(below([1; 10]), None);
        assert_eq!(below([1, 1, 0, 0, 1, 1, 1, 1, 1, 1]), None);
        let from = after(began, 200);
        assert_eq!(below([1, 1, 0, 0, 0, 0, 0, 0, 1, 1]), Some((1, from, Duration::from_millis(501))));
    }
}
