//! What a node keeps in memory for its cluster, and what it knows of the others' memory.
//!
//! | module | what it is |
//! |---|---|
//! | [`store`] | objects up to some bytes, and which of them go: LRU, SIEVE, S3-FIFO |

pub mod store;
