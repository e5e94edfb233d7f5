//! Choice of the scheme that works on this machine (Vaidyanathan et al. 2006, 3.1, 3.2, 5.2).

use std::fmt;

use sidelong_state::Scheme;

/// A scheme that works here, and why it was chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The scheme, never [`Scheme::Auto`].
    pub scheme: Scheme,
    /// The reason.
    pub reason: Reason,
}

/// Why a scheme was chosen, in words that follow "because" in the log.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Reason {
    /// The cluster file names it.
    #[error("the cluster file names it")]
    Configured,
    /// The kernel keeps the record.
    #[error("the kernel keeps the record, at its own events")]
    KernelRecord,
    /// The kernel does not keep the record.
    #[error("rdma-sync is not available: {0}")]
    NoKernelRecord(String),
    /// Each node chooses for itself.
    #[error("each node has its kernel keep the record if it can, and uses rdma-async if not")]
    ChosenByNode,
}

impl Reason {
    /// The reason as a metric's label: one of a closed, stable set.
    pub const fn code(&self) -> &'static str {
        match self {
            Reason::Configured => "configured",
            Reason::KernelRecord => "kernel-record",
            Reason::NoKernelRecord(_) => "no-kernel-record",
            Reason::ChosenByNode => "chosen-by-node",
        }
    }
}

/// A kernel-kept scheme was requested, but the kernel keeps no record.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{scheme} is not available: {reason}; use rdma-async, or auto")]
pub struct NotKept {
    /// The scheme requested.
    pub scheme: Scheme,
    /// The reason.
    pub reason: String,
}

impl Choice {
    /// Resolves `asked`: the scheme itself, or for [`Scheme::Auto`] the best that works. For a kernel-kept scheme,
    /// `keep` starts the kernel's record, and its result comes with the choice. It is not called for other schemes.
    ///
    /// # Errors
    /// If the scheme was named and does not work here.
    pub fn new<T, E: fmt::Display>(
        asked: Scheme,
        keep: impl FnOnce() -> Result<T, E>,
    ) -> Result<(Choice, Option<T>), NotKept> {
        if asked == Scheme::Auto {
            return Ok(match keep() {
                Ok(kept) => (Choice { scheme: Scheme::RdmaSync, reason: Reason::KernelRecord }, Some(kept)),
                Err(why) => {
                    let reason = Reason::NoKernelRecord(why.to_string());
                    (Choice { scheme: Scheme::RdmaAsync, reason }, None)
                }
            });
        }
        let kept = match asked.is_kept_by_kernel() {
            true => Some(keep().map_err(|why| NotKept { scheme: asked, reason: why.to_string() })?),
            false => None,
        };
        Ok((Choice { scheme: asked, reason: Reason::Configured }, kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: fn() -> Result<u8, &'static str> = || Err("no kernel like that");

    #[test]
    fn auto_takes_the_best_and_says_why_in_one_line() {
        let (choice, kept) = Choice::new(Scheme::Auto, || Ok::<_, &str>(7)).unwrap();
        assert_eq!((choice.scheme, kept), (Scheme::RdmaSync, Some(7)));
        let (choice, kept) = Choice::new(Scheme::Auto, REFUSED).unwrap();
        assert_eq!((choice.scheme, kept), (Scheme::RdmaAsync, None));
        let reason = choice.reason.to_string();
        assert!(reason.contains("no kernel like that") && !reason.contains('\n'));
    }

    #[test]
    fn what_the_kernel_would_have_to_keep_is_refused_with_the_reason() {
        for scheme in Scheme::ALL.iter().copied().filter(|scheme| *scheme != Scheme::Auto) {
            let chosen = Choice::new(scheme, REFUSED);
            if scheme.is_kept_by_kernel() {
                let error = chosen.unwrap_err();
                assert_eq!(error, NotKept { scheme, reason: "no kernel like that".to_owned() });
                assert!(error.to_string().starts_with(scheme.as_str()), "{error}");
                let kept = Choice::new(scheme, || Ok::<_, &str>(7)).unwrap().1;
                assert_eq!(kept, Some(7));
            } else {
                assert_eq!(chosen.unwrap().0.scheme, scheme);
            }
        }
    }
}
