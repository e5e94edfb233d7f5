//! TLS towards clients: rustls, TLS 1.2 and 1.3 with its modern defaults, session resumption by tickets, several certificates by
//! the name that a client asks for, and certificates of clients. Files that are replaced on disk are taken over without a
//! restart. And towards a server ([`client`]). The driver of the connections is the caller's.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, InconsistentKeys, RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use sidelong_os::open_regular;
use webpki::EndEntityCert;
use x509_cert::der::Decode as _;

/// Time between two checks whether a file was replaced ([`Tls::renew`]).
pub const RENEW_EVERY: Duration = Duration::from_secs(5);

/// When the first certificate of a PEM file ends.
///
/// # Errors
/// If the file cannot be read, or has no certificate that can be.
pub fn ends(path: &Path) -> Result<SystemTime, TlsError> {
    let file = || path.display().to_string();
    let found = CertificateDer::from_pem_file(path);
    let certificate = found.map_err(|source| TlsError::File { file: file(), source })?;
    let certificate = x509_cert::Certificate::from_der(&certificate);
    let certificate = certificate.map_err(|_| TlsError::Empty { file: file() })?;
    let end = certificate.tbs_certificate().validity().not_after.to_unix_duration();
    Ok(SystemTime::UNIX_EPOCH + end)
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or holds something else than PEM.
    #[error("{file}: {source}")]
    File {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: pem::Error,
    },
    /// The certificate file has no certificate.
    #[error("{file} has no certificate")]
    Empty {
        /// The file.
        file: String,
    },
    /// The key is not that of the certificate.
    #[error(
        "the key belongs to another certificate: give the one that the file's first certificate was made for"
    )]
    OtherKey,
    /// Certificate or key are of a kind that is not known.
    #[error("{0}")]
    Unfit(#[from] rustls::Error),
    /// A revocation list cannot be used.
    #[error("{file}: {source}")]
    Authority {
        /// The file.
        file: String,
        /// What is wrong with it.
        source: VerifierBuilderError,
    },
}

/// A certificate that clients are shown.
#[derive(Debug)]
pub struct Certificate(ReloadedFiles<Arc<Named>, 2>);

impl Certificate {
    /// Reads a chain, leaf first, and its key, both PEM.
    ///
    /// # Errors
    /// If one of them cannot be read, or they do not belong together.
    pub fn read(chain: &Path, key: &Path) -> Result<Self, TlsError> {
        ReloadedFiles::new([chain.to_owned(), key.to_owned()], named).map(Certificate)
    }
}

/// The authorities whose certificates clients must show, and what they have revoked.
#[derive(Debug)]
pub struct ClientCa(ReloadedFiles<Arc<dyn ClientCertVerifier>, 1>);

impl ClientCa {
    /// Reads their certificates and revocation lists, PEM.
    ///
    /// # Errors
    /// If the file cannot be read, or holds a certificate or list that cannot be used.
    pub fn read(file: &Path) -> Result<Self, TlsError> {
        ReloadedFiles::new([file.to_owned()], verifier).map(ClientCa)
    }
}

/// Protocols that a client may choose from (ALPN), the best first. None: it is not asked.
pub type Protocols = &'static [&'static str];

