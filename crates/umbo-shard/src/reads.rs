//! Reads: the call of the store for each, and its outcome.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use umbo_protocol::{Answer, Ask, Outcome};
use umbo_store::{
    BackupRequest, CallContext, ChunkRequest, RangeRequest, ScanRequest, Store, StoreError,
};
use umbo_types::{Key, NamespaceId, Row, Value, Version, limits};

/// A read of one row, chunk or piece.
#[derive(Debug, Clone)]
pub(crate) enum Read {
    Get(NamespaceId, Key),
    Chunk(Key, Box<ChunkRequest>),
    Backup(BackupRequest),
    Range(RangeRequest),
    Scan(ScanRequest),
}

impl Read {
    /// Returns the read that is asked for; none where it is none, or one of many rows.
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
            Ask::Scan(mut request) => {
                request.rows_max = request.rows_max.min(limits::CHUNK_ROWS_MAX);
                request.bytes_max = request.bytes_max.min(limits::CHUNK_BYTES_MAX);
                Ok(Self::Scan(request))
            }
            other => Err(other),
        }
    }

    /// Asks the store.
    pub(crate) async fn run(&self, store: &dyn Store, call: &CallContext) -> Outcome {
        match self {
            Self::Get(namespace, key) => {
                outcome(store.get(call, *namespace, key).await, Outcome::Row)
            }
            Self::Chunk(key, request) => {
                let chunk = store.chunk(call, key, request).await;
                outcome(chunk, |chunk| Outcome::Row(chunk.map(chunk_row)))
            }
            Self::Backup(request) => {
                let piece = store.backup(call, request).await;
                outcome(piece, |piece| Outcome::Row(piece.map(chunk_row)))
            }
            Self::Range(request) => outcome(store.range(call, request).await, Outcome::Page),
            Self::Scan(request) => outcome(store.scan(call, request).await, Outcome::Scanned),
        }
    }

    /// Calls a store that answers at once; pending if it does not this time.
    pub(crate) fn run_now(
        &self,
        store: &dyn Store,
        call: &CallContext,
        context: &mut Context<'_>,
    ) -> Poll<Outcome> {
        std::pin::pin!(self.run(store, call)).poll(context)
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
            (_, Outcome::Page(page)) => (page.touched.rows, page.touched.bytes),
            (_, Outcome::Scanned(page)) => (page.touched.rows, page.touched.bytes),
            _ => (0, 0),
        }
    }

    /// Makes the answer to a request from its outcome.
    pub(crate) fn answer(&self, id: u64, service_time: Duration, outcome: Outcome) -> Answer {
        let (rows, bytes) = self.size(&outcome);
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
