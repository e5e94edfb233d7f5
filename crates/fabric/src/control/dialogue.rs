//! The endpoint's half of one session: bytes in, answers out. It does no I/O and asks no clock.
//!
//! It answers one request before it looks at the next, and only when its output is empty. So a session costs at most
//! one message in each direction.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard};

use crate::control::cause::Cause;
use crate::control::noise::{self, Channel};
use crate::control::secret::{Secret, SecretId};
use crate::control::wire::{self, BODY_BYTES_MAX, DECLINED, DONE, FIND, LENGTH_BYTES};
use crate::key::Locator;

/// Answers the requests of one kind in one session: with bytes, or with a reason for people to read. It lives as long
/// as the session, as does whatever it holds for the peer.
pub type Answers = Box<dyn FnMut(&[u8]) -> Result<Vec<u8>, String> + Send>;

/// Makes the answers for a new session.
type Open = Box<dyn Fn() -> Answers + Send + Sync>;

/// State that all sessions of an endpoint share.
#[derive(Default)]
pub(super) struct Desk {
    /// How to reach each region, by its name.
    regions: Mutex<HashMap<String, Locator>>,
    services: Mutex<HashMap<u8, Open>>,
}

impl Desk {
    pub(super) fn publish(&self, name: &str, locator: Locator) {
        lock(&self.regions).insert(name.to_owned(), locator);
    }

    pub(super) fn withdraw(&self, name: &str) {
        lock(&self.regions).remove(name);
    }

    pub(super) fn serve(&self, kind: u8, open: Open) {
        assert!(kind != FIND, "regions are found by the endpoint itself");
        lock(&self.services).insert(kind, open);
    }

    fn find(&self, name: &[u8], peer: IpAddr) -> Result<Vec<u8>, String> {
        let regions = lock(&self.regions);
        let found = std::str::from_utf8(name).ok().and_then(|name| regions.get(name));
        let told = found.and_then(|locator| locator.clone().of_peer(peer).to_text());
        told.map(String::into_bytes).ok_or_else(|| "no region of that name".to_owned())
    }

    fn open(&self, kind: u8) -> Result<Answers, String> {
        let services = lock(&self.services);
        let open =
            services.get(&kind).ok_or_else(|| format!("nothing here answers requests of kind {kind}"))?;
        Ok(open())
    }
}

/// How far a session has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// No valid hello has come.
    Silent,
    /// The hello was made with the secret, but may be a recording.
    Greeted,
    /// The peer knows the secret.
    Proven,
}

/// One session.
pub(super) struct Dialogue {
    /// Where the peer is.
    peer: IpAddr,
    /// `None` until the hello is answered.
    channel: Option<Channel>,
    /// Of the secret that the peer knows.
    by: Option<SecretId>,
    /// Set by the first message after the hello, because a hello alone may be a replay.
    proven: bool,
    /// This session's own answers, by kind.
    answers: HashMap<u8, Answers>,
}

impl Dialogue {
    /// With a peer at that address, from whom nothing has come.
    pub(super) fn new(peer: IpAddr) -> Self {
        Dialogue { peer, channel: None, by: None, proven: false, answers: HashMap::new() }
    }

    /// How far the peer has come.
    pub(super) fn stage(&self) -> Stage {
        match (&self.channel, self.proven) {
            (None, _) => Stage::Silent,
            (Some(_), false) => Stage::Greeted,
            (Some(_), true) => Stage::Proven,
        }
    }

    /// Whether the peer has shown that it knows a secret which counts no more.
    pub(super) fn is_outdated(&self, secret: &Secret) -> bool {
        self.by.is_some_and(|by| !secret.counts(by))
    }

