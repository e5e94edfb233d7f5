//! The report of perftest.

use super::{OPERATIONS, Perftest, Row, of};
use crate::perf;
use crate::story::{Story, number};

pub(super) fn tell(study: &Perftest, rows: &[Row], story: &mut Story) {
    story.paragraph(
        "Reads and atomics are timed from their posting to their completion by both. A write is half of a ping-pong, as \
         `ib_write_lat` counts: each side writes when it has seen the other's write in its own memory. perftest posts \
         prepared requests on one queue pair; ours go through the fabric's batches, as those of an edge do.",
    );
    story.checks();
    story.heading("Measured");
    let line = |name: &str| {
        let figure = |value: fn(&Row) -> f64, digits| number(of(rows, name).map(value).next(), digits);
        vec![
            name.to_owned(),
            figure(|row| row.ours_us, 2),
            figure(|row| row.perftest_us, 2),
            figure(Row::ratio, 3),
        ]
    };
    let lines = OPERATIONS.map(|operation| line(operation.name));
    story.table(&["operation", "ours, µs", "perftest, µs", "ours / perftest"], lines);
    story.paragraph("The last column is the median of the ratios, each within a round.");
    let Perftest { device, operations_each, target_cpu, initiator_cpu } = study;
    let setting = format!(
        "{operations_each} operations a turn on {device}; who goes first alternates by round; the target on CPU {target_cpu}, \
         the measuring side on CPU {initiator_cpu}. A device of rdma_rxe (soft-RoCE) is the kernel's own, and says nothing of \
         hardware; both sides' kernel work then runs where the scheduler puts it"
    );
    let devices = [format!("RDMA device {device}, by polling; perftest's defaults otherwise")];
    perf::close_with(story, &devices, &setting, None);
}
