//! What experiments run with: servers of a known capacity, and the load that is put on them.
//!
//! [`origin`] is the HTTP/1.1 server of one node. Its capacity is emulated: it waits and does not burn, so that eight
//! nodes of 400 requests/s each fit on two cores and throughput measures the decisions of the cluster, not the machine.
//! [`client`] is the load generator. It drives the edges in a closed loop (as R 4 does, with sixteen threads on each
//! load balancer) or in an open loop without coordinated omission, and tells each site's share.
//!
//! Neither knows of the other, nor of traces: requests come from any [`client::Source`].
#![forbid(unsafe_code)]

pub mod client;
pub mod origin;
