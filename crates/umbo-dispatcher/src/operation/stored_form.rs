//! The stored form of values: compressed, if the namespace asks for it and it saves space. Compression runs on the
//! thread of the request, so a committer only writes bytes and a shard node receives fewer of them.

use umbo_api::admin::CompressionSetting;
use umbo_control::NamespaceEntry;
use umbo_http::RequestError;
use umbo_store::compression::{self, Compression};
use umbo_store::{Change, Mutation, StoreError};
use umbo_types::{ShardId, Value};

/// Bytes that are compressed before other requests have their turn: less than a millisecond.
const STEP_LEN: usize = 128 << 10;

/// Returns a value as the store is to keep it.
pub(super) async fn stored(value: Value, namespace: &NamespaceEntry) -> Value {
    match namespace.compression() {
        CompressionSetting::Off => value,
        CompressionSetting::Zstd if value.bytes.len() <= STEP_LEN => compression::compressed(value),
        CompressionSetting::Zstd => Box::pin(in_steps(value)).await,
    }
}

async fn in_steps(value: Value) -> Value {
    let mut steps = Compression::new(value);
    while steps.step(STEP_LEN) {
        tokio::task::yield_now().await;
    }
    steps.finish()
}

/// Brings the values of many rows into their stored form.
pub(crate) async fn store_all<'m>(
    mutations: impl Iterator<Item = &'m mut Mutation>,
    namespace: &NamespaceEntry,
) {
    if namespace.compression().is_off() {
        return;
    }
    let mut unyielded = 0;
    for mutation in mutations {
        let Change::Put { value, .. } = &mut mutation.change else {
            continue;
        };
        unyielded += value.bytes.len();
        *value = stored(std::mem::take(value), namespace).await;
        if unyielded >= STEP_LEN {
            unyielded = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Returns the error of a value whose form cannot be undone.
pub(crate) fn damaged(shard: ShardId) -> RequestError {
    let reason = compression::DamagedValue.to_string();
    StoreError::Corrupt { shard, reason }.into()
}
