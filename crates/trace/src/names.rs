//! Names to small numbers: the URLs and hosts of a log in order of first sight.

use std::collections::HashMap;

use crate::error::Fault;

/// Distinct URLs of one log at most, and distinct clients.
pub const NAMES_MAX: usize = 1 << 24;

/// Bytes of all distinct URLs of one log together at most, and of all distinct clients.
pub const NAME_BYTES_MAX: usize = 1 << 30;

/// A bounded interner.
#[derive(Debug)]
pub(crate) struct Names {
    what: &'static str,
    ids: HashMap<Box<[u8]>, u32>,
    bytes: usize,
    names_max: usize,
    bytes_max: usize,
}

impl Names {
    /// For names of `what` (in the plural).
    pub(crate) fn new(what: &'static str) -> Self {
        Self::with_limits(what, NAMES_MAX, NAME_BYTES_MAX)
    }

    fn with_limits(what: &'static str, names_max: usize, bytes_max: usize) -> Self {
        Names { what, ids: HashMap::new(), bytes: 0, names_max, bytes_max }
    }

    /// The number of `name`: a new one if it was never seen.
    pub(crate) fn id(&mut self, name: &[u8]) -> Result<u32, Fault> {
        if let Some(&id) = self.ids.get(name) {
            return Ok(id);
        }
        if self.ids.len() >= self.names_max {
            return Err(Fault::TooMany { what: self.what, max: self.names_max as u64 });
        }
        if name.len() > self.bytes_max - self.bytes {
            return Err(Fault::TooMany { what: "bytes of distinct names", max: self.bytes_max as u64 });
        }
        let id = self.ids.len() as u32;
        self.bytes += name.len();
        self.ids.insert(name.into(), id);
        Ok(id)
    }
}

// So that `as u32` above is lossless.
const _: () = assert!(NAMES_MAX <= u32::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense_and_stable() {
        let mut names = Names::new("URLs");
        let ids = [b"/a", b"/b", b"/a", b"/c", b"/b"].map(|name| names.id(name).unwrap());
        assert_eq!(ids, [0, 1, 0, 2, 1]);
    }

    #[test]
    fn both_limits_hold_and_known_names_stay_known() {
        let mut few = Names::with_limits("URLs", 1, 100);
        few.id(b"/a").unwrap();
        assert!(matches!(few.id(b"/b"), Err(Fault::TooMany { what: "URLs", max: 1 })));
        assert_eq!(few.id(b"/a").unwrap(), 0);

        let mut short = Names::with_limits("URLs", 100, 3);
        short.id(b"/a").unwrap();
        assert!(matches!(short.id(b"/b"), Err(Fault::TooMany { max: 3, .. })));
    }
}
