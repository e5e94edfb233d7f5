//! The experiments of Vaidyanathan et al. 2006, which compare the schemes of load collection.
//!
//! M3 to M6 run `sidelong perf load`, MT1, M7 and M8 the auction of `sidelong up`, M9 and MZ `sidelong up` with nodes that burn
//! CPU time. The report names a scheme that this machine refuses, with the reason; its checks are not measured.

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

use serde::Serialize;
use sidelong_config::Scheme;

pub(crate) use accuracy::run as accuracy;
pub(crate) use ganglia::run as ganglia;
pub(crate) use interactions::run as interactions;
pub(crate) use interrupts::run as interrupts;
pub(crate) use latency::run as latency;
pub(crate) use requests::{alpha, granularity};
pub(crate) use slowdown::run as slowdown;
pub(crate) use zipf::run as zipf;

use crate::bench::Bench;
use crate::drawing::Drawing;
use crate::error::{Error, Result};
use crate::figure::{Axis, Line, Panel, Style};
use crate::perf;
use crate::results::load::{Figures, Found, Placement};
use crate::story::Story;

/// The schemes in the order of the paper.
const SCHEMES: [Scheme; 5] =
    [Scheme::SocketAsync, Scheme::SocketSync, Scheme::RdmaAsync, Scheme::RdmaSync, Scheme::ERdmaSync];
/// Time to start the processes of `perf load`.
const START: Duration = Duration::from_millis(500);

/// A scheme that this machine refuses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Refused {
    scheme: Scheme,
    why: String,
}

/// The schemes to compare, and those that this machine refuses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
struct Schemes {
    all: Vec<Scheme>,
    refused: Vec<Refused>,
}

impl Schemes {
    /// Tries each scheme on this machine.
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

impl Placement {
    fn describe(self) -> String {
        let on = |cpu: Option<usize>| cpu.map_or_else(|| "any CPU".to_owned(), |cpu| format!("CPU {cpu}"));
        format!(
            "The node and all load are held to {}, the sampling side to {}.",
            on(self.node_cpu),
            on(self.this_cpu)
        )
    }
}

/// Runs `perf load` with `arguments`, planned for `time`. Returns the placement of its sides and its findings.
fn load<T: TryFrom<Found>>(
    bench: &Bench<'_>,
    name: &str,
    arguments: &[&str],
    time: Duration,
) -> Result<(Placement, T)> {
    let path = perf::output(bench, name, &[&["load"], arguments].concat(), time)?;
    let figures: Figures = match serde_json::from_str(&perf::text(&path)?) {
        Ok(figures) => figures,
        Err(error) => {
            return Err(Error::Output { path, found: format!("not what perf load prints: {error}") });
        }
    };
    match T::try_from(figures.found) {
        Ok(found) => Ok((figures.placement, found)),
        Err(_) => Err(Error::Output { path, found: "the figures of another measurement".to_owned() }),
    }
}

fn style(scheme: Scheme) -> Style {
    match scheme {
        Scheme::SocketAsync => Style::BASELINE,
        Scheme::SocketSync => Style::FOURTH,
        Scheme::RdmaAsync => Style::THIRD,
        Scheme::RdmaSync | Scheme::Auto => Style::OURS,
        Scheme::ERdmaSync => Style::FIFTH,
    }
}

/// Panels with a line for each scheme.
fn drawing(schemes: &Schemes, panels: impl Into<Vec<Panel>>) -> Drawing {
    let legend = schemes.all.iter().map(|scheme| (scheme.to_string(), style(*scheme))).collect();
    Drawing { panels: panels.into(), legend, ..Drawing::default() }
}

/// Ends a report: what differs from the paper, and how it was measured.
fn close(story: &mut Story, schemes: &Schemes, absent: &[String], how: &str) {
    story.heading("What differs from the paper");
    let refused = schemes.refused.iter().map(|Refused { scheme, why }| format!("{scheme}: {why}."));
    let hardware = "Hardware: nodes and a front end that are machines of their own, joined by InfiniBand. Here all share one \
                    machine, one-sided reads go through its memory, and TCP through its loopback device; each side is held \
                    to a CPU.";
    story.list(refused.chain([hardware.to_owned()]).chain(absent.iter().cloned()));
    story.how(how);
}

/// A panel with a line for each scheme. The x values are powers of two. Logarithmic y values are given as
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
        Line::new(style(*scheme), values.iter().filter_map(at).collect())
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
            assert!(SCHEMES[..index].iter().all(|other| style(*other) != style(*scheme)), "{scheme}");
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
