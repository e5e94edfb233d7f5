//! What a client may rely on whatever it sends, and in whatever pieces.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use sidelong_cache::{Cache, Host, Login, Session, Settings, Users, World};

use crate::support::{Connection, ITEM_BYTES_MAX, Server};

/// More than any line, and the largest value.
const WAITING_BYTES_MAX: usize = ITEM_BYTES_MAX + 4096;

/// What a new server answers to a new client.
fn answers(bytes: &[u8]) -> String {
    let mut connection = Connection::default();
    let answers = Server::default().answer(&mut connection, bytes);
    let end = if connection.is_closed { "(closed)" } else { "" };
    String::from_utf8(answers).unwrap() + end
}

#[test]
fn a_browser_is_not_listened_to() {
    assert_eq!(answers(b"POST / HTTP/1.1\r\nset a 0 0 1\r\n"), "(closed)");
}

#[test]
fn a_line_has_a_bound() {
    assert_eq!(answers(&[b'x'; 2047]), "");
    assert_eq!(answers(&[b'x'; 2048]), "ERROR\r\n");
    assert_eq!(answers(&[&[b'x'; 9000][..], b"\r\nmn\r\n"].concat()), "ERROR\r\nMN\r\n");
}

#[test]
fn flags_have_a_bound() {
    let most = "mg a v k s t c f h l q u N0 R0 T0 C0 E0 O P L\r\n";
    assert_eq!(answers(most.as_bytes()), "VA 0 ka s0 t-1 c1 f0 h0 l0 O W\r\n\r\n");
    assert_eq!(
        answers(&most.replace(" v", " v F0").into_bytes()),
        "CLIENT_ERROR options flags are too long\r\n"
    );
}

#[test]
fn any_number_of_keys_fits_on_a_line() {
    let mut line = b"set k 0 0 1\r\nv\r\nget".to_vec();
    line.extend(b" k".repeat(100_000));
    let mut server = Server { out_bytes_max: 4096, ..Server::default() };
    let mut connection = Connection::default();
    let mut answered = server.answer(&mut connection, &line);
    answered.extend(server.answer(&mut connection, b"\r\n"));
    assert_eq!(answered, [b"STORED\r\n", &b"VALUE k 0 1\r\nv\r\n".repeat(100_000)[..], b"END\r\n"].concat());
    assert!(connection.out_max < 8192, "{} bytes of answers were held", connection.out_max);
}

#[test]
fn a_value_that_is_too_large_is_not_held() {
    let mut server = Server::default();
    let mut connection = Connection::default();
    server.answer(&mut connection, b"set a 0 0 1\r\nv\r\n");
    let refused = server.answer(&mut connection, b"set a 0 0 2000000000\r\n");
    assert_eq!(refused, b"SERVER_ERROR object too large for cache\r\n");
    for _ in 0..2000 {
        assert_eq!(server.answer(&mut connection, &vec![b'v'; 1_000_000]), b"");
    }
    assert!(connection.waiting_max <= 1_000_000);
    assert_eq!(server.answer(&mut connection, b"\r\nget a\r\n"), b"END\r\n");
}

#[test]
fn a_thousand_commands_are_answered_in_one_call() {
    assert_eq!(answers(&b"mn\r\n".repeat(1000)), "MN\r\n".repeat(1000));
}

#[test]
fn numbers_have_64_bits() {
    let set = b"set n 0 0 20\r\n18446744073709551615\r\n";
    let sent = [&set[..], b"incr n 2\r\nget n\r\ndecr n 9\r\nincr n 18446744073709551616\r\n"].concat();
    let refused = "CLIENT_ERROR invalid numeric delta argument\r\n";
    let expected = format!("STORED\r\n1\r\nVALUE n 0 20\r\n1{}\r\nEND\r\n0\r\n{refused}", " ".repeat(19));
    assert_eq!(answers(&sent), expected);
}

