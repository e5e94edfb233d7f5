//! Real traces that are too large for the repository, in a directory named by `SIDELONG_TRACES`. The figures were
//! computed with another program.

use std::io::Write as _;
use std::path::PathBuf;

use sidelong_trace::{Format, Known, Reader, Request, Stamps, Summary, Trace, Writer, summarise};

/// The trace of that name, if there is one.
fn shared(name: &str) -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/traces");
    let directory = std::env::var_os("SIDELONG_TRACES").map_or_else(|| beside.into(), PathBuf::from);
    let path = directory.join(name);
    if path.is_file() {
        return Some(path);
    }
    let _ = writeln!(
        std::io::stderr(),
        "SKIPPED: {name}: it is not in {}, which SIDELONG_TRACES names",
        directory.display()
    );
    None
}

fn summary(path: &PathBuf) -> (Format, Summary) {
    let mut reader = Reader::open(path).unwrap();
    let summary = summarise(&mut reader).unwrap();
    (reader.format(), summary)
}

fn assert_close(ours: Option<f64>, figure: f64, tolerance: f64) {
    let ours = ours.expect("there is enough for an estimate");
    assert!((ours - figure).abs() < tolerance, "{ours} is not {figure}");
}

#[test]
fn a_day_of_nasa_with_a_header_and_tabs() {
    let Some(path) = shared("ita/nasa_19950701.tsv.zst") else { return };
    let (format, summary) = summary(&path);
    assert_eq!(
        (format, summary.requests, summary.objects, summary.clients),
        (Format::Csv, 9_999, 1_165, 936)
    );
    assert_eq!(summary.bytes / 1_000_000, 246);
    assert_close(summary.zipf_alpha_mle, 1.003, 0.001);
}

#[test]
fn a_cache_of_twitter() {
    let Some(path) = shared("kv/twitter_cluster52_first2m.csv.zst") else { return };
    let (format, summary) = summary(&path);
    assert_eq!((format, summary.requests, summary.objects), (Format::Csv, 2_000_000, 248_646));
    assert_eq!((summary.span_s, summary.rate_peak), (1_033, 2_770));
    assert_eq!((summary.bytes / 1_000_000, summary.footprint_bytes / 1_000_000), (405, 50));
    assert_close(summary.zipf_alpha_mle, 0.974, 0.001);
    assert_close(summary.zipf_alpha_lsq, 0.954, 0.001);
    // Its last second was cut off after two million requests; with it, the value is 7.7.
    assert_close(summary.dispersion_1s, 6.492, 0.0005);
}

/// The official figures of its README: 5,410,216 bytes.
#[test]
fn the_test_log_of_the_world_cup() {
    let Some(path) = shared("wc98/test_log.gz") else { return };
    let (format, summary) = summary(&path);
    assert_eq!((format, summary.requests, summary.bytes), (Format::WorldCup98, 1_000, 5_410_216));
}

#[test]
fn logs_that_step_back_are_streamed_as_they_are_in_memory_and_converted_without_loss() {
    let directory = tempfile::tempdir().unwrap();
    for (name, requests) in
        [("clf/airis_blog_2016.clf.zst", 206_860), ("clf/almhuette_2020-2021.clf.zst", 294_094)]
    {
        let Some(path) = shared(name) else { continue };
        let whole = Trace::load(&path).unwrap().0.spread();
        assert_eq!(whole.requests().len(), requests);
        let mut spread = Reader::open(&path).unwrap().spread();
        assert!(spread.by_ref().map(Result::unwrap).eq(whole.requests().iter().copied()), "{name}");
        assert_eq!(spread.late(), 0, "{name}");

        let converted = directory.path().join("trace.slt");
        let mut writer = Writer::create(&converted, Format::Compact, Stamps::Seconds).unwrap();
        let original = || Reader::open(&path).unwrap().map(Result::unwrap);
        original().for_each(|request| writer.write(&request).unwrap());
        let written = writer.finish().unwrap();
        assert_eq!(written.requests as usize, requests);
        assert!(Reader::open(&converted).unwrap().map(Result::unwrap).eq(original()), "{name}");
    }
}

/// Keys without times: not a format that is read, and not mistaken for one.
#[test]
fn a_trace_without_times_is_not_taken_for_one_with() {
    let Some(path) = shared("kv/web07.trace.xz") else { return };
    let refused = Reader::open_with(&path, &Known::default())
        .and_then(|reader| reader.collect::<Result<Vec<Request>, _>>());
    assert!(refused.is_err());
}
