//! A bare Pingora proxy to one server: the baseline of measurements of the edge.

use std::net::SocketAddr;

use async_trait::async_trait;
use pingora_core::Result;
use pingora_core::server::{RunArgs, Server};
use pingora_core::upstreams::peer::HttpPeer;
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};

use crate::server::server_conf;

struct Bare {
    to: SocketAddr,
}

#[async_trait]
impl ProxyHttp for Bare {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _session: &mut Session, _ctx: &mut ()) -> Result<Box<HttpPeer>> {
        Ok(Box::new(HttpPeer::new(self.to, false, String::new())))
    }
}

/// Forwards everything from `listen` to `to` until SIGTERM. It uses the Pingora configuration of an
/// [`Edge`](crate::Edge) with that number of threads, and no other code of Sidelong.
pub fn run_bare_proxy(listen: SocketAddr, to: SocketAddr, threads: usize) {
    let mut server = Server::new_with_opt_and_conf(None, server_conf(threads, 0));
    server.bootstrap();
    let mut service = http_proxy_service(&server.configuration, Bare { to });
    service.add_tcp(&listen.to_string());
    server.add_service(service);
    server.run(RunArgs::default());
}
