//! A node's own record, for the node itself: what it tells of it in its metrics.

use std::hint;

use sidelong_fabric::Region;
use sidelong_layout::{Detail, Hot, LOAD_DETAIL, LOAD_HOT, Rejected};

/// Copies of a part that are made at most; all but the last may have been torn by the writer.
const COPIES_MAX: u32 = 3;

/// Both parts of a record, each where it could be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OwnRecord {
    /// The hot line.
    pub hot: Option<Hot>,
    /// The detail part.
    pub detail: Option<Detail>,
}

impl OwnRecord {
    /// As it lies in the node's own load region, however old it is.
    pub fn of_region(region: &Region) -> Self {
        OwnRecord {
            hot: whole(|| Hot::validated(&words(region, LOAD_HOT))),
            detail: whole(|| Detail::validated(&words(region, LOAD_DETAIL))),
        }
    }
}

fn words<const W: usize>(region: &Region, offset: usize) -> [u64; W] {
    std::array::from_fn(|index| region.load(offset + index * 8))
}

/// The first copy that is of one moment.
fn whole<R>(copy: impl Fn() -> Result<R, Rejected>) -> Option<R> {
    for _ in 0..COPIES_MAX {
        match copy() {
            Ok(record) => return Some(record),
            Err(Rejected::Never) => return None,
            Err(Rejected::Writing | Rejected::Torn) => hint::spin_loop(),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_copy_is_made_again_and_not_for_ever() {
        let tries = std::cell::Cell::new(0);
        let torn_before = |good| {
            tries.set(0);
            whole(|| {
                tries.set(tries.get() + 1);
                if tries.get() < good { Err(Rejected::Torn) } else { Ok(tries.get()) }
            })
        };
        assert_eq!(torn_before(3), Some(3));
        assert_eq!((torn_before(4), tries.get()), (None, 3));
        assert_eq!(whole::<Hot>(|| Err(Rejected::Never)), None);
    }
}
