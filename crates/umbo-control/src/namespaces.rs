//! The namespaces: names, ids and settings, as an immutable snapshot the path reads lock-free.
//!
//! All namespaces in effect are of one revision of the records. Ids are never used again. A removal is a state of the
//! record: `live → removing → gone`. From `removing` on the id is fenced, no request reaches the namespace, and its
//! name is free once every shard has raised the fence.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use umbo_api::admin::{
    CompressionSetting, DurabilitySetting, NamespaceChange, NamespaceInfo, NamespaceSettings,
    NamespaceSpec, NamespaceState, WriteSetting,
};
use umbo_store::{Condition, IdRange, RecordsRevision};
use umbo_types::{NamespaceId, ShardId, Timestamp, Version};

use crate::datasets::{Datasets, VersionError};
use crate::error::ControlError;
use crate::loads::without_loads;
use crate::namespace_entry::{NamespaceEntry, writes_of};
use crate::records::{Edits, Kind, RecordSet, Unreadable, unreadable, version_of};

/// A namespace as the records hold it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamespaceRecord {
    id: u32,
    /// In milliseconds since the Unix epoch.
    created_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default_ttl: Option<u64>,
    durability: DurabilitySetting,
    /// Not written if it is off, so that older servers can read the record.
    #[serde(default, skip_serializing_if = "CompressionSetting::is_off")]
    compression: CompressionSetting,
    /// In seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    versions_kept_for: Option<u64>,
    state: NamespaceState,
    /// Shards that an operator has abandoned: their confirmation is not needed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    abandoned: BTreeSet<u16>,
    /// Absent if the namespace was never loaded in mode replace, so that older servers can read the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    datasets: Option<Datasets>,
}

impl NamespaceRecord {
    /// Returns the ids under which its rows are stored.
    fn ids(&self) -> Vec<NamespaceId> {
        match &self.datasets {
            Some(datasets) => datasets.ids().collect(),
            None => vec![NamespaceId(self.id)],
        }
    }

    fn read(name: &str, content: &[u8]) -> Result<Self, Unreadable> {
        let record: Self = RecordSet::read_json(Kind::Namespace, name, content)?;
        if NamespaceId(record.id) == NamespaceId::SYSTEM {
            return Err(unreadable(Kind::Namespace, name, &"its id is 0"));
        }
        Ok(record)
    }

    fn find(set: &RecordSet, name: &str) -> Result<Option<Self>, Unreadable> {
        let content = set.get(Kind::Namespace, name);
        content.map(|content| Self::read(name, content)).transpose()
    }

    fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a record is made of numbers and words")
    }

    fn info(&self, name: &str) -> NamespaceInfo {
        NamespaceInfo {
            name: name.to_owned(),
            id: self.id,
            created_at: self.created_at,
            state: self.state,
            waiting_for: Vec::new(),
            change: None,
            size: None,
            settings: self.settings(),
        }
    }

    const fn settings(&self) -> NamespaceSettings {
        NamespaceSettings {
            default_ttl: self.default_ttl,
            durability: self.durability,
            compression: self.compression,
            versions_kept_for: self.versions_kept_for,
            writes: writes_of(NamespaceId(self.id)),
        }
    }

    /// Plans to give it these settings.
    fn with(
        mut self,
        name: &str,
        settings: NamespaceSettings,
    ) -> Result<(Edits, NamespaceInfo), ControlError> {
        let before = self.settings();
        let change = if settings == before {
            NamespaceChange::Unchanged
        } else {
            NamespaceChange::Changed
        };
        let writes = settings.writes;
        if let Some(difference) = difference(before, NamespaceSettings { writes, ..before }) {
            let name = name.to_owned();
            return Err(ControlError::NamespaceExists { name, difference });
        }
        (self.default_ttl, self.durability) = (settings.default_ttl, settings.durability);
        self.compression = settings.compression;
        self.versions_kept_for = settings.versions_kept_for;
        let mut info = self.info(name);
        info.change = Some(change);
        let edits = match change {
            NamespaceChange::Changed => Edits::none().put(Kind::Namespace, name, self.bytes()),
            _ => Edits::none(),
        };
        Ok((edits, info))
    }
}

/// A namespace that is being removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Removing {
    pub(crate) name: String,
    pub(crate) id: NamespaceId,
    /// Shards that an operator has abandoned: their confirmation is not needed.
    abandoned: BTreeSet<u16>,
}

impl Removing {
    /// Returns the shards among `unconfirmed` that the removal waits for.
    pub(crate) fn waiting_for(&self, unconfirmed: &[ShardId]) -> Vec<u16> {
        let shards = unconfirmed.iter().map(|shard| shard.0);
        shards
            .filter(|shard| !self.abandoned.contains(shard))
            .collect()
    }
}

