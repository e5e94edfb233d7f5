//! Reading and writing the file.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use sidelong_os::open_regular;

use crate::cluster::Cluster;
use crate::error::{Error, Location, Result};
use crate::file::{ClusterFile, Tls};
use crate::hosts::{self, Hosts};
use crate::lines::{At, key_at, line_at};
use crate::sections::Etcd;
use crate::slots::SlotTable;

/// Most bytes of a cluster file.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

const DEMO: &str = include_str!("demo.toml");
/// The text of the file that `sidelong config example` prints.
const EXAMPLE: &str = include_str!("example.toml");

impl ClusterFile {
    /// Reads and checks a file. Relative paths in it start from its own directory.
    ///
    /// # Errors
    /// If it cannot be read or used.
    pub fn load(path: &Path) -> Result<ClusterFile> {
        let file = open_regular(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Self::of_file(file, path)
    }

    /// Reads and checks an open file; errors call it `path`, and relative paths in it start from the directory of `path`.
    ///
    /// # Errors
    /// As [`ClusterFile::load`].
    pub fn of_file(file: File, path: &Path) -> Result<ClusterFile> {
        let failed = |source| Error::Read { path: path.to_owned(), source };
        let (text, mode) = read(file).map_err(failed)?;
        let name = path.display().to_string();
        let mut file = Self::parse(&text, &name)?;
        if file.cluster.secret.is_some() && mode & 0o077 != 0 {
            return Err(Error::Check {
                place: Location::Line { file: name, line: At::section("cluster").key("secret").line(&text) },
                found: format!("a secret in a file that other users can read or change (mode {mode:o})"),
                expected: "mode 0600, or a secret_file of that mode".to_owned(),
            });
        }
        // A part that gets a copy of it may run in another directory.
        if let Some(directory) = std::path::absolute(path).map_err(failed)?.parent() {
            file.paths_from(directory);
        }
        Ok(file)
    }

    /// A path that is not absolute, and so means another file on each machine, if there is one. `run_dir` is each machine's own.
    pub fn relative_path(&self) -> Option<PathBuf> {
        let mut file = self.clone();
        file.cluster.run_dir = None;
        file.paths().into_iter().find(|path| !path.is_absolute()).cloned()
    }

    /// Reads and checks a text that errors call `name`. Relative paths in it stay relative.
    ///
    /// # Errors
    /// If it cannot be used: the line, what is wrong, and what was expected.
    pub fn parse(text: &str, name: &str) -> Result<ClusterFile> {
        let place = |line| Location::Line { file: name.to_owned(), line };
        let file: ClusterFile = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            let key = key_at(text, offset).map_or_else(String::new, |key| format!("{key}: "));
            let message = format!("{key}{}", with_remedy(&error.message().replace('\n', ", ")));
            Error::Parse { place: place(line_at(text, offset)), message }
        })?;
        Cluster::new(&file, &SlotTable::default(), false).map_err(|problem| Error::Check {
            place: place(problem.at.line(text)),
            found: problem.found,
            expected: problem.expected,
        })?;
        Ok(file)
    }

    /// Parses a file that parts have adopted, and tells what the hosts in it mean. They mean what this process has last heard, and one that
    /// is not found is nowhere ([`is_nowhere`](crate::is_nowhere)).
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_adopted(text: &str, name: &str) -> Result<(ClusterFile, Hosts)> {
        hosts::adopted(|| Self::parse(text, name))
    }

    /// The default cluster: 8 nodes, 3 sites with 3, 3 and 2 of them, 2 edges, and the WorldCup98 sample as load. It runs
    /// on one machine without root.
    ///
    /// # Panics
    /// Never: the text is part of the program, and a test reads it.
    pub fn demo() -> ClusterFile {
        Self::parse(DEMO, "demo.toml").expect("the embedded cluster file is usable")
    }

    /// The text of [`ClusterFile::demo`] with its comments, and with what only `up` and the lab use of a file.
    pub fn demo_text() -> &'static str {
        DEMO
    }

    /// A commented file with every other key, to start one of one's own from.
    pub fn example_text() -> &'static str {
        EXAMPLE
    }

    /// As text that [`ClusterFile::parse`] reads the same.
    ///
    /// # Errors
    /// Where a path is not UTF-8.
    pub fn to_toml(&self) -> Result<String> {
        Ok(toml::to_string(self)?)
    }

    /// Takes relative paths from `directory`.
    fn paths_from(&mut self, directory: &Path) {
        for path in self.paths() {
            // An absolute path stays what it is.
            *path = directory.join(std::mem::take::<PathBuf>(path));
        }
    }

    /// All that are the names of files.
    fn paths(&mut self) -> Vec<&mut PathBuf> {
        let nodes = self.nodes.iter_mut().flat_map(|node| [&mut node.root, &mut node.cgroup]);
        let workload = self.workload.iter_mut().map(|workload| &mut workload.trace);
        let cluster = [&mut self.cluster.run_dir, &mut self.cluster.secret_file];
        let optional = nodes.chain(workload).chain(cluster).flatten();
        let mut edges = Vec::new();
        for edge in &mut self.edges {
            edges.extend(edge.access_log.as_mut().filter(|path| path.as_os_str() != "-"));
            edges.extend(&mut edge.client_ca);
            edges.extend(edge.tls.iter_mut().flat_map(|Tls { certificate, key }| [certificate, key]));
        }
        let etcd = self.etcd.iter_mut().flat_map(|etcd| {
            let Etcd { ca, certificate, key, password_file, state_dir, .. } = etcd;
            [ca, certificate, key, password_file, state_dir]
        });
        let fronts = self.fronts.iter_mut().flat_map(|front| [&mut front.dir, &mut front.socket]).flatten();
        optional.chain(edges).chain(fronts).chain(etcd.flatten()).collect()
    }
}

/// The parser's message, in words of the file, and with what to do.
fn with_remedy(message: &str) -> String {
    match message.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`')) {
        Some(key) => format!("{message}; add `{key} = ...` to this table"),
        None => message.replace("expected a sequence", "expected an array, such as [\"a\", \"b\"]"),
    }
}

/// The text, and who may do what with its file.
fn read(file: File) -> io::Result<(String, u32)> {
    let mut text = String::new();
    let mode = file.metadata()?.permissions().mode() & 0o777;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("a cluster file has at most {FILE_BYTES_MAX} bytes"),
        ));
    }
    Ok((text, mode))
}
