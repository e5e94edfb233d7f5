//! TLS to the edges, for HTTP/1.1 and HTTP/2.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::config::ClientError;

/// TLS 1.3 to all edges. No session is resumed: each connection costs a whole handshake.
#[derive(Clone, Debug)]
pub struct Secure {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    is_http2: bool,
}

impl Secure {
    /// Trusts the certificates in `pem` and no others, and expects one for `name`. With `is_http2` requests go over HTTP/2, one at
    /// a time on each connection; otherwise over HTTP/1.1. An edge that speaks something else breaks the connection.
    ///
    /// # Errors
    /// If `pem` has no certificate that can be trusted, or `name` is not a host name.
    pub fn new(pem: &[u8], name: &str, is_http2: bool) -> Result<Secure, ClientError> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| failed(&error))?;
            roots.add(certificate).map_err(|error| failed(&error))?;
        }
        if roots.is_empty() {
            return Err(failed(&"the file has no certificate"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| failed(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        config.alpn_protocols = vec![if is_http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        let name = ServerName::try_from(name.to_owned()).map_err(|error| failed(&error))?;
        Ok(Secure { config: Arc::new(config), name, is_http2 })
    }

    pub(super) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// TLS over a connection that blocks, for those that are held by hand. The handshake is made with the first write.
    ///
    /// # Errors
    /// If the library refuses the configuration.
    pub fn blocking(&self, stream: std::net::TcpStream) -> io::Result<impl io::Read + io::Write + use<>> {
        let client = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        Ok(StreamOwned::new(client.map_err(io::Error::other)?, stream))
    }

    pub(super) async fn wrap(&self, stream: TcpStream) -> io::Result<Stream> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(self.name.clone(), stream).await?;
        Ok(Stream::Secure(Box::new(stream)))
    }
}

fn failed(why: &dyn std::fmt::Display) -> ClientError {
    ClientError::Secure { why: why.to_string() }
}

/// A connection to an edge.
pub(super) enum Stream {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Secure(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Secure(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Stream::Secure(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Secure(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Secure(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Secure(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
