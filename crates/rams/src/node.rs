//! A node of the cooperative cache of Gu and Wang 2004, live: objects that do not change, in the memory of their homes and of
//! those who read them there.
//!
//! What it keeps, reads and says is decided by [`Peer`], which the simulator drives, too. This carries it out over
//! the fabric: an object lies in the region of its home, where others read it one-sidedly, and messages go to the inbox of
//! their receiver. It knows no disk, no clients and no clock: it leaves [`Event`]s to its driver. [`play`](crate::play()) is one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::peer::{Act, Counters, Look, NodeId, Peer};
use crate::protocol::{CacheSettings, Message};
use sidelong_fabric::{
    Access, Batch, Directory, Error, Host, Inbox, InboxSpec, Initiator, LinkId, Region, RegionSpec,
};
use sidelong_layout::{HEADER_BYTES, Instance, RegionKind};
use sidelong_policy::cache::store::Place;

use crate::memory::{self, Map, Memory};
use crate::wire::{self, Outgoing};

/// The longest wait for a neighbour's memory or inbox, and for a link to it.
const PATIENCE: Duration = Duration::from_millis(10);
/// Tries to read an object that its home is moving.
const TRIES_MAX: usize = 4;
/// The inbox of a node.
const INBOX: InboxSpec = InboxSpec { slots: 256, message_bytes_max: 16 << 10 };
/// Bytes that wait for a full inbox, above which what only keeps references up to date is not sent: a reference that is out of
/// date costs its reader a read that fails.
const WAITING_BYTES_MAX: usize = 1 << 20;
/// The largest object that a message carries. A request that could have a larger one by message alone is refused.
const OBJECT_BYTES_MAX: usize = 1 << 30;
/// The longest message: such an object, and references beside it.
const MESSAGE_BYTES_MAX: usize = OBJECT_BYTES_MAX + (1 << 20);

/// Something for the driver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Read an object from this node's disk, then call [`Node::loaded`].
    Load {
        /// The object.
        key: u64,
    },
    /// A request is answered.
    Answer {
        /// The request.
        tag: u32,
        /// The object's bytes.
        bytes: Arc<[u8]>,
    },
    /// A request gets no answer: its object is too large for a message, and its home has no place where it could be read.
    Refused {
        /// The request.
        tag: u32,
    },
}

/// The bytes that a message carries of an object of that size.
fn carried(object_bytes: u32) -> usize {
    let bytes = object_bytes as usize;
    if bytes > OBJECT_BYTES_MAX { 0 } else { bytes }
}

/// A request that is not answered yet.
#[derive(Clone, Copy, Debug)]
struct Request {
    key: u64,
    home: NodeId,
    failures: u8,
}

impl Request {
    /// Whether a message says what this request asked: its home alone answers it, and does so for its object.
    fn is_answered_by(&self, from: NodeId, message: &Message, object: &[u8]) -> bool {
        match message {
            Message::Offer { key, place, bytes, .. } => {
                (from, *key) == (self.home, self.key) && (place.is_some() || object.len() == carried(*bytes))
            }
            _ => false,
        }
    }
}

/// Another node.
#[derive(Default)]
struct Other {
    memory: Option<LinkId>,
    inbox: Option<LinkId>,
    /// Messages for which its inbox had no room, whole or in part.
    waiting: VecDeque<Outgoing>,
    waiting_bytes: usize,
    /// What has come of a message from it.
    coming: Vec<u8>,
}

/// One node.
pub struct Node {
    me: NodeId,
    peer: Peer,
    map: Map,
    cluster: u64,
    memory: Memory,
    inbox: Inbox,
    _inbox: Region,
    initiator: Initiator,
    batch: Batch,
    others: Vec<Other>,
    /// The bytes of the incoming cache.
    incoming: BTreeMap<u64, Arc<[u8]>>,
    under_way: BTreeMap<u32, Request>,
}

/// What a step has at hand: an object that was just read, loaded or sent, whether or not it is kept.
type AtHand = Option<(u64, Arc<[u8]>)>;

