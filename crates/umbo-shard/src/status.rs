//! The status of a node's shards, for dispatchers and operators.

use umbo_store::{ShardState, ShardStatus, Store};

use crate::ownership::{Ownership, UNOPENED};

/// Returns the status of the shards that the map assigns to the node, in order.
pub(crate) fn own_shards(store: &dyn Store, ownership: &Ownership) -> Vec<ShardStatus> {
    let mut shards = store.status();
    shards.retain(|status| ownership.is_own(status.shard));
    for shard in ownership.unopened() {
        shards.retain(|status| status.shard != shard);
        let state = ShardState::Unavailable(UNOPENED.to_owned());
        shards.push(ShardStatus::new(shard, state));
    }
    shards.sort_by_key(|status| status.shard);
    shards
}
