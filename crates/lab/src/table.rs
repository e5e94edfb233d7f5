//! Tables as comma-separated values. A row is a struct, and its fields are the columns.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result, file};

/// Limit of a file that is read, in bytes: 1 GB.
const BYTES_MAX: u64 = 1 << 30;

/// A file that grows line by line. Each line has been handed to the kernel when [`Table::write`] returns.
pub(crate) struct Table {
    path: PathBuf,
    to: csv::Writer<File>,
}

impl Table {
    /// A new file; an old one is overwritten. The first line names the columns.
    pub(crate) fn create(path: PathBuf) -> Result<Table> {
        let to = csv::Writer::from_writer(file(&path, File::create(&path))?);
        Ok(Table { path, to })
    }

    /// Appends a line.
    pub(crate) fn write(&mut self, line: impl Serialize) -> Result<()> {
        let found = |error: csv::Error| Error::Output { path: self.path.clone(), found: error.to_string() };
        self.to.serialize(line).map_err(found)?;
        file(&self.path, self.to.flush())
    }
}

/// Reads a file whose first line names the columns. Columns that `T` does not have are ignored.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    let from = BufReader::new(file(path, File::open(path))?.take(BYTES_MAX));
    let rows: csv::Result<Vec<T>> = csv::Reader::from_reader(from).into_deserialize().collect();
    rows.map_err(|error| Error::Output { path: path.to_owned(), found: error.to_string() })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Serialize)]
    struct Line {
        a: u32,
        b: Option<f64>,
    }

    #[derive(Deserialize, PartialEq, Debug)]
    struct Read {
        b: Option<f64>,
    }

    #[test]
    fn fields_are_columns() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.csv");
        let mut table = Table::create(path.clone()).unwrap();
        table.write(Line { a: 1, b: Some(0.5) }).unwrap();
        table.write(Line { a: 2, b: None }).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a,b\n1,0.5\n2,\n");
        assert_eq!(read::<Read>(&path).unwrap(), [Read { b: Some(0.5) }, Read { b: None }]);
    }

    #[test]
    fn a_broken_line_and_a_missing_column_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.csv");
        std::fs::write(&path, "b\n1\nx\n").unwrap();
        let error = read::<Read>(&path).unwrap_err().to_string();
        assert!(error.contains("t.csv: ") && error.contains("line: 3"), "{error}");
        #[derive(Deserialize, Debug)]
        #[expect(dead_code, reason = "what matters is that it is not there")]
        struct Other {
            c: f64,
        }
        let error = read::<Other>(&path).unwrap_err().to_string();
        assert!(error.contains("missing field `c`"), "{error}");
    }
}