impl Node {
    /// The node `me` of `nodes`, whose memory is laid out as that of the others and found in `directory`.
    ///
    /// # Errors
    /// If its memory or its inbox cannot be offered.
    ///
    /// # Panics
    /// If the settings do not pass [`CacheSettings::check`], or have notes fetched with reads: only messages carry them here.
    pub fn new(
        host: &Host,
        directory: &dyn Directory,
        me: NodeId,
        nodes: u32,
        settings: CacheSettings,
        map: Map,
        cluster: u64,
    ) -> Result<Node, Error> {
        assert!(settings.notes_max == 0, "notes come with messages");
        let [memory, inbox] = names(me);
        let spec = |name, len, access| RegionSpec {
            name,
            kind: RegionKind::Raw,
            len,
            access,
            instance: Instance { cluster, incarnation: 1 },
        };
        let memory = host.expose_owned(&spec(&memory, map.len(), Access::ReadOnly))?;
        let (_inbox, inbox) =
            host.expose_with_inbox(&spec(&inbox, HEADER_BYTES, Access::Atomic), &INBOX, |_| ())?;
        memory.key().into_iter().chain([_inbox.key()]).try_for_each(|key| directory.publish(key))?;
        Ok(Node {
            me,
            peer: Peer::new(me, nodes, settings),
            map,
            cluster,
            memory: Memory::new(memory, map),
            inbox,
            _inbox,
            initiator: Initiator::new().of_cluster(cluster),
            batch: Batch::new(),
            others: (0..nodes).map(|_| Other::default()).collect(),
            incoming: BTreeMap::new(),
            under_way: BTreeMap::new(),
        })
    }

    /// Links to the others, as far as they are there. Returns whether all are.
    ///
    /// # Errors
    /// If one of them is of another cluster.
    pub fn link(&mut self, directory: &dyn Directory) -> Result<bool, Error> {
        let mut all = true;
        for number in (0..self.others.len() as NodeId).filter(|number| *number != self.me) {
            let [memory, inbox] = names(number);
            let other = &mut self.others[number as usize];
            let wanted = [
                (memory, self.map.len(), Access::ReadOnly, &mut other.memory),
                (inbox, HEADER_BYTES, Access::Atomic, &mut other.inbox),
            ];
            for (name, len, access, link) in wanted {
                if link.is_some() {
                    continue;
                }
                let found = directory.find(&name, RegionKind::Raw, len, access);
                match found.and_then(|key| self.initiator.connect(&key, PATIENCE)) {
                    Ok(id) => *link = Some(id),
                    Err(error @ Error::Header { .. }) => return Err(error),
                    Err(error) => {
                        tracing::debug!(name, cluster = self.cluster, %error, "no link to another node");
                        all = false;
                    }
                }
            }
        }
        Ok(all)
    }

    /// Counts since the start.
    pub fn counters(&self) -> &Counters {
        self.peer.counters()
    }

    /// Number of its own objects, of other nodes' objects, and of references.
    pub fn entries(&self) -> [usize; 3] {
        self.peer.entries()
    }

    /// A client asks for an object, whose home is `home`. Returns whether it is answered from this node's memory.
    ///
    /// # Panics
    /// If a request of that number is under way.
    pub fn request(&mut self, tag: u32, key: u64, home: NodeId, events: &mut Vec<Event>) -> bool {
        let found = self.peer.look(key, home);
        if found == Look::Here {
            events.push(Event::Answer { tag, bytes: self.bytes(key, &None) });
            return true;
        }
        let before = self.under_way.insert(tag, Request { key, home, failures: 0 });
        assert!(before.is_none(), "requests have numbers of their own");
        let mut acts = Vec::new();
        match found {
            Look::Here => {}
            Look::There { place, .. } => self.read(tag, place, events),
            Look::Ask => self.peer.ask(key, home, tag, 0, &mut acts),
            Look::Load => self.peer.load(key, tag, &mut acts),
        }
        self.carry_out(acts, &None, events);
        false
    }

    /// An object of the node's own disk has been read.
    ///
    /// # Panics
    /// If it has 4 GiB or more, as no object has.
    pub fn loaded(&mut self, key: u64, bytes: Arc<[u8]>, events: &mut Vec<Event>) {
        let mut acts = Vec::new();
        let size = bytes.len().try_into().expect("an object has less than 4 GiB");
        self.peer.loaded(key, size, &mut acts);
        self.carry_out(acts, &Some((key, bytes)), events);
    }

