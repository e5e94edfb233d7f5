//! What a report of a fault needs, as a tar archive.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use sidelong_config::{Cluster, ClusterFile};
use sidelong_fabric::RunDirectory;
use tar::{Builder, Header};

use super::findings::Finding;
use super::gather::ask;
use crate::failure::Failure;

/// What parts say of themselves.
const PAGES: [&str; 2] = ["/metrics", "/status.json"];
/// Most bytes of a file of the run directory.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Creates its file, which must not exist.
pub(super) fn create(path: &Path) -> Result<File, Failure> {
    File::create_new(path).map_err(|error| Failure::new(format!("cannot write {}: {error}", path.display())))
}

/// Writes it into that file.
pub(super) fn write(file: File, cluster: Option<&Cluster>, findings: &[Finding]) -> Result<(), Failure> {
    let named = |error: io::Error| Failure::new(format!("cannot write the report: {error}"));
    let mut archive = Builder::new(file);
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        archive.append_data(&mut header, format!("sidelong-report/{name}"), bytes).map_err(named)
    };
    add("doctor.json", serde_json::to_string_pretty(findings)?.as_bytes())?;
    add("version", concat!(env!("CARGO_PKG_VERSION"), "\n").as_bytes())?;
    if let Some(cluster) = cluster {
        add("cluster.toml", without_secret(&cluster.file).to_toml()?.as_bytes())?;
        for page in PAGES {
            for ((_, name, _), said) in ask(cluster, page, |text| text) {
                match said {
                    Ok(text) => add(&format!("{name}{page}"), text.as_bytes())?,
                    Err(error) => add(&format!("{name}{page}.error"), error.to_string().as_bytes())?,
                }
            }
        }
        let run = RunDirectory::at(&cluster.run_dir);
        let movers = cluster.fronts.values().map(|front| &front.name);
        for name in
            movers.flat_map(|name| [format!("{name}.history.jsonl"), format!("{name}.history.1.jsonl")])
        {
            let mut text = Vec::new();
            let read = run.read(&name).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut text));
            if read.is_ok() {
                add(&name, &text)?;
            }
        }
    }
    archive.finish().map_err(named)
}

/// The file but for the secret that may stand in it.
fn without_secret(file: &ClusterFile) -> ClusterFile {
    let mut file = file.clone();
    file.cluster.secret = None;
    file
}

#[cfg(test)]
mod tests {
    use sidelong_config::SecretText;

    use super::*;

    #[test]
    fn it_has_no_secret() {
        let mut file = ClusterFile::demo();
        file.cluster.secret = Some(SecretText::new("a secret of thirty-two bytes or so"));
        assert!(file.to_toml().unwrap().contains("thirty-two"));
        assert!(!without_secret(&file).to_toml().unwrap().contains("thirty-two"));
    }
}
