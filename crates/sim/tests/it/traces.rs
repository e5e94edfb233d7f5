//! The same trace in any format gives the same run.

use std::path::Path;
use std::sync::Arc;

use sidelong_sim::Outcome;
use sidelong_sim::cluster::Cluster;
use sidelong_sim::config::Config;
use sidelong_trace::{Format, Reader, SAMPLE, Stamps, Writer};

fn run(trace: &Path, more: &[&str]) -> Outcome {
    let text = "[workload]\nkind = \"trace\"\nrequests = 15_000\narrivals = \"trace\"\nspeed = 0.5\n\
                [cluster]\nnodes = 4\nmemory_mb = 2\n";
    let mut sets = vec![format!("trace={}", trace.display())];
    sets.extend(more.iter().map(|set| (*set).to_owned()));
    let config = Config::parse(text, "a.toml", Path::new(""), &sets).unwrap();
    let point = config.points().remove(0);
    let requests = Arc::new(point.requests().unwrap());
    Cluster::run(point.setup(requests).unwrap())
}

#[test]
fn a_converted_trace_runs_as_its_original_does() {
    let directory = tempfile::tempdir().unwrap();
    let original = directory.path().join("original");
    std::fs::write(&original, SAMPLE).unwrap();
    let expected = run(&original, &[]);
    assert_eq!(expected.requests, 12_000, "the part after warm-up");
    for (name, format) in
        [("a.slt", Format::Compact), ("b.csv", Format::Csv), ("c.oracle", Format::OracleGeneral)]
    {
        let path = directory.path().join(name);
        let mut writer = Writer::create(&path, format, Stamps::Seconds).unwrap();
        for request in Reader::open(&original).unwrap() {
            writer.write(&request.unwrap()).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(run(&path, &[]), expected, "{name}");
    }
    // One run uses the trace's times, the other clients' answers.
    assert_ne!(run(&original, &["speed=1"]), expected);
    assert_ne!(run(&original, &["arrivals=closed"]), expected);
}

#[test]
fn a_trace_that_cannot_be_used_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |bytes: &[u8]| {
        let path = directory.path().join("refused");
        std::fs::write(&path, bytes).unwrap();
        let text = "[workload]\nkind = \"trace\"\ntrace = \"refused\"\n";
        let config = Config::parse(text, "a.toml", directory.path(), &[]).unwrap();
        config.points().remove(0).requests().unwrap_err().to_string()
    };
    assert!(refused(b"").contains("holds no request"));
    let error = refused(b"1,2,3\n4,5,6\n");
    assert!(error.contains("in no format") && error.contains("`sidelong-lab trace convert`"), "{error}");
    let mut broken = SAMPLE[..20 * 500].to_vec();
    (0..6).for_each(|at| broken[at * 400 + 16] = 0xff);
    assert!(refused(&broken).contains("more than 1 % of it is unusable: 6 of 500"));
}
