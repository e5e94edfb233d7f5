//! What Gu and Wang 2004 state of each figure, what is aimed at beyond that, and what runs show of it.

use super::{C_PROTOCOLS, Of, Row, THRESHOLD, TRACE_NODES};
use crate::check::Check;

/// A published statement, or a target of Sidelong's own.
pub(super) struct Statement {
    /// What the paper has, if the statement is its own.
    pub(super) published: Option<&'static str>,
    pub(super) check: Check,
}

impl Statement {
    fn published(published: &'static str, check: Check) -> Statement {
        Statement { published: Some(published), check }
    }

    fn ours(check: Check) -> Statement {
        Statement { published: None, check }
    }
}

/// The runs of a figure, with `sizes` nodes; of traces, with [`TRACE_NODES`].
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) of: Of,
    pub(super) sizes: &'a [u32],
    pub(super) rows: &'a [Row],
}

impl<'a> Judge<'a> {
    /// What a protocol makes of the baseline's figure: of the response time with the second best trace, and with the worst
    /// size; of the throughput, as the mean over sizes; of lazy's failures, with the best size.
    pub(super) fn beside(self, protocol: &str) -> Option<f64> {
        match self.of {
            Of::Traces => {
                let mut cases: Vec<&str> = self.rows.iter().map(|row| row.case.as_str()).collect();
                cases.dedup();
                let of = |case| self.ratio(case, TRACE_NODES, protocol, "rpc");
                let mut ratios: Vec<f64> = cases.into_iter().filter_map(of).collect();
                ratios.sort_by(f64::total_cmp);
                // Two are at least as good.
                ratios.get(1).copied()
            }
            Of::Response => most(self.by_size(|nodes| self.ratio(self.case(), nodes, protocol, "rpc"))?),
            Of::Throughput => mean(self.by_size(|nodes| self.ratio(self.case(), nodes, protocol, "rpc"))?),
            Of::Failures => {
                let of = |nodes| self.ratio(self.case(), nodes, protocol, "lazy");
                self.lazy_fails().filter_map(of).reduce(f64::min)
            }
        }
    }

    /// The paper's own value of that, of the protocols that it proposes.
    pub(super) const fn published(self) -> f64 {
        match self.of {
            Of::Traces => 0.5,
            Of::Response => 1.0,
            Of::Throughput => 2.0,
            Of::Failures => 0.25,
        }
    }

    pub(super) fn statements(self) -> Vec<Statement> {
        match self.of {
            Of::Traces => vec![
                Statement::published(
                    "below 0.5",
                    Check::at_most(
                        "response time / RPC's on two traces, the worst of the published protocols but aggressive",
                        0.5,
                        self.of_published(most),
                    ),
                ),
                Statement::ours(Check::at_most(
                    "response time / RPC's on two traces, ledger",
                    0.5,
                    self.beside("ledger"),
                )),
            ],
            Of::Response => vec![
                Statement::published(
                    "below 1",
                    Check::at_most(
                        "response time / RPC's, the worst of the published protocols at any size",
                        1.0,
                        self.of_published(most),
                    ),
                ),
                Statement::published(
                    "1: it is the best",
                    Check::at_most(
                        "accumulated's response time / the best of the published, the worst size",
                        1.0,
                        self.by_size(|nodes| {
                            Some(self.value(nodes, "accumulated")? / self.of_size(nodes, least)?)
                        })
                        .and_then(most),
                    ),
                ),
                Statement::ours(Check::at_most(
                    "response time / RPC's, ledger at any size",
                    1.0,
                    self.beside("ledger"),
                )),
            ],
            Of::Throughput => {
                let of_best = |protocol: &str| {
                    let of = |nodes| Some(self.value(nodes, protocol)? / self.of_size(nodes, most)?);
                    self.by_size(of).and_then(mean)
                };
                vec![
                    Statement::published(
                        "about 2",
                        Check::at_least(
                            "throughput / RPC's, mean over the published protocols and sizes",
                            1.8,
                            self.of_published(mean),
                        ),
                    ),
                    Statement::published(
                        "1: it is the best",
                        Check::at_least(
                            "sender's throughput / the best of the published, mean over sizes",
                            1.0,
                            of_best("sender"),
                        ),
                    ),
                    Statement::ours(Check::at_least(
                        "ledger's throughput / the best of the published, mean over sizes",
                        1.0,
                        of_best("ledger"),
                    )),
                ]
            }
            Of::Failures => self.failures(),
        }
    }

