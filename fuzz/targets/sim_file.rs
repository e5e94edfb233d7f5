//! The simulator's configuration.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use sidelong_sim::config::Config;

fuzz_target!(|text: &str| {
    if let Ok(config) = Config::parse(text, "sim.toml", Path::new("/nonexistent"), &[]) {
        let _ = config.explain();
    }
});
