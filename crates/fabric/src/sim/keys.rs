//! Where the regions of a simulated network are found.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sidelong_layout::RegionKind;

use crate::{Access, Directory, Error, Key};

/// Keys by the names of their regions. Those of a host that crashes stay, as files would.
#[derive(Debug, Default)]
pub struct Keys(Mutex<BTreeMap<String, Key>>);

impl Keys {
    /// Forgets the key of that name, if there is one.
    pub fn withdraw(&self, name: &str) {
        self.keys().remove(name);
    }

    fn keys(&self) -> MutexGuard<'_, BTreeMap<String, Key>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Directory for Keys {
    fn publish(&self, key: &Key) -> Result<(), Error> {
        self.keys().insert(key.name.clone(), key.clone());
        Ok(())
    }

    fn find(&self, name: &str, _: RegionKind, _: usize, _: Access) -> Result<Key, Error> {
        let found = self.keys().get(name).cloned();
        found.ok_or_else(|| Error::NoKey { name: name.to_owned(), place: "the simulated network".to_owned() })
    }
}
