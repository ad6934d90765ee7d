//! Loads as records: reading, creating, changing and forgetting them.
//!
//! `umbo-loads` owns the states and the steps between them, and `load_changes` makes the changes of the records. A load
//! has two namespace ids, for its parts and its reports. The change that ends the load or makes its version ready
//! fences the id of its parts, and the change that forgets the load fences the id of its reports, so that none of its
//! rows stay behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use umbo_api::loads::{LoadSpec, LoadState};
use umbo_loads::limits::{ENDED_IMPORTS_MAX, ENDED_LOADS_MAX, OPEN_IMPORTS_MAX, OPEN_LOADS_MAX};
use umbo_loads::{CreationKey, LoadError, LoadRecord, LoadStep};
use umbo_types::{NamespaceId, Timestamp};

use crate::error::ControlError;
use crate::records::{Edits, Kind, RecordSet, Unreadable, unreadable};

/// Loads by id.
#[derive(Debug, Default)]
pub(crate) struct LoadMap(BTreeMap<String, Arc<LoadRecord>>);

impl LoadMap {
    /// Reads the loads of a set of records.
    pub(crate) fn read(set: &RecordSet) -> Result<Self, Unreadable> {
        let loads =
            records(set).map(|found| found.map(|(id, load)| (id.to_owned(), Arc::new(load))));
        Ok(Self(loads.collect::<Result<_, _>>()?))
    }

    /// Returns the namespace ids of loads, under which their parts and reports are stored.
    pub(crate) fn own_ids(&self) -> impl Iterator<Item = NamespaceId> {
        let loads = self.0.values();
        loads.flat_map(|load| [load.content_id(), load.report_id()])
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn into_records(self) -> Vec<Arc<LoadRecord>> {
        self.0.into_values().collect()
    }
}

fn records(set: &RecordSet) -> impl Iterator<Item = Result<(&str, LoadRecord), Unreadable>> {
    set.of(Kind::Load).map(|(id, content)| {
        let load: LoadRecord = RecordSet::read_json(Kind::Load, id, content)?;
        let own = [load.namespace_id(), load.content_id(), load.report_id()];
        if own.contains(&NamespaceId::SYSTEM) {
            return Err(unreadable(Kind::Load, id, &"its namespace id is 0"));
        }
        Ok((id, load))
    })
}

/// The loads in effect.
#[derive(Debug, Default)]
pub struct Loads {
    snapshot: ArcSwap<LoadMap>,
}

impl Loads {
    pub(crate) fn take_up(&self, loads: LoadMap) {
        self.snapshot.store(Arc::new(loads));
    }

    /// Returns a load.
    pub fn get(&self, id: &str) -> Option<Arc<LoadRecord>> {
        self.snapshot.load().0.get(id).cloned()
    }

    /// Returns all loads, by id.
    pub fn all(&self) -> Vec<(String, Arc<LoadRecord>)> {
        let snapshot = self.snapshot.load();
        let loads = snapshot.0.iter();
        loads
            .map(|(id, load)| (id.clone(), Arc::clone(load)))
            .collect()
    }

