//! docs/results.md: its blocks are those of the recorded runs, and what else it tables are targets with their commands.

use std::fs;
use std::path::{Path, PathBuf};

use sidelong_lab::page;

fn results() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results.md")
}

#[test]
fn blocks_are_as_recorded() {
    let blocks = page::check(&results()).unwrap();
    assert!(!blocks.is_empty());
}

#[test]
fn what_no_record_shows_has_a_target_and_a_command_and_no_figure() {
    let text = fs::read_to_string(results()).unwrap();
    let mut block = None;
    let mut is_outside = |line: &&str| {
        match line.strip_prefix("<!-- lab ") {
            Some(id) => block = Some(format!("<!-- /lab {id}")),
            None if block.as_deref() == Some(*line) => block = None,
            None => {}
        }
        block.is_none()
    };
    let rows = text.lines().filter(&mut is_outside).filter(|line| line.starts_with('|'));
    let rows: Vec<Vec<&str>> =
        rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect();
    let ["what", "target", "command"] = rows[0][..] else { panic!("{:?}", rows[0]) };
    let names_command = |row: &[&str]| {
        let command = row.last().unwrap();
        row.len() == 3 && ["`cargo ", "`sidelong-lab ", "`time "].iter().any(|tool| command.starts_with(tool))
    };
    let without: Vec<_> = rows[2..].iter().filter(|row| !names_command(row)).collect();
    assert!(without.is_empty(), "{without:?}");
}
