//! The target's side: memory that the device serves to others without this process's CPU.
//!
//! Load regions and words lie in protection domains of their own. A connection reaches one region, through a memory
//! window that is bound to it where the device has such: then the region's own registration grants peers nothing, and who
//! is evicted, or whose region is dropped, has lost the right when that call returns. On other devices the queue pair or
//! the registration goes instead.
//!
//! A connection lives as long as the session of the control endpoint over which it was asked for, so whatever happens to
//! an initiator, nothing is left of it but messages that wait. After set-up no thread of this process runs for what
//! initiators do, but for the one that receives, where the region has an inbox.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use super::inbox::{Mailbox, Receiver, Seat as InboxSeat};
use super::setup::{self, Endpoint, Grant, Refusal, Request};
use super::sys::{CompletionQueue, MemoryRegion, ProtectionDomain, QueuePair, Receives, Rights, Window};
use super::{Device, DeviceError, KIND, random_sequence};
use crate::control;
use crate::host::Region;
use crate::key::{Key, Locator, Token};
use crate::memory::Memory;
use crate::{Access, Error, Inbox, InboxSpec, RegionSpec};

/// How long the device may take to bind a window: a local operation of microseconds.
const BIND_WAIT: Duration = Duration::from_secs(1);

/// Offers regions through a device; clones are the same host. Peers are served until it and the last of its regions are
/// dropped.
#[derive(Clone)]
pub struct VerbsHost {
    shared: Arc<Shared>,
    endpoint: control::Endpoint,
    advertised: SocketAddr,
}

struct Shared {
    /// Freed before the domains.
    state: Mutex<State>,
    device: Device,
    loads: Arc<ProtectionDomain>,
    words: Arc<ProtectionDomain>,
}

#[derive(Default)]
struct State {
    connections: BTreeMap<u64, Connection>,
    offers: BTreeMap<String, Offer>,
    next: u64,
}

struct Offer {
    token: Token,
    access: Access,
    incarnation: u64,
    len: usize,
    region: Arc<MemoryRegion>,
    inbox: Option<Arc<Mailbox>>,
}

/// One initiator's way to one region. A window goes before its queue pair.
struct Connection {
    window: Option<Window>,
    end: End,
    _completions: CompletionQueue,
    region: String,
    gid: [u8; 16],
}

/// Who has the queue pair.
enum End {
    /// Nobody: the device alone does something with it.
    OneSided { _queue: QueuePair },
    /// The region's inbox.
    Inbox(InboxSeat),
}

/// An initiator's connection, as the owner of the region sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connected {
    /// By which it is evicted; never used again.
    pub id: u64,
    /// The region's name.
    pub region: String,
    /// The initiator's device.
    pub gid: Ipv6Addr,
}

impl fmt::Debug for VerbsHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerbsHost({:?}, {:?})", self.shared.device, self.endpoint)
    }
}

impl VerbsHost {
    /// Offers regions through `device` to whoever asks `endpoint`, which serves one such host.
    ///
    /// # Errors
    /// Where the device gives no protection domain.
    pub fn new(device: &Device, endpoint: &control::Endpoint) -> Result<VerbsHost, Error> {
        let (loads, words) = (device.domain()?, device.domain()?);
        let shared = Arc::new(Shared { state: Mutex::default(), device: device.clone(), loads, words });
        let weak = Arc::downgrade(&shared);
        endpoint.serve(KIND, move || {
            let mut seat = Seat { shared: Weak::clone(&weak), connection: None };
            Box::new(move |request| seat.answer(request))
        });
        Ok(VerbsHost { shared, endpoint: endpoint.clone(), advertised: endpoint.address() })
    }

