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

/// Items by key.
#[derive(Debug)]
pub struct Cache {
    settings: Settings,
    items: HashMap<Vec<u8>, Stored>,
    cas: u64,
    flush_at: Seconds,
}

#[derive(Debug)]
struct Stored {
    flags: u32,
    cas: u64,
    expires: Seconds,
    stored: Seconds,
    accessed: Seconds,
    was_fetched: bool,
    is_stale: bool,
    is_won: bool,
    value: Vec<u8>,
}

impl Cache {
    /// An empty cache.
    pub fn new(settings: Settings) -> Self {
        Cache { settings, items: HashMap::new(), cas: 0, flush_at: 0 }
    }

    /// What it may use.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Number of items, expired ones that nobody asked for included.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
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
        self.items.remove(key);
        if key.len() + value.len() + 48 > self.settings.item_bytes_max {
            return Err(PutError::TooLarge);
        }
        self.cas += 1;
        let cas = cas.unwrap_or(self.cas);
        let value = value.to_vec();
        let stored = Stored {
            flags,
            cas,
            expires,
            stored: now,
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

    /// From `at` on, all items stored before it are gone.
    pub fn flush(&mut self, at: Seconds) {
        self.flush_at = at;
    }

    fn expire(&mut self, key: &[u8], now: Seconds) {
        let flushed =
            |stored: &Stored| self.flush_at != 0 && self.flush_at <= now && stored.stored < self.flush_at;
        let expired = |stored: &Stored| stored.expires != 0 && stored.expires <= now;
        if self.items.get(key).is_some_and(|stored| flushed(stored) || expired(stored)) {
            self.items.remove(key);
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
