//! Requests for rows of many shards: one message a node, answers put back in order.
//!
//! What is left to be answered is asked for in rounds; nearly always the first one is the last.
//! Rows of a node that fails are answered with its failure, and no others. An atomic group is of
//! one partition, so it never leaves its node.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::timeout;
use umbo_protocol::{Ask, NodeError, Outcome};
use umbo_store::{CallContext, StoreError, WriteError, WriteRequest, Written};
use umbo_types::{Key, NamespaceId, PartitionKey, Row, ShardId};

use crate::attempt::{Failure, of_shard, short_of};
use crate::connection::size_of_request;
use crate::node::{Lane, Node};
use crate::store::RemoteStore;
use crate::waiting::Kind;

/// Largest request that goes with small ones, in bytes.
const SMALL_LEN_MAX: usize = 16 << 10;

/// A request that has an answer for each of its rows.
trait ManyRows: Sync {
    type Answer: Send;
    const KIND: Kind;

    fn count(&self) -> usize;
    fn namespace(&self) -> NamespaceId;
    fn partition(&self, at: usize) -> &PartitionKey;
    /// Returns the same request for some of its rows.
    fn ask(&self, indexes: &[usize]) -> Ask;
    /// Reads the answer to that; none where it is not one. Rows that failed in a way that may be
    /// repeated are errors here.
    fn tell(&self, indexes: &[usize], outcome: Outcome) -> Option<Vec<Told<Self::Answer>>>;
    fn failed(&self, error: StoreError) -> Self::Answer;
}

/// What a row came to: its answer, or what is to be decided on.
type Told<T> = Result<T, Failure>;

/// What one node is asked for.
struct Group {
    node: Arc<Node>,
    /// Shard of the first of its rows.
    shard: ShardId,
    /// Rows of the whole request, in its order.
    indexes: Vec<usize>,
}

struct Reads<'a> {
    namespace: NamespaceId,
    keys: &'a [Key],
}

impl ManyRows for Reads<'_> {
    type Answer = Result<Option<Row>, StoreError>;
    const KIND: Kind = Kind::Read;

    fn count(&self) -> usize {
        self.keys.len()
    }

    fn namespace(&self) -> NamespaceId {
        self.namespace
    }

    fn partition(&self, at: usize) -> &PartitionKey {
        &self.keys[at].partition
    }

    fn ask(&self, indexes: &[usize]) -> Ask {
        let keys = indexes.iter().map(|&at| self.keys[at].clone());
        Ask::MultiGet(self.namespace, keys.collect())
    }

    fn tell(&self, _indexes: &[usize], outcome: Outcome) -> Option<Vec<Told<Self::Answer>>> {
        let Outcome::MultiGot(rows) = outcome else {
            return None;
        };
        let told = rows.into_iter().map(|row| match row {
            Ok(row) => Ok(Ok(row)),
            Err(error) => self.told(error),
        });
        Some(told.collect())
    }

    fn failed(&self, error: StoreError) -> Self::Answer {
        Err(error)
    }
}

struct Writes {
    request: WriteRequest,
}

impl ManyRows for Writes {
    type Answer = Result<Written, WriteError>;
    const KIND: Kind = Kind::Write;

    fn count(&self) -> usize {
        self.request.mutations.len()
    }

    fn namespace(&self) -> NamespaceId {
        self.request.namespace
    }

    fn partition(&self, at: usize) -> &PartitionKey {
        &self.request.mutations[at].key.partition
    }

    fn ask(&self, indexes: &[usize]) -> Ask {
        let mutations = &self.request.mutations;
        Ask::Write(WriteRequest {
            mutations: indexes.iter().map(|&at| mutations[at].clone()).collect(),
            ..self.request
        })
    }

    fn tell(&self, indexes: &[usize], outcome: Outcome) -> Option<Vec<Told<Self::Answer>>> {
        let Outcome::Written(rows) = outcome else {
            return None;
        };
        let told = rows.into_iter().map(|row| match row {
            Ok(Err(WriteError::GroupAborted { index })) => {
                // A node counts within what it was sent.
                let index = indexes.get(index).copied().unwrap_or(index);
                Ok(Err(WriteError::GroupAborted { index }))
            }
            Ok(Err(WriteError::Store(error))) => self.told(NodeError::Store(error)),
            Ok(result) => Ok(result),
            Err(error) => self.told(error),
        });
        Some(told.collect())
    }

    fn failed(&self, error: StoreError) -> Self::Answer {
        Err(WriteError::Store(error))
    }
}

trait TellError: ManyRows {
    /// Tells the failure of one row: that of a store is its answer.
    fn told(&self, error: NodeError) -> Told<Self::Answer> {
        match Failure::from(error) {
            Failure::Store(error) => Ok(self.failed(error)),
            failure => Err(failure),
        }
    }
}