    /// Writes `address` into the keys of the regions that are offered from here on, in place of the endpoint's own: for
    /// one that listens on all interfaces, or behind an address translation.
    pub fn advertising(self, address: SocketAddr) -> VerbsHost {
        VerbsHost { advertised: address, ..self }
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Who is connected.
    pub fn connected(&self) -> Vec<Connected> {
        let state = self.shared.lock();
        let connected = |(id, connection): (&u64, &Connection)| Connected {
            id: *id,
            region: connection.region.clone(),
            gid: connection.gid.into(),
        };
        state.connections.iter().map(connected).collect()
    }

    /// Takes a connection's rights away at once: what it asks from here on is refused by the device, and what is under
    /// way may be cut short. Whether there was one. It may ask to be connected again, with a key that is still valid.
    pub fn evict(&self, id: u64) -> bool {
        let mut state = self.shared.lock();
        match state.connections.get_mut(&id) {
            // The queue pair stays, for the device to answer with a refusal, until the initiator leaves.
            Some(Connection { window: window @ Some(_), end, .. }) => {
                *window = None;
                if let End::Inbox(seat) = end {
                    seat.shut();
                }
            }
            Some(_) => drop(state.connections.remove(&id)),
            None => return false,
        }
        true
    }

    pub(crate) fn offer(
        &self,
        spec: &RegionSpec<'_>,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<Region, Error> {
        self.offer_memory(spec, None, || spec.memory(init))
    }

    pub(crate) fn offer_with_inbox(
        &self,
        spec: &RegionSpec<'_>,
        inbox: &InboxSpec,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<(Region, Inbox), Error> {
        let (domain, _) = self.shared.granted(spec.access);
        let mailbox = Mailbox::new(&self.shared.device, domain, inbox)?;
        let region = self.offer_memory(spec, Some(&mailbox), || spec.memory(init))?;
        Ok((region, Inbox::of_device(Receiver::new(&mailbox))))
    }

    pub(crate) fn offer_mapped(&self, spec: &RegionSpec<'_>, file: &File) -> Result<Region, Error> {
        self.offer_memory(spec, None, || spec.mapped(file))
    }

    fn offer_memory(
        &self,
        spec: &RegionSpec<'_>,
        inbox: Option<&Arc<Mailbox>>,
        memory: impl FnOnce() -> Result<Memory, Error>,
    ) -> Result<Region, Error> {
        let mut state = self.shared.lock();
        if state.offers.contains_key(spec.name) {
            return Err(Error::Taken { path: spec.name.into() });
        }
        let memory = Arc::new(memory()?);
        let token = Token::random().map_err(|source| Error::Map {
            name: spec.name.to_owned(),
            len: spec.len,
            source,
        })?;
        let (domain, rights) = self.shared.granted(spec.access);
        let region = self.shared.device.register(domain, Arc::clone(&memory), rights)?;
        let (access, incarnation, len) = (spec.access, spec.incarnation, spec.len);
        let offer = Offer { token, access, incarnation, len, region, inbox: inbox.cloned() };
        state.offers.insert(spec.name.to_owned(), offer);
        drop(state);
        let key = Key {
            name: spec.name.to_owned(),
            kind: spec.kind,
            len: spec.len,
            access: spec.access,
            locator: Locator::Verbs { address: self.advertised, token },
        };
        let (shared, name) = (Arc::clone(&self.shared), spec.name.to_owned());
        Ok(Region::new(memory, key, Hold { shared, name, _endpoint: self.endpoint.clone() }))
    }
}

/// What a region's owner holds: with it goes the offer.
struct Hold {
    shared: Arc<Shared>,
    name: String,
    /// Answers for as long as there is something to ask for.
    _endpoint: control::Endpoint,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        for connection in state.connections.values_mut().filter(|connection| connection.region == self.name) {
            connection.window = None;
        }
        if let Some(Offer { inbox: Some(inbox), .. }) = state.offers.remove(&self.name) {
            inbox.shut();
        }
    }
}

impl Shared {
    /// Nothing panics half-way through a change of the state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn granted(&self, access: Access) -> (&Arc<ProtectionDomain>, Rights) {
        match (access, self.device.has_windows()) {
            (Access::ReadOnly, false) => (&self.loads, Rights::Read),
            (Access::ReadOnly, true) => (&self.loads, Rights::WindowedRead),
            (Access::Atomic, false) => (&self.words, Rights::Atomic),
            (Access::Atomic, true) => (&self.words, Rights::WindowedAtomic),
        }
    }

