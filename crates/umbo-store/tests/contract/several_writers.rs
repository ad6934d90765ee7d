//! An engine that promises no more than the core, as a distributed one would: several writers to a shard, with
//! versions of their own, and chunks that are no snapshots. It passes the suite for what it declares, and fails it
//! where it declares more.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::task::yield_now;
use umbo_store::suite::{self, Engine};
use umbo_store::{
    CallContext, Capabilities, ManualClock, MemoryStore, Page, RangeRequest, RowBatch, RowRef,
    Store, StoreError, VersionOrder, WrappedStore,
};
use umbo_types::ShardId;

/// Writers of which each has a partition, and readers that do not see all of them at the same instant.
#[derive(Debug)]
struct SeveralWriters {
    rows: MemoryStore,
    declared: Capabilities,
}

/// What the engine does promise.
const CORE: Capabilities = Capabilities {
    answers_at_once: false,
    chunk_is_snapshot: false,
    versions: VersionOrder::Partition,
    backups: false,
    fast_writes: false,
};

impl SeveralWriters {
    fn new(clock: Arc<ManualClock>, declared: Capabilities) -> Self {
        let rows = MemoryStore::with_versions(VersionOrder::Partition, 3, clock);
        Self {
            rows: rows.expect("three shards"),
            declared,
        }
    }
}

#[async_trait]
impl WrappedStore for SeveralWriters {
    fn inner(&self) -> &dyn Store {
        &self.rows
    }

    fn capabilities(&self) -> Capabilities {
        self.declared
    }

    /// Reads the first row of a chunk some time before the others.
    async fn range(
        &self,
        call: &CallContext,
        shard: ShardId,
        request: &RangeRequest,
    ) -> Result<Page, StoreError> {
        let before = self.rows.range(call, shard, request).await?;
        yield_now().await;
        let mut page = self.rows.range(call, shard, request).await?;
        let shape = |rows: &RowBatch| -> Vec<_> {
            let shape = |row: RowRef<'_>| (row.sort.to_vec(), row.value.len());
            rows.iter().map(shape).collect()
        };
        if shape(&before.rows) == shape(&page.rows) {
            let mut rows = RowBatch::default();
            for row in before.rows.iter().take(1).chain(page.rows.iter().skip(1)) {
                rows.push(row);
            }
            page.rows = rows;
        }
        Ok(page)
    }
}

struct Honest(Arc<SeveralWriters>);

#[async_trait]
impl Engine for Honest {
    async fn create(clock: Arc<ManualClock>) -> Self {
        Self(Arc::new(SeveralWriters::new(clock, CORE)))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::<SeveralWriters>::clone(&self.0)
    }
}

umbo_store::contract_suite!(Honest);

/// Declares what it does not do.
struct Boastful(Arc<SeveralWriters>);

#[async_trait]
impl Engine for Boastful {
    async fn create(clock: Arc<ManualClock>) -> Self {
        Self(Arc::new(SeveralWriters::new(
            clock,
            Capabilities::ONE_WRITER,
        )))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::<SeveralWriters>::clone(&self.0)
    }
}

#[tokio::test]
#[should_panic(expected = "was given twice")]
async fn versions_that_do_not_grow_as_declared_are_found() {
    suite::version::versions_grow_whatever_is_proposed::<Boastful>().await;
}

#[tokio::test]
#[should_panic(expected = "two generations in one chunk")]
async fn chunks_that_are_no_snapshots_as_declared_are_found() {
    suite::range::a_chunk_is_one_snapshot::<Boastful>().await;
}
