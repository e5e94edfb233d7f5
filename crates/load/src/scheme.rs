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
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The scheme.
    pub scheme: Scheme,
    /// For the log, after "because".
    pub reason: String,
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
    /// Its records are kept by the kernel, which here it does not do.
    #[error("{scheme} cannot be had: {reason}; use rdma-async, or {AUTO}")]
    NotKept {
        /// As asked for.
        scheme: Scheme,
        /// Why not.
        reason: String,
    },
}

impl Scheme {
    /// All of them, in the order of M.
    pub const ALL: [Scheme; 5] =
        [Scheme::SocketAsync, Scheme::SocketSync, Scheme::RdmaAsync, Scheme::RdmaSync, Scheme::ERdmaSync];

    /// The scheme that `name` asks for, which may be [`AUTO`]: the best that works here. Where that is one whose records
    /// the kernel keeps, `keep` has it keep one, and what it returns comes with the choice; it is not called for others.
    ///
    /// # Errors
    /// Where there is none of that name, or it was asked for by name and does not work here.
    pub fn resolve<T, E: fmt::Display>(
        name: &str,
        keep: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Choice, Option<T>), SchemeError> {
        if name == AUTO {
            return Ok(match keep() {
                Ok(kept) => {
                    let reason = "the kernel keeps the record, at its own events".to_owned();
                    (Choice { scheme: Scheme::RdmaSync, reason }, Some(kept))
                }
                Err(why) => {
                    let reason = format!("rdma-sync cannot be had: {why}");
                    (Choice { scheme: Scheme::RdmaAsync, reason }, None)
                }
            });
        }
        let scheme: Scheme = name.parse()?;
        let kept = match scheme.is_kept_by_kernel() {
            true => Some(keep().map_err(|why| SchemeError::NotKept { scheme, reason: why.to_string() })?),
            false => None,
        };
        Ok((Choice { scheme, reason: "it was asked for".to_owned() }, kept))
    }

    /// Whether the kernel of the node keeps the record.
    pub const fn is_kept_by_kernel(self) -> bool {
        matches!(self, Scheme::RdmaSync | Scheme::ERdmaSync)
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

    const REFUSED: fn() -> Result<u8, &'static str> = || Err("no kernel like that");

    #[test]
    fn auto_takes_the_best_and_says_why_in_one_line() {
        let (choice, kept) = Scheme::resolve(AUTO, || Ok::<_, &str>(7)).unwrap();
        assert_eq!((choice.scheme, kept), (Scheme::RdmaSync, Some(7)));
        let (choice, kept) = Scheme::resolve(AUTO, REFUSED).unwrap();
        assert_eq!((choice.scheme, kept), (Scheme::RdmaAsync, None));
        assert!(choice.reason.contains("no kernel like that") && !choice.reason.contains('\n'));
    }

    #[test]
    fn what_the_kernel_would_have_to_keep_is_refused_with_the_reason() {
        for scheme in Scheme::ALL {
            let resolved = Scheme::resolve(scheme.name(), REFUSED);
            if scheme.is_kept_by_kernel() {
                let error = resolved.unwrap_err();
                assert_eq!(error, SchemeError::NotKept { scheme, reason: "no kernel like that".to_owned() });
                assert!(error.to_string().starts_with(scheme.name()), "{error}");
                let kept = Scheme::resolve(scheme.name(), || Ok::<_, &str>(7)).unwrap().1;
                assert_eq!(kept, Some(7));
            } else {
                assert_eq!(resolved.unwrap().0.scheme, scheme);
            }
        }
    }
}
