use super::*;
use crate::broken::{BrokenAt, Flaw};
use crate::clf::LINE_BYTES_MAX;
use crate::sample::SAMPLE;
use proptest::prelude::*;
use std::io::Write;

const CLF: &[u8] = include_bytes!("../../testdata/airis_blog_2016.first500.clf");

fn reader(bytes: &[u8], format: Option<Format>) -> Result<Reader> {
    Reader::new("test", Cursor::new(bytes.to_vec()), format)
}

fn requests(bytes: &[u8]) -> Vec<Request> {
    reader(bytes, None).unwrap().collect::<Result<_>>().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

#[test]
fn formats_are_recognised_by_content() {
    assert_eq!(reader(SAMPLE, None).unwrap().format(), Format::WorldCup98);
    assert_eq!(reader(CLF, None).unwrap().format(), Format::CommonLog);
    assert_eq!((requests(SAMPLE).len(), requests(CLF).len()), (10_000, 500));
    assert!(matches!(reader(b"", None), Err(Error::Empty { .. })));
    assert!(matches!(
        reader(b"\x7fELF\x02\x01\x01\x00 and so on, and so on", None),
        Err(Error::UnknownFormat { .. })
    ));
}

#[test]
fn a_format_has_a_name_that_names_it() {
    for format in [Format::WorldCup98, Format::CommonLog] {
        assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
    }
    assert!(matches!("csv".parse::<Format>(), Err(Error::Parameter { parameter: "format", .. })));
}

#[test]
fn compressed_logs_are_read_as_plain_ones() {
    for plain in [SAMPLE, CLF] {
        let (head, tail) = plain.split_at(plain.len() / 2 + 3);
        for compress in [gzip, zstandard] {
            assert_eq!(requests(&compress(plain)), requests(plain));
            let in_parts = [compress(head), compress(tail)].concat();
            assert_eq!(requests(&in_parts), requests(plain), "of several members or frames");
        }
    }
}

#[test]
fn damaged_compression_is_an_error_in_the_middle_and_then_the_end() {
    for compress in [gzip, zstandard] {
        let whole = compress(SAMPLE);
        let mut damaged = whole.clone();
        damaged[whole.len() / 2..].fill(0x5a);
        for bytes in [&whole[..whole.len() * 3 / 4], &damaged] {
            let mut reader = reader(bytes, Some(Format::WorldCup98)).unwrap();
            let error = reader.find_map(Result::err).expect("the damage is noticed");
            assert!(matches!(&error, Error::Read { origin, .. } if origin == "test"), "{error:?}");
            assert!(reader.next().is_none());
        }
    }
}

#[test]
fn files_are_opened_whatever_they_are_called() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("records.txt");
    std::fs::write(&path, gzip(SAMPLE)).unwrap();
    assert_eq!(Reader::open(&path).unwrap().count(), 10_000);
    assert_eq!(Reader::open_as(&path, Format::WorldCup98).unwrap().count(), 10_000);

    let missing = Reader::open(directory.path().join("missing.log")).unwrap_err();
    assert!(missing.to_string().ends_with("missing.log"), "{missing}");
    let not_a_file = Reader::open(directory.path()).unwrap_err();
    assert!(matches!(not_a_file, Error::Read { .. }), "{not_a_file:?}");
}

#[test]
fn a_last_record_cut_short_is_reported() {
    let mut reader = reader(&SAMPLE[..SAMPLE.len() - 1], None).unwrap();
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 9_999);
    let cut = BrokenAt { number: 10_000, reason: Flaw::Truncated { bytes: 19 } };
    let expected = Broken { format: Format::WorldCup98, total: 10_000, broken: 1, first: vec![cut] };
    assert_eq!(reader.broken(), &expected);
}

#[test]
fn broken_lines_are_counted_with_their_place_and_reason() {
    let mut lines: Vec<&[u8]> = CLF.split_inclusive(|&byte| byte == b'\n').collect();
    lines[7] = b"\n";
    lines[99] = b"10.0.0.1 - - what is this\n";
    let mut reader = reader(&lines.concat(), None).unwrap();
    assert_eq!(reader.by_ref().map(Result::unwrap).count(), 498);
    let first =
        vec![BrokenAt { number: 8, reason: Flaw::Host }, BrokenAt { number: 100, reason: Flaw::Time }];
    assert_eq!(reader.broken(), &Broken { format: Format::CommonLog, total: 500, broken: 2, first });
}

#[test]
fn more_than_one_percent_broken_is_refused() {
    let with_broken = |broken: usize| {
        let mut lines: Vec<&[u8]> = CLF.split_inclusive(|&byte| byte == b'\n').collect();
        lines[..broken].fill(b"-\n");
        reader(&lines.concat(), None).unwrap().find_map(Result::err)
    };
    assert!(with_broken(5).is_none(), "exactly 1 %");
    let error = with_broken(6).expect("6 of 500");
    assert_eq!(
        error.to_string(),
        "test is refused, since more than 1 % of it is unusable: 6 of 500 lines are broken: line 1: no host; \
         line 2: no host; line 3: no host; line 4: no host; line 5: no host; and so on"
    );
}

#[test]
fn another_format_is_given_up_soon() {
    // Endless, so that the test would not end either.
    let endless = io::repeat(b'\n');
    let mut reader = Reader::new("endless", endless, Some(Format::CommonLog)).unwrap();
    assert!(matches!(reader.next(), Some(Err(Error::TooManyBroken { broken, .. })) if broken.total == 1000));
    let mut reader = Reader::new("endless", io::repeat(0xff), Some(Format::WorldCup98)).unwrap();
    assert!(matches!(reader.next(), Some(Err(Error::TooManyBroken { .. }))));
}

#[test]
fn the_formats_refuse_each_other() {
    let as_the_other = |bytes, format| reader(bytes, Some(format)).unwrap().find_map(Result::err);
    assert!(matches!(as_the_other(CLF, Format::WorldCup98), Some(Error::TooManyBroken { .. })));
    assert!(matches!(as_the_other(SAMPLE, Format::CommonLog), Some(Error::TooManyBroken { .. })));
}

#[test]
fn an_endless_line_is_not_held_in_memory() {
    let line = io::repeat(b'x').take(100 * LINE_BYTES_MAX as u64);
    let mut reader = Reader::new("long", line, Some(Format::CommonLog)).unwrap();
    assert!(matches!(reader.next(), Some(Err(Error::TooManyBroken { broken, .. })) if broken.total == 1));
}

proptest! {
    #[test]
    fn no_bytes_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..500),
        magic in prop_oneof![Just(&b""[..]), Just(&GZIP_MAGIC[..]), Just(&ZSTD_MAGIC[..])],
        format in prop_oneof![Just(None), Just(Some(Format::WorldCup98)), Just(Some(Format::CommonLog))],
    ) {
        if let Ok(mut reader) = reader(&[magic, &bytes].concat(), format) {
            let sound = reader.by_ref().filter(Result::is_ok).count() as u64;
            let broken = reader.broken();
            prop_assert_eq!(sound + broken.broken, broken.total);
        }
    }
}
