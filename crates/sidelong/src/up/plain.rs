//! A line a second, where there is no terminal.

use sidelong_layout::SiteId;

use super::Status;
use crate::failure::{Failure, say};

pub(super) fn print(status: &Status<'_>) -> Result<(), Failure> {
    let Some(live) = status.live else { return Ok(()) };
    let sites = status.cluster.sites.iter().zip(&live.sites).enumerate().map(|(index, (site, live))| {
        let nodes = status.monitor.serving(SiteId::new(index));
        format!(
            "{} {nodes} nodes {:.0}/s p50 {:.1} p99 {:.1} ms",
            site.name, live.requests_per_s, live.p50_ms, live.p99_ms
        )
    });
    let age = status
        .monitor
        .age_max()
        .map_or_else(|| "-".to_owned(), |age| format!("{:.1}", age.as_secs_f64() * 1e3));
    say(format_args!(
        "{:>5.0}s  {}  | {:.0}/s, {} errors, {} moves, oldest record {age} ms\n",
        status.elapsed.as_secs_f64(),
        sites.collect::<Vec<_>>().join("  "),
        live.total.requests_per_s,
        live.total.errors,
        status.moves,
    ))
}