#[test]
fn items_expire() {
    let mut server = Server::default();
    let mut connection = Connection::default();
    let until = server.unix_at_0 + i64::from(server.now) + 50;
    let sets =
        format!("set a 0 100 0\r\n\r\nset b 0 {until} 0\r\n\r\nset c 0 0 0\r\n\r\nset d 0 -1 0\r\n\r\n");
    server.answer(&mut connection, sets.as_bytes());
    let mut left = |seconds: u32| {
        server.now = 1000 + seconds;
        let answered = server.answer(&mut connection, b"get a b c d\r\n");
        let words = String::from_utf8(answered).unwrap();
        words
            .lines()
            .filter_map(|line| Some(line.strip_prefix("VALUE ")?[..1].to_owned()))
            .collect::<String>()
    };
    assert_eq!(
        (left(49), left(50), left(99), left(100)),
        ("abc".into(), "ac".into(), "ac".into(), "c".into())
    );
}

#[test]
fn a_clock_that_is_set_changes_no_item_that_is_there() {
    let mut server = Server::default();
    let mut connection = Connection::default();
    let unix_now = |server: &Server| server.unix_at_0 + i64::from(server.now);
    let until = unix_now(&server) + 100;
    let sets = format!("set a 0 100 0\r\n\r\nset b 0 {until} 0\r\n\r\n");
    server.answer(&mut connection, sets.as_bytes());
    for step in [1_000_000, -2_000_000] {
        server.unix_at_0 += step;
        assert_eq!(
            server.answer(&mut connection, b"mg a t\r\nmg b t\r\n"),
            b"HD t100\r\nHD t100\r\n",
            "by {step} s"
        );
        // What is stored from then on expires by the new time.
        let until = unix_now(&server) + 50;
        let set = format!("set c 0 {until} 0\r\n\r\nmg c t\r\nset c 0 {} 0\r\n\r\nmg c t\r\n", until - 50);
        assert_eq!(server.answer(&mut connection, set.as_bytes()), b"STORED\r\nHD t50\r\nSTORED\r\nEN\r\n");
    }
    server.now += 100;
    assert_eq!(server.answer(&mut connection, b"get a b\r\n"), b"END\r\n");
}

#[test]
fn a_flush_may_be_put_off() {
    let mut server = Server::default();
    let mut connection = Connection::default();
    let sent = b"set a 0 0 0\r\n\r\nflush_all 10\r\nget a\r\n";
    assert_eq!(server.answer(&mut connection, sent), b"STORED\r\nOK\r\nVALUE a 0 0\r\n\r\nEND\r\n");
    server.now += 10;
    assert_eq!(server.answer(&mut connection, b"get a\r\n"), b"END\r\n");
}

#[test]
fn whoever_must_log_in_does_nothing_else_before() {
    let users = Users::parse("ann:secret\nbob:other\n", Login::Text);
    let mut server = Server { users: Some(users), ..Server::default() };
    let mut connection = Connection::default();
    let mut say = |bytes: &[u8]| String::from_utf8(server.answer(&mut connection, bytes)).unwrap();
    assert_eq!(say(b"get a\r\n"), "CLIENT_ERROR unauthenticated\r\n");
    assert_eq!(say(b"set x 0 0 9\r\nann other\r\n"), "CLIENT_ERROR authentication failure\r\n");
    assert_eq!(say(b"set x 0 0 3\r\nann\r\n"), "CLIENT_ERROR bad authentication token format\r\n");
    assert_eq!(say(b"\x80\n"), "CLIENT_ERROR unauthenticated\r\n");
    assert_eq!(say(b"set x 0 0 10\r\nann secret\r\nget a\r\n"), "STORED\r\nEND\r\n");
}

/// A packet of the binary protocol.
fn packet(code: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x80, code, 0, key.len() as u8, 0, 0, 0, 0];
    packet.extend(((key.len() + value.len()) as u32).to_be_bytes());
    packet.extend([0; 12]);
    packet.extend([key, value].concat());
    packet
}

