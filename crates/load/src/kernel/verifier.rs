//! The messages of the kernel's verifier about refused programs, which libbpf only prints.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::{PrintLevel, set_print};

/// The lines that libbpf prints around a program's log.
const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
const END: &str = "-- END PROG LOAD LOG --";
/// The beginnings of the statistics after the verifier's last message.
const COUNTS: [&str; 3] = ["verification time", "stack depth", "processed"];

/// The reason of the last refusal in this process.
static REASON: Mutex<Option<String>> = Mutex::new(None);

/// Passes libbpf's output on to the log, and keeps the reason of a refusal.
pub(crate) fn listen() {
    set_print(Some((PrintLevel::Info, |_, text| {
        tracing::debug!(libbpf = text.trim_end());
        if let Some(reason) = reason(&text) {
            *REASON.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
        }
    })));
}

/// The reason of a refusal since the last call; `None` if the verifier refused nothing.
pub(crate) fn take() -> Option<String> {
    REASON.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The last message of a log.
fn reason(text: &str) -> Option<&str> {
    let log = text.split_once(BEGIN)?.1;
    let log = log.split_once(END).map_or(log, |(log, _)| log);
    let mut lines = log.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    Some(lines.find(|line| !COUNTS.iter().any(|count| line.starts_with(count))).unwrap_or("no reason given"))
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn the_reason_is_the_last_word_of_the_log() {
        let text = "libbpf: prog 'on_state': -- BEGIN PROG LOAD LOG --\n\
                    28: (c3) lock *(u32 *)(r2 +0) += r1\n\
                    R2 unbounded memory access\n\
                    verification time 1097 usec\nstack depth 8\nprocessed 27 insns\n\
                    -- END PROG LOAD LOG --\n";
        assert_eq!(reason(text), Some("R2 unbounded memory access"));
        assert_eq!(reason(text.split_once("\nR2").unwrap().0), Some("28: (c3) lock *(u32 *)(r2 +0) += r1"));
        assert_eq!(reason("libbpf: prog 'on_state': -- BEGIN PROG LOAD LOG --\n"), Some("no reason given"));
        assert_eq!(reason("libbpf: failed to load object"), None);
    }
}
