//! Durations in the file: numbers of milliseconds or seconds, with or without decimals.

use std::time::Duration;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer};

/// 10^9 s: longer than any limit of [`crate::check`], shorter than what a `Duration` can hold.
const NANOS_MAX: f64 = 1e18;

fn from_file<'de, D: Deserializer<'de>>(
    number: f64,
    nanos_each: f64,
    unit: &str,
) -> Result<Duration, D::Error> {
    let nanos = number * nanos_each;
    if (0.0..=NANOS_MAX).contains(&nanos) {
        Ok(Duration::from_nanos(nanos.round() as u64))
    } else {
        let expected = format!("a number of {unit} from 0 to {:e}", NANOS_MAX / nanos_each);
        Err(D::Error::invalid_value(Unexpected::Other(&format!("{number:?}")), &expected.as_str()))
    }
}

/// `#[serde(with)]` for a `Duration` in milliseconds.
pub(crate) mod millis {
    use super::*;

    pub(crate) fn serialize<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_nanos() as f64 / 1e6)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let number = f64::deserialize(from)?;
        from_file::<D>(number, 1e6, "milliseconds")
    }
}

/// `#[serde(with)]` for a `Duration` in milliseconds that may be left out.
pub(crate) mod millis_option {
    use super::*;

    pub(crate) fn serialize<S: serde::Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => millis::serialize(time, to),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        millis::deserialize(from).map(Some)
    }
}

/// `#[serde(with)]` for a `Duration` in seconds.
pub(crate) mod seconds {
    use super::*;

    pub(crate) fn serialize<S: serde::Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_nanos() as f64 / 1e9)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let number = f64::deserialize(from)?;
        from_file::<D>(number, 1e9, "seconds")
    }
}

/// `#[serde(with)]` for a `Duration` in seconds that may be left out.
pub(crate) mod seconds_option {
    use super::*;

    pub(crate) fn serialize<S: serde::Serializer>(time: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => to.serialize_f64(time.as_nanos() as f64 / 1e9),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        let number = f64::deserialize(from)?;
        from_file::<D>(number, 1e9, "seconds").map(Some)
    }
}
