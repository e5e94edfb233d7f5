//! The WorldCup98 binary log: fixed records of 20 bytes, big endian, one after another.
//!
//! Format: M. Arlitt and T. Jin, "1998 World Cup Web Site Access Logs", The Internet Traffic Archive, August 1998.
//!
//! | bytes | field |
//! |---|---|
//! | 0-3 | time, seconds since the Unix epoch, GMT |
//! | 4-7 | client number |
//! | 8-11 | object number |
//! | 12-15 | size of the response in bytes; `0xffffffff` for none |
//! | 16 | method, 0 to 8 |
//! | 17 | two bits of protocol version, then six of status code |
//! | 18 | file type, 0 to 12 |
//! | 19 | three bits of region, then five of the server there |
//!
//! A record carries no mark of its own, so a reader that has lost its place cannot find it again; what protects us is
//! that four of its fields have few legal values.

use std::io::{self, BufRead};
use std::ops::Range;

use crate::broken::Flaw;
use crate::request::{Method, Request};
use crate::source::read_full;

/// Bytes of one record.
pub const RECORD_BYTES: usize = 20;

/// Stands for "no size".
const SIZE_NONE: u32 = u32::MAX;
/// File types run from 0 to this.
const KIND_MAX: u8 = 12;
/// The year of all logs in this format, in seconds since the Unix epoch.
const YEAR_1998_S: Range<u32> = 883_612_800..915_148_800;
/// The low six bits of byte 17 hold the status code.
const STATUS_MASK: u8 = 0b0011_1111;

/// What each status code stands for; the last is "other".
const STATUSES: [u16; 38] = [
    100, 101, //
    200, 201, 202, 203, 204, 205, 206, //
    300, 301, 302, 303, 304, 305, //
    400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, //
    500, 501, 502, 503, 504, 505, //
    0,
];

/// One record with everything in it, also what a [`Request`] leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Seconds since the Unix epoch, UTC. (In France it was two hours later.)
    pub time_s: u32,
    /// Number of the client.
    pub client: u32,
    /// Number of the object; the archive's `object_mappings` gives its URL.
    pub object: u32,
    /// Bytes of the response; `None` if there was no body.
    pub size: Option<u32>,
    /// Method of the request.
    pub method: Method,
    /// Status of the response; 0 if it is none that the format knows.
    pub status: u16,
    /// Protocol: 0 HTTP/0.9, 1 HTTP/1.0, 2 HTTP/1.1, 3 other.
    pub protocol: u8,
    /// File type: 0 HTML, 1 image, 2 audio, 3 video, 4 Java, 5 formatted, 6 dynamic, 7 text, 8 compressed, 9 program,
    /// 10 directory, 11 ICL, 12 other.
    pub kind: u8,
    /// Server: region times 32 plus its number there. Regions: 0 Santa Clara, 1 Plano, 2 Herndon, 3 Paris.
    pub server: u8,
}

impl Record {
    /// From its 20 bytes.
    ///
    /// # Errors
    /// The first field that holds no legal value.
    pub fn decode(bytes: &[u8; RECORD_BYTES]) -> Result<Record, Flaw> {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let [method, status, kind, server] = [bytes[16], bytes[17], bytes[18], bytes[19]];
        let code = status & STATUS_MASK;
        Ok(Record {
            time_s: word(0),
            client: word(4),
            object: word(8),
            size: Some(word(12)).filter(|&size| size != SIZE_NONE),
            method: Method::from_code(method).ok_or(Flaw::MethodCode(method))?,
            status: *STATUSES.get(usize::from(code)).ok_or(Flaw::StatusCode(code))?,
            protocol: status >> 6,
            kind: if kind <= KIND_MAX { kind } else { return Err(Flaw::KindCode(kind)) },
            server,
        })
    }

    /// To its 20 bytes: the inverse of [`Record::decode`]. A status that the format has no code for becomes "other".
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let other = STATUSES.len() - 1;
        let code = STATUSES.iter().position(|&status| status == self.status).unwrap_or(other) as u8;
        let mut bytes = [0; RECORD_BYTES];
        bytes[0..4].copy_from_slice(&self.time_s.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.client.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.object.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.size.unwrap_or(SIZE_NONE).to_be_bytes());
        bytes[16] = self.method as u8;
        bytes[17] = self.protocol << 6 | code;
        bytes[18] = self.kind;
        bytes[19] = self.server;
        bytes
    }
}

impl From<Record> for Request {
    fn from(record: Record) -> Request {
        Request {
            time_s: record.time_s,
            time_ns: 0,
            client: record.client,
            object: record.object.into(),
            size: record.size.map(u64::from),
            status: record.status,
            method: record.method,
        }
    }
}

/// Whether the first records of a source are of this format: most of them decode and are of 1998. Decoding alone does not
/// tell, because small numbers of other widths have zeros where a record has fields of few values.
pub(crate) fn is_likely(first: &[u8]) -> bool {
    let (records, _) = first.as_chunks::<RECORD_BYTES>();
    let is_sound = |bytes| Record::decode(bytes).is_ok_and(|record| YEAR_1998_S.contains(&record.time_s));
    let sound = records.iter().filter(|bytes| is_sound(bytes)).count();
    sound * 2 > records.len()
}

