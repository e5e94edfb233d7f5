//! The status that an edge answers with, as `sidelong status` and `sidelong top` read it. Lines end in LF here, so that seeds are
//! text.
#![no_main]

use sidelong_edge::Status;

libfuzzer_sys::fuzz_target!(|answer: &str| {
    if let Some(status) = Status::from_answer(&answer.replace('\n', "\r\n")) {
        let written = serde_json::to_string(&status).expect("what was read can be written");
        let again = Status::from_answer(&format!("HTTP/1.1 200 OK\r\n\r\n{written}"));
        assert!(again.is_some(), "{written}");
    }
});
