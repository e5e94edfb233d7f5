//! What caches say to each other: commands for a home to carry out, and the answers, in the order of the commands.
//!
//! Each goes in a frame: its bytes' number in 4 bytes, little-endian; in one its [`Language`], or in an answer 1 if the cache does not
//! keep such an item, else 0; three that are 0; and the bytes, as a client writes them or reads them. They go over Unix sockets in the run directory, to which nobody has
//! access but the user of the cluster.

use crate::command::{Host, World};
use crate::neighbours::Language;
use crate::session::{Fed, Session, Wants};

/// Bytes before those of a command or an answer.
const HEADER_BYTES: usize = 8;
/// Bytes that a command has beside an item, at most.
const LINES_BYTES_MAX: usize = 8 << 10;
/// The end of an answer to a line of keys.
const END: &[u8] = b"END\r\n";

/// Appends a frame with a command.
pub(crate) fn push(out: &mut Vec<u8>, language: Language, command: &[u8]) {
    push_header(out, command.len(), language as u8);
    out.extend_from_slice(command);
}

fn push_header(out: &mut Vec<u8>, bytes: usize, language: u8) {
    out.extend_from_slice(&(bytes as u32).to_le_bytes());
    out.extend_from_slice(&[language, 0, 0, 0]);
}

/// A frame's language byte and the place where its bytes end, if its header is there.
fn parse(input: &[u8]) -> Option<(u8, usize)> {
    let (header, _) = input.split_first_chunk::<HEADER_BYTES>()?;
    let [b0, b1, b2, b3, language, ..] = *header;
    Some((language, HEADER_BYTES + u32::from_le_bytes([b0, b1, b2, b3]) as usize))
}

/// Carries out the commands in `input`, as [`Session::feed`] does those of a client.
pub(crate) fn feed(input: &[u8], host: &mut Host<'_>, out: &mut Vec<u8>) -> Fed {
    let mut consumed = 0;
    loop {
        let rest = &input[consumed..];
        let wants = match parse(rest) {
            None => Wants::Input(HEADER_BYTES),
            Some((_, end)) if end > host.cache.settings().item_bytes_max + LINES_BYTES_MAX => Wants::Close,
            Some((_, end)) if end > rest.len() => Wants::Input(end),
            Some(_) if out.len() >= host.world.out_bytes_max => Wants::Room,
            Some((language, end)) => match Language::of(language) {
                None => Wants::Close,
                Some(language) => {
                    carry_out(language, &rest[HEADER_BYTES..end], host, out);
                    consumed += end;
                    continue;
                }
            },
        };
        return Fed { consumed, wants };
    }
}

fn carry_out(language: Language, command: &[u8], host: &mut Host<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    push_header(out, 0, 0);
    host.cache.take_astray();
    // Until there is an answer, and no further: a frame is for one command.
    let world = World { out_bytes_max: out.len() + 1, ..*host.world };
    let mut host = Host { cache: host.cache, counters: host.counters, world: &world, neighbours: None };
    Session::speaking(language).feed(command, &mut host, out);
    if language == Language::Key && out[start + HEADER_BYTES..].ends_with(END) {
        out.truncate(out.len() - END.len());
    }
    let bytes = (out.len() - start - HEADER_BYTES) as u32;
    out[start..start + 4].copy_from_slice(&bytes.to_le_bytes());
    out[start + 4] = host.cache.take_astray().into();
}

/// Another cache's answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether the cache keeps such an item.
    pub(crate) is_of_home: bool,
}

/// The first answer in `input`, and how many bytes it takes there.
pub(crate) fn answer(input: &[u8]) -> Option<(Answer<'_>, usize)> {
    let (astray, end) = parse(input)?;
    Some((Answer { bytes: input.get(HEADER_BYTES..end)?, is_of_home: astray == 0 }, end))
}
