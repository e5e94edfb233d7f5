//! Shared by the tests: the backends, the node that the properties are tested on, and what stands between two of them.

pub(crate) mod backends;
pub(crate) mod mapped;
pub(crate) mod messages;
pub(crate) mod node;
pub(crate) mod rdma;
pub(crate) mod relay;
