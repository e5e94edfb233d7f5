//! The status that an edge answers with, as `sidelong status` and `sidelong top` read it.
#![no_main]

libfuzzer_sys::fuzz_target!(|answer: &str| {
    if let Some(status) = sidelong_edge::Status::from_answer(answer) {
        let written = serde_json::to_string(&status).expect("what was read can be written");
        let again = sidelong_edge::Status::from_answer(&format!("HTTP/1.1 200 OK\r\n\r\n{written}"));
        assert!(again.is_some(), "{written}");
    }
});
