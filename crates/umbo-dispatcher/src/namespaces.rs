//! The namespaces: names, ids and settings, as an immutable snapshot the path reads lock-free.
//!
//! The truth is in the system records; this pod's snapshot is replaced at once by its own changes
//! and at every refresh by those of other pods; a name it does not know it looks for in the store.
//! Ids are never used again: the rows of a removed namespace are unreachable at once and purged in
//! the background.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::{Mutex, Notify};
use umbo_api::admin::{DurabilitySetting, NamespaceInfo, NamespaceSettings};
use umbo_store::{Durability, Store, StoreError};
use umbo_types::{Clock, Namespace, NamespaceId};

use crate::failure::Failure;
use crate::system::SystemRecords;

const KIND: &str = "namespace";
const COUNTERS: &str = "counter";
const PURGES: &str = "purge";
/// How often the store is looked into for names that this pod does not know.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Rows removed in one step of a purge; small, so that writers are not held up.
const PURGE_ROWS: u32 = 512;

/// What the path needs of a namespace.
#[derive(Debug, Clone)]
pub(crate) struct NamespaceEntry {
    /// What operators see.
    pub(crate) info: NamespaceInfo,
    /// Under which its rows are stored.
    pub(crate) id: NamespaceId,
}

impl NamespaceEntry {
    /// Returns when writes that do not say are acknowledged.
    pub(crate) const fn durability(&self) -> Durability {
        match self.info.settings.durability {
            DurabilitySetting::Sync => Durability::Sync,
            DurabilitySetting::Async => Durability::Async,
        }
    }
}

/// The namespaces of the store.
#[derive(Debug)]
pub(crate) struct Namespaces {
    snapshot: ArcSwap<HashMap<Box<str>, Arc<NamespaceEntry>>>,
    system: Arc<SystemRecords>,
    clock: Arc<dyn Clock>,
    /// Held while a namespace is changed, so that what was found stays true until it is done.
    changing: Mutex<()>,
    /// When the store was last looked into for a name that nobody here knew.
    looked_at: Mutex<Option<Instant>>,
    /// Told of each removal, for whoever purges.
    removed: Notify,
}

impl Namespaces {
    /// Begins with none; [`Self::refresh`] loads them.
    pub(crate) fn new(system: Arc<SystemRecords>, clock: Arc<dyn Clock>) -> Self {
        Self {
            snapshot: ArcSwap::default(),
            system,
            clock,
            changing: Mutex::default(),
            looked_at: Mutex::default(),
            removed: Notify::new(),
        }
    }

