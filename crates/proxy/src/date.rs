//! The Date field (RFC 9110, 6.6.1).

use std::cell::Cell;
use std::io::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// Bytes of a date, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
const LEN: usize = 29;
/// The last second that has four digits for its year.
const LAST_S: u64 = 253_402_300_799;

thread_local! {
    /// The second that was last asked for, since 1970, and its date.
    static LAST: Cell<(u64, [u8; LEN])> = const { Cell::new((u64::MAX, [b' '; LEN])) };
}

/// This second's date. Each thread writes it once a second.
pub(crate) fn now() -> [u8; LEN] {
    of(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()).min(LAST_S))
}

fn of(second: u64) -> [u8; LEN] {
    LAST.with(|last| {
        let (written, mut date) = last.get();
        if written != second {
            // It has just so many bytes.
            let _ = write!(&mut date[..], "{}", HttpDate::from(UNIX_EPOCH + Duration::from_secs(second)));
            last.set((second, date));
        }
        date
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_that_of_its_second() {
        for _ in 0..2 {
            assert_eq!(&of(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        }
        assert_eq!(&of(784_111_778), b"Sun, 06 Nov 1994 08:49:38 GMT");
        assert_eq!(&of(LAST_S), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
