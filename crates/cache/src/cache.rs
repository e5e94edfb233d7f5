//! Items in bounded memory.

use std::collections::HashMap;

use sidelong_policy::cache::store::Eviction;

/// The longest key, in bytes (memcached's protocol.txt).
pub const KEY_BYTES_MAX: usize = 250;

/// Seconds since the cache began, which is second 1. 0 is no time.
pub type Seconds = u32;

/// What a cache may use.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Most bytes of memory, tables included.
    pub memory_bytes: usize,
    /// Most bytes of one item: its header, key and value.
    pub item_bytes_max: usize,
    /// Which item is evicted.
    pub eviction: Eviction,
}

/// An item that is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Item<'a> {
    /// The client's own 32 bits.
    pub flags: u32,
    /// Unique number of this value. It changes with the value, and not with a touch.
    pub cas: u64,
    /// When it expires; 0 for never.
    pub expires: Seconds,
    /// When it was last fetched, or else stored.
    pub accessed: Seconds,
    /// Whether it was fetched since it was stored.
    pub was_fetched: bool,
    /// Whether it was marked stale (meta delete with I) and not replaced since.
    pub is_stale: bool,
    /// Whether a client was told that it has won the right to replace the item.
    pub is_won: bool,
    /// Its bytes.
    pub value: &'a [u8],
}

/// Why an item was not stored. The item that was there before is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PutError {
    /// Larger than [`Settings::item_bytes_max`].
    #[error("object too large for cache")]
    TooLarge,
    /// No room could be made.
    #[error("out of memory storing object")]
    NoMemory,
}

/// What a cache has and has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Items, expired ones that nobody has asked for included.
    pub items: u64,
    /// Bytes of their slots.
    pub item_bytes: u64,
    /// Bytes of the pages in use, and of the tables.
    pub memory_bytes: u64,
    /// Items ever stored.
    pub stored: u64,
    /// Items evicted to make room.
    pub evicted: u64,
    /// Those of them that nobody had fetched.
    pub evicted_unfetched: u64,
    /// Items found expired, and those of them that nobody had fetched.
    pub expired: u64,
    /// See `expired`.
    pub expired_unfetched: u64,
}

/// Items by key.
#[derive(Debug)]
pub struct Cache {
    settings: Settings,
    items: HashMap<Vec<u8>, Stored>,
    cas: u64,
    flush_at: Seconds,
    counts: Usage,
}

#[derive(Debug)]
struct Stored {
    flags: u32,
    cas: u64,
    expires: Seconds,
    accessed: Seconds,
    was_fetched: bool,
    is_stale: bool,
    is_won: bool,
    value: Vec<u8>,
}

impl Cache {
    /// An empty cache.
    pub fn new(settings: Settings) -> Self {
        Cache { settings, items: HashMap::new(), cas: 0, flush_at: 0, counts: Usage::default() }
    }

    /// What it may use.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What it has and has done.
    pub fn usage(&self) -> Usage {
        let items = self.items.iter();
        let item_bytes = items.map(|(key, stored)| key.len() + stored.value.len() + 48).sum::<usize>() as u64;
        Usage { items: self.items.len() as u64, item_bytes, memory_bytes: item_bytes, ..self.counts }
    }

    /// The item of `key`, if there is one that has not expired. Counts as a fetch: the item that is returned says what was
    /// so before.
    pub fn get(&mut self, key: &[u8], now: Seconds) -> Option<Item<'_>> {
        self.expire(key, now);
        let stored = self.items.get_mut(key)?;
        let (accessed, was_fetched) = (stored.accessed, stored.was_fetched);
        (stored.accessed, stored.was_fetched) = (now, true);
        Some(Item { accessed, was_fetched, ..stored.item() })
    }

    /// The item of `key`, as [`Cache::get`] returns it. Does not count as a fetch.
    pub fn peek(&mut self, key: &[u8], now: Seconds) -> Option<Item<'_>> {
        self.expire(key, now);
        self.items.get(key).map(Stored::item)
    }

    /// Changes when the item of `key` expires. False if there is none.
    pub fn touch(&mut self, key: &[u8], expires: Seconds, now: Seconds) -> bool {
        self.expire(key, now);
        let Some(stored) = self.items.get_mut(key) else { return false };
        stored.expires = expires;
        true
    }

    /// Changes an item's marks. False if there is none.
    pub fn mark(&mut self, key: &[u8], is_stale: bool, is_won: bool, now: Seconds) -> bool {
        self.expire(key, now);
        let Some(stored) = self.items.get_mut(key) else { return false };
        (stored.is_stale, stored.is_won) = (is_stale, is_won);
        true
    }

    /// Gives the item of `key` the unique number `cas`, or the next one, and returns it.
    pub fn renumber(&mut self, key: &[u8], cas: Option<u64>, now: Seconds) -> Option<u64> {
        self.expire(key, now);
        let stored = self.items.get_mut(key)?;
        self.cas += 1;
        stored.cas = cas.unwrap_or(self.cas);
        Some(stored.cas)
    }

    /// Whether an item is small enough to be stored. Sizes are in bytes.
    pub fn fits(&self, key_bytes: usize, value_bytes: usize) -> bool {
        key_bytes.saturating_add(value_bytes).saturating_add(48) <= self.settings.item_bytes_max
    }

    /// Stores an item in place of what `key` had, and returns its unique number: `cas`, or the next one.
    ///
    /// # Errors
    /// If there is no room for it. What `key` had is then gone.
    ///
    /// # Panics
    /// If the key is empty or longer than [`KEY_BYTES_MAX`].
    pub fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        flags: u32,
        expires: Seconds,
        cas: Option<u64>,
        now: Seconds,
    ) -> Result<u64, PutError> {
        assert!((1..=KEY_BYTES_MAX).contains(&key.len()), "the key was checked");
        self.expire(key, now);
        self.items.remove(key);
        if !self.fits(key.len(), value.len()) {
            return Err(PutError::TooLarge);
        }
        self.cas += 1;
        self.counts.stored += 1;
        let cas = cas.unwrap_or(self.cas);
        let value = value.to_vec();
        let stored = Stored {
            flags,
            cas,
            expires,
            accessed: now,
            was_fetched: false,
            is_stale: false,
            is_won: false,
            value,
        };
        self.items.insert(key.to_vec(), stored);
        Ok(cas)
    }

    /// Removes the item of `key`. False if there is none.
    pub fn remove(&mut self, key: &[u8], now: Seconds) -> bool {
        self.expire(key, now);
        self.items.remove(key).is_some()
    }

    /// From `at` on, all items stored before it are gone: at once, if it is not later than `now`. A flush that is still to come
    /// is forgotten.
    pub fn flush(&mut self, at: Seconds, now: Seconds) {
        self.flush_if_due(now);
        self.flush_at = at;
        self.flush_if_due(now);
    }

    fn flush_if_due(&mut self, now: Seconds) {
        if self.flush_at != 0 && self.flush_at <= now {
            self.items.clear();
            self.flush_at = 0;
        }
    }

    fn expire(&mut self, key: &[u8], now: Seconds) {
        self.flush_if_due(now);
        if self.items.get(key).is_some_and(|stored| stored.expires != 0 && stored.expires <= now) {
            self.items.remove(key);
            self.counts.expired += 1;
        }
    }
}

impl Stored {
    fn item(&self) -> Item<'_> {
        Item {
            flags: self.flags,
            cas: self.cas,
            expires: self.expires,
            accessed: self.accessed,
            was_fetched: self.was_fetched,
            is_stale: self.is_stale,
            is_won: self.is_won,
            value: &self.value,
        }
    }
}
