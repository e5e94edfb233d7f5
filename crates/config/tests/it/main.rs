//! The cluster file: what its fields mean, and what is refused.

mod support;

mod caches;
mod fronts;
mod meaning;
mod refused;
