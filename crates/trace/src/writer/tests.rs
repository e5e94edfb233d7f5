use super::*;
use crate::reader::Reader;
use crate::request::Method;
use crate::sample::sample;
use crate::synthetic::Synthetic;
use crate::{Arrivals, Sizes};

fn written(
    directory: &Path,
    format: Format,
    stamps: Stamps,
    requests: impl IntoIterator<Item = Request>,
) -> (PathBuf, Written) {
    let path = directory.join(format!("trace.{format}"));
    let mut writer = Writer::create(&path, format, stamps).unwrap();
    requests.into_iter().for_each(|request| writer.write(&request).unwrap());
    let written = writer.finish().unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), written.bytes);
    (path, written)
}

fn read(path: &Path) -> (Stamps, Vec<Request>) {
    let reader = Reader::open(path).unwrap();
    (reader.stamps(), reader.map(Result::unwrap).collect())
}

fn synthetic() -> Vec<Request> {
    let synthetic = Synthetic {
        requests: 20_000,
        objects: 3_000,
        alpha: 0.9,
        sizes: Sizes::Surge { bytes_max: u64::MAX },
        per_s: 1000.0,
        arrivals: Arrivals::BModel { bias: 0.7 },
        seed: 1,
    };
    synthetic.requests().unwrap().collect()
}

#[test]
fn what_is_written_is_read_again_and_told_by_its_content() {
    let directory = tempfile::tempdir().unwrap();
    for format in [Format::Compact, Format::Csv] {
        let whole = sample().requests().to_vec();
        let (path, _) = written(directory.path(), format, Stamps::Seconds, whole.clone());
        assert_eq!(read(&path), (Stamps::Seconds, whole), "{format}");
        let finer = synthetic();
        let (path, _) = written(directory.path(), format, Stamps::Finer, finer.clone());
        assert_eq!(read(&path), (Stamps::Finer, finer), "{format}");
    }
    let whole = sample().requests().to_vec();
    let (path, _) = written(directory.path(), Format::OracleGeneral, Stamps::Seconds, whole.clone());
    let (_, records) = read(&path);
    assert_eq!(records.len(), whole.len());
    for (record, request) in records.iter().zip(&whole) {
        let size = Some(request.size.unwrap_or(0));
        let expected = Request { client: 0, status: 0, method: Method::Get, size, ..*request };
        assert_eq!(*record, expected);
    }
}

#[test]
fn a_size_that_does_not_fit_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let largest = Request { size: Some(u32::MAX.into()), ..sample().requests()[0] };
    let (path, _) = written(directory.path(), Format::OracleGeneral, Stamps::Seconds, [largest]);
    assert_eq!(read(&path).1[0].size, largest.size);
    let mut writer = Writer::create(&path, Format::OracleGeneral, Stamps::Seconds).unwrap();
    let refused = writer.write(&Request { size: Some(1 << 32), ..largest }).unwrap_err().to_string();
    assert!(
        refused.ends_with(
            "request 1 has 4294967296 bytes, and a size is at most 4294967295 there; write slt or csv"
        ),
        "{refused}"
    );
}

#[test]
fn times_that_turn_out_to_be_finer_are_written_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let whole = sample().requests().to_vec();
    let late = Request { time_ns: 1_000, ..whole[9_999] };
    let all: Vec<Request> = whole.into_iter().chain([late]).collect();
    for format in [Format::Compact, Format::Csv] {
        let (path, _) = written(directory.path(), format, Stamps::Seconds, all.clone());
        assert_eq!(read(&path).1, all, "{format}");
    }
}

#[test]
fn a_compact_trace_says_what_it_holds_and_takes_few_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let (path, written) =
        written(directory.path(), Format::Compact, Stamps::Seconds, sample().requests().to_vec());
    let header = Header::decode(&fs::read(path).unwrap()).unwrap();
    assert_eq!((header.requests, header.bytes, header.blocks), (10_000, 47_458_780, 3));
    assert_eq!((header.first_ns, header.last_ns), (897_861_223_000_000_000, 897_861_265_000_000_000));
    assert!(written.bytes < 12 * 10_000, "{written:?}");
}

/// The number of the next request for an object is right, whether its record is still held or already in the file.
#[test]
fn an_oracle_general_trace_knows_what_comes_next() {
    let directory = tempfile::tempdir().unwrap();
    let requests = 3 * LINKED_RECORDS as u64 / 2;
    // Object 0 comes back once and late, object 1 at each tenth request, the others never.
    let object = |i: u64| match i {
        _ if i == requests - 1 => 0,
        _ if i % 10 == 5 => 1,
        _ => i + i.min(1),
    };
    let first = sample().requests()[0];
    let all = (0..requests).map(|i| Request { object: object(i), ..first });
    let (path, _) = written(directory.path(), Format::OracleGeneral, Stamps::Seconds, all);
    let bytes = fs::read(path).unwrap();
    let (records, rest) = bytes.as_chunks::<{ oracle::RECORD_BYTES }>();
    assert!(rest.is_empty() && records.len() as u64 == requests);
    let mut next = HashMap::new();
    for (i, record) in (0u64..).zip(records).collect::<Vec<_>>().into_iter().rev() {
        let expected = next.insert(object(i), i as i64).unwrap_or(-1);
        assert_eq!(record[oracle::NEXT_AT..], expected.to_le_bytes(), "request {i}");
    }
}

#[test]
fn what_another_program_writes_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.csv");
    let begin = || Writer::create(&path, Format::Csv, Stamps::Seconds);
    // As if left by another process of the same name.
    fs::write(directory.path().join("trace.csv.part"), "other").unwrap();
    let mut first = begin().unwrap();
    first.write(&sample().requests()[0]).unwrap();
    // Only this process can have taken that name already.
    let error = begin().unwrap_err();
    assert!(matches!(&error, Error::Write { path, .. } if path.extension().unwrap() == "part"), "{error}");
    first.finish().unwrap();
    assert_eq!(read(&path).1.len(), 1);
    assert_eq!(fs::read(directory.path().join("trace.csv.part")).unwrap(), b"other");
}

#[test]
fn what_is_not_finished_is_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("trace.slt");
    let mut writer = Writer::create(&path, Format::Compact, Stamps::Seconds).unwrap();
    sample().requests().iter().for_each(|request| writer.write(request).unwrap());
    drop(writer);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);

    let no_file = Writer::create(directory.path(), Format::Compact, Stamps::Seconds).unwrap_err();
    assert!(matches!(no_file, Error::Write { path, .. } if path == directory.path()));
    let refused = Writer::create(&path, Format::CommonLog, Stamps::Seconds).unwrap_err();
    assert!(refused.to_string().contains("slt, oracleGeneral or csv"), "{refused}");
    let nowhere = directory.path().join("nowhere/trace.slt");
    let error = Writer::create(&nowhere, Format::Compact, Stamps::Seconds).unwrap_err();
    assert!(matches!(error, Error::Write { path, .. } if path == nowhere));
}
