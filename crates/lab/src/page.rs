//! The page of results: the tables of runs, between markers in a page whose prose is written by hand.
//!
//! Between the lines `<!-- lab M3 -->` and `<!-- /lab M3 -->` a page has what [`update`] put there: the command, the day,
//! the machine and the tables of a run of M3. The record of that run stands beside the page, in a directory of its name:
//! `docs/results/M3.json` for `docs/results.md`. [`check`] finds a block that differs from its record.

use std::fs;
use std::path::{Path, PathBuf};

use crate::check::Verdict;
use crate::error::{Error, Result, file};
use crate::experiments;
use crate::record::Record;

/// Checks that each block of `page` shows its record, and that each record has a block. Returns the IDs of the blocks.
///
/// # Errors
/// If a marker has no partner or names no experiment, a record is missing, has no block or differs from its block, or a
/// file cannot be read.
pub fn check(page: &Path) -> Result<Vec<String>> {
    let text = file(page, fs::read_to_string(page))?;
    let mut ids = Vec::new();
    fill(page, &text, |id, body| {
        if Record::read(&record(page, id))?.markdown() != body {
            let found = "differs from its record; `sidelong-lab page PAGE --from DIR` writes both".to_owned();
            return Err(Error::Page { page: page.to_owned(), block: id.to_owned(), found });
        }
        ids.push(id.to_owned());
        Ok(body.to_owned())
    })?;
    let records = page.with_extension("");
    let entries = if records.is_dir() { Some(file(&records, records.read_dir())?) } else { None };
    for entry in entries.into_iter().flatten() {
        let path = file(&records, entry)?.path();
        let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !ids.contains(&id) {
            let found = format!("{} has no block", path.display());
            return Err(Error::Page { page: page.to_owned(), block: id, found });
        }
    }
    Ok(ids)
}

/// Writes the results that `results` has into the blocks of `page`, and their records beside it. Returns the IDs of these
/// blocks; others stay as they are.
///
/// # Errors
/// If a marker has no partner or names no experiment, no block has a result, a result is invalid, or a file cannot be read
/// or written. The page then stays as it was.
pub fn update(page: &Path, results: &Path) -> Result<Vec<String>> {
    let text = file(page, fs::read_to_string(page))?;
    let mut taken = Vec::new();
    let filled = fill(page, &text, |id, body| {
        let path = results.join(id).join("result.json");
        if !path.exists() {
            return Ok(body.to_owned());
        }
        let result = Record::read(&path)?;
        if result.verdict == Verdict::Invalid {
            let found = format!("the run is invalid; see {}", path.with_file_name("report.md").display());
            return Err(Error::Page { page: page.to_owned(), block: id.to_owned(), found });
        }
        let body = result.markdown();
        taken.push((id.to_owned(), result));
        Ok(body)
    })?;
    if taken.is_empty() {
        let instead = "mark the place of a result by the lines `<!-- lab ID -->` and `<!-- /lab ID -->`";
        let what = format!("{}: no block has a result in {}", page.display(), results.display());
        return Err(Error::Absent { what, instead });
    }
    let records = page.with_extension("");
    file(&records, fs::create_dir_all(&records))?;
    for (id, result) in &taken {
        result.write(&record(page, id))?;
    }
    file(page, fs::write(page, filled))?;
    Ok(taken.into_iter().map(|(id, _)| id).collect())
}

/// Where the record of a block is.
fn record(page: &Path, id: &str) -> PathBuf {
    page.with_extension("").join(format!("{id}.json"))
}

/// The page with each block's content replaced by what `body` makes of the ID and the content.
fn fill(page: &Path, text: &str, mut body: impl FnMut(&str, &str) -> Result<String>) -> Result<String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(Marker { before, id, is_end, after }) = marker(rest) {
        let wrong = |found: &str| Error::Page {
            page: page.to_owned(),
            block: id.to_owned(),
            found: found.to_owned(),
        };
        if is_end {
            return Err(wrong("ends and did not begin"));
        }
        experiments::find(id)?;
        let end = format!("<!-- /lab {id} -->\n");
        let (content, after) = after.split_once(&end).ok_or_else(|| wrong("has no end"))?;
        if marker(content).is_some() {
            return Err(wrong("has another marker in it"));
        }
        filled += &format!("{before}<!-- lab {id} -->\n{}{end}", body(id, content)?);
        rest = after;
    }
    Ok(filled + rest)
}

/// The line that begins or ends a block, and the text around it.
struct Marker<'a> {
    before: &'a str,
    id: &'a str,
    is_end: bool,
    after: &'a str,
}