#[test]
fn whoever_must_log_in_by_sasl_does_nothing_else_before() {
    let users = Users::parse("ann:secret:more\nbob:other\n", Login::Sasl);
    let mut server = Server { users: Some(users), ..Server::default() };
    // The status, and the value.
    let mut ask = |connection: &mut Connection, packet: &[u8]| {
        let answer = server.answer(connection, packet);
        (u16::from_be_bytes([answer[6], answer[7]]), String::from_utf8(answer[24..].to_vec()).unwrap())
    };
    let refused = (0x20, "Auth failure.".to_owned());
    for code in [0x00, 0x0a, 0x10, 0x55] {
        let mut connection = Connection::default();
        assert_eq!(ask(&mut connection, &packet(code, b"a", b"")), refused);
        assert!(connection.is_closed, "{code}");
    }
    let mut connection = Connection::default();
    assert_eq!(ask(&mut connection, &packet(0x20, b"", b"")), (0, "PLAIN".to_owned()));
    assert_eq!(ask(&mut connection, &packet(0x0b, b"", b"")), (0, "1.6.18".to_owned()));
    for (mechanism, message) in [
        (&b"PLAIN"[..], &b"\0ann\0other"[..]),
        (b"PLAIN", b"\0ann\0secret:more"),
        (b"PLAIN", b"ann\0secret"),
        (b"PLAIN", b""),
        (b"CRAM-MD5", b"\0ann\0secret"),
    ] {
        assert_eq!(ask(&mut connection, &packet(0x21, mechanism, message)), refused, "{message:?}");
    }
    let authenticated = (0, "Authenticated".to_owned());
    assert_eq!(ask(&mut connection, &packet(0x21, b"PLAIN", b"ann\0ann\0secret")), authenticated);
    assert_eq!(ask(&mut connection, &packet(0x00, b"a", b"")), (1, "Not found".to_owned()));
    // One that fails later is not logged in any more.
    assert_eq!(ask(&mut connection, &packet(0x21, b"PLAIN", b"\0bob\0secret")), refused);
    assert_eq!(ask(&mut connection, &packet(0x00, b"a", b"")), refused);
    let mut long = Connection::default();
    assert_eq!(ask(&mut long, &packet(0x21, b"PLAIN", &[0; 20_000])).0, 4);
    assert!(long.is_closed);
    let mut text = Connection::default();
    assert!(server.answer(&mut text, b"get a\r\n").is_empty() && text.is_closed);
    assert_eq!((server.counters.auth_cmds, server.counters.auth_errors), (7, 6));
    // Where nobody must log in, nobody can.
    let answer = Server::default().answer(&mut Connection::default(), &packet(0x20, b"", b""));
    assert_eq!(answer[7], 0x81);
}

#[test]
fn what_finds_no_room_leaves_what_was_there_unless_it_was_to_be_replaced() {
    let mut server = Server::default();
    let settings = Settings { memory_bytes: 8 << 20, evicts: false, ..*server.cache.settings() };
    server.cache = Cache::new(settings).unwrap();
    let mut connection = Connection::default();
    let mut say = |bytes: &[u8]| String::from_utf8(server.answer(&mut connection, bytes)).unwrap();
    let large = "x".repeat(200_000);
    assert_eq!(say(b"set a 0 0 1\r\n9\r\n"), "STORED\r\n");
    let mut stored = 0;
    while say(format!("set k{stored} 0 0 200000\r\n{large}\r\n").as_bytes()) == "STORED\r\n" {
        stored += 1;
    }
    assert!(stored > 10);
    let refused = "SERVER_ERROR out of memory storing object\r\n";
    assert_eq!(say(format!("append a 0 0 200000\r\n{large}\r\n").as_bytes()), refused);
    assert_eq!(say(b"incr a 1\r\n"), "10\r\n");
    assert_eq!(say(format!("set a 0 0 200000\r\n{large}\r\n").as_bytes()), refused);
    assert_eq!(say(b"get a\r\n"), "END\r\n");
}

