//! The life of a request of the data plane, from top to bottom: ten phases, the same for every operation.
//!
//! Hot path. The phases have the same names in spans, metrics and documents. Helpers answer, `serve_as`
//! decides. Each stage is made of the one before (`Identified`, then `Admitted`, then `Located`), so that a
//! wrong order does not compile. The log and the charge are guards: no exit forgets to count or to settle.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

use http::Response;
use http::request::Parts;
use umbo_control::ControlError;
use umbo_edge::body::{ArrivingBody, ReplyBody};
use umbo_edge::memory::ConnectionAnswers;
use umbo_http::decode::Route;
use umbo_http::{Fields, RequestError};
use umbo_store::StoreError;
use umbo_telemetry::trace::Phase;
use umbo_types::{NamespaceId, Operation};

use crate::charge::Charge;
use crate::dispatcher::Dispatcher;
use crate::operation::Operate;
use crate::operation::batch_write::BatchWrite;
use crate::operation::body::RequestBody;
use crate::operation::delete_range::DeleteRange;
use crate::operation::explain::Explain;
use crate::operation::get::Get;
use crate::operation::multi_get::MultiGet;
use crate::operation::range::RangeRead;
use crate::operation::scan::Scan;
use crate::operation::usage::Usage;
use crate::operation::write::Write;
use crate::phase::admit::admit;
use crate::phase::identify::{Identified, RequiredGrant};
use crate::phase::read_through;
use crate::reply::{Reply, refuse, reply};
use crate::request_log::RequestLog;

/// A request that is being served.
pub type Serving<'a> = Pin<Box<dyn Future<Output = Response<ReplyBody>> + Send + 'a>>;

/// Serves a request of the data plane. The future is made on the heap and never moved: it is large, and would be copied
/// with everything around it.
pub fn serve<'a, B: ArrivingBody + Send + 'a>(
    dispatcher: &'a Arc<Dispatcher>,
    route: Route<'a>,
    head: &'a Parts,
    body: B,
    answers: Arc<ConnectionAnswers>,
    started: Instant,
) -> Serving<'a> {
    macro_rules! serve_as {
        ($operation:ty) => {{
            let place = Box::new_uninit();
            let request =
                serve_as::<$operation, B>(dispatcher, route, head, body, answers, started);
            let request = Box::write(place, request);
            Box::into_pin(request)
        }};
    }
    match route.operation {
        Operation::Get => serve_as!(Get),
        Operation::Put | Operation::Delete => serve_as!(Write),
        Operation::Range => serve_as!(RangeRead),
        Operation::DeleteRange => serve_as!(DeleteRange),
        Operation::MultiGet => serve_as!(MultiGet),
        Operation::BatchWrite => serve_as!(BatchWrite),
        Operation::Scan => serve_as!(Scan),
        Operation::Explain => serve_as!(Explain),
        Operation::Usage => serve_as!(Usage),
        // No route of the data plane is one of these.
        Operation::Load | Operation::Admin | Operation::Service => {
            let fields = Fields::read(&head.headers);
            let log = RequestLog::begin(dispatcher, route.operation, &fields, answers, started);
            Box::pin(std::future::ready(refuse(
                log,
                &RequestError::RouteNotFound,
            )))
        }
    }
}

/// The ten phases.
async fn serve_as<O: Operate, B: ArrivingBody>(
    dispatcher: &Arc<Dispatcher>,
    route: Route<'_>,
    head: &Parts,
    body: B,
    answers: Arc<ConnectionAnswers>,
    started: Instant,
) -> Response<ReplyBody> {
    let fields = Fields::read(&head.headers);
    let mut log = RequestLog::begin(dispatcher, route.operation, &fields, answers, started);

    // 1. Classify: who calls, whether they may, how critical it is and until when.
    log.phase(Phase::Classify);
    let identified = Identified::new(
        dispatcher,
        RequiredGrant::of_route(&route),
        &fields,
        &mut log,
    )
    .await;
    let identified = match identified {
        Ok(identified) => identified,
        Err(error) => return refuse(log, &error),
    };
    let mut charge = Charge::new(dispatcher, identified);
    let mut body = RequestBody::new(dispatcher, || charge.caller_hash(), body, &fields);
    let mut is_repeated = false;
    let outcome: Result<Reply, RequestError> = loop {
        let outcome = pin!(async {
            // 2. Decode: the request without its body.
            log.phase(Phase::Decode);
            fields.check()?;
            let mut operation = O::decode(&route, &head.uri, &fields)?;
            // Rows of a batch are checked one by one, ranges with their selectors.
            if let Some(key) = operation.key() {
                let identified = charge.identified();
                let (namespace, payer) = (identified.namespace.id, identified.payer_name());
                read_through::check_blocked(dispatcher, namespace, key, payer)?;
            }

            // 3. Price: the estimate, from the hint of the work.
            log.phase(Phase::Price);
            let hint = operation.hint(&body.size_hint());

            // 4. Admit: every quota that counts the payer is debited.
            log.phase(Phase::Admit);
            let mut admitted = admit(dispatcher, &mut log, &mut charge, hint)?;

            // 5. Locate: the shards, with their quotas; the body.
            admitted.log.phase(Phase::Locate);
            let mut located = operation.locate(&mut admitted, &mut body).await?;

            // 6. Shield: a hot key is answered from the local cache. 7. Wait: for a permit of the shard, or
            // the request is shed. 8. Fetch: the store call, within the deadline.
            let fetched = operation.fetch(&mut located).await?;

            // 9. Settle: the actual cost of the work is charged.
            operation.settle(fetched, &mut located)
        })
        .await;
        let Some(id) = gone(&outcome) else {
            break outcome;
        };
        // The namespace, or its dataset, was removed unknown to this dispatcher. If another namespace has its name now,
        // the request is repeated there, unless the bytes of the body were removed too.
        if let Err(error) = find_again(&route, id, &mut is_repeated, &mut log, &mut charge).await {
            break Err(error);
        }
        if !body.is_whole_for(charge.identified().namespace.id) {
            break outcome;
        }
    };
    drop(body);

    // 10. Encode: outcome → status, header fields, body.
    log.phase(Phase::Encode);
    let (response, rest) = reply(&mut log, &mut charge, outcome);
    match rest {
        None => response,
        Some(rest) => rest.follow(response, log, charge),
    }
}

/// Returns the namespace that was removed according to a shard.
const fn gone(outcome: &Result<Reply, RequestError>) -> Option<NamespaceId> {
    match outcome {
        Err(RequestError::Store(StoreError::NamespaceGone { namespace, .. })) => Some(*namespace),
        _ => None,
    }
}

/// Finds the namespace that has the name of a removed one now, once. Nothing of the first attempt lasts: rows that it
/// wrote in some shards belong to the removed namespace.
async fn find_again(
    route: &Route<'_>,
    removed: NamespaceId,
    is_repeated: &mut bool,
    log: &mut RequestLog,
    charge: &mut Charge,
) -> Result<(), RequestError> {
    if std::mem::replace(is_repeated, true) {
        // Removed again meanwhile.
        let name = route.namespace.to_owned();
        return Err(ControlError::NamespaceNotFound { name }.into());
    }
    let control = &log.dispatcher.control;
    let namespace = Box::pin(control.find_after_removal(removed, route.namespace)).await?;
    log.named(&namespace);
    log.located(None);
    charge.rename(namespace);
    Ok(())
}