impl<R: ManyRows> TellError for R {}

impl RemoteStore {
    pub(crate) async fn read_many(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        self.rounds(call, &Reads { namespace, keys }).await
    }

    pub(crate) async fn write_many(
        &self,
        call: &CallContext,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        self.rounds(call, &Writes { request }).await
    }

    /// Asks for rows until each has an answer.
    async fn rounds<R: ManyRows>(&self, call: &CallContext, rows: &R) -> Vec<R::Answer> {
        let mut answers: Vec<Option<R::Answer>> = Vec::new();
        answers.resize_with(rows.count(), || None);
        let mut left: Vec<usize> = (0..rows.count()).collect();
        let mut tries = 0;
        while !left.is_empty() {
            let groups = self.groups(&left, rows);
            let is_only = groups.len() == 1;
            let asked = groups.into_iter();
            let asked = asked.map(|group| self.ask_group(call, rows, group, is_only, tries));
            left.clear();
            for (group, told) in join_all(asked).await {
                for (at, answer) in group.indexes.into_iter().zip(told) {
                    if answer.is_none() {
                        left.push(at);
                    }
                    answers[at] = answer;
                }
            }
            left.sort_unstable();
            tries += 1;
        }
        let answer = |answer: Option<_>| answer.expect("what is not left is answered");
        answers.into_iter().map(answer).collect()
    }

    fn groups<R: ManyRows>(&self, indexes: &[usize], rows: &R) -> Vec<Group> {
        let topology = self.topology();
        let mut groups: Vec<Group> = Vec::new();
        for &at in indexes {
            let shard = self.locate(rows.namespace(), rows.partition(at));
            let node = topology.node_of(shard);
            match groups.iter_mut().find(|it| Arc::ptr_eq(&it.node, node)) {
                Some(group) => group.indexes.push(at),
                None => groups.push(Group {
                    node: Arc::clone(node),
                    shard,
                    indexes: vec![at],
                }),
            }
        }
        groups
    }

    /// Asks one node for its rows. Returns an answer for each, none where it is to be asked again.
    async fn ask_group<R: ManyRows>(
        &self,
        call: &CallContext,
        rows: &R,
        group: Group,
        is_only: bool,
        mut tries: u32,
    ) -> (Group, Vec<Option<R::Answer>>) {
        let ask = rows.ask(&group.indexes);
        let is_small = size_of_request(&ask) <= SMALL_LEN_MAX && R::KIND == Kind::Write;
        let lane = if is_small { Lane::Small } else { Lane::Bulky };
        let asked = self.attempt(&group.node, call, (lane, R::KIND), &ask);
        let outcome = match call.deadline {
            // A node that does not answer must not keep the rows of others.
            Some(deadline) if !is_only => {
                let left = deadline.remaining(self.common.clock.monotonic());
                let asked = timeout(short_of(left), asked).await;
                asked.unwrap_or_else(|_| Err(Failure::Unusable("no answer in time".to_owned())))
            }
            _ => asked.await,
        };
        let told = outcome.and_then(|outcome| {
            let told = rows.tell(&group.indexes, outcome);
            let told = told.filter(|told| told.len() == group.indexes.len());
            let reason = "it answered what does not answer the request";
            told.ok_or_else(|| Failure::Unusable(reason.to_owned()))
        });
        let mut failure = None;
        let mut answers = Vec::with_capacity(group.indexes.len());
        match told {
            Ok(told) => answers.extend(told.into_iter().map(|told| {
                let kept = told.map_err(|why| failure = Some(why));
                kept.ok()
            })),
            Err(why) => {
                failure = Some(why);
                answers.resize_with(group.indexes.len(), || None);
            }
        }
        if let Some(failure) = failure {
            let target = (group.shard, R::KIND);
            let settled = self.settle(failure, &group.node, call, target, &mut tries);
            if let Err(error) = settled.await {
                for (&at, answer) in group.indexes.iter().zip(&mut answers) {
                    let shard = self.locate(rows.namespace(), rows.partition(at));
                    answer.get_or_insert_with(|| rows.failed(at_shard(error.clone(), shard)));
                }
            }
        }
        (group, answers)
    }
}

/// The failure of a node, told of one of its shards.
fn at_shard(error: StoreError, at: ShardId) -> StoreError {
    match of_shard(error, at) {
        StoreError::Unavailable {
            reason, outcome, ..
        } => StoreError::Unavailable {
            shard: at,
            reason,
            outcome,
        },
        StoreError::NodeBusy { .. } => StoreError::NodeBusy { shard: at },
        StoreError::DeadlinePassed { .. } => StoreError::DeadlinePassed { shard: at },
        error => error,
    }
}
