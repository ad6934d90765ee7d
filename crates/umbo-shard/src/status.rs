//! The state of a node and of its shards, as dispatchers and operators are told.

use umbo_store::{ShardState, ShardStatus, Store};

use crate::ownership::{Ownership, UNOPENED};

/// Returns the shards that the map gives to the node, in order.
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
        });
    }
    shards.sort_by_key(|status| status.shard);
    shards
}
