//! The machine on which the figures were measured.

use serde::{Deserialize, Serialize};

/// This machine, as far as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The model of its first CPU.
    pub(crate) cpu: String,
    /// CPUs that this process may use.
    pub(crate) cores: usize,
    /// Memory in MiB.
    pub(crate) memory_mib: u64,
    /// Name, release and architecture of the kernel.
    pub(crate) kernel: String,
}

impl Machine {
    pub(crate) fn here() -> Machine {
        let proc = |name: &str| std::fs::read_to_string(format!("/proc/{name}")).unwrap_or_default();
        let uname = rustix::system::uname();
        let kernel = [uname.sysname(), uname.release(), uname.machine()].map(|part| part.to_string_lossy());
        let memory_kib = field(&proc("meminfo"), "MemTotal").and_then(|value| number(&value));
        Machine {
            cpu: field(&proc("cpuinfo"), "model name").unwrap_or_else(|| "unknown".into()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory_kib.unwrap_or(0) / 1024,
            kernel: kernel.join(" "),
        }
    }

    /// Describes it in a sentence.
    pub(crate) fn describe(&self) -> String {
        let Machine { cpu, cores, memory_mib, kernel } = self;
        format!("one machine with {cores} cores of {cpu}, {memory_mib} MiB of memory, {kernel}")
    }
}

/// The value of the first `key : value` line.
fn field(text: &str, key: &str) -> Option<String> {
    let (_, value) =
        text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.trim() == key)?;
    Some(value.trim().to_owned())
}

fn number(text: &str) -> Option<u64> {
    text.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_kernel_and_cores() {
        let machine = Machine::here();
        assert!(machine.cores >= 1 && machine.kernel.starts_with("Linux "), "{machine:?}");
    }

    #[test]
    fn fields_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: Fast 9000: deluxe\n";
        assert_eq!(field(text, "model name").unwrap(), "Fast 9000: deluxe");
        assert_eq!(number("16384 kB"), Some(16384));
        assert_eq!(field(text, "none"), None);
    }
}
