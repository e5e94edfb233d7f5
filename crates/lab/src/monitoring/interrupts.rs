//! M6: interrupts that were raised and not yet served, as each scheme shows them, by CPU (Vaidyanathan et al. 2006, 5.1.4).

use std::time::Duration;

use serde_json::json;

use super::{SCHEME, START, load, schemes, settings};
use crate::bench::Bench;
use crate::chart::Chart;
use crate::check::Check;
use crate::design::Design;
use crate::error::Result;
use crate::experiment::Experiment;
use crate::measure::{Dimension, Measure};
use crate::samples::Samples;
use sidelong_perf::load::results::Interrupts;

/// Threads that compute and send on the node's CPU. Their messages raise the interrupts.
const THREADS: &str = "8";
/// The seconds of a run.
const SECONDS: [u64; 2] = [10, 2];
/// The schemes whose records are made from /proc.
const FROM_PROC: [&str; 3] = ["socket-async", "socket-sync", "rdma-async"];

pub(crate) const M6: Experiment = Experiment::new(
    "M6",
    "Vaidyanathan et al. 2006, Figure 6",
    "pending interrupts seen, by CPU",
    Design {
        repeat: [5, 1],
        dimensions: &[SCHEME, Dimension::new("cpu", "CPU", &[])],
        // As many CPUs as the paper's machines had.
        cases: &["*/0,1"],
        measures: &[
            Measure::new("seen", "interrupts seen", [0, 0])
                .possible(|case| 0.0..=case.most("most") * case.most("samples")),
            Measure::new("most", "most in one sample", [0, 0]),
            Measure::new("samples", "samples", [0, 0]),
            Measure::new("told", "its record has them", [0, 0]),
        ],
        charts: &[Chart::bars("in a run", "seen", "cpu", "scheme")],
        settings: |quick| settings(json!({ "seconds": SECONDS[usize::from(quick)] })),
        template: include_str!("interrupts.md"),
        run,
        conclude,
        ..Design::DEFAULT
    },
);

fn run(bench: &mut Bench<'_>) -> Result<()> {
    let seconds = bench.either(SECONDS);
    let (time, time_s) = (Duration::from_secs(seconds) + START, seconds.to_string());
    let schemes = schemes(bench)?;
    bench.rounds(&vec![time; schemes.len()], |bench| {
        for scheme in &schemes {
            let name = bench.name(scheme.as_str());
            bench.begin(&name);
            let arguments =
                ["interrupts", "--scheme", scheme.as_str(), "--background", THREADS, "--for", &time_s];
            let Interrupts { samples, told, seen, most } = load(bench, &name, &arguments, time)?;
            for (cpu, (seen, most)) in seen.into_iter().zip(most).enumerate() {
                let figures = [("seen", seen), ("most", most), ("samples", samples), ("told", told.into())];
                bench
                    .sample(&format!("{scheme}/{cpu}"), figures.map(|(name, count)| (name, count as f64)))?;
            }
            bench.end();
        }
        Ok(())
    })
}

/// Repetitions are added up, because a single one shows few interrupts.
fn conclude(samples: &mut Samples) -> Vec<Check> {
    let seen = |scheme: &str| samples.total(&format!("{scheme}/*"), "seen");
    let most = FROM_PROC.iter().filter_map(|scheme| seen(scheme)).reduce(f64::max);
    let check = |scheme: &str| {
        let what =
            format!("interrupts that {scheme} sees, less the most that one of the schemes of /proc does");
        let more = seen(scheme).zip(most).map(|(ours, most)| ours - most);
        Check::at_least(what, 1.0, more).possible(f64::NEG_INFINITY..=f64::INFINITY)
    };
    ["e-rdma-sync", "rdma-sync"].map(check).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::design::tests::judged;

    #[test]
    fn the_kernel_s_record_is_to_see_more_than_proc() {
        let verdicts = |from_proc| {
            judged(&M6, |samples| {
                samples.put("socket-sync/0", [("seen", from_proc)]);
                samples.put("e-rdma-sync/0", [("seen", 1.0)]);
                samples.put("e-rdma-sync/1", [("seen", 1.0)]);
            })
        };
        assert_eq!(verdicts(1.0), ["met", "not measured"]);
        assert_eq!(verdicts(2.0), ["MISSED", "not measured"]);
    }
}
