//! `sidelong front config` and `check`: what a proxy needs to be led by a front, and whether it is.

mod connect;
pub(crate) mod envoy;
pub(crate) mod haproxy;
pub(crate) mod lines;
mod memory;

use sidelong_app::front::find;
use sidelong_config::Proxy;

use crate::cli::{FrontCommand, FrontNamed};
use crate::cluster::cluster;
use crate::failure::{Failure, say};

pub(crate) fn ask(command: &FrontCommand) -> Result<(), Failure> {
    match command {
        FrontCommand::Config(FrontNamed { config, name }) => {
            let cluster = cluster(config, None)?;
            let (_, entry) = find(&cluster, name)?;
            say(lines::lines(&cluster, entry))
        }
        FrontCommand::Check(FrontNamed { config, name }) => {
            let cluster = cluster(config, None)?;
            let (_, entry) = find(&cluster, name)?;
            match entry.proxy {
                Proxy::Haproxy => haproxy::check(&cluster, entry),
                Proxy::Connect => connect::check(&cluster, entry),
                Proxy::Nginx | Proxy::Httpd | Proxy::Envoy | Proxy::Library => memory::check(&cluster, entry),
            }
        }
    }
}
