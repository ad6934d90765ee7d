//! Which keys operators have pinned and blocked, on all pods and across restarts.
//!
//! The truth is in the system records, one record a list: a change is compare-and-set, so that the
//! bound of a list holds whoever changes it. It is in effect here at once, and on other pods at their
//! next refresh. What runs out ends within a second, by [`HotLists::maintain`], and leaves the record
//! with the next change; so does what belongs to a namespace that is no more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use umbo_api::hot::{HotList, HotListing, HotStanding};
use umbo_hotkey::{LISTED_KEYS_MAX, ReadKey};
use umbo_types::{Clock, NamespaceId, limits};

use super::HotKeys;
use super::error::HotKeyError;
use super::key_id::KeyId;
use crate::failure::Failure;
use crate::namespaces::Namespaces;
use crate::system::SystemRecords;

const KIND: &str = "hot";
/// Longest record, so that it fits into a row with what stands before it.
pub(super) const RECORD_LEN_MAX: usize = limits::VALUE_LEN_MAX - 1_024;
/// Age in milliseconds from which an entry may be dropped because this pod does not know its
/// namespace: younger ones may be of one that another pod has just created.
const UNKNOWN_AGE_MS: u64 = 60_000;

/// A key on a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) id: KeyId,
    #[serde(flatten)]
    pub(crate) listing: HotListing,
}

impl Entry {
    fn is_over(&self, now_ms: u64) -> bool {
        self.listing.until.is_some_and(|until| until <= now_ms)
    }
}

/// Both lists, as they were last read.
#[derive(Debug, Default)]
struct Lists {
    records: BTreeMap<String, Bytes>,
    pinned: Vec<Entry>,
    blocked: Vec<Entry>,
}

impl Lists {
    fn of(&self, list: HotList) -> &[Entry] {
        match list {
            HotList::Pinned => &self.pinned,
            HotList::Blocked => &self.blocked,
        }
    }

    /// Returns the first instant after `now_ms` at which an entry runs out.
    fn next_end(&self, now_ms: u64) -> Option<u64> {
        let entries = self.pinned.iter().chain(&self.blocked);
        let ends = entries.filter_map(|entry| entry.listing.until);
        ends.filter(|&until| until > now_ms).min()
    }
}

/// What is in effect.
#[derive(Debug, Default)]
struct InEffect {
    lists: Lists,
    /// When something runs out next.
    next_end: Option<u64>,
}

/// The lists of a pod.
#[derive(Debug)]
pub(crate) struct HotLists {
    system: Arc<SystemRecords>,
    clock: Arc<dyn Clock>,
    /// Held while the shield is told, so that it never takes an older state for a newer one.
    in_effect: Mutex<InEffect>,
    /// Held while records are read or changed, for the same reason.
    changing: tokio::sync::Mutex<()>,
}

