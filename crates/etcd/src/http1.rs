//! One request to one endpoint, each over a connection of its own: they are rare.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::access::Access;
use crate::wire;

/// Longest wait for a connection: a machine that is silent must not keep the others from being asked.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Most bytes of an answer. etcd takes 1.5 MB at once, base64 makes a third more of it, and a few values are read together.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Most bytes of a refusal that are read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// What an endpoint answered.
pub(crate) type Outcome<T> = Result<T, Failed>;

/// Why it did not.
#[derive(Debug)]
pub(crate) enum Failed {
    /// No connection was made.
    Connect(io::Error),
    /// It has no certificate that is trusted, or does not trust ours.
    Tls(io::Error),
    /// The connection ended early.
    Cut(String),
    /// Nothing came in time.
    Silent,
    /// It is not etcd's answer.
    Answer(String),
    Refused(Refusal),
    /// A change may have been made.
    Doubtful,
}

/// etcd's refusal.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// As in gRPC.
    pub(crate) code: u32,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn has_bad_token(&self) -> bool {
        self.code == 16 && self.message.contains("token")
    }

    /// Whether the request may be carried out nevertheless: it was proposed to the others.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.code == 4 || self.code == 14 && self.message.contains("timed out")
    }
}

impl Failed {
    /// Whether no other endpoint need be asked.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Failed::Doubtful => true,
            // Another one may have a leader.
            Failed::Refused(refusal) => refusal.code != 14,
            _ => false,
        }
    }
}

impl Access {
    /// The whole answer to a request.
    pub(crate) async fn ask(
        &self,
        at: usize,
        path: &str,
        token: Option<&str>,
        request: &Value,
    ) -> Outcome<Bytes> {
        let response = self.open(at, path, token, request).await?;
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
        body.map(|body| body.to_bytes()).map_err(|error| match error.is::<LengthLimitError>() {
            true => Failed::Answer(format!("more than {BODY_BYTES_MAX} bytes")),
            false => Failed::Cut(error.to_string()),
        })
    }

    /// An answer that has begun.
    pub(crate) async fn open(
        &self,
        at: usize,
        path: &str,
        token: Option<&str>,
        request: &Value,
    ) -> Outcome<Response<Incoming>> {
        let endpoint = &self.endpoints()[at];
        let connected = timeout(CONNECT_MAX, TcpStream::connect((&*endpoint.host, endpoint.port))).await;
        let stream = connected.map_err(|_| Failed::Silent)?.map_err(Failed::Connect)?;
        let head = Request::post(format!("/v3/{path}"))
            .header(HOST, endpoint.authority())
            .header(CONTENT_TYPE, "application/json");
        let head = match token {
            Some(token) => head.header(AUTHORIZATION, token),
            None => head,
        };
        let request = head.body(Full::new(Bytes::from(request.to_string())));
        let request = request.map_err(|error| Failed::Answer(error.to_string()))?;
        let response = match &endpoint.tls {
            None => exchange(stream, request).await?,
            Some(name) => {
                let connector = TlsConnector::from(Arc::clone(&self.tls));
                let stream = connector.connect(name.clone(), stream).await.map_err(Failed::Tls)?;
                exchange(stream, request).await?
            }
        };
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = Limited::new(response.into_body(), REFUSAL_BYTES_MAX).collect().await;
        let body = body.map_err(|error| Failed::Cut(error.to_string()))?.to_bytes();
        let refused: wire::Refused = serde_json::from_slice(&body).unwrap_or_default();
        let message = match (&refused.message, &refused.error) {
            (message, _) if !message.is_empty() => message.clone(),
            (_, Value::String(error)) => error.clone(),
            _ => return Err(Failed::Answer(format!("{status}"))),
        };
        Err(Failed::Refused(Refusal { code: refused.code, message }))
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Outcome<Response<Incoming>> {
    let cut = |error: hyper::Error| {
        let why = std::error::Error::source(&error).map(ToString::to_string);
        Failed::Cut(why.map_or_else(|| error.to_string(), |why| format!("{error}: {why}")))
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(cut)?;
    // It ends with the answer, or when the runtime's owner drops that.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(cut)
}
