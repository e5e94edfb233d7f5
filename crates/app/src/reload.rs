//! Changes what the parts on this machine go by: another cluster file, or an edge or front less. All of them adopt it, or none.

mod board;
pub(crate) mod homes;
mod lost;
mod members;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sidelong_config::{
    CacheStanding, Change, Cluster, ClusterFile, FrontEntry, Node, Proxy, SlotTable, Standing, Takes, diff,
    live,
};
use sidelong_edge::check_tls;
use sidelong_fabric::{Access, Directory as _, RunDirectory};
use sidelong_layout::{NodeId, Ownership, RegionKind, SiteId, WORDS_BYTES};
use sidelong_reconfig::{front_region, load_region, words_region};

use crate::by_hand::{Hand, Wish};
use crate::fabric::items_region;
use crate::failure::Failure;
use crate::history::{BY_HAND, JOINED, LEFT, Log, Record};
use crate::parts::{Parts, certificates};
use crate::roster::{self, Place, Presence, Roster};
pub use lost::lose;
use members::{Members, Names, difference, may_end, may_leave};

/// Pause between two looks at who has adopted it.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a reload does, before it is done.
pub struct Reload {
    place: Place,
    roster: Roster,
    file: ClusterFile,
    /// What the file changes.
    pub changes: Vec<Change>,
    /// `None` if that takes a stop of all parts.
    next: Option<Next>,
}

/// The roster that follows.
struct Next {
    roster: Roster,
    /// What it means.
    cluster: Cluster,
    left: Members,
    joined: Members,
}

impl Next {
    /// # Errors
    /// If there is no room for who joins, or a proxy's front may not leave.
    fn new(place: &Place, last: &Roster, file: &ClusterFile, text: Option<String>) -> Result<Self, Failure> {
        let (slots, file) = (members::seated(last, file, place)?, file.clone());
        let roster = last.next(slots, file, text);
        let (old, cluster) = (last.cluster()?, roster.cluster()?);
        let (left, joined) = (Members::new(&old, &cluster), Members::new(&cluster, &old));
        may_end(place, last, &old, &left.fronts)?;
        if place.is_far() {
            may_leave(place, last, &old, &left)?;
        }
        Ok(Next { roster, cluster, left, joined })
    }
}

/// Fronts, and names of what joins or leaves beside them.
type Beside<'a> = (Vec<&'a FrontEntry>, Vec<&'a str>);

impl Reload {
    /// Of the cluster that runs by `file` from now on. The file is checked.
    ///
    /// # Errors
    /// If it cannot be used, or no part of its cluster runs on this machine.
    pub fn new(file: ClusterFile) -> Result<Self, Failure> {
        let cluster = file.cluster()?;
        for edge in &cluster.edges {
            check_tls(&edge.name, &certificates(edge), edge.client_ca.as_deref())?;
        }
        let place = Place::new(&cluster)?;
        if place.is_far() {
            return Err(Failure::new(
                "etcd has the file of this cluster: `sidelong cluster apply FILE` puts this one in its place, and `sidelong cluster edit` \
                 changes it",
            ));
        }
        let roster = alive(&cluster, &place)?;
        Reload::of(place, roster, ClusterFile::clone(&cluster.file), None)
    }

    /// Of a cluster on several machines by the file that `text` is, which errors call `name`. If it was made of `base`, that must be the file
    /// still.
    ///
    /// # Errors
    /// If it cannot be used, or etcd has no such cluster.
    pub fn of_text(place: Place, text: String, name: &str, base: Option<&str>) -> Result<Self, Failure> {
        let file = place.localized(ClusterFile::parse(&text, name)?)?;
        let cluster = file.cluster()?;
        let roster = alive(&cluster, &place)?;
        if base.is_some_and(|base| roster.text.as_deref() != Some(base)) {
            return Err(Failure::new(
                "nothing is changed, because somebody else has changed the file meanwhile: begin with that",
            ));
        }
        Reload::of(place, roster, ClusterFile::clone(&cluster.file), Some(text))
    }

