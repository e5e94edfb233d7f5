//! Differences over a window of time, however often values are taken.

/// Remembers a value from one to two window lengths ago.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window<T> {
    older: Option<(u64, T)>,
    newer: Option<(u64, T)>,
}

impl<T> Default for Window<T> {
    fn default() -> Self {
        Window { older: None, newer: None }
    }
}

impl<T: Copy> Window<T> {
    /// Records `value` at `now_ns`. Returns the value from at least `length_ns` ago, and the ns since. With frequent
    /// calls that is at most twice `length_ns` ago. `None` in the first window.
    pub(crate) fn slide(&mut self, now_ns: u64, value: T, length_ns: u64) -> Option<(u64, T)> {
        if self.newer.is_none_or(|(at, _)| now_ns.saturating_sub(at) >= length_ns) {
            self.older = self.newer.replace((now_ns, value));
        }
        self.older.map(|(at, older)| (now_ns.saturating_sub(at), older))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_looks_back_between_one_and_two_lengths() {
        let mut window = Window::default();
        for now in 0..1000 {
            let seen = window.slide(now, now, 50);
            if now < 50 {
                assert_eq!(seen, None);
            } else {
                let (elapsed, older) = seen.unwrap();
                assert_eq!(older + elapsed, now);
                assert!((50..100).contains(&elapsed), "{elapsed} at {now}");
            }
        }
    }

    #[test]
    fn after_a_pause_it_spans_the_pause() {
        let mut window = Window::default();
        window.slide(0, 'a', 50);
        assert_eq!(window.slide(9000, 'b', 50), Some((9000, 'a')));
        assert_eq!(window.slide(9001, 'c', 50), Some((9001, 'a')));
    }
}