    /// Takes one message, if there is one. Returns whether there was.
    pub fn receive(&mut self, events: &mut Vec<Event>) -> bool {
        self.receive_within(Duration::ZERO, events)
    }

    /// Takes one message, and waits for it for at most `timeout`. Returns whether there was one.
    pub fn receive_within(&mut self, timeout: Duration, events: &mut Vec<Event>) -> bool {
        let part = if timeout.is_zero() { self.inbox.try_receive() } else { self.inbox.receive(timeout) };
        let Some(part) = part else { return false };
        if let Some((from, whole)) = join(&mut self.others, self.me, part.bytes) {
            self.take(from, &whole, events);
        }
        true
    }

    /// Takes a whole message.
    fn take(&mut self, from: NodeId, whole: &[u8], events: &mut Vec<Event>) {
        let Some((message, object)) = wire::message(whole) else { return };
        let mut at_hand = None;
        if let Message::Offer { key, tag, bytes, place, .. } = &message {
            let request = self.under_way.get(tag);
            if !request.is_some_and(|request| request.is_answered_by(from, &message, object)) {
                return tracing::debug!(from, tag, "an answer to what was not asked");
            }
            if place.is_none() && object.len() < *bytes as usize {
                // Its notes are lost: reads that fail tell the same.
                self.under_way.remove(tag);
                return events.push(Event::Refused { tag: *tag });
            }
            at_hand = place.is_none().then(|| (*key, object.into()));
        }
        let mut acts = Vec::new();
        self.peer.receive(from, message, &mut acts);
        self.carry_out(acts, &at_hand, events);
    }

    /// Sends again what an inbox had no room for. Returns whether anything waits.
    pub fn send_waiting(&mut self) -> bool {
        (0..self.others.len()).filter(|number| !self.send_to(*number)).count() > 0
    }

    fn carry_out(&mut self, acts: Vec<Act>, at_hand: &AtHand, events: &mut Vec<Event>) {
        for act in acts {
            match act {
                Act::Send { to, message } => self.send(to, &message, at_hand),
                Act::Load { key } => events.push(Event::Load { key }),
                Act::Read { tag, place, .. } => self.read(tag, place, events),
                Act::Done { tag } => {
                    if let Some(Request { key, .. }) = self.under_way.remove(&tag) {
                        events.push(Event::Answer { tag, bytes: self.bytes(key, at_hand) });
                    }
                }
                Act::Publish { key, place } => {
                    let bytes = self.bytes(key, at_hand);
                    self.memory.publish(place, key, &bytes);
                }
                Act::Withdraw { key, place } => self.memory.withdraw(place, key),
                Act::Keep { key } => {
                    let bytes = self.bytes(key, at_hand);
                    self.incoming.insert(key, bytes);
                }
                Act::Drop { key } => _ = self.incoming.remove(&key),
            }
        }
    }

    /// The bytes of an object that is here.
    fn bytes(&self, key: u64, at_hand: &AtHand) -> Arc<[u8]> {
        if let Some((_, bytes)) = at_hand.as_ref().filter(|(at_hand, _)| *at_hand == key) {
            return Arc::clone(bytes);
        }
        let kept = self.incoming.get(&key).cloned();
        kept.or_else(|| self.memory.bytes(key).map(Arc::from)).expect("an object that the peer has is here")
    }

    /// Reads an object in its home's memory. If that fails, its home is asked.
    fn read(&mut self, tag: u32, place: Place, events: &mut Vec<Event>) {
        let Some(Request { key, home, .. }) = self.under_way.get(&tag).copied() else { return };
        let found = self.fetch(home, place, key);
        let mut acts = Vec::new();
        let bytes = found.as_ref().map_or(0, |found| found.len() as u32);
        self.peer.read_done(key, home, place, bytes, found.is_some(), &mut acts);
        match &found {
            Some(_) => acts.push(Act::Done { tag }),
            None => {
                let request = self.under_way.get_mut(&tag).expect("it is under way");
                request.failures = request.failures.saturating_add(1);
                self.peer.ask(key, home, tag, request.failures, &mut acts);
            }
        }
        self.carry_out(acts, &found.map(|bytes| (key, bytes)), events);
    }