    /// Takes whole frames from `input` until one has been answered into `output`, or more input is needed.
    ///
    /// # Errors
    /// The session must be closed once `output` is sent.
    pub(super) fn advance(
        &mut self,
        input: &mut Vec<u8>,
        output: &mut Vec<u8>,
        secret: &Secret,
        desk: &Desk,
    ) -> Result<(), Cause> {
        if !output.is_empty() {
            return Ok(());
        }
        match &mut self.channel {
            None => {
                let Some(opening) = input.first_chunk() else { return Ok(()) };
                let checked = wire::SESSION.check_opening(opening);
                if let Err(cause @ Cause::Version { .. }) = checked {
                    output.extend_from_slice(&wire::SESSION.encode_greeting(Err(cause)));
                }
                checked?;
                let Some(hello) = input.first_chunk() else { return Ok(()) };
                let answered = noise::answer(secret, wire::SESSION.prologue, wire::handshake(hello));
                let told = answered.as_ref().map(|(message, ..)| message).map_err(|cause| *cause);
                output.extend_from_slice(&wire::SESSION.encode_greeting(told));
                let (_, channel, by) = answered?;
                (self.channel, self.by) = (Some(channel), Some(by));
                input.drain(..wire::HELLO_BYTES);
            }
            Some(channel) if !self.proven => {
                let Some(proof) = input.first_chunk::<{ wire::PROOF_BYTES }>() else { return Ok(()) };
                channel.open(proof).map_err(|_| Cause::Secret)?;
                self.proven = true;
                input.drain(..wire::PROOF_BYTES);
            }
            Some(channel) => {
                let Some(length) = input.first_chunk() else { return Ok(()) };
                let end = LENGTH_BYTES + wire::sealed_bytes(*length)?;
                let Some(sealed) = input.get(LENGTH_BYTES..end) else { return Ok(()) };
                let (kind, body) = wire::open_message(sealed, channel)?;
                let (kind, answer) = match answer(&mut self.answers, desk, self.peer, kind, &body) {
                    Ok(answer) if answer.len() <= BODY_BYTES_MAX => (DONE, answer),
                    Ok(answer) => (DECLINED, format!("the answer has {} bytes", answer.len()).into_bytes()),
                    Err(reason) => (DECLINED, reason.into_bytes()),
                };
                let answer = &answer[..answer.len().min(BODY_BYTES_MAX)];
                wire::put_message(output, channel, kind, answer);
                input.drain(..end);
            }
        }
        Ok(())
    }
}

fn answer(
    answers: &mut HashMap<u8, Answers>,
    desk: &Desk,
    peer: IpAddr,
    kind: u8,
    body: &[u8],
) -> Result<Vec<u8>, String> {
    if kind == FIND {
        return desk.find(body, peer);
    }
    let answers = match answers.entry(kind) {
        Entry::Occupied(open) => open.into_mut(),
        Entry::Vacant(none) => none.insert(desk.open(kind)?),
    };
    answers(body)
}

