//! Which keys operators have pinned and blocked, on all dispatchers and across restarts.
//!
//! One record a list, changed like all records by compare-and-set, so that the bound of a list holds for concurrent
//! changes too. `HotLists::maintain` ends an entry within a second after it has run out. The entry leaves the
//! record with the next change, as do the entries of removed namespaces.

pub(crate) mod error;
mod key_id;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use umbo_api::hot::{HotList, HotListing, HotStanding};
use umbo_hotkey::LISTED_KEYS_MAX;
use umbo_store::Condition;
use umbo_types::{Clock, NamespaceId, Timestamp, Version, limits};

pub use self::error::HotKeyError;
pub use self::key_id::{KeyId, KeyIdHasher};
use crate::error::ControlError;
use crate::namespaces;
use crate::records::{Edits, Kind, RecordSet, Unreadable, unreadable};

/// Longest record, so that it fits into a row with its header.
const RECORD_LEN_MAX: usize = limits::VALUE_LEN_MAX - 1_024;

/// Puts the listed keys into effect.
pub trait ListedKeys: fmt::Debug + Send + Sync {
    /// Replaces the keys of both lists, at once.
    fn replace(&self, pinned: &[KeyId], blocked: &[KeyId]);
}

/// A key on a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEntry {
    /// The key.
    pub id: KeyId,
    /// The caller who listed it, the time, the reason and the end.
    #[serde(flatten)]
    pub listing: HotListing,
}

impl ListEntry {
    fn is_over(&self, now_ms: u64) -> bool {
        self.listing.until.is_some_and(|until| until <= now_ms)
    }
}

/// The lists of pinned and of blocked keys in a set of records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lists {
    pinned: Vec<ListEntry>,
    blocked: Vec<ListEntry>,
}

impl Lists {
    /// Reads the lists of a set of records.
    pub(crate) fn read(set: &RecordSet) -> Result<Self, Unreadable> {
        let mut lists = Self::default();
        for (name, content) in set.of(Kind::Hot) {
            let unreadable = |why| unreadable(Kind::Hot, name, &why);
            // The reason is left out: it may quote the record.
            let entries = serde_json::from_slice(content)
                .map_err(|_| unreadable("this version cannot decode it"))?;
            let list = HotList::ALL.into_iter().find(|list| list.as_str() == name);
            match list.ok_or_else(|| unreadable("there is no such list"))? {
                HotList::Pinned => lists.pinned = entries,
                HotList::Blocked => lists.blocked = entries,
            }
        }
        Ok(lists)
    }

    fn of(&self, list: HotList) -> &[ListEntry] {
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

/// The result of a request to list a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListChange {
    /// The key was not listed, and is now.
    Added,
    /// The key was listed already, and its entry was replaced.
    Replaced,
    /// The key stays as it was listed.
    Unchanged,
}

/// How a key stands on a list after a request to list it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOutcome {
    /// Entry of the key on the list.
    pub listing: HotListing,
    /// The change of the entry.
    pub change: ListChange,
}

impl PutOutcome {
    fn of(listing: &HotListing, change: ListChange) -> Self {
        let listing = listing.clone();
        Self { listing, change }
    }
}

/// Returns the version of an entry: when it was made, in milliseconds since the Unix epoch.
pub const fn version(listing: &HotListing) -> Version {
    Version(listing.at)
}

/// Returns whether two entries say the same: for the same reason and the same length of time.
fn is_same(one: &HotListing, other: &HotListing) -> bool {
    let length = |listing: &HotListing| listing.until.map(|until| until.saturating_sub(listing.at));
    one.reason == other.reason && length(one) == length(other)
}

/// The lists in effect.
#[derive(Debug, Default)]
struct InEffect {
    lists: Lists,
    /// When the next entry runs out.
    next_end: Option<u64>,
}

/// The lists of a dispatcher.
#[derive(Debug)]
pub struct HotLists {
    clock: Arc<dyn Clock>,
    listed: Arc<dyn ListedKeys>,
    /// Held while the shield is told, so that it never takes an older state for a newer one.
    in_effect: Mutex<InEffect>,
}

impl HotLists {
    /// Begins without entries.
    pub(crate) fn new(clock: Arc<dyn Clock>, listed: Arc<dyn ListedKeys>) -> Self {
        Self {
            clock,
            listed,
            in_effect: Mutex::default(),
        }
    }

    /// Puts the lists of another revision of the records into effect.
    pub(crate) fn take_up(&self, lists: Lists) {
        let now_ms = self.now_ms();
        let mut in_effect = self.in_effect();
        if in_effect.lists == lists {
            return;
        }
        self.tell(&lists, now_ms);
        in_effect.next_end = lists.next_end(now_ms);
        in_effect.lists = lists;
    }

