//! Busy threads at the target (Balaji et al. 2004, 4.2: "background computation and communication operations on the
//! server").
//!
//! Each thread alternately computes, and sends and receives a message over its own TCP connection on the loopback
//! device. It is its own partner, so it never sleeps, and all N threads compete for the CPU. They run in a process of
//! their own, so that their CPU time does not count as the target's.

use std::hint::black_box;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use sidelong_app::Failure;

/// Words to compute on: more than the first-level cache holds.
const WORDS: usize = 8192;
/// Passes over all words between two messages.
const ROUNDS: usize = 32;
/// Bytes of a message.
const MESSAGE_BYTES: usize = 1024;

/// The process with the threads, which ends with this.
pub(super) struct Background(Child);

impl Background {
    /// Starts `threads` threads on the CPU that the caller is pinned to.
    pub(super) fn start(threads: u32) -> io::Result<Background> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["perf", "background", &threads.to_string()]);
        // Its end of the pipe closes when this process ends, in whatever way.
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        command.spawn().map(Background)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The command: `threads` threads until standard input ends.
pub(super) fn run(threads: u32) -> Result<(), Failure> {
    for _ in 0..threads {
        let (mut there, mut here) = pair()?;
        std::thread::Builder::new().spawn(move || work(&mut there, &mut here))?;
    }
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// Both ends of a connection.
fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let there = TcpStream::connect(listener.local_addr()?)?;
    let (here, _) = listener.accept()?;
    there.set_nodelay(true)?;
    Ok((there, here))
}

/// Works until the process ends, or its connection fails.
fn work(there: &mut TcpStream, here: &mut TcpStream) {
    let mut words: Vec<u64> = (0..WORDS as u64).collect();
    let mut message = [0; MESSAGE_BYTES];
    loop {
        for round in 0..ROUNDS {
            compute(&mut words, round as u64);
        }
        message[0] = black_box(words[0]) as u8;
        if there.write_all(&message).and_then(|()| here.read_exact(&mut message)).is_err() {
            return;
        }
    }
}

fn compute(words: &mut [u64], round: u64) {
    for word in words {
        *word = word.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_its_own_partner_does_not_wait() {
        let (mut there, mut here) = pair().unwrap();
        for _ in 0..100 {
            there.write_all(&[7; MESSAGE_BYTES]).unwrap();
            let mut message = [0; MESSAGE_BYTES];
            here.read_exact(&mut message).unwrap();
            assert_eq!(message, [7; MESSAGE_BYTES]);
        }
    }
}
