//! What host names mean.
//!
//! A file that a person hands over must name hosts that are found. One that parts have adopted must stay readable whatever name servers
//! say: there a host means what this process has last heard, and one that is not found is nowhere. Who goes by it asks again at
//! intervals ([`look_up_again`]).
//!
//! Parts should get the same answer: of several addresses the lowest IPv4 one is taken, else the lowest. It is kept for as long as it is
//! among them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, ToSocketAddrs as _};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use sidelong_layout::fnv1a;

/// A name server has this long to answer.
const LOOKUP_MAX: Duration = Duration::from_secs(5);
/// As long as that while a part waits that could do without the answer.
const ADOPTED_LOOKUP_MAX: Duration = Duration::from_secs(1);
/// Nobody is at an address of this prefix (RFC 6666, the discard prefix 100::/64).
const NOWHERE: u64 = 0x0100_0000_0000_0000;

/// What hosts mean to a file.
pub type Hosts = BTreeMap<String, IpAddr>;

/// What hosts meant when this process last heard.
static KNOWN: Mutex<BTreeMap<String, Known>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy)]
struct Known {
    address: IpAddr,
    /// Whether it was not found any more when it was last asked for.
    is_old: bool,
}

/// A file that parts have adopted, while it is read.
#[derive(Default)]
struct Adopted {
    hosts: Hosts,
    /// Whether a name server said nothing, so that no other is asked for.
    is_silent: bool,
    /// Which hosts are nowhere, whatever is known of them.
    contested: Contested,
}

/// Which hosts with the address of another one are nowhere: two parts cannot be at one place.
#[derive(Clone, Copy, Default, PartialEq)]
enum Contested {
    #[default]
    None,
    /// Hosts that are not found any more.
    Old,
    All,
}

thread_local! {
    static ADOPTED: RefCell<Option<Adopted>> = const { RefCell::new(None) };
}

/// Why there is no address, worded to follow the host.
pub(crate) enum NotFound {
    Has(String),
    Silent,
}

/// Reads a file that parts have adopted. Returns what the hosts in it mean, too. If it cannot be used because hosts have the address of
/// another one, they are nowhere.
pub(crate) fn adopted<T, E>(read: impl Fn() -> Result<T, E>) -> Result<(T, Hosts), E> {
    let read_with = |contested| {
        ADOPTED.set(Some(Adopted { contested, ..Adopted::default() }));
        let read = read();
        let hosts = ADOPTED.take().unwrap_or_default().hosts;
        read.map(|file| (file, hosts))
    };
    let first = read_with(Contested::None);
    let Err(why) = first else { return first };
    let again = [Contested::Old, Contested::All].into_iter().find_map(|contested| read_with(contested).ok());
    again.ok_or(why)
}

/// The address of a host that a file names.
pub(crate) fn look_up(host: &str) -> Result<IpAddr, NotFound> {
    if cfg!(fuzzing) {
        return Err(NotFound::Has("a fuzzer looks up no names".to_owned()));
    }
    ADOPTED.with_borrow_mut(|adopted| match adopted {
        None => ask_for(host, LOOKUP_MAX),
        Some(adopted) => Ok(look_up_for(adopted, host)),
    })
}

fn look_up_for(adopted: &mut Adopted, host: &str) -> IpAddr {
    if !known().contains_key(host) {
        let found = if adopted.is_silent { Err(NotFound::Silent) } else { ask_for(host, ADOPTED_LOOKUP_MAX) };
        adopted.is_silent |= matches!(found, Err(NotFound::Silent));
    }
    let mut known = known();
    let unknown = Known { address: nowhere(host), is_old: false };
    let Known { address, is_old } = *known.entry(host.to_owned()).or_insert(unknown);
    let is_contested = match adopted.contested {
        Contested::None => false,
        Contested::Old => is_old,
        Contested::All => true,
    };
    let is_anothers = |(other, at): (&String, &Known)| other != host && at.address == address;
    let address = if is_contested && known.iter().any(is_anothers) { nowhere(host) } else { address };
    adopted.hosts.insert(host.to_owned(), address);
    address
}

/// Asks for a host again. One that is not found means what it did: its name server may have failed. It takes up to 5 s.
pub fn look_up_again(host: &str) {
    if ask_for(host, LOOKUP_MAX).is_err()
        && let Some(last) = known().get_mut(host)
    {
        last.is_old = !is_nowhere(last.address);
    }
}

/// Whether hosts mean other addresses now than `hosts` has.
pub fn have_changed(hosts: &Hosts) -> bool {
    let known = known();
    let is_another =
        |(host, address): (&String, &IpAddr)| known.get(host).is_some_and(|now| now.address != *address);
    hosts.iter().any(is_another)
}

/// Forgets all other hosts.
pub fn forget_others(hosts: &Hosts) {
    known().retain(|host, _| hosts.contains_key(host));
}

/// Whether an address stands for that of a host that was not found.
pub fn is_nowhere(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(ip) if u128::from(ip) >> 64 == u128::from(NOWHERE))
}

