//! Rows whose values are too long for a row: their bytes are stored first, as an upload, and the row refers to them.
//!
//! A shard that is to write such a row next is given a few chunks of its value instead, time after time, until all of
//! them are stored; then it is given the row. So a quota that refuses some of the chunks is a wait of the run like any
//! other. The run writes down how many chunks are stored, so no later run stores or pays for them again, unless the
//! shard has given the upload up meanwhile. The upload of a row that is never applied has no reference, and its shard
//! reclaims it.

use bytes::Bytes;
use umbo_api::batch::KeyFields;
use umbo_loads::digest::{PartDigest, Sha256, hex};
use umbo_loads::layout::ValueUpload;
use umbo_store::{Change, Condition, GIVES_WAY_EVERY, Mutation, UploadStep, give_way};
use umbo_types::{LargeRef, ShardId, UploadId, Value, limits};

use super::open_batches::{JudgedPiece, ShardPiece};

/// Chunks that are written together: each write waits for the disk.
const CHUNKS_TOGETHER: usize = 2;
/// How often a shard may give up the bytes of a value before the load fails. Each time two minutes have passed since
/// the last chunk. This is more often than a load is paused and resumed amid one value.
const GIVEN_UP_MAX: u32 = 8;

/// The next request to a shard.
#[derive(Debug)]
pub(super) struct ShardRequest {
    pub(super) rows: Vec<Mutation>,
    /// The value of the chunks, and the number of its chunks that are stored afterwards; `None` if the request has the
    /// rows themselves.
    pub(super) chunks: Option<(Sha256, u32)>,
}

/// Digests of the long values that are being applied.
#[derive(Debug, Default)]
pub(super) struct LongValues(Vec<(ShardId, Bytes, Sha256)>);

impl LongValues {
    /// Returns the next request for these pieces. A shard that has just refused chunks gets one at a time.
    pub(super) fn next_request(
        &mut self,
        shard: ShardId,
        pieces: &[ShardPiece],
        stored: &mut Vec<ValueUpload>,
        is_refused: bool,
    ) -> Result<ShardRequest, String> {
        let rows = || pieces.iter().flat_map(|piece| &piece.mutations);
        let mut request = ShardRequest {
            rows: Vec::with_capacity(rows().count()),
            chunks: None,
        };
        for row in rows() {
            give_way(request.rows.len(), GIVES_WAY_EVERY);
            let Some(value) = long_value(row) else {
                request.rows.push(row.clone());
                continue;
            };
            let digest = self.digest(shard, &value.bytes);
            let kept = find_or_begin(stored, shard, value, &digest);
            if kept.given_up >= GIVEN_UP_MAX {
                let (partition, sort) = (row.key.partition.as_bytes(), row.key.sort.as_bytes());
                let key = serde_json::to_string(&KeyFields::of(partition, sort));
                return Err(format!(
                    "row {} has a value of {} bytes, and its shard has dropped the upload {GIVEN_UP_MAX} \
                     times, because the next bytes came too late",
                    key.unwrap_or_default(),
                    value.bytes.len()
                ));
            }
            let mut chunks = value.bytes.chunks(limits::LARGE_CHUNK_LEN);
            let left = chunks.len().saturating_sub(kept.chunks as usize);
            if left > 0 {
                let together = left.min(if is_refused { 1 } else { CHUNKS_TOGETHER });
                let end = kept.chunks + together as u32;
                let next = (kept.chunks..end).zip(chunks.by_ref().skip(kept.chunks as usize));
                let append = |(index, chunk)| Mutation {
                    key: row.key.clone(),
                    change: Change::Upload(UploadStep::Append {
                        upload: upload_of(&kept),
                        index,
                        bytes: value.bytes.slice_ref(chunk),
                    }),
                    condition: Condition::Always,
                };
                return Ok(ShardRequest {
                    rows: next.map(append).collect(),
                    chunks: Some((digest, end)),
                });
            }
            let large = LargeRef {
                upload: upload_of(&kept),
                len: value.bytes.len() as u64,
                sha256: digest,
            };
            let mut row = row.clone();
            if let Change::Put { value, .. } = &mut row.change {
                *value = std::mem::take(value).of_large(&large);
            }
            request.rows.push(row);
        }
        Ok(request)
    }

