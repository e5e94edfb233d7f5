//! The protocols under every fault, in three ways over one [`world::World`]: `check` explores all histories of small
//! worlds (stateright), `stabilise` those that begin with words that no mover wrote or in which a word is corrupted, `walk`
//! single ones of a larger world, from seeds.
//!
//! `cargo test -p sidelong-state --test it model -- --nocapture` prints the number of states of each check. What is ignored
//! is for CI, in release: `cargo test --release -p sidelong-state --test it model -- --ignored --nocapture`.

mod check;
mod edge;
mod front;
mod memory;
mod roster;
mod stabilise;
mod walk;
mod world;
