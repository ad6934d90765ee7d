//! The client: its options, and how one request is sent, repeated and turned into an answer or an
//! [`Error`]. What each call sends and reads stands in the module of the call.
//!
//! The timeout of a call is a budget for all its attempts: each attempt tells the server what is
//! left of it. The body of a streamed answer may take longer; there the timeout bounds each wait
//! for more bytes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, Response, Url, redirect};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use umbo_api::{Problem, header};
use umbo_types::Criticality;

use crate::error::Error;
use crate::retry::{Repeat, RetryPolicy};
use crate::tls;

/// How much longer than the server's deadline the client waits, so that the server's own answer
/// to a passed deadline still arrives.
const GRACE: Duration = Duration::from_secs(2);
/// Highest budget the server accepts.
const TIMEOUT_MAX: Duration = Duration::from_mins(10);
/// Most bytes of a body that is read whole.
const BODY_LEN_MAX: usize = 64 << 20;
/// Most bytes of a foreign body that an error quotes.
const QUOTE_LEN_MAX: usize = 400;

/// What a client needs to know.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address of the server, `http://…` or `https://…`; a path before `/v1` is kept.
    pub server: String,
    /// Token to send.
    pub token: Option<String>,
    /// File of PEM certificates to trust instead of those the system trusts.
    pub ca_file: Option<PathBuf>,
    /// Budget of one call, all its attempts together; 10 minutes at most.
    pub timeout: Duration,
    /// Criticality to claim; the server's default where none.
    pub criticality: Option<Criticality>,
    /// How often a request is repeated that may be.
    pub retry: RetryPolicy,
    /// Seed of the jitter, for tests; from the system where none.
    pub seed: Option<u64>,
}

impl Options {
    /// The defaults for a server: no token, 30 seconds, three attempts.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            token: None,
            ca_file: None,
            timeout: Duration::from_secs(30),
            criticality: None,
            retry: RetryPolicy::default(),
            seed: None,
        }
    }
}

/// A client of one server. Cheap to clone; clones share their connections, as many as there are
/// requests under way. Environment variables for proxies are not followed.
#[derive(Debug, Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    http: reqwest::Client,
    base: String,
    timeout: Duration,
    retry: RetryPolicy,
    random: AtomicU64,
}

/// One request, ready to be sent more than once.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) repeat: Repeat,
}

impl Request {
    pub(crate) fn new(method: Method, target: String, repeat: Repeat) -> Self {
        Self {
            method,
            target,
            headers: HeaderMap::new(),
            body: Bytes::new(),
            repeat,
        }
    }

    pub(crate) fn read(target: String) -> Self {
        Self::new(Method::GET, target, Repeat::Always)
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: HeaderValue) -> Self {
        self.headers.insert(HeaderName::from_static(name), value);
        self
    }

    pub(crate) fn with_body(mut self, content_type: &'static str, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.with_header("content-type", HeaderValue::from_static(content_type))
    }
}

