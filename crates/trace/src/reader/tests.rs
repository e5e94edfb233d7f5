use super::*;
use crate::broken::BrokenAt;
use crate::sample::SAMPLE;
use crate::source::{GZIP_MAGIC, XZ_MAGIC, ZSTD_MAGIC};
use crate::text::{BYTE_ORDER_MARK, LINE_BYTES_MAX};
use proptest::prelude::*;
use std::io::{self, Cursor, Write};

const CLF: &[u8] = include_bytes!("../../testdata/airis_blog_2016.first500.clf");
const UCB: &[u8] = include_bytes!("../../testdata/example.ucb");
const ORACLE: &[u8] = include_bytes!("../../testdata/twitter_cluster52.first500.oracleGeneral");
const TWITTER: &[u8] = include_bytes!("../../testdata/example.twitter.csv");
const CSV: &[u8] = include_bytes!("../../testdata/twitter_cluster52.first500.csv");

/// The first part of the Common Log above as it was written once: what was converted must be read for ever.
const COMPACT: &[u8] = include_bytes!("../../testdata/airis_blog_2016.first500.slt");

/// One of each format, with its requests.
const ALL: [(Format, &[u8], usize); 7] = [
    (Format::WorldCup98, SAMPLE, 10_000),
    (Format::CommonLog, CLF, 500),
    (Format::HomeIp, UCB, 4),
    (Format::OracleGeneral, ORACLE, 500),
    (Format::Twitter, TWITTER, 40),
    (Format::Csv, CSV, 500),
    (Format::Compact, COMPACT, 500),
];

fn reader(bytes: &[u8], format: Option<Format>) -> Result<Reader> {
    Reader::new("test", Cursor::new(bytes.to_vec()), &format.into())
}

fn requests(bytes: &[u8]) -> Vec<Request> {
    reader(bytes, None).unwrap().collect::<Result<_>>().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut encoder = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstandard(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

#[test]
fn formats_are_recognised_by_content() {
    for (format, bytes, count) in ALL {
        assert_eq!(reader(bytes, None).unwrap().format(), format);
        assert_eq!(requests(bytes).len(), count, "{format}");
        // Told what it is, it reads the same.
        let told: Vec<Request> = reader(bytes, Some(format)).unwrap().map(Result::unwrap).collect();
        assert_eq!(told, requests(bytes));
    }
    assert!(matches!(reader(b"", None), Err(Error::Empty { .. })));
    for unknown in [&b"\x7fELF\x02\x01\x01\x00 and so on, and so on"[..], b"1,2,3\n4,5,6\n"] {
        let error = reader(unknown, None).unwrap_err();
        assert!(matches!(error, Error::UnknownFormat { .. }), "{error}");
        assert!(error.to_string().contains("time=1,object=2,size=3"), "{error}");
    }
}

#[test]
fn one_trace_in_four_formats_is_one_trace() {
    let csv = requests(CSV);
    assert_eq!((csv[0].object, csv[0].size, csv[499].time_s), (1, Some(737), 1));
    let oracle: Vec<Request> = requests(ORACLE).iter().map(|r| Request { status: 0, ..*r }).collect();
    assert_eq!(oracle, csv);
    assert_eq!(requests(COMPACT), requests(CLF));
}

#[test]
fn a_format_has_a_name_that_names_it() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
        assert_eq!(format.to_string().to_ascii_uppercase().parse::<Format>().unwrap(), format);
        let is_recognised = !matches!(format, Format::Key32 | Format::Key64);
        assert_eq!(ALL.iter().filter(|(of, ..)| *of == format).count(), is_recognised.into());
    }
    assert!(matches!("xls".parse::<Format>(), Err(Error::Parameter { parameter: "format", .. })));
}

#[test]
fn stamps_are_told_by_format_or_content() {
    for (format, bytes, _) in ALL {
        let expected = if format == Format::HomeIp { Stamps::Finer } else { Stamps::Seconds };
        assert_eq!(reader(bytes, None).unwrap().stamps(), expected, "{format}");
    }
    let finer = reader(b"time,object\n1,1\n1.25,2\n", None).unwrap();
    assert_eq!(finer.stamps(), Stamps::Finer);
}

#[test]
fn columns_make_a_csv_and_nothing_else() {
    let columns = Some("time=1,object=2".parse::<Columns>().unwrap());
    let known = |format| Known { format, columns: columns.clone() };
    let open = |format| Reader::new("test", &b"1,2\n3,4\n"[..], &known(format));
    assert_eq!(open(None).unwrap().map(Result::unwrap).count(), 2);
    assert_eq!(open(Some(Format::Csv)).unwrap().count(), 2);
    let error = open(Some(Format::Twitter)).unwrap_err();
    assert!(error.to_string().contains("csv where columns are named"), "{error}");
}

