//! Questions between dispatchers, through real nodes, in simulated time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::{Instant, sleep};
use umbo_store::{AnswerQuestion, Fleet, ShardState, ShardStatus, Store, StoreReport};
use umbo_store_remote::{RemoteSettings, RemoteStore};

use crate::cluster::Cluster;
use crate::network::Mode;
use crate::time::until;

const WITHIN: Duration = Duration::from_secs(5);

/// Answers with its name and the question, as often as asked; or never.
#[derive(Debug)]
struct Echo {
    name: &'static str,
    len: usize,
    is_mute: bool,
}

#[async_trait]
impl AnswerQuestion for Echo {
    async fn answer(&self, question: Bytes) -> Bytes {
        if self.is_mute {
            std::future::pending::<()>().await;
        }
        let mut answer = [self.name.as_bytes(), b": ", &question].concat();
        answer.resize(answer.len().max(self.len), b'.');
        answer.into()
    }
}

async fn dispatcher(cluster: &Cluster, name: &'static str, len: usize) -> Arc<RemoteStore> {
    let store = cluster.connect(RemoteSettings::default()).await;
    let is_mute = name == "mute";
    store.join(name.into(), Arc::new(Echo { name, len, is_mute }));
    store
}

/// Waits until so many dispatchers have introduced themselves, and returns their incarnations by name.
async fn members(store: &RemoteStore, count: usize) -> Vec<(Bytes, u64)> {
    let began = Instant::now();
    loop {
        let members = store.members().await;
        if members.len() == count {
            let named = members.into_iter();
            let mut named: Vec<_> = named.map(|one| (one.about, one.incarnation)).collect();
            named.sort();
            return named;
        }
        assert!(began.elapsed() < WITHIN * 4, "{members:?}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Asks the other dispatchers, and returns what each has replied, by name.
async fn ask(
    store: &RemoteStore,
    question: &'static str,
    within: Duration,
) -> Vec<(Bytes, Option<Bytes>)> {
    let replies = store.ask(question.into(), within).await.into_iter();
    let mut named: Vec<_> = replies
        .map(|(member, reply)| (member.about, reply))
        .collect();
    named.sort();
    named
}

/// Each dispatcher is asked once, however many nodes it is connected to, and its whole reply comes back.
#[tokio::test(start_paused = true)]
async fn dispatchers_answer_one_another() {
    let cluster = Cluster::start(3);
    let first = dispatcher(&cluster, "a", 0).await;
    let _second = dispatcher(&cluster, "b", 3 << 20).await;
    let named = members(&first, 2).await;
    assert_eq!(named[0].0, "a");
    let own: Vec<_> = first
        .members()
        .await
        .into_iter()
        .filter(|one| one.is_self)
        .collect();
    assert_eq!((own.len(), &own[0].about[..]), (1, &b"a"[..]));
    for question in ["?", "again?", "again and again?"] {
        let replies = ask(&first, question, WITHIN).await;
        assert_eq!(replies.len(), 2);
        assert_eq!(replies[0], ("a".into(), None), "it does not ask itself");
        let reply = replies[1].1.as_ref().unwrap();
        assert_eq!((&replies[1].0[..], reply.len()), (&b"b"[..], 3 << 20));
        assert!(reply.starts_with(format!("b: {question}").as_bytes()));
    }
}

/// What does not reply costs its own reply, and not those of the others.
#[tokio::test(start_paused = true)]
async fn a_dispatcher_that_does_not_answer_is_left_out() {
    let cluster = Cluster::start(1);
    let first = dispatcher(&cluster, "a", 0).await;
    let _mute = dispatcher(&cluster, "mute", 0).await;
    let _other = dispatcher(&cluster, "b", 0).await;
    let gone = dispatcher(&cluster, "z", 0).await;
    members(&first, 4).await;
    gone.close().await;
    drop(gone);
    members(&first, 3).await;
    let replies = ask(&first, "?", Duration::from_millis(300)).await;
    let expected = [("a", None), ("b", Some("b: ?")), ("mute", None)];
    let expected = expected.map(|(name, reply)| (name.into(), reply.map(Bytes::from)));
    assert_eq!(replies, expected);
}

/// A dispatcher is found through any node that it is connected to, and again after it has lost one.
#[tokio::test(start_paused = true)]
async fn a_lost_connection_loses_no_dispatcher() {
    let cluster = Cluster::start(2);
    let first = dispatcher(&cluster, "a", 0).await;
    let second = dispatcher(&cluster, "b", 0).await;
    members(&first, 2).await;
    for member in [0, 1] {
        cluster.members[member].wire.set(Mode::Cut);
        let began = Instant::now();
        // Once the cut is seen all are asked through the other node.
        let reply = ("b".into(), Some(Bytes::from("b: ?")));
        while !ask(&first, "?", Duration::from_millis(200))
            .await
            .contains(&reply)
        {
            assert!(began.elapsed() < WITHIN * 4, "{:?}", first.members().await);
            sleep(Duration::from_millis(5)).await;
        }
        cluster.members[member].wire.set(Mode::Open);
        let is_available = |shard: &ShardStatus| shard.state == ShardState::Available;
        until(|| second.status().iter().all(is_available)).await;
    }
}