    fn failures(self) -> Vec<Statement> {
        let best = |nodes: u32| {
            let of = THRESHOLD.iter().filter_map(|protocol| self.row(self.case(), nodes, protocol));
            of.min_by(|a, b| a.figures.read_failure_rate.total_cmp(&b.figures.read_failure_rate))
        };
        let ledger = |of: fn(&Row) -> f64| {
            let beside = |nodes| Some(part(of(self.row(self.case(), nodes, "ledger")?), of(best(nodes)?)));
            self.lazy_fails().filter_map(beside).reduce(f64::max)
        };
        let lowered = THRESHOLD.iter().filter_map(|protocol| Some(1.0 - self.beside(protocol)?));
        let [few, many] = [self.sizes.first(), self.sizes.last()].map(|nodes| nodes.copied().unwrap_or(0));
        let grows = || Some(self.value(many, "lazy")? / self.value(few, "lazy")?).filter(|r| r.is_finite());
        vec![
            Statement::published(
                "0.75",
                Check::at_least(
                    "reads that fail, lowered below lazy's by up to",
                    0.7,
                    lowered.reduce(f64::max),
                )
                .possible(f64::NEG_INFINITY..=1.0),
            ),
            Statement::published(
                "above 1",
                Check::at_least(
                    format!("reads that fail with {many} nodes / with {few}, lazy"),
                    1.0,
                    grows(),
                ),
            ),
            Statement::ours(Check::at_most(
                "reads that fail, ledger / the best of the published at the same size, at most",
                0.5,
                ledger(|row| row.figures.read_failure_rate),
            )),
            Statement::ours(Check::at_most(
                "bytes for updates, ledger / the best of the published at the same size, at most",
                1.0,
                ledger(|row| row.figures.update_bytes_per_request),
            )),
        ]
    }

    /// The case of all runs of a figure other than that of traces.
    fn case(self) -> &'a str {
        self.rows.first().map_or("", |row| row.case.as_str())
    }

    fn row(self, case: &str, nodes: u32, protocol: &str) -> Option<&'a Row> {
        self.rows.iter().find(|row| row.case == case && row.nodes == nodes && row.protocol == protocol)
    }

    fn value(self, nodes: u32, protocol: &str) -> Option<f64> {
        self.row(self.case(), nodes, protocol).map(|row| self.of.value(row))
    }

    fn ratio(self, case: &str, nodes: u32, protocol: &str, other: &str) -> Option<f64> {
        let value = |protocol| self.row(case, nodes, protocol).map(|row| self.of.value(row));
        Some(value(protocol)? / value(other)?)
    }

    /// Sizes with which something is to be lowered.
    fn lazy_fails(self) -> impl Iterator<Item = u32> {
        let fails = move |nodes: &u32| {
            let lazy = self.row(self.case(), *nodes, "lazy");
            lazy.is_some_and(|row| row.figures.read_failure_rate >= 0.001)
        };
        self.sizes.iter().copied().filter(fails)
    }

    /// For every size, if each is known.
    fn by_size(self, of: impl Fn(u32) -> Option<f64>) -> Option<Vec<f64>> {
        self.sizes.iter().map(|nodes| of(*nodes)).collect()
    }

    /// Of the published protocols but aggressive, if each is known.
    fn of_published(self, of: fn(Vec<f64>) -> Option<f64>) -> Option<f64> {
        of(C_PROTOCOLS.iter().map(|protocol| self.beside(protocol)).collect::<Option<_>>()?)
    }

    /// The same of their figures with this size.
    fn of_size(self, nodes: u32, of: fn(Vec<f64>) -> Option<f64>) -> Option<f64> {
        of(C_PROTOCOLS.iter().map(|protocol| self.value(nodes, protocol)).collect::<Option<_>>()?)
    }
}

fn most(values: Vec<f64>) -> Option<f64> {
    values.into_iter().reduce(f64::max)
}

