//! The summary of a run as text.

use std::fmt::{self, Write as _};

use sidelong_harness::up::{CacheLoad, Summary};

use crate::load;

/// The summary as text.
pub(super) fn table(summary: &Summary) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write_table(&mut out, summary).and_then(|()| write_caches(&mut out, summary));
    if let Some(walk) = &summary.walk {
        out += "\n";
        out += &load::interactions(walk);
    }
    out
}

fn write_table(f: &mut String, summary: &Summary) -> fmt::Result {
    let rejected = match summary.rejected {
        0 => String::new(),
        rejected => format!(", {rejected} rejected"),
    };
    let took = match summary.move_ms {
        Some(took) => format!(" of {:.1} ms (p50)", took.p50),
        None => String::new(),
    };
    if summary.seconds == 0.0 {
        return write_without_load(f, summary, &took);
    }
    writeln!(
        f,
        "\n{} requests in {:.1} s: {:.0} requests/s, p50 {:.1} ms, p99 {:.1} ms, {} errors{rejected}, {} moves{took}",
        summary.requests,
        summary.seconds,
        summary.requests_per_s,
        summary.p50_ms,
        summary.p99_ms,
        summary.errors,
        summary.moves
    )?;
    if let Some(steps) = &summary.step_to_first_request_ms {
        writeln!(
            f,
            "load step to first request on a moved node: p50 {:.1} ms, p99 {:.1} ms over {} steps",
            steps.p50, steps.p99, steps.count
        )?;
    }
    let width = summary.sites.iter().map(|site| site.name.len()).max().unwrap_or(0).max(4);
    writeln!(
        f,
        "{:width$} {:>6} {:>10} {:>11} {:>9} {:>9} {:>7} {:>9}",
        "site", "nodes", "requests", "requests/s", "p50 ms", "p99 ms", "errors", "rejected"
    )?;
    for site in &summary.sites {
        writeln!(
            f,
            "{:width$} {:>6} {:>10} {:>11.0} {:>9.1} {:>9.1} {:>7} {:>9}",
            site.name,
            site.nodes,
            site.requests,
            site.requests_per_s,
            site.p50_ms,
            site.p99_ms,
            site.errors,
            site.load_rejected
        )?;
    }
    Ok(())
}

/// What is known where `up` has sent no load.
fn write_without_load(f: &mut String, summary: &Summary, took: &str) -> fmt::Result {
    writeln!(f, "\n`up` sent no requests; {} moves{took}", summary.moves)?;
    let width = summary.sites.iter().map(|site| site.name.len()).max().unwrap_or(0).max(4);
    writeln!(f, "{:width$} {:>6} {:>9}", "site", "nodes", "rejected")?;
    for site in &summary.sites {
        writeln!(f, "{:width$} {:>6} {:>9}", site.name, site.nodes, site.rejected)?;
    }
    Ok(())
}

/// What the caches did.
fn write_caches(f: &mut String, summary: &Summary) -> fmt::Result {
    if let Some(CacheLoad { gets, hits, wrong, failed }) = summary.cache_load {
        writeln!(
            f,
            "\n{gets} gets of the caches: {hits} hits, {wrong} wrong values, {failed} without an answer"
        )?;
    }
    if summary.caches.is_empty() {
        return Ok(());
    }
    let width = summary.caches.iter().map(|cache| cache.name.len()).max().unwrap_or(0).max("cache".len());
    let optional = |count: Option<u64>| count.map_or_else(|| "–".to_owned(), |count| count.to_string());
    writeln!(
        f,
        "{:width$} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>9} {:>12}",
        "cache", "gets", "own hits", "neighbour", "misses", "items", "MiB", "evictions", "failed reads"
    )?;
    for cache in &summary.caches {
        writeln!(
            f,
            "{:width$} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8.1} {:>9} {:>12}",
            cache.name,
            cache.gets,
            cache.hits.saturating_sub(cache.neighbour_hits.unwrap_or_default()),
            optional(cache.neighbour_hits),
            cache.misses,
            cache.items,
            cache.bytes as f64 / f64::from(1 << 20),
            cache.evictions,
            optional(cache.read_failures)
        )?;
    }
    Ok(())
}
