//! Multi-gets, answered in parts, so that the rows of a thousand keys are never in memory at once for one
//! peer.

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use umbo_protocol::{Answer, AnswerPart, NodeError, Outcome};
use umbo_store::{CallContext, Store};
use umbo_types::{Key, NamespaceId};

use crate::limits::PART_LEN_MAX;
use crate::ownership::Ownership;
use crate::quota::{ActualWork, ChargeHandle};
use crate::reads::row_len;

/// Keys per read of the store.
const KEYS_AT_ONCE: usize = 8;

/// A multi-get in progress.
pub(crate) struct MultiGetProgress {
    pub(crate) id: u64,
    pub(crate) call: CallContext,
    namespace: NamespaceId,
    keys: Vec<Key>,
    at: usize,
    begun: Instant,
    part: RowsPart,
    receipt: Option<Box<dyn ChargeHandle>>,
    done: ActualWork,
}

/// Rows of one part of the answer.
#[derive(Debug, Default)]
struct RowsPart {
    rows: Vec<AnswerPart>,
    len: u64,
    read: u64,
}

impl MultiGetProgress {
    pub(crate) fn new(
        id: u64,
        call: CallContext,
        (namespace, keys): (NamespaceId, Vec<Key>),
        begun: Instant,
        receipt: Option<Box<dyn ChargeHandle>>,
    ) -> Self {
        Self {
            id,
            call,
            namespace,
            keys,
            at: 0,
            begun,
            part: RowsPart::default(),
            receipt,
            done: ActualWork::default(),
        }
    }

    /// Ends without what is left: what was read is charged, and nothing where that is none.
    pub(crate) fn give_up(self) {
        if let Some(receipt) = self.receipt {
            if self.at == 0 {
                receipt.release();
            } else {
                receipt.settle(self.done);
            }
        }
    }

    /// Returns whether the last part has been sent.
    pub(crate) fn is_over(&self) -> bool {
        self.at > self.keys.len()
    }

    /// Reads a few rows; returns a part if one is full or it is the last. Pending if the store does not
    /// answer at once this time.
    pub(crate) fn step_now(
        &mut self,
        store: &dyn Store,
        ownership: &Ownership,
        now: Instant,
        context: &mut Context<'_>,
        answer: &mut impl FnMut(Answer),
    ) -> Poll<()> {
        std::pin::pin!(self.step(store, ownership, now, answer)).poll(context)
    }

    /// Reads all remaining rows.
    pub(crate) async fn run(mut self, store: &dyn Store, ownership: &Ownership) -> Vec<Answer> {
        let mut answers = Vec::new();
        while !self.is_over() {
            let begun = self.begun;
            self.step(store, ownership, begun, &mut |answer| answers.push(answer))
                .await;
        }
        answers
    }

    async fn step(
        &mut self,
        store: &dyn Store,
        ownership: &Ownership,
        now: Instant,
        answer: &mut impl FnMut(Answer),
    ) {
        let end = self.keys.len().min(self.at + KEYS_AT_ONCE);
        let keys = &self.keys[self.at..end];
        let rows = read(store, &self.call, ownership, self.namespace, keys).await;
        let service_time = now.saturating_duration_since(self.begun);
        for (key, row) in keys.iter().zip(rows) {
            let len = match &row {
                Ok(Some(row)) => row_len(key, row),
                _ => 0,
            };
            if !self.part.rows.is_empty() && self.part.len + len > PART_LEN_MAX as u64 {
                answer(std::mem::take(&mut self.part).answer(self.id, service_time, true));
            }
            self.done.bytes += len;
            self.done.rows += u64::from(row.is_ok());
            self.part.len += len;
            self.part.read += u64::from(row.is_ok());
            self.part.rows.push(row);
        }
        self.at = end;
        if end == self.keys.len() {
            self.at += 1;
            self.done.service_time = service_time;
            if let Some(receipt) = self.receipt.take() {
                receipt.settle(self.done);
            }
            answer(std::mem::take(&mut self.part).answer(self.id, service_time, false));
        }
    }
}

impl RowsPart {
    fn answer(self, id: u64, service_time: Duration, has_more: bool) -> Answer {
        Answer {
            id,
            service_time,
            busy_time: service_time,
            has_more,
            rows: self.read,
            bytes: self.len,
            outcome: Outcome::MultiGot(self.rows),
        }
    }
}

/// Reads rows of the shards that are served here.
async fn read(
    store: &dyn Store,
    call: &CallContext,
    ownership: &Ownership,
    namespace: NamespaceId,
    keys: &[Key],
) -> Vec<AnswerPart> {
    let check = |key: &Key| ownership.locate(namespace, &key.partition).err();
    let refused: Vec<Option<NodeError>> = keys.iter().map(check).collect();
    if refused.iter().all(Option::is_none) {
        let rows = store.multi_get(call, namespace, keys).await;
        return rows
            .into_iter()
            .map(|row| row.map_err(Into::into))
            .collect();
    }
    let mut rows = Vec::with_capacity(keys.len());
    for (key, refused) in keys.iter().zip(refused) {
        rows.push(match refused {
            Some(error) => Err(error),
            None => store.get(call, namespace, key).await.map_err(Into::into),
        });
    }
    rows
}
