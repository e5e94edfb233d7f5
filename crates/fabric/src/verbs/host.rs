//! The target's side: memory that the device serves to peers without this process's CPU.
//!
//! Load regions and words are in separate protection domains. A connection reaches one region, through a memory window
//! bound to it if the device has such windows. Then the region's own registration grants peers nothing. Evicting a peer
//! or dropping the region invalidates the window, and the right has ended when that call returns. On other devices the
//! queue pair or the registration is destroyed instead.
//!
//! A connection lives as long as the control session over which it was requested. So whatever happens to an initiator,
//! nothing of it remains but messages not yet received. After set-up no thread of this process works for initiators,
//! except the receiver of an inbox.

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
use crate::access::Token;
use crate::control;
use crate::key::{Key, Locator};
use crate::memory::Memory;
use crate::region::Region;
use crate::{Access, Error, Inbox, InboxSpec, RegionSpec};

/// Longest time to bind a window: a local operation of microseconds.
const BIND_WAIT: Duration = Duration::from_secs(1);

/// Exposes regions through a device. Clones are the same host. Peers are served until the host and the last of its
/// regions are dropped.
#[derive(Clone)]
pub struct VerbsHost {
    shared: Arc<Shared>,
    endpoint: control::Endpoint,
    advertised: SocketAddr,
}

struct Shared {
    /// Dropped before the domains.
    state: Mutex<State>,
    device: Device,
    loads: Arc<ProtectionDomain>,
    words: Arc<ProtectionDomain>,
}

#[derive(Default)]
struct State {
    connections: BTreeMap<u64, Connection>,
    exposures: BTreeMap<String, Exposure>,
    next: u64,
}

struct Exposure {
    token: Token,
    access: Access,
    incarnation: u64,
    len: usize,
    region: Arc<MemoryRegion>,
    inbox: Option<Arc<Mailbox>>,
}

/// One initiator's connection to one region. The window is dropped before its queue pair.
struct Connection {
    window: Option<Window>,
    end: End,
    _completions: CompletionQueue,
    region: String,
    gid: [u8; 16],
}

/// The holder of the queue pair.
enum End {
    /// No holder: the device alone uses it.
    OneSided { _queue: QueuePair },
    /// The region's inbox.
    Inbox(InboxSeat),
}

/// An initiator's connection, as the region's owner sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connected {
    /// Identifies it for [`VerbsHost::evict`]; never reused.
    pub id: u64,
    /// The region's name.
    pub region: String,
    /// Address of the initiator's device.
    pub gid: Ipv6Addr,
}

impl fmt::Debug for VerbsHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerbsHost({:?}, {:?})", self.shared.device, self.endpoint)
    }
}

impl VerbsHost {
    /// Exposes regions through `device` to initiators that ask `endpoint`. An endpoint serves one such host.
    ///
    /// # Errors
    /// If the device gives no protection domain.
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

    /// Puts `address` into the keys of regions exposed from now on, in place of the endpoint's own. Use it for an
    /// endpoint that listens on all interfaces, or behind address translation.
    pub fn advertising(self, address: SocketAddr) -> VerbsHost {
        VerbsHost { advertised: address, ..self }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// The connections of all initiators.
    pub fn connected(&self) -> Vec<Connected> {
        let state = self.shared.lock();
        let connected = |(id, connection): (&u64, &Connection)| Connected {
            id: *id,
            region: connection.region.clone(),
            gid: connection.gid.into(),
        };
        state.connections.iter().map(connected).collect()
    }

    /// Revokes a connection's rights at once; returns whether it existed. The device refuses further requests, and may
    /// cut requests in progress short. The initiator may connect again with a key that is still valid.
    pub fn evict(&self, id: u64) -> bool {
        let mut state = self.shared.lock();
        match state.connections.get_mut(&id) {
            // The queue pair stays until the initiator leaves, so that the device can answer with a refusal.
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

    pub(crate) fn expose(
        &self,
        spec: &RegionSpec<'_>,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<Region, Error> {
        self.expose_memory(spec, None, || spec.memory(init))
    }

    pub(crate) fn expose_with_inbox(
        &self,
        spec: &RegionSpec<'_>,
        inbox: &InboxSpec,
        init: impl FnOnce(&mut [u64]),
    ) -> Result<(Region, Inbox), Error> {
        let (domain, _) = self.shared.granted(spec.access);
        let mailbox = Mailbox::new(&self.shared.device, domain, inbox)?;
        let region = self.expose_memory(spec, Some(&mailbox), || spec.memory(init))?;
        Ok((region, Inbox::of_device(Receiver::new(&mailbox))))
    }

    pub(crate) fn expose_mapped(&self, spec: &RegionSpec<'_>, file: &File) -> Result<Region, Error> {
        self.expose_memory(spec, None, || spec.mapped(file))
    }

    fn expose_memory(
        &self,
        spec: &RegionSpec<'_>,
        inbox: Option<&Arc<Mailbox>>,
        memory: impl FnOnce() -> Result<Memory, Error>,
    ) -> Result<Region, Error> {
        let mut state = self.shared.lock();
        if state.exposures.contains_key(spec.name) {
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
        let (access, incarnation, len) = (spec.access, spec.instance.incarnation, spec.len);
        let exposure = Exposure { token, access, incarnation, len, region, inbox: inbox.cloned() };
        state.exposures.insert(spec.name.to_owned(), exposure);
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

/// Held by a region's owner; dropping it withdraws the region.
struct Hold {
    shared: Arc<Shared>,
    name: String,
    /// Answers requests as long as there is a region to ask for.
    _endpoint: control::Endpoint,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        for connection in state.connections.values_mut().filter(|connection| connection.region == self.name) {
            connection.window = None;
        }
        if let Some(Exposure { inbox: Some(inbox), .. }) = state.exposures.remove(&self.name) {
            inbox.shut();
        }
    }
}

impl Shared {
    /// Locks despite poisoning: nothing panics halfway through a change of the state.
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

    /// Connects an initiator; returns the connection's number.
    fn connect(&self, request: &Request<'_>) -> Result<(u64, Grant), Refusal> {
        // Held throughout, so that a region dropped meanwhile is removed after its new connection is entered.
        let mut state = self.lock();
        let exposure =
            state.exposures.get(request.name).filter(|exposure| exposure.token.matches(request.token));
        let exposure = exposure.ok_or(Refusal::Key)?;
        let made = self.make(exposure, request).map_err(|error| {
            tracing::warn!(%error, region = request.name, "a connection could not be made");
            Refusal::Device
        });
        let (connection, grant) = made?;
        let id = state.next;
        state.next += 1;
        state.connections.insert(id, connection);
        Ok((id, grant))
    }

    fn make(&self, exposure: &Exposure, request: &Request<'_>) -> Result<(Connection, Grant), DeviceError> {
        let device = &self.device;
        let (domain, rights) = self.granted(exposure.access);
        let mut completions = device.completion_queue(4, false)?;
        let (mut inbox, mut receives) = (None, Receives::none(&completions));
        if let Some(mailbox) = &exposure.inbox
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
        let (mut window, mut rkey) = (None, exposure.region.rkey());
        if device.has_windows() {
            let made = Window::new(&exposure.region).map_err(device.failed("ibv_alloc_mw"))?;
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
            address: exposure.region.address(),
            rkey,
            len: exposure.len as u64,
            incarnation: exposure.incarnation,
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
            return completion.outcome().map_err(io::Error::other);
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// Holds a session's connection.
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
