//! What was done, by memcached's names.

use crate::cache::PutError;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What was done since the start or `stats reset`. The names are those of memcached's `stats`.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Adds those of another driver.
            pub fn add(&mut self, other: &Counters) {
                $(self.$name += other.$name;)*
            }

            /// Each with its name.
            pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Keys that were asked for.
    cmd_get,
    /// Items that were to be stored.
    cmd_set,
    /// Orders to remove all items.
    cmd_flush,
    /// Items that were to expire at another time.
    cmd_touch,
    /// Items whose state was asked for (`me`).
    cmd_meta,
    /// Of `cmd_get`, those that were there.
    get_hits,
    /// Of `cmd_get`, those that were not.
    get_misses,
    /// Items to be removed that were not there.
    delete_misses,
    /// Items that were removed.
    delete_hits,
    /// Numbers to be incremented that were not there.
    incr_misses,
    /// Numbers that were incremented.
    incr_hits,
    /// Numbers to be decremented that were not there.
    decr_misses,
    /// Numbers that were decremented.
    decr_hits,
    /// Compared unique numbers without an item.
    cas_misses,
    /// Compared unique numbers that were the item's.
    cas_hits,
    /// Compared unique numbers that were not the item's.
    cas_badval,
    /// Of `cmd_touch`, items that were there.
    touch_hits,
    /// Of `cmd_touch`, items that were not.
    touch_misses,
    /// Items that were larger than items may be.
    store_too_large,
    /// Items for which no room could be made.
    store_no_memory,
    /// Attempts to log in.
    auth_cmds,
    /// Attempts to log in that failed.
    auth_errors,
    /// Bytes of commands.
    bytes_read,
    /// Bytes of answers.
    bytes_written,
}

impl Counters {
    pub(crate) fn count_fetch(&mut self, is_touch: bool, is_hit: bool) {
        let (commands, hits, misses) = if is_touch {
            (&mut self.cmd_touch, &mut self.touch_hits, &mut self.touch_misses)
        } else {
            (&mut self.cmd_get, &mut self.get_hits, &mut self.get_misses)
        };
        *commands += 1;
        *(if is_hit { hits } else { misses }) += 1;
    }

    pub(crate) fn count_failure(&mut self, error: PutError) {
        match error {
            PutError::TooLarge => self.store_too_large += 1,
            PutError::NoMemory => self.store_no_memory += 1,
        }
    }
}