#[test]
fn what_does_not_begin_as_its_format_is_refused() {
    let error = reader(CLF, Some(Format::Compact)).unwrap_err();
    assert!(error.to_string().starts_with("cannot read test as slt: it does not begin"), "{error}");
    let error = reader(b"1,2\n", Some(Format::Csv)).unwrap_err();
    assert!(error.to_string().contains("does not name a time and an object"), "{error}");
}

#[test]
fn how_far_it_is_read_is_told() {
    let mut reader = reader(&gzip(SAMPLE), None).unwrap();
    assert!(reader.by_ref().all(|request| request.is_ok()));
    assert_eq!(reader.bytes_read(), gzip(SAMPLE).len() as u64);
    assert_eq!(self::reader(COMPACT, None).unwrap().requests(), Some(500));
}

#[test]
fn compressed_logs_are_read_as_plain_ones() {
    for (_, plain, _) in ALL {
        let (head, tail) = plain.split_at(plain.len() / 2 + 3);
        for compress in [gzip, zstandard, xz] {
            assert_eq!(requests(&compress(plain)), requests(plain));
            let in_parts = [compress(head), compress(tail)].concat();
            assert_eq!(requests(&in_parts), requests(plain), "of several members, frames or streams");
        }
    }
}

#[test]
fn frames_that_decoders_skip_are_skipped() {
    for magic in [0x50, 0x5f] {
        let skipped = [&[magic, 0x2a, 0x4d, 0x18, 3, 0, 0, 0], &b"abc"[..]].concat();
        let bytes = [&skipped[..], &zstandard(SAMPLE), &skipped].concat();
        assert_eq!(requests(&bytes), requests(SAMPLE));
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_text() {
    let marked = |bytes: &[u8]| [&BYTE_ORDER_MARK, bytes].concat();
    for (format, text, _) in ALL.into_iter().filter(|(format, ..)| format.is_text()) {
        assert_eq!(requests(&marked(text)), requests(text), "{format}");
        let told: Vec<Request> = reader(&marked(text), Some(format)).unwrap().map(Result::unwrap).collect();
        assert_eq!(told, requests(text), "{format}");
        assert_eq!(requests(&gzip(&marked(text))), requests(text), "{format}");
    }
    // In what is no text it is data.
    let known = Some(Format::WorldCup98).into();
    let mut records = Reader::new("test", Cursor::new(marked(&SAMPLE[3..])), &known).unwrap();
    assert_eq!(records.next().unwrap().unwrap().time_s >> 8, 0xef_bbbf);
}

#[test]
fn what_would_take_too_much_memory_to_decompress_is_refused() {
    // A window of 2 GiB and a dictionary of 4 GiB, each with nothing behind it.
    let long_window = [&ZSTD_MAGIC[..], &[0x00, 21 << 3, 0x01, 0x00, 0x00]].concat();
    let mut dictionary = xz(b"abc");
    // The block's header: size, flags, the filter LZMA2, bytes of its properties, the dictionary, padding, CRC-32.
    assert_eq!(dictionary[14..16], [0x21, 0x01]);
    dictionary[16] = 40;
    let crc = crc32fast::hash(&dictionary[12..20]);
    dictionary[20..24].copy_from_slice(&crc.to_le_bytes());
    for bytes in [long_window, dictionary] {
        let error = reader(&bytes, None).unwrap_err();
        assert!(matches!(&error, Error::Read { .. }), "{error:?}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("memory"), "{cause}");
    }
}

#[test]
fn damaged_compression_is_an_error_in_the_middle_and_then_the_end() {
    for (compress, stream) in [(gzip as fn(&[u8]) -> Vec<u8>, "gzip"), (zstandard, "Zstandard"), (xz, "xz")] {
        let whole = compress(SAMPLE);
        let mut damaged = whole.clone();
        damaged[whole.len() / 2..].fill(0x5a);
        for bytes in [&whole[..whole.len() * 3 / 4], &damaged] {
            let mut reader = reader(bytes, Some(Format::WorldCup98)).unwrap();
            let error = reader.find_map(Result::err).expect("the damage is noticed");
            assert!(matches!(&error, Error::Read { origin, .. } if origin == "test"), "{error:?}");
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.starts_with(&format!("its {stream} stream ")), "{cause}");
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
    assert!(matches!(not_a_file, Error::Open { .. }), "{not_a_file:?}");
}

#[test]
fn a_last_record_cut_short_is_reported() {
    let mut reader = reader(&SAMPLE[..SAMPLE.len() - 1], None).unwrap();
    assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 9_999);
    let cut = BrokenAt { number: 10_000, reason: Flaw::Truncated { bytes: 19, of: 20 } };
    let expected = Broken { total: 10_000, broken: 1, first: vec![cut], ..Broken::new(Format::WorldCup98) };
    assert_eq!(reader.broken(), &expected);
}

#[test]
fn broken_lines_are_counted_with_their_place_and_reason() {
    let mut lines: Vec<&[u8]> = CLF.split_inclusive(|&byte| byte == b'\n').collect();
    lines[7] = b"-\n";
    lines[8] = b"\r\n";
    lines[99] = b"10.0.0.1 - - what is this\n";
    let mut reader = reader(&lines.concat(), None).unwrap();
    assert_eq!(reader.by_ref().map(Result::unwrap).count(), 497);
    let first =
        vec![BrokenAt { number: 8, reason: Flaw::Host }, BrokenAt { number: 100, reason: Flaw::Time }];
    let expected = Broken { total: 499, broken: 2, first, ..Broken::new(Format::CommonLog) };
    assert_eq!(reader.broken(), &expected, "a blank line is no record, and counts as a line");
}

/// A log is read the same whatever copying and rotating have done to it, and what they have put into it is told.
#[test]
fn a_log_is_read_as_it_is_found() {
    let plain = requests(CLF);
    let newlines_to = |end: &[u8]| CLF.split(|&byte| byte == b'\n').collect::<Vec<_>>().join(end);
    let read = |bytes: &[u8], format| {
        let mut reader = reader(bytes, format).unwrap();
        let requests = reader.by_ref().map(Result::unwrap).collect::<Vec<_>>();
        (requests == plain, reader.broken().clone())
    };
    let clean = Broken { total: 500, ..Broken::new(Format::CommonLog) };
    let nuls = Broken { nuls: 5000, ..clean.clone() };
    let found: [(Vec<u8>, &Broken); 6] = [
        (newlines_to(b"\r"), &clean),
        (newlines_to(b"\r\n\r\n"), &clean),
        ([vec![b'\n'; 9], CLF.to_vec()].concat(), &clean),
        ([vec![0; 5000], CLF.to_vec()].concat(), &nuls),
        ([CLF, &[0; 5000]].concat(), &nuls),
        ([vec![0; 4000], CLF.to_vec(), vec![0; 1000]].concat(), &nuls),
    ];
    for (at, (bytes, expected)) in found.into_iter().enumerate() {
        for format in [None, Some(Format::CommonLog)] {
            assert_eq!(read(&bytes, format), (true, expected.clone()), "{at}");
        }
    }
    assert_eq!(nuls.to_string(), "0 of 500 lines are broken; 5000 NULs between lines are skipped");
    assert!(nuls.is_worth_telling() && !clean.is_worth_telling());
    assert!(matches!(reader(&[0; 5000], None).map(drop), Err(Error::Empty { .. })));
}

/// gzip pads with zeros, and ignores junk behind the last member with a warning.
#[test]
fn what_stands_behind_the_last_member_of_gzip_is_no_part_of_it() {
    let whole = gzip(SAMPLE);
    let members = [gzip(&SAMPLE[..20_000]), gzip(&SAMPLE[20_000..])];
    let [first, second] = &members;
    for (bytes, trailing) in [
        ([&whole[..], &[0; 700]].concat(), 0),
        ([&first[..], &[0; 3], second, &[0; 512]].concat(), 0),
        ([&whole[..], b"junk"].concat(), 4),
        ([&whole[..], &[0; 9], b"\x1fjunk"].concat(), 5),
        ([&whole[..], b"\x1f"].concat(), 1),
        (members.concat(), 0),
    ] {
        let mut reader = reader(&bytes, None).unwrap();
        assert_eq!(reader.by_ref().map(Result::unwrap).count(), 10_000);
        assert_eq!(reader.broken().trailing_bytes, trailing);
    }
    // What begins as a member must be one.
    let cut = [&whole[..], &whole[..100]].concat();
    assert!(matches!(reader(&cut, None).unwrap().find_map(Result::err), Some(Error::Read { .. })));
}

#[test]
fn times_of_another_unit_are_refused_with_the_remedy() {
    let rows: String = (0..200).map(|i| format!("{},{i}\n", 1_760_104_500_000_u64 + i)).collect();
    let text = format!("time,object\n{rows}");
    let refused = reader(text.as_bytes(), None).unwrap().find_map(Result::err).unwrap().to_string();
    assert!(refused.contains("line 2: a time after the year 2106: name its unit"), "{refused}");
    let known = Known { format: None, columns: Some("time=time,object=object,unit=ms".parse().unwrap()) };
    let read = Reader::new("test", Cursor::new(text.into_bytes()), &known).unwrap();
    assert_eq!(read.map(Result::unwrap).last().unwrap().time_ns, 699_000_000 - 500_000_000);
}

#[test]
fn a_header_is_a_line_and_no_record() {
    let rows: String =
        (0..200).map(|i| if i == 99 { "x,1\n".to_owned() } else { format!("{i},1\n") }).collect();
    let broken_in = |text: String| {
        let known = Known { format: None, columns: Some("time=1,object=2".parse().unwrap()) };
        let mut reader = Reader::new("test", Cursor::new(text.into_bytes()), &known).unwrap();
        assert_eq!(reader.by_ref().map(Result::unwrap).count(), 199);
        (reader.broken().total, reader.broken().first[0].number)
    };
    assert_eq!(broken_in(rows.clone()), (200, 100));
    assert_eq!(broken_in(format!("time,object\n{rows}")), (200, 101));
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
        "test, read as clf, is refused, because more than 1 % of it is unusable: 6 of 500 lines are broken: line 1: no host; \
         line 2: no host; line 3: no host; line 4: no host; line 5: no host; and so on"
    );
}

#[test]
fn another_format_is_given_up_soon() {
    let mut reader = self::reader(&b"-\n".repeat(10_000), Some(Format::CommonLog)).unwrap();
    assert!(matches!(reader.next(), Some(Err(Error::TooManyBroken { broken, .. })) if broken.total == 1000));
    // Endless, so that the test would not end either.
    let mut reader = Reader::new("endless", io::repeat(0xff), &Some(Format::WorldCup98).into()).unwrap();
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
    let mut reader = Reader::new("long", line, &Some(Format::CommonLog).into()).unwrap();
    assert!(matches!(reader.next(), Some(Err(Error::TooManyBroken { broken, .. })) if broken.total == 1));
}

/// Reads all, and holds the account against what came.
fn account(bytes: &[u8], format: Option<Format>) -> Option<(u64, Broken, Option<Error>)> {
    let mut reader = reader(bytes, format).ok()?;
    let (mut sound, mut error) = (0, None);
    for request in reader.by_ref() {
        match request {
            Ok(_) => sound += 1,
            Err(found) => error = Some(found),
        }
    }
    Some((sound, reader.broken().clone(), error))
}

proptest! {
    #[test]
    fn no_bytes_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..500),
        magic in prop_oneof![
            Just(&b""[..]), Just(&GZIP_MAGIC[..]), Just(&ZSTD_MAGIC[..]), Just(&XZ_MAGIC[..]), Just(&COMPACT[..64]),
            Just(&b"time,object\n"[..]),
        ],
        format in proptest::option::of(proptest::sample::select(&Format::ALL[..])),
    ) {
        if let Some((sound, broken, _)) = account(&[magic, &bytes].concat(), format) {
            prop_assert_eq!(sound + broken.broken, broken.total);
        }
    }

    /// Wherever a trace is cut, all that is whole is read, what is not is counted, and above 1 % is an error. Compressed
    /// ones are refused.
    #[test]
    fn a_trace_that_is_cut_is_read_as_far_as_it_goes(of in 0..ALL.len(), at: prop::sample::Index) {
        let (format, bytes, count) = ALL[of];
        let whole = requests(bytes);
        let cut = &bytes[..at.index(bytes.len())];
        if let Some((sound, broken, error)) = account(cut, Some(format)) {
            let read: Vec<Request> = reader(cut, Some(format)).unwrap().map_while(Result::ok).collect();
            // The last line may have lost digits, and be one all the same.
            let same = read.len().saturating_sub(1);
            prop_assert_eq!(&read[..same], &whole[..same]);
            prop_assert!(sound <= count as u64 && sound + broken.broken == broken.total);
            let is_refused = matches!(error, Some(Error::TooManyBroken { .. }));
            prop_assert_eq!(is_refused, broken.broken * 100 > broken.total);
        }
        for compress in [gzip, zstandard, xz] {
            let packed = compress(bytes);
            let cut = &packed[..at.index(packed.len())];
            if let Some((_, _, error)) = account(cut, Some(format)) {
                prop_assert!(error.is_some() || cut.len() < 6, "{format} cut to {} of {}", cut.len(), packed.len());
            }
        }
    }

    /// As it is after a disk or a network has changed it.
    #[test]
    fn a_trace_that_is_damaged_does_not_panic(
        of in 0..ALL.len(), damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let (format, bytes, _) = ALL[of];
        let mut bytes = bytes.to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for format in [Some(format), None] {
            if let Some((sound, broken, _)) = account(&bytes, format) {
                prop_assert_eq!(sound + broken.broken, broken.total);
            }
        }
    }
}
