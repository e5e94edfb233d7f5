//! Which nodes join and leave, by what a service's endpoints are. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sidelong_kubernetes::{Endpoint, State};
use sidelong_layout::fnv1a;

/// An endpoint that is in no slice for that long is gone: while slices are written anew, it may be in none.
const GONE_AFTER: Duration = Duration::from_secs(5);
/// Longest name of a node.
const NAME_BYTES_MAX: usize = 64;

/// A node that the service has said there is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) server: SocketAddr,
}

/// What is to be done.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Plan {
    /// Nodes that join.
    pub(super) join: Vec<Member>,
    /// Nodes whose server is elsewhere now, under the same name.
    pub(super) go: Vec<Member>,
    /// Nodes that leave, those first whose servers are about to end.
    pub(super) leave: Vec<String>,
}

/// The members whose endpoints are in no slice, and since when.
pub(super) type Absent = BTreeMap<String, Instant>;

/// What is to be done where the cluster has these members, of which `spare` may leave.
pub(super) fn plan(
    endpoints: &[Endpoint],
    members: &[Member],
    spare: usize,
    absent: &mut Absent,
    now: Instant,
) -> Plan {
    let found: BTreeMap<_, _> =
        endpoints.iter().map(|endpoint| (node_name(&endpoint.name), endpoint)).collect();
    let known: BTreeSet<_> = members.iter().map(|member| &member.name).collect();
    absent.retain(|name, _| known.contains(name) && !found.contains_key(name));
    let ready = found.iter().filter(|(_, endpoint)| endpoint.state == State::Ready);
    let (go, join): (Vec<_>, Vec<_>) = ready
        .map(|(name, endpoint)| Member { name: name.clone(), server: endpoint.address })
        .filter(|member| !members.contains(member))
        .partition(|member| known.contains(&member.name));
    let leaves = |member: &Member| {
        let worth = match found.get(&member.name).map(|endpoint| endpoint.state) {
            Some(State::Ready) => return None,
            Some(State::Terminating) => 0,
            None if now.duration_since(*absent.entry(member.name.clone()).or_insert(now)) >= GONE_AFTER => 1,
            None => return None,
            Some(State::Unready) => 2,
        };
        Some((worth, member.name.clone()))
    };
    let mut leave: Vec<_> = members.iter().filter_map(leaves).collect();
    leave.sort();
    Plan { join, go, leave: leave.into_iter().take(spare).map(|(_, name)| name).collect() }
}

/// The name of the node for a pod: what a name may not have is replaced, and what makes it too long is replaced by a hash.
pub(super) fn node_name(pod: &str) -> String {
    let plain = pod.to_ascii_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    if plain.len() <= NAME_BYTES_MAX {
        return plain;
    }
    let hash = format!("-{:016x}", fnv1a(pod.as_bytes()));
    format!("{}{hash}", &plain[..NAME_BYTES_MAX - hash.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(name: &str, last: u8, state: State) -> Endpoint {
        Endpoint { name: name.to_owned(), address: ([10, 0, 0, last], 80).into(), state }
    }

    fn member(name: &str, last: u8) -> Member {
        Member { name: name.to_owned(), server: ([10, 0, 0, last], 80).into() }
    }

    #[test]
    fn nodes_follow_endpoints() {
        use State::{Ready, Terminating, Unready};
        let now = Instant::now();
        let endpoints = [
            endpoint("new", 1, Ready),
            endpoint("starts", 2, Unready),
            endpoint("same", 3, Ready),
            endpoint("anew", 4, Ready),
            endpoint("ends", 5, Terminating),
            endpoint("hangs", 6, Unready),
        ];
        let members =
            [member("same", 3), member("anew", 9), member("hangs", 6), member("ends", 5), member("gone", 7)];
        let mut absent = Absent::new();
        let mut told =
            |endpoints: &[Endpoint], spare, after| plan(endpoints, &members, spare, &mut absent, now + after);
        let (join, go) = (vec![member("new", 1)], vec![member("anew", 4)]);
        let leave = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let first = Plan { join, go, leave: leave(&["ends", "hangs"]) };
        assert_eq!(told(&endpoints, 9, Duration::ZERO), first);
        assert_eq!(told(&endpoints, 9, GONE_AFTER).leave, leave(&["ends", "gone", "hangs"]));
        assert_eq!(told(&endpoints, 2, GONE_AFTER).leave, leave(&["ends", "gone"]));

        // It is in a slice again, and then in none for a moment.
        let back = [&endpoints[..], &[endpoint("gone", 7, Ready)]].concat();
        assert_eq!(told(&back, 9, GONE_AFTER).leave, leave(&["ends", "hangs"]));
        assert_eq!(told(&endpoints, 9, GONE_AFTER + Duration::from_secs(1)).leave, leave(&["ends", "hangs"]));
        // A service of which nothing is left.
        assert_eq!(told(&[], 3, 3 * GONE_AFTER).leave, leave(&["gone"]));
        assert_eq!(told(&[], 3, 4 * GONE_AFTER).leave, leave(&["anew", "ends", "gone"]));
    }

    #[test]
    fn pods_of_any_name_have_nodes() {
        assert_eq!(node_name("web-7d4b9c-x2x4z"), "web-7d4b9c-x2x4z");
        assert_eq!(node_name("a.b"), "a-b");
        let [one, other] = ["x", "y"].map(|end| node_name(&format!("{}{end}", "w".repeat(80))));
        assert!(one != other && one.len() == NAME_BYTES_MAX && one.starts_with("wwww"), "{one}");
    }
}
