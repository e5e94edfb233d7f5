//! The part that a unit's ExecStop or a container's preStop hook is about: the one that runs in the control group of this command.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::part::PartArgs;

/// A part that runs.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OwnPart {
    /// Its name in the cluster file.
    pub(crate) name: String,
    /// The cluster file that it was started with.
    pub(crate) config: PathBuf,
}

/// What part a process runs by its command line, the program included; `None` if none.
pub(crate) type Parse = fn(&[OsString]) -> Option<PartArgs>;

/// The part in the control group of this command.
///
/// # Errors
/// If none runs there, or several do.
pub(crate) fn own_part(parse: Parse) -> Result<OwnPart, Failure> {
    let group = |process: &str| fs::read(format!("/proc/{process}/cgroup"));
    let own = group("self")?;
    let here = |(pid, _): &(u32, OwnPart)| group(&pid.to_string()).is_ok_and(|of| of == own);
    let mut parts: Vec<_> = running(parse)?.into_iter().filter(here).map(|(_, part)| part).collect();
    parts.sort();
    match &parts[..] {
        [_] => Ok(parts.remove(0)),
        [] => Err(Failure::new(
            "no part of a cluster runs in the control group of this command: name the one that is to leave",
        )),
        several => {
            let names: Vec<_> = several.iter().map(|part| part.name.as_str()).collect();
            Err(Failure::new(format!(
                "several parts run in the control group of this command, {}: name the one that is to leave",
                names.join(", ")
            )))
        }
    }
}

/// All parts that run on this machine, of any cluster, with their process IDs.
///
/// # Errors
/// If /proc cannot be read.
pub(crate) fn running(parse: Parse) -> io::Result<Vec<(u32, OwnPart)>> {
    let processes = fs::read_dir("/proc")?.filter_map(|entry| {
        let entry = entry.ok()?;
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, part_of(&entry.path(), parse)?))
    });
    Ok(processes.collect())
}

/// The part that a process runs, by its command line. `None` if it is none, or has ended.
fn part_of(process: &Path, parse: Parse) -> Option<OwnPart> {
    let line = fs::read(process.join("cmdline")).ok()?;
    let words = line.strip_suffix(b"\0")?.split(|byte| *byte == 0);
    let words: Vec<_> = words.map(|word| OsString::from_vec(word.to_vec())).collect();
    let program = Path::new(words.first()?).file_name()?.to_str()?;
    let part = parse(&words).filter(|_| program.starts_with("sidelong"))?;
    // Another user's is not told.
    let from =
        if part.config.is_absolute() { PathBuf::new() } else { fs::read_link(process.join("cwd")).ok()? };
    Some(OwnPart { name: part.name, config: from.join(part.config) })
}
