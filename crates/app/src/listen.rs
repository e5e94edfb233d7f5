//! Listeners for clients.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;

/// Most connections that wait to be accepted, if the system allows so many (net.core.somaxconn). With Rust's own 128, clients that
/// come at once are told nothing, and try again only after a second.
const BACKLOG: i32 = 4096;

/// Listens on `address`.
///
/// # Errors
/// As of bind(2) and listen(2).
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    widen(&listener)?;
    Ok(listener)
}

/// Lets so many connections wait at a listener.
///
/// # Errors
/// As of listen(2).
pub(crate) fn widen(listener: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::listen(listener, BACKLOG)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn three_hundred_clients_at_once_wait_to_be_accepted() {
        let most: usize = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
        let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(10)).unwrap();
        let waiting: Vec<_> = (0..most.min(300)).map(connect).collect();
        assert_eq!(waiting.len(), most.min(300));
    }
}
