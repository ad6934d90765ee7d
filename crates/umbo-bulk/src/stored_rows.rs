//! Rows of a load's own, read back.
//!
//! Requests read them and tell their errors to clients. The runner reads them too, and its errors make it wait. So
//! the source of the rows names its error.

use async_trait::async_trait;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use umbo_dispatcher::plane::OwnRows;
use umbo_http::RequestError;
use umbo_store::{Page, RangeRequest, RowRef, SortRange};
use umbo_types::{Key, NamespaceId, PartitionKey, Version, limits};

use umbo_loads::limits::SEGMENT_LEN;
use umbo_loads::{LoadRecord, layout};

/// A source of rows of a load.
#[async_trait]
pub(crate) trait RowSource: Sync {
    /// Why rows cannot be read.
    type Error: Send;

    /// Reads one chunk of a range.
    async fn range(&self, request: &RangeRequest) -> Result<Page, Self::Error>;

    /// Makes the error of a damaged row.
    fn damaged(&self, what: &str) -> Self::Error;

    /// Charges a part of a load for having inflated to `len` bytes so far. Returns once it may go on.
    async fn inflated(&self, _load: &LoadRecord, _part: u16, _len: u64) -> Result<(), Self::Error> {
        Ok(())
    }
}

#[async_trait]
impl RowSource for OwnRows {
    type Error = RequestError;

    async fn range(&self, request: &RangeRequest) -> Result<Page, RequestError> {
        Self::range(self, request).await
    }

    fn damaged(&self, what: &str) -> RequestError {
        RequestError::Internal(format!("a record of a load cannot be read: {what}"))
    }
}

/// Returns a request for the rows of a partition.
pub(crate) fn whole(
    namespace: NamespaceId,
    partition: PartitionKey,
    range: SortRange,
) -> RangeRequest {
    RangeRequest {
        namespace,
        partition,
        range,
        reverse: false,
        rows_max: limits::CHUNK_ROWS_MAX,
        bytes_max: limits::CHUNK_BYTES_MAX,
        keys_only: false,
    }
}