impl HotLists {
    /// Begins with none; [`Self::refresh`] loads them.
    pub(crate) fn new(system: Arc<SystemRecords>, clock: Arc<dyn Clock>) -> Self {
        Self {
            system,
            clock,
            in_effect: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// Loads the lists of the store.
    pub(crate) async fn refresh(&self, hot_keys: &HotKeys) -> Result<(), Failure> {
        let _changing = self.changing.lock().await;
        self.load(hot_keys).await
    }

    /// Ends what has run out. To be called once a second.
    pub(crate) fn maintain(&self, hot_keys: &HotKeys) {
        let now_ms = self.now_ms();
        let mut in_effect = self.in_effect();
        if in_effect.next_end.is_some_and(|end| end <= now_ms) {
            in_effect.next_end = in_effect.lists.next_end(now_ms);
            tell(hot_keys, &in_effect.lists, now_ms);
        }
    }

    /// Puts a key on a list, or changes how it stands there. The flag says whether it is new.
    pub(crate) async fn put(
        &self,
        list: HotList,
        entry: Entry,
        hot_keys: &HotKeys,
        namespaces: &Namespaces,
    ) -> Result<bool, Failure> {
        self.change(list, hot_keys, namespaces, |entries| {
            let held = entries.iter_mut().find(|held| held.id == entry.id);
            if let Some(held) = held {
                held.listing = entry.listing.clone();
                return Ok(false);
            }
            let max = LISTED_KEYS_MAX;
            if entries.len() >= max {
                return Err(HotKeyError::TooMany { list, max });
            }
            entries.push(entry.clone());
            Ok(true)
        })
        .await
    }

    /// Takes a key off a list.
    pub(crate) async fn remove(
        &self,
        list: HotList,
        id: &KeyId,
        hot_keys: &HotKeys,
        namespaces: &Namespaces,
    ) -> Result<(), Failure> {
        self.change(list, hot_keys, namespaces, |entries| {
            let at = entries.iter().position(|held| held.id == *id);
            let at = at.ok_or(HotKeyError::NotListed(list))?;
            entries.remove(at);
            Ok(())
        })
        .await
    }

    /// Returns how a key stands on a list.
    pub(crate) fn listing(&self, list: HotList, id: &KeyId) -> Option<HotListing> {
        let now_ms = self.now_ms();
        let in_effect = self.in_effect();
        let mut entries = in_effect.lists.of(list).iter();
        let found = entries.find(|entry| entry.id == *id && !entry.is_over(now_ms));
        found.map(|entry| entry.listing.clone())
    }

    /// Returns what the lists make of a key; none where it is on neither.
    pub(crate) fn standing(&self, id: &KeyId) -> Option<HotStanding> {
        if self.listing(HotList::Blocked, id).is_some() {
            return Some(HotStanding::Blocked);
        }
        let pinned = self.listing(HotList::Pinned, id);
        pinned.map(|_| HotStanding::Pinned)
    }

    async fn change<T, F>(
        &self,
        list: HotList,
        hot_keys: &HotKeys,
        namespaces: &Namespaces,
        mut edit: F,
    ) -> Result<T, Failure>
    where
        F: FnMut(&mut Vec<Entry>) -> Result<T, HotKeyError> + Send,
        T: Send,
    {
        let _changing = self.changing.lock().await;
        namespaces.refresh().await?;
        let now_ms = self.now_ms();
        let is_dead = |entry: &Entry| {
            let is_old = entry.listing.at.saturating_add(UNKNOWN_AGE_MS) < now_ms;
            entry.is_over(now_ms) || is_old && !namespaces.has_id(entry.id.namespace())
        };
        let mut outcome = None;
        self.system
            .update(KIND, list.as_str(), |current| {
                let mut entries = current.map_or_else(|| Ok(Vec::new()), read)?;
                entries.retain(|entry| !is_dead(entry));
                outcome = Some(edit(&mut entries)?);
                let content = serde_json::to_vec(&entries);
                let content = content.map_err(|error| Failure::Internal(error.to_string()))?;
                if content.len() > RECORD_LEN_MAX {
                    return Err(HotKeyError::TooLong(list).into());
                }
                Ok(Some(content.into()))
            })
            .await?;
        self.load(hot_keys).await?;
        outcome.ok_or_else(|| Failure::Internal("a list of hot keys was not changed".to_owned()))
    }

    /// Reads the records and puts them into effect. To be called under `changing`.
    async fn load(&self, hot_keys: &HotKeys) -> Result<(), Failure> {
        let records = self.system.load(KIND).await?;
        let now_ms = self.now_ms();
        let mut in_effect = self.in_effect();
        if in_effect.lists.records == records {
            return Ok(());
        }
        let entries = |list: HotList| {
            let record = records.get(list.as_str());
            record.map_or_else(|| Ok(Vec::new()), read)
        };
        let lists = Lists {
            pinned: entries(HotList::Pinned)?,
            blocked: entries(HotList::Blocked)?,
            records,
        };
        tell(hot_keys, &lists, now_ms);
        in_effect.next_end = lists.next_end(now_ms);
        in_effect.lists = lists;
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        self.clock.wall().as_millis()
    }

    fn in_effect(&self) -> MutexGuard<'_, InEffect> {
        self.in_effect
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells the shield what holds now.
fn tell(hot_keys: &HotKeys, lists: &Lists, now_ms: u64) {
    let Some(shield) = hot_keys.shield() else {
        return;
    };
    let seed = shield.seed();
    let keys = |list: HotList| -> Vec<ReadKey> {
        let live = lists.of(list).iter().filter(|entry| !entry.is_over(now_ms));
        let live = live.filter(|entry| entry.id.namespace() != NamespaceId::SYSTEM);
        live.map(|entry| entry.id.read_key(seed)).collect()
    };
    if let Err(error) = hot_keys.list(keys(HotList::Pinned), keys(HotList::Blocked)) {
        tracing::error!(%error, "the lists of hot keys could not be put into effect");
    }
}

fn read(record: &Bytes) -> Result<Vec<Entry>, Failure> {
    let entries = serde_json::from_slice(record);
    // The reason is left out: it may quote what stands in the record.
    entries.map_err(|_| Failure::Internal("a record of hot keys is damaged".to_owned()))
}
