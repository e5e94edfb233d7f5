//! Requests read per second on one core, in each format that a million of them can be written in, and the additional
//! cost of ordering and counting them.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sidelong_trace::{Arrivals, Format, Reader, Sizes, Stamps, Synthetic, Tally, Writer};

const REQUESTS: u64 = 1_000_000;

fn read(criterion: &mut Criterion) {
    let directory = tempfile::tempdir().expect("a directory for the traces");
    let synthetic = Synthetic {
        requests: REQUESTS,
        objects: 100_000,
        alpha: 0.9,
        sizes: Sizes::Surge { bytes_max: 1 << 30 },
        per_s: 10_000.0,
        arrivals: Arrivals::Poisson,
        seed: 1,
    };
    let mut group = criterion.benchmark_group("read");
    group.throughput(Throughput::Elements(REQUESTS)).sample_size(20);
    let written = [
        ("slt", Format::Compact, Stamps::Finer),
        ("slt-seconds", Format::Compact, Stamps::Seconds),
        ("oracleGeneral", Format::OracleGeneral, Stamps::Seconds),
        ("csv", Format::Csv, Stamps::Finer),
    ];
    for (name, format, stamps) in written {
        let path = directory.path().join(name);
        let mut writer = Writer::create(&path, format, stamps).expect("a trace");
        for mut request in synthetic.requests().expect("a usable synthetic trace") {
            request.time_ns *= u32::from(stamps == Stamps::Finer);
            writer.write(&request).expect("room for the trace");
        }
        writer.finish().expect("room for the trace");
        let open = || Reader::open(&path).expect("the trace that was written");
        group.bench_function(name, |bencher| {
            bencher.iter(|| open().fold(0, |sum, request| sum ^ request.expect("a sound one").object));
        });
        if format == Format::Compact {
            group.bench_function(format!("{name}, spread"), |bencher| {
                bencher.iter(|| {
                    open().spread().fold(0, |sum, request| sum ^ request.expect("a sound one").object)
                });
            });
        }
        if name == "slt" {
            group.bench_function("slt, summarised", |bencher| {
                bencher.iter(|| {
                    let mut tally = Tally::new("slt");
                    open()
                        .for_each(|request| tally.add(&request.expect("a sound one")).expect("few seconds"));
                    tally.finish(0).expect("some requests")
                });
            });
        }
    }
}

criterion_group!(benches, read);
criterion_main!(benches);
