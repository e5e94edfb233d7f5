//! The statistics of real logs, compared with figures that were computed independently of this crate.

use std::io::Cursor;

use sidelong_trace::{Known, Reader, SAMPLE, SAMPLE_NOTICE, Summary, Trace, sample, summarise};

fn assert_close(ours: Option<f64>, figure: f64, tolerance: f64) {
    let ours = ours.expect("there is enough for an estimate");
    assert!((ours - figure).abs() < tolerance, "{ours} is not {figure}");
}

fn summary_of(bytes: &'static [u8]) -> Summary {
    summarise(&mut Reader::new("test", Cursor::new(bytes), &Known::default()).unwrap()).unwrap()
}

/// Requests and bytes as the archive's own check prints them; the rest was computed with another program, exponents by
/// bisection (traces/worldcup98/README.md).
#[test]
fn the_worldcup_sample() {
    let summary = summary_of(SAMPLE);
    assert_eq!(summary.requests, 10_000);
    assert_eq!(summary.bytes, 47_458_780);
    assert_eq!((summary.objects, summary.clients), (1_244, 1_026));
    assert_eq!((summary.first_s, summary.last_s), (897_861_223, 897_861_265));
    assert_eq!((summary.span_s, summary.rate_peak), (43, 308));
    assert_close(Some(summary.rate_mean), 232.558, 0.001);
    assert_close(summary.zipf_alpha_mle, 0.784_941, 1e-6);
    assert_close(summary.zipf_alpha_lsq, 0.910_436, 1e-6);
    assert_close(summary.dispersion_1s, 1.687, 0.0005);
    assert_eq!(summary.dispersion_60s, None, "43 seconds hold no two minutes");
    assert_eq!(summary.broken, 0);
}

/// The excerpt's lines are in order of completion: some step back in time.
#[test]
fn a_common_log_of_a_blog() {
    let summary = summary_of(include_bytes!("../../testdata/airis_blog_2016.first500.clf"));
    assert_eq!((summary.requests, summary.bytes), (500, 11_193_489));
    assert_eq!((summary.objects, summary.clients), (250, 97));
    assert_eq!((summary.first_s, summary.span_s, summary.rate_peak), (1_455_944_445, 6_439, 14));
    assert_close(summary.zipf_alpha_mle, 0.948_500, 1e-6);
    assert_close(summary.zipf_alpha_lsq, 1.748_028, 1e-6);
    assert_close(summary.dispersion_1s, 2.144, 0.0005);
    assert_close(summary.dispersion_60s, 8.518, 0.0005);
}

#[test]
fn a_trace_in_memory_has_the_same_statistics() {
    let trace = sample();
    let summary = summary_of(SAMPLE);
    assert_eq!(trace.summarise(0).unwrap(), summary);
    assert_eq!(trace.spread().summarise(0).unwrap(), summary, "spreading moves nothing out of its second");
}

#[test]
fn a_file_is_loaded_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("day.bin");
    std::fs::write(&path, &SAMPLE[..SAMPLE.len() - 5]).unwrap();
    let (trace, broken) = Trace::load(&path).unwrap();
    assert_eq!((trace.requests().len(), broken.broken), (9_999, 1));
}

#[test]
fn the_sample_goes_with_its_terms() {
    assert!(SAMPLE_NOTICE.contains("as long as this Copyright and Disclaimer is distributed unmodified"));
}
