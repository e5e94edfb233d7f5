//! What host names mean.
//!
//! A file that a person hands over must name hosts that are found. One that parts have adopted must stay readable whatever name servers
//! say: there a host means what this process has last heard, and one that is not found is nowhere. Who goes by it asks again at
//! intervals ([`look_up_again`]).
//!
//! Parts should get the same answer: of several addresses the lowest IPv4 one is taken, else the lowest.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use sidelong_layout::fnv1a;

/// A name server has this long to answer.
const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// Nobody is at an address of this prefix (RFC 6666, the discard prefix 100::/64).
const NOWHERE: u64 = 0x0100_0000_0000_0000;

/// What hosts meant when this process last heard.
static KNOWN: Mutex<BTreeMap<String, IpAddr>> = Mutex::new(BTreeMap::new());

thread_local! {
    /// The hosts that a file names which parts have adopted, while it is read.
    static ADOPTED: RefCell<Option<BTreeSet<String>>> = const { RefCell::new(None) };
}

/// Why there is no address, worded to follow the host.
pub(crate) enum NotFound {
    Has(String),
    Silent,
}

/// Reads a file that parts have adopted. Returns the hosts that it names, too.
pub(crate) fn adopted<T>(read: impl FnOnce() -> T) -> (T, BTreeSet<String>) {
    ADOPTED.set(Some(BTreeSet::new()));
    let read = read();
    (read, ADOPTED.take().unwrap_or_default())
}

/// The address of a host that a file names.
pub(crate) fn look_up(host: &str) -> Result<IpAddr, NotFound> {
    if cfg!(fuzzing) {
        return Err(NotFound::Has("a fuzzer looks up no names".to_owned()));
    }
    let is_adopted =
        ADOPTED.with_borrow_mut(|hosts| hosts.as_mut().map(|hosts| hosts.insert(host.to_owned())).is_some());
    if is_adopted && let Some(address) = known().get(host) {
        return Ok(*address);
    }
    let address = ask(host).or_else(|why| if is_adopted { Ok(nowhere(host)) } else { Err(why) })?;
    known().insert(host.to_owned(), address);
    Ok(address)
}

/// Asks for hosts again, and returns those that mean other addresses than they did. One that is not found means what it did: its name
/// server may have failed. It may take 5 s for each host.
pub fn look_up_again(hosts: &BTreeSet<String>) -> Vec<String> {
    known().retain(|host, _| hosts.contains(host));
    let mut changed = Vec::new();
    for host in hosts {
        match ask(host) {
            Ok(address) if known().insert(host.clone(), address) != Some(address) => {
                changed.push(host.clone())
            }
            // The others would be asked in vain, too.
            Err(NotFound::Silent) => break,
            Ok(_) | Err(NotFound::Has(_)) => {}
        }
    }
    changed
}

/// Those of the hosts that were never found.
pub fn not_found(hosts: &BTreeSet<String>) -> Vec<&str> {
    let known = known();
    let is_nowhere = |host: &&String| known.get(*host).is_some_and(|ip| is_nowhere(SocketAddr::new(*ip, 0)));
    hosts.iter().filter(is_nowhere).map(String::as_str).collect()
}

/// Whether an address stands for that of a host that was not found.
pub fn is_nowhere(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V6(ip) if u128::from(ip) >> 64 == u128::from(NOWHERE))
}

/// Another address for each host, so that none of two seems to be the other.
fn nowhere(host: &str) -> IpAddr {
    Ipv6Addr::from(u128::from(NOWHERE) << 64 | u128::from(fnv1a(host.as_bytes()))).into()
}

fn ask(host: &str) -> Result<IpAddr, NotFound> {
    let (tell, answer) = mpsc::sync_channel(1);
    let name = host.to_owned();
    // The resolver has no time limit of ours: a thread that it holds up is left behind.
    thread::spawn(move || {
        let found = (name.as_str(), 0).to_socket_addrs();
        let lowest = found.map(|found| found.map(|at| at.ip()).min_by_key(|ip| (ip.is_ipv6(), *ip)));
        let _ = tell.send(lowest);
    });
    match answer.recv_timeout(LOOKUP_MAX) {
        Ok(Ok(Some(address))) => Ok(address),
        Ok(Ok(None)) => Err(NotFound::Has("has no address".to_owned())),
        Ok(Err(error)) => Err(NotFound::Has(format!("is not found: {error}"))),
        Err(_) => Err(NotFound::Silent),
    }
}

fn known() -> MutexGuard<'static, BTreeMap<String, IpAddr>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotFound::Has(why) => f.write_str(why),
            NotFound::Silent => write!(f, "is not found within {} s", LOOKUP_MAX.as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of no domain that there is (RFC 6761, 6.4).
    const NOBODY: &str = "nobody.invalid";

    #[test]
    fn of_a_file_that_was_adopted_a_host_that_is_not_found_is_nowhere() {
        assert!(look_up(NOBODY).is_err());
        let (read, hosts) = adopted(|| (look_up(NOBODY), look_up("localhost")));
        assert_eq!(hosts, BTreeSet::from([NOBODY, "localhost"].map(str::to_owned)));
        let [nobody, local] = [read.0, read.1].map(|ip| SocketAddr::new(ip.ok().unwrap(), 7101));
        assert!(is_nowhere(nobody) && !is_nowhere(local), "{nobody}, {local}");
        assert_eq!(not_found(&hosts), [NOBODY]);
        assert_ne!(nowhere("a.invalid"), nowhere("b.invalid"));
        assert!(look_up(NOBODY).is_err(), "a person's file is read as before");

        known().insert("localhost".to_owned(), [192, 0, 2, 1].into());
        let again = |host| adopted(|| look_up(host)).0.ok().unwrap();
        assert_eq!(again("localhost"), IpAddr::from([192, 0, 2, 1]), "what was heard last");
        assert_eq!(look_up_again(&hosts), ["localhost"]);
        assert_eq!(again("localhost"), local.ip());
        assert_eq!(look_up_again(&hosts), Vec::<String>::new());
        assert!(is_nowhere(SocketAddr::new(again(NOBODY), 1)));
    }
}