/// Namespaces by name, including those being removed.
#[derive(Debug, Default)]
pub(crate) struct NamespaceMap {
    revision: RecordsRevision,
    by_name: BTreeMap<Box<str>, Arc<NamespaceEntry>>,
    removing: Vec<Removing>,
}

impl NamespaceMap {
    /// Reads the namespaces of a set of records.
    pub(crate) fn read(set: &RecordSet) -> Result<Self, Unreadable> {
        let mut map = Self {
            revision: set.revision,
            ..Self::default()
        };
        let fenced = set.fenced()?;
        for (name, content) in set.of(Kind::Namespace) {
            let record = NamespaceRecord::read(name, content)?;
            let id = NamespaceId(record.id);
            let is_removing = record.state == NamespaceState::Removing;
            let is_other = |id: &NamespaceId| IdRange::any_has(&fenced, *id) != is_removing;
            if record.ids().iter().any(is_other) {
                let why = "its state contradicts the fences";
                return Err(unreadable(Kind::Namespace, name, &why));
            }
            let entry = NamespaceEntry::new(record.info(name), record.datasets);
            map.by_name.insert(name.into(), Arc::new(entry));
            if record.state == NamespaceState::Removing {
                map.removing.push(Removing {
                    name: name.to_owned(),
                    id,
                    abandoned: record.abandoned,
                });
            }
        }
        Ok(map)
    }

    /// Returns the names of all namespaces, by namespace id and by dataset id.
    pub(crate) fn names(&self) -> HashMap<NamespaceId, Arc<str>> {
        let mut names = HashMap::new();
        for (name, entry) in &self.by_name {
            let name: Arc<str> = Arc::from(&**name);
            names.extend(entry.datasets().map(|id| (id, Arc::clone(&name))));
            names.insert(entry.id, name);
        }
        names
    }
}

/// The namespaces in effect.
#[derive(Debug, Default)]
pub struct Namespaces {
    snapshot: ArcSwap<NamespaceMap>,
}

impl Namespaces {
    /// Puts the namespaces of another revision into effect.
    pub(crate) fn take_up(&self, map: NamespaceMap) {
        self.snapshot.store(Arc::new(map));
    }

    /// Finds a namespace that can be used.
    pub fn find(&self, name: &str) -> Result<Arc<NamespaceEntry>, ControlError> {
        let found = self.snapshot.load().by_name.get(name).cloned();
        found
            .filter(|entry| entry.is_live())
            .ok_or_else(|| not_found(name))
    }

    /// Returns a namespace as it is now: its settings and its live dataset may have changed since it was found. If it
    /// was removed, returns it unchanged.
    pub fn current(&self, namespace: &Arc<NamespaceEntry>) -> Arc<NamespaceEntry> {
        let found = self.find(&namespace.info.name).ok();
        let found = found.filter(|found| found.id == namespace.id);
        found.unwrap_or_else(|| Arc::clone(namespace))
    }

    /// Returns the description of a namespace for operators, even while it is being removed.
    pub fn describe(&self, name: &str) -> Result<NamespaceInfo, ControlError> {
        let snapshot = self.snapshot.load();
        let found = snapshot.by_name.get(name);
        found
            .map(|entry| entry.info.clone())
            .ok_or_else(|| not_found(name))
    }

    /// Returns all namespaces, by name, including those being removed.
    pub fn all(&self) -> Vec<NamespaceInfo> {
        let snapshot = self.snapshot.load();
        let entries = snapshot.by_name.values();
        entries.map(|entry| entry.info.clone()).collect()
    }

    /// Returns the namespaces that can be used, by name.
    pub fn live(&self) -> Vec<NamespaceInfo> {
        let mut all = self.all();
        all.retain(|info| info.state == NamespaceState::Live);
        all
    }

    /// Returns the namespaces with a version that was kept for long enough.
    pub(crate) fn with_overdue_versions(&self, now: Timestamp) -> Vec<Arc<NamespaceEntry>> {
        let snapshot = self.snapshot.load();
        let entries = snapshot.by_name.values();
        let overdue = entries.filter(|entry| entry.is_live() && entry.has_overdue_version(now));
        overdue.cloned().collect()
    }

    /// Returns the ids of all namespaces, each with the id of its live dataset.
    pub fn live_datasets(&self) -> HashMap<NamespaceId, NamespaceId> {
        let snapshot = self.snapshot.load();
        let entries = snapshot.by_name.values();
        entries.map(|entry| (entry.id, entry.dataset)).collect()
    }

