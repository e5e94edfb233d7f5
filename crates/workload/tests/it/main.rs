//! The origin server, the load generator and the persons who walk a site.

mod support;

mod client;
mod origin;
mod secure;
mod walk;
