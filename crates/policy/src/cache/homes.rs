//! Which cache of a cluster holds an object.
use sidelong_layout::{Slots, fnv1a, mix64};

/// The caches of a cluster, as rendezvous hashing sees them (Thaler and Ravishankar, "Using name-based mappings to increase
/// hit rates", IEEE/ACM Transactions on Networking 6, 1998): an object's home is the cache with the highest score for it.
/// So all caches agree without a word, and one more cache takes its share from all others alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Homes {
    /// The slot of each cache, and a hash of its name.
    caches: Vec<(usize, u64)>,
}

impl Homes {
    /// Of caches with these names, numbered from 0 on.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Homes::in_slots(names.into_iter().enumerate())
    }

    /// Of caches with these slots and names.
    pub fn in_slots<'a>(caches: impl IntoIterator<Item = (usize, &'a str)>) -> Self {
        Homes { caches: caches.into_iter().map(|(slot, name)| (slot, fnv1a(name.as_bytes()))).collect() }
    }

    /// Number of caches.
    pub fn len(&self) -> usize {
        self.caches.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.caches.is_empty()
    }

    /// The slots of the caches, in order.
    pub fn slots(&self) -> impl Iterator<Item = usize> {
        self.caches.iter().map(|(slot, _)| *slot)
    }

    /// The slot of the cache that holds the object whose key has this hash.
    ///
    /// # Panics
    /// If there are none.
    #[inline]
    pub fn of(&self, hash: u64) -> usize {
        self.among(hash, |_| true).expect("a cluster has caches")
    }

    /// The slot of the cache that holds the object, if only those caches count of which `may` is true. `None` if it is of none.
    #[inline]
    pub fn among(&self, hash: u64, may: impl Fn(usize) -> bool) -> Option<usize> {
        let counting = self.caches.iter().filter(|(slot, _)| may(*slot));
        counting
            .map(|(slot, name)| (*slot, mix64(hash ^ name)))
            .max_by_key(|(_, score)| *score)
            .map(|found| found.0)
    }
}

/// The homes of keys in a cluster whose caches come and go while they serve.
///
/// All caches go by the old homes, then by both, then by the new ones. Whoever changes them waits in between until all go by both, so that
/// none goes by the new homes while another goes by the old ones alone. Then no cache answers with a value that was replaced or removed, as
/// long as each keeps to this:
/// - It reads an item at its new home.
/// - It has a command that changes an item carried out by the old home. If that keeps no such item, by the new one then.
/// - It keeps only items whose home it is by both. Such a command for another item is carried out as if there were none, and leaves none.
///
/// So a key that changes homes is a miss, until it is stored at the new one. A command is kept by one home at most: by the old one while
/// that goes by the old homes, or by the new one once that goes by the new ones. If it reaches the new one late, it is still awaited.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placement {
    /// While they differ from the new ones.
    old: Option<Homes>,
    new: Homes,
}

/// Which caches carry out a command that changes an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// Its home.
    At(usize),
    /// Its old and its new home.
    AtBoth(usize, usize),
}

impl Placement {
    /// Homes that do not change.
    pub fn settled(homes: Homes) -> Self {
        Placement { old: None, new: homes }
    }

    /// The homes of keys among these caches, of which some `had` a share of the keys before, and some `have` one from now on. If nobody
    /// would have one, all have.
    pub fn among(caches: &Slots<String>, had: impl Fn(&str) -> bool, have: impl Fn(&str) -> bool) -> Self {
        let homes = |may: &dyn Fn(&str) -> bool| {
            let all = caches.entries().map(|(slot, name)| (slot, name.as_str()));
            let homes = Homes::in_slots(all.clone().filter(|(_, name)| may(name)));
            if homes.is_empty() { Homes::in_slots(all) } else { homes }
        };
        let (old, new) = (homes(&had), homes(&have));
        Placement { old: (old != new).then_some(old), new }
    }

    /// Whether homes change.
    pub fn is_changing(&self) -> bool {
        self.old.is_some()
    }

    /// Whether it ends a change: who has gone by `before` keeps at least the same items.
    pub fn ends(&self, before: &Placement) -> bool {
        let is_one = before.old.as_ref() == Some(&self.new) || before.new == self.new;
        self.old.is_none() && before.old.is_some() && is_one
    }

    /// The homes that stay, or those to come.
    pub fn homes(&self) -> &Homes {
        &self.new
    }

    /// The slots of all caches that may keep an item.
    pub fn slots(&self) -> impl Iterator<Item = usize> {
        let leaves = |slot: &usize| self.new.slots().all(|other| other != *slot);
        self.new.slots().chain(self.old.iter().flat_map(Homes::slots).filter(leaves))
    }

    /// The cache that is read for the item of a key with this hash.
    #[inline]
    pub fn read_at(&self, hash: u64) -> usize {
        self.new.of(hash)
    }

    /// The caches that carry out a command that changes the item.
    #[inline]
    pub fn changed_at(&self, hash: u64) -> Changed {
        let new = self.new.of(hash);
        match self.old.as_ref().map(|old| old.of(hash)) {
            Some(old) if old != new => Changed::AtBoth(old, new),
            _ => Changed::At(new),
        }
    }

    /// Whether the cache keeps an item whose key has this hash.
    #[inline]
    pub fn keeps(&self, cache: usize, hash: u64) -> bool {
        self.changed_at(hash) == Changed::At(cache)
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
        let all = Homes::new(["c1", "c2", "c3"]);
        let two = Homes::in_slots([(0, "c1"), (2, "c3")]);
        for hash in hashes() {
            let found = all.among(hash, |number| number != 1);
            assert_eq!(found, Some(two.of(hash)));
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

    #[test]
    fn an_item_is_kept_by_the_cache_that_is_its_home_before_and_after() {
        let names: Slots<String> = ["c1", "c2", "c3", "c4"].map(str::to_owned).into_iter().collect();
        let but = |names: &'static [&str]| move |name: &str| !names.contains(&name);
        let before = Placement::among(&names, but(&["c4"]), but(&["c4"]));
        let both = Placement::among(&names, but(&["c4"]), but(&[]));
        let after = Placement::among(&names, but(&[]), but(&[]));
        assert!(after.ends(&both) && before.ends(&both));
        assert!(!after.ends(&before) && !both.ends(&before) && !after.ends(&after));
        assert!(both.is_changing() && !before.is_changing() && !after.is_changing());
        assert_eq!(before, Placement::settled(Homes::new(["c1", "c2", "c3"])));
        assert_eq!(Placement::among(&names, |_| false, |_| false), after, "somebody has to keep items");
        for hash in hashes() {
            let (old, new) = (before.read_at(hash), after.read_at(hash));
            assert_eq!(both.read_at(hash), new);
            let keepers: Vec<_> = (0..4).filter(|cache| both.keeps(*cache, hash)).collect();
            if old == new {
                assert_eq!((both.changed_at(hash), keepers), (Changed::At(new), vec![new]));
            } else {
                assert_eq!((both.changed_at(hash), keepers), (Changed::AtBoth(old, new), vec![]));
            }
        }
        let leaves = Placement::among(&names, but(&[]), but(&["c2"]));
        assert_eq!(leaves.slots().collect::<Vec<_>>(), [0, 2, 3, 1]);
    }
}