    /// Connects an initiator; the connection's number.
    fn connect(&self, request: &Request<'_>) -> Result<(u64, Grant), Refusal> {
        // Held throughout: a region that is dropped meanwhile goes after its new connection has been entered.
        let mut state = self.lock();
        let offer = state.offers.get(request.name).filter(|offer| offer.token.matches(request.token));
        let offer = offer.ok_or(Refusal::Key)?;
        let made = self.make(offer, request).map_err(|error| {
            tracing::warn!(%error, region = request.name, "a connection could not be made");
            Refusal::Device
        });
        let (connection, grant) = made?;
        let id = state.next;
        state.next += 1;
        state.connections.insert(id, connection);
        Ok((id, grant))
    }

    fn make(&self, offer: &Offer, request: &Request<'_>) -> Result<(Connection, Grant), DeviceError> {
        let device = &self.device;
        let (domain, rights) = self.granted(offer.access);
        let mut completions = device.completion_queue(4, false)?;
        let (mut inbox, mut receives) = (None, Receives::none(&completions));
        if let Some(mailbox) = &offer.inbox
            && let Some(room) = mailbox.room()?
        {
            (inbox, receives) = (Some(mailbox), room);
        }
        let created = QueuePair::with_receives(&completions, domain, 0, 2, 0, receives);
        let mut queue = created.map_err(device.failed("ibv_create_qp"))?;
        let sequence = random_sequence().map_err(device.failed("getrandom"))?;
        let own = device.address(&queue, sequence);
        let reads = device.reads_in().min(request.endpoint.reads);
        let connected =
            queue.connect(&device.timers(sequence, 0, reads), &request.endpoint.peer(own.mtu), rights);
        connected.map_err(device.failed("ibv_modify_qp"))?;
        let (mut window, mut rkey) = (None, offer.region.rkey());
        if device.has_windows() {
            let made = Window::new(&offer.region).map_err(device.failed("ibv_alloc_mw"))?;
            rkey = queue.bind(&made, rights).map_err(device.failed("ibv_post_send"))?;
            await_bind(&mut completions).map_err(device.failed("binding a memory window"))?;
            window = Some(made);
        }
        let (end, inbox) = match inbox {
            Some(mailbox) => {
                let (seat, grant) = mailbox.add(queue)?;
                (End::Inbox(seat), Some(grant))
            }
            None => (End::OneSided { _queue: queue }, None),
        };
        let grant = Grant {
            endpoint: Endpoint::new(own, reads),
            address: offer.region.address(),
            rkey,
            len: offer.len as u64,
            incarnation: offer.incarnation,
            inbox,
        };
        let (region, gid) = (request.name.to_owned(), request.endpoint.gid);
        Ok((Connection { window, end, _completions: completions, region, gid }, grant))
    }
}

fn await_bind(completions: &mut CompletionQueue) -> io::Result<()> {
    let deadline = Instant::now() + BIND_WAIT;
    loop {
        if let Some(completion) = completions.poll()?.first() {
            return completion.outcome().map_err(|failure| io::Error::other(format!("{failure:?}")));
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// Where a session keeps its connection.
struct Seat {
    shared: Weak<Shared>,
    connection: Option<u64>,
}

impl Seat {
    fn answer(&mut self, request: &[u8]) -> Result<Vec<u8>, String> {
        let Some(shared) = self.shared.upgrade() else { return Ok(setup::encode_answer(&Err(Refusal::Key))) };
        if self.connection.is_some() {
            return Err("a session has one connection".to_owned());
        }
        let request =
            Request::decode(request).map_err(|setup::Malformed| "a malformed request".to_owned())?;
        let connected = request.and_then(|request| shared.connect(&request));
        let answer = connected.map(|(id, grant)| {
            self.connection = Some(id);
            grant
        });
        if answer.is_err() {
            shared.device.tallies().refused.fetch_add(1, Ordering::Relaxed);
        }
        Ok(setup::encode_answer(&answer))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let (Some(id), Some(shared)) = (self.connection, self.shared.upgrade()) {
            let connection = shared.lock().connections.remove(&id);
            drop(connection);
        }
    }
}
