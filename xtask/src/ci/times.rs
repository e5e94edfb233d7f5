//! What steps, test binaries and tests took, and what a binary may take.

use std::time::Instant;

/// Kind, name, seconds.
pub(super) type Time = (&'static str, String, f64);

/// The slowest that a run prints.
const SHOWN: usize = 20;
/// Seconds that a test binary may take. Three times and more what it takes on two cores: this finds one that grows again
/// and again, not a busy machine. A build has no budget: what it takes depends on what an earlier one has left.
const BUDGET_S: f64 = 300.0;
/// The budgets of binaries that need more.
const BUDGETS_S: &[(&str, f64)] =
    &[("-p sidelong --test it", 1800.0), ("-p sidelong-testing --test it", 600.0)];

/// What each test took, as far as its harness tells when each `ended`: it starts them in the order of their names, so many
/// `threads` at a time, and another one whenever one ends.
pub(super) fn of_tests(ended: &[(String, Instant)], began: Instant, threads: usize) -> Vec<(String, f64)> {
    let mut by_name: Vec<_> = ended.iter().collect();
    by_name.sort_by_key(|(name, _)| name);
    let starts = std::iter::repeat_n(began, threads).chain(ended.iter().map(|(_, end)| *end));
    let took = |((name, end), start): (&(String, Instant), _)| {
        (name.clone(), end.saturating_duration_since(start).as_secs_f64())
    };
    by_name.into_iter().zip(starts).map(took).collect()
}

/// The slowest steps and test binaries, a line each.
pub(super) fn slowest(times: &[Time]) -> String {
    let mut times: Vec<_> = times.iter().filter(|(kind, ..)| *kind != "test").collect();
    times.sort_by(|a, b| b.2.total_cmp(&a.2));
    times
        .iter()
        .take(SHOWN)
        .map(|(kind, name, seconds)| format!("{seconds:>8.1} s  {kind} {name}\n"))
        .collect()
}

/// All times, as a table.
pub(super) fn table(times: &[Time]) -> String {
    let rows = times.iter().map(|(kind, name, seconds)| format!("{kind}\t{name}\t{seconds:.3}\n"));
    std::iter::once("kind\tname\tseconds\n".to_owned()).chain(rows).collect()
}

/// The binaries that took longer than their budgets, unless none did.
pub(super) fn over_budget(times: &[Time]) -> Option<String> {
    let over = |(kind, name, seconds): &Time| {
        let own = BUDGETS_S.iter().find(|(binary, _)| binary == name);
        let budget = own.map_or(BUDGET_S, |(_, budget)| *budget);
        let is_over = !["step", "test", "build"].contains(kind) && *seconds > budget;
        is_over.then(|| format!("{name} took {seconds:.0} s, its budget is {budget:.0} s"))
    };
    let over: Vec<_> = times.iter().filter_map(over).collect();
    (!over.is_empty()).then(|| format!("{}: make it faster, or see ci/times.rs", over.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_test_starts_when_one_before_it_has_ended() {
        let began = Instant::now();
        let ended = |name: &str, second| (name.to_owned(), began + Duration::from_secs(second));
        // Two at a time: c starts when b ends, d when c does.
        let took = of_tests(&[ended("b", 1), ended("c", 3), ended("a", 7), ended("d", 8)], began, 2);
        let expected = [("a", 7.0), ("b", 1.0), ("c", 2.0), ("d", 5.0)];
        assert_eq!(took, expected.map(|(name, seconds)| (name.to_owned(), seconds)));
    }

    #[test]
    fn the_slowest_come_first() {
        let times =
            [("step", "fmt".into(), 1.0), ("test", "-p a x".into(), 9.0), ("binary", "-p a".into(), 2.5)];
        assert_eq!(slowest(&times), "     2.5 s  binary -p a\n     1.0 s  step fmt\n");
        assert!(table(&times).starts_with("kind\tname\tseconds\nstep\tfmt\t1.000\ntest\t"));
    }

    #[test]
    fn a_binary_keeps_its_budget() {
        let binary = |name: &str, seconds| ("binary", name.to_owned(), seconds);
        let (own, more) = BUDGETS_S[0];
        assert_eq!(
            over_budget(&[
                binary("-p a", BUDGET_S),
                binary(own, more),
                ("step", "x".into(), 1e9),
                ("build", "cargo test".into(), 1e9)
            ]),
            None
        );
        let said = over_budget(&[binary("-p a", BUDGET_S + 1.0)]).unwrap();
        assert!(said.contains("-p a took 301 s, its budget is 300 s"), "{said}");
    }
}
