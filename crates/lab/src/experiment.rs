//! Which experiments there are.

use serde::Serialize;

use crate::busy::Of;
use crate::error::{Error, Result};
use crate::perf;
use crate::rams::Of as Rams;
use crate::setup::{Demand, Layout};
use crate::sizes::{self, Sized};

/// An experiment that can be run: a published one again, or one of Sidelong's own.
#[derive(PartialEq, Debug, Serialize)]
pub struct Experiment {
    /// Its name: the paper's letter and the number of the figure, or for our own what it is of.
    pub id: &'static str,
    /// What it measures.
    pub title: &'static str,
    /// Where it was published, or that it is our own.
    pub figure: &'static str,
    /// Of its `rows.csv`.
    pub columns: &'static [&'static str],
    #[serde(skip)]
    pub(crate) plan: Plan,
}

/// The kinds of experiment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Plan {
    /// R 4.1: one operation, by message size.
    Sizes { what: Sized },
    /// R 4.2, and A: reads from a busy target.
    Busy { of: Of },
    /// R 4.3.1: throughput by burst length.
    Throughput { demand: Demand },
    /// R 4.3.2: nodes in use over time.
    Utilisation { demand: Demand, layout: Layout },
    /// M 5.1.1: how long a look at a node's load takes, and how soon a step is seen.
    LoadLatency,
    /// M 5.1.2: an application slowed down by looks.
    LoadSlowdown,
    /// M 5.1.3: the record against the truth.
    LoadAccuracy,
    /// M 5.1.4: interrupts that wait, as they are seen.
    LoadInterrupts,
    /// M 5.2.3: throughput by how often load is looked at.
    LoadGranularity,
    /// M 5.2.1: throughput by how even the requests are.
    LoadAlpha,
    /// M 5.2.2: response times while a Ganglia monitor is told of the load.
    LoadGanglia,
    /// A: response times under admission control, by the number of clients.
    AdmissionClients,
    /// The same over time.
    AdmissionResponses,
    /// Who is turned away under the same, over time.
    AdmissionDrops,
    /// How many of those who are let in wait too long, over time and by the number of clients.
    AdmissionQos,
    /// Response times by workload.
    AdmissionWorkload,
    /// More than can be served, in an open loop.
    Overload,
    /// The same beside proxies of others.
    OverloadPeers,
    /// C: the cooperative cache, simulated.
    Rams { of: Rams },
    /// The simulated data-center beside the live one.
    Beside,
    /// The simulated data-center, up to ten thousand nodes.
    Scale,
    /// Operations over RDMA beside perftest's.
    Perftest,
    /// How fast the simulator is, beside others.
    SimSpeed,
    /// The edge beside a bare proxy of what it is made of.
    EdgeOverhead,
    /// From a load step to the first request on a moved node.
    MoveLatency { demand: Demand },
}

impl Plan {
    /// What the clusters of its runs are asked for, where it has any.
    pub(crate) fn demand(self) -> Option<Demand> {
        match self {
            Plan::Throughput { demand } | Plan::Utilisation { demand, .. } | Plan::MoveLatency { demand } => {
                Some(demand)
            }
            Plan::Beside => Some(Demand::SingleFile(1024)),
            Plan::Sizes { .. } | Plan::Busy { .. } | Plan::Rams { .. } | Plan::Scale => None,
            Plan::LoadLatency | Plan::LoadSlowdown | Plan::LoadAccuracy => None,
            Plan::LoadInterrupts | Plan::LoadGranularity | Plan::LoadAlpha | Plan::LoadGanglia => None,
            Plan::AdmissionClients | Plan::AdmissionWorkload => None,
            Plan::AdmissionResponses | Plan::AdmissionDrops | Plan::AdmissionQos => None,
            Plan::Overload | Plan::OverloadPeers => None,
            Plan::Perftest | Plan::SimSpeed | Plan::EdgeOverhead => None,
        }
    }
}

const THROUGHPUT: &[&str] =
    &["sites", "workload", "configuration", "burst", "requests_per_s", "p50_ms", "p99_ms", "errors", "moves"];
