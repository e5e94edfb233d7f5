//! The fields of a client's request and of a kept document: whatever they say, a reply lies within the document.
#![no_main]

use sidelong_policy::documents::{Field, Reply, Takes, Validators, lifetime, may_keep};

libfuzzer_sys::fuzz_target!(|input: (u64, &[u8])| {
    let (len, text) = input;
    let lines = text.split(|byte| *byte == b'\n');
    let fields: Vec<Field<'_>> = lines
        .filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], &line[colon + 1..]))
        })
        .collect();
    let reply = Reply::to(true, &fields, Validators::of(&fields), len);
    let bytes = reply.bytes(len);
    assert!(bytes.start <= bytes.end && bytes.end <= len);
    assert!(!matches!(reply, Reply::Part(range) if range.is_empty()));
    assert!(!may_keep(true, &fields, 200, &fields) || !lifetime(&fields).is_zero());
    let _ = Takes::of(true, &fields);
});
