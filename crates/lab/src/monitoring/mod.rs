//! M's experiments: the schemes by which load is had, beside each other.
//!
//! M3 to M6 run `sidelong perf load`, the others `sidelong up` with nodes that burn CPU time. A scheme that this machine refuses is named in the report with the reason, and what
//! would judge it is not measured.

mod accuracy;
mod ganglia;
mod interrupts;
mod latency;
mod pool;
mod requests;
mod slowdown;

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sidelong_config::Scheme;

pub(crate) use accuracy::run as accuracy;
pub(crate) use ganglia::run as ganglia;
pub(crate) use interrupts::run as interrupts;
pub(crate) use latency::run as latency;
pub(crate) use requests::{alpha, granularity};
pub(crate) use slowdown::run as slowdown;

use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::figure::{Axis, Line, Look, Panel};
use crate::perf;
use crate::report::Refused;

/// In the order of M.
const SCHEMES: [Scheme; 5] =
    [Scheme::SocketAsync, Scheme::SocketSync, Scheme::RdmaAsync, Scheme::RdmaSync, Scheme::ERdmaSync];
/// It takes this long to start what a run of `perf load` needs.
const START: Duration = Duration::from_millis(500);

/// What there is to compare, and why not more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Schemes {
    all: Vec<Scheme>,
    refused: Vec<Refused>,
}

impl Schemes {
    /// Those that work on this machine.
    fn here(bench: &Bench<'_>) -> Result<Schemes> {
        let mut schemes = Schemes { all: Vec::new(), refused: Vec::new() };
        for scheme in SCHEMES {
            let asked = ["load", "latency", "--scheme", scheme.as_str(), "--quick"];
            match perf::output(bench, &format!("try-{scheme}"), &asked, START) {
                Ok(_) => schemes.all.push(scheme),
                Err(Error::Failed { said, .. }) => {
                    let why = said.strip_prefix("sidelong: ").unwrap_or(&said).to_owned();
                    schemes.refused.push(Refused { scheme, why });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(schemes)
    }
}

/// Where `perf load` held each side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize, Serialize)]
struct Placement {
    node_cpu: Option<usize>,
    this_cpu: Option<usize>,
}

impl Placement {
    fn describe(self) -> String {
        let on = |cpu: Option<usize>| cpu.map_or_else(|| "any CPU".to_owned(), |cpu| format!("CPU {cpu}"));
        format!(
            "The node and all load are held to {}, the side that looks to {}.",
            on(self.node_cpu),
            on(self.this_cpu)
        )
    }
}

/// Runs `perf load` with `arguments`, which should take `time`, and reads what it printed.
fn load<T: DeserializeOwned>(bench: &Bench<'_>, name: &str, arguments: &[&str], time: Duration) -> Result<T> {
    let output = perf::output(bench, name, &[&["load"], arguments].concat(), time)?;
    let text = perf::text(&output)?;
    serde_json::from_str(&text)
        .map_err(|error| Error::Output { path: output, found: format!("not what perf load prints: {error}") })
}

fn look(scheme: Scheme) -> Look {
    match scheme {
        Scheme::SocketAsync => Look::BASELINE,
        Scheme::SocketSync => Look::FOURTH,
        Scheme::RdmaAsync => Look::THIRD,
        Scheme::RdmaSync | Scheme::Auto => Look::OURS,
        Scheme::ERdmaSync => Look::FIFTH,
    }
}

fn legend(schemes: &Schemes) -> Vec<(String, Look)> {
    schemes.all.iter().map(|scheme| (scheme.to_string(), look(*scheme))).collect()
}

/// A panel with a line for each scheme through `points`, of which the x are powers of two. Logarithmic ones are given as
/// their logarithms.
fn panel(
    title: &str,
    x: (&str, &[u32]),
    y: impl FnOnce(&[f64]) -> Axis,
    schemes: &Schemes,
    point: impl Fn(Scheme, u32) -> Option<f64>,
) -> Panel {
    let (x_title, values) = x;
    let line = |scheme: &Scheme| {
        let at = |x: &u32| Some((f64::from(*x).log2(), point(*scheme, *x).filter(|y| y.is_finite())?));
        Line { look: look(*scheme), points: values.iter().filter_map(at).collect() }
    };
    let lines: Vec<Line> = schemes.all.iter().map(line).collect();
    let all: Vec<f64> = lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y).collect();
    let ends = (values.first().copied().unwrap_or(1), values.last().copied().unwrap_or(2));
    let x = Axis::powers_of_two(x_title, ends.0.into(), ends.1.into());
    Panel { title: title.to_owned(), x, y: y(&all), lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn both() -> Schemes {
        let why = "there is no such kernel".to_owned();
        Schemes { all: SCHEMES[..4].to_vec(), refused: vec![Refused { scheme: Scheme::ERdmaSync, why }] }
    }

    #[test]
    fn every_scheme_looks_its_own() {
        for (index, scheme) in SCHEMES.iter().enumerate() {
            assert!(SCHEMES[..index].iter().all(|other| look(*other) != look(*scheme)), "{scheme}");
        }
    }

    #[test]
    fn powers_of_two_stand_at_equal_distances() {
        let panel =
            panel("t", ("x", &[1, 4, 64]), |_| Axis::from_zero("y", 1.0), &both(), |_, x| Some(f64::from(x)));
        assert_eq!(panel.lines[0].points, [(0.0, 1.0), (2.0, 4.0), (6.0, 64.0)]);
        let labels: Vec<_> = panel.x.ticks.iter().map(|tick| (panel.x.label)(*tick)).collect();
        assert_eq!(labels, ["1", "2", "4", "8", "16", "32", "64"]);
    }
}
