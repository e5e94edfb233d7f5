//! Bursts: which site a request goes to, when one client tier loads several sites in turn.

use std::num::NonZero;

/// Runs of `burst` consecutive requests for each of `sites` sites in turn (Balaji et al. 2004, section 4.3.1): requests 0 to burst - 1 go to
/// site 0, the next run to site 1, and after the last site it is site 0's turn again.
///
/// In a longer run one site has all the load for longer, from which a shared data-center gains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bursts {
    burst: NonZero<u64>,
    sites: NonZero<usize>,
}

impl Bursts {
    /// Bursts of `burst` requests for each of `sites` sites.
    pub const fn new(burst: NonZero<u64>, sites: NonZero<usize>) -> Bursts {
        Bursts { burst, sites }
    }

    /// The index of the site that the `i`-th request goes to.
    pub const fn site(&self, i: u64) -> usize {
        // Below `sites`, so the cast loses nothing.
        (i / self.burst.get() % self.sites.get() as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_take_turns_in_whole_bursts() {
        let bursts = Bursts::new(NonZero::new(3).unwrap(), NonZero::new(2).unwrap());
        let sites: Vec<usize> = (0..10).map(|i| bursts.site(i)).collect();
        assert_eq!(sites, [0, 0, 0, 1, 1, 1, 0, 0, 0, 1]);
        assert_eq!(bursts.site(u64::MAX), (u64::MAX / 3 % 2) as usize);
    }
}