    /// Of a cluster on several machines by its file as `edit` makes it.
    ///
    /// # Errors
    /// As [`of_text`](Self::of_text), and with what `edit` says.
    pub fn of_edit(place: Place, edit: impl FnOnce(&str) -> Result<String, String>) -> Result<Self, Failure> {
        let before = place.text()?;
        let after = edit(&before).map_err(|why| Failure::new(format!("the file in etcd: {why}")))?;
        Reload::of_text(place, after, "the file in etcd", Some(&before))
    }

    fn of(place: Place, roster: Roster, file: ClusterFile, text: Option<String>) -> Result<Self, Failure> {
        let changes = diff(&roster.file, &file)?;
        check_live(&roster.file, &file, &changes)?;
        if changes.iter().any(|change| change.key.starts_with("etcd.")) {
            // By a wrong one nobody would hear of another.
            let there = Place::new(&file.cluster()?)?.newest()?;
            if there.is_none_or(|there| there.epoch != roster.epoch) {
                return Err(Failure::new(
                    "nothing is changed, because another etcd answers where the file's [etcd] says",
                ));
            }
        }
        let takes_a_stop = changes.iter().any(|change| matches!(change.takes, Takes::Stop(_)));
        let next = if takes_a_stop { None } else { Some(Next::new(&place, &roster, &file, text)?) };
        Ok(Reload { place, roster, file, changes, next })
    }

    /// Whether parts are on several machines.
    pub fn is_of_several(&self) -> bool {
        self.place.is_far()
    }

    /// The parts that join, which somebody must start: of which kind each is, and its name.
    pub fn starts(&self) -> Vec<(&'static str, &str)> {
        let Some(Next { joined, cluster, .. }) = &self.next else { return Vec::new() };
        let is_edge = |name: &str| cluster.edges.iter().any(|edge| edge.name == name);
        let front = |name: &String| if is_edge(name) { "edge" } else { "front" };
        let nodes = joined.nodes.iter().map(|name| ("node", &**name));
        let fronts = joined.fronts.iter().map(|name| (front(name), &**name));
        nodes.chain(fronts).chain(joined.caches.iter().map(|name| ("cache", &**name))).collect()
    }

    /// The parts that leave, and end.
    pub fn ends(&self) -> Vec<&str> {
        let left = self.next.iter().map(|next| &next.left);
        left.flat_map(|left| left.nodes.iter().chain(&left.fronts).chain(&left.caches))
            .map(|name| &**name)
            .collect()
    }

