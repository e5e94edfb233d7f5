//! Why the kernel keeps no record.

use std::io;
use std::path::PathBuf;

use crate::sampler::Scope;

/// Why the kernel keeps no record for this process. Each says what is missing.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// This process may not load programs.
    #[error("{missing} missing: run it as root, or give it {needed}", needed = super::privilege::NEEDED)]
    Capability {
        /// Which, by their names.
        missing: String,
    },
    /// The kernel does not describe its types.
    #[error(
        "the kernel does not describe its types ({path}: {reason}): one built with CONFIG_DEBUG_INFO_BTF does"
    )]
    NoTypes {
        /// Where they would be.
        path: PathBuf,
        /// Why they cannot be read.
        reason: String,
    },
    /// It lacks something without which there is no record.
    #[error("this kernel has no {what}")]
    Lacks {
        /// A tracepoint, a field.
        what: String,
    },
    /// A scope that cannot be told apart in the kernel.
    #[error("the kernel keeps no record of {scope}: {reason}")]
    Scope {
        /// Whose load.
        scope: Scope,
        /// Why not.
        reason: String,
    },
    /// A file of the kernel's could not be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel would not have it.
    #[error("the kernel refuses {what}: {source}{}", .hint)]
    Refused {
        /// What was tried.
        what: String,
        /// What it said.
        source: libbpf_rs::Error,
        /// What may be behind it.
        hint: &'static str,
    },
    /// The kernel's verifier finds fault with the programs.
    #[error("this kernel's verifier refuses the programs: {reason} (RUST_LOG=debug shows all that it said)")]
    Verifier {
        /// Its last word.
        reason: String,
    },
    /// The timer was not armed.
    #[error("the kernel armed no timer (error {code})")]
    Timer {
        /// The error's number, negative.
        code: i32,
    },
    /// The object in this program is not what its loader expects.
    #[error("the shipped object has no {what}: `cargo xtask bpf` rebuilds it")]
    Object {
        /// What is missing.
        what: String,
    },
    /// The map's descriptor could not be had.
    #[error("the record's memory: {0}")]
    Memory(#[source] io::Error),
    /// Privileges could not be given up.
    #[error("privileges cannot be given up: {0}")]
    Drop(#[source] io::Error),
}
