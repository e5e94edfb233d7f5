//! The report of R9 and A1.

use super::{Busy, Found, Measure, Of, find, growth};
use crate::perf::{self, HEADS, Measurement, Way, cells};
use crate::story::{Story, number};

pub(super) fn tell(study: &Busy, rows: &[Found], report: &mut Story) {
    let (of, ways) = (study.of, &study.ways[..]);
    report.heading("The paper beside ours");
    report.paragraph(match of {
        Of::R9 => {
            "Balaji et al. 2004, 4.2, perform \"background computation and communication operations on the server while the load-balancer performs \
             the test with a separate thread on the server\": \"the performance of IPoIB degrades significantly with the increase \
             in the background load. On the other hand, one-sided communication operations such as RDMA show absolutely no \
             degradation in the performance.\" It prints no figures of Figure 9; idle, RDMA read has 11.89 µs by polling and \
             IPoIB 53.8 µs."
        }
        Of::A1 => {
            "Lai et al. 2008: \"1 Byte message: RDMA read 5.2 us, IPoIB 18.9 us\"; \"improvement using RDMA increases when message size \
             increases\"; under background load \"IPoIB significantly degrades, RDMA read keeps constant latency\"."
        }
    });
    beside(report, of, rows, ways);
    report.checks();
    report.heading("Measured");
    let threads = study.threads;
    let lines = threads.iter().flat_map(|&threads| ways.iter().map(move |&way| line(rows, way, threads)));
    report.table(&[&["busy threads"], &HEADS[..]].concat(), lines);
    report.paragraph(&format!(
        "Reads of {} B, one after the other without a pause{}. The p50 is that of the operations: there are many \
         in the moments in which the target has its turn, and none in those in which it waits. The mean tells of both. That is \
         why TCP is judged by its mean. Shm is judged by its p50: whatever else the machine has to do is driven from the target's \
         CPU to the measuring side's, and shows in the mean and in the bandwidth, but not in its CPU time for a read.",
        of.bytes(),
        if of == Of::R9 { "; bandwidth is of 64 KB, 16 in flight" } else { "" },
    ));
    report.paragraph(
        "A busy thread computes on 64 KB for some 100 µs and then sends a message of 1 KB over a TCP connection of its own, to \
         itself: it never sleeps. All are held to the target's one CPU.",
    );
    let rows: Vec<Measurement> = rows.iter().map(|found| found.row.clone()).collect();
    perf::close(report, &rows, study.without_verbs.as_deref());
}

fn beside(report: &mut Story, of: Of, rows: &[Found], ways: &[Way]) {
    let paper = |way| match (of, way) {
        (_, Way::Shm) => "–".to_owned(),
        (Of::A1, Way::Tcp) => "18.9 µs (IPoIB), then \"significantly degrades\"".to_owned(),
        (Of::A1, _) => "5.2 µs (RDMA read), \"constant\"".to_owned(),
        (Of::R9, Way::Tcp) => "53.8 µs (IPoIB), then \"degrades significantly\"".to_owned(),
        (Of::R9, _) => "11.89 µs (RDMA read), \"absolutely no degradation\"".to_owned(),
    };
    let line = |way: &Way| {
        let at = |threads, figure: fn(&Measurement) -> Option<f64>, digits| {
            number(find(rows, Measure::Latency, *way, threads).and_then(figure), digits)
        };
        vec![
            way.label().to_owned(),
            paper(*way),
            at(0, Measurement::p50_us, 3),
            at(1, Measurement::p50_us, 3),
            at(64, Measurement::p50_us, 3),
            number(growth(rows, *way, Measurement::p50_us), 2),
            at(1, Measurement::mean_us, 2),
            at(64, Measurement::mean_us, 2),
            number(growth(rows, *way, Measurement::mean_us), 1),
        ]
    };
    let columns = [
        "",
        "paper, idle and then busy",
        "idle, p50, µs",
        "1 thread, p50",
        "64 threads, p50",
        "64 / 1",
        "1 thread, mean, µs",
        "64 threads, mean",
        "64 / 1",
    ];
    report.table(&columns, ways.iter().map(line));
}

fn line(rows: &[Found], way: Way, threads: u32) -> Vec<String> {
    let latency = find(rows, Measure::Latency, way, threads);
    let bandwidth = find(rows, Measure::Bandwidth, way, threads);
    [threads.to_string()].into_iter().chain(cells(way, latency, bandwidth)).collect()
}
