//! An entry of etcd.

use crate::error::{Error, Result};
use crate::wire;

/// An entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// What it holds.
    pub value: Vec<u8>,
    /// The revision of its last change.
    pub revision: u64,
}

impl TryFrom<wire::KeyValue> for Entry {
    type Error = Error;

    fn try_from(found: wire::KeyValue) -> Result<Self> {
        let key = String::from_utf8(found.key.0).map_err(|_| Error::Key)?;
        Ok(Entry { key, value: found.value.0, revision: found.mod_revision.0 })
    }
}
