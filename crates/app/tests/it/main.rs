//! Parts of a cluster in one process.

mod cluster;
