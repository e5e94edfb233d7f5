//! A person's browser: one connection, cookies, and the page that came.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, COOKIE, HOST, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use tokio::time::Instant;

use super::config::WalkConfig;
use super::page::Page;
use super::session::Ask;
use crate::client::ErrorKind;
use crate::client::link::{Answer, Link};

/// Most bytes of a page that are read for links; the rest is received and dropped.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Most cookies, and bytes of each, that are kept (RFC 6265, 6.1: at least 50 and 4096).
const COOKIES_MAX: usize = 50;
const COOKIE_BYTES_MAX: usize = 4096;

/// What came of a request.
#[derive(Debug)]
pub(super) enum Came {
    /// The page of the interaction.
    Page(Page),
    /// The page that says why the auction's rules refuse it.
    Refused(Page),
    Failed(ErrorKind),
}

impl Came {
    pub(super) fn error(&self) -> Option<ErrorKind> {
        if let Came::Failed(error) = self { Some(*error) } else { None }
    }
}

#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) came: Came,
    /// The response, if it was complete.
    pub(super) answer: Option<Answer>,
    pub(super) sent_at: Instant,
    /// From sending, with connecting, to the last byte.
    pub(super) time: Duration,
}

/// A browser.
pub(super) struct Visitor {
    /// The address that it comes from, if it has one of its own.
    from: Option<IpAddr>,
    address: SocketAddr,
    host: HeaderValue,
    timeout: Duration,
    link: Option<Link>,
    cookies: Vec<(String, String)>,
}

impl Visitor {
    /// The browser of a session, by its number.
    pub(super) fn new(config: &WalkConfig, number: usize) -> Self {
        let WalkConfig { addresses, clients, host, timeout, .. } = config;
        Visitor {
            from: clients.get(number % clients.len().max(1)).copied(),
            address: addresses[number % addresses.len()],
            host: host.clone(),
            timeout: *timeout,
            link: None,
            cookies: Vec::new(),
        }
    }

    /// Requests a page and reads it.
    pub(super) async fn visit(&mut self, ask: &Ask) -> Outcome {
        let sent_at = Instant::now();
        let (mut body, deadline) = (Vec::new(), sent_at + self.timeout);
        let answer = self.exchange(ask, deadline, &mut body).await;
        let time = sent_at.elapsed();
        let came = match &answer {
            Ok(answer) if answer.status == StatusCode::CONFLICT => Came::Refused(Page::read(&body)),
            Ok(answer) => match (ErrorKind::of(answer.status, answer.has_reason), Page::read(&body)) {
                (Some(error), _) => Came::Failed(error),
                (None, page) if page.interaction == ask.interaction.name() => Came::Page(page),
                (None, _) => Came::Failed(ErrorKind::WrongPage),
            },
            Err(error) => {
                self.link = None;
                Came::Failed(*error)
            }
        };
        Outcome { came, answer: answer.ok(), sent_at, time }
    }

    async fn exchange(
        &mut self,
        ask: &Ask,
        deadline: Instant,
        body: &mut Vec<u8>,
    ) -> Result<Answer, ErrorKind> {
        let request = self.request(ask);
        let is_usable = match &mut self.link {
            Some(link) => link.is_usable().await,
            None => false,
        };
        let link = match &mut self.link {
            Some(link) if is_usable => link,
            link => link.insert(Link::open(self.from, self.address, None, deadline).await?),
        };
        let mut bytes = 0;
        let take = |data: &[u8]| {
            bytes += data.len() as u64;
            let room = PAGE_BYTES_MAX - body.len();
            body.extend_from_slice(&data[..data.len().min(room)]);
        };
        let head = link.fetch(request, deadline, take).await?;
        self.keep_cookies(&head.headers);
        Ok(Answer::new(&head, bytes))
    }

    fn request(&self, ask: &Ask) -> Request<Full<Bytes>> {
        let body = ask.form.clone().map(Bytes::from);
        let is_post = body.is_some();
        let mut request = Request::new(Full::new(body.unwrap_or_default()));
        // A path that the site wrote and that is no URI leads home.
        *request.uri_mut() = Uri::try_from(&ask.path).unwrap_or_default();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        if is_post {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        }
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if let Ok(cookies) = HeaderValue::try_from(cookies.join("; "))
            && !cookies.is_empty()
        {
            headers.insert(COOKIE, cookies);
        }
        if is_post {
            *request.method_mut() = Method::POST;
        }
        request
    }

    /// Names and values alone: a session ends before a cookie does.
    fn keep_cookies(&mut self, headers: &HeaderMap) {
        let set = headers.get_all(SET_COOKIE).iter().filter_map(|value| value.to_str().ok());
        for (name, value) in set.filter_map(|value| value.split(';').next()?.split_once('=')) {
            let (name, value) = (name.trim(), value.trim());
            if name.len() + value.len() > COOKIE_BYTES_MAX {
                continue;
            }
            self.cookies.retain(|(kept, _)| kept != name);
            if self.cookies.len() < COOKIES_MAX && !value.is_empty() {
                self.cookies.push((name.to_owned(), value.to_owned()));
            }
        }
    }
}
