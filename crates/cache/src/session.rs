//! One client.

use crate::command::{Host, Login};
use crate::neighbours::Language;
use crate::protocol::Step;
use crate::protocol::binary::{self, Binary};
use crate::protocol::text::Text;

/// What a client has said so far, as far as it matters for what it says next.
///
/// The bytes of a command that has not arrived in whole stay with the driver, which hands them in again with more behind them.
#[derive(Debug, Default)]
pub struct Session {
    protocol: Protocol,
    /// Bytes still to come of a value that nobody wants.
    unwanted: u64,
}

#[derive(Debug, Default)]
enum Protocol {
    /// The first byte tells.
    #[default]
    Unknown,
    Text(Text),
    Binary(Binary),
}

/// How far [`Session::feed`] came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fed {
    /// Bytes of the input that are done with. The others are to be handed in again.
    pub consumed: usize,
    /// What it takes to come further.
    pub wants: Wants,
}

/// What a session waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wants {
    /// So many bytes in all from the first that was not consumed: at most a line and the largest value. It may be called with
    /// fewer.
    Input(usize),
    /// That the client takes answers.
    Room,
    /// Nothing. The connection ends once the client has taken its answers.
    Close,
    /// The answers to the [`Errands`](crate::neighbours::Errands) that it has left with the neighbours. The client is to get those
    /// before it is called again, unless homes are asked for items.
    Answer,
}

impl Session {
    /// A client that has said nothing.
    pub fn new() -> Self {
        Session::default()
    }

    /// A client that speaks a language, and need not log in.
    pub(crate) fn speaking(language: Language) -> Self {
        let protocol = match language {
            Language::Text | Language::Key => Protocol::Text(Text::logged_in()),
            Language::Binary => Protocol::Binary(Binary::logged_in()),
        };
        Session { protocol, unwanted: 0 }
    }

    /// Carries out the commands in `input`, and appends their answers to `out` until it has
    /// [`out_bytes_max`](crate::World::out_bytes_max) bytes. It exceeds that by one item at most, or by one answer to `stats`.
    pub fn feed(&mut self, input: &[u8], host: &mut Host<'_>, out: &mut Vec<u8>) -> Fed {
        let before = out.len();
        let mut consumed = 0;
        let wants = loop {
            let rest = &input[consumed..];
            if rest.is_empty() {
                break Wants::Input(1);
            }
            if out.len() >= host.world.out_bytes_max {
                break Wants::Room;
            }
            if self.unwanted > 0 {
                let used = usize::try_from(self.unwanted).unwrap_or(usize::MAX).min(rest.len());
                self.unwanted -= used as u64;
                consumed += used;
                continue;
            }
            match self.step(rest, host, out) {
                Step::Used(used) => consumed += used,
                Step::Skip { used, unwanted } => {
                    consumed += used;
                    self.unwanted = unwanted;
                }
                Step::Needs(bytes) => break Wants::Input(bytes),
                Step::Close => break Wants::Close,
                Step::Forward { to, used, unwanted } => {
                    let language = match self.protocol {
                        Protocol::Binary(_) => Language::Binary,
                        _ => Language::Text,
                    };
                    host.send(to, language, &[&rest[..used]], out.len());
                    consumed += used;
                    self.unwanted = unwanted;
                    if host.must_wait() {
                        break Wants::Answer;
                    }
                }
                Step::Sent { used } => {
                    consumed += used;
                    if host.must_wait() {
                        break Wants::Answer;
                    }
                }
            }
        };
        host.counters.bytes_read += consumed as u64;
        host.counters.bytes_written += (out.len() - before) as u64;
        Fed { consumed, wants }
    }

    fn step(&mut self, input: &[u8], host: &mut Host<'_>, out: &mut Vec<u8>) -> Step {
        match &mut self.protocol {
            Protocol::Unknown => {
                let is_binary = match host.world.users {
                    None => input[0] == binary::REQUEST,
                    Some(users) => users.login() == Login::Sasl,
                };
                self.protocol = if is_binary {
                    Protocol::Binary(Binary::default())
                } else {
                    Protocol::Text(Text::default())
                };
                Step::Used(0)
            }
            Protocol::Text(text) => text.step(input, host, out),
            Protocol::Binary(binary) => binary.step(input, host, out),
        }
    }
}
