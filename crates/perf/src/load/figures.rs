//! Prints the figures, as JSON and as text.

use std::fmt::Write as _;

use crate::load::results::{Accuracy, Deviation, Figures, Found, Interrupts, Slowdown, Steps, Times};

use sidelong_app::Failure;
use sidelong_os::say;

pub(super) fn print(figures: &Figures, json: bool) -> Result<(), Failure> {
    if json {
        return Ok(say(serde_json::to_string_pretty(figures)? + "\n")?);
    }
    Ok(say(lines(figures))?)
}

fn lines(figures: &Figures) -> String {
    let Figures { scheme, background, granularity_ms, period_ms, .. } = figures;
    let on = |cpu: Option<usize>| cpu.map_or_else(|| "any CPU".to_owned(), |cpu| format!("CPU {cpu}"));
    let mut out = format!(
        "load of one node by {scheme}: the node and {background} threads on {}, this side on {}; a sample every \
         {granularity_ms} ms, T = {period_ms} ms\n",
        on(figures.placement.node_cpu),
        on(figures.placement.this_cpu),
    );
    let _ = match &figures.found {
        Found::Latency(times) => writeln!(out, "time of a sample: {}", of(times)),
        Found::Step(Steps { threads, unseen, unclear, times }) => {
            writeln!(
                out,
                "{threads} threads that wake are seen after: {}; {unseen} steps not seen, {unclear} unclear",
                of(times)
            )
        }
        Found::Slowdown(Slowdown { rounds, alone_ms, normalized_delay, kept, sampling }) => writeln!(
            out,
            "an application of {alone_ms:.1} ms takes {normalized_delay:.4} times as long ({kept:.4} by keeping the record, \
             {sampling:.4} by the samples), median of {rounds} rounds"
        ),
        Found::Interrupts(Interrupts { samples, told, seen, most }) => writeln!(
            out,
            "pending interrupts in {samples} samples, by CPU: {seen:?}, at most {most:?} at once{}",
            if *told { "" } else { "; the record of this scheme does not have them" }
        ),
        Found::Accuracy(Accuracy { samples, threads, cpu_percent, cpu_truth, .. }) => {
            let pair =
                |Deviation { mean, max }: &Deviation| format!("mean {}, max {}", number(*mean), number(*max));
            writeln!(
                out,
                "deviation in {samples} samples: threads {}; CPU in percent {} (truth: {cpu_truth})",
                pair(threads),
                pair(cpu_percent)
            )
        }
    };
    out
}

fn of(times: &Times) -> String {
    let Times { samples, p50_us, p99_us, max_us, mean_us, .. } = times;
    let [p50, p99, max, mean] = [p50_us, p99_us, max_us, mean_us].map(|us| number(*us));
    format!("p50 {p50}, p99 {p99}, max {max}, mean {mean} us of {samples}")
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}
