//! The schemes by which load is had (M 3.1, 3.2, 5.2), and which of them this build can do.

use std::fmt;
use std::str::FromStr;

/// Who keeps the record, and how it is read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// A thread on the node keeps it; a TCP request to a second thread reads it (M 3.1.1).
    SocketAsync,
    /// A thread on the node makes it at each TCP request (M 3.1.2).
    SocketSync,
    /// A thread on the node keeps it; a one-sided read reads it (M 3.2.1).
    RdmaAsync,
    /// The kernel keeps it, at each event; a one-sided read reads it (M 3.2.2).
    RdmaSync,
    /// As rdma-sync, with pending interrupts and run queues by CPU in the weights (M 5.2.1).
    ERdmaSync,
}

/// What one may ask for in place of a name: the best that works here.
pub const AUTO: &str = "auto";

/// A scheme that works here, and why this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The scheme.
    pub scheme: Scheme,
    /// For the log, after "because".
    pub reason: &'static str,
}

/// Why a scheme cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SchemeError {
    /// There is none of that name.
    #[error(
        "unknown scheme {name:?}: one of {AUTO}, socket-async, socket-sync, rdma-async, rdma-sync, e-rdma-sync"
    )]
    Unknown {
        /// As given.
        name: String,
    },
    /// Its records are kept by the kernel.
    #[error("{scheme} cannot be had: {NO_KERNEL_RECORDS}; use rdma-async, or {AUTO}")]
    NoKernelRecords {
        /// As asked for.
        scheme: Scheme,
    },
}

const NO_KERNEL_RECORDS: &str =
    "its records are kept by the kernel at each event (eBPF), which this build does not bring";

impl Scheme {
    /// All of them, in the order of M.
    pub const ALL: [Scheme; 5] =
        [Scheme::SocketAsync, Scheme::SocketSync, Scheme::RdmaAsync, Scheme::RdmaSync, Scheme::ERdmaSync];

    /// The scheme that `name` asks for, which may be [`AUTO`].
    ///
    /// # Errors
    /// Where there is none of that name, or it does not work here.
    pub fn resolve(name: &str) -> Result<Choice, SchemeError> {
        if name == AUTO {
            let reason =
                "rdma-sync needs records that the kernel keeps (eBPF), which this build does not bring";
            return Ok(Choice { scheme: Scheme::RdmaAsync, reason });
        }
        let scheme: Scheme = name.parse()?;
        scheme.available()?;
        Ok(Choice { scheme, reason: "it was asked for" })
    }

    /// Whether it works here.
    ///
    /// # Errors
    /// Why not.
    pub fn available(self) -> Result<(), SchemeError> {
        match self {
            Scheme::SocketAsync | Scheme::SocketSync | Scheme::RdmaAsync => Ok(()),
            Scheme::RdmaSync | Scheme::ERdmaSync => Err(SchemeError::NoKernelRecords { scheme: self }),
        }
    }

    /// Whether a node's record is read out of its memory, and not asked for.
    pub const fn is_one_sided(self) -> bool {
        matches!(self, Scheme::RdmaAsync | Scheme::RdmaSync | Scheme::ERdmaSync)
    }

    /// Whether a thread on the node keeps the record.
    pub const fn is_kept_by_thread(self) -> bool {
        matches!(self, Scheme::SocketAsync | Scheme::RdmaAsync)
    }

    const fn name(self) -> &'static str {
        match self {
            Scheme::SocketAsync => "socket-async",
            Scheme::SocketSync => "socket-sync",
            Scheme::RdmaAsync => "rdma-async",
            Scheme::RdmaSync => "rdma-sync",
            Scheme::ERdmaSync => "e-rdma-sync",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(name: &str) -> Result<Self, SchemeError> {
        let found = Scheme::ALL.into_iter().find(|scheme| scheme.name() == name);
        found.ok_or_else(|| SchemeError::Unknown { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for scheme in Scheme::ALL {
            assert_eq!(scheme.to_string().parse(), Ok(scheme));
        }
        let error = "rdma".parse::<Scheme>().unwrap_err().to_string();
        assert!(
            error.contains("\"rdma\"") && Scheme::ALL.iter().all(|s| error.contains(s.name())),
            "{error}"
        );
    }

    #[test]
    fn auto_says_what_it_takes_and_why() {
        let choice = Scheme::resolve(AUTO).unwrap();
        assert_eq!(choice.scheme, Scheme::RdmaAsync);
        assert!(choice.reason.contains("kernel"));
    }

    #[test]
    fn what_the_kernel_would_have_to_keep_is_refused_with_the_reason() {
        for scheme in Scheme::ALL {
            let resolved = Scheme::resolve(scheme.name());
            if scheme.is_one_sided() && !scheme.is_kept_by_thread() {
                let error = resolved.unwrap_err();
                assert_eq!(error, SchemeError::NoKernelRecords { scheme });
                assert!(error.to_string().contains("eBPF"), "{error}");
            } else {
                assert_eq!(resolved.unwrap().scheme, scheme);
            }
        }
    }
}
