//! A usable cluster file, and what changes of it are refused for.

use sidelong_config::ClusterFile;

/// A usable file of nine lines, to which tests add or in which they replace one.
pub(crate) const BASE: &str = r#"[[site]]
name = "a"
hosts = ["a.example"]
[[node]]
name = "n"
listen = "127.0.0.1:7101"
[[edge]]
name = "e"
listen = "127.0.0.1:8081"
"#;

/// The error of a text.
pub(crate) fn refused(text: &str) -> String {
    match ClusterFile::parse(text, "cluster.toml") {
        Ok(_) => panic!("not refused:\n{text}"),
        Err(error) => error.to_string(),
    }
}

/// The base with these lines after it, of which the first is line 10.
pub(crate) fn refused_after(lines: &str) -> String {
    refused(&format!("{BASE}{lines}"))
}
