//! Ports of this machine for clusters that run for a while.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Error, Result};

/// Below Linux's usual range for outgoing connections (32768-60999), which would take ports between two runs.
const FROM: u16 = 20_000;
const TO: u16 = 32_000;
/// Rows between processes whose seeds follow each other.
const SPREAD: u32 = 37;

/// Calls in this process: looking whether ports are free takes them for a moment, which another thread's program would notice.
static CALLS: AtomicU32 = AtomicU32::new(0);

/// The first of `count` consecutive ports on 127.0.0.1 that are not in use. `seed` spreads processes that start at the same
/// time.
///
/// The ports are free when this returns. If another process takes one later, the run fails with an error that says so.
///
/// # Errors
/// If there are none.
pub fn free(count: u16, seed: u32) -> Result<u16> {
    let rows = (TO - FROM) / count.max(1);
    let calls = CALLS.fetch_add(1, Ordering::Relaxed);
    let first = (seed.wrapping_mul(SPREAD).wrapping_add(calls) % u32::from(rows.max(1))) as u16;
    (0..rows)
        .map(|row| FROM + (first + row) % rows * count)
        .find(|&base| are_free(base, count))
        .ok_or(Error::Ports { count, from: FROM, to: TO })
}

fn are_free(base: u16, count: u16) -> bool {
    let listen = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    // All are held until the last is bound, so that each counts once.
    let held: std::io::Result<Vec<_>> = (base..base + count).map(listen).collect();
    held.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_with_a_listener_in_it_is_passed_over() {
        // Another test may take the port first.
        let (base, _taken) = std::iter::repeat_with(|| free(24, 7).unwrap())
            .find_map(|base| Some((base, TcpListener::bind((Ipv4Addr::LOCALHOST, base + 23)).ok()?)))
            .unwrap();
        assert!((FROM..=TO - 24).contains(&base) && !are_free(base, 24), "{base}");
        for _ in 0..TO / 24 {
            assert_ne!(free(24, 7).unwrap(), base);
        }
    }

    #[test]
    fn too_many_are_refused() {
        assert!(matches!(free(13_000, 1), Err(Error::Ports { count: 13_000, .. })));
    }
}
