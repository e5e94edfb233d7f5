use super::*;

fn rows(text: &str, columns: Option<&str>) -> Result<(Stamps, Vec<Result<Request, Flaw>>), String> {
    let columns = columns.map(|columns| columns.parse::<Columns>().unwrap());
    let mut rows = Rows::new(text.as_bytes(), columns.as_ref())?;
    let mut source = text.as_bytes();
    let all = std::iter::from_fn(|| rows.read(&mut source).unwrap()).collect();
    Ok((rows.stamps(text.as_bytes()), all))
}

fn sound(text: &str, columns: Option<&str>) -> Vec<Request> {
    rows(text, columns).unwrap().1.into_iter().map(Result::unwrap).collect()
}

#[test]
fn a_header_says_what_is_what() {
    let requests = sound("size;Key;timestamp;op\n10;a;5;get\n;b;6;set\n-;a;7;delete\n", None);
    let seen: Vec<_> = requests.iter().map(|r| (r.time_s, r.size, r.method)).collect();
    assert_eq!(seen, [(5, Some(10), Method::Get), (6, None, Method::Put), (7, None, Method::Delete)]);
    assert_eq!(requests[0].object, requests[2].object);
    let error = rows("when,what\n1,2\n", None).unwrap_err();
    assert!(error.contains("time=1,object=2,size=3"), "{error}");
}

#[test]
fn columns_are_numbers_or_names_of_the_header() {
    let with_header = "what when bytes\n7 1 100\n8 2 200\n";
    let without = "7 1 100\n8 2 200\n";
    let by_number = sound(without, Some("time=2,object=1,size=3"));
    assert_eq!(by_number.len(), 2);
    assert_eq!((by_number[1].time_s, by_number[1].object, by_number[1].size), (2, 8, Some(200)));
    // The first line is recognised as a header because its time is not a number.
    assert_eq!(sound(with_header, Some("time=2,object=1,size=3")), by_number);
    assert_eq!(sound(with_header, Some("time=When,object=what,size=bytes")), by_number);
    let error = rows(with_header, Some("time=when,object=who")).unwrap_err();
    assert!(error.contains("\"who\"") && error.contains("what, when, bytes"), "{error}");
}

#[test]
fn columns_that_say_too_little_are_refused() {
    for text in [
        "",
        "time=1",
        "object=1",
        "time=0,object=2",
        "time=1,object=",
        "time=1,object=2,colour=3",
        "time=1,object=2,time=3",
        "time=1,object=2,unit=h",
        "time=1,object",
    ] {
        let error = text.parse::<Columns>().unwrap_err().to_string();
        assert!(error.starts_with("columns = ") && error.contains("time=COLUMN"), "{error}");
    }
}

#[test]
fn times_have_their_unit_and_may_have_a_fraction() {
    let times = |text, columns| {
        let (stamps, rows) = rows(text, Some(columns)).unwrap();
        (stamps, rows.iter().map(|row| row.unwrap().time().as_nanos()).collect::<Vec<_>>())
    };
    assert_eq!(times("3,1\n", "time=1,object=2"), (Stamps::Seconds, vec![3_000_000_000]));
    assert_eq!(times("3.25,1\n", "time=1,object=2"), (Stamps::Finer, vec![3_250_000_000]));
    assert_eq!(times("1, 3.25\n", "time=2,object=1"), (Stamps::Finer, vec![3_250_000_000]));
    assert_eq!(times("3250,1\n", "time=1,object=2,unit=ms"), (Stamps::Finer, vec![3_250_000_000]));
    assert_eq!(times("7.5,1\n", "time=1,object=2,unit=us"), (Stamps::Finer, vec![7_500]));
    assert_eq!(times("0.1234567899,1\n", "time=1,object=2"), (Stamps::Finer, vec![123_456_789]));
    assert_eq!(parse_time(b"4294967295.999999999", NS_PER_S), Some(4_294_967_295_999_999_999));
    for text in [&b"4294967296"[..], b"-1", b"1e3", b"1.-", b"", b".5", b"99999999999999999999"] {
        assert_eq!(parse_time(text, NS_PER_S), None);
    }
}

#[test]
fn clients_are_numbers_or_are_numbered() {
    let clients = |text| {
        let (_, rows) = rows(text, Some("time=1,object=2,client=3")).unwrap();
        rows.iter().map(|row| row.map(|row| row.client)).collect::<Vec<_>>()
    };
    assert_eq!(clients("1,1,70\n1,1,7\n1,1,x\n"), [Ok(70), Ok(7), Err(Flaw::Field("client"))]);
    assert_eq!(clients("1,1,b\n1,1,7\n1,1,b\n"), [Ok(0), Ok(1), Ok(0)]);
}

#[test]
fn quotes_keep_separators_together() {
    let requests = sound("1,\"a,b\",5\n2,\"a,c\" ,6\n3,\"a,b\",7", Some("time=1,object=2,size=3"));
    assert_eq!(requests[0].object, object_number(b"a,b"));
    assert_eq!(requests[0].object, requests[2].object);
    assert_eq!(requests.iter().map(|r| r.size.unwrap()).collect::<Vec<_>>(), [5, 6, 7]);
}

#[test]
fn a_field_that_cannot_be_is_named() {
    let text = "time,object,size,client,status,method\n\
                x,1,1,1,200,GET\n1,,1,1,200,GET\n1,1,x,1,200,GET\n1,1,1,1,70000,GET\n1,1,1,1,200,fetch\n1,1\n";
    let flaws: Vec<_> = rows(text, None).unwrap().1.into_iter().map(Result::unwrap_err).collect();
    let fields = ["time", "object", "size", "status", "method", "size"];
    assert_eq!(flaws, fields.map(Flaw::Field));
}

#[test]
fn a_method_that_we_do_not_name_is_one_all_the_same() {
    let requests = sound("time,object,method\n1,1,PROPFIND\n1,1,post\n1,1,PURGE\n", None);
    let methods: Vec<Method> = requests.iter().map(|request| request.method).collect();
    assert_eq!(methods, [Method::Other, Method::Post, Method::Other]);
}

#[test]
fn two_quotes_in_quotes_are_one() {
    let text = "1,\"say \"\"a,b\"\"\",5,\"\"\"\"\n2,plain,6,x\n3,\"\",7,x\n4,\"a\"\"b\"\"\",8,\"x\"\n";
    let (_, rows) = rows(text, Some("time=1,object=2,size=3,client=4")).unwrap();
    let seen: Vec<_> = rows.iter().map(|row| row.map(|row| (row.object, row.size, row.client))).collect();
    let expected = [
        Ok((object_number(b"say \"a,b\""), Some(5), 0)),
        Ok((object_number(b"plain"), Some(6), 1)),
        Err(Flaw::Field("object")),
        Ok((object_number(b"a\"b\""), Some(8), 1)),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn lines_of_equally_many_fields_are_told_from_other_text() {
    assert!(is_headed(b"time,object\n1,2\n") && !is_headed(b"1,2\n3,4\n") && !is_headed(b""));
    assert!(is_separated(b"1,2\n3,4\n") && !is_separated(b"1,2\n3\n") && !is_separated(b"-\n-\n"));
}
