//! What the RFCs say, by section.

use proptest::prelude::*;

use super::*;

/// Fields as they stand in a message, a line each.
fn fields(text: &str) -> Vec<Field<'_>> {
    let lines = text.lines().map(|line| line.trim()).filter(|line| !line.is_empty());
    lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        .collect()
}

const MADE: &str = "Date: Sun, 06 Nov 1994 08:49:37 GMT";
const FRESH: &str = "Cache-Control: max-age=60";

#[test]
fn rfc_9111_section_3_what_may_be_kept() {
    for (section, is_get, request, status, response, may) in [
        ("3", true, "", 200, FRESH, true),
        ("3, the method is GET", false, "", 200, FRESH, false),
        ("3, the status is final and whole", true, "", 206, FRESH, false),
        ("3, the status", true, "", 404, FRESH, false),
        ("3, it says how long it is fresh", true, "", 200, "ETag: \"a\"", false),
        ("3.5", true, "Authorization: Basic eDp5", 200, FRESH, false),
        (
            "3.5, whatever the answer allows",
            true,
            "Authorization: x",
            200,
            "Cache-Control: public, max-age=60",
            false,
        ),
        ("5.2.1.5", true, "Cache-Control: no-store", 200, FRESH, false),
        ("5.2.2.5", true, "", 200, "Cache-Control: max-age=60, no-store", false),
        ("5.2.2.7", true, "", 200, "Cache-Control: max-age=60, private", false),
        ("5.2.2.7, also of some fields", true, "", 200, "Cache-Control: private=\"a, b\", max-age=60", false),
        ("5.2.2.4", true, "", 200, "Cache-Control: no-cache, max-age=60", false),
        ("4.1", true, "", 200, "Vary: Accept-Encoding\nCache-Control: max-age=60", false),
        ("4.1, *", true, "", 200, "Vary: *\nCache-Control: max-age=60", false),
        ("7.3", true, "", 200, "Set-Cookie: a=b\nCache-Control: max-age=60", false),
        (
            "5.2, words in quotes are no directives",
            true,
            "",
            200,
            "Cache-Control: a=\"x, private\", max-age=60",
            true,
        ),
        ("5.2, in any case", true, "", 200, "cache-CONTROL: MAX-AGE=60, No-Store", false),
    ] {
        assert_eq!(may_keep(is_get, &fields(request), status, &fields(response)), may, "{section}");
    }
}

#[test]
fn rfc_9111_section_4_2_1_how_long_it_is_fresh() {
    for (what, response, seconds) in [
        ("max-age", "Cache-Control: max-age=60", 60),
        ("s-maxage before max-age", "Cache-Control: max-age=60, s-maxage=5", 5),
        ("max-age before Expires", "Cache-Control: max-age=60\nExpires: Sun, 06 Nov 1994 09:49:37 GMT", 60),
        ("several lines are one list", "Cache-Control: public\nCache-Control: max-age=7", 7),
        ("in quotes", "Cache-Control: max-age=\"60\"", 60),
        ("twice the same", "Cache-Control: max-age=60, max-age=60", 60),
        ("two that differ", "Cache-Control: max-age=60, max-age=5", 0),
        ("no number", "Cache-Control: max-age=soon", 0),
        ("negative", "Cache-Control: max-age=-1", 0),
        ("no value", "Cache-Control: max-age", 0),
        ("1.2.2: too large", "Cache-Control: max-age=99999999999999999999", SECONDS_MAX),
        ("nothing", "", 0),
        ("Expires without Date", "Expires: Sun, 06 Nov 1994 09:49:37 GMT", 0),
    ] {
        assert_eq!(lifetime(&fields(response)), Duration::from_secs(seconds), "{what}");
    }
    for (expires, seconds) in [
        ("Sun, 06 Nov 1994 09:49:37 GMT", 3600),
        ("Sunday, 06-Nov-94 08:50:37 GMT", 60),
        ("Sun Nov  6 08:49:38 1994", 1),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0),
        ("0", 0),
    ] {
        let response = format!("{MADE}\nExpires: {expires}");
        assert_eq!(lifetime(&fields(&response)), Duration::from_secs(seconds), "{expires}");
    }
}

