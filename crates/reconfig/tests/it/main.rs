//! Moves over real and simulated memory.

mod support;

mod counters;
mod fronts;
mod in_vain;
mod kernel;
mod kill;
mod looking;
mod repairs;
mod several;
mod simulated;
