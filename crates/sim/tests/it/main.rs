//! The simulator against theory, other programs, and itself.

mod dispatch;
mod docs;
mod libcachesim;
mod live;
mod memory;
mod sweep;
mod theory;
mod traces;
