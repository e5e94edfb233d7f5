//! Clusters whose parts run in this process. One module for each subject.

mod cluster;
mod conformance;
mod edge;
mod http2_servers;
mod proxy_protocol;
mod retries;
mod tls;
mod websocket;