/// The first one.
fn marker(text: &str) -> Option<Marker<'_>> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let inner = line.trim_end().strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        let begins = inner.and_then(|inner| Some((inner.strip_prefix("lab ")?, false)));
        let ends = || inner.and_then(|inner| Some((inner.strip_prefix("/lab ")?, true)));
        if let Some((id, is_end)) = begins.or_else(ends) {
            return Some(Marker { before: &text[..at], id, is_end, after: &text[at + line.len()..] });
        }
        at += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::record::Table;

    const PAGE: &str = "# Results\nBy hand.\n<!-- lab M3 -->\nold\n<!-- /lab M3 -->\n\n<!-- lab S2 -->\n<!-- /lab S2 -->\n| by | hand |\n";

    fn result(verdict: Verdict) -> Record {
        let table = |title: &str, cell: &str| Table {
            title: title.to_owned(),
            columns: vec!["scheme".to_owned(), "us".to_owned()],
            rows: vec![vec!["rdma-sync".to_owned(), cell.to_owned()]],
        };
        Record {
            command: "sidelong-lab run M3 --out results --quick".to_owned(),
            date: "2026-11-23".to_owned(),
            verdict,
            machine: Machine {
                cpu: "Fast 9000".to_owned(),
                cores: 2,
                memory_mib: 1024,
                kernel: "Linux 6.18".to_owned(),
            },
            others_percent: 3,
            tables: vec![table("Targets", "1.2"), table("Measured", "12"), table("Measured", "16 [12, 17]")],
        }
    }

    /// A page, and the result of M3 with this verdict.
    fn page(text: &str, verdict: Verdict) -> (tempfile::TempDir, PathBuf, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let (page, results) = (directory.path().join("results.md"), directory.path().join("out"));
        fs::write(&page, text).unwrap();
        fs::create_dir_all(results.join("M3")).unwrap();
        result(verdict).write(&results.join("M3/result.json")).unwrap();
        (directory, page, results)
    }

    #[test]
    fn a_result_is_written_between_its_markers_and_nowhere_else() {
        let (_directory, page, results) = page(PAGE, Verdict::Missed);
        assert_eq!(update(&page, &results).unwrap(), ["M3"]);
        let text = fs::read_to_string(&page).unwrap();
        assert_eq!(
            text,
            "# Results\nBy hand.\n<!-- lab M3 -->\n\
             `sidelong-lab run M3 --out results --quick`, 2026-11-23, on one machine with 2 cores of Fast 9000, 1024 MiB of \
             memory, Linux 6.18. Other work took at most 3 % of its CPU time.\n\n\
             **Targets**\n\n| scheme | us |\n|---|---|\n| rdma-sync | 1.2 |\n\n\
             **Measured**\n\n| scheme | us |\n|---|---|\n| rdma-sync | 12 |\n\n\
             | scheme | us |\n|---|---|\n| rdma-sync | 16 [12, 17] |\n\
             <!-- /lab M3 -->\n\n<!-- lab S2 -->\n<!-- /lab S2 -->\n| by | hand |\n"
        );
        update(&page, &results).unwrap();
        assert_eq!(fs::read_to_string(&page).unwrap(), text, "twice is as once");
    }

    #[test]
    fn a_figure_that_was_changed_by_hand_is_found() {
        let only = PAGE.replace("<!-- lab S2 -->\n<!-- /lab S2 -->\n", "");
        let (_directory, page, results) = page(&only, Verdict::Met);
        update(&page, &results).unwrap();
        assert_eq!(check(&page).unwrap(), ["M3"]);
        let text = fs::read_to_string(&page).unwrap();
        fs::write(&page, text.replace("16 [", "11 [")).unwrap();
        let error = check(&page).unwrap_err().to_string();
        assert!(error.contains("block M3: differs from its record"), "{error}");
        fs::write(&page, "# Results\n").unwrap();
        let error = check(&page).unwrap_err().to_string();
        assert!(error.contains("M3.json has no block"), "{error}");
    }

    #[test]
    fn an_invalid_run_leaves_the_page_as_it_was() {
        let (_directory, page, results) = page(PAGE, Verdict::Invalid);
        let error = update(&page, &results).unwrap_err().to_string();
        assert!(
            error.contains("block M3: the run is invalid; see ") && error.contains("report.md"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(&page).unwrap(), PAGE);
        assert!(!page.with_extension("").exists());
    }

    #[test]
    fn broken_markers_are_named() {
        for (text, found) in [
            ("<!-- lab M3 -->\n", "block M3: has no end"),
            ("<!-- /lab M3 -->\n", "block M3: ends and did not begin"),
            ("<!-- lab M3 -->\n<!-- lab S2 -->\n<!-- /lab M3 -->\n", "block M3: has another marker in it"),
            ("<!-- lab M2 -->\n<!-- /lab M2 -->\n", "no experiment \"M2\""),
            ("No block.\n", "no block has a result"),
        ] {
            let (_directory, page, results) = page(text, Verdict::Met);
            let error = update(&page, &results).unwrap_err().to_string();
            assert!(error.contains(found), "{error}");
        }
    }
}
