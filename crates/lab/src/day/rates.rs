//! The rates of three days of WorldCup98: shares of each day's peak. traces/worldcup98/README.md has source and terms.

use std::time::Duration;

use sidelong_config::RateEntry;

use super::{RATES, SITES};

const MINUTES: usize = 1440;
/// Requests in each minute of the days, which are its columns.
const PER_MINUTE: &str = include_str!("../../../../traces/worldcup98/requests_per_minute.csv");

/// For each site the rates of its day, which takes `length`, as shares of its peak.
pub(super) fn of_a_day(length: Duration) -> [Vec<RateEntry>; 3] {
    let days: Vec<[f64; 3]> = PER_MINUTE.lines().skip(1).map(minute).collect();
    std::array::from_fn(|site| {
        let day: Vec<f64> =
            days.chunks(MINUTES / RATES).map(|minutes| minutes.iter().map(|of| of[site]).sum()).collect();
        let peak = day.iter().copied().fold(0.0, f64::max);
        let rate = |(at, requests): (u32, &f64)| RateEntry {
            at: length * at / RATES as u32,
            per_s: requests / peak,
        };
        (0..).zip(&day).map(rate).collect()
    })
}

/// A line of the file, which is part of the program: the time, and a count for each day.
fn minute(line: &str) -> [f64; 3] {
    let mut counts = line.split(',').skip(1).map(|count| count.parse().unwrap_or_default());
    [(); SITES.len()].map(|()| counts.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_days_are_those_of_the_logs_and_peak_some_hours_apart() {
        let lines: Vec<_> = PER_MINUTE.lines().collect();
        assert_eq!((lines[0], lines.len()), ("minute_utc,1998-06-15,1998-06-29,1998-07-07", 1 + MINUTES));
        let of_day = |site: usize| lines[1..].iter().map(|line| minute(line)[site]).sum::<f64>();
        assert_eq!(
            [0, 1, 2].map(of_day),
            [58_769_608.0, 62_612_285.0, 42_806_305.0],
            "requests of these days in the logs"
        );
        let length = Duration::from_secs(120);
        let days = of_a_day(length);
        let peak_hour = |day: &Vec<RateEntry>| {
            assert_eq!((day.len(), day[0].at), (RATES, Duration::ZERO));
            assert!(day.iter().all(|rate| rate.at < length && (0.0..=1.0).contains(&rate.per_s)));
            day.iter().position(|rate| rate.per_s == 1.0).unwrap() * 24 / RATES
        };
        assert_eq!(days.each_ref().map(peak_hour), [14, 16, 21]);
    }
}
