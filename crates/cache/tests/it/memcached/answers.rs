//! Answers, cut into lines and packets, without what differs from server to server: unique numbers and times.

use std::collections::HashMap;

/// The unique numbers of one server, in the order in which they were first seen.
#[derive(Default)]
pub(crate) struct Numbers(HashMap<u64, usize>);

impl Numbers {
    /// 0 is none.
    fn name(&mut self, cas: u64) -> String {
        let next = self.0.len();
        if cas == 0 { "0".into() } else { format!("#{}", self.0.entry(cas).or_insert(next)) }
    }
}

/// A time to live, less what a slow test takes.
fn rounded(word: &[u8]) -> String {
    let seconds: i64 = str::from_utf8(word).unwrap().parse().unwrap();
    if seconds < 0 { seconds.to_string() } else { format!("~{}", (seconds + 50) / 100 * 100) }
}

/// A command that ends what was sent in text, and its answer, which no other command has.
pub(crate) const LAST_COMMAND: &[u8] = b"md no-such-key Olast\r\n";
const LAST_ANSWER: &[u8] = b"NF Olast";

/// The answers in text up to the last one, each in words. None if that has not come.
pub(crate) fn text(mut bytes: &[u8], numbers: &mut Numbers) -> Option<Vec<String>> {
    let mut answers = Vec::new();
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n")?;
        let (line, rest) = (&bytes[..end], &bytes[end + 2..]);
        bytes = rest;
        if line == LAST_ANSWER {
            return Some(answers);
        }
        let words: Vec<_> = line.split(|byte| *byte == b' ').collect();
        let size =
            |at: usize| words.get(at).and_then(|word| str::from_utf8(word).ok()?.parse::<usize>().ok());
        let value_bytes = match words[0] {
            b"VALUE" => size(3),
            b"VA" => size(1),
            _ => None,
        };
        let mut shown = Vec::new();
        for (at, word) in words.iter().enumerate() {
            // The bytes that hold an item are each server's own affair.
            let is_own =
                words[0] == b"ME" && at > 1 && !word.starts_with(b"fetch=") && !word.starts_with(b"exp=");
            let is_flag = matches!(words[0], b"HD" | b"VA" | b"EN" | b"NS" | b"EX" | b"NF") && at > 0;
            let number = |from: usize| str::from_utf8(&word[from..]).ok()?.parse::<u64>().ok();
            shown.push(match word {
                word if words[0] == b"VALUE" && at == 4 => {
                    numbers.name(number(0).unwrap_or_else(|| panic!("{word:?}")))
                }
                [b'c', ..] if is_flag => format!("c{}", numbers.name(number(1).unwrap())),
                [b't', rest @ ..] if is_flag => format!("t{}", rounded(rest)),
                [b'l', ..] if is_flag => "l".into(),
                // 1.6.18 shows the time that is left as if it had passed.
                [b'e', b'x', b'p', b'=', b'-', rest @ ..] if rest != b"1" => format!("exp={}", rounded(rest)),
                [b'e', b'x', b'p', b'=', rest @ ..] => format!("exp={}", rounded(rest)),
                _ if is_own => continue,
                word => word.escape_ascii().to_string(),
            });
        }
        answers.push(shown.join(" "));
        if let Some(value_bytes) = value_bytes {
            let value = bytes.get(..value_bytes + 2)?;
            bytes = &bytes[value_bytes + 2..];
            answers.push(value.escape_ascii().to_string());
        }
    }
}

/// The opaque number of a binary no-op that ends what was sent.
pub(crate) const LAST: u32 = u32::MAX;

/// The answers in packets up to the last no-op. None if that has not come.
pub(crate) fn binary(mut bytes: &[u8], numbers: &mut Numbers) -> Option<Vec<String>> {
    let mut answers = Vec::new();
    loop {
        let header = bytes.get(..24)?;
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        let body = bytes.get(24..24 + word(8) as usize)?;
        bytes = &bytes[24 + body.len()..];
        if word(12) == LAST {
            return Some(answers);
        }
        let cas = numbers.name(u64::from_be_bytes(header[16..].try_into().unwrap()));
        answers.push(format!("{} cas {cas} {}", header[..16].escape_ascii(), body.escape_ascii()));
    }
}
