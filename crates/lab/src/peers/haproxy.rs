//! HAProxy: as many requests at a server as it can serve, a queue before all servers in which the higher priority goes
//! first, and a bound on that queue, beyond which requests are rejected at once.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::{Deployment, Found, Search};
use crate::error::Result;

const HOW: &str = "Debian's package haproxy has it";
/// Requests at a server beyond those in service, so that its workers have the next at hand.
const AHEAD: u32 = 1;
/// Bound of the queue before all servers. The waiting requests have the lowest priority, which gets what the others leave.
fn queue(place: &Deployment) -> u32 {
    let sites = place.sites.iter().filter(|site| site.priority == lowest(place));
    let nodes: usize = sites.map(|site| site.nodes.len()).sum();
    let at_server = place.service * (place.workers + AHEAD) / place.workers;
    place.waiting_max(nodes as u32 * place.workers, place.target.saturating_sub(at_server))
}

fn lowest(place: &Deployment) -> u8 {
    place.sites.iter().map(|site| site.priority).min().unwrap_or(0)
}

pub(super) fn describe(place: &Deployment) -> String {
    format!(
        "all servers one backend, leastconn, maxconn {} for each server of {} workers; the higher priority goes first in the \
         queue (set-priority-class), and others are answered 503 at once while {} requests are in it (queue), which take \
         0.7 of what the target leaves for waiting, or after {:.0} ms (timeout queue)",
        place.workers + AHEAD,
        place.workers,
        queue(place),
        place.target.as_secs_f64() * 1e3
    )
}

pub(super) fn find(search: &Search<'_>) -> Result<std::result::Result<Found, String>> {
    // Debian's directory is not among those of users' programs.
    let programs = [PathBuf::from("haproxy"), PathBuf::from("/usr/sbin/haproxy")];
    let found = search.first_that_answers(&programs, "-v")?;
    Ok(found
        .map(|(program, version)| Found { program, version, modules: PathBuf::new() })
        .ok_or_else(|| HOW.to_owned()))
}

/// The configuration of HAProxy.
pub(super) fn config(place: &Deployment) -> String {
    let mut text = format!(
        "global\n    nbthread 1\n    maxconn 8000\n\n\
         defaults\n    mode http\n    timeout connect 1s\n    timeout client 60s\n    timeout server 15s\n    \
         timeout queue {}ms\n    http-reuse always\n\n\
         frontend front\n    bind {}\n",
        place.target.as_millis(),
        place.listen
    );
    let least = lowest(place);
    for site in place.sites.iter().filter(|site| site.priority > least) {
        // Lower classes go first.
        let (name, host, class) = (site.name, site.host, -i32::from(site.priority));
        let _ = writeln!(text, "    acl is_{name} req.hdr(host) -m str -i {host}");
        let _ = writeln!(text, "    http-request set-priority-class int({class}) if is_{name}");
    }
    let others: String = place
        .sites
        .iter()
        .filter(|site| site.priority > least)
        .fold(String::new(), |others, site| format!("{others}!is_{} ", site.name));
    let _ = writeln!(
        text,
        "    http-request deny deny_status 503 if {others}{{ queue(servers) ge {} }}",
        queue(place)
    );
    text.push_str("    default_backend servers\n\nbackend servers\n    balance leastconn\n");
    for (index, node) in place.nodes().enumerate() {
        let _ = writeln!(text, "    server s{} {node} maxconn {}", index + 1, place.workers + AHEAD);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::tests::place;

    #[test]
    fn the_queue_is_what_the_target_leaves_and_the_higher_priority_goes_first() {
        let text = config(&place());
        // 80 ms less 25 at the server; 70 % of that are 15 requests of the two servers of the lower priority.
        for line in [
            "    bind 127.0.0.1:20000",
            "    timeout queue 80ms",
            "    http-request set-priority-class int(-1) if is_high",
            "    http-request deny deny_status 503 if !is_high { queue(servers) ge 15 }",
            "    server s3 127.0.0.1:20003 maxconn 5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(!text.contains("is_low"), "{text}");
    }
}
