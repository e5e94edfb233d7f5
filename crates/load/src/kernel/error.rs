//! Why the kernel keeps no record.

use std::io;
use std::path::PathBuf;

use crate::sampler::Scope;

/// Why the kernel keeps no record for this process, and what is missing.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// This process may not load programs.
    #[error("{missing} missing: run it as root, or give it {needed}")]
    Capability {
        /// The missing capabilities, by name.
        missing: String,
        /// All that are needed.
        needed: String,
    },
    /// The kernel does not describe its types.
    #[error(
        "the kernel does not describe its types ({path}: {reason}): use one built with CONFIG_DEBUG_INFO_BTF"
    )]
    NoTypes {
        /// Where they should be.
        path: PathBuf,
        /// Why they cannot be read.
        reason: String,
    },
    /// The kernel lacks something that every record needs.
    #[error("this kernel has no {what}")]
    Lacks {
        /// A tracepoint or a field.
        what: String,
    },
    /// A scope that the kernel cannot tell apart.
    #[error("the kernel keeps no record of {scope}: {reason}")]
    Scope {
        /// The scope.
        scope: Scope,
        /// The reason.
        reason: String,
    },
    /// One of the kernel's files could not be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The kernel refused a call.
    #[error("the kernel refuses {what}: {source}{}", .hint)]
    Refused {
        /// The call.
        what: String,
        /// The kernel's error.
        source: libbpf_rs::Error,
        /// A likely cause.
        hint: &'static str,
    },
    /// The kernel's verifier refuses the programs.
    #[error("this kernel's verifier refuses the programs: {reason} (RUST_LOG=debug shows its full log)")]
    Verifier {
        /// The verifier's last line.
        reason: String,
    },
    /// The timer was not armed.
    #[error("the kernel armed no timer (error {code})")]
    Timer {
        /// The error's number, negative.
        code: i32,
    },
    /// The timer was armed, and the programs write nothing.
    #[error("the kernel armed the timer, but wrote no record within {} s", waited.as_secs())]
    Silent {
        /// The time waited for one.
        waited: std::time::Duration,
    },
    /// The object in this program is not what its loader expects.
    #[error("the shipped object has no {what}: rebuild it with `cargo xtask bpf`")]
    Object {
        /// What is missing.
        what: String,
    },
    /// The map's descriptor could not be duplicated.
    #[error("the record's memory: {0}")]
    Memory(#[source] io::Error),
    /// Privileges could not be dropped.
    #[error("cannot drop privileges: {0}")]
    Drop(#[source] io::Error),
}
