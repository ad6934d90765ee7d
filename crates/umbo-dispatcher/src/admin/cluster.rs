//! The admin API of the nodes and shards behind this pod.
//!
//! Needs a grant of `admin` on `*`: a node is of no namespace. Where the shards are in this process
//! there are no nodes.

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use umbo_api::admin::{ShardInfo, ShardList};
use umbo_api::cluster::{ClusterStatus, NodeInfo};
use umbo_store::{NodeStatus, ShardState, ShardStatus};

use super::{Pod, full_admin};
use crate::failure::Failure;
use crate::query::Query;

pub(crate) async fn show(
    State(pod): Pod,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<ClusterStatus>, Failure> {
    full_admin(&pod, &headers)?;
    Query::read(query.as_deref(), "")?;
    let nodes = pod.store.nodes().into_iter().map(node).collect();
    Ok(Json(ClusterStatus { nodes }))
}

pub(crate) async fn list_shards(
    State(pod): Pod,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<ShardList>, Failure> {
    full_admin(&pod, &headers)?;
    Query::read(query.as_deref(), "")?;
    let ranges = pod.shard_map.ranges();
    let nodes = pod.store.nodes();
    let info = |status: ShardStatus| {
        let own = ranges.iter().filter(|range| range.shard == status.shard);
        let slots = own
            .map(|range| u32::from(range.last - range.first) + 1)
            .sum();
        let node = nodes
            .iter()
            .find(|node| node.shards.contains(&status.shard));
        shard(status, slots, node)
    };
    Ok(Json(ShardList {
        shards: pod.store.status().into_iter().map(info).collect(),
    }))
}

fn node(status: NodeStatus) -> NodeInfo {
    NodeInfo {
        name: status.name,
        address: status.address,
        reachable: status.failure.is_none(),
        reason: status.failure,
        map_version: status.map_version,
        shards: status.shards.iter().map(|shard| shard.0).collect(),
        in_flight: status.in_flight,
    }
}

fn shard(status: ShardStatus, slots: u32, node: Option<&NodeStatus>) -> ShardInfo {
    let (state, reason) = match status.state {
        ShardState::Available => ("available", None),
        ShardState::ReadOnly(reason) => ("read-only", Some(reason)),
        ShardState::Unavailable(reason) => ("unavailable", Some(reason)),
    };
    ShardInfo {
        shard: status.shard.0,
        node: node.map(|node| node.name.clone()),
        state: state.to_owned(),
        reason,
        slots,
        rows: status.rows,
        file_bytes: status.file_bytes,
        queued: status.queued,
    }
}