/// Calls `take` with each row of a request, chunk after chunk. The chunks are not one snapshot.
pub(crate) async fn all_rows<S: RowSource>(
    source: &S,
    mut request: RangeRequest,
    mut take: impl FnMut(RowRef<'_>) + Send,
) -> Result<(), S::Error> {
    loop {
        let page = source.range(&request).await?;
        page.rows.iter().for_each(&mut take);
        let Some(last) = page.resume_after else {
            return Ok(());
        };
        request.range = request.range.beyond(&last, request.reverse);
    }
}

/// Reads the rows of a partition of a report, each about a part.
pub(crate) async fn read_json_rows<S: RowSource, T: DeserializeOwned + Send>(
    source: &S,
    report: NamespaceId,
    name: &str,
) -> Result<Vec<(u16, T)>, S::Error> {
    read_json_rows_from(source, report, name, 0).await
}

/// Reads the rows of a partition of a report from a part on, each about a part.
pub(crate) async fn read_json_rows_from<S: RowSource, T: DeserializeOwned + Send>(
    source: &S,
    report: NamespaceId,
    name: &str,
    from: u16,
) -> Result<Vec<(u16, T)>, S::Error> {
    let range = SortRange {
        start: Bytes::copy_from_slice(&from.to_be_bytes()),
        end: None,
    };
    let request = whole(report, layout::report_partition(name), range);
    let (mut rows, mut damaged) = (Vec::new(), false);
    all_rows(source, request, |row| {
        let part = layout::part_of(row.sort);
        match part.zip(serde_json::from_slice(row.value).ok()) {
            Some(found) => rows.push(found),
            None => damaged = true,
        }
    })
    .await?;
    if damaged {
        return Err(source.damaged(name));
    }
    Ok(rows)
}

/// Reads a row, with its version.
pub(crate) async fn read_row<S: RowSource>(
    source: &S,
    namespace: NamespaceId,
    key: &Key,
) -> Result<Option<(Bytes, Version)>, S::Error> {
    let start = Bytes::copy_from_slice(key.sort.as_bytes());
    let only = SortRange {
        end: Some([key.sort.as_bytes(), &[0]].concat().into()),
        start,
    };
    let mut found = None;
    all_rows(
        source,
        whole(namespace, key.partition.clone(), only),
        |row| {
            found = Some((Bytes::copy_from_slice(row.value), row.version));
        },
    )
    .await?;
    Ok(found)
}

/// Reads a row that is JSON, with its version.
pub(crate) async fn read_json<S: RowSource, T: DeserializeOwned>(
    source: &S,
    namespace: NamespaceId,
    key: &Key,
) -> Result<Option<(T, Version)>, S::Error> {
    let Some((content, version)) = read_row(source, namespace, key).await? else {
        return Ok(None);
    };
    match serde_json::from_slice(&content) {
        Ok(read) => Ok(Some((read, version))),
        Err(_) => Err(source.damaged("a row is not JSON")),
    }
}

/// Returns the number of stored bytes of an upload, up to the first gap.
pub(crate) async fn kept_len<S: RowSource>(
    source: &S,
    content: NamespaceId,
    upload: u64,
) -> Result<u64, S::Error> {
    let mut kept = 0;
    loop {
        let segment = layout::segment(upload, kept);
        let mut request = whole(content, segment, SortRange::default());
        request.keys_only = true;
        let begun = kept;
        all_rows(source, request, |row| {
            if let Some((start, end)) = layout::piece_bounds(row.sort)
                && start <= kept
            {
                kept = kept.max(end);
            }
        })
        .await?;
        let is_whole = kept > begun && kept.is_multiple_of(SEGMENT_LEN);
        if !is_whole {
            return Ok(kept);
        }
    }
}

/// Reads the bytes of an upload from an offset to the end of their stored row. Returns `None` if they are missing.
pub(crate) async fn read_piece<S: RowSource>(
    source: &S,
    content: NamespaceId,
    upload: u64,
    offset: u64,
) -> Result<Option<Bytes>, S::Error> {
    let range = SortRange {
        start: Bytes::new(),
        end: Some(layout::piece_from(offset + 1)),
    };
    let mut request = whole(content, layout::segment(upload, offset), range);
    // The last row that begins at or before the offset is nearly always the one; a short one of an upload that broke
    // off may stand between.
    (request.reverse, request.rows_max) = (true, 1);
    loop {
        let page = source.range(&request).await?;
        let held = |row: RowRef<'_>| {
            let (start, end) = layout::piece_bounds(row.sort)?;
            let is_whole = end - start == row.value.len() as u64;
            (start <= offset && offset < end && is_whole).then(|| end - offset)
        };
        // The row is the only one of its page, and its value is the last of the bytes of the page.
        let held = page.rows.iter().next().and_then(held);
        if let Some(len) = held {
            let mut bytes = Bytes::from(page.rows.into_buffer());
            let len = usize::try_from(len).unwrap_or(usize::MAX);
            return Ok(Some(bytes.split_off(bytes.len().saturating_sub(len))));
        }
        let Some(last) = page.resume_after else {
            return Ok(None);
        };
        request.range = request.range.beyond(&last, true);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::host_error::HostError;
    use umbo_loads::limits::PIECE_LEN;
    use umbo_store::{
        Atomicity, ByKey as _, CallContext, Change, Condition, Durability, ManualClock,
        MemoryStore, Mutation, WriteRequest,
    };
    use umbo_types::{Timestamp, Value};

    pub(crate) const CONTENT: NamespaceId = NamespaceId(4);
    pub(crate) const UPLOAD: u64 = 7;

    /// Rows of a load in memory.
    pub(crate) struct Rows(MemoryStore);

    #[async_trait]
    impl RowSource for Rows {
        type Error = HostError;

        async fn range(&self, request: &RangeRequest) -> Result<Page, HostError> {
            Ok(self.0.range_of(&CallContext::internal(), request).await?)
        }

        fn damaged(&self, what: &str) -> HostError {
            panic!("{what}")
        }
    }

    impl Rows {
        pub(crate) fn new() -> Self {
            let clock = ManualClock::new(Timestamp::from_millis(1_700_000_000_000));
            Self(MemoryStore::new(3, Arc::new(clock)).unwrap())
        }

        /// Stores bytes from an offset on as one piece.
        pub(crate) async fn put(&self, from: u64, piece: &[u8]) {
            let mutation = Mutation {
                key: layout::piece_key(UPLOAD, from, piece.len() as u64),
                change: Change::Put {
                    value: Value {
                        bytes: piece.to_vec().into(),
                        ..Value::default()
                    },
                    expires_at: None,
                },
                condition: Condition::Always,
            };
            let request = WriteRequest {
                namespace: CONTENT,
                epoch: 0,
                mutations: vec![mutation],
                atomicity: Atomicity::None,
                durability: Durability::Sync,
                proposed: Version(0),
                idempotency: None,
                not_before: None,
                run: None,
            };
            let written = self.0.write_rows(&CallContext::internal(), request).await;
            assert!(written.iter().all(Result::is_ok), "{written:?}");
        }

        async fn kept(&self) -> u64 {
            kept_len(self, CONTENT, UPLOAD).await.unwrap()
        }
    }

    fn bytes(from: u64, to: u64) -> Vec<u8> {
        (from..to).map(|at| (at % 251) as u8).collect()
    }

    #[tokio::test]
    async fn what_is_kept_ends_at_the_first_gap_and_overlaps_do_not_matter() {
        let rows = Rows::new();
        assert_eq!(rows.kept().await, 0);
        rows.put(PIECE_LEN, &bytes(PIECE_LEN, 2 * PIECE_LEN)).await;
        assert_eq!(rows.kept().await, 0, "the first piece is missing");
        rows.put(0, &bytes(0, 1_000)).await;
        assert_eq!(rows.kept().await, 1_000);
        rows.put(500, &bytes(500, 1_200)).await;
        assert_eq!(rows.kept().await, 1_200);
        rows.put(1_200, &bytes(1_200, PIECE_LEN)).await;
        assert_eq!(rows.kept().await, 2 * PIECE_LEN);
        rows.put(0, &bytes(0, PIECE_LEN)).await;
        assert_eq!(rows.kept().await, 2 * PIECE_LEN);
        // However the pieces overlap, each byte is read as it was stored.
        for at in [
            0,
            1,
            499,
            500,
            999,
            1_000,
            1_199,
            1_200,
            PIECE_LEN - 1,
            PIECE_LEN,
        ] {
            let piece = read_piece(&rows, CONTENT, UPLOAD, at)
                .await
                .unwrap()
                .unwrap();
            assert!(!piece.is_empty());
            assert_eq!(piece, bytes(at, at + piece.len() as u64), "from {at}");
        }
        let beyond = read_piece(&rows, CONTENT, UPLOAD, 2 * PIECE_LEN).await;
        assert_eq!(beyond, Ok(None));
    }

    #[tokio::test]
    async fn an_upload_goes_on_in_the_next_segment() {
        let rows = Rows::new();
        for piece in 0..SEGMENT_LEN / PIECE_LEN {
            rows.put(
                piece * PIECE_LEN,
                &bytes(piece * PIECE_LEN, (piece + 1) * PIECE_LEN),
            )
            .await;
        }
        assert_eq!(rows.kept().await, SEGMENT_LEN);
        rows.put(SEGMENT_LEN, &bytes(SEGMENT_LEN, SEGMENT_LEN + 5))
            .await;
        assert_eq!(rows.kept().await, SEGMENT_LEN + 5);
        let piece = read_piece(&rows, CONTENT, UPLOAD, SEGMENT_LEN + 2)
            .await
            .unwrap();
        assert_eq!(piece.unwrap(), bytes(SEGMENT_LEN + 2, SEGMENT_LEN + 5));
    }
}