    /// The bytes at a place of another node's memory, if they are the object's.
    fn fetch(&mut self, home: NodeId, place: Place, key: u64) -> Option<Arc<[u8]>> {
        let link = self.others.get(home as usize)?.memory?;
        let (map, batch) = (self.map, &mut self.batch);
        for _ in 0..TRIES_MAX {
            batch.clear();
            let slot = batch.read(link, map.slot(place)?, memory::SLOT_BYTES);
            self.initiator.run(batch, PATIENCE);
            let before = memory::Slot::of(batch.words(slot).ok()?);
            let (at, len) = match before.find(place, key, map) {
                memory::Found::At(at, len) => (at, len),
                memory::Found::Moving => continue,
                memory::Found::Gone => return None,
            };
            batch.clear();
            // In pieces, which the fabric bounds.
            let pieces = (0..len).step_by(memory::PIECE_BYTES);
            let pieces: Vec<_> = pieces
                .map(|from| batch.read(link, at + from, (len - from).min(memory::PIECE_BYTES)))
                .collect();
            let slot = batch.read(link, map.slot(place)?, memory::SLOT_BYTES);
            self.initiator.run(batch, PATIENCE);
            if memory::Slot::of(batch.words(slot).ok()?) == before {
                let pieces: Option<Vec<&[u8]>> =
                    pieces.iter().map(|piece| batch.bytes(*piece).ok()).collect();
                return Some(pieces?.concat().into());
            }
        }
        None
    }

    fn send(&mut self, to: NodeId, message: &Message, at_hand: &AtHand) {
        let is_update = !matches!(message, Message::Ask { .. } | Message::Offer { .. });
        let object = match message {
            Message::Offer { key, place: None, bytes, .. } if carried(*bytes) > 0 => {
                self.bytes(*key, at_hand)
            }
            _ => Arc::from([]),
        };
        let Some(other) = self.others.get_mut(to as usize) else { return };
        if is_update && other.waiting_bytes > WAITING_BYTES_MAX {
            return;
        }
        let message = Outgoing::new(self.me, message, object, INBOX.message_bytes_max);
        other.waiting_bytes += message.bytes();
        other.waiting.push_back(message);
        self.send_to(to as usize);
    }

    /// Sends what waits for a node, as far as its inbox takes it. Returns whether that is all.
    fn send_to(&mut self, to: usize) -> bool {
        let other = &mut self.others[to];
        while let (Some(message), Some(link)) = (other.waiting.front_mut(), other.inbox) {
            self.batch.clear();
            let sent = self.batch.send(link, &message.part());
            self.initiator.run(&mut self.batch, PATIENCE);
            if let Err(error) = self.batch.value(sent) {
                tracing::trace!(to, %error, "an inbox takes no message");
                return false;
            }
            if message.advance() {
                other.waiting_bytes -= message.bytes();
                other.waiting.pop_front();
            }
        }
        other.waiting.is_empty()
    }
}

/// Joins a part of a message to those before it. Returns the message and its sender once it is whole.
fn join(others: &mut [Other], me: NodeId, part: &[u8]) -> Option<(NodeId, Vec<u8>)> {
    let (from, whole, bytes) = wire::part(part)?;
    let other = others.get_mut(from as usize).filter(|_| from != me && whole <= MESSAGE_BYTES_MAX)?;
    other.coming.extend_from_slice(bytes);
    (other.coming.len() >= whole).then(|| (from, std::mem::take(&mut other.coming)))
}

/// The names of a node's memory and of its inbox.
fn names(node: NodeId) -> [String; 2] {
    [format!("object-memory-{node}"), format!("object-inbox-{node}")]
}

#[cfg(any(test, fuzzing))]
impl Node {
    /// The node `me` of three.
    fn of_three(directory: &std::path::Path, protocol: crate::protocol::Protocol, me: NodeId) -> Node {
        let room = sidelong_policy::cache::store::Room::bytes(Node::ROOM_BYTES as u64);
        let settings = CacheSettings::new(protocol, room, room, 16);
        let host = Host::Shm(sidelong_fabric::shm::ShmHost::new(directory));
        let run = sidelong_fabric::RunDirectory::at(directory.to_owned());
        let map = Map::new(256, Node::ROOM_BYTES);
        Node::new(&host, &run, me, 3, settings, map, 1).expect("its memory is offered")
    }

