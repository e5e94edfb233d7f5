//! Clusters whose parts run in this process. One module for each subject.

mod admission;
mod cluster;
mod conformance;
mod documents;
mod edge;
mod http2_servers;
mod metrics;
mod proxy_protocol;
mod retries;
mod tls;
mod websocket;
