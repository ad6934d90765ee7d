//! Umbo's own records (namespaces, tokens, policies, lists, loads, secrets) as one set at one revision.
//!
//! The set has one home: a partition of the home shard. A change there is one atomic, durable write on the
//! condition that the set has not changed meanwhile (`home`). All others hold a copy of the whole set (`copy`).
//! The module that owns a kind of records knows their content; here a record is a name and bytes. The invariant:
//! a set is whole. A row or copy that cannot be read makes the set unreadable, it never makes a record absent.

mod copy;
mod fences;
pub(crate) mod home;

use std::collections::BTreeMap;

use bytes::Bytes;
use umbo_api::observe::Event;
use umbo_store::{DatasetGroup, RecordsRevision};
use umbo_types::{Timestamp, Version};

use crate::datasets;

/// The kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A change that an operator made, by its number.
    Event,
    /// Namespaces that were removed, by the first of their ids: shards refuse all work for them. Kept for ever.
    Fence,
    /// A list of hot keys.
    Hot,
    /// A load, by id.
    Load,
    /// A namespace, by name.
    Namespace,
    /// A quota policy, by name.
    Quota,
    /// A secret that all dispatchers share.
    Secret,
    /// A token, by id.
    Token,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Event,
        Self::Fence,
        Self::Hot,
        Self::Load,
        Self::Namespace,
        Self::Quota,
        Self::Secret,
        Self::Token,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::Fence => "fence",
            Self::Hot => "hot",
            Self::Load => "load",
            Self::Namespace => "namespace",
            Self::Quota => "quota",
            Self::Secret => "secret",
            Self::Token => "token",
        }
    }
}

/// Names a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RecordKey {
    kind: Kind,
    name: String,
}

impl RecordKey {
    pub(crate) fn new(kind: Kind, name: impl Into<String>) -> Self {
        let name = name.into();
        Self { kind, name }
    }

    /// Reads the text form of a key.
    fn parse(text: &[u8]) -> Result<Self, Unreadable> {
        let unknown = || Unreadable {
            record: String::from_utf8_lossy(text).into_owned(),
            reason: "this version has no record of this name".to_owned(),
        };
        let name = std::str::from_utf8(text).map_err(|_| unknown())?;
        let (kind, name) = name.split_once('/').ok_or_else(unknown)?;
        let kind = Kind::ALL.into_iter().find(|one| one.as_str() == kind);
        Ok(Self::new(kind.ok_or_else(unknown)?, name))
    }
}

impl std::fmt::Display for RecordKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.kind.as_str(), self.name)
    }
}

/// Bits of a version: every reader of JSON keeps numbers of this size exactly.
const VERSION_BITS: u32 = 53;

/// Returns the version of a record: the same for the same content, on every dispatcher.
pub(crate) fn version_of(content: &Bytes) -> Version {
    let hash = blake3::hash(content);
    let first = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    Version(u64::from_be_bytes(*first) >> (u64::BITS - VERSION_BITS))
}

/// This version cannot read a record, or a copy of the records. The reason quotes nothing of a record's content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the record '{record}' cannot be read: {reason}")]
pub struct Unreadable {
    /// Name of the record.
    pub record: String,
    /// The problem.
    pub reason: String,
}

/// All records at one revision.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RecordSet {
    pub(crate) revision: RecordsRevision,
    /// Highest id ever given to a namespace.
    pub(crate) last_namespace: u32,
    pub(crate) rows: BTreeMap<RecordKey, Bytes>,
}

impl RecordSet {
    /// Returns the content of a record.
    pub(crate) fn get(&self, kind: Kind, name: &str) -> Option<&Bytes> {
        self.rows.get(&RecordKey::new(kind, name))
    }

    /// Returns all records of a kind, by name.
    pub(crate) fn of(&self, kind: Kind) -> impl Iterator<Item = (&str, &Bytes)> {
        let rows = self.rows.range(RecordKey::new(kind, "")..);
        rows.take_while(move |(key, _)| key.kind == kind)
            .map(|(key, content)| (key.name.as_str(), content))
    }

