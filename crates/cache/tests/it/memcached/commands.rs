//! Commands by chance.
//!
//! Some keys hold text, and others numbers. What memcached 1.6.18 does otherwise is left out here; the exceptions name it.

use std::fmt;

use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// A command as it is sent. A unique number in it is that of `key`, which each server must be asked for.
#[derive(Clone)]
pub(crate) enum Command {
    /// With `@` in place of a unique number.
    Text {
        bytes: Vec<u8>,
        key: Vec<u8>,
        cas: Cas,
    },
    Binary {
        code: u8,
        key: Vec<u8>,
        extras: Vec<u8>,
        value: Vec<u8>,
        cas: Cas,
    },
}

/// The unique number that a client sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cas {
    None,
    Right,
    Higher,
    Lower,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |bytes: &[u8]| bytes[..bytes.len().min(300)].escape_ascii().to_string();
        match self {
            Command::Text { bytes, cas, .. } => write!(f, "{} ({cas:?})", short(bytes)),
            Command::Binary { code, key, extras, value, cas } => {
                write!(f, "{code:#x} {} {} {} ({cas:?})", short(extras), short(key), short(value))
            }
        }
    }
}

const TEXTS: [&str; 2] = ["a", "b"];
const NUMBERS: [&str; 2] = ["n", "m"];
/// Keys of bytes that no line may contain.
const ENCODED: [&str; 2] = ["AAEC", "/yAN"];

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => select(&TEXTS[..]).prop_map(str::to_owned),
        2 => select(&NUMBERS[..]).prop_map(str::to_owned),
        1 => Just("k".repeat(250)),
    ]
}

fn long_key() -> String {
    "k".repeat(251)
}

/// A value for a key.
fn value(key: &str) -> BoxedStrategy<Vec<u8>> {
    if NUMBERS.contains(&key) {
        // From 2^63 on memcached looks for a sign behind the number too, in what it has there by chance.
        let numbers =
            ["0", "9", "10", "99", "999999999999", "18446744073709551616", "007", "5  ", "-1", "x", ""];
        return select(numbers.to_vec()).prop_map(|number| number.as_bytes().to_vec()).boxed();
    }
    let values: [&[u8]; 6] =
        [b"", b"v", b"two\r\nlines\r\n", b"\x00\xff\x80", b"END\r\nMN\r\n", &[b'x'; 300]];
    prop_oneof![8 => select(values.map(<[u8]>::to_vec).to_vec()), 1 => Just(vec![b'z'; 700_000])].boxed()
}

fn exptime() -> impl Strategy<Value = i64> {
    let in_an_hour = super::unix_now() + 3600;
    select(vec![0, 0, 0, 100, 1000, -1, 2_592_000, 2_592_001, 1_000_000_000, in_an_hour])
}

/// A time to live that is not over at once.
fn lasting() -> impl Strategy<Value = i64> {
    select(vec![0, 100, 1000])
}

fn noreply() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just(""), 1 => Just(" noreply")]
}

fn cas() -> impl Strategy<Value = Cas> {
    select(vec![Cas::Right, Cas::Right, Cas::Higher, Cas::Lower])
}

fn plain(bytes: impl Into<Vec<u8>>) -> Command {
    Command::Text { bytes: bytes.into(), key: Vec::new(), cas: Cas::None }
}

/// A line, and a value behind it.
fn with_value(line: String, value: &[u8]) -> Vec<u8> {
    [line.as_bytes(), b"\r\n", value, b"\r\n"].concat()
}

fn storage() -> impl Strategy<Value = Command> {
    let name = select(vec!["set", "set", "set", "add", "replace", "append", "prepend", "cas"]);
    let flags = select(vec![0_u32, 1, 65_536, u32::MAX]);
    let parts = key().prop_flat_map(|key| (value(&key), Just(key)));
    (name, parts, flags, exptime(), noreply(), cas()).prop_map(
        |(name, (value, key), flags, exptime, noreply, cas)| {
            let number = if name == "cas" { " @" } else { "" };
            let line = format!("{name} {key} {flags} {exptime} {}{number}{noreply}", value.len());
            Command::Text {
                bytes: with_value(line, &value),
                key: key.into(),
                cas: if name == "cas" { cas } else { Cas::None },
            }
        },
    )
}

