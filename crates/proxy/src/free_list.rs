//! Memory for heads, which a thread keeps for the next ones. A connection has some only while there is something in it, as with
//! [buffers](crate::buffer): one that waits costs none, and the memory that is written to is the one that is warm in the cache.

use std::cell::RefCell;
use std::thread::LocalKey;

/// Bytes of one piece of memory at first: room for most heads.
const BYTES: usize = 1 << 10;
/// Bytes of the largest piece that is kept: a huge head does not keep its memory for the life of the thread.
const BYTES_MAX: usize = 4 << 10;
/// Most pieces that a thread keeps.
const FREE_MAX: usize = 256;

/// Pieces of memory that a thread keeps.
pub(crate) type FreeList<T> = RefCell<Vec<Vec<T>>>;

thread_local! {
    /// For bytes.
    pub(crate) static BYTES_FREE: FreeList<u8> = const { RefCell::new(Vec::new()) };
}

/// Gives `memory` a piece if it has none.
pub(crate) fn take<T>(free: &'static LocalKey<FreeList<T>>, memory: &mut Vec<T>) {
    if memory.capacity() == 0 {
        let piece = free.try_with(|free| free.borrow_mut().pop()).ok().flatten();
        *memory = piece.unwrap_or_else(|| Vec::with_capacity(BYTES / size_of::<T>()));
    }
}

/// Takes what `memory` has.
pub(crate) fn give<T>(free: &'static LocalKey<FreeList<T>>, memory: &mut Vec<T>) {
    let mut piece = std::mem::take(memory);
    piece.clear();
    if (1..=BYTES_MAX / size_of::<T>()).contains(&piece.capacity()) {
        // A thread that ends has no use for it.
        let _ = free.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < FREE_MAX {
                free.push(piece);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_unless_it_is_huge() {
        let mut memory = Vec::new();
        take(&BYTES_FREE, &mut memory);
        memory.extend_from_slice(b"GET / HTTP/1.1\r\n");
        let place = memory.as_ptr();
        take(&BYTES_FREE, &mut memory);
        assert_eq!(memory, b"GET / HTTP/1.1\r\n", "it has memory");
        give(&BYTES_FREE, &mut memory);
        assert_eq!(memory.capacity(), 0);
        take(&BYTES_FREE, &mut memory);
        assert_eq!((memory.as_ptr(), memory.len()), (place, 0));
        memory.resize(2 * BYTES_MAX, 0);
        give(&BYTES_FREE, &mut memory);
        take(&BYTES_FREE, &mut memory);
        assert!(memory.capacity() <= BYTES_MAX);
    }
}