fn least(values: Vec<f64>) -> Option<f64> {
    values.into_iter().reduce(f64::min)
}

fn mean(values: Vec<f64>) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The ratio of the first to the second. 0 over 0 counts as 0, and anything else over 0 as infinite.
fn part(ours: f64, theirs: f64) -> f64 {
    if ours == 0.0 { 0.0 } else { ours / theirs }
}

#[cfg(test)]
mod tests {
    use super::super::{Figures, SIZES, checks};
    use super::*;

    fn row(nodes: u32, protocol: &str, ms: f64, rate: f64, failing: f64, bytes: f64) -> Row {
        Row {
            case: String::new(),
            nodes,
            protocol: protocol.to_owned(),
            figures: Figures {
                response_ms_mean: ms,
                requests_per_s: rate,
                read_failure_rate: failing,
                update_bytes_per_request: bytes,
                ..Figures::default()
            },
        }
    }

    /// Rows as in the paper.
    fn published() -> Vec<Row> {
        let of = |(i, nodes): (usize, u32)| {
            let lazy = 0.2 + 0.1 * i as f64;
            [
                row(nodes, "rpc", 3.0, 100.0, 0.0, 0.0),
                row(nodes, "lazy", 1.4, 190.0, lazy, 0.0),
                row(nodes, "sender", 1.2, 215.0, lazy / 4.0, 20.0),
                row(nodes, "receiver", 1.3, 200.0, lazy / 3.0, 30.0),
                row(nodes, "accumulated", 1.2, 205.0, lazy / 3.0, 10.0),
                row(nodes, "ledger", 1.1, 216.0, lazy / 10.0, 20.0),
            ]
        };
        SIZES.into_iter().enumerate().flat_map(of).collect()
    }

    #[test]
    fn the_papers_own_shapes_are_met() {
        for of in [Of::Response, Of::Throughput, Of::Failures] {
            for check in checks(of, &published()) {
                assert_eq!(check.verdict(), "met", "{check:?}");
            }
        }
        let mut traces = Vec::new();
        for (case, rpc) in [("a", 3.0), ("b", 3.0), ("c", 1.5)] {
            for protocol in C_PROTOCOLS.into_iter().chain(["ledger"]) {
                traces.push(Row { case: case.to_owned(), ..row(64, protocol, 1.0, 0.0, 0.0, 0.0) });
            }
            traces.push(Row { case: case.to_owned(), ..row(64, "rpc", rpc, 0.0, 0.0, 0.0) });
        }
        assert!(checks(Of::Traces, &traces).iter().all(|check| check.verdict() == "met"));
        // One trace is not two.
        assert_eq!(checks(Of::Traces, &traces[..6])[0].verdict(), "not measured");
    }

    #[test]
    fn shapes_that_are_not_there_are_missed() {
        let mut rows = published();
        for row in &mut rows {
            row.figures.read_failure_rate = match row.protocol.as_str() {
                "lazy" => 0.3 / f64::from(row.nodes),
                "rpc" => 0.0,
                _ => 0.2 / f64::from(row.nodes),
            };
            row.figures.update_bytes_per_request = if row.protocol == "ledger" { 21.0 } else { 20.0 };
            row.figures.response_ms_mean = match row.protocol.as_str() {
                "rpc" => 1.0,
                "accumulated" => 1.2,
                _ => 1.1,
            };
            row.figures.requests_per_s = if row.protocol == "rpc" { 90.0 } else { 100.0 };
        }
        assert!(checks(Of::Failures, &rows).iter().all(|check| check.verdict() == "MISSED"));
        assert!(checks(Of::Response, &rows).iter().all(|check| check.verdict() == "MISSED"));
        assert_eq!(checks(Of::Throughput, &rows)[0].verdict(), "MISSED");
        assert!(checks(Of::Failures, &[]).iter().all(|check| check.verdict() == "not measured"));
        // More than nothing is infinitely more.
        rows.iter_mut()
            .filter(|row| row.protocol != "ledger")
            .for_each(|row| row.figures.update_bytes_per_request = 0.0);
        let bytes = &checks(Of::Failures, &rows)[3];
        assert_eq!((bytes.verdict(), bytes.measured), ("MISSED", Some(f64::INFINITY)));
    }
}
