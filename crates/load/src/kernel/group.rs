//! A control group as the scheduler knows it: by the number of its directory in the tree of the cpu controller.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::KernelError;
use crate::sampler::{Scope, beside};

/// By which the programs tell its threads from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Group {
    pub(super) id: u64,
    /// Where its memory is counted, if it is.
    pub(super) memory_id: Option<u64>,
}

impl Group {
    /// The one of that directory, of version 2 or of any controller of version 1.
    pub(super) fn find(path: &Path) -> Result<Self, KernelError> {
        let scope = || Scope::Cgroup(path.to_owned());
        let number = |path: &Path| path.metadata().map(|found| found.ino());
        let here = number(path).map_err(|source| KernelError::Read { path: path.to_owned(), source })?;
        let (cpu, memory) = (beside(path, "cpu"), beside(path, "memory"));
        let Some(cpu) = cpu else {
            // Version 2: one directory for all, in which a controller has files if it is on.
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
