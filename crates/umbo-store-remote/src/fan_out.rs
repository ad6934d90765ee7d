//! Requests for rows of many shards: one message per node, answers put back in order.
//!
//! Rows without an answer are asked for in rounds; nearly always one round is enough. If a node fails, only
//! its rows are answered with its error. All rows of an atomic group are in one partition, so the group goes
//! to one node.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::timeout;
use umbo_protocol::{Ask, NodeError, Outcome};
use umbo_store::{CallContext, StoreError, WriteError, WriteRequest, Written};
use umbo_types::{Key, NamespaceId, PartitionKey, Row, ShardId};

use crate::attempt::{AccessKind, AttemptError, short_of};
use crate::node::Node;
use crate::store::RemoteStore;
use crate::unknown_shard::of_shard;

/// A request with an answer for each of its rows.
trait ManyRows: Sync {
    type Answer: Send;
    const KIND: AccessKind;

    fn count(&self) -> usize;
    fn namespace(&self) -> NamespaceId;
    fn partition(&self, at: usize) -> &PartitionKey;
    /// Returns the same request for some of its rows.
    fn ask(&self, indexes: &[usize]) -> Ask;
    /// Reads the answer to the request for some rows; none if it is of another kind. Rows whose failure may
    /// be repeated are errors here.
    fn read_answer(
        &self,
        indexes: &[usize],
        outcome: Outcome,
    ) -> Option<Vec<RowResult<Self::Answer>>>;
    fn failed(&self, error: StoreError) -> Self::Answer;
}

/// Result for a row: its answer, or an error to handle.
type RowResult<T> = Result<T, AttemptError>;

/// The part of a request for one node.
struct NodeRows {
    node: Arc<Node>,
    /// Shard of the first of its rows.
    shard: ShardId,
    /// Indexes in the whole request, ascending.
    indexes: Vec<usize>,
}

struct Reads<'a> {
    namespace: NamespaceId,
    keys: &'a [Key],
}

impl ManyRows for Reads<'_> {
    type Answer = Result<Option<Row>, StoreError>;
    const KIND: AccessKind = AccessKind::Read;

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

    fn read_answer(
        &self,
        _indexes: &[usize],
        outcome: Outcome,
    ) -> Option<Vec<RowResult<Self::Answer>>> {
        let Outcome::MultiGot(rows) = outcome else {
            return None;
        };
        let converted = rows.into_iter().map(|row| match row {
            Ok(row) => Ok(Ok(row)),
            Err(error) => self.converted(error),
        });
        Some(converted.collect())
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
    const KIND: AccessKind = AccessKind::Write;

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
        let idempotency = self.request.idempotency.as_ref();
        Ask::Write(WriteRequest {
            mutations: indexes.iter().map(|&at| mutations[at].clone()).collect(),
            idempotency: idempotency.map(|one| one.of_part(indexes.iter().copied())),
            ..self.request
        })
    }

    fn read_answer(
        &self,
        indexes: &[usize],
        outcome: Outcome,
    ) -> Option<Vec<RowResult<Self::Answer>>> {
        let Outcome::Written(rows) = outcome else {
            return None;
        };
        let converted = rows.into_iter().map(|row| match row {
            Ok(Err(WriteError::Store(error))) => self.converted(NodeError::Store(error)),
            Ok(Err(error)) => {
                // The node's indexes refer to the message that it received.
                let in_request = |index| indexes.get(index).copied().unwrap_or(index);
                Ok(Err(error.with_index(in_request)))
            }
            Ok(Ok(written)) => Ok(Ok(written)),
            Err(error) => self.converted(error),
        });
        Some(converted.collect())
    }

    fn failed(&self, error: StoreError) -> Self::Answer {
        Err(WriteError::Store(error))
    }
}

trait ConvertError: ManyRows {
    /// Converts the error of one row: that of a store is its answer.
    fn converted(&self, error: NodeError) -> RowResult<Self::Answer> {
        match AttemptError::from(error) {
            AttemptError::Store(error) => Ok(self.failed(error)),
            failure => Err(failure),
        }
    }
}

impl<R: ManyRows> ConvertError for R {}

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

    /// Sends rounds of messages until each row has an answer.
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
            for (group, converted) in join_all(asked).await {
                for (at, answer) in group.indexes.into_iter().zip(converted) {
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

    fn groups<R: ManyRows>(&self, indexes: &[usize], rows: &R) -> Vec<NodeRows> {
        let topology = self.topology();
        let mut groups: Vec<NodeRows> = Vec::new();
        for &at in indexes {
            let shard = self.locate(rows.namespace(), rows.partition(at));
            let node = topology.node_of(shard);
            match groups.iter_mut().find(|it| Arc::ptr_eq(&it.node, node)) {
                Some(group) => group.indexes.push(at),
                None => groups.push(NodeRows {
                    node: Arc::clone(node),
                    shard,
                    indexes: vec![at],
                }),
            }
        }
        groups
    }

    /// Asks one node for its rows. Returns an answer for each; none if it is to be asked for again.
    async fn ask_group<R: ManyRows>(
        &self,
        call: &CallContext,
        rows: &R,
        group: NodeRows,
        is_only: bool,
        mut tries: u32,
    ) -> (NodeRows, Vec<Option<R::Answer>>) {
        let ask = rows.ask(&group.indexes);
        let asked = self.attempt(&group.node, call, &ask);
        let outcome = match call.deadline {
            // A node that does not answer must not delay the rows of other nodes.
            Some(deadline) if !is_only => {
                let left = deadline.remaining(self.common.clock.monotonic());
                let asked = timeout(short_of(left), asked).await;
                asked
                    .unwrap_or_else(|_| Err(AttemptError::Unusable("no answer in time".to_owned())))
            }
            _ => asked.await,
        };
        let converted = outcome.and_then(|outcome| {
            let converted = rows.read_answer(&group.indexes, outcome);
            let converted = converted.filter(|converted| converted.len() == group.indexes.len());
            let reason = "it sent an answer of another kind";
            converted.ok_or_else(|| AttemptError::Unusable(reason.to_owned()))
        });
        let mut failure = None;
        let mut answers = Vec::with_capacity(group.indexes.len());
        match converted {
            Ok(converted) => answers.extend(converted.into_iter().map(|converted| {
                let kept = converted.map_err(|why| failure = Some(why));
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

/// The error of a node, with one of its shards.
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
