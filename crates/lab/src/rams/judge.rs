//! What Gu and Wang 2004 state of each figure, what is aimed at beyond that, and what runs show of it.

use sidelong_figure::statistics;

use crate::check::Check;
use crate::samples::Samples;
use crate::series::{Series, most};

/// The paper's protocols without the baseline and without the upper bound, which it reports to lose.
const PUBLISHED: [&str; 4] = ["lazy", "sender", "receiver", "accumulated"];
/// Protocols with a threshold.
const THRESHOLD: [&str; 3] = ["sender", "receiver", "accumulated"];
/// With a lesser share of reads that fail there is nothing to be lowered.
const FAILING_MIN: f64 = 0.001;

/// The figure of the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    Traces,
    Response,
    Throughput,
    Failures,
}

/// A published statement, or a target of Sidelong's own.
pub(super) struct Statement {
    /// What the paper has, if the statement is its own.
    pub(super) published: Option<&'static str>,
    pub(super) check: Check,
}

/// The runs of a figure.
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) of: Of,
    /// What their cases end in, behind place and protocol.
    pub(super) by: &'a str,
    pub(super) samples: &'a Samples,
}

impl Judge<'_> {
    /// What a protocol makes of the baseline's figure: of the response time with the second best trace, and with the worst
    /// size; of the throughput, as the mean over sizes; of lazy's failures, with the best size.
    pub(super) fn beside(self, protocol: &str) -> Series {
        let ratio = |place: &String| match self.of {
            Of::Failures => self.value(place, protocol) / self.failing(place),
            _ => self.value(place, protocol) / self.value(place, "rpc"),
        };
        match self.of {
            Of::Traces => {
                let traces =
                    self.samples.begins("*").into_iter().filter(|place| place.parse::<u32>().is_err());
                some(&traces.map(|trace| ratio(&trace)).collect::<Vec<_>>(), |mut ratios| {
                    ratios.sort_by(f64::total_cmp);
                    // Two are at least as good.
                    ratios.get(1).copied()
                })
            }
            Of::Response => self.by_size(most, ratio),
            Of::Throughput => self.by_size(mean, ratio),
            Of::Failures => some(&self.sizes().iter().map(ratio).collect::<Vec<_>>(), least),
        }
    }

    pub(super) fn statements(self) -> Vec<Statement> {
        let published = |published, check| Statement { published: Some(published), check };
        let ours = |check| Statement { published: None, check };
        match self.of {
            Of::Traces => {
                let worst = "response time / RPC's on two traces, the worst of the published protocols but aggressive";
                let ledger = "response time / RPC's on two traces, ledger";
                vec![
                    published("below 0.5", Check::at_most(worst, 0.5, self.published(most))),
                    ours(Check::at_most(ledger, 0.5, self.beside("ledger"))),
                ]
            }
            Of::Response => {
                let worst = "response time / RPC's, the worst of the published protocols at any size";
                let best = "accumulated's response time / the best of the published, the worst size";
                let ledger = "response time / RPC's, ledger at any size";
                let accumulated =
                    self.by_size(most, |nodes| self.value(nodes, "accumulated") / self.best(nodes, least));
                vec![
                    published("below 1", Check::at_most(worst, 1.0, self.published(most))),
                    published("1: it is the best", Check::at_most(best, 1.0, accumulated)),
                    ours(Check::at_most(ledger, 1.0, self.beside("ledger"))),
                ]
            }
            Of::Throughput => {
                let all = "throughput / RPC's, mean over the published protocols and sizes";
                let sender = "sender's throughput / the best of the published, mean over sizes";
                let ledger = "ledger's throughput / the best of the published, mean over sizes";
                let of_best = |protocol| {
                    self.by_size(mean, |nodes| self.value(nodes, protocol) / self.best(nodes, most))
                };
                vec![
                    published("about 2", Check::at_least(all, 1.8, self.published(mean))),
                    published("1: it is the best", Check::at_least(sender, 1.0, of_best("sender"))),
                    ours(Check::at_least(ledger, 1.0, of_best("ledger"))),
                ]
            }
            Of::Failures => {
                let sizes = self.sizes();
                let [few, many] = [sizes.first(), sizes.last()].map(|size| size.map_or("0", String::as_str));
                let lowered = "reads that fail, lowered below lazy's by up to";
                let grown = format!("reads that fail with {many} nodes / with {few}, lazy");
                let failing = "reads that fail, ledger / the best of the published at the same size, at most";
                let bytes = "bytes for updates, ledger / the best of the published at the same size, at most";
                let parts = THRESHOLD.map(|protocol| self.beside(protocol) * -1.0 + 1.0);
                let growth = self.value(many, "lazy") / self.value(few, "lazy");
                let lowered = Check::at_least(lowered, 0.7, some(&parts, most));
                vec![
                    published("0.75", lowered.possible(f64::NEG_INFINITY..=1.0)),
                    published("above 1", Check::at_least(grown, 1.0, growth)),
                    ours(Check::at_most(failing, 0.5, self.ledger_to_best("read_failure_rate"))),
                    ours(Check::at_most(bytes, 1.0, self.ledger_to_best("update_bytes_per_request"))),
                ]
            }
        }
    }

    /// A figure of ledger over that of the protocol with a threshold by which the fewest reads fail: the greatest, of the sizes at which
    /// there is something to be lowered.
    fn ledger_to_best(self, measure: &str) -> Series {
        let ratio = |nodes: &String| {
            let failing = THRESHOLD.map(|protocol| self.value(nodes, protocol));
            let fewest = some(&failing, least);
            let of_best = |(protocol, failing): (&str, &Series)| {
                self.figure(nodes, protocol, measure)
                    + failing.with(&fewest, |one, fewest| only(0.0, one == fewest))
            };
            let best: Vec<Series> = THRESHOLD.into_iter().zip(&failing).map(of_best).collect();
            // Nothing over nothing is nothing, and more than nothing is infinitely more.
            let part = |ours: f64, theirs: f64| if ours == 0.0 { 0.0 } else { ours / theirs };
            let ours = self.figure(nodes, "ledger", measure);
            ours.with(&some(&best, |best| best.first().copied()), part) + self.failing(nodes) * 0.0
        };
        some(&self.sizes().iter().map(ratio).collect::<Vec<_>>(), most)
    }

    fn sizes(self) -> Vec<String> {
        let nodes = self.samples.settings.get("nodes").and_then(|nodes| nodes.as_array());
        nodes.into_iter().flatten().map(ToString::to_string).collect()
    }

    fn figure(self, place: &str, protocol: &str, measure: &str) -> Series {
        let figures = self.samples.get(&format!("{place}/{protocol}{}", self.by));
        figures.map_or_else(Series::default, |figures| figures[measure].clone())
    }

    /// The figure that the paper compares.
    fn value(self, place: &str, protocol: &str) -> Series {
        let measure = match self.of {
            Of::Traces | Of::Response => "response_ms_mean",
            Of::Throughput => "requests_per_s",
            Of::Failures => "read_failure_rate",
        };
        self.figure(place, protocol, measure)
    }

    /// The share of lazy's reads that fail, where it is enough to be lowered.
    fn failing(self, nodes: &str) -> Series {
        let lazy = self.figure(nodes, "lazy", "read_failure_rate");
        lazy.with(&lazy, |share, _| only(share, share >= FAILING_MIN))
    }

    /// What `of` makes of the sizes, if each is known.
    fn by_size(self, of: fn(Vec<f64>) -> Option<f64>, figure: impl Fn(&String) -> Series) -> Series {
        all(&self.sizes().iter().map(figure).collect::<Vec<_>>(), of)
    }

    /// What `of` makes of the published protocols but aggressive, if each is known.
    fn published(self, of: fn(Vec<f64>) -> Option<f64>) -> Series {
        all(&PUBLISHED.map(|protocol| self.beside(protocol)), of)
    }

    /// What `of` makes of the published protocols' figures with this size, but aggressive's.
    fn best(self, nodes: &str, of: fn(Vec<f64>) -> Option<f64>) -> Series {
        all(&PUBLISHED.map(|protocol| self.value(nodes, protocol)), of)
    }
}

