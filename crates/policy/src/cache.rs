//! What a node keeps in memory for its cluster, and what it knows of the others' memory.
//!
//! | module | what it is |
//! |---|---|
//! | [`store`] | objects up to some bytes, and which of them go: LRU, SIEVE, S3-FIFO |
//! | [`protocol`] | how nodes keep each other's references up to date, and the messages |
//! | [`peer`] | one node of the cooperative cache: C's RAMS, and ours |

mod lists;
pub mod peer;
pub mod protocol;
pub mod store;
