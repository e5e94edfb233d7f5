//! The built-in trace: 10,000 requests to the servers of the 1998 World Cup.

use crate::format::Format;
use crate::reader::Reader;
use crate::trace::Trace;

/// The first 10,000 records of part 4 of day 50 (14 June 1998, from 21:53:43 GMT), in the format of [`crate::wc98`].
/// See traces/worldcup98/README.md for source and terms, and [`SAMPLE_NOTICE`] for what must go with them.
pub const SAMPLE: &[u8] = include_bytes!("../../../traces/worldcup98/wc_day50_4.first10000.bin");

/// Copyright, terms and disclaimer of [`SAMPLE`], which may be passed on only together with them, unmodified.
pub const SAMPLE_NOTICE: &str = include_str!("../../../traces/worldcup98/wc_day50_4.copyright.txt");

/// [`SAMPLE`] as a trace.
pub fn sample() -> Trace {
    Reader::new("the built-in WorldCup98 sample", SAMPLE, &Some(Format::WorldCup98).into())
        .and_then(Trace::read)
        .expect("the sample is part of the program, and the tests read it")
        .0
}
