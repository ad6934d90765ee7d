//! Requests are answered, in any order, with their actual work.

use umbo_protocol::{Ask, Hello, NodeError, Outcome, ProtocolVersion, StatusOfNode};
use umbo_store::{RangeRequest, ScanRequest, SortRange};
use umbo_telemetry::metric_names as names;
use umbo_telemetry::metrics::MetricsText;
use umbo_types::ShardId;

use crate::support::{NS, Started, get, hello, key_of, mutation, put, write_of};

#[tokio::test]
async fn a_row_that_was_written_is_read() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let key = key_of(0, 0);
    let answer = peer.ask(put(&key, "one")).await;
    assert!(matches!(&answer.outcome, Outcome::Written(all) if matches!(all[..], [Ok(Ok(_))])));
    assert_eq!((answer.rows, answer.has_more), (1, false));
    let answer = peer.ask(get(&key)).await;
    let Outcome::Row(Some(row)) = &answer.outcome else {
        panic!("{answer:?}")
    };
    assert_eq!(row.value.bytes, "one");
    assert_eq!(answer.rows, 1);
    assert_eq!(
        answer.bytes,
        (key.partition.as_bytes().len() + 1 + 3) as u64
    );
    let answer = peer.ask(get(&key_of(0, 1))).await;
    assert!(matches!(answer.outcome, Outcome::Row(None)), "{answer:?}");
}

#[tokio::test]
async fn a_node_shows_every_metric_of_nodes() {
    let node = Started::new();
    let _peer = node.peer().await;
    let text = MetricsText::render(|visitor| umbo_shard::admin::visit(&node.node, visitor));
    let of_files = [names::SHARD_ROWS, names::STORE_BAD_READS];
    for metric in names::NODE.iter().chain(&of_files) {
        assert!(text.contains(&format!("# TYPE {} ", metric.name)), "{text}");
    }
    for line in ["umbo_node_map_version 1", "umbo_shard_rows{shard=\"0\"} 0"] {
        assert!(text.lines().any(|one| one == line), "{line} in\n{text}");
    }
}

#[tokio::test]
async fn many_requests_go_in_and_out_together() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let keys: Vec<_> = (0..100).map(|at| key_of(at % 2, at as usize)).collect();
    let puts = keys.iter().map(|key| put(key, key.partition.to_bytes()));
    let ids = peer.send(puts.collect()).await;
    let answers = peer.answers(100).await;
    assert_eq!(
        answers.iter().map(|answer| answer.id).collect::<Vec<_>>(),
        ids
    );
    let before = peer.batches;
    peer.send(keys.iter().map(get).collect()).await;
    let answers = peer.answers(100).await;
    for (key, answer) in keys.iter().zip(answers) {
        let Outcome::Row(Some(row)) = answer.outcome else {
            panic!("no row")
        };
        assert_eq!(row.value.bytes, key.partition.to_bytes());
    }
    assert_eq!(
        peer.batches - before,
        1,
        "a store that knows at once is answered for in one message"
    );
}

#[tokio::test]
async fn rows_of_other_nodes_are_refused() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let other = key_of(2, 0);
    let asks = [
        get(&other),
        put(&other, "x"),
        Ask::MultiGet(NS, vec![other.clone()]),
    ];
    for ask in asks {
        let (shard, map_version) = (ShardId(2), 1);
        let refused = NodeError::NotOwner { shard, map_version };
        assert_eq!(peer.ask(ask).await.outcome, Outcome::Failed(refused));
    }
}

/// Nothing of a request for several shards is begun. Dispatchers of version 1 may send one.
#[tokio::test]
async fn a_request_for_several_shards_is_refused_by_name() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let (one, other) = (key_of(0, 0), key_of(1, 0));
    let mutations = vec![mutation(&one, "x"), mutation(&other, "y")];
    let keys = vec![one.clone(), other];
    let asks = [Ask::Write(write_of(mutations)), Ask::MultiGet(NS, keys)];
    for ask in asks {
        let Outcome::Failed(NodeError::BadRequest(reason)) = peer.ask(ask).await.outcome else {
            panic!("not refused")
        };
        assert!(reason.contains("several shards"), "{reason}");
    }
    let answer = peer.ask(get(&one)).await;
    assert!(matches!(answer.outcome, Outcome::Row(None)), "{answer:?}");
}