    /// Ends entries that have run out. To be called once a second.
    pub(crate) fn maintain(&self) {
        let now_ms = self.now_ms();
        let mut in_effect = self.in_effect();
        if in_effect.next_end.is_some_and(|end| end <= now_ms) {
            in_effect.next_end = in_effect.lists.next_end(now_ms);
            self.tell(&in_effect.lists, now_ms);
        }
    }

    /// Plans to put a key on a list if the condition holds for its entry there. Without a condition, an existing
    /// entry stays, and must have the same reason and time. Entries that have run out by `believed` leave the list.
    pub(crate) fn put(
        (set, believed): (&RecordSet, Timestamp),
        list: HotList,
        entry: &ListEntry,
        condition: &Condition,
    ) -> Result<(Edits, PutOutcome), ControlError> {
        Self::plan((set, believed), list, |entries| {
            let held = entries.iter_mut().find(|held| held.id == entry.id);
            let current = held.as_ref().map(|held| version(&held.listing));
            if !condition.holds(current) {
                return Err(ControlError::ConditionFailed { current });
            }
            let Some(held) = held else {
                let max = LISTED_KEYS_MAX;
                if entries.len() >= max {
                    return Err(HotKeyError::TooMany { list, max }.into());
                }
                entries.push(entry.clone());
                return Ok(PutOutcome::of(&entry.listing, ListChange::Added));
            };
            if matches!(condition, Condition::Always) {
                return if is_same(&held.listing, &entry.listing) {
                    Ok(PutOutcome::of(&held.listing, ListChange::Unchanged))
                } else {
                    Err(HotKeyError::Listed(list).into())
                };
            }
            // The instant is the version, so each has its own.
            let at = entry.listing.at.max(held.listing.at + 1);
            held.listing = HotListing {
                at,
                ..entry.listing.clone()
            };
            Ok(PutOutcome::of(&held.listing, ListChange::Replaced))
        })
    }

    /// Plans to take a key off a list. Entries that have run out by `believed` leave it too.
    pub(crate) fn remove(
        (set, believed): (&RecordSet, Timestamp),
        list: HotList,
        id: &KeyId,
    ) -> Result<(Edits, ()), ControlError> {
        Self::plan(
            (set, believed),
            list,
            |entries| -> Result<(), ControlError> {
                let at = entries.iter().position(|held| held.id == *id);
                let at = at.ok_or(HotKeyError::NotListed(list))?;
                entries.remove(at);
                Ok(())
            },
        )
    }

    fn plan<T>(
        (set, believed): (&RecordSet, Timestamp),
        list: HotList,
        edit: impl FnOnce(&mut Vec<ListEntry>) -> Result<T, ControlError>,
    ) -> Result<(Edits, T), ControlError> {
        let live = namespaces::live_ids(set)?;
        let mut entries = Lists::read(set)?.of(list).to_vec();
        entries.retain(|entry| live.contains(&entry.id.namespace()));
        let is_over = |entry: &mut ListEntry| entry.is_over(believed.as_millis());
        let over: Vec<_> = entries.extract_if(.., is_over).collect();
        let over_since = over.iter().filter_map(|entry| entry.listing.until).max();
        let outcome = edit(&mut entries)?;
        let content = serde_json::to_vec(&entries);
        let content = content.map_err(|error| ControlError::Internal(error.to_string()))?;
        if content.len() > RECORD_LEN_MAX {
            return Err(HotKeyError::TooLong {
                list,
                max: RECORD_LEN_MAX,
            }
            .into());
        }
        let edits = Edits::none().put(Kind::Hot, list.as_str(), content);
        let edits = edits.due_at(over_since.map(Timestamp::from_millis));
        Ok((edits, outcome))
    }

    /// Returns how a key stands on a list.
    pub fn listing(&self, list: HotList, id: &KeyId) -> Option<HotListing> {
        let now_ms = self.now_ms();
        let in_effect = self.in_effect();
        let mut entries = in_effect.lists.of(list).iter();
        let found = entries.find(|entry| entry.id == *id && !entry.is_over(now_ms));
        found.map(|entry| entry.listing.clone())
    }

    /// Returns the standing of a key on the lists, or `None` if it is on neither.
    pub fn standing(&self, id: &KeyId) -> Option<HotStanding> {
        if self.listing(HotList::Blocked, id).is_some() {
            return Some(HotStanding::Blocked);
        }
        let pinned = self.listing(HotList::Pinned, id);
        pinned.map(|_| HotStanding::Pinned)
    }

    /// Hands on the keys of the lists.
    fn tell(&self, lists: &Lists, now_ms: u64) {
        let keys = |list: HotList| -> Vec<KeyId> {
            let live = lists.of(list).iter().filter(|entry| !entry.is_over(now_ms));
            let live = live.filter(|entry| entry.id.namespace() != NamespaceId::SYSTEM);
            live.map(|entry| entry.id.clone()).collect()
        };
        self.listed
            .replace(&keys(HotList::Pinned), &keys(HotList::Blocked));
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
