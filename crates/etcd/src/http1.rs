//! One request to one endpoint.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::Value;
use sidelong_rest as rest;

use crate::access::Access;
use crate::wire;

/// Most bytes of an answer. etcd takes 1.5 MB at once, base64 makes a third more of it, and a few values are read together.
const BODY_BYTES_MAX: usize = 16 << 20;
/// Most bytes of a refusal that are read.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// What an endpoint answered.
pub(crate) type Outcome<T> = Result<T, Failed>;

/// Why it did not.
#[derive(Debug)]
pub(crate) enum Failed {
    Asked(rest::Failed),
    Refused(Refusal),
    /// A change may have been made.
    Doubtful,
}

impl From<rest::Failed> for Failed {
    fn from(failed: rest::Failed) -> Self {
        Failed::Asked(failed)
    }
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

    /// Whether nothing was heard in time.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self, Failed::Asked(rest::Failed::Silent))
    }

    /// It is not etcd's answer.
    pub(crate) fn strange(why: impl ToString) -> Self {
        Failed::Asked(rest::Failed::Answer(why.to_string()))
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
        let answer = self.open(at, path, token, request).await?;
        Ok(rest::whole(answer, BODY_BYTES_MAX).await?)
    }

    /// An answer that has begun.
    pub(crate) async fn open(
        &self,
        at: usize,
        path: &str,
        token: Option<&str>,
        request: &Value,
    ) -> Outcome<Response<Incoming>> {
        let head = Request::post(format!("/v3/{path}")).header(CONTENT_TYPE, "application/json");
        let head = match token {
            Some(token) => head.header(AUTHORIZATION, token),
            None => head,
        };
        let request = head.body(Full::new(Bytes::from(request.to_string())));
        let request = request.map_err(Failed::strange)?;
        let response = rest::send(&self.endpoints()[at], &self.tls, request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let body = rest::whole(response, REFUSAL_BYTES_MAX).await?;
        let refused: wire::Refused = serde_json::from_slice(&body).unwrap_or_default();
        let message = match (&refused.message, &refused.error) {
            (message, _) if !message.is_empty() => message.clone(),
            (_, Value::String(error)) => error.clone(),
            _ => return Err(Failed::strange(status)),
        };
        Err(Failed::Refused(Refusal { code: refused.code, message }))
    }
}
