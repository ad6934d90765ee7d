//! Requests are answered, in any order, with their actual work.

use umbo_protocol::{Ask, MailRequest, NodeError, Outcome, QuestionRequest, StatusOfNode};
use umbo_store::{Atomicity, RangeRequest, ScanRequest, SortRange, WriteError};
use umbo_types::ShardId;

use crate::support::{NS, Started, get, key_of, mutation, put, write_of};

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
async fn rows_of_other_nodes_are_refused_one_by_one() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let (own, other) = (key_of(1, 0), key_of(2, 0));
    let refused = |error: &NodeError| {
        let shard = ShardId(2);
        let map_version = 1;
        assert_eq!(*error, NodeError::NotOwner { shard, map_version });
    };
    let answer = peer.ask(get(&other)).await;
    let Outcome::Failed(error) = &answer.outcome else {
        panic!("{answer:?}")
    };
    refused(error);
    let mutations = vec![mutation(&other, "x"), mutation(&own, "y")];
    let answer = peer.ask(Ask::Write(write_of(mutations))).await;
    let Outcome::Written(all) = &answer.outcome else {
        panic!("{answer:?}")
    };
    refused(all[0].as_ref().unwrap_err());
    assert!(matches!(all[1], Ok(Ok(_))));
    let answer = peer.ask(Ask::MultiGet(NS, vec![own, other])).await;
    let Outcome::MultiGot(rows) = &answer.outcome else {
        panic!("{answer:?}")
    };
    assert!(matches!(&rows[0], Ok(Some(row)) if row.value.bytes == "y"));
    refused(rows[1].as_ref().unwrap_err());
}

#[tokio::test]
async fn an_aborted_group_names_the_mutation_of_the_request() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let (own, other) = (key_of(1, 0), key_of(2, 0));
    let mut refusing = mutation(&own, "y");
    refusing.condition = umbo_store::Condition::Present;
    let mut request = write_of(vec![mutation(&other, "x"), mutation(&own, "x"), refusing]);
    request.mutations[1].key.sort = umbo_types::SortKey::new("t").unwrap();
    request.atomicity = Atomicity::Partition;
    let answer = peer.ask(Ask::Write(request)).await;
    let Outcome::Written(all) = &answer.outcome else {
        panic!("{answer:?}")
    };
    assert!(all[0].is_err());
    let aborted = WriteError::GroupAborted { index: 2 };
    assert_eq!(all[1], Ok(Err(aborted)), "{all:?}");
}

#[tokio::test]
async fn a_multi_get_of_much_comes_in_parts() {
    let node = Started::new();
    let mut peer = node.peer().await;
    let keys: Vec<_> = (0..30).map(|at| key_of(0, at)).collect();
    for key in &keys {
        peer.ask(put(key, vec![7; 100 << 10])).await;
    }
    peer.send(vec![Ask::MultiGet(NS, keys)]).await;
    let mut rows = 0;
    loop {
        let answer = peer.answer().await;
        assert!(answer.bytes <= 256 << 10, "{}", answer.bytes);
        let Outcome::MultiGot(part) = &answer.outcome else {
            panic!("{answer:?}")
        };
        rows += part.iter().flatten().flatten().count();
        if !answer.has_more {
            break;
        }
    }
    assert_eq!(rows, 30);
    let answer = peer.ask(Ask::MultiGet(NS, Vec::new())).await;
    assert!(matches!(answer.outcome, Outcome::MultiGot(rows) if rows.is_empty()));
}

#[tokio::test]
async fn parts_of_an_answer_come_in_order_whatever_their_lengths() {
    let node = Started::new();
    let mut peer = node.peer().await;
    // Parts that are sent in chunks, and between and behind them some that are sent in batches.
    let lens = [1 << 20, 1 << 20, 10, 1 << 20, 300 << 10, 300 << 10, 20];
    let keys: Vec<_> = (0..).zip(lens).map(|(at, _)| key_of(0, at)).collect();
    for (key, len) in keys.iter().zip(lens) {
        peer.ask(put(key, vec![7; len])).await;
    }
    let many = keys.iter().cycle().take(70).cloned().collect();
    peer.send(vec![Ask::MultiGet(NS, many)]).await;
    let mut found = Vec::new();
    loop {
        let answer = peer.answer().await;
        let Outcome::MultiGot(part) = answer.outcome else {
            panic!("{:?}", answer.outcome)
        };
        let rows = part.into_iter().map(|row| row.unwrap().unwrap());
        found.extend(rows.map(|row| row.value.bytes.len()));
        if !answer.has_more {
            break;
        }
    }
    let expected: Vec<_> = lens.into_iter().cycle().take(70).collect();
    assert_eq!(found, expected);
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
        Ask::Scan(ScanRequest {
            namespace: NS,
            slots: 0..=4_095,
            shard: Some(ShardId(shard)),
            after: None,
            rows_max: 5,
            bytes_max: u32::MAX,
            keys_only: true,
        })
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

/// A dispatcher is told that it has mail, takes it, and its reply answers the question of the other one.
#[tokio::test]
async fn a_question_passes_from_one_dispatcher_to_another() {
    let node = Started::new();
    let (mut asking, mut asked) = (node.peer().await, node.peer().await);
    let mail = |about: &'static str, replies| {
        let about = about.into();
        Ask::Mail(MailRequest { about, replies })
    };
    let letters = |outcome: Outcome| match outcome {
        Outcome::Letters(letters) => letters,
        other => panic!("{other:?}"),
    };
    assert!(letters(asked.ask(mail("b", Vec::new())).await.outcome).is_empty());
    let members = letters(asking.ask(Ask::Members).await.outcome);
    assert_eq!((members.len(), &members[0].1[..]), (1, &b"b"[..]));
    let to = vec![members[0].0, 12_345];
    let question = QuestionRequest {
        to,
        question: "?".into(),
    };
    asking.send(vec![Ask::Question(question)]).await;
    while asked.mails == 0 {
        asked.read().await;
    }
    let questions = letters(asked.ask(mail("b", Vec::new())).await.outcome);
    let number = questions[0].0;
    assert_eq!(questions, [(number, "?".into())]);
    asked.ask(mail("b", vec![(number, "reply".into())])).await;
    let answer = asking.answers(1).await.remove(0);
    assert_eq!(letters(answer.outcome), [(members[0].0, "reply".into())]);
    drop(asked);
    while !letters(asking.ask(Ask::Members).await.outcome).is_empty() {}
}
