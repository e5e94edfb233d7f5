//! Which cache of a cluster holds an object.
use sidelong_layout::{fnv1a, mix64};

/// The caches of a cluster, as rendezvous hashing sees them (Thaler and Ravishankar, "Using name-based mappings to increase
/// hit rates", IEEE/ACM Transactions on Networking 6, 1998): an object's home is the cache with the highest score for it.
/// So all caches agree without a word, and one more cache takes its share from all others alike.
#[derive(Clone, Debug)]
pub struct Homes {
    /// A hash of each cache's name.
    names: Vec<u64>,
}

impl Homes {
    /// Of caches with these names, in the order of their numbers.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Homes { names: names.into_iter().map(|name| fnv1a(name.as_bytes())).collect() }
    }

    /// Number of caches.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The number of the cache that holds the object whose key has this hash.
    ///
    /// # Panics
    /// If there are none.
    #[inline]
    pub fn of(&self, hash: u64) -> usize {
        self.among(hash, |_| true).expect("a cluster has caches")
    }

    /// The number of the cache that holds the object, if only those caches count of which `may` is true. `None` if it is of none.
    #[inline]
    pub fn among(&self, hash: u64, may: impl Fn(usize) -> bool) -> Option<usize> {
        let scores = self.names.iter().map(|name| mix64(hash ^ name)).enumerate();
        Some(scores.filter(|(number, _)| may(*number)).max_by_key(|(_, score)| *score)?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hashes as good as random ones.
    fn hashes() -> impl Iterator<Item = u64> {
        (0..30_000).map(mix64)
    }

    #[test]
    fn each_cache_has_its_share() {
        let homes = Homes::new(["c1", "c2", "c3"]);
        let mut counts = [0; 3];
        hashes().for_each(|hash| counts[homes.of(hash)] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
    }

    #[test]
    fn an_object_of_a_cache_that_does_not_count_goes_to_the_next_best() {
        let (all, two) = (Homes::new(["c1", "c2", "c3"]), Homes::new(["c1", "c3"]));
        for hash in hashes() {
            let found = all.among(hash, |number| number != 1);
            assert_eq!(found, Some([0, 2][two.of(hash)]));
        }
        assert_eq!(all.among(0, |_| false), None);
    }

    #[test]
    fn one_more_cache_takes_objects_to_itself_alone() {
        let (three, four) = (Homes::new(["c1", "c2", "c3"]), Homes::new(["c1", "c2", "c3", "c4"]));
        let moved = hashes().filter(|hash| three.of(*hash) != four.of(*hash));
        let taken = moved.inspect(|hash| assert_eq!(four.of(*hash), 3)).count();
        assert!((7_000..8_000).contains(&taken), "{taken} of 30,000");
    }
}
