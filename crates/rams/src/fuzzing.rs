//! The entry for the fuzz target of what other nodes send.

use crate::Node;
use crate::protocol::Protocol;

/// Gives a node what others send, in parts that each begin with their length: a request is answered once, and what the node keeps
/// has a bound.
pub fn messages(protocol: u8, mut bytes: &[u8]) {
    let protocol = Protocol::ALL[usize::from(protocol) % Protocol::ALL.len()];
    let directory = tempfile::tempdir().expect("there is a directory");
    let mut node = Node::with_requests(directory.path(), protocol);
    let mut answers = 0;
    while let Some((len, rest)) = bytes.split_first_chunk() {
        let (part, rest) = rest.split_at(rest.len().min(u16::from_le_bytes(*len).into()));
        answers += node.arrived(part).len();
        bytes = rest;
    }
    assert!(answers <= 2);
}
