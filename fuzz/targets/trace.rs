//! Traces: the first byte names the format, or leaves it to be recognised; the rest is the file.
#![no_main]

use std::io::Cursor;

use libfuzzer_sys::fuzz_target;
use sidelong_trace::{Format, Known, Reader, summarise};

fuzz_target!(|bytes: &[u8]| {
    let Some((format, bytes)) = bytes.split_first() else { return };
    let format = Format::ALL.get(usize::from(*format)).copied();
    let known = Known { format, columns: None };
    let Ok(mut reader) = Reader::new("trace", Cursor::new(bytes.to_vec()), &known) else { return };
    let _ = summarise(&mut reader);
});
