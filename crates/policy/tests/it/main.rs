//! Properties of whole policies.

mod bursts;
mod overload;
mod reconfigure_invariants;