impl Client {
    /// Makes a client. Nothing is sent yet.
    pub fn new(options: &Options) -> Result<Self, Error> {
        let bad_url = |reason: &str| Error::BadUrl {
            url: options.server.clone(),
            reason: reason.to_owned(),
        };
        let url = Url::parse(&options.server).map_err(|error| bad_url(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad_url("it begins with neither http:// nor https://"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad_url("it has a query or a fragment"));
        }
        let tls = tls::config(url.scheme() == "https", options.ca_file.as_deref())?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .no_proxy()
            .redirect(redirect::Policy::none())
            .connect_timeout(Duration::from_secs(10))
            .user_agent(concat!("umbo-client/", env!("CARGO_PKG_VERSION")))
            .default_headers(default_headers(options)?)
            .build()
            .map_err(|error| Error::Transport(chain(&error)))?;
        let random_seed = || getrandom::u64().unwrap_or_default();
        let seed = options.seed.unwrap_or_else(random_seed);
        Ok(Self {
            shared: Arc::new(Shared {
                http,
                base: url.as_str().trim_end_matches('/').to_owned(),
                timeout: options.timeout.min(TIMEOUT_MAX),
                retry: options.retry,
                random: AtomicU64::new(seed),
            }),
        })
    }

    /// Sends a request, again where that is safe and may help, and returns the answer if it is a
    /// success; its body is not read yet.
    pub(crate) async fn send(&self, request: &Request) -> Result<Response, Error> {
        let (response, _) = self.attempts(request, false).await?;
        Ok(response)
    }

    /// Like [`Client::send`], and reads the whole body too; a body cut off is repeated as well.
    pub(crate) async fn send_for_body(&self, request: &Request) -> Result<Bytes, Error> {
        let (_, body) = self.attempts(request, true).await?;
        Ok(body)
    }

    /// Like [`Client::send_for_body`], and returns the headers too.
    pub(crate) async fn send_for_parts(
        &self,
        request: &Request,
    ) -> Result<(HeaderMap, Bytes), Error> {
        let (mut response, body) = self.attempts(request, true).await?;
        Ok((std::mem::take(response.headers_mut()), body))
    }

    /// Like [`Client::send_for_body`], and reads the body as JSON.
    pub(crate) async fn send_for_json<T: DeserializeOwned>(
        &self,
        request: &Request,
    ) -> Result<T, Error> {
        let body = self.send_for_body(request).await?;
        serde_json::from_slice(&body).map_err(|error| Error::json(&error))
    }

    async fn attempts(
        &self,
        request: &Request,
        reads_body: bool,
    ) -> Result<(Response, Bytes), Error> {
        let deadline = Instant::now() + self.shared.timeout;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let result = match self.attempt(request, deadline).await {
                Ok(mut response) if reads_body => {
                    let body = self.body(&mut response).await;
                    body.map(|body| (response, body))
                }
                result => result.map(|response| (response, Bytes::new())),
            };
            let error = match result {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let policy = &self.shared.retry;
            match policy.wait(attempts, &error, request.repeat, self.random()) {
                Some(wait) if Instant::now() + wait < deadline => tokio::time::sleep(wait).await,
                _ => return Err(error),
            }
        }
    }

    async fn attempt(&self, request: &Request, deadline: Instant) -> Result<Response, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
        let url = format!("{}{}", self.shared.base, request.target);
        let sending = self
            .shared
            .http
            .request(request.method.clone(), url)
            .headers(request.headers.clone())
            .header(header::TIMEOUT_MS, left_ms)
            .body(request.body.clone())
            .send();
        let response = tokio::time::timeout(left + GRACE, sending)
            .await
            .map_err(|_| Error::Timeout(self.shared.timeout))?
            .map_err(|error| self.transport(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    async fn refusal(&self, mut response: Response) -> Error {
        let status = response.status().as_u16();
        let retry_after_ms = retry_after_ms(response.headers());
        let request_id = text_header(response.headers(), header::REQUEST_ID);
        let etag = text_header(response.headers(), "etag");
        // An answer to HEAD has no body; the status alone must do.
        let body = match self.body(&mut response).await {
            Ok(body) => body,
            Err(error) => return error,
        };
        match serde_json::from_slice::<Problem>(&body) {
            Ok(mut problem) => {
                problem.retry.after_ms = problem.retry.after_ms.or(retry_after_ms);
                problem.etag = problem.etag.or(etag);
                if problem.request_id.is_empty() {
                    problem.request_id = request_id.unwrap_or_default();
                }
                Error::Problem {
                    problem: Box::new(problem),
                }
            }
            Err(_) => Error::Foreign {
                status,
                body: quote(&body),
            },
        }
    }

    /// Waits for the next bytes of a body, none at its end.
    pub(crate) async fn chunk(&self, response: &mut Response) -> Result<Option<Bytes>, Error> {
        let patience = self.shared.timeout + GRACE;
        tokio::time::timeout(patience, response.chunk())
            .await
            .map_err(|_| Error::Timeout(self.shared.timeout))?
            .map_err(|error| self.transport(&error))
    }

    /// Reads a body whole, up to a bound.
    pub(crate) async fn body(&self, response: &mut Response) -> Result<Bytes, Error> {
        let mut body = BytesMut::new();
        while let Some(chunk) = self.chunk(response).await? {
            if body.len() + chunk.len() > BODY_LEN_MAX {
                return Err(Error::Malformed(format!(
                    "its body has more than {BODY_LEN_MAX} bytes"
                )));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    fn transport(&self, error: &reqwest::Error) -> Error {
        if error.is_connect() {
            return Error::Unreachable {
                url: self.shared.base.clone(),
                reason: chain(error),
            };
        }
        Error::Transport(chain(error))
    }

    /// Returns the next number of a `SplitMix64` sequence (Steele et al. 2014).
    fn random(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self
            .shared
            .random
            .fetch_add(STEP, Ordering::Relaxed)
            .wrapping_add(STEP);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn default_headers(options: &Options) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    if let Some(token) = &options.token {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Error::BadOption("the token holds characters that no token has"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    if let Some(criticality) = options.criticality {
        let name = HeaderName::from_static(header::CRITICALITY);
        headers.insert(name, HeaderValue::from_static(criticality.as_str()));
    }
    Ok(headers)
}

/// Returns a header as text, none where it is absent or not text.
pub(crate) fn text_header(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// Returns a header as a number, none where it is absent or not a number.
pub(crate) fn number_header(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    number_header(headers, header::RETRY_AFTER_MS).or_else(|| {
        let seconds = number_header(headers, RETRY_AFTER.as_str())?;
        seconds.checked_mul(1_000)
    })
}

fn quote(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(QUOTE_LEN_MAX)]);
    let is_shown = |character: char| !character.is_control();
    text.chars()
        .filter(|&character| is_shown(character))
        .collect()
}

/// Returns the innermost words of an error: those of the system, not of the layers above it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
