//! The life of a request, from top to bottom.
//!
//! Hot path. Ten verbs, the same as in spans, metrics and documents: decode, classify, price,
//! admit, locate, shield, wait, fetch, settle, encode. Helpers answer, this function decides.
//! What is not built yet has no line here: wait comes before fetch. A request is admitted before its
//! body is read, and once more where the shards are known. From locate to fetch is the business of
//! each operation; single reads go through the shield. Settling is the exchange's, also on drop, so
//! that no exit forgets it.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body::Body;
use umbo_telemetry::trace::Verb;

use crate::classify;
use crate::decode::{self, Ask, Route};
use crate::edge::body::ReplyBody;
use crate::encode::{self, Answer};
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::fields::Fields;
use crate::operation::{
    batch_write, delete_range, explain, get, multi_get, range, scan, usage, write,
};
use crate::payer::Payer;
use crate::pod::Dispatcher;
use crate::price;
use crate::shield;

/// Serves a request of the data plane.
pub(crate) async fn run<B>(
    pod: &Arc<Dispatcher>,
    route: Route<'_>,
    head: &Parts,
    body: B,
    origin: u64,
    started: Instant,
) -> Response<ReplyBody>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let fields = Fields::read(&head.headers);
    let mut exchange = Exchange::begin(pod, route.operation, &fields, origin, started);
    let outcome = serve(pod, &route, head, &fields, body, &mut exchange, started).await;
    exchange.verb(Verb::Encode);
    encode::reply(exchange, outcome)
}

async fn serve<B>(
    pod: &Arc<Dispatcher>,
    route: &Route<'_>,
    head: &Parts,
    fields: &Fields<'_>,
    body: B,
    exchange: &mut Exchange,
    started: Instant,
) -> Result<Answer, Failure>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    exchange.check_in_flight()?;

    exchange.verb(Verb::Classify);
    let now = pod.clock.wall();
    let caller = classify::caller(pod, fields, now)?;
    classify::authorize(&caller, route.verb(), route.namespace)?;
    let criticality = classify::criticality(route.operation, fields, &caller);
    let payer = Payer::read(fields, &caller, route.namespace);
    exchange.classified(caller);
    exchange.ranked(criticality?);
    exchange.paid_by(payer?);
    if fields.is_repeated()? {
        pod.metrics.record_repeated(route.operation);
    }

    exchange.verb(Verb::Decode);
    let context = classify::context(pod, fields, now, started)?;
    let ask = decode::ask(route, &head.uri, fields, now)?;
    let namespace = match pod.namespaces.find(route.namespace) {
        Ok(namespace) => namespace,
        Err(_) => Box::pin(pod.namespaces.find_anew(route.namespace)).await?,
    };
    exchange.named(&namespace);
    shield::check_blocked(pod, namespace.id, &ask, exchange)?;

    exchange.verb(Verb::Price);
    exchange.priced(price::known(&ask, &body.size_hint()));

    exchange.verb(Verb::Admit);
    if route.operation.has_price() {
        exchange.admit()?;
    }

    // A future is as large as the largest it may await, and is moved for every request: all but the
    // point get are boxed.
    match ask {
        Ask::Get(ask) => get::fetch(pod, &namespace, ask, &context, exchange).await,
        Ask::Write(ask) => {
            let announced = body.size_hint().lower();
            let shard = write::locate(pod, &namespace, &ask, announced, &context, exchange)?;
            let work = write::fetch(pod, &namespace, shard, ask, body, &context, exchange);
            Box::pin(work).await
        }
        Ask::Range(ask) => Box::pin(range::fetch(pod, &namespace, ask, &context, exchange)).await,
        Ask::DeleteRange(ask) => {
            Box::pin(delete_range::fetch(
                pod, &namespace, ask, &context, exchange,
            ))
            .await
        }
        Ask::MultiGet => {
            Box::pin(multi_get::fetch(pod, &namespace, body, &context, exchange)).await
        }
        Ask::BatchWrite(ask) => {
            let work = batch_write::fetch(pod, &namespace, ask, body, &context, exchange);
            Box::pin(work).await
        }
        Ask::Explain => Box::pin(explain::fetch(pod, &namespace, body, &context, exchange)).await,
        Ask::Usage => Box::pin(usage::fetch(pod, &namespace, exchange)).await,
        Ask::Scan(layout) => {
            Box::pin(scan::fetch(
                pod, &namespace, layout, body, &context, exchange,
            ))
            .await
        }
    }
}
