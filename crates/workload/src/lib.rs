//! What experiments run on: origin servers of a known capacity, and a load generator.
//!
//! [`origin`] is the HTTP/1.1 server of one node. Its capacity is emulated by waiting, without using CPU time. So eight
//! nodes of 400 requests/s each fit on two cores, and throughput measures the decisions of the cluster, not the
//! machine. [`client`] is the load generator. It drives the edges in a closed loop (as in Balaji et al. 2004, section
//! 4, with sixteen threads on each load balancer) or in an open loop without coordinated omission, and reports each
//! site's share. [`walk`] sends people through an auction site, page by page. [`memcached`] is a client of caches.
//!
//! They know nothing of traces: requests of the client come from any [`client::Source`].
#![forbid(unsafe_code)]

pub mod client;
pub mod deadline;
pub mod memcached;
pub mod origin;
pub mod walk;