fn retrieval() -> impl Strategy<Value = Command> {
    let keys = prop::collection::vec(key(), 1..4).prop_map(|keys| keys.join(" "));
    (select(vec!["get", "gets", "gat", "gats"]), keys, exptime()).prop_map(|(name, keys, exptime)| {
        plain(if name.starts_with("gat") {
            format!("{name} {exptime} {keys}\r\n")
        } else {
            format!("{name}  {keys} \r\n")
        })
    })
}

fn simple() -> impl Strategy<Value = Command> {
    let delta = select(vec!["0", "1", "9", "11", "x", "-1", ""]);
    prop_oneof![
        (key(), noreply()).prop_map(|(key, noreply)| plain(format!("delete {key}{noreply}\r\n"))),
        (key(), exptime(), noreply())
            .prop_map(|(key, exptime, noreply)| plain(format!("touch {key} {exptime}{noreply}\r\n"))),
        (select(vec!["incr", "decr"]), key(), delta, noreply())
            .prop_map(|(name, key, delta, noreply)| plain(format!("{name} {key} {delta}{noreply}\r\n"))),
        select(vec![
            "flush_all",
            "flush_all 0",
            "flush_all noreply",
            "flush_all 0 noreply",
            "flush_all -1",
            "verbosity 0"
        ])
        .prop_map(|line| plain(format!("{line}\r\n"))),
    ]
}

/// What is wrong, or nearly.
fn odd() -> impl Strategy<Value = Command> {
    let long = long_key();
    let lines = [
        "",
        " ",
        "get",
        "gets",
        "gat",
        "gat x a",
        "me",
        "ms a",
        "ms a x",
        "ms a -1",
        "mx a",
        "mn x",
        "set",
        "set a",
        "set a 0 0",
        "set a 0 0 -1",
        "set a 0 0 x",
        "add a 0 0 x noreply",
        "incr a",
        "incr n x",
        "touch a",
        "touch a x",
        "touch a x noreply",
        "delete",
        "delete a 0",
        "delete a 0 noreply",
        "flush_all x",
        "flush_all x noreply",
        "verbosity",
        "verbosity x",
        "verbosity 1 2",
        "version",
        "version x",
        "foo",
        "foo bar",
        "GET a",
        "bogus noreply",
        "stats foo",
        "stats sizes",
        "stats reset",
        "mg a !",
        "mg a v v",
        "mg a Nx",
        "mg a T",
        "mg AA b",
        "mg a Fx",
        "ms a 0 Fx\r\n",
        "mn",
        "me a",
        "me /yAN b",
        "me none",
        "mg a P/path Lhint",
        "mg a q q=",
        "quit",
        "get a HTTP/1.1",
        "GET / HTTP/1.1",
    ];
    let long_keys = ["get L", "get L a", "mg L", "md L", "me L", "delete L", "touch L 0", "incr L 1"];
    let mut lines: Vec<Vec<u8>> = lines.map(|line| format!("{line}\r\n").into_bytes()).to_vec();
    lines.extend(long_keys.map(|line| format!("{}\r\n", line.replace('L', &long)).into_bytes()));
    // Values that are not as long as was said, or too long.
    lines.extend(
        ["set a 0 0 3\r\nabcdef\r\n", "set a 0 0 3 noreply\r\nabcd\r\n", "ms a 1 q\r\nabc\r\n", "get b\n"]
            .map(Into::into),
    );
    lines.extend(
        ["ms a 2 !\r\nhi\r\n", "ms a 2 v v\r\nhi\r\n", "ms a 2 Mz\r\nhi\r\n", "ms a 2 T\r\nhi\r\n"]
            .map(Into::into),
    );
    for line in ["set a 0 0 2000000", "add b 0 0 2000000 noreply", "ms a 2000000 q"] {
        lines.push(with_value(line.into(), &vec![b'v'; 2_000_000]));
    }
    select(lines).prop_map(plain)
}

/// Some flags, in an order of their own.
fn flags(of: &'static [&'static str]) -> impl Strategy<Value = String> {
    subsequence(of, 0..=of.len().min(8)).prop_shuffle().prop_map(|flags| flags.concat())
}

fn meta_key() -> impl Strategy<Value = (String, &'static str)> {
    prop_oneof![
        3 => select(&TEXTS[..]).prop_map(|key| (key.to_owned(), "")),
        1 => select(&ENCODED[..]).prop_map(|key| (key.to_owned(), " b")),
    ]
}

fn number_key() -> impl Strategy<Value = (String, &'static str)> {
    select(&NUMBERS[..]).prop_map(|key| (key.to_owned(), ""))
}

