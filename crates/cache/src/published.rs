//! The figures of `stats`, for another thread of the process.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::command::Host;
use crate::stats;

/// The numbers among the rows of `stats`, as the cache's thread had them last. Neither thread waits for the other: some
/// figures may be of one moment and some of the next.
#[derive(Debug)]
pub struct Published {
    /// Set with the first figures. Later ones have the same names.
    rows: OnceLock<Vec<(String, AtomicU64)>>,
    began: Instant,
    /// When they were published, in ms since `began`.
    at_ms: AtomicU64,
}

impl Published {
    /// Nothing is published yet.
    #[expect(clippy::new_without_default, reason = "it begins to count time")]
    pub fn new() -> Self {
        Published { rows: OnceLock::new(), began: Instant::now(), at_ms: AtomicU64::new(0) }
    }

    /// Each figure with its name in `stats`. None before the first are published.
    pub fn rows(&self) -> impl Iterator<Item = (&str, u64)> {
        let rows = self.rows.get().into_iter().flatten();
        rows.map(|(name, value)| (name.as_str(), value.load(Ordering::Relaxed)))
    }

    /// How old they are. A thread that serves publishes them about each 100 ms. `None` before the first.
    pub fn age(&self) -> Option<Duration> {
        self.rows.get()?;
        Some(self.began.elapsed().saturating_sub(Duration::from_millis(self.at_ms.load(Ordering::Relaxed))))
    }

    /// Publishes those of now.
    pub(crate) fn publish(&self, host: &mut Host<'_>) {
        let mut text = String::new();
        let mut numbers = |each: &mut dyn FnMut(&str, u64)| {
            stats::general(host, &mut |name, value| {
                text.clear();
                _ = write!(text, "{value}");
                if let Ok(number) = text.parse() {
                    each(name, number);
                }
            });
        };
        let rows = self.rows.get_or_init(|| {
            let mut rows = Vec::new();
            numbers(&mut |name, number| rows.push((name.to_owned(), number.into())));
            rows
        });
        numbers(&mut |name, number| {
            if let Some((_, value)) = rows.iter().find(|(known, _)| known == name) {
                value.store(number, Ordering::Relaxed);
            }
        });
        self.at_ms.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }
}
