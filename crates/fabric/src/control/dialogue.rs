//! The endpoint's half of one session: bytes in, answers out. No sockets and no time in here.
//!
//! A request is answered before the next is looked at, and only while there is nothing left to send, so what a session
//! costs is bounded by one message each way.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard};

use crate::control::cause::Cause;
use crate::control::secret::{Nonce, Nonces, Role, Seal, Secret};
use crate::control::wire::{self, BODY_BYTES_MAX, DECLINED, DONE, FIND};

/// What answers one session's requests of one kind, with bytes or with the reason why not, for people. It lives as long as
/// the session: whatever it holds for its peer goes with it.
pub type Answers = Box<dyn FnMut(&[u8]) -> Result<Vec<u8>, String> + Send>;

/// Makes them for a session.
type Open = Box<dyn Fn() -> Answers + Send + Sync>;

/// What all sessions of an endpoint are answered from.
#[derive(Default)]
pub(super) struct Desk {
    /// How to reach each region, by its name.
    regions: Mutex<HashMap<String, String>>,
    services: Mutex<HashMap<u8, Open>>,
}

impl Desk {
    pub(super) fn publish(&self, name: &str, locator: String) {
        lock(&self.regions).insert(name.to_owned(), locator);
    }

    pub(super) fn serve(&self, kind: u8, open: Open) {
        assert!(kind != FIND, "regions are found by the endpoint itself");
        lock(&self.services).insert(kind, open);
    }

    fn find(&self, name: &[u8]) -> Result<Vec<u8>, String> {
        let regions = lock(&self.regions);
        let found = std::str::from_utf8(name).ok().and_then(|name| regions.get(name));
        found.map(|locator| locator.clone().into_bytes()).ok_or_else(|| "no region of that name".to_owned())
    }

    fn open(&self, kind: u8) -> Result<Answers, String> {
        let services = lock(&self.services);
        let open =
            services.get(&kind).ok_or_else(|| format!("nothing here answers requests of kind {kind}"))?;
        Ok(open())
    }
}

/// One session.
pub(super) struct Dialogue {
    state: State,
    /// Of this session alone, by kind.
    answers: HashMap<u8, Answers>,
}

enum State {
    /// With the nonce that the hello will be answered with.
    Silent(Nonce),
    Challenged(Nonces),
    Open(Box<Seals>),
}

struct Seals {
    incoming: Seal,
    outgoing: Seal,
}

impl Dialogue {
    /// `nonce` must be of no other session.
    pub(super) fn new(nonce: Nonce) -> Self {
        Dialogue { state: State::Silent(nonce), answers: HashMap::new() }
    }

    /// Whether the peer has yet to prove that it knows the secret.
    pub(super) fn is_unproven(&self) -> bool {
        !matches!(self.state, State::Open(_))
    }

    /// Takes whole frames off `input` until one is answered into `output`, or more input is needed.
    ///
    /// # Errors
    /// The session is to be closed, after what is in `output`.
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
        match &mut self.state {
            State::Silent(answering) => {
                let Some(frame) = input.first_chunk() else { return Ok(()) };
                let asking = wire::decode_hello(frame);
                output.extend_from_slice(&match asking {
                    Ok(_) => wire::encode_challenge(Ok(answering)),
                    Err(cause @ Cause::Version { .. }) => wire::encode_challenge(Err(cause)),
                    Err(cause) => return Err(cause),
                });
                self.state = State::Challenged(Nonces { asking: asking?, answering: *answering });
                input.drain(..wire::HELLO_BYTES);
            }
            State::Challenged(nonces) => {
                let Some(proof) = input.first_chunk() else { return Ok(()) };
                if !secret.is_proof(Role::Asking, nonces, proof) {
                    output.extend_from_slice(&wire::encode_verdict(Err(Cause::Secret)));
                    return Err(Cause::Secret);
                }
                output.extend_from_slice(&wire::encode_verdict(Ok(&secret.proof(Role::Answering, nonces))));
                let (incoming, outgoing) =
                    (secret.seal(Role::Asking, nonces), secret.seal(Role::Answering, nonces));
                self.state = State::Open(Box::new(Seals { incoming, outgoing }));
                input.drain(..wire::MAC_BYTES);
            }
            State::Open(seals) => {
                let Some(header) = input.first_chunk() else { return Ok(()) };
                let len = wire::message_bytes(header)?;
                let Some(message) = input.get(..len) else { return Ok(()) };
                let (kind, body) = wire::open_message(message, &mut seals.incoming)?;
                let (kind, answer) = match answer(&mut self.answers, desk, kind, body) {
                    Ok(answer) if answer.len() <= BODY_BYTES_MAX => (DONE, answer),
                    Ok(answer) => (DECLINED, format!("the answer has {} bytes", answer.len()).into_bytes()),
                    Err(reason) => (DECLINED, reason.into_bytes()),
                };
                let answer = &answer[..answer.len().min(BODY_BYTES_MAX)];
                wire::put_message(output, &mut seals.outgoing, kind, answer);
                input.drain(..len);
            }
        }
        Ok(())
    }
}

