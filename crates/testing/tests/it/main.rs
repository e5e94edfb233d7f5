//! Clusters whose parts run in this process. One module for each subject.

mod admission;
mod auction;
mod by_hand;
mod cache;
mod cache_simulated;
mod caches;
mod cluster;
mod configurations;
mod conformance;
mod documents;
mod edge;
mod http2_servers;
mod lasting;
mod metrics;
mod parts;
mod peers;
mod prometheus;
mod proxy_protocol;
mod refused;
mod retries;
mod servers;
mod serves;
mod tls;
mod unix_servers;
mod words;
