//! The client: its options, and the state that its clones share. [`crate::send`] sends requests; the module of each
//! call builds and reads them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Url, redirect};
use umbo_api::header;
use umbo_api::hot::REASON_LEN_MAX;
use umbo_types::Criticality;

use crate::call::{Call, Calls};
use crate::dead_letters::{DeadLetter, DeadLetters};
use crate::error::Error;
use crate::flow::{Flow, HeldBack};
use crate::pacer::{LocalLimit, Pace, Pacer};
use crate::payer::Payer;
use crate::random::Random;
use crate::request::RepeatableRequest;
use crate::retry::{RetryPolicy, full_jitter};
use crate::tls::{self, Trust};

/// Requests of bulk work that are sent for each accepted one.
const BULK_FACTOR: f64 = 1.25;
/// Highest budget the server accepts.
const TIMEOUT_MAX: Duration = Duration::from_mins(10);

/// The options of a client.
#[derive(Debug, Clone)]
pub struct Options {
    /// Address of the server, `http://…` or `https://…`; a path before `/v1` is kept.
    pub server: String,
    /// Token to send.
    pub token: Option<String>,
    /// File of PEM certificates to trust instead of those the system trusts: of authorities, or of servers.
    pub ca_file: Option<PathBuf>,
    /// Whether any certificate of the server is accepted; another server may then pose as this one.
    pub accepts_any_certificate: bool,
    /// Budget of one call, all its attempts together; 10 minutes at most.
    pub timeout: Duration,
    /// Criticality to claim; `None` leaves it to the server.
    pub criticality: Option<Criticality>,
    /// How often a failed request is repeated, if it may be.
    pub retry: RetryPolicy,
    /// Requests that are sent for each one that the server accepts. If it rejects or sheds more, the excess is given
    /// up before it is sent ([`crate::AdaptiveThrottle`]). Counted for each namespace, and separately for each shard
    /// and policy that refuses.
    pub restraint_factor: f64,
    /// Whether every write has an idempotency key. The write can then be repeated when the outcome of an attempt is
    /// unknown, and is applied once. Each key costs the server a record of about 150 bytes for an hour. Conditional
    /// writes, touches and increments have a key in any case. The server must be of the client's version or newer.
    pub has_idempotent_writes: bool,
    /// Receives single rows and rows of batches that could not be written, if it is set.
    pub dead_letters: Option<DeadLetters>,
    /// Whether requests wait for their turn so that they keep to the quotas that the server
    /// advertises ([`crate::Pacer`]). For work that no user waits for.
    pub is_paced: bool,
    /// A limit that the client keeps in addition to the quotas of the server, for batch jobs; work with such a limit
    /// is paced. Its bucket holds a tenth of a second of its rate, and the last request may exceed it.
    pub local_limit: Option<LocalLimit>,
    /// Seed of the jitter, for tests; `None` takes it from the system.
    pub seed: Option<u64>,
}

impl Options {
    /// The defaults for a server: no token, 30 seconds, three attempts, two requests for each accepted one, no pace
    /// and no limit.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            token: None,
            ca_file: None,
            accepts_any_certificate: false,
            timeout: Duration::from_secs(30),
            criticality: None,
            retry: RetryPolicy::default(),
            restraint_factor: 2.0,
            has_idempotent_writes: true,
            dead_letters: None,
            is_paced: false,
            local_limit: None,
            seed: None,
        }
    }

    /// Makes these the options of bulk work: paced, first to be shed unless a criticality is named, and with 1.25
    /// requests for each accepted one. Only writes that need an idempotency key have one: a row that is put twice is
    /// the same row.
    #[must_use]
    pub fn for_bulk(mut self) -> Self {
        self.criticality = self.criticality.or(Some(Criticality::Sheddable));
        self.restraint_factor = BULK_FACTOR;
        self.has_idempotent_writes = false;
        self.is_paced = true;
        self
    }
}