    /// The node 0 of three, which has asked node 1 for object 1 in request 1, and node 2 for object 2 in request 2.
    pub(crate) fn with_requests(directory: &std::path::Path, protocol: crate::protocol::Protocol) -> Node {
        let mut node = Node::of_three(directory, protocol, 0);
        for number in [1, 2] {
            node.request(number, number.into(), number, &mut Vec::new());
        }
        node
    }

    /// Room for each kind of object.
    pub(crate) const ROOM_BYTES: usize = 256;

    /// What another node has put into the inbox. Objects below 4 are on this node's disk.
    pub(crate) fn arrived(&mut self, part: &[u8]) -> Vec<Event> {
        let (mut events, mut answers) = (Vec::new(), Vec::new());
        if let Some((from, whole)) = join(&mut self.others, self.me, part) {
            self.take(from, &whole, &mut events);
        }
        while let Some(event) = events.pop() {
            match event {
                Event::Load { key } if key < 4 => self.loaded(key, Arc::from([key as u8; 100]), &mut events),
                Event::Load { .. } => {}
                answer @ (Event::Answer { .. } | Event::Refused { .. }) => answers.push(answer),
            }
        }
        let kept: usize = self.incoming.values().map(|bytes| bytes.len()).sum();
        assert!(kept <= Node::ROOM_BYTES, "{kept} bytes of others' objects are kept");
        answers
    }
}

#[cfg(test)]
mod tests {
    use crate::protocol::Protocol;

    use super::*;

    #[test]
    fn only_a_requests_home_answers_it_and_for_its_object_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mut node = Node::with_requests(directory.path(), Protocol::Rpc);
        let mut arrived = |from, key, tag, bytes: u32| {
            let offer = Message::Offer { key, tag, bytes, place: None, changes: Vec::new() };
            let parts = Outgoing::new(from, &offer, Arc::from(*b"bytes"), 1024).parts();
            parts.iter().flat_map(|part| node.arrived(part)).collect::<Vec<_>>()
        };
        for (from, key, tag, bytes) in
            [(2, 1, 1, 5), (0, 1, 1, 5), (1, 2, 1, 5), (1, 1, 2, 5), (1, 1, 7, 5), (1, 1, 1, 4)]
        {
            assert_eq!(
                arrived(from, key, tag, bytes),
                [],
                "from {from} for {key}, request {tag}, {bytes} bytes"
            );
        }
        assert_eq!(arrived(1, 1, 1, 5), [Event::Answer { tag: 1, bytes: Arc::from(*b"bytes") }]);
        assert_eq!(arrived(1, 1, 1, 5), [], "once");
    }

    #[test]
    fn an_object_that_no_message_carries_is_refused_and_the_next_request_is_answered() {
        let directory = tempfile::tempdir().unwrap();
        for protocol in Protocol::ALL.iter().copied() {
            let mut asker = Node::with_requests(directory.path(), protocol);
            let mut home = Node::of_three(directory.path(), protocol, 1);
            let mut events = Vec::new();
            let mut answers = |asker: &mut Node, bytes| {
                for part in asker.others[1].waiting.drain(..).flat_map(Outgoing::parts) {
                    let (from, whole) = join(&mut home.others, 1, &part).unwrap();
                    home.take(from, &whole, &mut events);
                }
                assert_eq!(std::mem::take(&mut events), [Event::Load { key: 1 }], "{protocol}");
                // The peer is told of the size alone: no test has so much memory to spare.
                let mut acts = Vec::new();
                home.peer.loaded(1, bytes, &mut acts);
                let object = Arc::from(vec![7; carried(bytes)]);
                home.carry_out(acts, &Some((1, object)), &mut events);
                let parts: Vec<_> = home.others[0].waiting.drain(..).flat_map(Outgoing::parts).collect();
                parts.iter().flat_map(|part| asker.arrived(part)).collect::<Vec<_>>()
            };
            let refused = answers(&mut asker, OBJECT_BYTES_MAX as u32 + 1);
            assert_eq!(refused, [Event::Refused { tag: 1 }], "{protocol}");
            asker.request(3, 1, 1, &mut Vec::new());
            // More than its home keeps, so that it comes by message.
            let large = Node::ROOM_BYTES as u32 + 1;
            let bytes = Arc::from(vec![7; large as usize]);
            assert_eq!(answers(&mut asker, large), [Event::Answer { tag: 3, bytes }], "{protocol}");
        }
    }
}
