//! The record of a run, which a page of results shows: a part of `result.json`.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::check::Verdict;
use crate::error::{Error, Result, file};
use crate::machine::Machine;
use crate::markdown;

/// What a page shows of a run: a part of `result.json`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The command that measures it again.
    pub(crate) command: String,
    /// The day of its end, in UTC: 2026-11-23.
    pub(crate) date: String,
    pub(crate) verdict: Verdict,
    pub(crate) machine: Machine,
    /// The largest share of the machine's CPU time that other processes and the hypervisor took during a run, in percent.
    pub(crate) others_percent: u32,
    /// The tables of `report.md`.
    pub(crate) tables: Vec<Table>,
}

/// A table of a report.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Table {
    /// The heading that it stands under.
    pub(crate) title: String,
    pub(crate) columns: Vec<String>,
    /// As many cells each as there are columns.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Record {
    pub(crate) fn read(path: &Path) -> Result<Record> {
        let text = file(path, fs::read_to_string(path))?;
        serde_json::from_str(&text)
            .map_err(|error| Error::Output { path: path.to_owned(), found: error.to_string() })
    }

    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let json = serde_json::to_string_pretty(self)
            .map_err(|error| Error::Output { path: path.to_owned(), found: error.to_string() })?;
        file(path, fs::write(path, json + "\n"))
    }

    /// What stands between the markers.
    pub(crate) fn markdown(&self) -> String {
        let Record { command, date, machine, others_percent, tables, .. } = self;
        let machine = machine.describe();
        let mut text = format!(
            "`{command}`, {date}, on {machine}. Other work took at most {others_percent} % of its CPU time.\n"
        );
        let mut title = "";
        for table in tables {
            if table.title != title {
                title = &table.title;
                text += &format!("\n**{title}**\n");
            }
            text += &format!("\n{}\n", markdown::table(&table.columns, &table.rows));
        }
        text
    }
}