    /// The proxies of other makes that have no server of nodes that join until an operator adds one, and the names of these nodes.
    pub fn proxies(&self) -> Beside<'_> {
        let lacks = |front: &FrontEntry| match front.proxy {
            Proxy::Nginx | Proxy::Httpd => true,
            Proxy::Envoy | Proxy::Haproxy => front.add_servers.is_none(),
            Proxy::Connect | Proxy::Library => false,
        };
        self.beside("node.", |change| change.old.is_none(), lacks)
    }

    /// The proxies that send requests to a site by rules of their own, and the names of sites that join.
    pub fn proxies_of_sites(&self) -> Beside<'_> {
        let has_rules = |front: &FrontEntry| !matches!(front.proxy, Proxy::Connect | Proxy::Library);
        self.beside("site.", |change| change.old.is_none(), has_rules)
    }

    /// The HAProxys that have, if their own file has servers of nodes that leave, requests for them after their next reload, and the names
    /// of these nodes.
    pub fn haproxys_of_leaving(&self) -> Beside<'_> {
        self.beside("node.", |change| change.new.is_none(), |front| front.proxy == Proxy::Haproxy)
    }

    /// The names of whole entries of a kind that change so, and if there are any, such fronts.
    fn beside(&self, kind: &str, how: fn(&Change) -> bool, is_it: fn(&FrontEntry) -> bool) -> Beside<'_> {
        let changes = self.changes.iter().filter(|change| change.key.split('.').count() == 2 && how(change));
        let names: Vec<_> = changes.filter_map(|change| change.key.strip_prefix(kind)).collect();
        let fronts = self.file.fronts.iter().filter(|front| !names.is_empty() && is_it(front));
        (fronts.collect(), names)
    }

    /// Whether there is anything to do: the file changes something, or an earlier change of the members was cut short.
    pub fn is_needed(&self) -> bool {
        let Standing { leaving, closing, caches, .. } = &self.roster.standing;
        let moves_board =
            |next: &Next| board::is_due(&self.place, &self.roster, &next.cluster).unwrap_or(true);
        let is_cut_short =
            caches.is_changing() || !caches.ending.is_empty() || self.next.as_ref().is_some_and(moves_board);
        // Comments alone may differ.
        let is_written_anew = self.next.as_ref().is_some_and(|next| next.roster.text != self.roster.text);
        let is_changed = !self.changes.is_empty() || is_written_anew;
        is_changed || !leaving.is_empty() || !closing.is_empty() || is_cut_short
    }

    /// Has all parts that run adopt it within `wait`, and returns the epoch. Nodes that it has no more are held before, which takes until
    /// no request is left there: with `waits` however long that is. If a part refuses it, or a node cannot be held, all go back.
    ///
    /// # Errors
    /// If it has a change that no running cluster takes, a part refuses it or does not answer, or a node cannot be held: with the reasons.
    pub fn carry_out(self, wait: Duration, waits: bool) -> Result<u64, Failure> {
        let is_needed = self.is_needed();
        let Reload { place, roster, changes, next, .. } = self;
        let Some(Next { roster: next, cluster: new, left, joined }) = next else {
            let stops = changes.iter().filter_map(|change| match change.takes {
                Takes::Stop(why) => Some(format!("{}: {why}", change.key)),
                Takes::Nothing | Takes::Restart(_) => None,
            });
            let stops: Vec<_> = stops.collect();
            return Err(Failure::new(format!(
                "nothing is changed, because this takes a stop of all parts: {}",
                stops.join("; ")
            )));
        };
        if !is_needed {
            // A part may be behind since an earlier reload was cut short.
            let silent = await_parts(&place, &roster, Place::parts, (wait, &NEVER))?;
            tell_silent(&silent);
            return Ok(roster.epoch);
        }
        // A change that was cut short may have left something of their names.
        joined.forget(&place, wait)?;
        for name in difference(&roster.standing.leaving, &left.nodes) {
            if new.nodes.values().any(|node| node.name == name) {
                tracing::warn!(
                    "{name} stays in the cluster. It may be held, since it was to leave: `sidelong resume {name}` gives it back"
                );
            }
        }
        let mut steps = Steps {
            place: &place,
            new: &new,
            last: roster.clone(),
            first: roster,
            wait,
            waits,
            taken: Vec::new(),
            silent: Names::new(),
            ended: Names::new(),
        };
        let done = steps.take(&next, &left, &joined);
        done.map_err(|why| steps.undo(&why, &left))?;
        let epoch = steps.last.epoch;
        tell_silent(&steps.silent);
        if let Err(Failure(why)) = left.forget(&place, wait) {
            tracing::warn!("{why}");
        }
        let parts = Parts::new(new)?;
        joined.names().for_each(|name| keep(&parts, name, JOINED));
        left.names().for_each(|name| keep(&parts, name, LEFT));
        Ok(epoch)
    }
}

/// Checks what parts will go by that keep some of the old values until they restart.
///
/// # Errors
/// If a part could not use it, with the reason.
fn check_live(old: &ClusterFile, new: &ClusterFile, changes: &[Change]) -> Result<(), Failure> {
    let waits =
        |change: &Change| if let Takes::Restart(parts) = &change.takes { parts.clone() } else { Vec::new() };
    let mut kept = BTreeMap::<String, Vec<&str>>::new();
    for (part, key) in
        changes.iter().flat_map(|change| waits(change).into_iter().map(|part| (part, &*change.key)))
    {
        kept.entry(part).or_default().push(key);
    }
    // Parts that keep the same are alike.
    let alike: BTreeMap<_, _> = kept.into_iter().map(|(part, keys)| (keys, part)).collect();
    for (keys, part) in alike {
        live(old, new, &part, None).map_err(|why| {
            let keys = keys.join(", ");
            Failure::new(format!(
                "nothing is changed, because {part} keeps the old {keys} until it restarts, and cannot go by the rest with it: {why}. \
                 Change that first, and restart it"
            ))
        })?;
    }
    Ok(())
}

