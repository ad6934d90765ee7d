//! The access of clients to a store, as long as its process runs.

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use umbo_store::Store;

/// A process with a store.
#[derive(Debug, Default)]
pub(crate) struct Endpoint {
    store: RefCell<Option<Arc<dyn Store>>>,
    /// Counts how often the process has ended.
    ended: watch::Sender<u64>,
}

impl Endpoint {
    /// Gives clients access to a store.
    pub(crate) fn begin(&self, store: Arc<dyn Store>) {
        self.store.replace(Some(store));
    }

    /// Ends the pending calls of clients, and returns the store.
    pub(crate) fn end(&self) -> Option<Arc<dyn Store>> {
        let store = self.store.replace(None);
        self.ended.send_modify(|times| *times += 1);
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
        let store = self.store.borrow().clone()?;
        let mut ended = self.ended.subscribe();
        tokio::select! {
            biased;
            _ = ended.changed() => None,
            answer = operation(store) => Some(answer),
        }
    }
}
