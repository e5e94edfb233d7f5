//! How etcd is reached: endpoints, certificates, a user.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::ClientConfig;
use sidelong_rest::Endpoint;

use crate::error::Result;

/// How etcd is reached.
#[derive(Clone)]
pub struct Access {
    endpoints: Vec<Endpoint>,
    pub(crate) tls: Arc<ClientConfig>,
    /// Name and password.
    user: Option<(String, String)>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|(name, _)| name);
        f.debug_struct("Access")
            .field("endpoints", &self.endpoints)
            .field("user", &user)
            .finish_non_exhaustive()
    }
}

impl Access {
    /// These endpoints, of one etcd cluster.
    ///
    /// # Panics
    /// If there is none.
    ///
    /// # Errors
    /// If a certificate cannot be read.
    pub fn new(
        endpoints: Vec<Endpoint>,
        authority: Option<&Path>,
        identity: Option<(&Path, &Path)>,
        user: Option<(String, String)>,
    ) -> Result<Self> {
        assert!(!endpoints.is_empty(), "an endpoint");
        Ok(Access { endpoints, tls: sidelong_tls::client(authority, identity)?, user })
    }

    /// The endpoints.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    pub(crate) fn user(&self) -> Option<&(String, String)> {
        self.user.as_ref()
    }
}
