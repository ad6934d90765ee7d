//! The in-memory reference passes the contract suite.

use std::sync::Arc;

use umbo_store::suite::Engine;
use umbo_store::{ManualClock, MemoryStore, Store};

struct Memory(Arc<MemoryStore>);

#[async_trait::async_trait]
impl Engine for Memory {
    async fn create(clock: Arc<ManualClock>) -> Self {
        Self(Arc::new(MemoryStore::new(3, clock).expect("three shards")))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::<MemoryStore>::clone(&self.0)
    }
}

umbo_store::contract_suite!(Memory);