/// Locks despite poisoning: the tables are consistent even if a holder panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Has a session take these bytes. The first says how: as they come, or each length-prefixed part as the body of a
/// message from a peer that knows the secret.
#[cfg(fuzzing)]
pub fn fuzz_endpoint(bytes: &[u8]) {
    let Some((is_proven, mut bytes)) = bytes.split_first() else { return };
    let secret = Secret::new(b"sixteen bytes it").expect("a valid secret");
    let (desk, mut dialogue) = (Desk::default(), Dialogue::new(std::net::Ipv4Addr::LOCALHOST.into()));
    desk.publish("r", Locator::from_text("tcp 127.0.0.1:1 00").expect("it is one"));
    desk.serve(1, Box::new(|| Box::new(|body| Ok(body.to_vec()))));
    let (mut input, mut output) = (Vec::new(), Vec::new());
    if is_proven % 2 == 0 {
        for part in bytes.chunks(61) {
            input.extend_from_slice(part);
            output.clear();
            if dialogue.advance(&mut input, &mut output, &secret, &desk).is_err() {
                return;
            }
        }
        return;
    }
    let (handshake, message) = noise::Handshake::begin(&secret.asking(), wire::SESSION.prologue);
    input.extend_from_slice(&wire::SESSION.encode_hello(&message));
    dialogue.advance(&mut input, &mut output, &secret, &desk).expect("a valid hello");
    let greeting = output.first_chunk().expect("a greeting");
    let mut channel = handshake.finish(wire::handshake(greeting)).expect("a valid greeting");
    input.extend_from_slice(&channel.seal(&[]));
    while let Some((length, rest)) = bytes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(BODY_BYTES_MAX + 1);
        let (body, rest) = rest.split_at(rest.len().min(length));
        bytes = rest;
        let sealed = channel.seal(body);
        input.extend_from_slice(&(sealed.len() as u16).to_le_bytes());
        input.extend_from_slice(&sealed);
        output.clear();
        if dialogue.advance(&mut input, &mut output, &secret, &desk).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::control::noise::Handshake;
    use crate::control::wire::{HELLO_BYTES, OPENING_BYTES, PROOF_BYTES};

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn secret() -> Secret {
        Secret::new(b"sixteen bytes it").unwrap()
    }

    /// The asking side, and the session at `desk` that answers it.
    struct Pair<'a> {
        desk: &'a Desk,
        dialogue: Dialogue,
        channel: Channel,
    }

    impl<'a> Pair<'a> {
        fn open(desk: &'a Desk) -> Self {
            let mut dialogue = Dialogue::new(PEER);
            let (handshake, hello) = hello();
            let greeting = feed(&mut dialogue, desk, &hello).unwrap();
            assert_eq!(wire::SESSION.check_opening(greeting.first_chunk().unwrap()), Ok(()));
            let greeted = handshake.finish(wire::handshake(greeting.first_chunk().unwrap()));
            let mut channel = greeted.unwrap();
            assert_eq!(dialogue.stage(), Stage::Greeted);
            assert_eq!(feed(&mut dialogue, desk, &channel.seal(&[])).unwrap(), b"");
            assert_eq!(dialogue.stage(), Stage::Proven);
            Pair { desk, dialogue, channel }
        }

        fn request(&mut self, kind: u8, body: &[u8]) -> Vec<u8> {
            let mut request = Vec::new();
            wire::put_message(&mut request, &mut self.channel, kind, body);
            request
        }

        fn ask(&mut self, kind: u8, body: &[u8]) -> (u8, Vec<u8>) {
            let request = self.request(kind, body);
            let answer = feed(&mut self.dialogue, self.desk, &request).unwrap();
            wire::open_message(&answer[LENGTH_BYTES..], &mut self.channel).unwrap()
        }
    }

    fn hello() -> (Handshake, [u8; HELLO_BYTES]) {
        let (handshake, message) = Handshake::begin(&secret().asking(), wire::SESSION.prologue);
        (handshake, wire::SESSION.encode_hello(&message))
    }

    fn feed(dialogue: &mut Dialogue, desk: &Desk, bytes: &[u8]) -> Result<Vec<u8>, Cause> {
        let (mut input, mut output) = (bytes.to_vec(), Vec::new());
        dialogue.advance(&mut input, &mut output, &secret(), desk)?;
        assert!(input.is_empty());
        Ok(output)
    }

    #[test]
    fn it_finds_and_answers() {
        let desk = Desk::default();
        let locator = Locator::from_text("tcp 127.0.0.1:1 07").unwrap();
        desk.publish("n1.load", locator.clone());
        desk.serve(7, Box::new(|| Box::new(|body| Ok([body, b"!"].concat()))));
        desk.serve(8, Box::new(|| Box::new(|_| Err("not today".to_owned()))));
        desk.serve(9, Box::new(|| Box::new(|_| Ok(vec![0; BODY_BYTES_MAX + 1]))));
        let mut pair = Pair::open(&desk);
        let told = locator.clone().of_peer(PEER).to_text().unwrap().into_bytes();
        assert_eq!(pair.ask(FIND, b"n1.load"), (DONE, told.clone()));
        assert_ne!(locator.of_peer("127.0.0.2".parse().unwrap()).to_text().unwrap().into_bytes(), told);
        assert_eq!(pair.ask(FIND, b"n2.load").0, DECLINED);
        assert_eq!(pair.ask(FIND, b"\xff").0, DECLINED);
        assert_eq!(pair.ask(7, b"so"), (DONE, b"so!".to_vec()));
        assert_eq!(pair.ask(8, b""), (DECLINED, b"not today".to_vec()));
        assert_eq!(pair.ask(9, b"").0, DECLINED);
        assert_eq!(pair.ask(200, b"").0, DECLINED);
    }

    #[test]
    fn what_answers_lives_as_long_as_its_session() {
        struct Held(Arc<AtomicUsize>);
        impl Drop for Held {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let (desk, alive) = (Desk::default(), Arc::new(AtomicUsize::new(0)));
        let counting = Arc::clone(&alive);
        desk.serve(
            1,
            Box::new(move || {
                counting.fetch_add(1, Ordering::Relaxed);
                let (held, mut asked) = (Held(Arc::clone(&counting)), 0u8);
                Box::new(move |_| {
                    asked += held.0.load(Ordering::Relaxed).min(1) as u8;
                    Ok(vec![asked])
                })
            }),
        );
        let mut pairs = [Pair::open(&desk), Pair::open(&desk)];
        assert_eq!(alive.load(Ordering::Relaxed), 0, "made when first asked");
        assert_eq!(pairs[0].ask(1, b"").1, [1]);
        assert_eq!(pairs[0].ask(1, b"").1, [2], "the same one");
        assert_eq!(pairs[1].ask(1, b"").1, [1], "each session its own");
        assert_eq!(alive.load(Ordering::Relaxed), 2);
        drop(pairs);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_is_repeated_sent_back_or_altered_ends_the_session() {
        let desk = Desk::default();
        let mut pair = Pair::open(&desk);
        let request = pair.request(FIND, b"x");
        feed(&mut pair.dialogue, &desk, &request).unwrap();
        assert_eq!(feed(&mut pair.dialogue, &desk, &request), Err(Cause::Replay));

        let mut pair = Pair::open(&desk);
        let request = pair.request(FIND, b"x");
        let answer = feed(&mut pair.dialogue, &desk, &request).unwrap();
        assert_eq!(feed(&mut pair.dialogue, &desk, &answer), Err(Cause::Replay));

        let mut pair = Pair::open(&desk);
        let mut request = pair.request(FIND, b"x");
        request[4] = 1;
        assert_eq!(feed(&mut pair.dialogue, &desk, &request), Err(Cause::Replay));

        let mut pair = Pair::open(&desk);
        let mut request = pair.request(FIND, b"x");
        request[1] = 0xff;
        assert_eq!(feed(&mut pair.dialogue, &desk, &request), Err(Cause::Malformed), "too long");
    }

    #[test]
    fn a_recorded_proof_opens_no_second_session() {
        let desk = Desk::default();
        let (handshake, hello) = hello();
        let mut first = Dialogue::new(PEER);
        let greeting = feed(&mut first, &desk, &hello).unwrap();
        let greeting = greeting.first_chunk().unwrap();
        let proof = handshake.finish(wire::handshake(greeting)).unwrap().seal(&[]);
        assert!(feed(&mut first, &desk, &proof).is_ok() && first.stage() == Stage::Proven);

        let mut second = Dialogue::new(PEER);
        assert_ne!(feed(&mut second, &desk, &hello).unwrap(), greeting, "a session of its own");
        assert_eq!(feed(&mut second, &desk, &proof), Err(Cause::Secret));
        assert_eq!(second.stage(), Stage::Greeted);
    }

    #[test]
    fn version_1_is_told_which_version_answers() {
        let desk = Desk::default();
        let (_, mut hello) = hello();
        hello[8] = 1;
        let (mut input, mut output) = (hello[..OPENING_BYTES].to_vec(), Vec::new());
        let advanced = Dialogue::new(PEER).advance(&mut input, &mut output, &secret(), &desk);
        assert!(matches!(advanced, Err(Cause::Version { found: 1, .. })), "{advanced:?}");
        assert!(output.len() >= OPENING_BYTES && output[..8] == hello[..8]);
        assert_eq!(output[8..12], [3, 0, 0, 0]);
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..300), greeted: bool, opened: bool) {
            let desk = Desk::default();
            let mut dialogue = if opened { Pair::open(&desk).dialogue } else { Dialogue::new(PEER) };
            if greeted && !opened {
                feed(&mut dialogue, &desk, &hello().1).unwrap();
            }
            let (mut input, mut output) = (bytes.clone(), Vec::new());
            let advanced = dialogue.advance(&mut input, &mut output, &secret(), &desk);
            let needed = if opened { LENGTH_BYTES } else if greeted { PROOF_BYTES } else { OPENING_BYTES };
            if bytes.len() >= needed && !opened {
                prop_assert!(advanced.is_err());
            }
            if advanced.is_ok() {
                prop_assert!(output.is_empty() && input == bytes);
            }
        }
    }
}