    /// Returns the namespaces that are being removed, and the revision of this list.
    pub(crate) fn removing(&self) -> (RecordsRevision, Vec<Removing>) {
        let snapshot = self.snapshot.load();
        (snapshot.revision, snapshot.removing.clone())
    }
}

fn not_found(name: &str) -> ControlError {
    ControlError::NamespaceNotFound {
        name: name.to_owned(),
    }
}

/// Returns the version of a namespace as operators see it. It changes with every change of the settings.
pub fn version(info: &NamespaceInfo) -> Version {
    let content = serde_json::to_vec(&(info.id, info.settings));
    version_of(&Bytes::from(content.expect("numbers and words are JSON")))
}

/// Plans to create a namespace. If the namespace exists and the request has no condition, the namespace stays as it is,
/// and must have the requested settings already. If the request has a condition that holds, the namespace gets the
/// requested settings.
pub(crate) fn put(
    set: &RecordSet,
    name: &str,
    spec: &NamespaceSpec,
    condition: &Condition,
    now: Timestamp,
) -> Result<(Edits, NamespaceInfo), ControlError> {
    let found = find_live(set, name)?;
    check(condition, name, found.as_ref())?;
    let asked = spec.over(NamespaceSettings::default());
    let Some(record) = found else {
        return create(set, name, asked, now);
    };
    let settings = record.settings();
    if !matches!(condition, Condition::Always) {
        let writes = spec.writes.unwrap_or(settings.writes);
        return record.with(name, NamespaceSettings { writes, ..asked });
    }
    match difference(settings, spec.over(settings)) {
        None => record.with(name, settings),
        Some(difference) => Err(ControlError::NamespaceExists {
            name: name.to_owned(),
            difference,
        }),
    }
}

/// Returns the settings of a namespace, or `None` if it does not exist.
pub(crate) fn settings_of(
    set: &RecordSet,
    name: &str,
) -> Result<Option<NamespaceSettings>, Unreadable> {
    let record = NamespaceRecord::find(set, name)?;
    Ok(record.map(|record| record.settings()))
}

/// Plans to change the settings that the request names, and no other.
pub(crate) fn change(
    set: &RecordSet,
    name: &str,
    spec: &NamespaceSpec,
    condition: &Condition,
) -> Result<(Edits, NamespaceInfo), ControlError> {
    let record = find_live(set, name)?.ok_or_else(|| not_found(name))?;
    check(condition, name, Some(&record))?;
    let settings = spec.over(record.settings());
    record.with(name, settings)
}

fn create(
    set: &RecordSet,
    name: &str,
    settings: NamespaceSettings,
    now: Timestamp,
) -> Result<(Edits, NamespaceInfo), ControlError> {
    let id = set.last_namespace.checked_add(1);
    let id = id.filter(|id| !NamespaceId(*id).has_fast_writes());
    let id =
        id.ok_or_else(|| ControlError::Internal("all namespace ids have been used".to_owned()))?;
    let record = NamespaceRecord {
        id: match settings.writes {
            WriteSetting::Exact => id,
            WriteSetting::Fast => NamespaceId(id).with_fast_writes().0,
        },
        created_at: now.as_millis(),
        default_ttl: settings.default_ttl,
        durability: settings.durability,
        compression: settings.compression,
        versions_kept_for: settings.versions_kept_for,
        state: NamespaceState::Live,
        abandoned: BTreeSet::new(),
        datasets: None,
    };
    let mut info = record.info(name);
    info.change = Some(NamespaceChange::Created);
    let edits = Edits::none().with_last_namespace(id);
    Ok((edits.put(Kind::Namespace, name, record.bytes()), info))
}

fn find_live(set: &RecordSet, name: &str) -> Result<Option<NamespaceRecord>, ControlError> {
    match NamespaceRecord::find(set, name)? {
        Some(record) if record.state == NamespaceState::Removing => {
            Err(ControlError::NamespaceBeingRemoved {
                name: name.to_owned(),
                waiting_for: Vec::new(),
            })
        }
        found => Ok(found),
    }
}

/// Returns an error if the condition is false for the stored record.
fn check(
    condition: &Condition,
    name: &str,
    found: Option<&NamespaceRecord>,
) -> Result<(), ControlError> {
    let current = found.map(|record| version(&record.info(name)));
    if condition.holds(current) {
        return Ok(());
    }
    Err(ControlError::ConditionFailed { current })
}

