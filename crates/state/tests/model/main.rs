//! The protocols under every fault, in two ways over one [`world::World`]: `check` goes through all histories of small
//! worlds (stateright), `walk` through single ones of a larger world, from seeds.
//!
//! `cargo test -p sidelong-state --test model -- --nocapture` prints the number of states of each check. `large` is
//! for CI, in release: `cargo test --release -p sidelong-state --test model -- --ignored --nocapture`.

mod check;
mod edge;
mod memory;
mod walk;
mod world;
