//! How a change of sites ended, by the node that runs the commands for it.
//!
//! A node whose ownership is [`NodeState::Changing`](crate::NodeState::Changing) leaves one site, enters another, and makes sure
//! that its server is ready. It then stores how that ended where its acknowledgements stand.

use std::fmt;

use crate::word::{ACK, kind};

/// How a change ended: `code:8 cause:4 step:4 generation:36 kind:4`, in place of an [`Ack`](crate::Ack). Stored by the node's CPU
/// only.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Change {
    /// The generation of the ownership word under which the node changed.
    pub generation: u64,
    /// What became of it.
    pub result: ChangeResult,
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ChangeResult {
    /// The new site runs on the node.
    Changed,
    /// A step failed, and the old site runs again.
    Undone(Fault),
    /// A step failed, and so did the way back.
    Failed(Fault),
}

/// The step of a change that failed first, and how.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fault {
    /// The step.
    pub step: ChangeStep,
    /// How it failed.
    pub cause: FaultCause,
}

/// A step of a change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ChangeStep {
    /// `on_leave` of the old site.
    Leave = 1,
    /// `on_enter` of the new one.
    Enter = 2,
    /// The node's `ready`.
    Ready = 3,
}

/// How a step failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultCause {
    /// The command ended with this status, which is not 0.
    Status(u8),
    /// The command was ended by this signal.
    Signal(u8),
    /// It took longer than it may, or the server was not ready in time.
    TimedOut,
    /// The command could not be started.
    NotStarted,
}

impl Change {
    /// The word's value.
    pub const fn encode(self) -> u64 {
        let (of, [code, cause, step]) = match self.result {
            ChangeResult::Changed => (kind::CHANGED, [0; 3]),
            ChangeResult::Undone(fault) => (kind::UNDONE, fault.encode()),
            ChangeResult::Failed(fault) => (kind::FAILED, fault.encode()),
        };
        ACK.pack([code, cause, step, self.generation, of])
    }

    /// From the word's value; `None` for what is no end of a change.
    pub const fn decode(word: u64) -> Option<Self> {
        let [code, cause, step, generation, of] = ACK.unpack(word);
        let result = match (of, Fault::decode([code, cause, step])) {
            (kind::CHANGED, _) => ChangeResult::Changed,
            (kind::UNDONE, Some(fault)) => ChangeResult::Undone(fault),
            (kind::FAILED, Some(fault)) => ChangeResult::Failed(fault),
            _ => return None,
        };
        Some(Change { generation, result })
    }
}

impl Fault {
    const fn encode(self) -> [u64; 3] {
        let (cause, code) = match self.cause {
            FaultCause::Status(code) => (1, code),
            FaultCause::Signal(code) => (2, code),
            FaultCause::TimedOut => (3, 0),
            FaultCause::NotStarted => (4, 0),
        };
        [code as u64, cause, self.step as u64]
    }

    const fn decode([code, cause, step]: [u64; 3]) -> Option<Self> {
        let step = match step {
            1 => ChangeStep::Leave,
            2 => ChangeStep::Enter,
            3 => ChangeStep::Ready,
            _ => return None,
        };
        let code = code as u8;
        let cause = match cause {
            1 => FaultCause::Status(code),
            2 => FaultCause::Signal(code),
            3 => FaultCause::TimedOut,
            4 => FaultCause::NotStarted,
            _ => return None,
        };
        Some(Fault { step, cause })
    }
}

/// The key of the cluster file that has the step.
impl fmt::Display for ChangeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ChangeStep::Leave => "on_leave",
            ChangeStep::Enter => "on_enter",
            ChangeStep::Ready => "ready",
        })
    }
}

/// What failed and how, for people: "on_enter ended with status 1".
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.step, self.cause) {
            (ChangeStep::Ready, FaultCause::TimedOut) => f.write_str("the server was not ready in time"),
            (step, FaultCause::TimedOut) => write!(f, "{step} took too long"),
            (step, FaultCause::Status(status)) => write!(f, "{step} ended with status {status}"),
            (step, FaultCause::Signal(signal)) => write!(f, "{step} was ended by signal {signal}"),
            (step, FaultCause::NotStarted) => write!(f, "{step} could not be started"),
        }
    }
}
