//! The list of experiments, in the order in which they are published: the papers' by number, then Sidelong's own.
//!
//! An experiment that is declared (`design`) is named here by the file that has it.

use crate::bench::Bench;
use crate::check::Conclusion;
use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::setup::Demand::{SingleFile, WorldCup, Zipf};
use crate::setup::Layout::{Four, Three};
use crate::{
    admission, agent, beside, busy, cache, day, fronts, latency, monitoring, overhead, overload, perftest,
    rams, scale, servers, sessions, sizes, speed, throughput, utilisation,
};

const KB: u64 = 1024;

const fn study(
    id: &'static str,
    figure: &'static str,
    title: &'static str,
    run: fn(&mut Bench<'_>) -> Result<Conclusion>,
) -> Experiment {
    Experiment::of_study(id, figure, title, run)
}

static EXPERIMENTS: [Experiment; 60] = [
    study("R5", "Balaji et al. 2004, Figure 5", "read, by message size", |bench| {
        sizes::run(bench, sizes::READ)
    }),
    study("R6", "Balaji et al. 2004, Figure 6", "send and receive, by message size", |bench| {
        sizes::run(bench, sizes::SEND)
    }),
    study("R7", "Balaji et al. 2004, Figure 7", "write, by message size", |bench| {
        sizes::run(bench, sizes::WRITE)
    }),
    study("R8", "Balaji et al. 2004, Figure 8", "write with immediate data, by message size", |bench| {
        sizes::run(bench, sizes::WRITE_IMM)
    }),
    study("R9", "Balaji et al. 2004, Figure 9", "read from a busy target", |bench| {
        busy::run(bench, busy::Of::R9)
    }),
    study("R10", "Balaji et al. 2004, Figure 10", "throughput by burst length, one file of 1 KB", |bench| {
        throughput::run(bench, SingleFile(KB))
    }),
    study("R11", "Balaji et al. 2004, Figure 11", "throughput by burst length, one file of 4 KB", |bench| {
        throughput::run(bench, SingleFile(4 * KB))
    }),
    study("R12", "Balaji et al. 2004, Figure 12", "throughput by burst length, one file of 16 KB", |bench| {
        throughput::run(bench, SingleFile(16 * KB))
    }),
    study("R13", "Balaji et al. 2004, Figure 13", "throughput by burst length, Zipf", |bench| {
        throughput::run(bench, Zipf)
    }),
    study("R14", "Balaji et al. 2004, Figure 14", "throughput by burst length, WorldCup98", |bench| {
        throughput::run(bench, WorldCup)
    }),
    study("R15", "Balaji et al. 2004, Figure 15", "nodes in use, 3 sites, one file of 1 KB", |bench| {
        utilisation::run(bench, SingleFile(KB), Three)
    }),
    study("R16", "Balaji et al. 2004, Figure 16", "nodes in use, 4 sites, one file of 1 KB", |bench| {
        utilisation::run(bench, SingleFile(KB), Four)
    }),
    study("R17", "Balaji et al. 2004, Figure 17", "nodes in use, 3 sites, one file of 4 KB", |bench| {
        utilisation::run(bench, SingleFile(4 * KB), Three)
    }),
    study("R18", "Balaji et al. 2004, Figure 18", "nodes in use, 4 sites, one file of 4 KB", |bench| {
        utilisation::run(bench, SingleFile(4 * KB), Four)
    }),
    study("R19", "Balaji et al. 2004, Figure 19", "nodes in use, 3 sites, one file of 16 KB", |bench| {
        utilisation::run(bench, SingleFile(16 * KB), Three)
    }),
    study("R20", "Balaji et al. 2004, Figure 20", "nodes in use, 4 sites, one file of 16 KB", |bench| {
        utilisation::run(bench, SingleFile(16 * KB), Four)
    }),
    study("R21", "Balaji et al. 2004, Figure 21", "nodes in use, 3 sites, Zipf", |bench| {
        utilisation::run(bench, Zipf, Three)
    }),
    study("R22", "Balaji et al. 2004, Figure 22", "nodes in use, 4 sites, Zipf", |bench| {
        utilisation::run(bench, Zipf, Four)
    }),
    study("R23", "Balaji et al. 2004, Figure 23", "nodes in use, 3 sites, WorldCup98", |bench| {
        utilisation::run(bench, WorldCup, Three)
    }),
    study("R24", "Balaji et al. 2004, Figure 24", "nodes in use, 4 sites, WorldCup98", |bench| {
        utilisation::run(bench, WorldCup, Four)
    }),
    study(
        "A1",
        "Lai et al. 2008, micro-benchmarks",
        "read by message size, and from a busy target",
        |bench| busy::run(bench, busy::Of::A1),
    ),
    admission::A2,
    admission::A3,
    admission::A4,
    admission::A5,
    admission::A6,
    overload::A7,
    overload::A8,
    rams::C1,
    rams::C2,
    rams::C3,
    rams::C4,
    monitoring::MT1,
    monitoring::M3,
    monitoring::M4,
    monitoring::M5,
    monitoring::M6,
    monitoring::M7,
    monitoring::M8,
    monitoring::M9,
    beside::S1,
    scale::S2,
    rams::L1,
    perftest::PERFTEST,
    speed::SIM_SPEED,
    overhead::EDGE_OVERHEAD,
    day::DA,
    sessions::QA,
    latency::MOVE_LATENCY,
    servers::SERVERS,
    overload::GUNICORN,
    fronts::F1,
    cache::K1,
    cache::K2,
    cache::K3,
    cache::K4,
    cache::K5,
    cache::K6,
    cache::K7,
    agent::AGENT,
];

/// All experiments: the published ones by number, then Sidelong's own.
pub fn experiments() -> &'static [Experiment] {
    &EXPERIMENTS
}

pub(crate) fn find(id: &str) -> Result<&'static Experiment> {
    EXPERIMENTS.iter().find(|experiment| experiment.id.eq_ignore_ascii_case(id)).ok_or_else(|| {
        let known: Vec<_> = EXPERIMENTS.iter().map(|experiment| experiment.id).collect();
        Error::Unknown { id: id.chars().take(32).collect(), known: known.join(", ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::OWN;

    #[test]
    fn each_is_found_by_its_id() {
        for experiment in experiments() {
            let Experiment { id, figure, .. } = experiment;
            assert_eq!(find(&id.to_lowercase()).unwrap().id, *id);
            match id.split_at(1) {
                ("R", number) => assert_eq!(*figure, format!("Balaji et al. 2004, Figure {number}")),
                ("M", "T1") => assert_eq!(*figure, "Vaidyanathan et al. 2006, Table 1"),
                ("M", _) => assert!(figure.starts_with("Vaidyanathan et al. 2006, Figure ")),
                ("C", number) => assert_eq!(*figure, format!("Gu and Wang 2004, Figure {number}")),
                ("A", number) if number < "7" => assert!(figure.starts_with("Lai et al. 2008, ")),
                _ => assert_eq!(*figure, OWN),
            }
        }
    }

    #[test]
    fn an_unknown_one_lists_the_known() {
        let error = find("R4").unwrap_err().to_string();
        assert!(
            error.starts_with("no experiment \"R4\"; there are R5, R6,")
                && error.ends_with(
                    "R24, A1, A2, A3, A4, A5, A6, A7, A8, C1, C2, C3, C4, MT1, M3, M4, M5, M6, M7, M8, M9, S1, S2, L1, perftest, sim-speed, \
                     edge-overhead, \
                     DA, QA, move-latency, servers, gunicorn, F1, K1, K2, K3, K4, K5, K6, K7, agent"
                ),
            "{error}"
        );
    }
}
