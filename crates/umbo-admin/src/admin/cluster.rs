//! The admin API of the nodes and shards behind this dispatcher.
//!
//! Needs a grant of `observe` on `*`: a node is of no namespace. Where the shards are in this process
//! there are no nodes.

use axum::Json;
use axum::extract::{RawQuery, State};
use http::HeaderMap;
use umbo_api::admin::{ShardInfo, ShardList};
use umbo_api::cluster::{ClusterStatus, NodeInfo};
use umbo_http::query::Query;
use umbo_store::{NodeStatus, ShardState, ShardStatus};
use umbo_telemetry::metrics::CallLatency;

use super::{DispatcherState, full_observer};
use crate::admin_error::AdminError;

pub(crate) async fn show(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<ClusterStatus>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let nodes = dispatcher.store.nodes().into_iter().map(node).collect();
    Ok(Json(ClusterStatus { nodes }))
}

pub(crate) async fn list_shards(
    State(dispatcher): DispatcherState,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Json<ShardList>, AdminError> {
    full_observer(&dispatcher, &headers)?;
    Query::read(query.as_deref(), "")?;
    let ranges = dispatcher.shard_map.ranges();
    let nodes = dispatcher.store.nodes();
    let info = |status: ShardStatus| {
        let own = ranges.iter().filter(|range| range.shard == status.shard);
        let slots = own
            .map(|range| u32::from(range.last - range.first) + 1)
            .sum();
        let node = nodes
            .iter()
            .find(|node| node.shards.contains(&status.shard));
        let latency = dispatcher.latencies.of(&[status.shard]);
        shard(status, slots, node, latency.as_ref())
    };
    Ok(Json(ShardList {
        shards: dispatcher.store.status().into_iter().map(info).collect(),
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
        clock_ahead_ms: status.clock_ahead.map(|micros| micros / 1_000),
        program_version: status.program_version,
    }
}

fn shard(
    status: ShardStatus,
    slots: u32,
    node: Option<&NodeStatus>,
    latency: Option<&CallLatency>,
) -> ShardInfo {
    // Of hundredths, as buckets are wider still.
    let millis = |pick: fn(&CallLatency) -> f64| Some((pick(latency?) * 1e2).round() / 1e2);
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
        p50_ms: millis(|latency| latency.p50_ms),
        p99_ms: millis(|latency| latency.p99_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use umbo_types::ShardId;

    fn status(failure: Option<&str>) -> NodeStatus {
        NodeStatus {
            name: "a".to_owned(),
            address: "shard-a:7411".to_owned(),
            failure: failure.map(str::to_owned),
            map_version: Some(3),
            shards: vec![ShardId(2), ShardId(5)],
            in_flight: Some(7),
            clock_ahead: Some(-2_500_000),
            program_version: Some("9.0.0".to_owned()),
        }
    }

    #[test]
    fn a_node_is_reachable_until_there_is_a_reason() {
        let reachable = node(status(None));
        assert!(reachable.reachable && reachable.reason.is_none());
        assert_eq!(reachable.shards, [2, 5]);
        assert_eq!(
            (reachable.map_version, reachable.in_flight),
            (Some(3), Some(7))
        );
        assert_eq!(reachable.clock_ahead_ms, Some(-2_500));
        let away = node(status(Some("connection refused")));
        assert!(!away.reachable);
        assert_eq!(away.reason.as_deref(), Some("connection refused"));
    }

    #[test]
    fn a_shard_names_its_node_and_what_it_lacks() {
        let shard_status = |state| ShardStatus {
            shard: ShardId(5),
            state,
            rows: 1,
            file_bytes: 2,
            queued: 3,
            commits: 4,
            mutations: 5,
            reclaimed: 6,
            purging: 0,
            expired: 0,
            namespace_max: umbo_types::NamespaceId::SYSTEM,
            sizes: None,
            sizes_omitted: 0,
            syncs: 0,
            sync_nanos: 0,
            cache_hits: 0,
            cache_misses: 0,
            compactions: 0,
            compaction_nanos: 0,
            held_nanos: 0,
        };
        let latency = CallLatency {
            p50_ms: 0.25,
            p99_ms: 7.12345,
            seconds: Vec::new(),
        };
        let available = shard_status(ShardState::Available);
        let info = shard(available, 10, Some(&status(None)), Some(&latency));
        assert_eq!((info.p50_ms, info.p99_ms), (Some(0.25), Some(7.12)));
        assert_eq!(
            (info.node.as_deref(), &*info.state),
            (Some("a"), "available")
        );
        assert_eq!(
            (info.slots, info.rows, info.file_bytes, info.queued),
            (10, 1, 2, 3)
        );
        let full = shard(
            shard_status(ShardState::ReadOnly("full".to_owned())),
            1,
            None,
            None,
        );
        assert_eq!((full.node, full.reason.as_deref()), (None, Some("full")));
    }
}
