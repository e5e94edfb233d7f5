//! The log: one line an event on standard error, in words for people, as JSON for machines. Times are UTC, as RFC 3339
//! writes them.
//!
//! `2026-11-22T14:02:31.120417Z WARN the load record cannot be read (region: n3.load, problem: connection refused)`
//!
//! A warning or error that repeats is left out after [`REPEATS_MAX`] lines, until [`REPEATS_EVERY`] has passed. In words the
//! next line says how often it was.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::failure::Failure;
use crate::page;

/// Which events are logged: a level, or levels of crates.
const FILTER: &str = "SIDELONG_LOG";
/// How they are written: `text` or `json`.
const FORMAT: &str = "SIDELONG_LOG_FORMAT";

/// Most lines of one message in [`REPEATS_EVERY`].
const REPEATS_MAX: u32 = 10;
const REPEATS_EVERY: Duration = Duration::from_secs(60);
/// Most messages that are counted at a time; others are logged each time.
const MESSAGES_MAX: usize = 1024;

/// How events are written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
}

/// Starts to log events of `level` and above, unless the environment overrides it.
///
/// # Errors
/// If the environment names an unknown format or filter.
pub(crate) fn start(level: &str) -> Result<Format, Failure> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let format = match variable(FORMAT).as_deref() {
        None | Some("text") => Format::Text,
        Some("json") => Format::Json,
        Some(other) => return Err(Failure::new(format!("{FORMAT} is {other:?}: it must be text or json"))),
    };
    let filter = variable(FILTER).unwrap_or_else(|| level.to_owned());
    let filter = EnvFilter::try_new(&filter).map_err(|error| {
        Failure::new(format!(
            "{FILTER} is {filter:?}: {error}; it must be a level (error, warn, info, debug, trace), or CRATE=LEVEL \
             separated by commas"
        ))
    })?;
    // A log that cannot be written, because the disk is full for example, must not end the process.
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).log_internal_errors(false);
    match format {
        // Colours would be noise in a file or a journal.
        Format::Text => log
            .with_ansi(std::io::stderr().is_terminal() && !*page::PLAIN)
            .event_format(Words)
            .with_env_filter(filter)
            .finish()
            .with(Repeats::default())
            .init(),
        Format::Json => {
            log.json().flatten_event(true).with_env_filter(filter).finish().with(Repeats::default()).init()
        }
    }
    Ok(format)
}

thread_local! {
    /// Lines of its message that were left out before the event that this thread is logging.
    static LEFT_OUT: Cell<u64> = const { Cell::new(0) };
}

/// Leaves out what repeats, so that no fault that lasts fills a disk.
#[derive(Default)]
struct Repeats(Mutex<HashMap<String, Repeated>>);

/// A message's lines since `since`.
struct Repeated {
    since: Instant,
    logged: u32,
    left_out: u64,
}

impl Repeats {
    /// Whether a line of this message is logged now, and how many were left out before.
    fn admits(&self, message: &str, now: Instant) -> Option<u64> {
        let mut messages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |repeated: &Repeated| now.duration_since(repeated.since) >= REPEATS_EVERY;
        if messages.len() >= MESSAGES_MAX && !messages.contains_key(message) {
            messages.retain(|_, repeated| !is_over(repeated));
            if messages.len() >= MESSAGES_MAX {
                return Some(0);
            }
        }
        let new = || Repeated { since: now, logged: 0, left_out: 0 };
        let repeated = messages.entry(message.to_owned()).or_insert_with(new);
        let mut left_out = 0;
        if is_over(repeated) {
            left_out = std::mem::replace(repeated, new()).left_out;
        }
        if repeated.logged >= REPEATS_MAX {
            repeated.left_out += 1;
            return None;
        }
        repeated.logged += 1;
        Some(left_out)
    }
}

impl<S: Subscriber> Layer<S> for Repeats {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        if *event.metadata().level() > Level::WARN {
            return true;
        }
        let mut words = Fields::default();
        event.record(&mut words);
        let admitted = self.admits(&words.message, Instant::now());
        LEFT_OUT.set(admitted.unwrap_or(0));
        admitted.is_some()
    }
}

/// A line in words: the time, the level, the event, and its fields in parentheses.
struct Words;

impl<S, N> FormatEvent<S, N> for Words
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        SystemTime.format_time(&mut out)?;
        let level = *event.metadata().level();
        match out.has_ansi_escapes() {
            true => write!(out, " \x1b[{}m{level}\x1b[0m ", colour(level))?,
            false => write!(out, " {level} ")?,
        }
        let mut words = Fields::default();
        event.record(&mut words);
        out.write_str(&words.message)?;
        if !words.others.is_empty() {
            write!(out, " ({})", words.others)?;
        }
        match LEFT_OUT.take() {
            0 => {}
            count => write!(out, ", and {count} times more since the last line")?,
        }
        out.write_char('\n')
    }
}

const fn colour(level: Level) -> u8 {
    match level {
        Level::ERROR => 31,
        Level::WARN => 33,
        Level::INFO => 32,
        Level::DEBUG | Level::TRACE => 2,
    }
}

/// An event's message, and its other fields as `name: value`.
#[derive(Default)]
struct Fields {
    message: String,
    others: String,
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = match field.name() {
            "message" => &mut self.message,
            name => {
                let comma = if self.others.is_empty() { "" } else { ", " };
                let _ = write!(self.others, "{comma}{name}: ");
                &mut self.others
            }
        };
        // Text from others must not start a line of its own or control the terminal.
        let _ = write!(OneLine(text), "{value:?}");
    }
}

struct OneLine<'a>(&'a mut String);

impl fmt::Write for OneLine<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character.is_control() {
                true => self.0.extend(character.escape_default()),
                false => self.0.push(character),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_repeats_is_left_out_and_counted() {
        let (repeats, begun) = (Repeats::default(), Instant::now());
        for _ in 0..REPEATS_MAX {
            assert_eq!(repeats.admits("a", begun), Some(0));
        }
        for _ in 0..3 {
            assert_eq!(repeats.admits("a", begun), None);
        }
        assert_eq!(repeats.admits("b", begun), Some(0), "another message");
        let later = begun + REPEATS_EVERY;
        assert_eq!(repeats.admits("a", later), Some(3));
        assert_eq!(repeats.admits("a", later), Some(0));
        for number in 0..2 * MESSAGES_MAX {
            assert_eq!(repeats.admits(&number.to_string(), later), Some(0));
        }
        assert!(repeats.0.lock().unwrap().len() <= MESSAGES_MAX);
    }
}
