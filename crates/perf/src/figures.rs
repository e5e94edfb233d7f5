//! Prints the results, as JSON and as a table.

use std::fmt::Write as _;

use crate::results::{Bandwidth, Figures, Latency, Speed};

use sidelong_app::Failure;
use sidelong_os::say;

/// Where each side ran, in words.
fn cpus(figures: &Figures) -> String {
    let on = |cpu: Option<usize>| cpu.map_or_else(|| "any CPU".to_owned(), |cpu| format!("CPU {cpu}"));
    let (target, this) = (figures.target_cpu, figures.initiator_cpu);
    let meet = if target.is_some() && target == this { ", which they share by turns" } else { "" };
    format!("target on {}, this side on {}{meet}", on(target), on(this))
}

/// Prints at least one.
pub(super) fn print(all: &[Figures], args_json: bool, list: bool) -> Result<(), Failure> {
    if args_json {
        let text = match all {
            [one] if !list => serde_json::to_string_pretty(one)?,
            _ => serde_json::to_string_pretty(all)?,
        };
        return Ok(say(text + "\n")?);
    }
    Ok(say(table(all))?)
}

fn table(all: &[Figures]) -> String {
    let Some(first) = all.first() else { return String::new() };
    let Figures { operation, fabric, peers, device, background, .. } = first;
    let half = if first.ping_pong { "half of a ping-pong, " } else { "" };
    let size = if all.len() == 1 { format!("{} bytes", first.bytes) } else { "all sizes".to_owned() };
    let mut out = format!("{half}{operation} of {size} over {fabric}, ");
    let _ = match first.speed {
        Speed::Bandwidth(Bandwidth { window, .. }) => write!(out, "{window} in flight"),
        Speed::Latency(_) => write!(out, "{peers} in one batch"),
    };
    let _ = writeln!(out, ", from another process ({device})");
    let busy = if *background > 0 {
        format!("; {background} busy threads on the target's CPU")
    } else {
        String::new()
    };
    let _ = writeln!(out, "{}{busy}; completion by {}", cpus(first), first.completion);
    match first.speed {
        Speed::Latency(_) => latencies(&mut out, all),
        Speed::Bandwidth(_) => bandwidths(&mut out, all),
    }
    notes(&mut out, all);
    out
}

fn latencies(out: &mut String, all: &[Figures]) {
    let titles =
        ["bytes", "p50 ns", "p99 ns", "p99.9 ns", "max ns", "mean ns", "CPU ns here", "CPU ns there"];
    row(out, titles.map(str::to_owned));
    for figures in all {
        let Some(&Latency { p50_ns, p99_ns, p999_ns, max_ns, mean_ns, .. }) = figures.latency() else {
            continue;
        };
        let times = [p50_ns, p99_ns, p999_ns, max_ns, mean_ns].map(Some);
        let [a, b, c, d, e] = times.map(time);
        let [f, g] = [figures.initiator_cpu_ns, figures.target_cpu_ns].map(time);
        row(out, [figures.bytes.to_string(), a, b, c, d, e, f, g]);
    }
}

fn bandwidths(out: &mut String, all: &[Figures]) {
    row(out, ["bytes", "MB/s", "operations/s", "CPU ns here", "CPU ns there"].map(str::to_owned));
    for figures in all {
        let Some(Bandwidth { bytes_per_s, operations_per_s, .. }) = figures.bandwidth() else { continue };
        let [here, there] = [figures.initiator_cpu_ns, figures.target_cpu_ns].map(time);
        let rate = format!("{:.3}", bytes_per_s / 1e6);
        row(out, [figures.bytes.to_string(), rate, format!("{operations_per_s:.0}"), here, there]);
    }
}

fn time(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{ns:.1}"))
}

fn row<const N: usize>(out: &mut String, cells: [String; N]) {
    let cells = cells.map(|cell| format!("{cell:>12}"));
    let _ = writeln!(out, "{}", cells.join(" "));
}

/// Notes on the figures.
fn notes(out: &mut String, all: &[Figures]) {
    let averaged = all.iter().filter_map(Figures::latency).any(|latency| latency.batches_per_run > 1);
    if averaged {
        out.push_str(
            "A batch is shorter than a clock reading: times are means over runs of at least 20 us, percentiles are over runs.\n",
        );
    }
    if all.iter().any(|figures| figures.bytes_moved != figures.bytes) {
        out.push_str("Memory is accessed in 8-byte words: sizes are rounded up to a multiple of 8.\n");
    }
    if all.iter().any(|figures| figures.operation.is_two_sided()) {
        out.push_str("A message is timed until the target's inbox has it; the receiver runs in parallel.\n");
    }
    let full: u64 = all.iter().map(|figures| figures.inbox_full).sum();
    if full > 0 {
        let _ = writeln!(out, "The inbox was full {full} times: the receiver is slower than this side.");
    }
}
