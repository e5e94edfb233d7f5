//! The experiments of Vaidyanathan et al. 2006, which compare the schemes of load collection.
//!
//! M3 to M6 run `sidelong-lab perf load`, MT1, M7 and M8 the auction of `sidelong up`, M9 `sidelong up` with nodes that burn CPU time. The
//! report names a scheme that this machine refuses, with the reason; its checks are not measured.

mod accuracy;
mod auction;
mod ganglia;
mod interactions;
mod interrupts;
mod latency;
mod pool;
mod requests;
mod slowdown;
mod zipf;

use std::time::Duration;

use serde_json::{Value, json};
use sidelong_config::Scheme;
use sidelong_figure::Style;

pub(crate) use accuracy::M5;
pub(crate) use ganglia::M8;
pub(crate) use interactions::MT1;
pub(crate) use interrupts::M6;
pub(crate) use latency::M3;
pub(crate) use requests::M9;
pub(crate) use slowdown::M4;
pub(crate) use zipf::M7;

use crate::bench::Bench;
use crate::design;
use crate::error::{Error, Result};
use crate::measure::{Dimension, Word};
use crate::perf;
use sidelong_perf::load::results::{Figures, Found, Placement};

/// The schemes in the order of the paper.
const SCHEMES: [Scheme; 5] =
    [Scheme::SocketAsync, Scheme::SocketSync, Scheme::RdmaAsync, Scheme::RdmaSync, Scheme::ERdmaSync];
/// The same schemes as what varies from case to case.
const SCHEME: Dimension = Dimension::new(
    "scheme",
    "scheme",
    &[
        Word::new("socket-async", "socket-async", Style::BASELINE),
        Word::new("socket-sync", "socket-sync", Style::FOURTH),
        Word::new("rdma-async", "rdma-async", Style::THIRD),
        Word::new("rdma-sync", "rdma-sync", Style::OURS),
        Word::new("e-rdma-sync", "e-rdma-sync", Style::FIFTH),
    ],
);
/// Time to start the processes of `perf load`.
const START: Duration = Duration::from_millis(500);

/// The settings of an experiment, with those that [`schemes`] and [`load`] find.
fn settings(own: Value) -> Value {
    design::settings(json!({ "refused": [], "placement": "" }), own)
}

/// The schemes that this machine allows. It tries each; a setting says why others are refused.
fn schemes(bench: &mut Bench<'_>) -> Result<Vec<Scheme>> {
    let (mut allowed, mut refused) = (Vec::new(), Vec::new());
    for scheme in SCHEMES {
        let asked = ["load", "latency", "--scheme", scheme.as_str(), "--quick"];
        match perf::output(bench, &format!("try-{scheme}"), &asked, START) {
            Ok(_) => allowed.push(scheme),
            Err(Error::Failed { said, .. }) => {
                let why = said.strip_prefix("sidelong: ").unwrap_or(&said);
                refused.push(format!("{scheme}: {why}"));
            }
            Err(error) => return Err(error),
        }
    }
    bench.set("refused", refused);
    Ok(allowed)
}

fn describe(placement: Placement) -> String {
    let on = |cpu: Option<usize>| cpu.map_or_else(|| "any CPU".to_owned(), |cpu| format!("CPU {cpu}"));
    format!(
        "The node and all load are held to {}, the sampling side to {}.",
        on(placement.node_cpu),
        on(placement.this_cpu)
    )
}

/// Runs `perf load` with `arguments`, planned for `time`.
fn load<T: TryFrom<Found>>(
    bench: &mut Bench<'_>,
    name: &str,
    arguments: &[&str],
    time: Duration,
) -> Result<T> {
    let path = perf::output(bench, name, &[&["load"], arguments].concat(), time)?;
    let figures: Figures = match serde_json::from_str(&perf::text(&path)?) {
        Ok(figures) => figures,
        Err(error) => {
            return Err(Error::Output { path, found: format!("not what perf load prints: {error}") });
        }
    };
    bench.set("placement", describe(figures.placement));
    T::try_from(figures.found)
        .map_err(|_| Error::Output { path, found: "the figures of another measurement".to_owned() })
}
