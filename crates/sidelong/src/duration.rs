//! How arguments give a time.

use std::time::Duration;

/// A duration as every argument takes it: `500ms`, `30s`, `1.5m`, `1h30m`; a day at most.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; expected a number with ms, s, m or h, such as 30s or 1h30m"))?;
    let fits = (Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&time);
    fits.then_some(time).ok_or_else(|| "between 1ms and 24h".to_owned())
}

/// A [`duration`] that a screen can show and a scan can take.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    let fits = (Duration::from_millis(10)..=Duration::from_secs(60)).contains(&interval);
    fits.then_some(interval).ok_or_else(|| "between 10ms and 1m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert!(duration("30").is_err() && duration("s").is_err() && duration("-1s").is_err());
        assert!(duration("1e9h").is_err() && duration("NaNs").is_err() && duration("").is_err());
    }
}
