//! How the API server is asked.

use std::fmt;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use sidelong_os::open_regular;
use sidelong_rest::{self as rest, Endpoint, EndpointError};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::wire::{List, Status};

/// Longest wait for an answer to begin, and for a page of a list to be whole.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Slices in a page of a list. A slice has 100 endpoints at most, as they come by default.
const PAGE: u32 = 100;
/// Most bytes of a page, and of a refusal.
const PAGE_BYTES_MAX: usize = 16 << 20;
const REFUSAL_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a token.
const TOKEN_BYTES_MAX: u64 = 16 << 10;
/// What was asked for is no longer known (`410 Gone`).
pub(crate) const GONE: u16 = 410;
/// Where a pod finds its token, and who has signed the API server's certificate.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Why the API server could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This is no pod, or it may not ask.
    #[error(
        "this is no pod with a service account, as KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT would say: name the API server"
    )]
    NoPod,
    /// An address cannot be used.
    #[error(transparent)]
    Address(#[from] EndpointError),
    /// A certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] sidelong_tls::TlsError),
    /// A token cannot be read.
    #[error("the token in {file} cannot be read: {source}")]
    Token {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It did not answer.
    #[error("the API server at {server} {failed}")]
    Unreachable {
        /// Where it is.
        server: String,
        /// Why.
        failed: rest::Failed,
    },
    /// It refused.
    #[error("the API server at {server} refuses: {message}{remedy}")]
    Refused {
        /// Where it is.
        server: String,
        /// Its words.
        message: String,
        /// What to do, as the rest of the sentence; it may be empty.
        remedy: &'static str,
    },
    /// What a watch was to begin with is no longer known.
    #[error("the API server has forgotten what changed since: it is to be listed anew")]
    Expired,
    /// No descriptor is left.
    #[error("cannot begin to ask the API server: {0}")]
    Descriptors(io::Error),
}

/// A service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Service {
    namespace: String,
    name: String,
}

/// Why a text names no service.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} is no service: write NAMESPACE/NAME, such as shop/web")]
pub struct ServiceError(String);

impl FromStr for Service {
    type Err = ServiceError;

    fn from_str(text: &str) -> Result<Self, ServiceError> {
        // RFC 1123 labels, as Kubernetes has them.
        let is_label = |text: &str| {
            let is_usable = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            (1..=63).contains(&text.len()) && text.chars().all(is_usable)
        };
        match text.split_once('/') {
            Some((namespace, name)) if is_label(namespace) && is_label(name) => {
                Ok(Service { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(ServiceError(text.to_owned())),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// How the API server is reached. The files are read at each request, because they are replaced while pods run.
#[derive(Clone, Debug)]
pub struct Access {
    server: Endpoint,
    authority: Option<PathBuf>,
    token: Option<PathBuf>,
}

impl Access {
    /// A server, who has signed its certificate (PEM), and the file of a token, if it asks for them.
    pub fn new(server: Endpoint, authority: Option<PathBuf>, token: Option<PathBuf>) -> Self {
        Access { server, authority, token }
    }

    /// As a pod finds it.
    ///
    /// # Errors
    /// If this is none.
    pub fn of_pod() -> Result<Self, Error> {
        let variable = |name| std::env::var(name).map_err(|_| Error::NoPod);
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let file = |name| Some(Path::new(ACCOUNT).join(name));
        Ok(Access::new(format!("https://{host}:{port}").parse()?, file("ca.crt"), file("token")))
    }

    /// A page of the slices of a service. `more` is what the page before has said, or nothing.
    pub(crate) fn list(&self, runtime: &Runtime, service: &Service, more: &str) -> Result<List, Error> {
        let more = if more.is_empty() { String::new() } else { format!("&continue={}", escaped(more)) };
        let asked = async {
            let answer = self.ask(service, &format!("limit={PAGE}{more}")).await?;
            let body = rest::whole(answer, PAGE_BYTES_MAX).await.map_err(|failed| self.error_of(failed))?;
            serde_json::from_slice(&body)
                .map_err(|error| self.error_of(rest::Failed::Answer(error.to_string())))
        };
        self.within(runtime, asked)
    }

    /// What changes after `version`, for so many seconds.
    pub(crate) fn watch(
        &self,
        runtime: &Runtime,
        service: &Service,
        version: &str,
        seconds: u64,
    ) -> Result<Response<Incoming>, Error> {
        let version = escaped(version);
        let query =
            format!("watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}");
        self.within(runtime, self.ask(service, &query))
    }

    fn within<T>(
        &self,
        runtime: &Runtime,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let answered = runtime.block_on(async { timeout(ANSWER_MAX, asked).await });
        answered.unwrap_or_else(|_| Err(self.error_of(rest::Failed::Silent)))
    }

    async fn ask(
        &self,
        Service { namespace, name }: &Service,
        query: &str,
    ) -> Result<Response<Incoming>, Error> {
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{name}&{query}"
        );
        let mut head = Request::get(path).header(ACCEPT, "application/json");
        if let Some(file) = &self.token {
            let token = token(file).map_err(|source| Error::Token { file: file.clone(), source })?;
            head = head.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let strange = |error: http::Error| self.error_of(rest::Failed::Answer(error.to_string()));
        let request = head.body(Full::new(Bytes::new())).map_err(strange)?;
        let tls = sidelong_tls::client(self.authority.as_deref(), None)?;
        let answer = rest::send(&self.server, &tls, request).await.map_err(|failed| self.error_of(failed))?;
        let code = answer.status();
        if code.is_success() {
            return Ok(answer);
        }
        if code.as_u16() == GONE {
            return Err(Error::Expired);
        }
        let body = rest::whole(answer, REFUSAL_BYTES_MAX).await.map_err(|failed| self.error_of(failed))?;
        let said: Status = serde_json::from_slice(&body).unwrap_or_default();
        let message = if said.message.is_empty() { code.to_string() } else { said.message };
        Err(self.refused(Status { code: code.as_u16(), message }))
    }

    pub(crate) fn error_of(&self, failed: rest::Failed) -> Error {
        Error::Unreachable { server: self.server.to_string(), failed }
    }

    pub(crate) fn refused(&self, Status { code, message }: Status) -> Error {
        let remedy = match code {
            401 => ": it does not know this token",
            403 => ": grant the service account list and watch of endpointslices in discovery.k8s.io",
            404 => ": it has no discovery.k8s.io/v1, which Kubernetes has since 1.21",
            _ => "",
        };
        Error::Refused { server: self.server.to_string(), message, remedy }
    }
}

fn token(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    open_regular(file)?.take(TOKEN_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

/// As a query has it (RFC 3986, 2.3).
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(escape).collect()
}
