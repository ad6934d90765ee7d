//! Calls of a store by key, for tests: each is made of the shards that its keys are of.
//!
//! The contract is per shard; a test that is about rows and not about shards says so with these.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use async_trait::async_trait;
use bytes::Bytes;
use umbo_types::{Key, NamespaceId, Row, ShardId};

use crate::call::CallContext;
use crate::error::{StoreError, WriteError};
use crate::large::ChunkRequest;
use crate::request::{
    DeleteRangeRequest, Deleted, Page, RangeRequest, ScanRequest, WriteRequest, Written,
};
use crate::row_batch::RowBatch;
use crate::store::Store;

/// Calls of the shards of a store by key. Parts for several shards are begun in the first poll, in the order of the shards.
#[async_trait]
pub trait ByKey: Store {
    /// Returns the shard of a key.
    fn shard_of(&self, namespace: NamespaceId, key: &Key) -> ShardId {
        self.shard_map().locate(namespace, &key.partition)
    }

    /// See [`Store::get`].
    async fn get_row(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        key: &Key,
    ) -> Result<Option<Row>, StoreError> {
        self.get(call, self.shard_of(namespace, key), namespace, key)
            .await
    }

    /// See [`Store::multi_get`]; keys may be of several shards. A key without an answer fails the test.
    async fn get_rows(
        &self,
        call: &CallContext,
        namespace: NamespaceId,
        keys: &[Key],
    ) -> Vec<Result<Option<Row>, StoreError>> {
        let parts = parts(keys, |key| self.shard_of(namespace, key));
        let asked = parts.iter().map(|(shard, indexes)| {
            let keys: Vec<Key> = indexes.iter().map(|&at| keys[at].clone()).collect();
            async move { self.multi_get(call, *shard, namespace, &keys).await }
        });
        let answers = all(asked).await;
        merged(parts, answers)
    }

    /// See [`Store::range`].
    async fn range_of(
        &self,
        call: &CallContext,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        let map = self.shard_map();
        let shard = map.locate(request.namespace, &request.partition);
        self.range(call, shard, request).await
    }

    /// Reads what is left of a scan in all shards that have any of its slots, in chunks of its limits.
    async fn scan_all(
        &self,
        call: &CallContext,
        request: &ScanRequest,
    ) -> Result<RowBatch, StoreError> {
        let mut rows = RowBatch::default();
        for shard in self.shard_map().owners_of(request.slots.clone()) {
            let mut request = request.clone();
            loop {
                let page = self.scan(call, shard, &request).await?;
                page.rows.iter().for_each(|row| rows.push(row));
                match page.resume_after {
                    None => break,
                    after => request.after = after,
                }
            }
        }
        Ok(rows)
    }

    /// See [`Store::chunk`].
    async fn chunk_of(
        &self,
        call: &CallContext,
        key: &Key,
        request: &ChunkRequest,
    ) -> Result<Option<Bytes>, StoreError> {
        let shard = self.shard_of(request.namespace, key);
        self.chunk(call, shard, key, request).await
    }

    /// See [`Store::write`]; rows may be of several shards.
    async fn write_rows(
        &self,
        call: &CallContext,
        request: WriteRequest,
    ) -> Vec<Result<Written, WriteError>> {
        let namespace = request.namespace;
        let parts = parts(&request.mutations, |one| self.shard_of(namespace, &one.key));
        let asked = parts.iter().map(|(shard, indexes)| {
            let mutations = indexes.iter().map(|&at| request.mutations[at].clone());
            let idempotency = request.idempotency.as_ref();
            let part = WriteRequest {
                mutations: mutations.collect(),
                idempotency: idempotency.map(|one| one.of_part(indexes.iter().copied())),
                ..request.clone()
            };
            async move {
                let answers = self.write(call, *shard, part).await.into_iter();
                answers
                    .map(|answer| answer.map_err(|error| error.with_index(|at| indexes[at])))
                    .collect()
            }
        });
        let answers = all(asked).await;
        merged(parts, answers)
    }

    /// See [`Store::delete_range`].
    async fn remove_rows(
        &self,
        call: &CallContext,
        request: DeleteRangeRequest,
    ) -> Result<Deleted, StoreError> {
        let map = self.shard_map();
        let shard = map.locate(request.namespace, &request.partition);
        self.delete_range(call, shard, request).await
    }
}

impl<S: Store + ?Sized> ByKey for S {}

/// Indexes of a request by shard.
type IndexesByShard = Vec<(ShardId, Vec<usize>)>;

fn parts<T>(all: &[T], shard_of: impl Fn(&T) -> ShardId) -> IndexesByShard {
    let mut parts = IndexesByShard::new();
    for (index, one) in all.iter().enumerate() {
        let shard = shard_of(one);
        match parts.iter_mut().find(|(known, _)| *known == shard) {
            Some((_, indexes)) => indexes.push(index),
            None => parts.push((shard, vec![index])),
        }
    }
    parts.sort_by_key(|(shard, _)| *shard);
    parts
}

fn merged<T>(parts: IndexesByShard, answers: Vec<Vec<T>>) -> Vec<T> {
    let parts = parts.into_iter().zip(answers);
    let mut merged: Vec<(usize, T)> = parts
        .flat_map(|((_, indexes), answers)| {
            assert_eq!(indexes.len(), answers.len(), "one answer for each");
            indexes.into_iter().zip(answers)
        })
        .collect();
    merged.sort_by_key(|(index, _)| *index);
    merged.into_iter().map(|(_, answer)| answer).collect()
}

/// Waits for all futures, which are begun in order.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = running.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, done) in running.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(answer) = future.as_mut().poll(context)
            {
                *done = Some(answer);
            }
        }
        if done.iter().all(Option::is_some) {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
    done.into_iter().flatten().collect()
}
