//! Load records: how nodes make them, and the schemes by which front ends read them.
//!
//! ```text
//!  /proc, control groups ─┐                                   ┌─ OneSided: reads the region ──┐
//!                         ├─ Recorder ─ Keeper ─▶ load region ┤                               ├─▶ Reading
//!  the server's gauges ───┘       └───── Responder ◀──────────┴─ Sockets: asks over TCP ──────┘
//! ```
//!
//! On the node, a [`Recorder`] merges the kernel's figures ([`Sampler`], [`proc`]) with the server's own ([`OriginLoad`]), or with
//! what the kernel tells of a [`Foreign`] server's sockets.
//! A [`Keeper`] publishes the record in the node's load region, where [`OneSided`] reads it without the node's help; a
//! [`Responder`] sends it to [`Sockets`] on request. Both are a [`Source`] of [`Reading`]s, which give a record's age and
//! whether it may be used.
//!
//! | scheme | on the node | at the front end |
//! |---|---|---|
//! | socket-async | [`Keeper`], [`Responder`] with [`ResponderKind::Async`] | [`Sockets`] |
//! | socket-sync | [`Keeper`] without recorder, [`Responder`] with [`ResponderKind::Sync`] | [`Sockets`] |
//! | rdma-async | [`Keeper`] | [`OneSided`] |
//! | rdma-sync, e-rdma-sync | the kernel ([`KernelRecord`]), and the server at its own events ([`ServerLine`]) | [`OneSided`] |
//!
//! This crate never decides (that is `policy`'s task), never changes a word that others change, and never waits without a
//! bound.
#![forbid(unsafe_code)]

mod connect;
mod error;
#[cfg(fuzzing)]
pub mod fuzz;
mod keeper;
mod kept;
mod kernel;
mod listener;
mod one_sided;
mod origin;
mod own;
pub mod proc;
mod reading;
mod recorder;
mod sampler;
mod scheme;
mod server_line;
mod snapshot;
mod socket;

pub use connect::{ConnectError, ConnectSpec, Connections, Directed};
pub use error::Error;
pub use keeper::{Keeper, KeeperSpec};
pub use kept::CpuLoad;
pub use kernel::{KernelError, KernelRecord, KernelSpec, drop_privileges, keep_privileges_to_detach};
pub use listener::{Foreign, Listener, Listening, Origins};
pub use one_sided::{OneSided, RecordOf, Records};
pub use origin::{OriginGauge, OriginLoad};
pub use own::{OwnReader, OwnRecord};
pub use reading::{Limits, Reading, Source, Status};
pub use recorder::Recorder;
pub use sampler::{RATE_WINDOW_NS, Sample, Sampler, Scope};
pub use scheme::{Choice, NotKept, Reason};
pub use server_line::ServerLine;
pub use sidelong_os::monotonic_ns;
pub use sidelong_state::Scheme;
pub use socket::{Finder, Responder, ResponderKind, Sockets, find_address, publish_address};
