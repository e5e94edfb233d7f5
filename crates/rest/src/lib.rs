//! Requests to the JSON interfaces of other systems: each over a connection of its own, because they are rare. Every wait and every answer is
//! bounded. Nothing here knows what is asked.
#![forbid(unsafe_code)]

mod blocking;
mod endpoint;
mod lines;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

pub use blocking::Blocking;
pub use endpoint::{Endpoint, EndpointError};
pub use lines::Lines;

/// Longest wait for a connection: a machine that is silent must not keep others from being asked.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// Why a request was not answered. Displayed, it follows the endpoint's name.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// No connection was made.
    #[error("cannot be reached: {0}")]
    Connect(io::Error),
    /// It has no certificate that is trusted, or does not trust ours.
    #[error("cannot be trusted: {0}")]
    Tls(io::Error),
    /// The connection ended early.
    #[error("ended the connection: {0}")]
    Cut(String),
    /// Nothing came in time.
    #[error("does not answer")]
    Silent,
    /// It is not the answer of the system that was meant.
    #[error("answers in another way: {0}")]
    Answer(String),
}

/// Sends a request, whose `Host` is set here, and waits for the head of the answer. The connection ends with the answer, or with the runtime.
///
/// # Errors
/// If no answer begins. Only the connection has a time limit here: the caller bounds the whole.
pub async fn send(
    endpoint: &Endpoint,
    tls: &Arc<ClientConfig>,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, Failed> {
    let host = HeaderValue::try_from(endpoint.authority());
    request.headers_mut().insert(HOST, host.map_err(|error| Failed::Answer(error.to_string()))?);
    let connected = timeout(CONNECT_MAX, TcpStream::connect((endpoint.host(), endpoint.port()))).await;
    let stream = connected.map_err(|_| Failed::Silent)?.map_err(Failed::Connect)?;
    match endpoint.name() {
        None => exchange(stream, request).await,
        Some(name) => {
            let connector = TlsConnector::from(Arc::clone(tls));
            let stream = connector.connect(name.clone(), stream).await.map_err(Failed::Tls)?;
            exchange(stream, request).await
        }
    }
}

/// The rest of an answer, of at most that many bytes.
///
/// # Errors
/// If it is longer, or cut short.
pub async fn whole(answer: Response<Incoming>, bytes_max: usize) -> Result<Bytes, Failed> {
    let body = Limited::new(answer.into_body(), bytes_max).collect().await;
    body.map(|body| body.to_bytes()).map_err(|error| match error.is::<LengthLimitError>() {
        true => Failed::Answer(format!("more than {bytes_max} bytes")),
        false => Failed::Cut(error.to_string()),
    })
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, Failed> {
    let cut = |error: hyper::Error| {
        let why = std::error::Error::source(&error).map(ToString::to_string);
        Failed::Cut(why.map_or_else(|| error.to_string(), |why| format!("{error}: {why}")))
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(cut)?;
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(cut)
}