    /// Returns the loads of a namespace, by id.
    pub fn of(&self, namespace: NamespaceId) -> Vec<(String, Arc<LoadRecord>)> {
        let mut loads = self.all();
        loads.retain(|(_, load)| load.namespace_id() == namespace);
        loads
    }
}

fn bytes(load: &LoadRecord) -> Vec<u8> {
    serde_json::to_vec(load).expect("a record is made of numbers and texts")
}

/// Plans to forget a load; its stored rows are reclaimed.
pub(crate) fn forgotten(edits: Edits, id: &str, load: &LoadRecord) -> Edits {
    let edits = edits.remove(Kind::Load, id);
    edits.fence(load.content_id()).fence(load.report_id())
}

/// Plans to forget the loads of a namespace that is removed.
pub(crate) fn without_loads(
    mut edits: Edits,
    set: &RecordSet,
    namespace: NamespaceId,
) -> Result<Edits, Unreadable> {
    for found in records(set) {
        let (id, load) = found?;
        if load.namespace_id() == namespace {
            edits = forgotten(edits, id, &load);
        }
    }
    Ok(edits)
}

/// Returns the id of the dataset that the next load builds: the one after the two ids of the load.
pub(crate) fn next_dataset(set: &RecordSet) -> Result<u32, ControlError> {
    let id = set.last_namespace.checked_add(3);
    let id = id.filter(|id| !NamespaceId(*id).has_fast_writes());
    id.ok_or_else(|| ControlError::Internal("all namespace ids have been used".to_owned()))
}

/// Plans to create a load. A load of mode replace builds `version` in the dataset of [`next_dataset`].
pub(crate) fn create(
    set: &RecordSet,
    (name, namespace): (&str, NamespaceId),
    (spec, version): (&LoadSpec, u32),
    (created_by, creation): (&str, Option<&CreationKey>),
    id: &str,
    now: Timestamp,
) -> Result<(Edits, LoadRecord), ControlError> {
    // Imports and other loads are bounded apart: a nightly load is not kept out by files that are imported by hand.
    let own = records(set).filter(|found| {
        let is_other = |(_, load): &(&str, LoadRecord)| {
            load.namespace_id() != namespace || load.import != spec.is_import()
        };
        !found.as_ref().is_ok_and(is_other)
    });
    let own = own.collect::<Result<Vec<_>, _>>()?;
    let (ended, open): (Vec<_>, Vec<_>) =
        own.into_iter().partition(|(_, load)| load.state.is_ended());
    let (max, ended_max) = if spec.is_import() {
        (OPEN_IMPORTS_MAX, ENDED_IMPORTS_MAX)
    } else {
        (OPEN_LOADS_MAX, ENDED_LOADS_MAX)
    };
    if open.len() >= max {
        return Err(LoadError::TooMany { max }.into());
    }
    let dataset = next_dataset(set)?;
    let ids = (dataset - 2, dataset - 1);
    let building = (dataset, version);
    let mut load = LoadRecord::create(spec, (name, namespace.0), ids, building, created_by, now)?;
    load.creation = creation.cloned();
    let last = if load.target.is_some() {
        dataset
    } else {
        ids.1
    };
    let mut edits = Edits::none().with_last_namespace(last);
    edits = edits.put(Kind::Load, id, bytes(&load));
    let beyond = ended.len().saturating_sub(ended_max);
    for (id, load) in &ended[..beyond] {
        edits = forgotten(edits, id, load);
    }
    Ok((edits, load))
}

/// Returns the load of a namespace that was created with a key. A load that its shards never confirmed does not count:
/// its creation has failed, and is made anew.
pub(crate) fn created_with(
    set: &RecordSet,
    namespace: NamespaceId,
    creation: &CreationKey,
) -> Result<Option<(String, LoadRecord)>, ControlError> {
    for found in records(set) {
        let (id, load) = found?;
        let Some(known) = load
            .creation
            .as_ref()
            .filter(|known| known.key == creation.key)
        else {
            continue;
        };
        if load.namespace_id() != namespace || load.state.is_ended() && !load.is_confirmed() {
            continue;
        }
        if known.request != creation.request {
            let id = id.to_owned();
            return Err(LoadError::KeyReused { id }.into());
        }
        return Ok(Some((id.to_owned(), load)));
    }
    Ok(None)
}

/// Returns the ids of the loads that are under way. A load with a ready version is not: all its rows are there already.
pub(crate) fn loads_under_way(set: &RecordSet) -> Result<Vec<String>, Unreadable> {
    let open = records(set).filter_map(|found| {
        let is_over = |state: LoadState| state.is_ended() || state == LoadState::Ready;
        let open = found.map(|(id, load)| (!is_over(load.state)).then(|| id.to_owned()));
        open.transpose()
    });
    open.collect()
}

pub(crate) fn find(set: &RecordSet, id: &str) -> Result<LoadRecord, ControlError> {
    let found = set.get(Kind::Load, id).ok_or_else(|| not_found(id))?;
    Ok(RecordSet::read_json(Kind::Load, id, found)?)
}

pub(crate) fn not_found(id: &str) -> ControlError {
    LoadError::NotFound { id: id.to_owned() }.into()
}

/// Plans a step of a load. Returns the state before the step.
pub(crate) fn step(
    set: &RecordSet,
    id: &str,
    step: &LoadStep,
    now: Timestamp,
) -> Result<(Edits, LoadRecord, LoadState), ControlError> {
    let mut load = find(set, id)?;
    let before = load.state;
    if !load.step(step, now)? {
        return Ok((Edits::none(), load, before));
    }
    let mut edits = Edits::none().put(Kind::Load, id, bytes(&load));
    if load.state.is_applied() {
        edits = edits.fence(load.content_id());
    }
    Ok((edits, load, before))
}
