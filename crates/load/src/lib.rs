//! Where load records come from, and the schemes that read them.
//!
//! ```text
//!  /proc, control groups ─┐                                   ┌─ OneSided: reads the region ──┐
//!                         ├─ Recorder ─ Keeper ─▶ load region ┤                               ├─▶ Reading
//!  the server's gauges ───┘       └───── Responder ◀──────────┴─ Sockets: asks over TCP ──────┘
//! ```
//!
//! On the node a [`Recorder`] merges what the kernel says ([`Sampler`], [`proc`]) with what the server knows of itself
//! ([`OriginLoad`]). A [`Keeper`] publishes the record into the node's load region, where [`OneSided`] reads it without
//! the node's doing; a [`Responder`] gives it to [`Sockets`] when asked. Both are a [`Source`] of [`Reading`]s, which
//! say how old a record is and whether it may be used.
//!
//! | scheme | on the node | at the front end |
//! |---|---|---|
//! | socket-async | [`Keeper`], [`Responder`] with [`ResponderKind::Async`] | [`Sockets`] |
//! | socket-sync | [`Keeper`] without recorder, [`Responder`] with [`ResponderKind::Sync`] | [`Sockets`] |
//! | rdma-async | [`Keeper`] | [`OneSided`] |
//! | rdma-sync, e-rdma-sync | the kernel ([`KernelRecord`]), and the server at its own events ([`ServerLine`]) | [`OneSided`] |
//!
//! What never happens here: a decision (that is `policy`'s), a change to a word that others change, a wait without an end.
#![forbid(unsafe_code)]

mod clock;
mod error;
mod keeper;
mod kept;
mod kernel;
mod one_sided;
mod origin;
mod own;
pub mod proc;
mod reading;
mod recorder;
mod retry;
mod sampler;
mod scheme;
mod server_line;
mod snapshot;
mod socket;
mod sweep;

pub use clock::monotonic_ns;
pub use error::Error;
pub use keeper::{Keeper, KeeperSpec};
pub use kept::CpuLoad;
pub use kernel::{KernelError, KernelRecord, KernelSpec, drop_privileges};
pub use one_sided::OneSided;
pub use origin::{OriginGauge, OriginLoad};
pub use own::{OwnReader, OwnRecord};
pub use reading::{Limits, Reading, Source, Status};
pub use recorder::Recorder;
pub use sampler::{RATE_WINDOW_NS, Sample, Sampler, Scope};
pub use scheme::{AUTO, Choice, Scheme, SchemeError};
pub use server_line::ServerLine;
pub use socket::{Finder, Responder, ResponderKind, Sockets, find_address, publish_address};
pub use sweep::{Pace, Swept};