const UTILISATION: &[&str] = &["t_s", "site", "nodes_busy", "configuration", "burst"];
const EDGE_OVERHEAD: &[&str] =
    &["round", "proxy", "requests_per_s", "p50_ms", "p99_ms", "cpu_us_per_request", "errors"];
const MOVE_LATENCY: &[&str] = &["case", "steps", "p50_ms", "p99_ms", "max_ms", "moves", "errors"];
const LOAD_LATENCY: &[&str] =
    &["scheme", "background_threads", "latency_us_p50", "latency_us_p99", "latency_us_max"];
const LOAD_SLOWDOWN: &[&str] = &["scheme", "granularity_ms", "normalized_delay"];
const LOAD_ACCURACY: &[&str] = &["scheme", "field", "load", "deviation_mean", "deviation_max"];
const LOAD_INTERRUPTS: &[&str] = &["scheme", "cpu", "interrupts_seen"];
const LOAD_GRANULARITY: &[&str] = &["scheme", "granularity_ms", "requests_per_s"];
const LOAD_ALPHA: &[&str] = &["scheme", "alpha", "requests_per_s", "improvement"];
const LOAD_GANGLIA: &[&str] = &["scheme", "granularity_ms", "query", "response_ms_max"];
const ADMISSION_CLIENTS: &[&str] =
    &["clients", "system", "response_ms_mean", "response_ms_p99", "requests_per_s"];
const ADMISSION_RESPONSES: &[&str] = &["t_s", "system", "response_ms", "loop", "round", "response_ms_max"];
const ADMISSION_DROPS: &[&str] = &["t_s", "system", "drop_rate", "loop", "round", "offered"];
const ADMISSION_QOS: &[&str] = &["t_s", "clients", "system", "qos_unsatisfied", "loop", "round"];
const ADMISSION_WORKLOAD: &[&str] = &["workload", "system", "response_ms_mean"];
const OVERLOAD: &[&str] =
    &["offered_load", "system", "goodput", "p99_ms", "reject_ms", "recovery_ms", "fairness"];
const BESIDE: &[&str] =
    &["configuration", "burst", "sites", "by", "requests_per_s", "p50_ms", "p99_ms", "errors", "moves"];
const SCALE: &[&str] =
    &["nodes", "reconfig_protocol", "moves", "thrash", "floor_violations", "time_to_balance_ms"];
const PERFTEST: &[&str] = &["operation", "round", "ours_us", "perftest_us", "ratio"];
const SIM_SPEED: &[&str] = &["engine", "nodes", "requests_per_s", "events_per_s"];
const OWN: &str = "Sidelong's own";

const fn throughput(
    id: &'static str,
    figure: &'static str,
    title: &'static str,
    demand: Demand,
) -> Experiment {
    Experiment { id, title, figure, columns: THROUGHPUT, plan: Plan::Throughput { demand } }
}

const fn utilisation(
    id: &'static str,
    figure: &'static str,
    title: &'static str,
    demand: Demand,
    layout: Layout,
) -> Experiment {
    Experiment { id, title, figure, columns: UTILISATION, plan: Plan::Utilisation { demand, layout } }
}

const fn sizes(id: &'static str, figure: &'static str, title: &'static str, what: Sized) -> Experiment {
    Experiment { id, title, figure, columns: perf::COLUMNS, plan: Plan::Sizes { what } }
}

const fn busy(id: &'static str, figure: &'static str, title: &'static str, of: Of) -> Experiment {
    Experiment { id, title, figure, columns: perf::COLUMNS, plan: Plan::Busy { of } }
}

const fn rams(id: &'static str, figure: &'static str, title: &'static str, of: Rams) -> Experiment {
    Experiment { id, title, figure, columns: of.columns(), plan: Plan::Rams { of } }
}

