//! Tables as comma-separated values. Nothing that the lab writes or reads needs quotes.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, file};

/// Of a file that is read, in bytes: 1 GB.
const BYTES_MAX: u64 = 1 << 30;

/// A file that grows line by line. Each line is on its way to the disk when [`Table::row`] returns.
#[derive(Debug)]
pub(crate) struct Table {
    path: PathBuf,
    to: File,
}

impl Table {
    /// A new file with a line that names the columns; an old one is overwritten.
    pub(crate) fn create(path: PathBuf, columns: &[&str]) -> Result<Table> {
        let to = file(&path, File::create(&path))?;
        let mut table = Table { path, to };
        table.line(&columns.join(","))?;
        Ok(table)
    }

    /// Appends `lines`, in one write.
    pub(crate) fn rows(&mut self, lines: impl IntoIterator<Item = String>) -> Result<()> {
        let lines: Vec<String> = lines.into_iter().collect();
        if lines.is_empty() { Ok(()) } else { self.line(&lines.join("\n")) }
    }

    fn line(&mut self, line: &str) -> Result<()> {
        file(&self.path, self.to.write_all(format!("{line}\n").as_bytes()))
    }
}

/// Reads a file whose first line is `header`, each further line by `parse`.
pub(crate) fn read<T>(path: &Path, header: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>> {
    let from = file(path, File::open(path))?;
    let wrong = |number: usize, line: &str| Error::Output {
        path: path.to_owned(),
        found: format!(
            "line {number}: expected {header}, found {:?}",
            line.chars().take(80).collect::<String>()
        ),
    };
    let mut rows = Vec::new();
    let mut lines = BufReader::new(from.take(BYTES_MAX)).lines();
    let first = file(path, lines.next().transpose())?.unwrap_or_default();
    if first.trim_end() != header {
        return Err(wrong(1, &first));
    }
    for (i, line) in lines.enumerate() {
        let line = file(path, line)?;
        rows.push(parse(line.trim_end()).ok_or_else(|| wrong(i + 2, &line))?);
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.csv");
        let mut table = Table::create(path.clone(), &["a", "b"]).unwrap();
        table.rows(["1,x".into()]).unwrap();
        table.rows(["2,y".into(), "3,z".into()]).unwrap();
        table.rows([]).unwrap();
        let parse = |line: &str| line.split_once(',').map(|(a, b)| (a.parse::<u32>().unwrap(), b.to_owned()));
        assert_eq!(read(&path, "a,b", parse).unwrap(), [(1, "x".into()), (2, "y".into()), (3, "z".into())]);
    }

    #[test]
    fn a_broken_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.csv");
        std::fs::write(&path, "a\n1\nx\n").unwrap();
        let error = read(&path, "a", |line| line.parse::<u32>().ok()).unwrap_err().to_string();
        assert!(error.ends_with("t.csv: line 3: expected a, found \"x\""), "{error}");
        let error = read(&path, "b", |_| Some(())).unwrap_err().to_string();
        assert!(error.ends_with("line 1: expected b, found \"a\""), "{error}");
    }
}
