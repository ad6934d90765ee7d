//! Range: rows of a partition in order, page by page.

use std::pin::pin;
use std::sync::Arc;

use umbo_store::{RangeRequest, SortRange};
use umbo_telemetry::trace::Verb;

use super::ask_store;
use crate::classify::Context;
use crate::cursor::CursorError;
use crate::decode::RangeAsk;
use crate::encode::Answer;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::namespaces::NamespaceEntry;
use crate::page::{PageWalk, Source};
use crate::pod::Dispatcher;
use crate::shield;

pub(crate) async fn fetch(
    pod: &Arc<Dispatcher>,
    namespace: &NamespaceEntry,
    ask: RangeAsk,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<Answer, Failure> {
    exchange.verb(Verb::Locate);
    let mut selectors = digest(&ask.range, ask.reverse);
    let (mut range, mut reverse) = (ask.range, ask.reverse);
    if let Some(text) = &ask.cursor {
        let cursor = pod.cursor_key.open_range(text)?;
        let is_own = cursor.namespace == namespace.id
            && cursor.partition == ask.partition.as_bytes()
            && (!ask.is_selective || cursor.selectors == selectors);
        if !is_own {
            return Err(CursorError::Foreign.into());
        }
        (range, reverse, selectors) = (cursor.rest, cursor.reverse, cursor.selectors);
    }
    let request = RangeRequest {
        namespace: namespace.id,
        partition: ask.partition,
        range,
        reverse,
        rows_max: 0,
        bytes_max: 0,
        keys_only: ask.bounds.keys_only,
    };
    let deadline = context.is_timeout_named.then_some(context.deadline);
    let source = Source::Range { request, selectors };
    let mut walk = PageWalk::new(
        pod,
        source,
        ask.bounds,
        ask.layout,
        exchange.call(context),
        deadline,
    );
    let rows = match walk.next_range() {
        Some(request) => {
            let page = shield::page(pod, &request, context, exchange).await?;
            walk.take_up(page)
        }
        // No row can lie between these bounds.
        None => ask_store(context, exchange, pin!(walk.read())).await?,
    };
    let first = walk.encode(&rows, exchange);
    Ok(Answer::Page {
        walk: Box::new(walk),
        first,
    })
}

/// Returns a digest of what was asked for, to tell whether a cursor belongs to it.
fn digest(range: &SortRange, reverse: bool) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for part in [Some(&range.start), range.end.as_ref()] {
        let part = part.map_or(&b""[..], |bytes| &bytes[..]);
        hasher
            .update(&(part.len() as u64).to_le_bytes())
            .update(part);
    }
    hasher.update(&[u8::from(range.end.is_some()), u8::from(reverse)]);
    let bytes = *hasher.finalize().as_bytes();
    u64::from_le_bytes(std::array::from_fn(|at| bytes[at]))
}
