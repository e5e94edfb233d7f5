//! The cluster file: what its fields mean, what is refused, and how two files differ.

mod support;

mod caches;
mod diff;
mod fronts;
mod meaning;
mod refused;