#[test]
fn stats_are_rows() {
    let shown = answers(b"get a\r\nset a 0 0 1\r\nv\r\nstats\r\n");
    for row in [
        "cmd_get 1",
        "get_misses 1",
        "cmd_set 1",
        "curr_items 1",
        "limit_maxbytes 67108864",
        "version 1.6.18",
    ] {
        assert!(shown.contains(&format!("\r\nSTAT {row}\r\n")), "{row} is not in {shown}");
    }
    assert_eq!(answers(b"stats conns\r\n"), "STAT 7:addr unix:<AF 1>\r\nEND\r\n");
    assert_eq!(answers(b"stats sizes\r\n"), "STAT sizes_status disabled\r\nEND\r\n");
    assert!(answers(b"stats settings\r\n").contains("STAT item_size_max 1048576\r\n"));
    assert!(answers(b"set a 0 0 1\r\nv\r\nstats items\r\n").contains("STAT items:1:number 1\r\n"));
    assert!(answers(b"stats slabs\r\n").starts_with("STAT active_slabs 0\r\n"));
    let slabs = answers(b"set a 0 0 1\r\nv\r\nset b 0 0 2\r\nvv\r\nstats slabs\r\n");
    assert!(
        slabs.contains("STAT 1:chunk_size 64\r\n") && slabs.contains("STAT 1:used_chunks 2\r\n"),
        "{slabs}"
    );
    assert!(slabs.contains("STAT active_slabs 1\r\n"), "{slabs}");
    assert!(slabs.contains("STAT 1:cmd_set 2\r\n") && slabs.contains("STAT 1:cas_badval 0\r\n"), "{slabs}");
    assert!(answers(b"get a\r\nstats reset\r\nstats\r\n").contains("STAT cmd_get 0\r\n"));
}

#[test]
fn keys_are_listed() {
    let stored = "set a 0 0 1\r\nv\r\nset b%c 0 30 2 noreply\r\nvv\r\nget a\r\n";
    let shown = |command: &str| {
        let all = answers(format!("{stored}{command}\r\nmn\r\n").as_bytes());
        let is_shown = |line: &&str| *line != "OK";
        let mut lines: Vec<_> = all.lines().skip(4).filter(is_shown).map(str::to_owned).collect();
        let [end, mn] = lines.split_off(lines.len() - 2).try_into().unwrap();
        assert_eq!(mn, "MN", "{all}");
        lines.sort();
        (lines, end)
    };
    let (facts, end) = shown("lru_crawler metadump all");
    assert_eq!(end, "END");
    assert_eq!(facts[0], "key=a exp=-1 la=1700001000 cas=1 fetch=yes cls=1 size=2 flags=0 ");
    assert_eq!(facts[1], "key=b%25c exp=1700001030 la=1700001000 cas=2 fetch=no cls=1 size=5 flags=0 ");
    assert_eq!(shown("lru_crawler metadump 2,1"), (facts, "END".into()));
    assert_eq!(shown("lru_crawler metadump 2"), (Vec::new(), "END".into()));
    assert_eq!(shown("lru_crawler mgdump all"), (vec!["mg a".into(), "mg b%c".into()], "EN".into()));
    assert_eq!(answers(b"lru_crawler mgdump all\r\n"), "OK\r\nEN\r\n");
    assert_eq!(answers(b"lru_crawler metadump 64\r\n"), "BADCLASS invalid class id\r\n");
    assert_eq!(answers(b"lru_crawler metadump\r\nlru_crawler metadump all 1\r\n"), "ERROR\r\nERROR\r\n");
    // A key with a line's end in it makes no line of its own.
    let dumped = answers(b"ms IAoN 1 b\r\n1\r\nlru_crawler mgdump all\r\nstats cachedump 1 0\r\n");
    assert_eq!(dumped, "HD\r\nOK\r\nmg IAoN b\r\nEN\r\nEND\r\n");
    let items = vec!["ITEM a [1 b; 0 s]".into(), "ITEM b%c [2 b; 1700001030 s]".into()];
    assert_eq!(shown("stats cachedump 1 0"), (items, "END".into()));
    assert_eq!(shown("stats cachedump 1 1").0.len(), 1);
    assert_eq!(shown("stats cachedump 2 0").0.len(), 0);
    assert_eq!(answers(b"watch fetchers\r\n"), "CLIENT_ERROR watch commands not allowed\r\n");
}