/// Another address for each host, so that none of two seems to be the other.
fn nowhere(host: &str) -> IpAddr {
    Ipv6Addr::from(u128::from(NOWHERE) << 64 | u128::from(fnv1a(host.as_bytes()))).into()
}

/// The address that is taken of several of one host.
pub fn lowest(found: impl Iterator<Item = IpAddr>) -> Option<IpAddr> {
    found.min_by_key(|ip| (ip.is_ipv6(), *ip))
}

/// Asks for a host, and remembers the answer.
fn ask_for(host: &str, wait: Duration) -> Result<IpAddr, NotFound> {
    let found = ask(host, wait)?;
    let lowest = lowest(found.iter().copied()).ok_or_else(|| NotFound::Has("has no address".to_owned()))?;
    let mut known = known();
    let last = known.get(host).map(|last| last.address).filter(|last| found.contains(last));
    let address = last.unwrap_or(lowest);
    known.insert(host.to_owned(), Known { address, is_old: false });
    Ok(address)
}

fn ask(host: &str, wait: Duration) -> Result<Vec<IpAddr>, NotFound> {
    let (tell, answer) = mpsc::sync_channel(1);
    let name = host.to_owned();
    // The resolver has no time limit of ours: a thread that it holds up is left behind.
    let asked = thread::Builder::new().name("host".into()).spawn(move || {
        let found = (name.as_str(), 0).to_socket_addrs();
        let _ = tell.send(found.map(|found| found.map(|at| at.ip()).collect()));
    });
    asked.map_err(|error| NotFound::Has(format!("cannot be looked up: {error}")))?;
    match answer.recv_timeout(wait) {
        Ok(found) => found.map_err(|error| NotFound::Has(format!("is not found: {error}"))),
        Err(_) => Err(NotFound::Silent),
    }
}

fn known() -> MutexGuard<'static, BTreeMap<String, Known>> {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotFound::Has(why) => f.write_str(why),
            NotFound::Silent => f.write_str("is not found in time: no name server answers"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a host is known to mean, of which no other test asks.
    fn knows(host: &str, address: [u8; 4], is_old: bool) -> String {
        known().insert(host.to_owned(), Known { address: address.into(), is_old });
        host.to_owned()
    }

    fn read(hosts: &[&str]) -> Result<Vec<IpAddr>, String> {
        hosts.iter().map(|host| look_up(host).map_err(|why| why.to_string())).collect()
    }

    #[test]
    fn of_several_addresses_the_lowest_of_ipv4_is_taken() {
        let of = |found: &[&str]| lowest(found.iter().map(|ip| ip.parse().unwrap())).map(|ip| ip.to_string());
        assert_eq!(of(&["::1", "10.0.0.2", "10.0.0.1", "fd00::1"]).as_deref(), Some("10.0.0.1"));
        assert_eq!(of(&["fd00::2", "fd00::1"]).as_deref(), Some("fd00::1"));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn of_a_file_that_was_adopted_a_host_that_is_not_found_is_nowhere() {
        // A label that is too long for any name server (RFC 1035, 2.3.4).
        let (nobody, local) = ("n".repeat(64), "LocalHost");
        assert!(read(&[&nobody]).is_err());
        let (found, hosts) = adopted(|| read(&[&nobody, local])).unwrap();
        assert!(is_nowhere(found[0]) && found[1].is_loopback(), "{found:?}");
        assert_eq!(hosts, Hosts::from([(nobody.clone(), found[0]), (local.to_owned(), found[1])]));
        assert_ne!(nowhere("a.invalid"), nowhere("b.invalid"));
        assert!(read(&[&nobody]).is_err(), "a person's file is read as before");

        knows(local, [192, 0, 2, 1], false);
        assert!(have_changed(&hosts));
        let before = adopted(|| read(&[local])).unwrap().1;
        assert_eq!(before[local], IpAddr::from([192, 0, 2, 1]), "what was heard last");
        [&*nobody, local].into_iter().for_each(look_up_again);
        assert!(have_changed(&before) && !have_changed(&hosts));
    }

    #[test]
    fn a_host_whose_address_another_one_has_taken_is_nowhere() {
        let gone = knows("gone.test", [192, 0, 2, 7], true);
        let new = knows("new.test", [192, 0, 2, 7], false);
        // As a file in which both listen at one port.
        let both = || match &read(&[&gone, &new])?[..] {
            [one, other] if one == other => Err("two at one place".to_owned()),
            _ => Ok(()),
        };
        let ((), hosts) = adopted(both).unwrap();
        assert!(is_nowhere(hosts[&gone]) && hosts[&new] == IpAddr::from([192, 0, 2, 7]), "{hosts:?}");
        knows(&gone, [192, 0, 2, 7], false);
        let ((), hosts) = adopted(both).unwrap();
        assert!(hosts.values().all(|address| is_nowhere(*address)), "{hosts:?}");
        let ((), hosts) = adopted(|| read(&[&gone, &new]).map(|_| ())).unwrap();
        assert_eq!(hosts[&gone], hosts[&new], "they may be two names of one machine");
    }
}
