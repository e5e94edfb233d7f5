//! A control group as the scheduler identifies it: by its directory's number in the tree of the cpu controller.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::KernelError;
use crate::sampler::{Scope, beside};

/// Its number, by which the programs recognise its threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Group {
    pub(super) id: u64,
    /// The number under which its memory is counted, if it is.
    pub(super) memory_id: Option<u64>,
}

impl Group {
    /// Finds the group of a directory, of version 2 or of any controller of version 1.
    pub(super) fn find(path: &Path) -> Result<Self, KernelError> {
        let scope = || Scope::Cgroup(path.to_owned());
        let number = |path: &Path| path.metadata().map(|found| found.ino());
        let here = number(path).map_err(|source| KernelError::Read { path: path.to_owned(), source })?;
        let (cpu, memory) = (beside(path, "cpu"), beside(path, "memory"));
        let Some(cpu) = cpu else {
            // Version 2 has one directory for all controllers, in which each enabled controller has files.
            if !path.join("cpu.weight").exists() {
                let reason = "its cpu controller is off (cgroup.subtree_control of the group above)";
                return Err(KernelError::Scope { scope: scope(), reason: reason.to_owned() });
            }
            let memory_id = path.join("memory.current").exists().then_some(here);
            return Ok(Group { id: here, memory_id });
        };
        let id = number(&cpu).map_err(|source| KernelError::Read { path: cpu, source })?;
        Ok(Group { id, memory_id: memory.and_then(|memory| number(&memory).ok()) })
    }
}
