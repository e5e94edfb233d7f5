//! Slots: the places by which words and records name sites, nodes and movers.

use std::ops::Index;

/// What has which slot. A slot may be vacant: who had it has left the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slots<T>(Vec<Option<T>>);

impl<T> Slots<T> {
    /// How many slots are or were taken: each is below this.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no slot is or was taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What has the slot, if anything has.
    pub fn get(&self, slot: usize) -> Option<&T> {
        self.0.get(slot)?.as_ref()
    }

    /// Each slot that is taken, in order, and what has it.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = (usize, &T)> + Clone {
        self.0.iter().enumerate().filter_map(|(slot, value)| Some((slot, value.as_ref()?)))
    }

    /// What has a slot, in the order of slots.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> + Clone {
        self.0.iter().flatten()
    }

    /// Each slot, vacant or not.
    pub fn all(&self) -> impl ExactSizeIterator<Item = Option<&T>> + Clone {
        self.0.iter().map(Option::as_ref)
    }

    /// Of each slot that is taken, what `of` says of it.
    pub fn map<U>(&self, of: impl FnMut(&T) -> U) -> Slots<U> {
        let mut of = of;
        Slots(self.0.iter().map(|value| value.as_ref().map(&mut of)).collect())
    }

    /// As [`map`](Self::map), with the slots.
    pub fn map_slots<U>(&self, of: impl FnMut(usize, &T) -> U) -> Slots<U> {
        let mut of = of;
        let slots = self.0.iter().enumerate();
        Slots(slots.map(|(slot, value)| value.as_ref().map(|value| of(slot, value))).collect())
    }

    /// Of each slot what has it, or else the default.
    pub fn to_vec(&self) -> Vec<T>
    where
        T: Clone + Default,
    {
        self.0.iter().map(|value| value.clone().unwrap_or_default()).collect()
    }

    /// The slot of the first value that `is` it.
    pub fn position(&self, is: impl Fn(&T) -> bool) -> Option<usize> {
        self.entries().find(|(_, value)| is(value)).map(|(slot, _)| slot)
    }
}

impl<T> Index<usize> for Slots<T> {
    type Output = T;

    /// # Panics
    /// If the slot is vacant.
    fn index(&self, slot: usize) -> &T {
        self.get(slot).expect("a slot that is taken")
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Slots(Vec::new())
    }
}

impl<T> FromIterator<T> for Slots<T> {
    /// Without a vacant slot.
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Slots(values.into_iter().map(Some).collect())
    }
}

impl<T> FromIterator<Option<T>> for Slots<T> {
    fn from_iter<I: IntoIterator<Item = Option<T>>>(slots: I) -> Self {
        Slots(slots.into_iter().collect())
    }
}
