//! What HAProxy says, through the parsers, for fuzzing.

use crate::led::haproxy::protocol;

/// Reads `bytes` as the replies to so many commands, and those and the whole as each kind of reply. Returns the servers that were
/// read in the whole.
pub fn haproxy(bytes: &[u8], commands: usize) -> usize {
    let read = |reply: &str| {
        let _ = protocol::process(reply);
        protocol::servers(reply).map_or(0, |servers| servers.len())
    };
    let replies = protocol::replies(bytes, commands).unwrap_or_default();
    replies.iter().for_each(|reply| _ = read(reply));
    read(&String::from_utf8_lossy(bytes))
}
