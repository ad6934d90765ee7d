//! Get: one row by its key. Hot path.

use std::sync::Arc;

use umbo_quota::Work;
use umbo_telemetry::trace::Verb;
use umbo_types::Version;

use crate::classify::Context;
use crate::decode::GetAsk;
use crate::encode::Answer;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::fields::Tags;
use crate::namespaces::NamespaceEntry;
use crate::pod::Dispatcher;
use crate::shield;

pub(crate) async fn fetch(
    pod: &Arc<Dispatcher>,
    namespace: &NamespaceEntry,
    ask: GetAsk,
    context: &Context,
    exchange: &mut Exchange,
) -> Result<Answer, Failure> {
    exchange.verb(Verb::Locate);
    let row = shield::row(pod, namespace.id, &ask.key, context, exchange).await?;
    exchange.settle(Work {
        rows: u64::from(row.is_some()),
        read_bytes: row.as_ref().map_or(0, |row| {
            (ask.key.sort.as_bytes().len() + row.value.bytes.len()) as u64
        }),
        reads: 1,
        ..Work::default()
    });
    let current = row.as_ref().map(|row| row.version);
    // RFC 9110, section 13.2.2: If-Match is looked at before If-None-Match.
    if let Some(tags) = &ask.if_match
        && !is_matched(tags, current, false)
    {
        return Err(Failure::PreconditionFailed { current });
    }
    let row = row.ok_or(Failure::KeyNotFound)?;
    match &ask.if_none_match {
        Some(tags) if is_matched(tags, current, true) => Ok(Answer::NotModified(row)),
        _ => Ok(Answer::Row {
            row,
            is_head: ask.is_head,
        }),
    }
}

/// Says whether any tag matches; weak tags count only in a weak comparison.
fn is_matched(tags: &Tags, current: Option<Version>, is_weak: bool) -> bool {
    current.is_some_and(|current| match tags {
        Tags::Any => true,
        Tags::Versions { strong, weak } => {
            strong.contains(&current) || (is_weak && weak.contains(&current))
        }
    })
}