    /// Reads a record as JSON.
    pub(crate) fn read_json<T: serde::de::DeserializeOwned>(
        kind: Kind,
        name: &str,
        content: &[u8],
    ) -> Result<T, Unreadable> {
        serde_json::from_slice(content).map_err(|error| unreadable(kind, name, &error))
    }

    /// Returns the datasets of the namespaces that have more than one, in ascending order of the live one.
    pub(crate) fn datasets(&self) -> Result<Vec<DatasetGroup>, Unreadable> {
        let groups = self.of(Kind::Namespace).filter_map(|(name, content)| {
            let group = datasets::group_of(content);
            let group = group.map_err(|error| unreadable(Kind::Namespace, name, &error));
            group.transpose()
        });
        let mut groups = groups.collect::<Result<Vec<_>, _>>()?;
        groups.sort_unstable_by_key(|group| group.live);
        Ok(groups)
    }

    /// Returns the set that a change makes of this one, at the next revision.
    pub(crate) fn changed(&self, edits: &Edits) -> Self {
        let mut next = self.clone();
        next.revision.number += 1;
        next.last_namespace = edits.last_namespace.unwrap_or(next.last_namespace);
        for (key, content) in &edits.rows {
            match content {
                Some(content) => next.rows.insert(key.clone(), content.clone()),
                None => next.rows.remove(key),
            };
        }
        next
    }
}

/// Makes the error of a record.
pub(crate) fn unreadable(kind: Kind, name: &str, why: &dyn std::fmt::Display) -> Unreadable {
    Unreadable {
        record: RecordKey::new(kind, name).to_string(),
        reason: why.to_string(),
    }
}

/// Records to be changed together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Edits {
    pub(crate) rows: BTreeMap<RecordKey, Option<Bytes>>,
    last_namespace: Option<u32>,
    /// When the last of the records that are dropped for their age is due, or `None` if none is. The home refuses
    /// the edits before that time.
    pub(crate) due_at: Option<Timestamp>,
    /// The event of the operator's change, recorded with the edits if these change anything.
    pub(crate) event: Option<Event>,
}

impl Edits {
    /// Changes nothing.
    pub(crate) fn none() -> Self {
        Self::default()
    }

    /// Stores a record.
    #[must_use]
    pub(crate) fn put(mut self, kind: Kind, name: &str, content: impl Into<Bytes>) -> Self {
        self.rows
            .insert(RecordKey::new(kind, name), Some(content.into()));
        self
    }

    /// Removes a record.
    #[must_use]
    pub(crate) fn remove(mut self, kind: Kind, name: &str) -> Self {
        self.rows.insert(RecordKey::new(kind, name), None);
        self
    }

    /// Adds other edits. Both are of the same set, and change other records of it.
    #[must_use]
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.rows.extend(other.rows);
        self.due_at = self.due_at.max(other.due_at);
        self
    }

    /// Notes that a namespace was given this id.
    #[must_use]
    pub(crate) fn with_last_namespace(mut self, id: u32) -> Self {
        self.last_namespace = Some(id);
        self
    }

    /// Sets the time at which they are due, or a later one that was set before.
    #[must_use]
    pub(crate) fn due_at(mut self, at: Option<Timestamp>) -> Self {
        self.due_at = self.due_at.max(at);
        self
    }

    /// Adds the event of the change.
    #[must_use]
    pub(crate) fn because_of(mut self, event: Event) -> Self {
        self.event = Some(event);
        self
    }

    /// Leaves out edits that a set contains already. Returns `None` if nothing is left.
    pub(crate) fn beyond(mut self, set: &RecordSet) -> Option<Self> {
        self.rows
            .retain(|key, content| set.rows.get(key) != content.as_ref());
        (!self.rows.is_empty()).then_some(self)
    }
}

#[cfg(test)]
mod tests;
