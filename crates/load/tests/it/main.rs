//! Load records, from those who keep them to those who read them.

mod support;

mod accuracy;
mod kernel;
mod one_sided;
mod soak;
mod sockets;
mod whole_clusters;