fn answer(answers: &mut HashMap<u8, Answers>, desk: &Desk, kind: u8, body: &[u8]) -> Result<Vec<u8>, String> {
    if kind == FIND {
        return desk.find(body);
    }
    let answers = match answers.entry(kind) {
        Entry::Occupied(open) => open.into_mut(),
        Entry::Vacant(none) => none.insert(desk.open(kind)?),
    };
    answers(body)
}

/// The tables are whole whatever panicked while it held them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::prelude::*;

    use super::*;
    use crate::control::wire::{HELLO_BYTES, MAC_BYTES, NONCE_BYTES};

    fn secret() -> Secret {
        Secret::new(b"sixteen bytes it").unwrap()
    }

    /// The asking side, and a session at `desk`.
    struct Pair<'a> {
        desk: &'a Desk,
        dialogue: Dialogue,
        seals: Seals,
    }

    impl<'a> Pair<'a> {
        fn open(desk: &'a Desk) -> Self {
            let mut dialogue = Dialogue::new([2; NONCE_BYTES]);
            let nonces = Nonces { asking: [1; NONCE_BYTES], answering: [2; NONCE_BYTES] };
            let (incoming, outgoing) =
                (secret().seal(Role::Answering, &nonces), secret().seal(Role::Asking, &nonces));
            let challenge = feed(&mut dialogue, desk, &wire::encode_hello(&nonces.asking)).unwrap();
            assert_eq!(wire::decode_challenge(challenge.first_chunk().unwrap()), Ok(nonces.answering));
            let verdict = feed(&mut dialogue, desk, &secret().proof(Role::Asking, &nonces)).unwrap();
            let proof = wire::decode_verdict(verdict.first_chunk().unwrap()).unwrap();
            assert!(secret().is_proof(Role::Answering, &nonces, &proof) && !dialogue.is_unproven());
            Pair { desk, dialogue, seals: Seals { incoming, outgoing } }
        }

        fn request(&mut self, kind: u8, body: &[u8]) -> Vec<u8> {
            let mut request = Vec::new();
            wire::put_message(&mut request, &mut self.seals.outgoing, kind, body);
            request
        }

        fn ask(&mut self, kind: u8, body: &[u8]) -> (u8, Vec<u8>) {
            let request = self.request(kind, body);
            let answer = feed(&mut self.dialogue, self.desk, &request).unwrap();
            let (kind, body) = wire::open_message(&answer, &mut self.seals.incoming).unwrap();
            (kind, body.to_vec())
        }
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
        desk.publish("n1.load", "tcp 127.0.0.1:1 00".to_owned());
        desk.serve(7, Box::new(|| Box::new(|body| Ok([body, b"!"].concat()))));
        desk.serve(8, Box::new(|| Box::new(|_| Err("not today".to_owned()))));
        desk.serve(9, Box::new(|| Box::new(|_| Ok(vec![0; BODY_BYTES_MAX + 1]))));
        let mut pair = Pair::open(&desk);
        assert_eq!(pair.ask(FIND, b"n1.load"), (DONE, b"tcp 127.0.0.1:1 00".to_vec()));
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
        request[2] = 1;
        assert_eq!(feed(&mut pair.dialogue, &desk, &request), Err(Cause::Malformed), "too long");
    }

    #[test]
    fn a_recorded_proof_opens_no_second_session() {
        let desk = Desk::default();
        let nonces = Nonces { asking: [1; NONCE_BYTES], answering: [2; NONCE_BYTES] };
        let (hello, proof) = (wire::encode_hello(&nonces.asking), secret().proof(Role::Asking, &nonces));
        for (nonce, opens) in [([2; NONCE_BYTES], true), ([3; NONCE_BYTES], false)] {
            let mut dialogue = Dialogue::new(nonce);
            feed(&mut dialogue, &desk, &hello).unwrap();
            assert_eq!(feed(&mut dialogue, &desk, &proof).is_ok(), opens);
            assert_eq!(dialogue.is_unproven(), !opens);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic_or_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..300), hello: bool, opened: bool) {
            let desk = Desk::default();
            let mut dialogue = if opened { Pair::open(&desk).dialogue } else { Dialogue::new([2; NONCE_BYTES]) };
            if hello && !opened {
                feed(&mut dialogue, &desk, &wire::encode_hello(&[1; NONCE_BYTES])).unwrap();
            }
            let (mut input, mut output) = (bytes.clone(), Vec::new());
            let advanced = dialogue.advance(&mut input, &mut output, &secret(), &desk);
            let needed = if opened { wire::HEADER_BYTES } else if hello { MAC_BYTES } else { HELLO_BYTES };
            if bytes.len() >= needed && !opened {
                prop_assert!(advanced.is_err());
            }
            if advanced.is_ok() {
                prop_assert!(output.is_empty() && input == bytes);
            }
        }
    }
}
