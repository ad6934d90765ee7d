//! The phase *classify*: who calls, whether they may, how critical it is and until when.
//!
//! Hot path. A caller is identified before anything else of the request is read.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use umbo_control::NamespaceEntry;
use umbo_http::decode::Route;
use umbo_http::fields::{Fields, Freshness};
use umbo_http::{Payer, RequestError};
use umbo_quota::BroughtTicket;
use umbo_types::{Caller, CallerId, Criticality, Deadline, Operation, Permission, Timestamp};

use crate::dispatcher::Dispatcher;
use crate::request_log::RequestLog;

/// When a request began, and until when and how it is to be answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    /// Time of day at which the request began.
    pub(crate) now: Timestamp,
    /// The instant when the client stops waiting.
    pub(crate) deadline: Deadline,
    /// The timeout of the request.
    pub(crate) timeout: Duration,
    /// Whether the client named the timeout.
    pub(crate) is_timeout_named: bool,
    /// Accepted age of an answer.
    pub(crate) freshness: Freshness,
}

/// The grant that a request needs, and what the request does.
#[derive(Debug, Clone, Copy)]
pub struct RequiredGrant<'a> {
    /// What the request does.
    pub operation: Operation,
    /// Name of the namespace.
    pub namespace: &'a str,
    /// The permission that a grant must hold.
    pub permission: Permission,
}

impl<'a> RequiredGrant<'a> {
    /// Returns the grant that a request for rows needs.
    pub(crate) fn of_route(route: &Route<'a>) -> Self {
        Self {
            operation: route.operation,
            namespace: route.namespace,
            permission: route.permission(),
        }
    }
}

/// A request whose caller is known and may make it.
#[derive(Debug, Clone)]
pub struct Identified {
    pub(crate) operation: Operation,
    pub(crate) started: Instant,
    pub(crate) caller: Arc<Caller>,
    /// The payer, if the caller calls for another one.
    pub(crate) payer: Payer,
    pub(crate) criticality: Criticality,
    pub(crate) namespace: Arc<NamespaceEntry>,
    pub(crate) context: Context,
    /// The retry ticket of the request. An invalid ticket is ignored.
    pub(crate) ticket: Option<BroughtTicket>,
}

impl Identified {
    /// Identifies the caller, and refuses a caller that may not make the request.
    pub(crate) async fn new(
        dispatcher: &Dispatcher,
        required: RequiredGrant<'_>,
        fields: &Fields<'_>,
        log: &mut RequestLog,
    ) -> Result<Self, RequestError> {
        dispatcher.check_in_flight()?;
        let (now, started) = (dispatcher.clock.wall(), log.started());
        let caller = caller(dispatcher, fields, now, started)?;
        log.called_by(&caller);
        let is_observed = required.operation == Operation::Usage
            && caller.is_allowed(Permission::Observe, required.namespace);
        if !is_observed {
            authorize(&caller, required.permission, required.namespace)?;
        }
        let claimed = fields.claimed_criticality()?;
        let criticality = criticality(required.operation, claimed, &caller);
        log.ranked(criticality, claimed.is_some_and(|tier| tier > criticality));
        let payer = Payer::read(fields, &caller, required.namespace)?;
        let ticket = fields.retry_ticket.and_then(|ticket| {
            let Dispatcher {
                ticket_key, quota, ..
            } = dispatcher;
            let brought = ticket_key.open(ticket, payer.name(&caller))?;
            let BroughtTicket::Issued(ticket) = brought else {
                return Some(brought);
            };
            let ticket = quota.ticket_in(ticket, dispatcher.home_time(), started);
            Some(BroughtTicket::Issued(ticket))
        });
        if fields.is_repeated()? {
            dispatcher.metrics.record_repeated(required.operation);
        }
        let context = context(dispatcher, fields, now, started)?;
        let namespace = match dispatcher.control.namespaces.find(required.namespace) {
            Ok(namespace) => namespace,
            Err(_) => Box::pin(dispatcher.control.find_anew(required.namespace)).await?,
        };
        log.named(&namespace);
        Ok(Self {
            operation: required.operation,
            started,
            caller,
            payer,
            criticality,
            namespace,
            context,
            ticket,
        })
    }

    /// Returns a caller as the payer of background writes in a namespace, at criticality sheddable. Its grants were
    /// checked before.
    pub fn in_background(
        dispatcher: &Dispatcher,
        caller: &str,
        namespace: Arc<NamespaceEntry>,
    ) -> Self {
        let (now, started) = (dispatcher.clock.wall(), dispatcher.clock.monotonic());
        let timeout = dispatcher.limits.default_timeout;
        Self {
            operation: Operation::BatchWrite,
            started,
            caller: Arc::new(Caller {
                id: CallerId::new(caller),
                grants: Vec::new(),
                criticality_max: Criticality::Sheddable,
            }),
            payer: Payer::default(),
            criticality: Criticality::Sheddable,
            namespace,
            context: Context {
                now,
                deadline: Deadline::after(started, timeout),
                timeout,
                is_timeout_named: false,
                freshness: Freshness::default(),
            },
            ticket: None,
        }
    }

    /// Returns the name of the caller that pays.
    pub(crate) fn payer_name(&self) -> &str {
        self.payer.name(&self.caller)
    }

    /// Returns whether the caller may see the use of the namespace by others.
    pub(crate) fn is_by_observer(&self) -> bool {
        let namespace = &self.namespace.info.name;
        self.caller.is_allowed(Permission::Observe, namespace)
    }
}

/// Identifies the caller, by records that are not too old for that.
pub fn caller(
    dispatcher: &Dispatcher,
    fields: &Fields<'_>,
    now: Timestamp,
    started: Instant,
) -> Result<Arc<Caller>, RequestError> {
    dispatcher.control.check_fresh(started)?;
    let authorization = fields.authorization.map(HeaderValue::as_bytes);
    let now = || dispatcher.control.time_at(now);
    Ok(dispatcher.control.tokens.authenticate(authorization, now)?)
}

/// Refuses a caller that holds no grant.
pub fn authorize(
    caller: &Caller,
    permission: Permission,
    namespace: &str,
) -> Result<(), RequestError> {
    if caller.is_allowed(permission, namespace) {
        return Ok(());
    }
    Err(RequestError::Forbidden {
        caller: caller.id.as_str().to_owned(),
        permission: permission.as_str(),
        namespace: namespace.to_owned(),
    })
}

/// Returns the tier that the caller claims, or the operation's default, but no higher than the caller's cap.
fn criticality(operation: Operation, claimed: Option<Criticality>, caller: &Caller) -> Criticality {
    let unmarked = match operation {
        Operation::Scan => Criticality::Sheddable,
        _ => Criticality::default(),
    };
    let tier = claimed.unwrap_or(unmarked);
    tier.min(caller.criticality_max)
}

/// Reads the deadline.
fn context(
    dispatcher: &Dispatcher,
    fields: &Fields<'_>,
    now: Timestamp,
    started: Instant,
) -> Result<Context, RequestError> {
    let named = fields.timeout()?;
    let timeout = named.unwrap_or(dispatcher.limits.default_timeout);
    Ok(Context {
        now,
        deadline: Deadline::after(started, timeout),
        timeout,
        is_timeout_named: named.is_some(),
        freshness: fields.freshness,
    })
}
