//! What Sidelong asks of the operating system, each thing once: clocks, the CPU time and state of processes, the limit of open files,
//! regular files, standard output, threads, and addresses of servers. Any crate that does I/O may use it; `policy` and `state` never do.

#![forbid(unsafe_code)]

mod address;
mod clock;
mod file;
mod limits;
mod process;
mod stdout;
mod worker;

pub use address::ServerAddress;
pub use clock::{monotonic_ns, process_cpu, thread_cpu, wall_ns};
pub use file::{check_private, open_regular, replace_file};
pub use limits::{open_files_max, raise_open_files};
pub use process::{CpuTicks, CpuUsed, ProcessStat, children};
pub use stdout::say;
pub use worker::Worker;