/// Commands of every request are read in place, and answered from where the items lie.
#[test]
fn what_is_frequent_allocates_nothing() {
    let mut server = Server::default();
    server.answer(&mut Connection::default(), b"set a 0 0 5\r\nvalue\r\n");
    let binary_get = b"\x80\x00\x00\x01\0\0\0\0\x00\x00\x00\x01\0\0\0\0\0\0\0\0\0\0\0\0a";
    // What add finds it does not store, so that the memory of items stays out of it.
    let frequent: [&[u8]; 6] = [
        b"get a b\r\n",
        b"gets a\r\n",
        b"gat 0 a\r\n",
        b"mg a v k t c q Oabc T0\r\n",
        b"add a 0 0 5\r\nvalue\r\n",
        binary_get,
    ];
    let world = World { now: 1000, out_bytes_max: 4096, ..World::default() };
    let mut out = Vec::with_capacity(4096);
    for command in frequent {
        out.clear();
        let mut session = Session::new();
        let mut host = Host {
            cache: &mut server.cache,
            counters: &mut server.counters,
            world: &world,
            neighbours: None,
        };
        let allocated = allocation_counter::measure(|| {
            session.feed(command, &mut host, &mut out);
        });
        assert!(!out.is_empty());
        assert_eq!(allocated.count_total, 0, "{}", command.escape_ascii());
    }
}

/// What clients send, whole and broken.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&[u8]> = vec![
        b"get ",
        b"gets ",
        b"gat ",
        b"set a 0 0 3",
        b"add ",
        b"cas ",
        b"append a 0 0 1",
        b"incr ",
        b"touch ",
        b"delete ",
        b"mg ",
        b"ms a 3 ",
        b"md ",
        b"ma ",
        b"mn",
        b"me ",
        b"stats items\r\n",
        b"flush_all ",
        b"quit",
        b"verbosity ",
        b"set a 0 0 99999999",
        b"a ",
        b"b ",
        b"1 ",
        b"0 ",
        b"-1 ",
        b"noreply",
        b" v",
        b" k",
        b" b",
        b" T1",
        b" N0",
        b" I",
        b" x",
        b" C1",
        b" q",
        b" O12",
        b"\r\n",
        b"\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b"foo\r\n",
        b"x\r\n",
        b" ",
        b"\0",
        b"18446744073709551615",
        b"\x80\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\0\0\0\0\0\0\0\0\0\0\0\0a",
        b"\x80\x01\x00\x01\x08\x00\x00\x00\x00\x00\x00\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\0av",
        b"\x80\x0e\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\0\0\0\0\0\0\0\0\0\0\0\0av",
        b"\x80\x10\x00\x05\x00\x00\x00\x00\x00\x00\x00\x05\0\0\0\0\0\0\0\0\0\0\0\0slabs",
        b"\x80\x41\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0",
    ];
    let part = prop_oneof![
        9 => select(words).prop_map(<[u8]>::to_vec),
        1 => vec(any::<u8>(), 0..8),
        1 => (0..3000_usize).prop_map(|len| vec![b'k'; len]),
    ];
    vec(part, 0..60).prop_map(|parts| parts.concat())
}

proptest! {
    /// In any pieces, and however much room there is for answers, the answers are the same.
    #[test]
    fn pieces_change_nothing(bytes in bytes(), mut cuts in vec(any::<prop::sample::Index>(), 0..40), room in 1..5000_usize) {
        let mut whole = Connection::default();
        let expected = Server::default().answer(&mut whole, &bytes);
        cuts.sort_by_key(|cut| cut.index(bytes.len() + 1));
        let mut server = Server { out_bytes_max: room, ..Server::default() };
        let mut connection = Connection::default();
        let (mut answered, mut from) = (Vec::new(), 0);
        for cut in cuts.iter().map(|cut| cut.index(bytes.len() + 1)).chain([bytes.len()]) {
            answered.extend(server.answer(&mut connection, &bytes[from..cut]));
            from = cut;
        }
        prop_assert_eq!(answered.escape_ascii().to_string(), expected.escape_ascii().to_string());
        prop_assert_eq!(connection.is_closed, whole.is_closed);
        prop_assert!(connection.waiting_max <= WAITING_BYTES_MAX);
        // One value of this test, or one answer to stats.
        prop_assert!(connection.out_max <= room + 5000, "{} bytes of answers", connection.out_max);
    }
}
