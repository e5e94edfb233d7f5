//! `sidelong-lab perf load`: the cost and accuracy of a node's load, by scheme (Vaidyanathan et al. 2006, 5.1).
//!
//! The node is `sidelong node`, a process pinned to one CPU with all that keeps it busy; this side, pinned to another, samples
//! it with the code of an edge. Only the cluster file is made for the measurement.
//!
//! | part | what it is |
//! |---|---|
//! | `args` | the command line |
//! | `node` | the node's process |
//! | `reader` | the sampling side |
//! | `threads` | load on the node's CPU with known start times |
//! | `truth` | the kernel's own figures |
//! | `measure` | the measurements |
//! | `figures` | the results |

mod args;
mod figures;
mod measure;
mod node;
mod reader;
pub mod results;
mod threads;
mod truth;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::load::results::{Figures, Found, Placement};
use sidelong_app::Parts;
use sidelong_load::Scheme;

pub(crate) use args::LoadArgs;
use args::Measure;
use measure::unless_stopped;
use node::{Ground, Node};
use reader::Reader;
use truth::Truth;

use crate::background::Background;
use crate::cpus;
use crate::session::stop_flag;
use sidelong_app::Failure;

/// All busy threads must have started within this time.
const BUSY_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// The common state of all measurements.
struct Stage<'a> {
    args: &'a LoadArgs,
    ground: Ground,
    parts: Parts,
    target_cpu: Option<usize>,
    this_cpu: Option<usize>,
    stop: &'a AtomicBool,
    /// The node, while there is one.
    node: Option<Node>,
}

pub(crate) fn run(args: &LoadArgs) -> Result<(), Failure> {
    args.check()?;
    let stop = stop_flag()?;
    let (target_cpu, this_cpu) = cpus::both(args.pin)?;
    for cpu in [target_cpu, this_cpu] {
        // Checked while this process is not yet pinned.
        cpus::is_allowed(cpu)?;
    }
    let ground = Ground::new(args.scheme, args.period())?;
    let parts = Parts::new(ground.file.cluster()?)?;
    let mut stage = Stage { args, ground, parts, target_cpu, this_cpu, stop: &stop, node: None };
    let (scheme, found) = if args.measure == Measure::Slowdown {
        let scheme = stage.start_and_link()?.1.scheme();
        (scheme, Found::Slowdown(measure::slowdown(&mut stage)?))
    } else {
        stage.beside_a_node()?
    };
    let figures = Figures {
        scheme: scheme.to_string(),
        background: args.background,
        granularity_ms: args.granularity().as_secs_f64() * 1e3,
        period_ms: args.period().as_secs_f64() * 1e3,
        placement: Placement { node_cpu: target_cpu, this_cpu },
        found,
    };
    figures::print(&figures, args.json)
}

impl Stage<'_> {
    /// Measures beside a node that runs throughout.
    fn beside_a_node(&mut self) -> Result<(Scheme, Found), Failure> {
        let (node, mut reader) = self.start_and_link()?;
        self.node = Some(node);
        let _background = match self.args.measure {
            // Its threads come and go.
            Measure::Accuracy => None,
            _ if self.args.background == 0 => None,
            _ => Some(self.keep_busy()?),
        };
        let found = match self.args.measure {
            Measure::Step => Found::Step(measure::steps(self, &mut reader)?),
            Measure::Accuracy => Found::Accuracy(measure::accuracy(self, &mut reader)?),
            Measure::Interrupts => Found::Interrupts(measure::interrupts(self, &mut reader)?),
            Measure::Latency | Measure::Slowdown => Found::Latency(measure::latency(self, &mut reader)?),
        };
        Ok((reader.scheme(), found))
    }

    /// Starts the busy threads on the node's CPU, and waits until all have started. Otherwise the first steps would
    /// include their start.
    fn keep_busy(&self) -> Result<Background, Failure> {
        cpus::put(self.target_cpu)?;
        let background = Background::start(self.args.background);
        cpus::put(self.this_cpu)?;
        let background = background.map_err(|error| Failure(format!("background threads: {error}")))?;
        let (truth, begun) = (Truth::open()?, Instant::now());
        while truth.now(&[])?.0 < self.args.background {
            unless_stopped(self.stop)?;
            if begun.elapsed() > BUSY_MAX {
                let seconds = BUSY_MAX.as_secs();
                return Err(Failure(format!("the background threads did not all begin within {seconds} s")));
            }
            std::thread::sleep(POLL);
        }
        Ok(background)
    }

    /// Starts a node on its CPU; this side returns to its own.
    fn start(&self) -> Result<Node, Failure> {
        cpus::put(self.target_cpu)?;
        let node = self.ground.start();
        cpus::put(self.this_cpu)?;
        node
    }

    fn start_and_link(&self) -> Result<(Node, Reader), Failure> {
        let node = self.start()?;
        Ok((node, Reader::new(&self.parts)?))
    }

    /// Checks between two samples that the node lives and nobody pressed Ctrl-C.
    fn check(&mut self) -> Result<(), Failure> {
        unless_stopped(self.stop)?;
        self.node.as_mut().map_or(Ok(()), Node::is_there)
    }
}