fn meta_get() -> impl Strategy<Value = Command> {
    let asked = flags(&[" v", " k", " s", " t", " c", " f", " h", " l", " q", " u", " Oabc", " P1"]);
    let of_text = (
        meta_key(),
        asked,
        option::of(lasting()),
        option::of(lasting()),
        option::of(select(vec![30, 500, 5000])),
    )
        .prop_map(|((key, encoded), asked, vivify, touch, recache)| {
            // What is made for a key that is encoded is not told its key: an exception.
            let vivify = vivify.filter(|_| encoded.is_empty()).map_or(String::new(), |n| format!(" N{n}"));
            let touch = touch.map_or(String::new(), |t| format!(" T{t}"));
            let recache = recache.map_or(String::new(), |r| format!(" R{r}"));
            plain(format!("mg {key}{encoded}{touch}{asked}{vivify}{recache}\r\n"))
        });
    let asked = flags(&[" v", " k", " s", " t", " c", " f", " l", " q", " Oabc"]);
    let of_number = (number_key(), asked, option::of(lasting())).prop_map(|((key, _), asked, touch)| {
        plain(format!("mg {key}{asked}{}\r\n", touch.map_or(String::new(), |t| format!(" T{t}"))))
    });
    let over_at_once = meta_key().prop_map(|(key, encoded)| plain(format!("mg {key}{encoded} T-1 v\r\n")));
    prop_oneof![6 => of_text, 2 => of_number, 1 => over_at_once]
}

fn meta_set() -> impl Strategy<Value = Command> {
    let asked = || flags(&[" k", " c", " q", " Oxyz", " F7", " T100", " b"]);
    let mode = select(vec!["", "", " MS", " ME", " MA", " MP", " MR"]);
    let stale = select(vec!["", " I"]);
    let of_text = (meta_key(), asked(), mode.clone(), stale, option::of(cas()), value("a")).prop_map(
        |((key, encoded), asked, mode, stale, cas, value)| {
            // What is joined is not told that its key is encoded: an exception.
            let mode = if encoded.is_empty() || !matches!(mode, " MA" | " MP") { mode } else { "" };
            let asked = asked.replace(" b", "");
            let number = if cas.is_some() { " C@" } else { "" };
            let line = format!("ms {key} {}{encoded}{asked}{mode}{stale}{number}", value.len());
            let asked_key = if encoded.is_empty() { key } else { format!("{key} b") };
            Command::Text {
                bytes: with_value(line, &value),
                key: asked_key.into(),
                cas: cas.unwrap_or(Cas::None),
            }
        },
    );
    let of_number = (number_key(), asked(), mode, value("n")).prop_map(|((key, _), asked, mode, value)| {
        plain(with_value(format!("ms {key} {}{}{mode}", value.len(), asked.replace(" b", "")), &value))
    });
    prop_oneof![4 => of_text, 1 => of_number]
}

fn meta_delete() -> impl Strategy<Value = Command> {
    let of_text = (meta_key(), flags(&[" k", " q", " Oxyz", " I", " T100"]), option::of(cas())).prop_map(
        |((key, encoded), asked, cas)| {
            let number = if cas.is_some() { " C@" } else { "" };
            let bytes = format!("md {key}{encoded}{asked}{number}\r\n").into();
            Command::Text { bytes, key: format!("{key}{encoded}").into(), cas: cas.unwrap_or(Cas::None) }
        },
    );
    let of_number = number_key().prop_map(|(key, _)| plain(format!("md {key} k\r\n")));
    prop_oneof![4 => of_text, 1 => of_number]
}

fn meta_arithmetic() -> impl Strategy<Value = Command> {
    let asked = flags(&[" k", " c", " v", " t", " q", " Oxyz", " J7", " D3"]);
    let mode = select(vec!["", " MI", " M+", " MD", " M-", " Mx"]);
    (number_key(), asked, mode, option::of(lasting()), option::of(cas())).prop_map(
        |((key, _), asked, mode, vivify, cas)| {
            // Quiet, and made: an exception.
            let vivify = vivify.filter(|_| !asked.contains(" q")).map_or(String::new(), |n| format!(" N{n}"));
            let number = if cas.is_some() { " C@" } else { "" };
            let bytes = format!("ma {key}{asked}{mode}{vivify}{number}\r\n").into();
            Command::Text { bytes, key: key.into(), cas: cas.unwrap_or(Cas::None) }
        },
    )
}