/// The next record; `None` at the end of the source.
pub(crate) fn read(source: &mut dyn BufRead) -> io::Result<Option<Result<Record, Flaw>>> {
    let mut bytes = [0; RECORD_BYTES];
    Ok(match read_full(source, &mut bytes)? {
        0 => None,
        RECORD_BYTES => Some(Record::decode(&bytes)),
        bytes => Some(Err(Flaw::Truncated { bytes, of: RECORD_BYTES })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::SAMPLE;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn sample_records() -> impl Iterator<Item = Record> {
        let (records, rest) = SAMPLE.as_chunks();
        assert!(rest.is_empty());
        records.iter().map(|bytes| Record::decode(bytes).unwrap())
    }

    /// The lines `Server 33: 212` and so on that the archive's own tool printed for these records.
    #[test]
    fn each_server_has_as_many_requests_as_the_official_check_counted() {
        let official: BTreeMap<u8, u64> =
            include_str!("../../../traces/worldcup98/wc_day50_4.first10000.official_check.txt")
                .lines()
                .filter_map(|line| line.trim().strip_prefix("Server ")?.split_once(": "))
                .map(|(server, requests)| (server.parse().unwrap(), requests.parse().unwrap()))
                .collect();
        let mut ours = BTreeMap::new();
        sample_records().for_each(|record| *ours.entry(record.server).or_insert(0) += 1);
        assert_eq!(ours.len(), 29);
        assert_eq!(ours, official);
    }

    #[test]
    fn the_ranges_are_those_of_the_official_check() {
        let range = |field: fn(&Record) -> u32| {
            let values: Vec<u32> = sample_records().map(|record| field(&record)).collect();
            (*values.iter().min().unwrap(), *values.iter().max().unwrap())
        };
        assert_eq!(range(|r| r.time_s), (897_861_223, 897_861_265));
        assert_eq!(range(|r| r.client), (55, 1_815_617));
        assert_eq!(range(|r| r.object), (3, 43_685));
        assert_eq!(range(|r| r.size.unwrap_or(0)), (0, 1_590_480));
        assert!(sample_records().is_sorted_by_key(|r| r.time_s), "the check counts 0 out of order");
    }

    #[test]
    fn the_sample_encodes_to_itself() {
        let encoded: Vec<u8> = sample_records().flat_map(|record| record.encode()).collect();
        assert_eq!(encoded, SAMPLE);
    }

    #[test]
    fn a_field_without_a_legal_value_is_named() {
        let whole = sample_records().next().unwrap().encode();
        let with = |at: usize, value: u8| {
            let mut bytes = whole;
            bytes[at] = value;
            Record::decode(&bytes)
        };
        assert_eq!(with(16, 9), Err(Flaw::MethodCode(9)));
        assert_eq!(with(17, 0b1010_0110), Err(Flaw::StatusCode(38)));
        assert_eq!(with(18, 13), Err(Flaw::KindCode(13)));
        assert_eq!(with(17, 0b1010_0101).unwrap().status, 0);
    }

    #[test]
    fn a_record_cut_short_is_told_from_the_end() {
        let mut source = &SAMPLE[..RECORD_BYTES + 7];
        assert!(matches!(read(&mut source), Ok(Some(Ok(_)))));
        assert!(matches!(read(&mut source), Ok(Some(Err(Flaw::Truncated { bytes: 7, of: 20 })))));
        assert!(matches!(read(&mut source), Ok(None)));
    }

    #[test]
    fn numbers_of_another_width_are_not_likely() {
        let keys =
            |step: u32| (0..5000).flat_map(|number| (number * step % 3000).to_be_bytes()).collect::<Vec<_>>();
        for keys in [keys(1), keys(7)] {
            let (records, _) = keys.as_chunks();
            assert!(records.iter().filter(|bytes| Record::decode(bytes).is_ok()).count() * 2 > records.len());
            assert!(!is_likely(&keys));
        }
        let wide: Vec<u8> = (0..2500u64).flat_map(u64::to_be_bytes).collect();
        assert!(!is_likely(&wide) && !is_likely(&[0; 20_000]));
        // A thousand records count, not the first two hundred.
        let mut begins_so = SAMPLE[..4096].to_vec();
        begins_so.extend_from_slice(&keys(1));
        assert!(!is_likely(&begins_so));
    }

    #[test]
    fn text_is_not_likely() {
        assert!(is_likely(SAMPLE));
        assert!(!is_likely(b""));
        assert!(!is_likely(br#"10.0.0.1 - - [20/Feb/2016:00:00:45 -0500] "GET / HTTP/1.1" 200 187"#));
    }

    proptest! {
        #[test]
        fn what_decodes_encodes_to_the_same_bytes(
            words in any::<[u8; 16]>(), method in 0u8..10, status: u8, kind in 0u8..14, server: u8,
        ) {
            let mut bytes = [0; RECORD_BYTES];
            bytes[..16].copy_from_slice(&words);
            bytes[16..].copy_from_slice(&[method, status, kind, server]);
            if let Ok(record) = Record::decode(&bytes) {
                prop_assert_eq!(record.encode(), bytes);
            }
        }
    }
}
