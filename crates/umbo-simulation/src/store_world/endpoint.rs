//! The access of clients to a store, as long as its process runs.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::Notify;
use umbo_store::{CompressedStore, Store};

/// One world in so many hands its values to the store compressed, as dispatchers do where a namespace says so.
const COMPRESSED_WORLDS: u64 = 4;

/// A process with a store.
#[derive(Debug)]
pub(crate) struct Endpoint {
    store: RefCell<Option<Arc<dyn Store>>>,
    /// Whether clients store their values compressed.
    compresses: bool,
    /// Wakes the pending calls, in their order, when the process ends.
    ended: Notify,
}

impl Endpoint {
    /// Begins without a store, in the world of this seed.
    pub(crate) fn of(seed: u64) -> Self {
        Self {
            store: RefCell::default(),
            compresses: seed % COMPRESSED_WORLDS == 1,
            ended: Notify::new(),
        }
    }

    /// Gives clients access to a store.
    pub(crate) fn begin(&self, store: Arc<dyn Store>) {
        self.store.replace(Some(store));
    }

    /// Ends the pending calls of clients, and returns the store.
    pub(crate) fn end(&self) -> Option<Arc<dyn Store>> {
        let store = self.store.replace(None);
        self.ended.notify_waiters();
        store
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> Option<Arc<dyn Store>> {
        self.store.borrow().clone()
    }

    /// Returns whether there is a store.
    pub(crate) fn is_open(&self) -> bool {
        self.store.borrow().is_some()
    }

    /// Runs an operation on the store. None if there is no store, or it ends meanwhile.
    pub(crate) async fn ask<T, F: Future<Output = T>>(
        &self,
        operation: impl FnOnce(Arc<dyn Store>) -> F,
    ) -> Option<T> {
        let mut store = self.store.borrow().clone()?;
        if self.compresses {
            store = Arc::new(CompressedStore(store));
        }
        tokio::select! {
            biased;
            () = self.ended.notified() => None,
            answer = operation(store) => Some(answer),
        }
    }
}