fn packet() -> impl Strategy<Value = Command> {
    let none = || Just(Vec::new());
    let when = || {
        exptime().prop_map(|exptime| exptime as u32).prop_filter("it would be in 2106", |at| *at != u32::MAX)
    };
    let touch = || when().prop_map(|at| at.to_be_bytes().to_vec());
    let key = || key().prop_map(String::into_bytes);
    let compare = || prop_oneof![2 => Just(Cas::None), 1 => cas()];
    let store = (select(vec![1, 2, 3, 0x11, 0x12, 0x13]), self::key(), when(), compare()).prop_flat_map(
        |(code, key, at, cas)| {
            let extras = [7_u32.to_be_bytes(), at.to_be_bytes()].concat();
            value(&key).prop_map(move |value| Command::Binary {
                code,
                key: key.clone().into(),
                extras: extras.clone(),
                value,
                cas,
            })
        },
    );
    let append =
        (select(vec![0x0e, 0x0f, 0x19, 0x1a]), self::key(), compare()).prop_flat_map(|(code, key, cas)| {
            value(&key).prop_map(move |value| Command::Binary {
                code,
                key: key.clone().into(),
                extras: vec![],
                value,
                cas,
            })
        });
    let add = (
        select(vec![5, 6, 0x15, 0x16]),
        select(&NUMBERS[..]).prop_map(|key| key.as_bytes().to_vec()),
        (select(vec![0, 1, 11]), select(vec![0, 5, 99]), select(vec![0, 100, u32::MAX])),
        compare(),
    );
    let add = add.prop_map(|(code, key, (delta, initial, at), cas): (_, _, (u64, u64, u32), _)| {
        let extras = [&delta.to_be_bytes()[..], &initial.to_be_bytes(), &at.to_be_bytes()].concat();
        Command::Binary { code, key, extras, value: Vec::new(), cas }
    });
    let bare = |codes: Vec<u8>, key: BoxedStrategy<Vec<u8>>, extras: BoxedStrategy<Vec<u8>>| {
        (select(codes), key, extras).prop_map(|(code, key, extras)| Command::Binary {
            code,
            key,
            extras,
            value: Vec::new(),
            cas: Cas::None,
        })
    };
    let too_large = select(vec![1, 2, 0x11, 0x0e]).prop_map(|code| Command::Binary {
        code,
        key: b"a".to_vec(),
        extras: vec![0; if code == 0x0e { 0 } else { 8 }],
        value: vec![b'v'; 2_000_000],
        cas: Cas::None,
    });
    // Of the wrong form, and those that memcached does not know.
    let wrong = (0..0x1b_u8, prop::collection::vec(any::<u8>(), 0..9), prop::sample::select(vec![0, 1, 251]));
    let wrong = wrong.prop_filter_map("memcached leaves some bytes of it", |(code, extras, key)| {
        // A flush at a time that is over brings back what an earlier one removed.
        let is_flush_at = matches!(code, 8 | 0x18) && extras.len() == 4;
        let is_exact = !matches!(code, 0x10 | 0x0e | 0x0f | 0x19 | 0x1a) && !is_flush_at;
        is_exact.then(|| Command::Binary {
            code,
            key: vec![b'k'; key],
            extras,
            value: Vec::new(),
            cas: Cas::None,
        })
    });
    prop_oneof![
        6 => store,
        3 => append,
        4 => add,
        4 => bare(vec![0, 9, 0x0c, 0x0d], key().boxed(), none().boxed()),
        3 => bare(vec![0x1c, 0x1d, 0x1e, 0x23, 0x24], key().boxed(), touch().boxed()),
        2 => (select(vec![4, 0x14]), key(), compare())
            .prop_map(|(code, key, cas)| Command::Binary { code, key, extras: vec![], value: vec![], cas }),
        1 => bare(vec![8, 0x18], none().boxed(), prop_oneof![none(), Just(vec![0; 4])].boxed()),
        1 => bare(vec![7, 0x17, 0x0a, 0x0b, 0x1b, 0x30], none().boxed(), none().boxed()),
        1 => too_large,
        1 => wrong,
    ]
}

pub(crate) fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        4 => storage(), 3 => retrieval(), 3 => simple(), 2 => odd(),
        3 => meta_get(), 3 => meta_set(), 2 => meta_delete(), 2 => meta_arithmetic(),
        6 => packet(),
    ]
}
