//! The cluster file: an error or a cluster, and what is written again means the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidelong_config::ClusterFile;

fuzz_target!(|text: &str| {
    let Ok(file) = ClusterFile::parse(text, "cluster.toml") else { return };
    let _ = file.cluster();
    let written = file.to_toml().expect("what was read can be written");
    assert_eq!(ClusterFile::parse(&written, "written").expect("what was written can be read"), file);
});
