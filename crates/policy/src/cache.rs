//! The cooperative cache: what a node keeps in memory for its cluster, and what it knows of the others' memory.
//!
//! | module | what it is |
//! |---|---|
//! | [`store`] | objects up to a number of bytes, and their eviction: LRU, SIEVE, S3-FIFO |
//! | [`protocol`] | how nodes keep each other's references up to date, and the messages |
//! | [`homes`] | which node holds an object |
//! | [`peer`] | one node of the cooperative cache: the RAMS of Gu and Wang 2004, and our protocol |

pub mod homes;
mod lists;
pub mod peer;
pub mod protocol;
pub mod store;
