//! Makes faults of parts and of machines' files, and ends them. Those of networks are the machines' (`chaos::machines`).

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::PoisonError;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use super::{KEPT, Stage, kill};
use crate::chaos::plan::Kind;
use crate::error::{Result, file};
use crate::process::Process;

/// A file that takes all that a file system has.
const FULL: &str = "full";

impl Stage {
    /// Begins a fault of a machine, or of the part of that place.
    pub(in crate::chaos) fn begin_fault(
        &self,
        kind: Kind,
        machine: usize,
        part: Option<usize>,
    ) -> Result<()> {
        let part = || &self.parts[part.expect("it is of a part")];
        match kind {
            Kind::Kill => kill(&mut part().process()),
            Kind::Stop => part().process().iter().for_each(Process::pause),
            Kind::Crash | Kind::Old => {
                self.of_machine(machine).for_each(|(_, part)| kill(&mut part.process()));
            }
            Kind::Full => fill(&self.run_dir(machine).join(FULL))?,
            Kind::Descriptors => self.limit(&part().process()),
            Kind::Truncate => {
                each_region(&self.run_dir(machine), ".choice.region", |_, region| region.set_len(0))?;
            }
            Kind::Scribble => each_region(&self.run_dir(machine), ".region", |_, region| {
                let bytes = region.metadata()?.len() as usize;
                let noise = (0..bytes).map(|at| (at * 151) as u8);
                region.write_all(&noise.collect::<Vec<_>>())
            })?,
            Kind::Etcd => self.majority().for_each(|(_, part)| kill(&mut part.process())),
            _ => self.machines.begin_fault(machine, kind)?,
        }
        Ok(())
    }

    /// Ends it.
    pub(in crate::chaos) fn end_fault(&self, kind: Kind, machine: usize, part: Option<usize>) -> Result<()> {
        match (kind, part) {
            (Kind::Kill, Some(part)) => self.start(part),
            (Kind::Stop, Some(part)) => {
                self.parts[part].process().iter().for_each(Process::resume);
                Ok(())
            }
            (Kind::Full, _) => {
                let path = self.run_dir(machine).join(FULL);
                match fs::remove_file(&path) {
                    // The machine has lost its power meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    removed => file(&path, removed),
                }
            }
            (Kind::Descriptors, _) => {
                let limits = std::mem::take(&mut *self.limits.lock().unwrap_or_else(PoisonError::into_inner));
                // One may have ended.
                limits.into_iter().for_each(|(pid, limit)| _ = prlimit(Some(pid), Resource::Nofile, limit));
                Ok(())
            }
            (Kind::Truncate | Kind::Scribble, _) => Ok(()),
            (Kind::Old, _) => {
                for name in KEPT {
                    copy(&self.old_dir(machine).join(name), &self.machine_dir(machine).join(name))?;
                }
                // What was in memory alone is lost.
                each_region(&self.run_dir(machine), ".region", |path, _| fs::remove_file(path))?;
                self.of_machine(machine).try_for_each(|(part, _)| self.start(part))
            }
            (Kind::Crash, _) => {
                empty(&self.run_dir(machine))?;
                self.of_machine(machine).try_for_each(|(part, _)| self.start(part))
            }
            (Kind::Etcd, _) => self.majority().try_for_each(|(part, _)| self.start(part)),
            _ => self.machines.end_fault(machine, kind),
        }
    }

    /// Leaves a part and its children the descriptors that they have.
    fn limit(&self, process: &Option<Process>) {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let of_all = process.iter().flat_map(|process| [vec![process.id()], process.children()].concat());
        for id in of_all {
            let open = fs::read_dir(format!("/proc/{id}/fd")).map_or(0, Iterator::count) as u64;
            let Some(pid) = Pid::from_raw(id as i32) else { continue };
            let maximum = getrlimit(Resource::Nofile).maximum;
            let few = Rlimit { current: Some(open), maximum };
            limits.extend(prlimit(Some(pid), Resource::Nofile, few).ok().map(|before| (pid, before)));
        }
    }
}

/// Takes all that its file system has left.
fn fill(path: &Path) -> Result<()> {
    let mut full = file(path, fs::File::create(path))?;
    match io::copy(&mut io::repeat(0), &mut full) {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
        done => file(path, done.map(drop)),
    }
}

/// Puts the files of one directory, and of those in it, into the place of another's.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    empty(to)?;
    file(to, fs::create_dir_all(to))?;
    file(to, fs::set_permissions(to, fs::Permissions::from_mode(0o700)))?;
    for entry in file(from, fs::read_dir(from))?.flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => copy(&path, &to)?,
            Ok(kind) if kind.is_file() => file(&path, fs::copy(&path, &to).map(drop))?,
            // Sockets are made anew.
            _ => {}
        }
    }
    Ok(())
}

/// Removes what is in a directory, if there is one.
fn empty(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        file(&path, if is_directory { fs::remove_dir_all(&path) } else { fs::remove_file(&path) })?;
    }
    Ok(())
}

/// Does something to the memory that other processes map.
fn each_region(
    run: &Path,
    end: &str,
    mut each: impl FnMut(&Path, &mut fs::File) -> io::Result<()>,
) -> Result<()> {
    for entry in file(run, fs::read_dir(run))?.flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().ends_with(end) {
            let mut region = file(&path, fs::File::options().write(true).open(&path))?;
            file(&path, each(&path, &mut region))?;
        }
    }
    Ok(())
}
