//! What was measured, as JSON and as a table.

use std::fmt::Write as _;

use serde::Serialize;

use crate::failure::{Failure, say};
use crate::perf::args::{Completion, Operation, PerfFabric, word};

/// Of one size.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Figures {
    pub(super) operation: Operation,
    /// Each was answered by one of the target's, and times are half of both.
    pub(super) ping_pong: bool,
    pub(super) fabric: PerfFabric,
    /// What carries it.
    pub(super) device: String,
    pub(super) completion: Completion,
    /// Operations in one batch, each on a region of its own.
    pub(super) peers: u32,
    /// As asked for.
    pub(super) bytes: usize,
    /// What is moved for it: whole words, but for messages.
    pub(super) bytes_moved: usize,
    /// Busy threads on the target's CPU.
    pub(super) background: u32,
    /// Where each side was held to.
    pub(super) target_cpu: Option<usize>,
    pub(super) initiator_cpu: Option<usize>,
    #[serde(flatten)]
    pub(super) latency: Option<Latency>,
    #[serde(flatten)]
    pub(super) bandwidth: Option<Bandwidth>,
    #[serde(flatten)]
    pub(super) cost: Cost,
}

/// Of one batch, in ns.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Latency {
    pub(super) p50_ns: f64,
    pub(super) p99_ns: f64,
    pub(super) p999_ns: f64,
    pub(super) max_ns: f64,
    pub(super) mean_ns: f64,
    /// Batches in each measured run, over which its time is averaged; 1 where each was timed by itself.
    pub(super) batches_per_run: u32,
    pub(super) runs: usize,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Bandwidth {
    /// Operations in flight.
    pub(super) window: u32,
    pub(super) bytes_per_s: f64,
    pub(super) operations_per_s: f64,
}

/// CPU time per operation, on both sides. None where the number of batches was given.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Cost {
    pub(super) operations: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) initiator_cpu_ns: Option<f64>,
    /// Of the target's process, its rewriting of records each millisecond included, its background threads not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target_cpu_ns: Option<f64>,
    /// Times that the inbox was full, and a message was sent again.
    pub(super) inbox_full: u64,
}

/// What was held to where, in words.
fn cpus(figures: &Figures) -> String {
    let on = |cpu: Option<usize>| cpu.map_or_else(|| "any CPU".to_owned(), |cpu| format!("CPU {cpu}"));
    let (target, this) = (figures.target_cpu, figures.initiator_cpu);
    let meet = if target.is_some() && target == this { ", which both share: they take turns" } else { "" };
    format!("target on {}, this side on {}{meet}", on(target), on(this))
}

/// Prints what there is, at least one.
pub(super) fn print(all: &[Figures], args_json: bool, list: bool) -> Result<(), Failure> {
    if args_json {
        let text = match all {
            [one] if !list => serde_json::to_string_pretty(one)?,
            _ => serde_json::to_string_pretty(all)?,
        };
        return say(text + "\n");
    }
    say(table(all))
}

fn table(all: &[Figures]) -> String {
    let Some(first) = all.first() else { return String::new() };
    let Figures { fabric, peers, device, background, .. } = first;
    let (operation, fabric) = (word(first.operation), word(*fabric));
    let operation = if first.ping_pong { format!("half of a ping-pong, {operation}") } else { operation };
    let size = if all.len() == 1 { format!("{} bytes", first.bytes) } else { "all sizes".to_owned() };
    let mut out = format!("{operation} of {size} over {fabric}, ");
    let _ = match first.bandwidth {
        Some(Bandwidth { window, .. }) => write!(out, "{window} in flight"),
        None => write!(out, "{peers} in one batch"),
    };
    let _ = writeln!(out, ", from another process ({device})");
    let busy = if *background > 0 {
        format!("; {background} busy threads on the target's CPU")
    } else {
        String::new()
    };
    let _ = writeln!(out, "{}{busy}; completion by {}", cpus(first), word(first.completion));
    match first.latency {
        Some(_) => latencies(&mut out, all),
        None => bandwidths(&mut out, all),
    }
    notes(&mut out, all);
    out
}

fn latencies(out: &mut String, all: &[Figures]) {
    let titles =
        ["bytes", "p50 ns", "p99 ns", "p99.9 ns", "max ns", "mean ns", "CPU ns here", "CPU ns there"];
    row(out, titles.map(str::to_owned));
    for figures in all {
        let Some(Latency { p50_ns, p99_ns, p999_ns, max_ns, mean_ns, .. }) = figures.latency else {
            continue;
        };
        let Cost { initiator_cpu_ns, target_cpu_ns, .. } = figures.cost;
        let times = [p50_ns, p99_ns, p999_ns, max_ns, mean_ns].map(Some);
        let [a, b, c, d, e] = times.map(time);
        let [f, g] = [initiator_cpu_ns, target_cpu_ns].map(time);
        row(out, [figures.bytes.to_string(), a, b, c, d, e, f, g]);
    }
}

fn bandwidths(out: &mut String, all: &[Figures]) {
    row(out, ["bytes", "MB/s", "operations/s", "CPU ns here", "CPU ns there"].map(str::to_owned));
    for figures in all {
        let Some(Bandwidth { bytes_per_s, operations_per_s, .. }) = figures.bandwidth else { continue };
        let Cost { initiator_cpu_ns, target_cpu_ns, .. } = figures.cost;
        let [there, here] = [target_cpu_ns, initiator_cpu_ns].map(time);
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

/// What is to be known of the figures.
fn notes(out: &mut String, all: &[Figures]) {
    let averaged =
        all.iter().filter_map(|figures| figures.latency).any(|latency| latency.batches_per_run > 1);
    if averaged {
        out.push_str(
            "Shorter than a clock reading: times are means over runs of 20 us and more, and percentiles are over runs.\n",
        );
    }
    if all.iter().any(|figures| figures.bytes_moved != figures.bytes) {
        out.push_str(
            "Memory is made of 8-byte words: what is not a multiple of 8 is measured as the next one.\n",
        );
    }
    if all.iter().any(|figures| figures.operation.is_two_sided()) {
        out.push_str("A message's time is that until the target's inbox has it; its receiver runs beside.\n");
    }
    let full: u64 = all.iter().map(|figures| figures.cost.inbox_full).sum();
    if full > 0 {
        let _ = writeln!(out, "The inbox was full {full} times: the receiver was slower than this side.");
    }
}
