//! Objects of the API, as far as they are read
//! ([EndpointSlice v1](https://kubernetes.io/docs/reference/kubernetes-api/service-resources/endpoint-slice-v1/)).

use std::net::IpAddr;

use serde::{Deserialize, Deserializer};

/// A page of a list.
#[derive(Deserialize, Debug)]
pub(crate) struct List {
    pub(crate) metadata: ListMeta,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) items: Vec<Slice>,
}

#[derive(Deserialize, Debug)]
pub(crate) struct ListMeta {
    #[serde(rename = "resourceVersion")]
    pub(crate) version: String,
    /// Asks for the next page.
    #[serde(rename = "continue", default)]
    pub(crate) more: Option<String>,
}

/// A line of a watch.
#[derive(Deserialize, Debug)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
pub(crate) enum Event {
    Added(Slice),
    Modified(Slice),
    Deleted(Slice),
    Bookmark(Mark),
    Error(Status),
}

/// Of a bookmark all but its version is empty.
#[derive(Deserialize, Debug)]
pub(crate) struct Mark {
    pub(crate) metadata: Meta,
}

#[derive(Deserialize, Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) metadata: Meta,
    #[serde(rename = "addressType", default)]
    pub(crate) kind: String,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) endpoints: Vec<EndpointOf>,
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) ports: Vec<Port>,
}

#[derive(Deserialize, Clone, Debug)]
pub(crate) struct Meta {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(rename = "resourceVersion")]
    pub(crate) version: String,
}

#[derive(Deserialize, Clone, Debug)]
pub(crate) struct EndpointOf {
    /// All stand for the first.
    pub(crate) addresses: Vec<String>,
    #[serde(default)]
    pub(crate) conditions: Conditions,
    #[serde(rename = "targetRef", default)]
    pub(crate) target: Option<Target>,
}

impl EndpointOf {
    pub(crate) fn address(&self) -> Option<IpAddr> {
        self.addresses.first()?.parse().ok()
    }
}

#[derive(Deserialize, Clone, Default, Debug)]
pub(crate) struct Conditions {
    /// Unknown is to be taken for ready.
    #[serde(default)]
    pub(crate) ready: Option<bool>,
    #[serde(default)]
    pub(crate) terminating: Option<bool>,
}

#[derive(Deserialize, Clone, Debug)]
pub(crate) struct Target {
    #[serde(default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) name: String,
}

#[derive(Deserialize, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Port {
    #[serde(default, deserialize_with = "or_default")]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) port: Option<u16>,
    #[serde(default)]
    pub(crate) protocol: Option<String>,
}

/// Why a request is refused.
#[derive(Deserialize, Default, Debug)]
#[serde(default)]
pub(crate) struct Status {
    /// As of HTTP.
    pub(crate) code: u16,
    pub(crate) message: String,
}

/// Lists that are empty may be `null`.
fn or_default<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
