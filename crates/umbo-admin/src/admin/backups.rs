//! Backups: the states of all shards with one revision of the records, the pieces of each, and the last completed ones.
//!
//! Needs a grant of `admin` on `*`: a backup holds the rows of everybody, and secrets. Nothing is kept here between
//! requests, so that any dispatcher answers any of them; the completed backups are a row at the home.

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use umbo_api::backup::{BackupBegun, BackupEnd, BackupList, CompletedBackup};
use umbo_dispatcher::Dispatcher;
use umbo_http::RequestError;
use umbo_http::query::Query;
use umbo_store::{BackupRequest, CallContext, Outcome, StoreError};
use umbo_types::ShardId;

use super::{ADMIN_BODY_LEN_MAX, DispatcherState, full_admin, full_observer, json_body};
use crate::admin_error::AdminError;
use crate::fleet::{PresenceRows, known_backups};
use crate::home_rows::now;

/// How often the states of the shards are taken again because the records have changed meanwhile.
const TRIES: usize = 16;

/// Begins the backup of a shard in place of a piece.
const BEGIN: u32 = 0;

/// Longest location, in bytes: a row has a few of them.
const LOCATION_LEN_MAX: usize = 1_024;

/// Lists the last completed backups, as the home has told them last.
pub(crate) async fn list(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<BackupList>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let backups = known_backups(&dispatcher).clone();
    Ok(Json(BackupList { backups }))
}

/// Takes note of a completed backup, so that all dispatchers know its age.
pub(crate) async fn end(
    State(dispatcher): DispatcherState,
    Path(backup): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<CompletedBackup>, AdminError> {
    let caller = full_admin(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let number = number(&backup)?;
    let end: BackupEnd = json_body(&dispatcher, &headers, body, ADMIN_BODY_LEN_MAX).await?;
    // Terminals obey control characters.
    let has_controls = end.location.contains(char::is_control);
    if has_controls || end.location.is_empty() || end.location.len() > LOCATION_LEN_MAX {
        let expected =
            format!("'location' has 1 to {LOCATION_LEN_MAX} bytes, without control characters");
        return Err(RequestError::BadBody(expected).into());
    }
    let completed = CompletedBackup {
        backup: format!("{number:016x}"),
        ended_ms: now(&dispatcher).as_millis(),
        by: caller.id.as_str().to_owned(),
        location: end.location,
        rows: end.rows,
        bytes: end.bytes,
        seconds: end.seconds,
    };
    let all = PresenceRows::new(&dispatcher)
        .add_backup(&completed)
        .await?;
    *known_backups(&dispatcher) = all;
    Ok(Json(completed))
}

/// Takes the state of every shard. A request that is repeated begins another backup.
pub(crate) async fn begin(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<BackupBegun>, AdminError> {
    full_admin(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    if !dispatcher.store.capabilities().backups {
        let text = "its engine keeps backups of its own, and Umbo makes none; 'umbo kv export' copies a namespace";
        return Err(RequestError::NotInEngine(text).into());
    }
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
    dispatcher: &Dispatcher,
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
