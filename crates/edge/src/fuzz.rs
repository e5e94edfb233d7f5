//! What HAProxy says, through the parsers, for fuzzing.

use crate::led::haproxy::protocol;

/// Reads `bytes` as the replies to so many commands, and each of them as each kind of reply. Returns the servers that were read.
pub fn haproxy(bytes: &[u8], commands: usize) -> usize {
    let replies = protocol::replies(bytes, commands).unwrap_or_default();
    let read = |reply: &String| {
        let _ = protocol::process(reply);
        protocol::servers(reply).map_or(0, |servers| servers.len())
    };
    replies.iter().map(read).sum()
}
