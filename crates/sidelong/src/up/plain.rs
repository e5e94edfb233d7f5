//! Output without a terminal: a line each second, and a line for each event.

use std::time::Duration;

use sidelong_layout::SiteId;

use super::Status;
use crate::failure::{Failure, say};
use crate::top::Documents;

pub(super) fn print(status: &Status<'_>) -> Result<(), Failure> {
    let sites = status.cluster.sites.entries().enumerate().map(|(index, (slot, site))| {
        let serves = format!("{} {} nodes", site.name, status.monitor.serving(SiteId::new(slot)));
        // Without a load of its own, `up` knows nothing of requests.
        let Some(live) = status.live.map(|live| live.sites[index]) else { return serves };
        let rejected = match status.rejected_per_s(index) {
            0 => String::new(),
            rejected => format!(" {rejected}/s rejected"),
        };
        let missed = if status.admissions.is_missed(index) { " target missed" } else { "" };
        let (rate, p50, p99) = (live.requests_per_s, live.p50_ms, live.p99_ms);
        format!("{serves} {rate:.0}/s p50 {p50:.1} p99 {p99:.1} ms{rejected}{missed}")
    });
    let total = status.live.map_or_else(String::new, |live| {
        format!("{:.0}/s, {} errors, ", live.total.requests_per_s, live.total.errors)
    });
    let age = status
        .monitor
        .age_max()
        .map_or_else(|| "-".to_owned(), |age| format!("{:.1}", age.as_secs_f64() * 1e3));
    let gets: f64 = status.caches.iter().filter_map(|cache| cache.per_s("cmd_get")).sum();
    let hits: f64 = status.caches.iter().filter_map(|cache| cache.per_s("get_hits")).sum();
    let caches = match (status.caches.is_empty(), gets > 0.0) {
        (true, _) => String::new(),
        (false, true) => format!(", caches {gets:.0} gets/s {:.0} % hits", 100.0 * hits / gets),
        (false, false) => ", caches 0 gets/s".to_owned(),
    };
    let documents = match status.documents.is_empty() {
        true => String::new(),
        false => {
            let all = Documents::sum(&status.documents);
            let memory = all.percent(|of| of.memory.saturating_add(of.memory_after_wait));
            let memory = memory.map_or_else(String::new, |memory| format!(" {memory:.0} % from memory"));
            format!(", documents {:.0}/s{memory}", all.requests_per_s().unwrap_or_default())
        }
    };
    say(format_args!(
        "{:>5.0}s  {}  | {total}{} moves, oldest record {age} ms{caches}{documents}\n",
        status.elapsed.as_secs_f64(),
        sites.collect::<Vec<_>>().join("  "),
        status.moves,
    ))
}

/// Prints events with their time since the start.
pub(super) fn tell(news: &[(Duration, String)]) -> Result<(), Failure> {
    let lines = news.iter().map(|(at, text)| format!("{:>5.0}s  {text}\n", at.as_secs_f64()));
    say(lines.collect::<String>())
}
