//! TLS towards clients: rustls, TLS 1.2 and 1.3 with its modern defaults, HTTP/2 by ALPN, session resumption by tickets. A
//! certificate that was replaced on disk is taken over without a restart.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds something else than PEM.
    #[error("{file}: {source}")]
    File {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: rustls_pki_types::pem::Error,
    },
    /// The certificate file has no certificate.
    #[error("{file} has no certificate")]
    Empty {
        /// The file.
        file: String,
    },
    /// Certificate and key do not belong together, or are of a kind that is not known.
    #[error("{0}")]
    Unfit(#[from] rustls::Error),
}

/// A certificate that clients are shown.
#[derive(Clone, Debug)]
pub struct Certificate(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    chain: PathBuf,
    key: PathBuf,
    /// Both files as they were last read.
    version: Mutex<Version>,
    shown: Arc<Shown>,
    config: Arc<ServerConfig>,
}

/// What tells two versions of the files apart: device, inode, length and time of change of each.
type Version = [Option<[i64; 5]>; 2];

/// The certificate that new connections get.
#[derive(Debug)]
struct Shown(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Certificate {
    /// Reads a chain, leaf first, and its key, both PEM.
    ///
    /// # Errors
    /// If one of them cannot be read, or they do not belong together.
    pub fn read(chain: &Path, key: &Path) -> Result<Self, TlsError> {
        let version = version(chain, key);
        let shown = Arc::new(Shown(RwLock::new(Arc::new(certified(chain, key)?))));
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.ticketer = ring::Ticketer::new()?;
        config.send_tls13_tickets = 1;
        Ok(Certificate(Arc::new(Shared {
            chain: chain.to_owned(),
            key: key.to_owned(),
            version: Mutex::new(version),
            shown,
            config: Arc::new(config),
        })))
    }

    /// Takes over files that have changed since they were last read; returns whether they had. New connections get the new
    /// certificate.
    ///
    /// # Errors
    /// If the new ones cannot be used. The old ones stay, and are not read again until they change once more.
    pub fn renew(&self) -> Result<bool, TlsError> {
        let Shared { chain, key, version: read, shown, .. } = &*self.0;
        let version = version(chain, key);
        let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
        if *read == version {
            return Ok(false);
        }
        *read = version;
        let certified = Arc::new(certified(chain, key)?);
        *shown.0.write().unwrap_or_else(PoisonError::into_inner) = certified;
        Ok(true)
    }

    /// The file with the chain.
    pub fn chain(&self) -> &Path {
        &self.0.chain
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0.config))
    }
}

fn version(chain: &Path, key: &Path) -> Version {
    [chain, key].map(|file| {
        let file = fs::metadata(file).ok()?;
        Some([file.dev() as i64, file.ino() as i64, file.size() as i64, file.mtime(), file.mtime_nsec()])
    })
}

fn certified(chain: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let in_file = |file: &Path| {
        let file = file.display().to_string();
        move |source| TlsError::File { file, source }
    };
    let certificates = CertificateDer::pem_file_iter(chain).map_err(in_file(chain))?;
    let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(in_file(chain))?;
    if certificates.is_empty() {
        return Err(TlsError::Empty { file: chain.display().to_string() });
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(in_file(key))?;
    Ok(CertifiedKey::from_der(certificates, private, &ring::default_provider())?)
}
