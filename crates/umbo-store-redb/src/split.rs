//! Division of a write among shards: keys encoded, mutations in order within each shard.

use umbo_routing::ShardMap;
use umbo_store::{GIVES_WAY_EVERY, Mutation, WriteRequest, give_way};
use umbo_types::{NamespaceId, ShardId};

use crate::key_codec;
use crate::work::Op;

/// Takes the mutations out of a request and divides them by shard.
pub(crate) fn split(map: &ShardMap, request: &mut WriteRequest) -> Vec<(ShardId, Vec<Op>)> {
    let namespace = request.namespace;
    let mutations = std::mem::take(&mut request.mutations);
    let mut parts: Vec<(ShardId, Vec<Op>)> = Vec::new();
    // The index of each shard's part, so that large batches over many shards take linear time.
    let mut part_of: Vec<Option<usize>> = Vec::new();
    for (index, mutation) in mutations.into_iter().enumerate() {
        give_way(index, GIVES_WAY_EVERY);
        let shard = map.locate(namespace, &mutation.key.partition);
        let slot = usize::from(shard.0);
        if part_of.len() <= slot {
            part_of.resize(slot + 1, None);
        }
        let part = *part_of[slot].get_or_insert_with(|| {
            parts.push((shard, Vec::new()));
            parts.len() - 1
        });
        parts[part].1.push(op(namespace, index, mutation));
    }
    parts
}

fn op(namespace: NamespaceId, index: usize, mutation: Mutation) -> Op {
    let (key, prefix_len) = key_codec::encode(namespace, &mutation.key);
    Op {
        index,
        key,
        prefix_len,
        change: mutation.change,
        condition: mutation.condition,
        identity: namespace,
        live: None,
    }
}