/// What `of` makes in each repetition of the series that have a figure there.
pub(super) fn some(series: &[Series], of: impl Fn(Vec<f64>) -> Option<f64>) -> Series {
    Series::combine(&series.iter().collect::<Vec<_>>(), of)
}

/// What `of` makes in each repetition of the series, if all have a figure there.
fn all(series: &[Series], of: fn(Vec<f64>) -> Option<f64>) -> Series {
    some(series, |values| of(values.len().eq(&series.len()).then_some(values)?))
}

/// A figure that counts only under a condition. In arithmetic of series, what is no number counts as not measured.
pub(super) fn only(figure: f64, is_so: bool) -> f64 {
    if is_so { figure } else { f64::NAN }
}

fn least(values: Vec<f64>) -> Option<f64> {
    values.into_iter().reduce(f64::min)
}

fn mean(values: Vec<f64>) -> Option<f64> {
    statistics::mean(&values)
}

#[cfg(test)]
mod tests {
    use super::super::{C1, C2, C3, C4, SIZES};
    use super::*;
    use crate::design::tests::judged;

    /// A run: its protocol, response time, requests/s, share of reads that fail, and bytes for updates.
    type Run = (&'static str, f64, f64, f64, f64);

    fn put(samples: &mut Samples, place: &str, (protocol, ms, per_s, failing, bytes): Run) {
        let figures = [
            ("response_ms_mean", ms),
            ("requests_per_s", per_s),
            ("read_failure_rate", failing),
            ("update_bytes_per_request", bytes),
        ];
        samples.put(&format!("{place}/{protocol}"), figures);
    }

    #[test]
    fn the_papers_own_shapes_are_met() {
        let published = |samples: &mut Samples| {
            for (i, nodes) in SIZES.into_iter().enumerate() {
                let lazy = 0.2 + 0.1 * i as f64;
                for run in [
                    ("rpc", 3.0, 100.0, 0.0, 0.0),
                    ("lazy", 1.4, 190.0, lazy, 0.0),
                    ("sender", 1.2, 215.0, lazy / 4.0, 20.0),
                    ("receiver", 1.3, 200.0, lazy / 3.0, 30.0),
                    ("accumulated", 1.2, 205.0, lazy / 3.0, 10.0),
                    ("ledger", 1.1, 216.0, lazy / 10.0, 20.0),
                ] {
                    put(samples, &nodes.to_string(), run);
                }
            }
        };
        assert_eq!(judged(&C2, published), ["met"; 3]);
        assert_eq!(judged(&C3, published), ["met"; 3]);
        assert_eq!(judged(&C4, published), ["met"; 4]);
        let of_traces = |traces: &'static [(&str, f64)]| {
            judged(&C1, |samples| {
                for (trace, rpc_ms) in traces {
                    put(samples, trace, ("rpc", *rpc_ms, 0.0, 0.0, 0.0));
                    for protocol in PUBLISHED.into_iter().chain(["ledger"]) {
                        put(samples, trace, (protocol, 1.0, 0.0, 0.0, 0.0));
                    }
                }
            })
        };
        assert_eq!(of_traces(&[("a", 3.0), ("b", 3.0), ("c", 1.5)]), ["met"; 2]);
        assert_eq!(of_traces(&[("a", 3.0)]), ["not measured"; 2], "one trace is not two");
    }

    #[test]
    fn shapes_that_are_not_there_are_missed() {
        let verdicts = |experiment, bytes| {
            judged(experiment, |samples| {
                for nodes in SIZES {
                    let part = 1.0 / f64::from(nodes);
                    for run in [
                        ("rpc", 1.0, 90.0, 0.0, bytes),
                        ("lazy", 1.1, 100.0, 0.3 * part, bytes),
                        ("sender", 1.1, 100.0, 0.2 * part, bytes),
                        ("receiver", 1.1, 100.0, 0.2 * part, bytes),
                        ("accumulated", 1.2, 100.0, 0.2 * part, bytes),
                        ("ledger", 1.1, 100.0, 0.2 * part, 21.0),
                    ] {
                        put(samples, &nodes.to_string(), run);
                    }
                }
            })
        };
        assert_eq!(verdicts(&C4, 20.0), ["MISSED"; 4]);
        assert_eq!(verdicts(&C4, 0.0)[3], "MISSED", "more than nothing is infinitely more");
        assert_eq!(verdicts(&C2, 20.0), ["MISSED"; 3]);
        assert_eq!(verdicts(&C3, 20.0)[0], "MISSED");
        assert_eq!(judged(&C4, |_| ()), ["not measured"; 4]);
    }
}