    /// Loads all namespaces from the store.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let records = self.system.load(KIND).await?;
        let mut snapshot = HashMap::new();
        for (name, content) in records {
            match serde_json::from_slice::<NamespaceInfo>(&content) {
                Ok(info) => {
                    let id = NamespaceId(info.id);
                    snapshot.insert(name.into(), Arc::new(NamespaceEntry { info, id }));
                }
                Err(error) => tracing::error!(name, %error, "a namespace record is unreadable"),
            }
        }
        self.snapshot.store(Arc::new(snapshot));
        Ok(())
    }

    /// Finds a namespace.
    pub(crate) fn find(&self, name: &str) -> Result<Arc<NamespaceEntry>, Failure> {
        let found = self.snapshot.load().get(name).cloned();
        found.ok_or_else(|| Failure::NamespaceNotFound {
            name: name.to_owned(),
        })
    }

    /// Finds a namespace that another pod may have made a moment ago: looks into the store where this
    /// pod knows none, at most once a second for all who ask.
    pub(crate) async fn find_anew(&self, name: &str) -> Result<Arc<NamespaceEntry>, Failure> {
        if let Ok(found) = self.find(name) {
            return Ok(found);
        }
        // Who comes meanwhile waits for the same look.
        let mut looked_at = self.looked_at.lock().await;
        let now = self.clock.monotonic();
        let is_due = looked_at.is_none_or(|at| now.saturating_duration_since(at) >= LOOK_INTERVAL);
        if is_due {
            *looked_at = Some(now);
            self.refresh().await?;
        }
        self.find(name)
    }

    /// Says whether any namespace has this id.
    pub(crate) fn has_id(&self, id: NamespaceId) -> bool {
        self.snapshot.load().values().any(|entry| entry.id == id)
    }

    /// Returns all namespaces, by name.
    pub(crate) fn all(&self) -> Vec<NamespaceInfo> {
        let snapshot = self.snapshot.load();
        let mut all: Vec<_> = snapshot.values().map(|entry| entry.info.clone()).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Creates a namespace or changes its settings; the flag says whether it was created.
    pub(crate) async fn put(
        &self,
        name: &Namespace,
        settings: NamespaceSettings,
    ) -> Result<(NamespaceInfo, bool), Failure> {
        let _changing = self.changing.lock().await;
        let created_at = self.clock.wall().as_millis();
        let known = self
            .find(name.as_str())
            .ok()
            .map(|entry| entry.info.clone());
        let fresh_id = match known {
            Some(_) => None,
            None => Some(self.next_id().await?),
        };
        let mut is_new = false;
        let content = self
            .system
            .update(KIND, name.as_str(), |current| {
                let current: Option<NamespaceInfo> = current.map(decode).transpose()?;
                is_new = current.is_none();
                let (id, created_at) = match (&current, fresh_id) {
                    (Some(info), _) => (info.id, info.created_at),
                    (None, Some(id)) => (id, created_at),
                    (None, None) => {
                        let name = name.to_string();
                        return Err(Failure::NamespaceNotFound { name });
                    }
                };
                let info = NamespaceInfo {
                    name: name.to_string(),
                    id,
                    created_at,
                    settings,
                };
                encode(&info)
            })
            .await?;
        self.refresh().await?;
        let info = content.as_ref().map(decode).transpose()?;
        let info = info.ok_or_else(|| Failure::Internal("a namespace was not written".into()))?;
        Ok((info, is_new))
    }

    async fn next_id(&self) -> Result<u32, Failure> {
        let mut next = 0;
        self.system
            .update(COUNTERS, KIND, |current| {
                let last: u32 = current.map(decode).transpose()?.unwrap_or(0);
                next = last.checked_add(1).ok_or_else(|| {
                    Failure::Internal("all namespace ids have been used".to_owned())
                })?;
                encode(&next)
            })
            .await?;
        Ok(next)
    }

    /// Removes a namespace. Its rows are unreachable at once; [`Self::purge`] reclaims them.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), Failure> {
        let _changing = self.changing.lock().await;
        let entry = self.find(name)?;
        // The purge is recorded first: a crash in between purges nothing that is still reachable,
        // because a purge begins only where no namespace has the id.
        let id = entry.id.0;
        self.system
            .update(PURGES, &id.to_string(), |_| encode(&id))
            .await?;
        self.system
            .update(KIND, name, |current| match current {
                Some(_) => Ok(None),
                None => Err(Failure::NamespaceNotFound {
                    name: name.to_owned(),
                }),
            })
            .await?;
        self.refresh().await?;
        self.removed.notify_one();
        Ok(())
    }

    /// Waits until a namespace has been removed on this pod since the last call.
    pub(crate) async fn removal(&self) {
        self.removed.notified().await;
    }

    /// Removes the rows of removed namespaces, step by step, until none is left. Yields between
    /// steps; safe to stop at any point and to run on several pods.
    pub(crate) async fn purge(&self, store: &dyn Store) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for (name, content) in self.system.load(PURGES).await? {
            // One that fails is tried again; the others need not wait for it.
            if let Err(failure) = self.purge_one(store, &name, &content).await {
                outcome = Err(failure);
            }
        }
        outcome
    }

    async fn purge_one(
        &self,
        store: &dyn Store,
        name: &str,
        content: &Bytes,
    ) -> Result<(), Failure> {
        let id: u32 = decode(content)?;
        let is_in_use = |entry: &Arc<NamespaceEntry>| entry.id.0 == id;
        if self.snapshot.load().values().any(is_in_use) {
            return Ok(());
        }
        let mut rows = 0;
        loop {
            let step = store.purge(NamespaceId(id), PURGE_ROWS).await?;
            rows += step.rows;
            if !step.more {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.system.update(PURGES, name, |_| Ok(None)).await?;
        tracing::info!(namespace_id = id, rows, "purged a removed namespace");
        Ok(())
    }
}

fn decode<T: serde::de::DeserializeOwned>(bytes: &Bytes) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|error| Failure::Internal(error.to_string()))
}

fn encode<T: serde::Serialize>(value: &T) -> Result<Option<Bytes>, Failure> {
    serde_json::to_vec(value)
        .map(|bytes| Some(bytes.into()))
        .map_err(|error| Failure::Internal(error.to_string()))
}
