//! What is known of this machine and the cluster.

use std::net::SocketAddr;
use std::path::PathBuf;

use sidelong_config::{Fabric, Proxy};

/// This machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Machine {
    /// As uname(2) has it.
    pub(super) kernel: String,
    pub(super) has_btf: bool,
    pub(super) has_bpf_files: bool,
    pub(super) has_groups: bool,
    /// Names of RDMA devices.
    pub(super) rdma: Vec<String>,
}

/// What the cluster asks of this machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Needs {
    pub(super) fabric: Fabric,
    /// Whether the file asks for records that the kernel keeps.
    pub(super) kernel_records: bool,
    /// Whether a front directs connections by BPF programs.
    pub(super) connect: bool,
    /// Memory of caches and documents of this machine's parts that do not run, in MiB.
    pub(super) memory_mib: u64,
    pub(super) connections_max: u64,
    pub(super) run_dir: PathBuf,
}

/// The run directory.
#[derive(Clone, Debug)]
pub(super) enum RunPlace {
    /// Nothing has made it yet.
    Absent,
    /// It is refused.
    Refused(String),
    Found {
        is_memory: bool,
        free_mib: u64,
    },
}

/// A process of a part on this machine.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) kind: &'static str,
    /// Files that it may open, and memory that it may lock, in bytes; `None` without a limit.
    pub(super) files_max: Option<u64>,
    pub(super) locked_max: Option<u64>,
}

/// An address of the file on this machine.
#[derive(Clone, Debug)]
pub(super) struct Port {
    /// The part and its key.
    pub(super) what: String,
    pub(super) address: SocketAddr,
    pub(super) holder: Holder,
}

#[derive(Clone, Debug)]
pub(super) enum Holder {
    Nobody,
    /// A part.
    Part,
    /// A unit of systemd, which hands its socket to a part.
    Systemd,
    Other(String),
    /// It cannot be listened at.
    Unusable(String),
}

/// The file of the secret.
#[derive(Clone, Debug)]
pub(super) struct SecretFile {
    pub(super) path: PathBuf,
    /// How many it has, or why it is refused.
    pub(super) secrets: Result<usize, String>,
}

/// A part that answers at its admin address, or should.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) kind: &'static str,
    pub(super) address: SocketAddr,
    pub(super) answer: Result<Answer, String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    pub(super) version: Option<String>,
    pub(super) layout: Option<String>,
    pub(super) epoch: Option<u64>,
    /// How far its clock is ahead of this one's, in seconds, if its answer has the time.
    pub(super) ahead_s: Option<f64>,
}

/// A proxy of another make that a front of this machine controls.
#[derive(Clone, Debug)]
pub(super) struct Controlled {
    pub(super) front: String,
    pub(super) proxy: Proxy,
    /// What shows that it is controlled, or why it is not.
    pub(super) survey: Result<String, String>,
}

#[derive(Clone, Debug)]
pub(super) struct CertificateFile {
    pub(super) path: PathBuf,
    /// How long it is good for yet, below zero once it has ended; or why it cannot be used.
    pub(super) left_s: Result<i64, String>,
}

/// All of it. What the cluster's file would tell is empty if that cannot be used.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) machine: Machine,
    /// Whether the user who asks sees no processes and memory of the cluster's.
    pub(super) is_blind: bool,
    /// Which file, and why it cannot be used, if it cannot.
    pub(super) file: (String, Option<String>),
    pub(super) needs: Needs,
    pub(super) run: Option<RunPlace>,
    pub(super) processes: Vec<Process>,
    /// Kind and name of the parts that belong on this machine, and have no process.
    pub(super) missing: Vec<(&'static str, String)>,
    pub(super) ports: Vec<Port>,
    pub(super) secret: Option<SecretFile>,
    pub(super) parts: Vec<Part>,
    pub(super) proxies: Vec<Controlled>,
    pub(super) certificates: Vec<CertificateFile>,
}