/// What clients are shown, and what they must show.
#[derive(Clone, Debug)]
pub struct Tls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    files: Mutex<(Vec<Certificate>, Option<ClientCa>)>,
    protocols: Protocols,
    /// For new connections.
    config: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// A client is shown the first certificate for the name that it asks for (SNI) whose key it can verify; if there is none, the
    /// first that it can verify. With `client_ca` it must show one of its own.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn new(
        certificates: Vec<Certificate>,
        client_ca: Option<ClientCa>,
        protocols: Protocols,
    ) -> Result<Self, TlsError> {
        let config = RwLock::new(Arc::new(config(&certificates, client_ca.as_ref(), protocols)?));
        Ok(Tls(Arc::new(Shared { files: Mutex::new((certificates, client_ca)), protocols, config })))
    }

    /// Takes over files that have changed since they were last read, for new connections. What cannot be used is logged, and what
    /// was there before stays; it is not read again until it changes once more. It reads files, and may wait for them.
    pub fn renew(&self) {
        let mut files = self.0.files.lock().unwrap_or_else(PoisonError::into_inner);
        let (certificates, client_ca) = &mut *files;
        let mut is_new = false;
        for Certificate(kept) in &mut *certificates {
            is_new |= kept.renew();
        }
        if let Some(ClientCa(kept)) = client_ca {
            is_new |= kept.renew();
        }
        if !is_new {
            return;
        }
        match config(certificates, client_ca.as_ref(), self.0.protocols) {
            Ok(config) => *self.0.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config),
            Err(error) => tracing::warn!(%error, "new certificates cannot be used"),
        }
    }

    /// Has new connections go by other files. Those that are open stay.
    ///
    /// # Errors
    /// If the system has no random numbers; then all stays as it is.
    pub fn replace(
        &self,
        certificates: Vec<Certificate>,
        client_ca: Option<ClientCa>,
    ) -> Result<(), TlsError> {
        let mut files = self.0.files.lock().unwrap_or_else(PoisonError::into_inner);
        let config = config(&certificates, client_ca.as_ref(), self.0.protocols)?;
        *files = (certificates, client_ca);
        *self.0.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        Ok(())
    }

    /// What a new connection goes by.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn config(
    certificates: &[Certificate],
    client_ca: Option<&ClientCa>,
    protocols: Protocols,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        Some(ClientCa(kept)) => builder.with_client_cert_verifier(Arc::clone(&kept.value)),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(Shown::new(certificates)));
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    if client_ca.is_some() {
        // A session that is resumed shows no certificate: one that has expired meanwhile, or whose authority is no longer
        // in the file, would be taken for good.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    } else {
        config.ticketer = ring::Ticketer::new()?;
        config.send_tls13_tickets = 1;
    }
    Ok(config)
}

/// TLS towards servers whose certificates are from the authorities in a file, or without it from those that the machine trusts; with a certificate
/// and its key, if they ask for one.
///
/// # Errors
/// If a file cannot be read or used.
pub fn client(
    authority: Option<&Path>,
    identity: Option<(&Path, &Path)>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = match authority {
        Some(file) => {
            let mut roots = RootCertStore::empty();
            certificates(file)?.into_iter().try_for_each(|certificate| roots.add(certificate))?;
            roots
        }
        None => TRUSTED_HERE.clone(),
    };
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    Ok(Arc::new(match identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let private =
                PrivateKeyDer::from_pem_reader(open(key)?).map_err(|source| in_file(key, source))?;
            builder.with_client_auth_cert(certificates(chain)?, private)?
        }
    }))
}

/// The authorities that the machine trusted when they were first asked for.
static TRUSTED_HERE: LazyLock<RootCertStore> = LazyLock::new(|| {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some may be of a kind that is of no use here.
    if roots.add_parsable_certificates(found.certs).0 == 0 {
        tracing::debug!("this machine trusts no authority: {:?}", found.errors);
    }
    roots
});

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// A certificate, and the names in it.
#[derive(Debug)]
struct Named {
    certified: Arc<CertifiedKey>,
    /// In lower case. One for all hosts of a domain begins with `*.`.
    names: Vec<String>,
}

/// The certificates that new connections get.
#[derive(Debug)]
struct Shown {
    all: Vec<Arc<CertifiedKey>>,
    /// The certificates for a name, by their place in `all`, in that order. A name for all hosts of a domain stands here without
    /// its asterisk, and so begins with a dot.
    by_name: HashMap<String, Vec<usize>>,
}

impl Shown {
    fn new(certificates: &[Certificate]) -> Self {
        let mut by_name = HashMap::<_, Vec<_>>::new();
        for (place, Certificate(kept)) in certificates.iter().enumerate() {
            for name in &kept.value.names {
                by_name.entry(name.strip_prefix('*').unwrap_or(name).to_owned()).or_default().push(place);
            }
        }
        let certified = |Certificate(kept): &Certificate| Arc::clone(&kept.value.certified);
        Shown { all: certificates.iter().map(certified).collect(), by_name }
    }