#[tokio::test]
async fn a_multi_get_ends_where_its_values_are_too_long() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let keys: Vec<_> = (0..3).map(|at| key_of(0, at)).collect();
    for key in &keys {
        peer.ask(put(key, vec![7; 1 << 20])).await;
    }
    let many: Vec<_> = keys.iter().cycle().take(30).cloned().collect();
    let answer = peer.ask(Ask::MultiGet(NS, many.clone())).await;
    assert!(!answer.has_more);
    let Outcome::MultiGot(rows) = &answer.outcome else {
        panic!("{:?}", answer.outcome)
    };
    assert_eq!(rows.len(), 8, "8 MiB");
    assert_eq!(answer.rows, 8);
    // A dispatcher that does not know such an answer is told so.
    let old = Hello {
        version_max: ProtocolVersion(1),
        ..hello()
    };
    let mut old = node.peer_of(&old).await;
    let answer = old.ask(Ask::MultiGet(NS, many)).await;
    let Outcome::Failed(NodeError::BadRequest(reason)) = answer.outcome else {
        panic!("not refused")
    };
    assert!(reason.contains("upgrade"), "{reason}");
    let answer = old.ask(Ask::MultiGet(NS, keys)).await;
    assert!(matches!(answer.outcome, Outcome::MultiGot(rows) if rows.len() == 3));
}

#[tokio::test]
async fn ranges_and_scans_come_in_chunks() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let key = key_of(0, 0);
    let row = |at: u32| umbo_types::Key::new(key.partition.to_bytes(), format!("{at:04}")).unwrap();
    let mutations = (0..40).map(|at| mutation(&row(at), vec![1; 20 << 10]));
    peer.ask(Ask::Write(write_of(mutations.collect()))).await;
    let range = |range| {
        Ask::Range(RangeRequest {
            namespace: NS,
            partition: key.partition.clone(),
            range,
            reverse: false,
            rows_max: u32::MAX,
            bytes_max: u32::MAX,
            keys_only: false,
        })
    };
    let answer = peer.ask(range(SortRange::default())).await;
    let Outcome::Page(page) = &answer.outcome else {
        panic!("{answer:?}")
    };
    assert!(page.rows.bytes() < 300 << 10, "{}", page.rows.bytes());
    let last = page.resume_after.clone().unwrap();
    let answer = peer
        .ask(range(SortRange::default().beyond(&last, false)))
        .await;
    assert!(matches!(&answer.outcome, Outcome::Page(page) if page.rows.len() > 1));
    let scan = |shard| {
        let request = ScanRequest {
            namespace: NS,
            slots: 0..=4_095,
            after: None,
            rows_max: 5,
            bytes_max: u32::MAX,
            keys_only: true,
        };
        Ask::Scan(ShardId(shard), request)
    };
    let answer = peer.ask(scan(0)).await;
    assert!(matches!(&answer.outcome, Outcome::Scanned(page) if page.rows.len() == 5));
    let answer = peer.ask(scan(1)).await;
    assert!(matches!(&answer.outcome, Outcome::Scanned(page) if page.rows.is_empty()));
    for (shard, is_refused) in [(3, true), (9, false)] {
        let answer = peer.ask(scan(shard)).await;
        let Outcome::Failed(error) = &answer.outcome else {
            panic!("{answer:?}")
        };
        assert_eq!(
            matches!(error, NodeError::NotOwner { .. }),
            is_refused,
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_node_tells_its_state_and_its_map() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let answer = peer.ask(Ask::Probe).await;
    let Outcome::Status(StatusOfNode {
        map_version: 1,
        shards,
        ..
    }) = &answer.outcome
    else {
        panic!("{answer:?}")
    };
    let shards: Vec<_> = shards.iter().map(|status| status.shard.0).collect();
    assert_eq!(shards, [0, 1], "only those that the map gives to it");
    let answer = peer.ask(Ask::ClusterMap).await;
    let Outcome::ClusterMap(text) = &answer.outcome else {
        panic!("{answer:?}")
    };
    assert_eq!(
        umbo_routing::ClusterMap::parse(text),
        Ok(crate::support::map())
    );
}

/// A dispatcher of an earlier release, which asks others through the node, is told to be upgraded.
#[tokio::test]
async fn mail_of_earlier_releases_is_refused_by_name() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let answer = peer.ask(Ask::Mail).await;
    let Outcome::Failed(NodeError::BadRequest(reason)) = &answer.outcome else {
        panic!("{answer:?}")
    };
    assert!(reason.contains(env!("CARGO_PKG_VERSION")), "{reason}");
    assert!(matches!(
        peer.ask(Ask::Probe).await.outcome,
        Outcome::Status(_)
    ));
}
