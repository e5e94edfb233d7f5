//! What an experiment leaves behind: figure.svg, result.json and report.md.

use std::fmt::Write as _;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::Value;
use sidelong_figure::statistics::REPETITIONS_MIN;

use crate::bench::Bench;
use crate::check::{Check, Conclusion, Verdict};
use crate::error::{Error, Result};
use crate::experiment::Experiment;
use crate::machine::Machine;
use crate::record::{Record, Table};

/// What was found out.
pub(crate) struct Findings {
    pub(crate) checks: Vec<Check>,
    /// Why repetitions or checks are invalid.
    pub(crate) invalid: Vec<String>,
    pub(crate) svg: String,
    /// The report, from the targets to how it was measured.
    pub(crate) text: String,
    /// The tables of the report.
    pub(crate) tables: Vec<Table>,
    pub(crate) settings: Value,
    pub(crate) rows: Vec<Value>,
}

/// `result.json`.
#[derive(Serialize)]
struct Outcome<'a> {
    experiment: &'a Experiment,
    quick: bool,
    repeat: u32,
    invalid: &'a [String],
    #[serde(flatten)]
    record: &'a Record,
    versions: Versions,
    settings: &'a Value,
    /// Wall-clock time of the whole experiment.
    seconds: f64,
    rows: &'a [Value],
    checks: &'a [Check],
}

#[derive(Serialize)]
struct Versions {
    sidelong: &'static str,
}

/// Writes the files.
pub(crate) fn publish(bench: &Bench<'_>, findings: Findings) -> Result<Conclusion> {
    let Findings { checks, invalid, svg, text, tables, settings, rows } = findings;
    bench.write("figure.svg", &svg)?;
    let verdict = Verdict::of(&checks);
    let record = Record {
        command: bench.command_shown(),
        date: today(),
        verdict,
        machine: Machine::here(),
        others_percent: bench.others_percent(),
        tables,
    };
    let outcome = Outcome {
        experiment: bench.experiment,
        quick: bench.options.quick,
        repeat: bench.repetitions,
        invalid: &invalid,
        record: &record,
        versions: Versions { sidelong: env!("CARGO_PKG_VERSION") },
        settings: &settings,
        seconds: bench.elapsed().as_secs_f64(),
        rows: &rows,
        checks: &checks,
    };
    let json = serde_json::to_string_pretty(&outcome)
        .map_err(|error| Error::Output { path: "result.json".into(), found: error.to_string() })?;
    bench.write("result.json", &json)?;
    bench.write("report.md", &report(bench, &text, &invalid))?;
    Ok(Conclusion { checks, verdict, invalid })
}

/// The title of the figure.
pub(crate) fn title(bench: &Bench<'_>, is_invalid: bool) -> String {
    let Experiment { id, title, figure, .. } = bench.experiment;
    let mark = if is_invalid { "INVALID, " } else { "" };
    format!("{mark}{id} ({figure}): {title}")
}

/// When and where it was measured.
pub(crate) fn machine(bench: &Bench<'_>) -> String {
    format!(
        "On {}, on {}; Sidelong {}. Other work took at most {} % of its CPU time during a run.",
        today(),
        Machine::here().describe(),
        env!("CARGO_PKG_VERSION"),
        bench.others_percent(),
    )
}

fn report(bench: &Bench<'_>, body: &str, invalid: &[String]) -> String {
    let Experiment { id, title, figure, .. } = bench.experiment;
    let mut text = format!("# {id}: {title} ({figure})\n");
    if bench.options.quick {
        text.push_str("\nA quick run: fewer runs, and shorter ones. What it left out is marked.\n");
    }
    if !invalid.is_empty() {
        text.push_str(
            "\n## What is invalid\n\nThese figures say nothing about Sidelong, and are not judged:\n\n",
        );
        invalid.iter().for_each(|why| _ = writeln!(text, "- {why}"));
    }
    let _ = writeln!(text, "\n![{id}](figure.svg)");
    text.push_str(body);
    text.push_str(&repeated(bench.repetitions));
    let _ = writeln!(
        text,
        "\nThe whole took {:.0} s. What each run was told is in `configs/`, and what it printed in `runs/`; the first lines \
         of a file for `up` name the command that repeats its run.\n\n```\n{}\n```",
        bench.elapsed().as_secs_f64(),
        bench.command()
    );
    text
}

/// The day in UTC, as 2026-11-23.
fn today() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string().chars().take(10).collect()
}

/// Describes how the figures of several repetitions were merged.
fn repeated(count: u32) -> String {
    match count {
        1 => String::new(),
        2.. if (count as usize) < REPETITIONS_MIN => format!(
            "\nAll runs were made {count} times. Figures are medians. In parentheses stand the least and the greatest of the \
             {count}: fewer than {REPETITIONS_MIN} repetitions give a median no interval of 95 %, and no error bars.\n"
        ),
        _ => format!(
            "\nAll runs were made {count} times. Figures are medians. In brackets, and as error bars, stands the interval in \
             which the true median lies with 95 % confidence, by order statistics, which assume no distribution.\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_method_is_told() {
        assert_eq!(repeated(1), "");
        assert!(repeated(3).contains("the least and the greatest of the 3"));
        assert!(repeated(9).contains("by order statistics"));
    }
}
