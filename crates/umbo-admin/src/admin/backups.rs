//! Backups: the states of all shards with one revision of the records, and the pieces of each.
//!
//! Needs a grant of `admin` on `*`: a backup holds the rows of everybody, and secrets. Nothing is kept here between
//! requests, so that any dispatcher answers any of them.

use axum::Json;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use umbo_api::backup::BackupBegun;
use umbo_http::RequestError;
use umbo_http::query::Query;
use umbo_store::{BackupRequest, CallContext, Outcome, StoreError};
use umbo_types::ShardId;

use super::{DispatcherState, full_admin};
use crate::admin_error::AdminError;

/// How often the states of the shards are taken again because the records have changed meanwhile.
const TRIES: usize = 16;

/// Begins the backup of a shard in place of a piece.
const BEGIN: u32 = 0;

/// Takes the state of every shard. A request that is repeated begins another backup.
pub(crate) async fn begin(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<BackupBegun>, AdminError> {
    full_admin(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let shards = dispatcher.shard_map.shards() as u16;
    let mut records = dispatcher.control.records_at_home().await?;
    for _ in 0..TRIES {
        // Another number each time, so that no earlier state is taken for this one.
        let number = fastrand::u64(..);
        for shard in (0..shards).map(ShardId) {
            piece(&dispatcher, number, shard, BEGIN).await?;
        }
        let before = records.revision;
        records = dispatcher.control.records_at_home().await?;
        if records.revision == before {
            return Ok(Json(BackupBegun {
                backup: format!("{number:016x}"),
                shards,
                epoch: records.revision.epoch,
                revision: records.revision.number,
                records: STANDARD.encode(&records.content),
            }));
        }
    }
    let reason = format!("Umbo's own records changed {TRIES} times while a backup was begun");
    let unavailable = StoreError::Unavailable {
        shard: dispatcher.store.home().shard,
        reason,
        outcome: Outcome::NotApplied,
    };
    Err(unavailable.into())
}

/// Answers with a piece of a shard, with 204 beyond the end, and with 404 where the backup is gone.
pub(crate) async fn read(
    State(dispatcher): DispatcherState,
    Path((backup, shard, nth)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, AdminError> {
    full_admin(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let shard = shard.parse().map_err(|_| RequestError::RouteNotFound)?;
    let nth = nth.parse().map_err(|_| RequestError::RouteNotFound)?;
    if usize::from(shard) >= dispatcher.shard_map.shards() || nth == BEGIN {
        return Err(RequestError::RouteNotFound.into());
    }
    let found = piece(&dispatcher, number(&backup)?, ShardId(shard), nth).await?;
    Ok(match found {
        Some(piece) if piece.is_empty() => return Err(RequestError::RouteNotFound.into()),
        Some(piece) => ([(CONTENT_TYPE, "application/octet-stream")], piece).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

fn number(text: &str) -> Result<u64, RequestError> {
    let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u64::from_str_radix(text, 16).ok().filter(|_| is_hex);
    number.ok_or(RequestError::RouteNotFound)
}

async fn piece(
    dispatcher: &umbo_dispatcher::Dispatcher,
    backup: u64,
    shard: ShardId,
    piece: u32,
) -> Result<Option<bytes::Bytes>, StoreError> {
    let request = BackupRequest {
        shard,
        backup,
        piece,
    };
    let store = &dispatcher.store;
    store.backup(&CallContext::internal(), &request).await
}