#[test]
fn rfc_9111_sections_4_and_5_2_1_what_a_request_takes() {
    let lifetime = Duration::from_secs(60);
    for (section, request, age, takes) in [
        ("4.2", "", 0, true),
        ("4.2", "", 59, true),
        ("4.2.4: stale", "", 60, false),
        ("5.2.1.1", "Cache-Control: max-age=10", 10, true),
        ("5.2.1.1", "Cache-Control: max-age=10", 11, false),
        ("5.2.1.1, a reload", "Cache-Control: max-age=0", 1, false),
        ("5.2.1.1, no number", "Cache-Control: max-age=x", 1, false),
        ("5.2.1.2: a stale one is never given", "Cache-Control: max-stale", 60, false),
        ("5.2.1.3", "Cache-Control: min-fresh=30", 29, true),
        ("5.2.1.3", "Cache-Control: min-fresh=30", 30, false),
        ("5.2.1.7", "Cache-Control: only-if-cached", 1, true),
        ("5.4, beside Cache-Control", "Pragma: no-cache\nCache-Control: max-age=10", 1, true),
        ("4.3.2", "If-None-Match: \"a\"", 1, true),
        ("RFC 9110, 14.2", "Range: bytes=0-1", 1, true),
    ] {
        let asked = Takes::of(true, &fields(request)).unwrap();
        assert_eq!(asked.takes(Duration::from_secs(age), lifetime), takes, "{section}");
    }
    for (section, request) in [
        ("3.5", "Authorization: Basic eDp5"),
        ("5.2.1.4", "Cache-Control: no-cache"),
        ("5.2.1.5", "Cache-Control: no-store"),
        ("5.4", "Pragma: no-cache"),
        ("4.3.2: the server alone judges it", "If-Match: \"a\""),
        ("4.3.2: the server alone judges it", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT"),
    ] {
        assert_eq!(Takes::of(true, &fields(request)), None, "{section}");
    }
    assert_eq!(Takes::of(false, &[]), None, "another method");
}

#[test]
fn rfc_9110_section_13_conditions() {
    let (older, same, newer) =
        ("Sun, 06 Nov 1994 08:49:36 GMT", "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:38 GMT");
    let strong = format!("ETag: \"a\"\nLast-Modified: {same}");
    let weak = format!("ETag: W/\"a\"\nLast-Modified: {same}");
    let reply = |has_now: &str, request: &str| {
        Reply::to(true, &fields(request), Validators::of(&fields(has_now)), 10).status()
    };
    for (section, request, status) in [
        ("13.1.1", "If-Match: \"a\"".to_owned(), 200),
        ("13.1.1", "If-Match: \"b\", \"a\"".into(), 200),
        ("13.1.1", "If-Match: \"b\"".into(), 412),
        ("13.1.1, weak", "If-Match: W/\"a\"".into(), 412),
        ("13.1.1, any", "If-Match: *".into(), 200),
        ("13.1.2", "If-None-Match: \"a\"".into(), 304),
        ("13.1.2", "If-None-Match: \"b,c\", W/\"a\"".into(), 304),
        ("13.1.2, a comma in a tag", "If-None-Match: \"b, \"a\"\"".into(), 200),
        ("13.1.2, any", "If-None-Match: *".into(), 304),
        ("13.1.2", "If-None-Match: \"b\"".into(), 200),
        ("13.1.3", format!("If-Modified-Since: {same}"), 304),
        ("13.1.3", format!("If-Modified-Since: {newer}"), 304),
        ("13.1.3", format!("If-Modified-Since: {older}"), 200),
        ("13.1.3, no date", "If-Modified-Since: yesterday".into(), 200),
        ("13.1.3, after If-None-Match", format!("If-None-Match: \"b\"\nIf-Modified-Since: {same}"), 200),
        ("13.1.4", format!("If-Unmodified-Since: {same}"), 200),
        ("13.1.4", format!("If-Unmodified-Since: {older}"), 412),
        ("13.1.4, after If-Match", format!("If-Match: \"a\"\nIf-Unmodified-Since: {older}"), 200),
        ("13.1.5", "Range: bytes=0-1\nIf-Range: \"a\"".into(), 206),
        ("13.1.5", "Range: bytes=0-1\nIf-Range: \"b\"".into(), 200),
        ("13.1.5", format!("Range: bytes=0-1\nIf-Range: {same}"), 206),
        ("13.1.5, exactly", format!("Range: bytes=0-1\nIf-Range: {newer}"), 200),
        ("13.2.2, conditions before ranges", "Range: bytes=0-1\nIf-None-Match: \"a\"".into(), 304),
    ] {
        assert_eq!(reply(&strong, &request), status, "{section}: {request}");
    }
    for (section, request, status) in [
        ("13.1.1", "If-Match: W/\"a\"".to_owned(), 412),
        ("13.1.2", "If-None-Match: \"a\"".into(), 304),
        ("13.1.5", "Range: bytes=0-1\nIf-Range: W/\"a\"".into(), 200),
        ("13.1.5, 8.8.2.2", format!("Range: bytes=0-1\nIf-Range: {same}"), 200),
    ] {
        assert_eq!(reply(&weak, &request), status, "of a weak tag, {section}: {request}");
    }
    assert_eq!(
        Reply::to(false, &fields("Range: bytes=0-1"), Validators::default(), 10),
        Reply::Whole,
        "14.2: HEAD"
    );
}

#[test]
fn rfc_9110_section_14_ranges() {
    for (range, len, expected) in [
        ("bytes=0-499", 1000, Reply::Part(0..500)),
        ("bytes=500-", 1000, Reply::Part(500..1000)),
        ("bytes=-500", 1000, Reply::Part(500..1000)),
        ("bytes=-2000", 1000, Reply::Part(0..1000)),
        ("bytes=999-5000", 1000, Reply::Part(999..1000)),
        ("Bytes=0-0", 1000, Reply::Part(0..1)),
        ("bytes=0-18446744073709551615", 1000, Reply::Part(0..1000)),
        ("bytes=1000-", 1000, Reply::NotSatisfiable),
        ("bytes=99999999999999999999-", 1000, Reply::NotSatisfiable),
        ("bytes=-0", 1000, Reply::NotSatisfiable),
        ("bytes=0-", 0, Reply::NotSatisfiable),
        ("bytes=-5", 0, Reply::Whole),
        ("bytes=0-1,5-6", 1000, Reply::Whole),
        ("bytes=5-1", 1000, Reply::Whole),
        ("bytes=", 1000, Reply::Whole),
        ("bytes=-", 1000, Reply::Whole),
        ("bytes=a-b", 1000, Reply::Whole),
        ("bytes=--1", 1000, Reply::Whole),
        ("lines=0-1", 1000, Reply::Whole),
        ("0-1", 1000, Reply::Whole),
    ] {
        let request = [(&b"range"[..], range.as_bytes())];
        assert_eq!(Reply::to(true, &request, Validators::default(), len), expected, "{range} of {len}");
    }
    assert_eq!(Reply::Part(0..500).content_range(1000).as_deref(), Some("bytes 0-499/1000"), "14.4");
    assert_eq!(Reply::NotSatisfiable.content_range(1000).as_deref(), Some("bytes */1000"), "15.5.17");
}

#[test]
fn a_home_takes_up_to_twice_the_mean() {
    for (at_home, of_all, nodes, takes) in [
        (0, 0, 3, true),
        (1, 1, 3, true),
        (2, 2, 3, false),
        (10, 30, 3, true),
        (20, 30, 3, true),
        (21, 30, 3, false),
        (100, 100, 1, true),
        (u32::MAX, u32::MAX, u32::MAX, false),
    ] {
        assert_eq!(takes_more(at_home, of_all, nodes), takes, "{at_home} of {of_all} at {nodes}");
    }
}

proptest! {
    #[test]
    fn any_fields_get_a_reply_within_the_document(
        fields in prop::collection::vec((0usize..9, ".{0,40}|bytes=[0-9]{0,25}-[0-9]{0,25}"), 0..5),
        len in any::<u64>(),
    ) {
        const NAMES: [&str; 9] = ["cache-control", "range", "if-range", "if-match", "if-none-match", "etag",
            "last-modified", "if-modified-since", "pragma"];
        let fields: Vec<Field<'_>> =
            fields.iter().map(|(name, value)| (NAMES[*name].as_bytes(), value.as_bytes())).collect();
        let reply = Reply::to(true, &fields, Validators::of(&fields), len);
        let bytes = reply.bytes(len);
        prop_assert!(bytes.start <= bytes.end && bytes.end <= len);
        if let Reply::Part(range) = reply {
            prop_assert!(!range.is_empty());
        }
        _ = (may_keep(true, &fields, 200, &fields), Takes::of(true, &fields));
    }
}
