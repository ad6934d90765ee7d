//! The status of a node's shards, for dispatchers and operators.

use umbo_store::{ShardState, ShardStatus, Store};

use crate::ownership::{Ownership, UNOPENED};

/// Returns the status of the shards that the map assigns to the node, in order.
pub(crate) fn own_shards(store: &dyn Store, ownership: &Ownership) -> Vec<ShardStatus> {
    let mut shards = store.status();
    shards.retain(|status| ownership.is_own(status.shard));
    for shard in ownership.unopened() {
        shards.retain(|status| status.shard != shard);
        shards.push(ShardStatus {
            shard,
            state: ShardState::Unavailable(UNOPENED.to_owned()),
            rows: 0,
            file_bytes: 0,
            queued: 0,
            commits: 0,
            mutations: 0,
            reclaimed: 0,
            lost_async: 0,
            purging: 0,
            expired: 0,
            namespace_max: umbo_types::NamespaceId::SYSTEM,
            sizes: None,
        });
    }
    shards.sort_by_key(|status| status.shard);
    shards
}
