//! Rows that dispatchers keep outside the records, which are copied whole at each change: one partition of the SYSTEM
//! namespace, at the home of Umbo's own records. Nothing on the path of a request reads or writes them.

use std::sync::Arc;

use umbo_dispatcher::Dispatcher;
use umbo_dispatcher::plane::OwnRows;
use umbo_http::RequestError;
use umbo_store::{Change, Condition, Mutation, Page, RangeRequest, SortRange, home_partition};
use umbo_types::{Caller, Key, NamespaceId, PartitionKey, SortKey, limits};

/// The rows of a partition, as this dispatcher reads and writes them.
#[derive(Debug)]
pub(crate) struct HomeRows {
    pub(crate) dispatcher: Arc<Dispatcher>,
    rows: OwnRows,
    /// Name of the partition.
    partition: &'static str,
}

impl HomeRows {
    pub(crate) fn new(dispatcher: &Arc<Dispatcher>, partition: &'static str) -> Self {
        Self {
            dispatcher: Arc::clone(dispatcher),
            rows: OwnRows::of_operator(dispatcher, 0),
            partition,
        }
    }

    /// Returns the rows for a report to a caller, which waits as its other requests do.
    pub(crate) fn for_report(mut self, caller: &Caller) -> Self {
        self.rows = OwnRows::of_report(&self.dispatcher, caller);
        self
    }

    /// Changes a row if the condition is true; returns whether it was. The key is a short text.
    pub(crate) async fn change(
        &self,
        key: String,
        change: Change,
        condition: Condition,
    ) -> Result<bool, RequestError> {
        let mutation = Mutation {
            key: Key {
                partition: self.partition()?,
                sort: SortKey::new(key).expect("it is short"),
            },
            change,
            condition,
        };
        self.rows.write_one(NamespaceId::SYSTEM, mutation).await
    }

    /// Reads a page of a range of [`Self::partition`], in the order of keys. Returns the rest of the range too, if the page
    /// is not the last.
    pub(crate) async fn page(
        &self,
        partition: &PartitionKey,
        range: SortRange,
    ) -> Result<(Page, Option<SortRange>), RequestError> {
        let request = RangeRequest {
            namespace: NamespaceId::SYSTEM,
            partition: partition.clone(),
            range,
            reverse: false,
            rows_max: limits::CHUNK_ROWS_MAX,
            bytes_max: limits::CHUNK_BYTES_MAX,
            keys_only: false,
        };
        let page = self.rows.range(&request).await?;
        let last = page.resume_after.as_deref();
        let rest = last.map(|last| request.range.beyond(last, false));
        Ok((page, rest))
    }

    /// Returns the partition, after a search of some thousand names.
    pub(crate) fn partition(&self) -> Result<PartitionKey, RequestError> {
        let home = self.dispatcher.store.home();
        let found = home_partition(&self.dispatcher.shard_map, home, self.partition);
        found.ok_or_else(|| RequestError::Internal("the home has no slots".to_owned()))
    }
}
