//! Reads: the call of the store for each, and its outcome.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use umbo_protocol::{Answer, Ask, NodeError, Outcome};
use umbo_store::{
    BackupRequest, CallContext, ChunkRequest, RangeRequest, ScanRequest, Store, StoreError,
};
use umbo_types::{Key, NamespaceId, Row, ShardId, Value, Version, limits};

use crate::ownership::Ownership;

/// Refusal of a multi-get whose rows a dispatcher of version 1 takes only in parts.
const ONLY_IN_PARTS: &str =
    "its rows are too long for one answer, and the dispatcher is of an older release: upgrade it";

/// A read of rows of one shard, a chunk or a piece.
#[derive(Debug, Clone)]
pub(crate) enum Read {
    Get(NamespaceId, Key),
    Chunk(Key, Box<ChunkRequest>),
    Backup(BackupRequest),
    MultiGet(NamespaceId, Vec<Key>),
    Range(RangeRequest),
    Scan(ShardId, ScanRequest),
}

impl Read {
    /// Returns the read that is asked for, or any other request as it came.
    #[expect(
        clippy::result_large_err,
        reason = "any other request is handed back as it came, and goes on"
    )]
    pub(crate) fn of(ask: Ask) -> Result<Self, Ask> {
        match ask {
            Ask::Get(namespace, key) => Ok(Self::Get(namespace, key)),
            Ask::Chunk(key, request) => Ok(Self::Chunk(key, request)),
            Ask::Backup(request) => Ok(Self::Backup(request)),
            Ask::Range(mut request) => {
                request.rows_max = request.rows_max.min(limits::CHUNK_ROWS_MAX);
                request.bytes_max = request.bytes_max.min(limits::CHUNK_BYTES_MAX);
                Ok(Self::Range(request))
            }
            Ask::MultiGet(namespace, keys) => Ok(Self::MultiGet(namespace, keys)),
            Ask::Scan(shard, mut request) => {
                request.rows_max = request.rows_max.min(limits::CHUNK_ROWS_MAX);
                request.bytes_max = request.bytes_max.min(limits::CHUNK_BYTES_MAX);
                Ok(Self::Scan(shard, request))
            }
            other => Err(other),
        }
    }

    /// Returns the shard that is read, or why it is not served here.
    pub(crate) fn locate(&self, ownership: &Ownership) -> Result<ShardId, NodeError> {
        match self {
            Self::Get(namespace, key) => ownership.locate(*namespace, &key.partition),
            Self::Chunk(key, request) => ownership.locate(request.namespace, &key.partition),
            Self::Backup(request) => ownership.check(request.shard).map(|()| request.shard),
            Self::MultiGet(namespace, keys) => {
                ownership.locate_all(*namespace, keys.iter().map(|key| &key.partition))
            }
            Self::Range(request) => ownership.locate(request.namespace, &request.partition),
            Self::Scan(shard, request) => {
                let checked = ownership.check_for(request.namespace, *shard);
                checked.map(|()| *shard)
            }
        }
    }

    /// Asks the store.
    pub(crate) async fn run(
        &self,
        store: &dyn Store,
        call: &CallContext,
        shard: ShardId,
    ) -> Outcome {
        match self {
            Self::Get(namespace, key) => {
                outcome(store.get(call, shard, *namespace, key).await, Outcome::Row)
            }
            Self::MultiGet(namespace, keys) => {
                let rows = store.multi_get(call, shard, *namespace, keys).await;
                let rows = rows.into_iter().map(|row| row.map_err(Into::into));
                Outcome::MultiGot(rows.collect())
            }
            Self::Chunk(key, request) => {
                let chunk = store.chunk(call, shard, key, request).await;
                outcome(chunk, |chunk| Outcome::Row(chunk.map(chunk_row)))
            }
            Self::Backup(request) => {
                let piece = store.backup(call, request).await;
                outcome(piece, |piece| Outcome::Row(piece.map(chunk_row)))
            }
            Self::Range(request) => outcome(store.range(call, shard, request).await, Outcome::Page),
            Self::Scan(_, request) => {
                outcome(store.scan(call, shard, request).await, Outcome::Scanned)
            }
        }
    }

    /// Calls a store that answers at once; pending if it does not this time.
    pub(crate) fn run_now(
        &self,
        store: &dyn Store,
        (call, shard): (&CallContext, ShardId),
        context: &mut Context<'_>,
    ) -> Poll<Outcome> {
        std::pin::pin!(self.run(store, call, shard)).poll(context)
    }

    /// Returns the number of rows that were read for an outcome, and their bytes of keys and values. An absent
    /// row was read too.
    pub(crate) fn size(&self, outcome: &Outcome) -> (u64, u64) {
        match (self, outcome) {
            (Self::Get(_, key), Outcome::Row(Some(row))) => (1, row_len(key, row)),
            (Self::Chunk(..) | Self::Backup(_), Outcome::Row(Some(row))) => {
                (0, row.value.bytes.len() as u64)
            }
            (Self::Get(..), Outcome::Row(None)) => (1, 0),
            (Self::MultiGet(_, keys), Outcome::MultiGot(rows)) => {
                let read = keys.iter().zip(rows).filter_map(|(key, row)| {
                    let row = row.as_ref().ok()?.as_ref();
                    Some(row.map_or(0, |row| row_len(key, row)))
                });
                read.fold((0, 0), |(rows, bytes), len| (rows + 1, bytes + len))
            }
            (_, Outcome::Page(page)) => (page.touched.rows, page.touched.bytes),
            (_, Outcome::Scanned(page)) => (page.touched.rows, page.touched.bytes),
            _ => (0, 0),
        }
    }

    /// Makes the answer to a request from its outcome. `takes_short` says whether the dispatcher takes fewer rows than it
    /// has asked for.
    pub(crate) fn answer(
        &self,
        id: u64,
        service_time: Duration,
        outcome: Outcome,
        takes_short: bool,
    ) -> Answer {
        let (rows, bytes) = self.size(&outcome);
        let outcome = match (self, outcome) {
            (Self::MultiGet(_, keys), Outcome::MultiGot(rows))
                if rows.len() < keys.len() && !takes_short =>
            {
                Outcome::Failed(NodeError::BadRequest(ONLY_IN_PARTS.to_owned()))
            }
            (_, outcome) => outcome,
        };
        Answer {
            id,
            service_time,
            busy_time: service_time,
            has_more: false,
            rows,
            bytes,
            outcome,
        }
    }
}

/// Returns a chunk, or a piece of a backup, as the row that it is answered as: its bytes are the value.
fn chunk_row(bytes: bytes::Bytes) -> Row {
    Row {
        value: Value {
            bytes,
            ..Value::default()
        },
        version: Version(0),
        expires_at: None,
    }
}

/// Returns the bytes of a row with both of its keys.
pub(crate) fn row_len(key: &Key, row: &Row) -> u64 {
    let keys = key.partition.as_bytes().len() + key.sort.as_bytes().len();
    (keys + row.value.bytes.len()) as u64
}

pub(crate) fn outcome<T>(result: Result<T, StoreError>, make: fn(T) -> Outcome) -> Outcome {
    result.map_or_else(failed, make)
}

pub(crate) fn failed(error: StoreError) -> Outcome {
    Outcome::Failed(error.into())
}

/// Returns the time since `begun`.
pub(crate) fn since(begun: Instant, now: Instant) -> Duration {
    now.saturating_duration_since(begun)
}