static EXPERIMENTS: [Experiment; 45] = {
    use Demand::{SingleFile, WorldCup, Zipf};
    use Layout::{Four, Three};
    const KB: u64 = 1024;
    [
        sizes("R5", "R Figure 5", "read, by message size", sizes::READ),
        sizes("R6", "R Figure 6", "send and receive, by message size", sizes::SEND),
        sizes("R7", "R Figure 7", "write, by message size", sizes::WRITE),
        sizes("R8", "R Figure 8", "write with immediate data, by message size", sizes::WRITE_IMM),
        busy("R9", "R Figure 9", "read from a busy target", Of::R9),
        throughput("R10", "R Figure 10", "throughput by burst length, one file of 1 KB", SingleFile(KB)),
        throughput("R11", "R Figure 11", "throughput by burst length, one file of 4 KB", SingleFile(4 * KB)),
        throughput(
            "R12",
            "R Figure 12",
            "throughput by burst length, one file of 16 KB",
            SingleFile(16 * KB),
        ),
        throughput("R13", "R Figure 13", "throughput by burst length, Zipf", Zipf),
        throughput("R14", "R Figure 14", "throughput by burst length, WorldCup98", WorldCup),
        utilisation("R15", "R Figure 15", "nodes in use, 3 sites, one file of 1 KB", SingleFile(KB), Three),
        utilisation("R16", "R Figure 16", "nodes in use, 4 sites, one file of 1 KB", SingleFile(KB), Four),
        utilisation(
            "R17",
            "R Figure 17",
            "nodes in use, 3 sites, one file of 4 KB",
            SingleFile(4 * KB),
            Three,
        ),
        utilisation(
            "R18",
            "R Figure 18",
            "nodes in use, 4 sites, one file of 4 KB",
            SingleFile(4 * KB),
            Four,
        ),
        utilisation(
            "R19",
            "R Figure 19",
            "nodes in use, 3 sites, one file of 16 KB",
            SingleFile(16 * KB),
            Three,
        ),
        utilisation(
            "R20",
            "R Figure 20",
            "nodes in use, 4 sites, one file of 16 KB",
            SingleFile(16 * KB),
            Four,
        ),
        utilisation("R21", "R Figure 21", "nodes in use, 3 sites, Zipf", Zipf, Three),
        utilisation("R22", "R Figure 22", "nodes in use, 4 sites, Zipf", Zipf, Four),
        utilisation("R23", "R Figure 23", "nodes in use, 3 sites, WorldCup98", WorldCup, Three),
        utilisation("R24", "R Figure 24", "nodes in use, 4 sites, WorldCup98", WorldCup, Four),
        busy("A1", "A, micro-benchmarks", "read by message size, and from a busy target", Of::A1),
        Experiment {
            id: "A2",
            title: "response time by clients, none, TCP and one-sided admission control",
            figure: "A, single file trace",
            columns: ADMISSION_CLIENTS,
            plan: Plan::AdmissionClients,
        },
        Experiment {
            id: "A3",
            title: "response time over time, none, TCP and one-sided admission control",
            figure: "A, instant performance",
            columns: ADMISSION_RESPONSES,
            plan: Plan::AdmissionResponses,
        },
        Experiment {
            id: "A4",
            title: "who is turned away over time, none, TCP and one-sided",
            figure: "A, instant performance",
            columns: ADMISSION_DROPS,
            plan: Plan::AdmissionDrops,
        },
        Experiment {
            id: "A5",
            title: "who waits longer than promised, none, TCP and one-sided",
            figure: "A, QoS analysis",
            columns: ADMISSION_QOS,
            plan: Plan::AdmissionQos,
        },
        Experiment {
            id: "A6",
            title: "response time of WorldCup98 and Zipf, none, TCP and one-sided",
            figure: "A, WorldCup and Zipf trace",
            columns: ADMISSION_WORKLOAD,
            plan: Plan::AdmissionWorkload,
        },
        Experiment {
            id: "A7",
            title: "half to ten times the capacity: none, one-sided admission control, and ours",
            figure: OWN,
            columns: OVERLOAD,
            plan: Plan::Overload,
        },
        Experiment {
            id: "A8",
            title: "half to ten times the capacity: ours beside Envoy, HAProxy and httpd",
            figure: OWN,
            columns: OVERLOAD,
            plan: Plan::OverloadPeers,
        },
        rams("C1", "C Figure 1", "response time by trace and update protocol, 64 nodes", Rams::Traces),
        rams("C2", "C Figure 2", "response time by cluster size", Rams::Response),
        rams("C3", "C Figure 3", "throughput by cluster size", Rams::Throughput),
        rams("C4", "C Figure 4", "one-sided reads that fail, by cluster size", Rams::Failures),
        Experiment {
            id: "M3",
            title: "how long a look at a node's load takes, by busy threads",
            figure: "M Figure 3",
            columns: LOAD_LATENCY,
            plan: Plan::LoadLatency,
        },
        Experiment {
            id: "M4",
            title: "an application slowed down by monitoring, by granularity",
            figure: "M Figure 4",
            columns: LOAD_SLOWDOWN,
            plan: Plan::LoadSlowdown,
        },
        Experiment {
            id: "M5",
            title: "threads and CPU load against the truth",
            figure: "M Figure 5",
            columns: LOAD_ACCURACY,
            plan: Plan::LoadAccuracy,
        },
        Experiment {
            id: "M6",
            title: "pending interrupts seen, by CPU",
            figure: "M Figure 6",
            columns: LOAD_INTERRUPTS,
            plan: Plan::LoadInterrupts,
        },
        Experiment {
            id: "M8",
            title: "longest response times while Ganglia is told of the load, by granularity",
            figure: "M Figure 8",
            columns: LOAD_GANGLIA,
            plan: Plan::LoadGanglia,
        },
        Experiment {
            id: "M9",
            title: "throughput of two co-hosted sites by monitoring granularity",
            figure: "M Figure 9",
            columns: LOAD_GRANULARITY,
            plan: Plan::LoadGranularity,
        },
        Experiment {
            id: "MZ",
            title: "throughput of two co-hosted sites by Zipf's exponent",
            figure: "M Figure 7",
            columns: LOAD_ALPHA,
            plan: Plan::LoadAlpha,
        },
        Experiment {
            id: "S1",
            title: "throughput by burst length, simulated beside live",
            figure: OWN,
            columns: BESIDE,
            plan: Plan::Beside,
        },
        Experiment {
            id: "S2",
            title: "reconfiguration from 8 to 10,000 simulated nodes while balancers die",
            figure: OWN,
            columns: SCALE,
            plan: Plan::Scale,
        },
        Experiment {
            id: "perftest",
            title: "operations over RDMA beside perftest's",
            figure: OWN,
            columns: PERFTEST,
            plan: Plan::Perftest,
        },
        Experiment {
            id: "sim-speed",
            title: "the simulator beside NexoSim, simpy and libCacheSim",
            figure: OWN,
            columns: SIM_SPEED,
            plan: Plan::SimSpeed,
        },
        Experiment {
            id: "edge-overhead",
            title: "the edge beside a bare Pingora proxy",
            figure: OWN,
            columns: EDGE_OVERHEAD,
            plan: Plan::EdgeOverhead,
        },
        Experiment {
            id: "move-latency",
            title: "load step to first request on a moved node",
            figure: OWN,
            columns: MOVE_LATENCY,
            plan: Plan::MoveLatency { demand: SingleFile(KB) },
        },
    ]
};