/// Describes the first setting that differs between a namespace and a request.
fn difference(actual: NamespaceSettings, asked: NamespaceSettings) -> Option<String> {
    let ttl = |ttl: Option<u64>| ttl.map_or_else(|| "none".to_owned(), |ttl| format!("{ttl} s"));
    let (kept, asked_kept) = (actual.versions_kept_for, asked.versions_kept_for);
    if kept != asked_kept {
        let (kept, asked) = (ttl(kept), ttl(asked_kept));
        return Some(format!("versions_kept_for is {kept}, not {asked}"));
    }
    if actual.default_ttl != asked.default_ttl {
        let (actual, asked) = (ttl(actual.default_ttl), ttl(asked.default_ttl));
        return Some(format!("default_ttl is {actual}, not {asked}"));
    }
    let word = |durability| match durability {
        DurabilitySetting::Sync => "sync",
        DurabilitySetting::Async => "async",
    };
    if actual.durability != asked.durability {
        let (actual, asked) = (word(actual.durability), word(asked.durability));
        return Some(format!("durability is {actual}, not {asked}"));
    }
    if actual.compression != asked.compression {
        let (actual, asked) = (actual.compression.as_str(), asked.compression.as_str());
        return Some(format!("compression is {actual}, not {asked}"));
    }
    (actual.writes != asked.writes).then(|| {
        let (actual, asked) = (actual.writes.as_str(), asked.writes.as_str());
        format!("writes is {actual}, not {asked}, and never changes")
    })
}

/// Plans the first step of a removal: the namespace is fenced and out of use. If it is being removed already, adds to
/// its abandoned shards. Returns its id.
pub(crate) fn begin_removal(
    set: &RecordSet,
    name: &str,
    abandoned: Option<ShardId>,
) -> Result<(Edits, NamespaceId), ControlError> {
    let mut record = NamespaceRecord::find(set, name)?.ok_or_else(|| not_found(name))?;
    record.state = NamespaceState::Removing;
    record.abandoned.extend(abandoned.map(|shard| shard.0));
    let id = NamespaceId(record.id);
    let mut edits = Edits::none().put(Kind::Namespace, name, record.bytes());
    for id in record.ids().into_iter().chain([id]) {
        edits = edits.fence(id);
    }
    Ok((without_loads(edits, set, id)?, id))
}

/// Plans to remove all namespaces but these, which must be there, and all that is recorded of them.
pub(crate) fn without_namespaces(set: &RecordSet, kept: &[String]) -> Result<Edits, ControlError> {
    for name in kept {
        NamespaceRecord::find(set, name)?.ok_or_else(|| not_found(name))?;
    }
    let mut edits = Edits::none();
    for (name, _) in set.of(Kind::Namespace) {
        if !kept.iter().any(|kept| kept == name) {
            let (removal, _) = begin_removal(set, name, None)?;
            edits = edits.and(removal).remove(Kind::Namespace, name);
        }
    }
    Ok(edits)
}

/// Plans to change the datasets of a namespace that can be used. Returns `None` if no such namespace has this name and
/// id.
pub(crate) fn change_datasets<T>(
    set: &RecordSet,
    (name, id): (&str, NamespaceId),
    change: impl FnOnce(&mut Datasets, NamespaceSettings) -> Result<T, VersionError>,
) -> Result<Option<(Edits, T)>, ControlError> {
    let found = NamespaceRecord::find(set, name)?;
    let is_it =
        |record: &NamespaceRecord| record.id == id.0 && record.state == NamespaceState::Live;
    let Some(mut record) = found.filter(is_it) else {
        return Ok(None);
    };
    let settings = record.settings();
    let datasets = record.datasets.get_or_insert_with(|| Datasets::of_one(id));
    let outcome = change(datasets, settings)?;
    let edits = Edits::none().put(Kind::Namespace, name, record.bytes());
    Ok(Some((edits, outcome)))
}

/// Plans the last step of a removal: the name becomes free. Does nothing if another dispatcher was first.
pub(crate) fn end_removal(set: &RecordSet, removed: &Removing) -> Result<Edits, ControlError> {
    let found = NamespaceRecord::find(set, &removed.name)?;
    let is_it = |record: &NamespaceRecord| {
        record.id == removed.id.0 && record.state == NamespaceState::Removing
    };
    Ok(match found.filter(is_it) {
        Some(_) => Edits::none().remove(Kind::Namespace, &removed.name),
        None => Edits::none(),
    })
}

/// Returns the ids of the namespaces that can be used.
pub(crate) fn live_ids(set: &RecordSet) -> Result<BTreeSet<NamespaceId>, Unreadable> {
    let records = set
        .of(Kind::Namespace)
        .map(|(name, content)| NamespaceRecord::read(name, content));
    let mut ids = BTreeSet::new();
    for record in records {
        let record = record?;
        if record.state == NamespaceState::Live {
            ids.insert(NamespaceId(record.id));
        }
    }
    Ok(ids)
}
