//! Where on this machine the clusters of an experiment can listen.

use std::net::{Ipv4Addr, TcpListener};

use crate::error::{Error, Result};

/// Below Linux's usual range for outgoing connections (32768-60999), which would take ports between two runs.
const FROM: u16 = 20_000;
const TO: u16 = 32_000;

/// The first of `count` ports in a row that nobody listens at on 127.0.0.1. `seed` spreads labs that start at a time.
///
/// They are free when this returns; who takes one later makes a run fail, which says so.
pub(crate) fn free(count: u16, seed: u32) -> Result<u16> {
    let rows = (TO - FROM) / count.max(1);
    let first = (seed % u32::from(rows.max(1))) as u16;
    (0..rows)
        .map(|row| FROM + (first + row) % rows * count)
        .find(|&base| are_free(base, count))
        .ok_or(Error::Ports { count, from: FROM, to: TO })
}

fn are_free(base: u16, count: u16) -> bool {
    let listen = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    // Held until the last is bound, so that each counts once.
    let held: std::io::Result<Vec<_>> = (base..base + count).map(listen).collect();
    held.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_with_a_listener_in_it_is_passed_over() {
        let base = free(24, 7).unwrap();
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, base + 23)).unwrap();
        let next = free(24, 7).unwrap();
        assert!(next != base && (FROM..TO - 24).contains(&next), "{next}");
    }

    #[test]
    fn too_many_are_refused() {
        assert!(matches!(free(13_000, 1), Err(Error::Ports { count: 13_000, .. })));
    }
}