    /// The places of those that are valid for `name`, in lower case. An asterisk stands for one label (RFC 9525, 6.3).
    fn valid_for(&self, name: &str) -> impl Iterator<Item = usize> {
        let domain = name.find('.').map(|dot| &name[dot..]);
        [Some(name), domain]
            .into_iter()
            .flatten()
            .filter_map(|name| self.by_name.get(name))
            .flatten()
            .copied()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_verifiable =
            |place: &usize| self.all[*place].key.choose_scheme(hello.signature_schemes()).is_some();
        let valid = hello.server_name().and_then(|name| self.valid_for(name).filter(is_verifiable).min());
        let place = valid.or_else(|| (0..self.all.len()).find(is_verifiable))?;
        Some(Arc::clone(&self.all[place]))
    }
}

/// What was read from files, and is read again when they are replaced.
#[derive(Debug)]
struct ReloadedFiles<T, const N: usize> {
    files: [PathBuf; N],
    /// The files as they were last read.
    version: [Version; N],
    value: T,
    read: fn(&[PathBuf; N]) -> Result<T, TlsError>,
}

/// What tells two versions of a file apart: device, inode, length and time of change. `None`: it cannot be read.
type Version = Option<[i64; 5]>;

impl<T, const N: usize> ReloadedFiles<T, N> {
    fn new(files: [PathBuf; N], read: fn(&[PathBuf; N]) -> Result<T, TlsError>) -> Result<Self, TlsError> {
        let version = files.each_ref().map(|file| version(file));
        let value = read(&files)?;
        Ok(ReloadedFiles { files, version, value, read })
    }

    /// Reads the files again if one has changed; returns whether the value is a new one.
    fn renew(&mut self) -> bool {
        let version = self.files.each_ref().map(|file| version(file));
        if version == self.version {
            return false;
        }
        let file = self.files[0].display();
        match (self.read)(&self.files) {
            Ok(value) => {
                tracing::info!(%file, "a file for TLS was replaced; new connections go by it");
                (self.value, self.version) = (value, version);
                true
            }
            // The system could not read them, as where it has no descriptor. Next time it may.
            Err(TlsError::File { source: pem::Error::Io(error), .. }) => {
                tracing::warn!(%error, %file, "a file for TLS was replaced and cannot be read; the old one stays");
                false
            }
            Err(error) => {
                self.version = version;
                tracing::warn!(%error, %file, "a file for TLS was replaced by one that cannot be used; the old one stays");
                false
            }
        }
    }
}

fn version(file: &Path) -> Version {
    let file = fs::metadata(file).ok()?;
    Some([file.dev() as i64, file.ino() as i64, file.size() as i64, file.mtime(), file.mtime_nsec()])
}

fn named([chain, key]: &[PathBuf; 2]) -> Result<Arc<Named>, TlsError> {
    let certificates = certificates(chain)?;
    let private = PrivateKeyDer::from_pem_reader(open(key)?).map_err(|source| in_file(key, source))?;
    let certified =
        CertifiedKey::from_der(certificates, private, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::OtherKey,
            error => TlsError::Unfit(error),
        })?;
    let leaf = certified.cert.first().and_then(|leaf| EndEntityCert::try_from(leaf).ok());
    let names = leaf.iter().flat_map(|leaf| leaf.valid_dns_names()).map(str::to_ascii_lowercase).collect();
    Ok(Arc::new(Named { certified: Arc::new(certified), names }))
}

fn verifier([file]: &[PathBuf; 1]) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate)?;
    }
    let revoked = CertificateRevocationListDer::pem_reader_iter(open(file)?).collect::<Result<Vec<_>, _>>();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider())
        .with_crls(revoked.map_err(|source| in_file(file, source))?)
        // An authority need not have a list.
        .allow_unknown_revocation_status()
        .build();
    verifier.map_err(|source| TlsError::Authority { file: file.display().to_string(), source })
}

/// The certificates in a file, one at least.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let all = CertificateDer::pem_reader_iter(open(file)?).collect::<Result<Vec<_>, _>>();
    let all = all.map_err(|source| in_file(file, source))?;
    if all.is_empty() {
        return Err(TlsError::Empty { file: file.display().to_string() });
    }
    Ok(all)
}

fn open(file: &Path) -> Result<impl Read, TlsError> {
    open_regular(file).map_err(|error| in_file(file, pem::Error::Io(error)))
}

fn in_file(file: &Path, source: pem::Error) -> TlsError {
    TlsError::File { file: file.display().to_string(), source }
}
