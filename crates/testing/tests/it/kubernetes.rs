//! The client of Kubernetes, against what stands for an API server, or a real one.

use std::net::SocketAddr;
use std::time::Duration;

use sidelong_kubernetes::{Endpoint, State, Watcher};
use sidelong_testing::kubernetes::ApiServer;
use sidelong_testing::kubernetes::Condition::{Ready, Terminating, Unready};
use sidelong_testing::{Cluster, PATIENCE, eventually};

/// An API server for a service, and what watches it.
fn started(cluster: &Cluster) -> (ApiServer, Watcher) {
    let server = ApiServer::start(cluster);
    let watcher = Watcher::new(server.access(), "shop/web".parse().unwrap()).unwrap();
    (server, watcher)
}

/// Waits until these are the endpoints.
fn await_endpoints(watcher: &mut Watcher, expected: &[(&str, SocketAddr, State)]) {
    let endpoint = |(name, address, state): &(&str, SocketAddr, State)| Endpoint {
        name: (*name).to_owned(),
        address: *address,
        state: *state,
    };
    let expected: Vec<_> = expected.iter().map(endpoint).collect();
    eventually(&format!("{expected:?}"), || {
        let _ = watcher.next(Duration::from_millis(50));
        watcher.endpoints(Some("http")).is_ok_and(|found| found == expected)
    });
}

#[test]
fn endpoints_are_followed() {
    let cluster = Cluster::new(&[("none", 1)]);
    let (mut server, mut watcher) = started(&cluster);
    let [one, two, three] = [1, 2, 3].map(|last| SocketAddr::from(([10, 0, 0, last], 8080)));
    server.put("web", "web-a", &[("w1", one, Ready), ("w2", two, Unready)]);
    server.put("web", "web-b", &[("w3", three, Ready)]);
    server.put("other", "other-a", &[("o1", one, Ready)]);
    // Listed in two pages.
    await_endpoints(
        &mut watcher,
        &[("w1", one, State::Ready), ("w2", two, State::Unready), ("w3", three, State::Ready)],
    );
    // Heard.
    server.put("web", "web-a", &[("w1", one, Terminating), ("w2", two, Ready)]);
    await_endpoints(
        &mut watcher,
        &[("w1", one, State::Terminating), ("w2", two, State::Ready), ("w3", three, State::Ready)],
    );
    server.delete("web-b");
    await_endpoints(&mut watcher, &[("w1", one, State::Terminating), ("w2", two, State::Ready)]);
    let lists = |server: &ApiServer| server.asked().iter().filter(|asked| !asked.contains("watch=1")).count();

    // A watch that is cut goes on where it was, and one of which too much was missed begins with a list.
    server.stop();
    eventually("it is missed", || watcher.next(Duration::from_millis(50)).is_err());
    assert!(watcher.endpoints(None).is_ok(), "what was heard stays");
    server.resume();
    server.put("web", "web-b", &[("w3", three, Ready)]);
    await_endpoints(
        &mut watcher,
        &[("w1", one, State::Terminating), ("w2", two, State::Ready), ("w3", three, State::Ready)],
    );
    let listed = lists(&server);
    server.compact();
    server.put("web", "web-a", &[("w2", two, Ready)]);
    await_endpoints(&mut watcher, &[("w2", two, State::Ready), ("w3", three, State::Ready)]);
    assert!(ApiServer::is_real() || lists(&server) > listed, "{:?}", server.asked());
}

#[test]
fn refusals_say_what_to_do() {
    let cluster = Cluster::new(&[("none", 1)]);
    let (mut server, mut watcher) = started(&cluster);
    assert!(watcher.next(PATIENCE).unwrap());
    let token = std::fs::read_to_string(server.token()).unwrap();
    std::fs::write(server.token(), "another").unwrap();
    let asked =
        |service: &str| Watcher::new(server.access(), service.parse().unwrap()).unwrap().next(PATIENCE);
    let refused = asked("shop/web").unwrap_err().to_string();
    assert!(refused.contains("does not know this token"), "{refused}");
    std::fs::write(server.token(), token).unwrap();
    if !ApiServer::is_real() {
        let refused = asked("bar/web").unwrap_err().to_string();
        assert!(refused.contains("grant the service account list and watch of endpointslices"), "{refused}");
    }
    std::fs::remove_file(server.token()).unwrap();
    let refused = asked("shop/web").unwrap_err().to_string();
    assert!(refused.contains("cannot be read"), "{refused}");
    server.stop();
    eventually("it is missed", || watcher.next(Duration::from_millis(50)).is_err());
    for text in ["web", "shop/", "Shop/web", "a/b/c"] {
        assert!(text.parse::<sidelong_kubernetes::Service>().is_err(), "{text}");
    }
}
