//! Rows that dispatchers keep outside the records, which are copied whole at each change: one partition of the SYSTEM
//! namespace, at the home of Umbo's own records. Nothing on the path of a request reads or writes them.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::task::spawn_blocking;
use umbo_dispatcher::Dispatcher;
use umbo_dispatcher::plane::OwnRows;
use umbo_http::RequestError;
use umbo_store::compression::densely_compressed;
use umbo_store::{Change, Condition, Mutation, Page, RangeRequest, SortRange, home_partition};
use umbo_types::{Caller, Key, NamespaceId, PartitionKey, SortKey, Timestamp, Value, limits};

/// Time that the last writes have when the server stops: a home that restarts is back by then.
pub(crate) const END_TIME_MAX: Duration = Duration::from_secs(10);
/// Pause before a last write is tried again.
pub(crate) const END_PAUSE: Duration = Duration::from_millis(250);

/// Returns the time of day at the home, or of most clocks if the home is behind them.
pub(crate) fn now(dispatcher: &Dispatcher) -> Timestamp {
    dispatcher.lives_from(dispatcher.store.home().shard)
}

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

    /// Writes a row that lasts for a time.
    pub(crate) async fn put(
        &self,
        key: String,
        value: Value,
        ttl: Duration,
    ) -> Result<(), RequestError> {
        let expires_at = Some(now(&self.dispatcher).saturating_add(ttl));
        let change = Change::Put { value, expires_at };
        let changed = self.change(key, change, Condition::Always).await;
        changed.map(drop)
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

    /// Reads a page of a range of [`Self::partition`], in the order of keys or in reverse. Returns the rest of the range too, if the page
    /// is not the last.
    pub(crate) async fn page(
        &self,
        partition: &PartitionKey,
        range: SortRange,
        reverse: bool,
    ) -> Result<(Page, Option<SortRange>), RequestError> {
        let request = RangeRequest {
            namespace: NamespaceId::SYSTEM,
            partition: partition.clone(),
            range,
            reverse,
            rows_max: limits::CHUNK_ROWS_MAX,
            bytes_max: limits::CHUNK_BYTES_MAX,
            keys_only: false,
        };
        let page = self.rows.range(&request).await?;
        let last = page.resume_after.as_deref();
        let rest = last.map(|last| request.range.beyond(last, reverse));
        Ok((page, rest))
    }

    /// Returns the partition, after a search of some thousand names.
    pub(crate) fn partition(&self) -> Result<PartitionKey, RequestError> {
        let home = self.dispatcher.store.home();
        let found = home_partition(&self.dispatcher.shard_map, home, self.partition);
        found.ok_or_else(|| RequestError::Internal("the home has no slots".to_owned()))
    }
}

/// Returns a row of JSON, which is seldom read and long kept.
pub(crate) fn json_value(text: &impl Serialize) -> Value {
    densely_compressed(Value {
        bytes: serde_json::to_vec(text).unwrap_or_default().into(),
        ..Value::default()
    })
}

/// Does work that takes long on a thread that serves no requests.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RequestError> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| RequestError::Internal(error.to_string()))
}
