//! `report.md` of perftest.

use super::{OPERATIONS, Row, Settings, of};
use crate::check::median;
use crate::report::{Markdown, Outcome, number};

pub(super) fn markdown(outcome: &Outcome<'_, Row, Settings>) -> String {
    let rows = outcome.rows;
    let mut report = Markdown::new(outcome.experiment, outcome.quick);
    report.paragraph(
        "Reads and atomics are timed from their posting to their completion by both. A write is half of a ping-pong, as \
         `ib_write_lat` counts: each side writes when it has seen the other's write in its own memory. perftest posts \
         prepared requests on one queue pair; ours go through the fabric's batches, as those of an edge do.",
    );
    report.checks(outcome.checks);
    report.heading("Medians of the rounds");
    let line = |name: &str| {
        let figure = |value: fn(&Row) -> f64| median(of(rows, name).map(value).collect());
        vec![
            name.to_owned(),
            number(figure(|row| row.ours_us), 2),
            number(figure(|row| row.perftest_us), 2),
            number(figure(Row::ratio), 3),
        ]
    };
    let lines = OPERATIONS.map(|operation| line(operation.name));
    report.table(&["operation", "ours, µs", "perftest, µs", "ours / perftest"], lines);
    report.paragraph("The last column is the median of the ratios, each within a round.");
    let Settings { device, rounds, operations_each, target_cpu, initiator_cpu } = &outcome.settings;
    let setting = format!(
        "{rounds} rounds on {device}, of {operations_each} operations each, who goes first alternating; the target on CPU \
         {target_cpu}, the measuring side on CPU {initiator_cpu}. A device of rdma_rxe (soft-RoCE) is the kernel's own, \
         and says nothing of hardware; both sides' kernel work then runs where the scheduler puts it"
    );
    let devices = [format!("RDMA device {device}, by polling; perftest's defaults otherwise")];
    report.close_perf(outcome, &devices, &setting, None)
}
