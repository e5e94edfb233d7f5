//! The list of experiments, in the order in which they are published: the papers' by number, then Sidelong's own.
//!
//! Each is declared (`design`) in a file of its own.

use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::{
    admission, agent, beside, busy, cache, chaos, day, fronts, latency, monitoring, overhead, overload,
    perftest, rams, reload, scale, servers, sessions, sizes, speed, throughput, utilisation,
};

static EXPERIMENTS: [Experiment; 64] = [
    sizes::R5,
    sizes::R6,
    sizes::R7,
    sizes::R8,
    busy::R9,
    throughput::R10,
    throughput::R11,
    throughput::R12,
    throughput::R13,
    throughput::R14,
    utilisation::R15,
    utilisation::R16,
    utilisation::R17,
    utilisation::R18,
    utilisation::R19,
    utilisation::R20,
    utilisation::R21,
    utilisation::R22,
    utilisation::R23,
    utilisation::R24,
    busy::A1,
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
    reload::RELOAD,
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
    chaos::X1,
    chaos::X2,
    chaos::X3,
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
                     DA, QA, move-latency, reload, servers, gunicorn, F1, K1, K2, K3, K4, K5, K6, K7, agent, X1, X2, X3"
                ),
            "{error}"
        );
    }
}