/// A client of one server. Cheap to clone. Clones share their retry budget, their restraint, their pace and their
/// connections; there is one connection for each request under way. Environment variables for proxies are not
/// followed.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    /// The call that all requests belong to; `None` makes a separate call of each request.
    call: Option<Call>,
    /// The payer, and the reason of a change, as header fields.
    pub(crate) payer: HeaderMap,
}

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) http: reqwest::Client,
    pub(crate) base: String,
    pub(crate) timeout: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) flow: Flow,
    pub(crate) random: Random,
    has_idempotent_writes: bool,
    dead_letters: Option<DeadLetters>,
    calls: Calls,
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
        let trust = match &options.ca_file {
            _ if options.accepts_any_certificate => Trust::Any,
            Some(path) => Trust::File(path),
            None => Trust::System,
        };
        let tls = tls::config(url.scheme() == "https", trust)?;
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
        let pacer = match options.local_limit {
            Some(limit) => Some(Pacer::with_limit(limit, Instant::now()).ok_or(
                Error::BadOption("the rate of a local limit is a number above 0"),
            )?),
            None => options.is_paced.then(Pacer::default),
        };
        let random_seed = || getrandom::u64().unwrap_or_default();
        let random = Random::new(options.seed.unwrap_or_else(random_seed));
        Ok(Self {
            call: None,
            payer: HeaderMap::new(),
            shared: Arc::new(Shared {
                http,
                base: url.as_str().trim_end_matches('/').to_owned(),
                timeout: options.timeout.min(TIMEOUT_MAX),
                retry: options.retry,
                flow: Flow::new(options.restraint_factor, &options.retry, pacer),
                calls: Calls::new(random.next()),
                has_idempotent_writes: options.has_idempotent_writes,
                dead_letters: options.dead_letters.clone(),
                random,
            }),
        })
    }

    /// Returns a client whose requests are all attempts of one call. They carry this request id, 1 to 64 characters of
    /// `[A-Za-z0-9._-]`, or one made here if `request_id` is `None`, and are numbered from the first. A server that
    /// told one of them to wait has reserved room for the next. The client shares everything with this client.
    pub fn one_call(&self, request_id: Option<&str>) -> Result<Self, Error> {
        let call = match request_id {
            Some(id) => Call::with_id(id)?,
            None => self.shared.calls.begin(),
        };
        Ok(Self {
            call: Some(call),
            ..self.clone()
        })
    }

    /// Returns a client whose requests another caller pays for. It shares everything with this client. The server
    /// accepts the payer if the token has the grant `delegate`.
    pub fn paid_by(&self, payer: &Payer<'_>) -> Result<Self, Error> {
        Ok(Self {
            payer: payer.headers()?,
            ..self.clone()
        })
    }

    /// Returns a client that sends a reason with its requests. The server shows it among the events, together with
    /// their changes. One line of 1 to 256 bytes.
    pub fn with_reason(&self, reason: &str) -> Result<Self, Error> {
        let is_line = (1..=REASON_LEN_MAX).contains(&reason.len());
        let value = HeaderValue::from_bytes(reason.as_bytes()).ok();
        let value = value.filter(|_| is_line);
        let value = value.ok_or(Error::BadOption("a reason is one line of 1 to 256 bytes"))?;
        let mut client = self.clone();
        let name = HeaderName::from_static(header::REASON);
        client.payer.insert(name, value);
        Ok(client)
    }

    pub(crate) fn call(&self) -> Call {
        let own = || self.shared.calls.begin();
        self.call.clone().unwrap_or_else(own)
    }

    /// Gives a write a new idempotency key, so that it may be repeated after any failure. Does so if the write needs a
    /// key, or if all writes have one.
    pub(crate) fn keyed(&self, request: RepeatableRequest, is_needed: bool) -> RepeatableRequest {
        if is_needed || self.shared.has_idempotent_writes {
            let key = HeaderValue::try_from(self.new_idempotency_key());
            request.keyed(key.expect("hexadecimal digits are a header value"))
        } else {
            request
        }
    }

    /// Makes an idempotency key that is different from all others.
    pub fn new_idempotency_key(&self) -> String {
        idempotency_key(SystemTime::now(), self.shared.random.next())
    }

    /// Passes the letter of a failed write to the dead letters.
    pub(crate) fn bury(&self, letter: impl FnOnce() -> Option<DeadLetter>) {
        if let Some(dead_letters) = &self.shared.dead_letters
            && let Some(letter) = letter()
        {
            dead_letters.put(&letter);
        }
    }

    /// Returns whether there is a place for dead letters.
    pub(crate) fn has_dead_letters(&self) -> bool {
        self.shared.dead_letters.is_some()
    }

    /// Asks the server whether it is there; any answer will do.
    pub async fn reach(&self) -> Result<(), Error> {
        match self
            .send(&RepeatableRequest::read("/healthz".to_owned()))
            .await
        {
            Ok(_) | Err(Error::Problem { .. } | Error::Foreign { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns a wait that is uniform between nothing and a bound, for a retry without a time named by the server.
    pub fn jitter(&self, bound: Duration) -> Duration {
        full_jitter(bound, self.shared.random.next())
    }

    /// Ends all waiting, of this client and all its clones. A request that waits to be sent is given up with
    /// [`Error::WaitEnded`]; a request that would be repeated returns its error. Requests under way are answered.
    pub fn end_waits(&self) {
        self.shared.flow.end_waits();
    }

    /// Returns how much this client and all its clones were held back so far.
    pub fn held_back(&self) -> HeldBack {
        self.shared.flow.held_back()
    }

    /// Returns the policy that slows paced work most, or the local limit. Returns `None` if work is not paced, or no
    /// policy counts it.
    pub fn pace(&self) -> Option<Pace> {
        self.shared.flow.pace()
    }
}

/// Makes a key of the time and a random number: keys sort by the time of their making, to the millisecond.
fn idempotency_key(now: SystemTime, random: u64) -> String {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("\"{:012x}-{random:016x}\"", now.as_millis())
}

fn default_headers(options: &Options) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    if let Some(token) = &options.token {
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Error::BadOption("the token has invalid characters"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    if let Some(criticality) = options.criticality {
        let name = HeaderName::from_static(header::CRITICALITY);
        headers.insert(name, HeaderValue::from_static(criticality.as_str()));
    }
    Ok(headers)
}

/// Returns the innermost message of an error: the message of the system, not of the layers above it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