    /// Records that chunks are stored.
    pub(super) fn stored(
        shard: ShardId,
        (digest, chunks): (Sha256, u32),
        stored: &mut [ValueUpload],
    ) {
        if let Some(kept) = find(stored, shard, &digest) {
            kept.chunks = chunks;
        }
    }

    /// Begins a value again after its shard has given its upload up.
    pub(super) fn given_up(shard: ShardId, digest: &Sha256, stored: &mut [ValueUpload]) {
        if let Some(kept) = find(stored, shard, digest) {
            (kept.upload, kept.chunks) = (fastrand::u128(..), 0);
            kept.given_up += 1;
        }
    }

    /// Begins values again whose uploads the shard has given up, and forgets the values of rows that are done.
    pub(super) fn answered(
        &mut self,
        shard: ShardId,
        gone: &[Bytes],
        pieces: &[JudgedPiece],
        stored: &mut Vec<ValueUpload>,
    ) {
        let left = pieces.iter().flat_map(|piece| &piece.left);
        let left: Vec<&Value> = left.filter_map(long_value).collect();
        self.0.retain(|(of, bytes, digest)| {
            let is_left = *of != shard || left.iter().any(|value| is_same(&value.bytes, bytes));
            if !is_left {
                let text = hex(digest);
                stored.retain(|kept| kept.shard != shard.0 || kept.sha256 != text);
            } else if gone.iter().any(|one| is_same(one, bytes)) {
                Self::given_up(shard, digest, stored);
            }
            is_left
        });
    }

    fn digest(&mut self, shard: ShardId, bytes: &Bytes) -> Sha256 {
        let known = self.0.iter();
        let mut known = known.filter(|(of, known, _)| *of == shard && is_same(known, bytes));
        if let Some((_, _, digest)) = known.next() {
            return *digest;
        }
        let mut digest = PartDigest::default();
        digest.update(bytes);
        let digest = digest.finish();
        self.0.push((shard, bytes.clone(), digest));
        digest
    }
}

/// Returns whether these are the same bytes in memory.
fn is_same(one: &Bytes, other: &Bytes) -> bool {
    one.as_ptr() == other.as_ptr() && one.len() == other.len()
}

/// Returns the value of a row, if it is too long for a row.
pub(super) fn long_value(row: &Mutation) -> Option<&Value> {
    match &row.change {
        Change::Put { value, .. } if value.is_long() => Some(value),
        _ => None,
    }
}

fn find<'a>(
    stored: &'a mut [ValueUpload],
    shard: ShardId,
    digest: &Sha256,
) -> Option<&'a mut ValueUpload> {
    let text = hex(digest);
    let mut kept = stored.iter_mut();
    kept.find(|kept| kept.shard == shard.0 && kept.sha256 == text)
}

fn find_or_begin(
    stored: &mut Vec<ValueUpload>,
    shard: ShardId,
    value: &Value,
    digest: &Sha256,
) -> ValueUpload {
    if let Some(kept) = find(stored, shard, digest) {
        return kept.clone();
    }
    let begun = ValueUpload {
        shard: shard.0,
        sha256: hex(digest),
        upload: fastrand::u128(..),
        chunks: 0,
        given_up: 0,
    };
    tracing::debug!(
        shard = shard.0,
        len = value.bytes.len(),
        "a long value is stored"
    );
    stored.push(begun.clone());
    begun
}

const fn upload_of(kept: &ValueUpload) -> UploadId {
    UploadId(kept.upload.to_be_bytes())
}
