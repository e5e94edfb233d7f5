//! The report of R5-R8.

use super::{Paper, SEND, Sized, Sizes, WRITE_IMM, of, p50_us, peak};
use crate::perf::{self, HEADS, Measurement, Way, cells};
use crate::story::{Story, number};

/// What the report prints for all sizes.
const SIZES: [u64; 6] = [1, 64, 1024, 16 << 10, 256 << 10, 1 << 20];

pub(super) fn tell(study: &Sizes, rows: &[Measurement], report: &mut Story) {
    let (what, ways) = (study.what, &study.ways.all[..]);
    against_the_paper(report, what, rows, ways);
    report.checks();

    report.heading("Measured");
    let lines = SIZES.iter().flat_map(|&bytes| ways.iter().map(move |&way| line(rows, way, bytes)));
    report.table(&[&["bytes"], &HEADS[..]].concat(), lines);
    report.paragraph(
        "CPU time is that of each process for one operation of the latency run. `rows.csv` has every power of two.",
    );
    let mut told = String::from(
        "A size that is no multiple of 8 is measured as the next one where memory is read or written: it is made of words. \
         Over shm a short operation takes less than a clock reading; its times are means over runs of 20 µs and more, and \
         percentiles are over such runs. Over TCP each operation is timed by itself.",
    );
    if what == SEND || what == WRITE_IMM {
        told.push_str(
            " The time is that until the target's inbox has the message; its receiver takes it out beside, by polling over \
             shm and by events over TCP. The figures are therefore not half a ping-pong.",
        );
    }
    report.paragraph(&told);
    perf::close(report, rows, study.ways.without_verbs.as_deref());
}

fn line(rows: &[Measurement], way: Way, bytes: u64) -> Vec<String> {
    let at = || of(rows, way).filter(|row| row.figures.bytes == bytes);
    let latency = at().find(|row| row.p50_us().is_some());
    let bandwidth = at().find(|row| row.mb_per_s().is_some());
    [bytes.to_string()].into_iter().chain(cells(way, latency, bandwidth)).collect()
}

fn against_the_paper(report: &mut Story, what: Sized, rows: &[Measurement], ways: &[Way]) {
    report.heading("The paper beside ours");
    let Some(Paper { polling_us, events_us, ipoib_us, mb_per_s, ipoib_mb_per_s }) = what.paper else {
        report.paragraph(&format!(
            "The paper's text gives no figures for {}: \"The results for the other communication models (send/receive, RDMA write and \
             RDMA write with Immediate data) are shown in Figures 6 through 8\", whose points are not printed. For RDMA \
             read it has 11.89 µs by polling, 23.97 µs by events, and 53.8 µs over IPoIB, of 1 byte.",
            what.describe
        ));
        return;
    };
    let us = |way| format!("{} {} µs", Way::label(way), number(p50_us(rows, way, 1), 3));
    let rate = |way| format!("{} {} MB/s", Way::label(way), number(peak(rows, way), 0));
    let verbs = |text: String, way| if ways.contains(&way) { text } else { "no RDMA device".to_owned() };
    let (polling, events) = (Way::VerbsPolling, Way::VerbsEvents);
    let lines = [
        ["1 byte, RDMA by polling".into(), format!("{polling_us} µs"), verbs(us(polling), polling)],
        ["1 byte, RDMA by events".into(), format!("{events_us} µs"), verbs(us(events), events)],
        ["1 byte, one-sided within one machine".into(), "–".into(), us(Way::Shm)],
        ["1 byte, sockets".into(), format!("{ipoib_us} µs (IPoIB)"), us(Way::Tcp)],
        ["most bytes a second, RDMA".into(), format!("{mb_per_s} MB/s"), verbs(rate(polling), polling)],
        ["most bytes a second, one-sided within one machine".into(), "–".into(), rate(Way::Shm)],
        ["most bytes a second, sockets".into(), format!("{ipoib_mb_per_s} MB/s (IPoIB)"), rate(Way::Tcp)],
    ];
    report.table(&["", "Balaji et al. (4.1)", "ours"], lines.map(|line: [String; 3]| line.to_vec()));
    report.paragraph(
        "The paper: \"with increasing message sizes, the difference between the latency achieved by VAPI and IPoIB tends to increase\", \
         and \"the CPU utilization for RDMA is negligible on the receiver side\".",
    );
}
