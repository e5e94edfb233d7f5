//! Messages of the gateway, as far as they are read: JSON as protobuf 3 has it, where 64-bit numbers are strings, bytes are base64, and
//! what is zero or empty is left out.

use std::fmt::Display;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

/// A number that is a string.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Whole<T>(pub(crate) T);

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map(Whole).map_err(D::Error::custom)
    }
}

/// One that is never negative.
pub(crate) type Number = Whole<u64>;

/// Bytes to send.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a>(pub(crate) &'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(self.0))
    }
}

/// Bytes that came.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Bytes(pub(crate) Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        STANDARD.decode(String::deserialize(from)?).map(Bytes).map_err(D::Error::custom)
    }
}

#[derive(Deserialize, Debug, Default)]
#[serde(default)]
pub(crate) struct Header {
    pub(crate) revision: Number,
}

#[derive(Deserialize, Debug)]
pub(crate) struct KeyValue {
    pub(crate) key: Bytes,
    #[serde(default)]
    pub(crate) value: Bytes,
    #[serde(default)]
    pub(crate) mod_revision: Number,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Range {
    pub(crate) header: Header,
    #[serde(default)]
    pub(crate) kvs: Vec<KeyValue>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Transacted {
    pub(crate) header: Header,
    #[serde(default)]
    pub(crate) succeeded: bool,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Granted {
    #[serde(rename = "ID")]
    pub(crate) id: Whole<i64>,
}

/// A message of a stream.
#[derive(Deserialize, Debug)]
pub(crate) struct Streamed<T> {
    pub(crate) result: T,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Kept {
    #[serde(rename = "TTL", default)]
    pub(crate) ttl: Whole<i64>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Authenticated {
    pub(crate) token: String,
}

#[derive(Deserialize, Debug)]
#[serde(default)]
#[derive(Default)]
pub(crate) struct Watched {
    pub(crate) created: bool,
    pub(crate) canceled: bool,
    pub(crate) compact_revision: Number,
    pub(crate) cancel_reason: String,
    pub(crate) events: Vec<Event>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct Event {
    /// Left out for a value that was stored.
    #[serde(rename = "type", default)]
    pub(crate) what: Option<String>,
    pub(crate) kv: KeyValue,
}

/// Why a request is refused.
#[derive(Deserialize, Debug, Default)]
#[serde(default)]
pub(crate) struct Refused {
    /// As in gRPC.
    pub(crate) code: u32,
    pub(crate) message: String,
    /// What 3.4 has in place of `message`, in some answers.
    pub(crate) error: serde_json::Value,
}
