//! Rows of a load whose values are too long for a row: their bytes are stored as uploads, as the body of a put is, and the
//! rows refer to them.
//!
//! A load holds its rows whole, also in sorted runs, so nothing is uploaded long before its row is written. The upload of
//! a row that is not applied, or that is written again by a later run, has no reference and is reclaimed by its shard.

use std::sync::Arc;
use std::time::Duration;

use umbo_dispatcher::Dispatcher;
use umbo_dispatcher::plane::{Identified, patient_write};
use umbo_http::RequestError;
use umbo_http::content_digest::ContentDigest;
use umbo_store::{Change, Condition, Mutation, UploadStep};
use umbo_types::{LargeRef, NamespaceId, UploadId, limits};

/// Chunks that are written together: each write waits for the disk.
const CHUNKS_TOGETHER: usize = 2;
/// How long a write waits for quotas or for its shard before the rows are tried again: shorter than a shard keeps an idle
/// upload.
const PATIENCE: Duration = Duration::from_secs(20);

/// Puts references in the place of values that are too long for a row. The rows are in `dataset`, all in one
/// shard. Returns how long the write of the rows is to wait for quotas or for the shard: if it was refused at once, the
/// values would be stored, and charged, again.
pub(super) async fn store_long_values(
    dispatcher: &Arc<Dispatcher>,
    payer: &Identified,
    dataset: NamespaceId,
    mutations: &mut [Mutation],
) -> Result<Duration, RequestError> {
    let mut patience = Duration::ZERO;
    for Mutation { key, change, .. } in mutations {
        let Change::Put { value, .. } = change else {
            continue;
        };
        if !value.is_long() {
            continue;
        }
        let upload = UploadId(fastrand::u128(..).to_be_bytes());
        let chunks = (0..).zip(value.bytes.chunks(limits::LARGE_CHUNK_LEN));
        let steps = chunks.map(|(index, chunk)| Mutation {
            key: key.clone(),
            change: Change::Upload(UploadStep::Append {
                upload,
                index,
                bytes: value.bytes.slice_ref(chunk),
            }),
            condition: Condition::Always,
        });
        for steps in steps.collect::<Vec<_>>().chunks(CHUNKS_TOGETHER) {
            patient_write(dispatcher, payer, dataset, steps, PATIENCE).await?;
        }
        let large = LargeRef {
            upload,
            len: value.bytes.len() as u64,
            sha256: ContentDigest::of(&value.bytes).0,
        };
        *value = std::mem::take(value).of_large(&large);
        patience = PATIENCE;
    }
    Ok(patience)
}
