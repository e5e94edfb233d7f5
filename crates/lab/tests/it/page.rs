//! docs/results.md: its blocks are those of the recorded runs, and whatever else it tables, it says how to measure again.

use std::fs;
use std::path::{Path, PathBuf};

use sidelong_lab::page;

/// Sections whose tables name no command, and why.
const WITHOUT_COMMAND: [(&str, &str); 1] = [("The machine", "it explains words")];

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results.md")
}

#[test]
fn blocks_are_as_recorded() {
    let blocks = page::check(&results()).unwrap();
    assert!(!blocks.is_empty());
}

#[test]
fn every_section_with_a_table_names_a_command() {
    let text = fs::read_to_string(results()).unwrap();
    let sections = text.split("\n## ").skip(1).map(|section| section.split_once('\n').unwrap());
    let is_table = |line: &str| line.starts_with('|');
    let names_command = |line: &str| {
        let mut code = line.split('`').skip(1).step_by(2);
        let begins = |code: &str| {
            ["sidelong ", "sidelong-lab ", "cargo ", "valgrind "].iter().any(|tool| code.starts_with(tool))
        };
        line.starts_with("    sidelong") || code.any(begins)
    };
    let mut without: Vec<&str> = sections
        .filter(|(_, body)| body.lines().any(is_table) && !body.lines().any(names_command))
        .map(|(title, _)| title)
        .collect();
    without.retain(|title| !WITHOUT_COMMAND.iter().any(|(known, _)| known == title));
    assert!(without.is_empty(), "{without:?} have tables and no command");
}