/// All that there are: the published ones by number, then our own.
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

    #[test]
    fn each_is_found_by_its_id() {
        for experiment in experiments() {
            assert_eq!(find(&experiment.id.to_lowercase()).unwrap(), experiment);
            match experiment.id.strip_prefix('R') {
                Some(number) => assert_eq!(experiment.figure, format!("R Figure {number}")),
                None if experiment.id.starts_with('M') => assert!(experiment.figure.starts_with("M Figure ")),
                None if experiment.id.starts_with('C') => {
                    assert_eq!(experiment.figure, format!("C Figure {}", &experiment.id[1..]));
                }
                None if ["A7", "A8"].contains(&experiment.id) => assert_eq!(experiment.figure, OWN),
                None if experiment.id.starts_with('A') => assert!(experiment.figure.starts_with("A, ")),
                None => assert_eq!(experiment.figure, OWN),
            }
        }
    }

    #[test]
    fn an_unknown_one_lists_the_known() {
        let error = find("R4").unwrap_err().to_string();
        assert!(
            error.starts_with("no experiment \"R4\"; there are R5, R6,")
                && error.ends_with(
                    "R24, A1, A2, A3, A4, A5, A6, A7, A8, C1, C2, C3, C4, M3, M4, M5, M6, M8, M9, MZ, S1, S2, perftest, sim-speed, \
                     edge-overhead, \
                     move-latency"
                ),
            "{error}"
        );
    }
}
