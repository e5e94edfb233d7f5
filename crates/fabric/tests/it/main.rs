//! Regions and links of every backend.

mod support;

mod conformance;
mod control;
mod scan;
mod shm;
mod sim;
mod tcp;
mod verbs;
