//! The cluster's secret. No message shows it.

use std::fmt;
use std::path::PathBuf;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// The shortest secret, in bytes.
pub const SECRET_BYTES_MIN: usize = 16;
/// The longest, in bytes.
pub const SECRET_BYTES_MAX: usize = 1024;

/// `cluster.secret`. Printing it never shows it; writing the file does.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SecretText(String);

impl SecretText {
    /// Of this text.
    pub fn new(text: impl Into<String>) -> Self {
        SecretText(text.into())
    }

    /// The secret itself, for the cluster's processes only.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // The reader's own message would show the value.
        let text = String::deserialize(from).map_err(|_| D::Error::custom("expected a string"))?;
        Ok(SecretText(text))
    }
}

/// Where a cluster's secret is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Secret {
    /// In the cluster file.
    Text(SecretText),
    /// In this file.
    File(PathBuf),
}

#[cfg(test)]
mod tests {
    use crate::ClusterFile;

    #[test]
    fn it_is_not_shown() {
        let text = "[cluster]\nsecret = \"quite unguessable\"\n";
        let file: ClusterFile = toml::from_str(text).unwrap();
        assert!(!format!("{file:?}").contains("unguessable"));
        assert_eq!(file.cluster.secret.unwrap().reveal(), "quite unguessable");
        let wrong = "[cluster]\nsecret = 12345678901234567\n";
        let error = ClusterFile::parse(wrong, "x").unwrap_err().to_string();
        assert_eq!(error, "x:2: cluster.secret: expected a string");
    }
}
