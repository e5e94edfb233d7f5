use super::*;
use crate::text::LINE_BYTES_MAX;
use proptest::prelude::*;

const LINE: &str = r#"10.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif?q=1 HTTP/1.0" 200 2326"#;

fn parse(line: &str) -> Result<Line<'_>, Flaw> {
    Line::parse(line.as_bytes())
}

fn time(text: &str) -> Option<u32> {
    parse_time(text.as_bytes()).map(|time| time.as_secs() as u32)
}

#[test]
fn the_documentation_s_own_line() {
    let expected = Line {
        host: b"10.0.0.1",
        time_s: 971_211_336,
        time_ns: 0,
        method: Method::Get,
        url: b"/a.gif?q=1",
        status: 200,
        size: Some(2326),
    };
    assert_eq!(parse(LINE), Ok(expected));
    assert_eq!(parse(&format!("{LINE}\r\n")), Ok(expected));
    assert_eq!(parse(&format!(r#"{LINE} "http://example.com/?\"200 1" "Mozilla/4.08 [en]""#)), Ok(expected));
    assert_eq!(parse(&LINE.replace("frank", "frank van dam")), Ok(expected));
    assert_eq!(parse(&LINE.replace("2326", "-")), Ok(Line { size: None, ..expected }));
}

#[test]
fn the_first_bad_field_is_named() {
    let cases = [
        ("", "", Flaw::Host),
        (LINE, "", Flaw::Host),
        ("10.0.0.1 ", " ", Flaw::Host),
        ("[", "", Flaw::Time),
        ("Oct", "Okt", Flaw::Time),
        ("] \"", "] ", Flaw::Request),
        (" HTTP/1.0\"", "", Flaw::Request),
        (" 200 2326", "", Flaw::Status),
        (" 200", " 20x", Flaw::Status),
        (" 200", " 2000", Flaw::Status),
        (" 2326", "", Flaw::Size),
        (" 2326", " 23x6", Flaw::Size),
        (" 2326", " 99999999999999999999", Flaw::Size),
        (" 2326", " 000000000000000000002326\"", Flaw::Size),
    ];
    for (from, to, flaw) in cases {
        let line = if from.is_empty() { String::new() } else { LINE.replacen(from, to, 1) };
        assert_eq!(parse(&line), Err(flaw), "{line}");
    }
    assert_eq!(parse(&LINE.replace("2326", "000000000000000000002326")).unwrap().size, Some(2326));
    assert_eq!(parse(&LINE.replace("2326", &u64::MAX.to_string())).unwrap().size, Some(u64::MAX));
}

#[test]
fn the_client_is_found_behind_what_others_put_before_it() {
    let host = |line: &str| String::from_utf8_lossy(parse(line).unwrap().host).into_owned();
    for before in [
        "",
        "www.example.com:443 ",
        "www.example.com ",
        "Oct 10 13:55:36 web1 nginx: ",
        "<190>Oct  1 13:55:36 10.0.0.9 nginx[71]: ",
        "2000-10-10T13:55:36.123+00:00 web1 httpd: www.example.com:80 ",
        "<190>1 2000-10-10T13:55:36Z web1 nginx 71 - - ",
        "<190>1 2000-10-10T13:55:36Z 10.0.0.9 nginx 71 ID47 [a@1 b=\"c\" d=\"e\"] ",
        "web-1  | ",
        "2000-10-10T13:55:36.1Z stdout F ",
    ] {
        for client in ["10.0.0.1", "2001:db8::1"] {
            assert_eq!(host(&format!("{before}{}", LINE.replace("10.0.0.1", client))), client, "{before}");
        }
        // With HostnameLookups. What is no known header cannot be told from the user's name.
        let is_known = !before.starts_with("www.example.com ")
            && !before.starts_with("web-1")
            && !before.contains("stdout");
        let named = format!("{before}{}", LINE.replace("10.0.0.1", "client.example"));
        assert!(!is_known || host(&named) == "client.example", "{before}");
    }
    for user in ["frank van dam", "[admin]", "a[1] b: 10", "[10/Oct/2000]"] {
        assert_eq!(host(&LINE.replace("frank", user)), "10.0.0.1", "{user}");
    }
}

#[test]
fn seconds_may_have_a_fraction() {
    let time = |text: &str| {
        let line = LINE.replace(":36 ", &format!(":36{text} "));
        parse(&line).map(|line| (line.time_s, line.time_ns))
    };
    assert_eq!(time(".123"), Ok((971_211_336, 123_000_000)));
    assert_eq!(time(".000000001"), Ok((971_211_336, 1)));
    for wrong in [".", ".1234567890", ",5", ".x"] {
        assert_eq!(time(wrong), Err(Flaw::Time), "{wrong}");
    }
}

#[test]
fn quotes_inside_a_request_do_not_end_it() {
    let url = |request: &str| {
        let line = LINE.replace("/a.gif?q=1", request);
        String::from_utf8(parse(&line).unwrap().url.to_vec()).unwrap()
    };
    assert_eq!(url(r#"/say\"hi\""#), r#"/say\"hi\""#);
    assert_eq!(url(r#"/say"hi""#), r#"/say"hi""#, "older servers did not escape");
    assert_eq!(url(r#"/a\" 200 1"#), r#"/a\" 200 1"#);
    assert_eq!(url(r"/ends\\"), r"/ends\\");
}

#[test]
fn requests_of_other_shapes() {
    let request = |request: &str| {
        let line = LINE.replace("GET /a.gif?q=1 HTTP/1.0", request);
        let line = parse(&line).unwrap();
        (line.method, String::from_utf8(line.url.to_vec()).unwrap())
    };
    assert_eq!(request("GET /old"), (Method::Get, "/old".into()));
    assert_eq!(request("HEAD /a b.html HTTP/1.1"), (Method::Head, "/a b.html".into()));
    assert_eq!(request("PROPFIND /dav HTTP/1.1"), (Method::Other, "/dav".into()));
    assert_eq!(request("-"), (Method::Other, "-".into()));
    assert_eq!(request(""), (Method::Other, "".into()));
    assert_eq!(request(r"\x16\x03\x01 \x00"), (Method::Other, r"\x16\x03\x01 \x00".into()));
}

#[test]
fn times() {
    assert_eq!(time("01/Jan/1970:00:00:00 +0000"), Some(0));
    assert_eq!(time("01/Jan/1970:01:00:00 +0100"), Some(0));
    assert_eq!(time("07/Feb/2106:06:28:15 +0000"), Some(u32::MAX));
    assert_eq!(time("29/Feb/2000:12:00:00 +0000"), Some(951_825_600));
    assert_eq!(time("14/Jun/1998:21:53:43 +0000"), Some(897_861_223));
    assert_eq!(time("31/Dec/2016:23:59:60 +0000"), time("01/Jan/2017:00:00:00 +0000"));
    for none in [
        "01/Jan/1970:00:59:59 +0100",
        "07/Feb/2106:06:28:16 +0000",
        "29/Feb/1900:12:00:00 +0000",
        "29/Feb/2015:12:00:00 +0000",
        "31/Apr/2015:12:00:00 +0000",
        "00/Apr/2015:12:00:00 +0000",
        "01/Apr/2015:24:00:00 +0000",
        "01/Apr/2015:00:60:00 +0000",
        "01/Apr/2015:00:00:61 +0000",
        "01/Apr/2015:00:00:00 00000",
        "01/Apr/2015:00:00:00 +2400",
        "01/Apr/0000:00:00:00 +0000",
        "01-Apr-2015:00:00:00 +0000",
    ] {
        assert_eq!(time(none), None, "{none}");
    }
}

/// The inverse of `days_since_epoch`, by counting: every day of three centuries has the number after the day before.
#[test]
fn days_follow_each_other() {
    let mut number = days_since_epoch(1900, 1, 1);
    assert_eq!(days_since_epoch(1970, 1, 1), 0);
    for (year, month) in (1900..2200).flat_map(|year| (1..=12).map(move |month| (year, month))) {
        for day in 1..=days_of_month(year, month) {
            assert_eq!(days_since_epoch(year, month, day), number, "{year}-{month}-{day}");
            number += 1;
        }
    }
}

#[test]
fn a_line_that_is_too_long_is_one_flaw_and_the_next_is_read() {
    let fits = format!("{LINE} \"{}\"\n", "x".repeat(LINE_BYTES_MAX - LINE.len() - 4));
    assert_eq!(fits.len(), LINE_BYTES_MAX);
    let one_more = format!("x{fits}");
    let many_more = "y".repeat(5 * LINE_BYTES_MAX);
    let text = format!("{fits}{one_more}{many_more}\n{LINE}\n{many_more}");

    let mut lines = Lines::new(b"");
    let mut source = text.as_bytes();
    let read: Vec<Result<u32, Flaw>> = std::iter::from_fn(|| lines.read(&mut source).unwrap())
        .map(|record| record.map(|request| request.time_s))
        .collect();
    let too_long = Err(Flaw::LineTooLong);
    assert_eq!(read, [Ok(971_211_336), too_long, too_long, Ok(971_211_336), too_long]);
}

#[test]
fn hosts_and_urls_are_numbered_in_order_of_first_sight() {
    let text = format!("{LINE}\n{}\n{LINE}", LINE.replace("10.0.0.1", "10.0.0.2").replace("q=1", "q=2"));
    let mut lines = Lines::new(b"");
    let mut source = text.as_bytes();
    let ids: Vec<(u32, u64)> = std::iter::from_fn(|| lines.read(&mut source).unwrap())
        .map(|record| record.map(|request| (request.client, request.object)).unwrap())
        .collect();
    assert_eq!(ids, [(0, 0), (1, 1), (0, 0)]);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Line::parse(&bytes);
    }

    /// Bytes changed in a sound line reach deeper than random ones.
    #[test]
    fn no_damage_panics(damage in proptest::collection::vec((0..LINE.len(), any::<u8>()), 1..4), cut in 0..LINE.len()) {
        let mut line = LINE.as_bytes().to_vec();
        damage.into_iter().for_each(|(at, byte)| line[at] = byte);
        let _ = Line::parse(&line);
        let _ = Line::parse(&line[..cut]);
        let _ = Line::parse(&line[cut..]);
    }

    #[test]
    fn what_is_written_is_read(
        host in "[0-9a-f.:]{1,40}",
        date in (1970i64..2106, 1usize..=12, 1i64..=28),
        clock in (0i64..24, 0i64..60, 0i64..60),
        // West of Greenwich only: times of 1970 east of it would lie before the epoch.
        zone in prop_oneof![Just("+0000"), Just("-0700"), Just("-0030")],
        method in prop_oneof![Just(Method::Get), Just(Method::Head), Just(Method::Post)],
        url in "/[a-z/?=&%.\\[ ]{0,40}",
        status in 100u16..600,
        size in proptest::option::of(any::<u64>()),
    ) {
        const NAMES: [&str; 12] =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let ((year, month, day), (hour, minute, second)) = (date, clock);
        let line = format!(
            "{host} - - [{day:02}/{}/{year}:{hour:02}:{minute:02}:{second:02} {zone}] \"{} {url} HTTP/1.1\" {status} {}",
            NAMES[month - 1],
            method.as_str(),
            size.map_or("-".to_owned(), |size| size.to_string()),
        );
        let west_s = match zone { "-0700" => 25_200, "-0030" => 1_800, _ => 0 };
        let time_s = days_since_epoch(year, month as i64, day) * 86_400 + hour * 3600 + minute * 60 + second + west_s;
        let expected = Line {
            host: host.as_bytes(),
            time_s: time_s as u32,
            time_ns: 0,
            method,
            url: url.as_bytes(),
            status,
            size,
        };
        prop_assert_eq!(Line::parse(line.as_bytes()), Ok(expected));
    }
}