/// A change of the roster under way.
struct Steps<'a> {
    place: &'a Place,
    /// What the cluster is to be.
    new: &'a Cluster,
    /// As it was.
    first: Roster,
    /// As this has left it.
    last: Roster,
    wait: Duration,
    waits: bool,
    /// Nodes that this has held, their names, and what they were before.
    taken: Vec<(NodeId, String, Ownership)>,
    /// Parts that did not say whether they go by it.
    silent: Names,
    /// Parts that this has had end.
    ended: Names,
}

impl Steps<'_> {
    /// Has those end who are to leave, and all parts go by `next` then.
    fn take(&mut self, next: &Roster, left: &Members, joined: &Members) -> Result<(), Failure> {
        if next.file == self.first.file && self.last.standing.caches.is_changing() {
            // Whoever has begun that may have died.
            homes::hand_over(self.place, &mut self.last, &|_| (), &Names::new(), (self.wait, &NEVER))?;
        }
        if board::is_due(self.place, &self.last, self.new)? {
            match board::hand_over(self.place, &mut self.last, self.new, self.wait) {
                Ok(silent) => self.silent.extend(silent),
                // It is lost in any case.
                Err(Failure(why)) if board::may_stay(&self.last, self.new)? => tracing::warn!("{why}"),
                Err(why) => return Err(why),
            }
        }
        // A site that leaves keeps no node.
        if !left.sites.is_empty() {
            self.close(&left.sites)?;
        }
        if !left.nodes.is_empty() {
            self.hold(&left.nodes)?;
        }
        if !left.fronts.is_empty() {
            self.end(&left.fronts)?;
        }
        if !left.caches.is_empty() {
            self.hand_over(&left.caches)?;
        }
        self.change(|roster| {
            roster.take_file(next);
            let Standing { lost, caches, board, .. } = std::mem::take(&mut roster.standing);
            roster.standing.board = board;
            // Nobody waits for one that has never been there, or looks up keys there: when it starts, it says so.
            let moved = |names: &Names, left, joined: &Names| {
                difference(names, left).union(joined).cloned().collect()
            };
            roster.standing.lost = moved(&difference(&lost, &left.nodes), &left.fronts, &joined.fronts);
            let away = moved(&caches.away, &left.caches, &joined.caches);
            let (leaving, ending) = (Names::new(), Names::new());
            let change = caches.change + 1;
            roster.standing.caches = CacheStanding { change, away, leaving, ending, ..caches };
        })
    }

    /// Changes the roster, and waits until all parts that run go by it.
    fn change(&mut self, edit: impl FnMut(&mut Roster)) -> Result<(), Failure> {
        self.last = self.place.change(&self.last, edit)?;
        self.silent.extend(await_parts(self.place, &self.last, Place::parts, (self.wait, &NEVER))?);
        Ok(())
    }

    /// Has all go by the first roster again, because of `why`. Edges that have ended stay so, and nodes whose site closed are free.
    fn undo(&mut self, Failure(why): &Failure, left: &Members) -> Failure {
        if self.last.epoch == self.first.epoch {
            return Failure::new(match self.place.is_in_doubt() {
                true => format!("{why}. `sidelong cluster show` tells what etcd has"),
                false => format!("nothing is changed, because {why}"),
            });
        }
        // One that has joined and has its share already hands it back.
        let joined = |roster: &Roster| -> Names {
            let names = |of: &Roster| of.slots.caches.0.values().cloned().collect::<Names>();
            difference(&names(roster), &names(&self.first))
        };
        // What somebody else has changed meanwhile stays, and so what this has begun.
        let newest = self.place.newest().ok().flatten().filter(|newest| newest.is_still(&self.last).is_ok());
        self.last = newest.unwrap_or_else(|| self.last.clone());
        let joined = joined(&self.last);
        if joined.iter().any(|name| !self.last.standing.caches.away.contains(name)) {
            let leave = |away: &mut Names| away.extend(joined.iter().cloned());
            let left = homes::hand_over(self.place, &mut self.last, &leave, &joined, (self.wait, &NEVER));
            if let Err(Failure(other)) = left {
                return Failure::new(format!(
                    "{why}; and what was changed by then stays so, because {other}: `sidelong reload` goes on with it"
                ));
            }
        }
        let first = self.first.clone();
        let SlotTable { fronts, nodes, .. } = &first.slots;
        let is_known = |name: &String| {
            [fronts, nodes].into_iter().any(|names| names.0.position(|known| known == name).is_some())
        };
        let written = self.place.change(&self.last, |roster| {
            let slots = first.slots.clone().padded(&roster.slots);
            roster.take_file(&first);
            roster.slots = slots;
            let Standing { mut lost, caches, board, .. } = std::mem::take(&mut roster.standing);
            lost.retain(is_known);
            roster.standing.board = board;
            roster.standing.lost = lost;
            // One that has handed its share over has ended, and takes it anew when it starts.
            let (leaving, ending) = (Names::new(), Names::new());
            roster.standing.caches = CacheStanding { change: caches.change + 1, leaving, ending, ..caches };
        });
        let back = written.and_then(|written| {
            self.place.forget(self.first.epoch + 1..written.epoch);
            self.last = written;
            // Who has not gone by anything newer need not go back.
            let went = |place: &Place, roster: &Roster| {
                let parts = place.parts(roster).into_iter();
                parts.filter(|(_, presence)| presence.goes_by(self.first.epoch + 1)).collect()
            };
            await_parts(self.place, &self.last, went, (self.wait, &NEVER))
        });
        let board = back.and_then(|_| match self.last.standing.board.from {
            Some(_) => board::hand_over(self.place, &mut self.last, &first.cluster()?, self.wait).map(drop),
            None => Ok(()),
        });
        let mut then: Vec<_> = board.err().into_iter().map(|Failure(why)| why).collect();
        if self.last.standing.board.from.is_some() {
            then.push(
                "nobody has the board, and no node moves: `sidelong cluster apply` goes on with that"
                    .to_owned(),
            );
        }
        if self.last.standing.board.term != self.first.standing.board.term {
            let holder = self.last.standing.board.node.clone().unwrap_or_default();
            then.push(format!("{holder} has the board now"));
        }
        let taken = std::mem::take(&mut self.taken);
        match self.hand() {
            _ if taken.is_empty() => {}
            Ok(mut hand) => {
                for (node, name, former) in taken {
                    let back = hand.turn_to(node, Wish::Resume).and_then(|()| hand.give_back(former));
                    then.extend(back.err().map(|Failure(why)| format!("{name} stays held: {why}")));
                }
            }
            Err(Failure(why)) => {
                then.extend(taken.iter().map(|(_, name, _)| format!("{name} stays held: {why}")));
            }
        }
        let has_ended = |name: &String, region| {
            self.ended.contains(name) || self.place.presence(name, region) == Presence::Ended
        };
        let caches = left.caches.iter().filter(|name| has_ended(name, items_region(name)));
        let fronts = left.fronts.iter().filter(|name| has_ended(name, front_region(name)));
        let ended: Vec<_> = fronts.chain(caches).collect();
        then.extend(ended.into_iter().map(|name| format!("{name} has ended: start it again")));
        let but = if then.is_empty() { String::new() } else { format!("; but {}", then.join("; ")) };
        Failure::new(format!("nothing is changed, because {why}{but}"))
    }

    /// Has all parts know that these nodes leave, and holds them.
    fn hold(&mut self, nodes: &Names) -> Result<(), Failure> {
        self.change(|roster| roster.standing.leaving = nodes.clone())?;
        let cluster = self.last.cluster()?;
        let leave = cluster.nodes.entries().filter(|(_, node)| nodes.contains(&node.name));
        let leave: Vec<_> = leave.filter(|(_, node)| self.may_have_requests(node)).collect();
        if leave.is_empty() {
            return Ok(());
        }
        let mut hand = self.hand()?;
        hand.announce()?;
        for (slot, node) in leave {
            let (slot, name) = (NodeId::new(slot), &node.name);
            hand.turn_to(slot, Wish::Drain)?;
            let mut former = None;
            let left = hand.leave(&mut former);
            if left.is_err() && self.is_absent(node) {
                continue;
            }
            self.taken.extend(former.map(|former| (slot, name.clone(), former)));
            left.map_err(|Failure(why)| Failure::new(format!("{name} cannot leave: {why}")))?;
        }
        Ok(())
    }

    /// A person's links to the cluster as this has left it.
    fn hand(&self) -> Result<Hand, Failure> {
        let mut hand = Hand::new(Parts::new(self.last.cluster()?)?, NodeId::new(0), Wish::Drain)?;
        hand.waits = self.waits;
        Ok(hand)
    }

    /// Has no edge take requests of these sites any more, and frees all nodes that are of them.
    ///
    /// A mover that goes by an earlier roster may yet make a node drain to such a site. It then sees the newer epoch, and gives the node
    /// back; if it had read the epoch before, its node is seen here to be on its way, and is awaited.
    fn close(&mut self, sites: &Names) -> Result<(), Failure> {
        self.change(|roster| roster.standing.closing = sites.clone())?;
        let (cluster, mut hand) = (self.last.cluster()?, self.hand()?);
        hand.announce()?;
        let stays = cluster.sites.entries().find(|(_, site)| !sites.contains(&site.name));
        let stays = SiteId::new(stays.map_or(0, |(slot, _)| slot));
        let closing = cluster.sites.entries().filter(|(_, site)| sites.contains(&site.name));
        let closing: Vec<_> = closing.map(|(slot, _)| SiteId::new(slot)).collect();
        for (slot, node) in cluster.nodes.entries().filter(|(_, node)| self.may_have_requests(node)) {
            let name = &node.name;
            hand.turn_to(NodeId::new(slot), Wish::Drain)?;
            match hand.free(&closing, stays) {
                Ok(()) => {}
                Err(_) if self.is_absent(node) => {}
                Err(Failure(why)) => {
                    return Err(Failure::new(format!("{name} cannot leave its site: {why}")));
                }
            }
        }
        Ok(())
    }

    /// Has these edges end, once their requests have. Those that do not run have ended.
    fn end(&mut self, edges: &Names) -> Result<(), Failure> {
        self.last = self.place.change(&self.last, |roster| {
            roster.standing.leaving.extend(edges.iter().cloned());
        })?;
        self.await_ends(edges, front_region, self.wait + self.last.file.limits.response_timeout)
    }

    /// Has these caches hand their share of the keys over, and end.
    fn hand_over(&mut self, caches: &Names) -> Result<(), Failure> {
        let leave = |away: &mut Names| away.extend(caches.iter().cloned());
        homes::hand_over(self.place, &mut self.last, &leave, caches, (self.wait, &NEVER))?;
        self.await_ends(caches, items_region, self.wait)
    }

    /// Waits until these parts have ended, each of which has that region while it runs.
    fn await_ends(
        &mut self,
        parts: &Names,
        region: fn(&str) -> String,
        wait: Duration,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + wait;
        let mut left = difference(parts, &self.last.standing.lost);
        loop {
            // On another machine each says so for a short time only.
            let ended = left.iter().filter(|name| self.place.presence(name, region(name)) == Presence::Ended);
            let ended: Names = ended.cloned().collect();
            left = difference(&left, &ended);
            self.ended.extend(ended);
            let Some(name) = left.first() else { return Ok(()) };
            if Instant::now() >= deadline {
                return Err(Failure::new(format!("{name} has not ended: end it, and try again")));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether requests may be left at a node: not if it has never been there since its name joined.
    fn may_have_requests(&self, node: &Node) -> bool {
        if self.place.is_far() { !self.is_absent(node) } else { has_words(self.place.run(), &node.name) }
    }

    /// Whether nothing is left at a node that could have requests: it has never been there, or its process has ended, which was its
    /// server, too. Of a foreign server on another machine a person must have said so.
    fn is_absent(&self, node: &Node) -> bool {
        let name = &node.name;
        let has_ended = || self.place.presence(name, load_region(name)) == Presence::Ended;
        match self.place.is_far() {
            true => match self.place.presence(name, load_region(name)) {
                Presence::Runs { .. } => false,
                Presence::Ended if !node.is_foreign => true,
                _ => self.last.standing.lost.contains(name),
            },
            false => !has_words(self.place.run(), name) || !node.is_foreign && has_ended(),
        }
    }
}

/// Whether a node of that name has been there since the name joined.
fn has_words(run: &RunDirectory, name: &str) -> bool {
    run.find(&words_region(name), RegionKind::Words, WORDS_BYTES, Access::ReadOnly).is_ok()
}

fn tell_silent(names: &Names) {
    if !names.is_empty() {
        let names = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        tracing::warn!(
            "no answer from {names}: nobody waits for them, and each goes by the file once it hears of it. While an edge or front \
             does not answer, no node moves"
        );
    }
}

/// Keeps in the history how a member came or went.
fn keep(parts: &Parts, name: &str, how: &str) {
    match Log::open(parts, BY_HAND) {
        Ok(Some(log)) => {
            log.recorder().record(Record::of_member(name, how));
            log.finish();
        }
        Ok(None) => {}
        Err(Failure(why)) => tracing::warn!("{why}"),
    }
}

/// The roster of a cluster of which a part runs here.
fn alive(cluster: &Cluster, place: &Place) -> Result<Roster, Failure> {
    if place.is_far() {
        return place.current(&cluster.name);
    }
    let run = place.run();
    let adopted = Roster::read(run);
    let here = adopted.filter(|roster| roster.file.cluster.name == cluster.name && roster.is_alive(run));
    if !cluster.has_roster() && here.is_some() {
        return Err(Failure::new(
            "the cluster runs on one machine, and by this file it would not, by its fabric or secret_file: stop all parts, and start \
             them with the file",
        ));
    }
    if !cluster.has_roster() {
        return Err(Failure::new(
            "without [etcd] only the parts of a cluster on one machine adopt a changed file: copy this one to each machine, and \
             restart one part after another; or let etcd have it (docs/cluster.md)",
        ));
    }
    if here.is_none() {
        roster::legible(run)?;
    }
    here.ok_or_else(|| {
        let (name, place) = (&cluster.name, run.path().display());
        Failure::new(match Roster::from(cluster).is_alive(run) {
            true => format!(
                "the roster of {name} is gone from {place}, and the parts that run write it again: try again"
            ),
            false => format!(
                "no part of {name} runs in {place}: a part reads the file when it starts. If others run, the file had another run_dir then"
            ),
        })
    })
}

/// A person ends a command as a whole.
static NEVER: AtomicBool = AtomicBool::new(false);

/// Waits until all parts that run, of those that `of` tells of, go by `next`; at most for so long, and until `stop` is set. Returns those
/// that do not answer: nobody waits for them.
fn await_parts(
    place: &Place,
    next: &Roster,
    of: impl Fn(&Place, &Roster) -> Vec<(String, Presence)>,
    (wait, stop): (Duration, &AtomicBool),
) -> Result<Names, Failure> {
    let deadline = Instant::now() + wait;
    loop {
        let parts = of(place, next);
        let refusals = parts.iter().filter_map(|(part, presence)| match presence {
            Presence::Runs { refused: Some((epoch, why)), .. } if *epoch == next.epoch => {
                Some(format!("{part} refuses it: {why}"))
            }
            _ => None,
        });
        let refusals: Vec<_> = refusals.collect();
        if !refusals.is_empty() {
            return Err(Failure::new(refusals.join("; ")));
        }
        let is_late = |presence: &Presence| presence.runs() && !presence.goes_by(next.epoch);
        let late = parts.iter().filter(|(_, presence)| is_late(presence));
        let late: Vec<_> = late.map(|(part, _)| part.as_str()).collect();
        if late.is_empty() {
            let silent = parts.into_iter().filter(|(name, presence)| {
                matches!(presence, Presence::Silent { .. }) && !next.standing.lost.contains(name)
            });
            return Ok(silent.map(|(name, _)| name).collect());
        }
        if Instant::now() >= deadline || stop.load(Ordering::Relaxed) {
            let late = late.join(", ");
            return Err(Failure::new(format!(
                "{late} did not take it over within {wait:?}: its log says why, or it hangs: continue it, or end it"
            )));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
