//! How many connections each client has, so that one cannot take the places of all.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use crate::service::Refusal;

/// Connections of a client beyond its limit that are still answered; further ones are closed at once.
const REFUSALS_MAX: usize = 8;

/// The connections of all clients, by address. All threads share it. Its lock is taken when a connection begins and when it
/// ends, on no request's path.
#[derive(Debug)]
pub(crate) struct Clients {
    per_client_max: usize,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection that is let in, counted as its client's while this lives.
#[derive(Debug, Default)]
pub(crate) struct Place {
    client: Option<(Arc<Clients>, IpAddr)>,
    /// Why it is not served.
    pub(crate) refusal: Option<Refusal>,
}

impl Clients {
    pub(crate) fn new(per_client_max: usize) -> Self {
        Clients { per_client_max, open: Mutex::default() }
    }

    /// A place for a connection of a client, unless the client has so many beyond its limit that it gets no answer.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let client = client(address);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(client).or_default();
        let over = (*count + 1).saturating_sub(self.per_client_max);
        // The limit is 1 at least, so this entry has a connection.
        if over > REFUSALS_MAX {
            return None;
        }
        *count += 1;
        let refusal = (over > 0).then_some(Refusal::ClientFull);
        Some(Place { client: Some((Arc::clone(self), client)), refusal })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((clients, client)) = self.client.take() else { return };
        let mut open = clients.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = open.get_mut(&client) else { return };
        *count -= 1;
        if *count == 0 {
            open.remove(&client);
        }
    }
}

/// Who has an address. Of IPv6 the first 64 bits count, as a network of so many addresses is the least that anybody has
/// (RFC 6177; RFC 4291, 2.5.4).
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_places_up_to_its_limit_and_no_entry_without_one() {
        let clients = Arc::new(Clients::new(2));
        let enter = |address: &str| clients.enter(address.parse().unwrap());
        let refusal = |place: &Option<Place>| place.as_ref().unwrap().refusal;
        let mut places: Vec<_> = (0..2).map(|_| enter("2001:db8::1")).collect();
        assert!(places.iter().all(|place| refusal(place).is_none()));
        places.extend((0..REFUSALS_MAX).map(|_| enter("2001:db8::ffff:0:0:2")));
        assert!(places[2..].iter().all(|place| refusal(place) == Some(Refusal::ClientFull)));
        assert!(enter("2001:db8::3").is_none(), "it has no more answers");
        assert!(refusal(&enter("2001:db8:0:1::1")).is_none(), "another network");
        assert!(refusal(&enter("192.0.2.1")).is_none());
        let mapped = [enter("192.0.2.1"), enter("::ffff:192.0.2.1"), enter("192.0.2.1")];
        assert_eq!(mapped.each_ref().map(|place| refusal(place).is_some()), [false, false, true]);
        places.truncate(1);
        assert!(refusal(&enter("2001:db8::4")).is_none());
        drop((places, mapped));
        assert!(clients.open.lock().unwrap().is_empty());
    }
}
