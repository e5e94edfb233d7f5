//! What a cache of a cluster keeps in memory, and which cache is the home of an object.
//!
//! | module | what it is |
//! |---|---|
//! | [`store`] | objects up to a number of bytes, and their eviction: LRU, SIEVE, S3-FIFO |
//! | [`homes`] | which cache or node holds an object, while caches come and go, too |

pub mod homes;
pub mod store;
