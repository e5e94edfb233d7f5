//! The servers, and a client's talk with one of them.

use std::io;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use super::client::Client;
use crate::bench::Bench;
use crate::cpus::{self, Pinned};
use crate::error::{Error, Result};
use crate::server::Server;

/// Memory of each server, in MiB: all items stay.
const MEMORY_MIB: &str = "1024";
/// Keys of which the home is sought, for each item. Half of them have the right one.
const KEYS_MAX: usize = 10;
/// The longest wait for caches to find each other, and the time between two attempts.
const LINK_MAX: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// Starts a server on the servers' CPU.
pub(super) fn start(bench: &Bench<'_>, name: &str, command: Command, address: SocketAddr) -> Result<Server> {
    let [cpu, _] = cpus::two()?;
    let _pinned = Pinned::to(cpu)?;
    Server::start_listening(bench, name, command, address)
}

/// Starts memcached.
pub(super) fn memcached(bench: &Bench<'_>, address: SocketAddr) -> Result<Server> {
    let mut command = Command::new("memcached");
    // It refuses to run as root without a user to become.
    command.args(["-u", "nobody"]);
    switches(&mut command, address);
    start(bench, "memcached", command, address).map_err(|error| match error {
        Error::Start { program, .. } => Error::Absent {
            what: program.display().to_string(),
            instead: "install memcached (Debian: memcached)",
        },
        error => error,
    })
}

/// Adds memcached's switches, which `sidelong cache` takes too: one thread, TCP only.
pub(super) fn switches(command: &mut Command, address: SocketAddr) {
    command.args(["-t", "1", "-U", "0", "-m", MEMORY_MIB, "-l", &address.ip().to_string()]);
    command.args(["-p", &address.port().to_string()]);
}

/// Lets a client talk to the first of `servers` while all of them run. Returns what came of it, and the CPU time of each server.
///
/// # Errors
/// If the talk fails; `what` names it.
pub(super) fn talk<T>(
    servers: &[&Server],
    what: &str,
    talk: impl FnOnce(&mut Client) -> io::Result<T>,
) -> Result<(T, Vec<Duration>)> {
    let [_, cpu] = cpus::two()?;
    let _pinned = Pinned::to(cpu)?;
    let used = || servers.iter().map(|server| server.process.cpu_used()).collect::<Result<Vec<_>>>();
    servers.iter().for_each(|server| server.process.resume());
    let talked = Client::connect(servers[0].address).and_then(|mut client| {
        let before = used();
        let talked = talk(&mut client)?;
        Ok((talked, before, used()))
    });
    servers.iter().for_each(|server| server.process.pause());
    let (talked, before, after) = talked.map_err(|error| servers[0].failed(format!("{what}: {error}")))?;
    let cpu = after?.iter().zip(&before?).map(|(after, before)| after.since(before)).collect();
    Ok((talked, cpu))
}

/// Keys of items by home: those of the cache that is asked, and those of the other.
pub(super) fn by_home(client: &mut Client, items: usize) -> io::Result<[Vec<u32>; 2]> {
    let mut keys = [Vec::new(), Vec::new()];
    let mut before = client.stat("forwarded")?;
    for number in 0..(KEYS_MAX * items) as u32 {
        // What would change an item is sent to its home.
        client.delete_absent(number)?;
        let forwarded = client.stat("forwarded")?;
        keys[usize::from(forwarded > before)].push(number);
        before = forwarded;
        if keys.iter().all(|keys| keys.len() >= items) {
            keys.iter_mut().for_each(|keys| keys.truncate(items));
            return Ok(keys);
        }
    }
    Err(io::Error::other(format!("of {} keys, {} are its own", KEYS_MAX * items, keys[0].len())))
}

/// Attempts something until it succeeds, for [`LINK_MAX`] at most.
///
/// # Errors
/// Of the last attempt.
pub(super) fn eventually<T>(mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + LINK_MAX;
    loop {
        match attempt() {
            Err(_) if Instant::now() < deadline => std::thread::sleep(POLL),
            done => return done,
        }
    }
}
