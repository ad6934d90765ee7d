//! The datasets of a namespace: the live dataset, the datasets kept for a rollback, and the dataset that a load builds.
//!
//! Pure. The rows of a dataset are stored under its own id; the id of the first dataset is the id of the namespace. Ids
//! are never used again: a dropped dataset is fenced. A namespace that was never loaded in mode replace has no such
//! record.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use umbo_api::admin::NamespaceState;
use umbo_api::versions::{VersionInfo, VersionShard, VersionState};
use umbo_store::DatasetGroup;
use umbo_types::{NamespaceId, Timestamp};

/// Versions that are kept in addition to the live one. Each takes its space and every write once more.
const KEPT_MAX: usize = 1;
/// How long a version is kept after another one was activated, unless the namespace has a setting: one day, to notice a
/// bad version.
pub(crate) const KEEP_TIME: Duration = Duration::from_hours(24);
/// Number of the version that was there before the first load.
const FIRST_VERSION: u32 = 1;

/// The datasets of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Datasets {
    /// Number of activations so far.
    epoch: u32,
    /// Highest number ever given to a version.
    last_version: u32,
    live: Dataset,
    /// The version that was live most recently comes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kept: Vec<Dataset>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    building: Option<Dataset>,
}

/// A dataset: the rows of one version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Dataset {
    id: u32,
    /// Number of the version.
    version: u32,
    /// Load that builds it, or has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    load: Option<String>,
    /// When it was last activated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    activated_at: Option<u64>,
    /// When it is dropped, of a kept one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep_until: Option<u64>,
    /// Rows, bytes and digest of each shard, read back once the dataset was built; `None` before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shards: Option<Vec<VersionShard>>,
}

impl Dataset {
    fn new(id: u32, version: u32, load: Option<&str>) -> Self {
        Self {
            id,
            version,
            load: load.map(str::to_owned),
            activated_at: None,
            keep_until: None,
            shards: None,
        }
    }

    const fn id(&self) -> NamespaceId {
        NamespaceId(self.id)
    }

    fn info(&self, state: VersionState) -> VersionInfo {
        VersionInfo {
            number: self.version,
            state,
            load: self.load.clone(),
            rows: 0,
            bytes: 0,
            activated_at: self.activated_at,
            keep_until: self.keep_until,
            shards: self.shards.clone().unwrap_or_default(),
        }
    }
}

/// The changes of an activation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Activated {
    /// Number of the version that was live before.
    pub(crate) before: u32,
    /// Load of that version.
    pub(crate) load_before: Option<String>,
    /// Number of the version that is live now.
    pub(crate) live: u32,
    /// Load of that version.
    pub(crate) load: Option<String>,
    /// Datasets that are dropped.
    pub(crate) dropped: Vec<Dropped>,
}

/// A dropped dataset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dropped {
    pub(crate) version: u32,
    pub(crate) id: NamespaceId,
    pub(crate) load: Option<String>,
}

impl From<Dataset> for Dropped {
    fn from(dataset: Dataset) -> Self {
        Self {
            version: dataset.version,
            id: dataset.id(),
            load: dataset.load,
        }
    }
}

impl Datasets {
    /// Returns the datasets of a namespace that has all its rows in one dataset.
    pub(crate) fn of_one(identity: NamespaceId) -> Self {
        Self {
            epoch: 0,
            last_version: FIRST_VERSION,
            live: Dataset::new(identity.0, FIRST_VERSION, None),
            kept: Vec::new(),
            building: None,
        }
    }

    /// Begins to build another version; returns its number.
    pub(crate) fn begin(&mut self, id: u32, load: &str) -> Result<u32, VersionError> {
        if let Some(building) = &self.building {
            return Err(VersionError::Building {
                load: building.load.clone().unwrap_or_default(),
                version: building.version,
            });
        }
        let version = self.last_version.saturating_add(1);
        self.last_version = version;
        self.building = Some(Dataset::new(id, version, Some(load)));
        Ok(version)
    }

    /// Ends the building of a dataset; returns whether it was being built.
    pub(crate) fn end_building(&mut self, id: u32) -> bool {
        self.building
            .take_if(|building| building.id == id)
            .is_some()
    }

    /// Records the rows, bytes and digests that were read back from the dataset that is being built. From then on the
    /// dataset can be activated.
    pub(crate) fn built(&mut self, id: u32, shards: Vec<VersionShard>) {
        if let Some(building) = self.building.as_mut().filter(|one| one.id == id) {
            building.shards = Some(shards);
        }
    }

    /// Activates a ready or kept version. The version that was live is kept for `keep_time`. Returns `None` if
    /// `version` is live already.
    pub(crate) fn activate(
        &mut self,
        version: u32,
        now: Timestamp,
        keep_time: Duration,
    ) -> Result<Option<Activated>, VersionError> {
        if version == self.live.version {
            return Ok(None);
        }
        let is_it = |dataset: &Dataset| dataset.version == version;
        let is_building = self.building.as_ref().is_some_and(is_it);
        let mut next = if is_building {
            self.take_ready(version)?
        } else {
            let at = self.kept.iter().position(is_it);
            self.kept.remove(at.ok_or_else(|| self.absent(version))?)
        };
        next.activated_at = Some(now.as_millis());
        next.keep_until = None;
        let mut before = std::mem::replace(&mut self.live, next);
        before.keep_until = Some(now.saturating_add(keep_time).as_millis());
        self.epoch = self.epoch.saturating_add(1);
        let activated = Activated {
            before: before.version,
            load_before: before.load.clone(),
            live: version,
            load: self.live.load.clone(),
            dropped: Vec::new(),
        };
        self.kept.insert(0, before);
        let dropped = self.kept.drain(KEPT_MAX.min(self.kept.len())..);
        Ok(Some(Activated {
            dropped: dropped.map(Dropped::from).collect(),
            ..activated
        }))
    }

    fn take_ready(&mut self, number: u32) -> Result<Dataset, VersionError> {
        let is_ready = |building: &mut Dataset| building.shards.is_some();
        if let Some(ready) = self.building.take_if(is_ready) {
            return Ok(ready);
        }
        let load = self.building.as_ref().and_then(|one| one.load.clone());
        let load = load.unwrap_or_default();
        Err(VersionError::NotReady { number, load })
    }

    const fn absent(&self, number: u32) -> VersionError {
        if number == 0 || number > self.last_version {
            return VersionError::NotFound { number };
        }
        VersionError::Superseded { number }
    }

    /// Returns the number of the version that a rollback activates.
    pub(crate) fn rollback_to(&self) -> Result<u32, VersionError> {
        let newest = self.kept.first().map(|kept| kept.version);
        newest.ok_or(VersionError::NothingKept)
    }

    /// Drops a version that is kept.
    pub(crate) fn remove(&mut self, number: u32) -> Result<Dropped, VersionError> {
        let in_use = |state| VersionError::InUse { number, state };
        if number == self.live.version {
            return Err(in_use(VersionState::Live));
        }
        let building = self.building.as_ref();
        if building.is_some_and(|building| building.version == number) {
            return Err(in_use(VersionState::Building));
        }
        let at = self.kept.iter().position(|kept| kept.version == number);
        let at = at.ok_or_else(|| self.absent(number))?;
        Ok(self.kept.remove(at).into())
    }

    /// Drops the versions that were kept for long enough.
    pub(crate) fn drop_overdue(&mut self, now: Timestamp) -> Vec<Dropped> {
        let is_over = |kept: &mut Dataset| kept.keep_until.is_some_and(|at| at <= now.as_millis());
        self.kept
            .extract_if(.., is_over)
            .map(Dropped::from)
            .collect()
    }

    /// Returns the instant at which the last of the versions that [`Self::drop_overdue`] drops was due, or `None` if it
    /// drops no version.
    pub(crate) fn overdue_since(&self, now: Timestamp) -> Option<Timestamp> {
        let until = self.kept.iter().filter_map(|kept| kept.keep_until);
        let until = until.map(Timestamp::from_millis).filter(|at| *at <= now);
        until.max()
    }

    /// Returns the number of the live version.
    pub(crate) const fn live_version(&self) -> u32 {
        self.live.version
    }

    /// Returns the id of the live dataset.
    pub(crate) const fn live(&self) -> NamespaceId {
        self.live.id()
    }

    /// Returns the number of activations so far.
    pub(crate) const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the ids of all datasets, the live one first.
    pub(crate) fn ids(&self) -> impl Iterator<Item = NamespaceId> {
        let all = [&self.live].into_iter();
        all.chain(&self.kept).chain(&self.building).map(Dataset::id)
    }

    /// Returns the dataset id of a readable version: the live version, a kept version or the ready version.
    pub(crate) fn readable(&self, version: u32) -> Result<NamespaceId, VersionError> {
        let all = [&self.live].into_iter().chain(&self.kept);
        let ready = self.building.iter().filter(|one| one.shards.is_some());
        let mut all = all.chain(ready);
        let found = all.find(|dataset| dataset.version == version);
        found.map(Dataset::id).ok_or_else(|| {
            let building = self.building.as_ref();
            match building.filter(|one| one.version == version) {
                Some(building) => VersionError::NotReady {
                    number: version,
                    load: building.load.clone().unwrap_or_default(),
                },
                None => self.absent(version),
            }
        })
    }

    /// Returns the versions as clients see them, by number, each with the id of its dataset. Their sizes are left at 0.
    pub(crate) fn infos(&self) -> Vec<(NamespaceId, VersionInfo)> {
        let info = |dataset: &Dataset, state| (dataset.id(), dataset.info(state));
        let mut all = vec![info(&self.live, VersionState::Live)];
        all.extend(self.kept.iter().map(|kept| info(kept, VersionState::Kept)));
        all.extend(self.building.iter().map(|building| {
            let state = match building.shards {
                Some(_) => VersionState::Ready,
                None => VersionState::Building,
            };
            info(building, state)
        }));
        all.sort_by_key(|(_, info)| info.number);
        all
    }

    /// Returns the dataset group for the shards, or `None` if all rows are under the id of the namespace and always
    /// were.
    pub(crate) fn group(&self, identity: NamespaceId) -> Option<DatasetGroup> {
        if self.epoch == 0 && self.kept.is_empty() && self.building.is_none() {
            return None;
        }
        Some(DatasetGroup {
            epoch: self.epoch,
            live: self.live.id(),
            kept: self.kept.iter().map(Dataset::id).collect(),
            building: self.building.as_ref().map(Dataset::id),
            identity,
        })
    }
}

/// The part of a namespace's record that locates its rows.
#[derive(Debug, Deserialize)]
struct NamespaceLocation {
    id: u32,
    state: NamespaceState,
    #[serde(default)]
    datasets: Option<Datasets>,
}

/// Reads the dataset group of a namespace from its record. Returns `None` if the namespace has no group or is being
/// removed.
pub(crate) fn group_of(record: &[u8]) -> Result<Option<DatasetGroup>, serde_json::Error> {
    let NamespaceLocation {
        id,
        state,
        datasets,
    } = serde_json::from_slice(record)?;
    let datasets = datasets.filter(|_| state == NamespaceState::Live);
    Ok(datasets.and_then(|datasets| datasets.group(NamespaceId(id))))
}

/// Why a request about the dataset versions of a namespace was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// Another load builds a version of the namespace.
    #[error(
        "load {load} builds version {version} of the namespace; finish, activate or abort it first"
    )]
    Building {
        /// Id of the other load.
        load: String,
        /// Number of its version.
        version: u32,
    },
    /// The namespace never had such a version.
    #[error("the namespace has no version {number}")]
    NotFound {
        /// Number in the request.
        number: u32,
    },
    /// The version was dropped.
    #[error("version {number} was dropped: it cannot be activated any more")]
    Superseded {
        /// Number in the request.
        number: u32,
    },
    /// No version is kept.
    #[error("the namespace has no version to go back to")]
    NothingKept,
    /// The version is still being built.
    #[error("version {number} is being built by load {load}, which has not finished")]
    NotReady {
        /// Number in the request.
        number: u32,
        /// Id of the load that builds it.
        load: String,
    },
    /// The version is the live one, or is being built.
    #[error("version {number} is {state}, and cannot be removed")]
    InUse {
        /// Number in the request.
        number: u32,
        /// State of the version.
        state: VersionState,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn ready(datasets: &mut Datasets, id: u32, load: &str) -> u32 {
        let version = datasets.begin(id, load).unwrap();
        datasets.built(id, Vec::new());
        version
    }

    #[test]
    fn a_version_is_built_activated_rolled_back_and_superseded() {
        let mut datasets = Datasets::of_one(NamespaceId(3));
        assert_eq!(datasets.group(NamespaceId(3)), None);
        assert_eq!(datasets.begin(7, "a"), Ok(2));
        let other = datasets.begin(8, "b").unwrap_err();
        assert!(other.to_string().contains("load a"), "{other}");
        let early = datasets.activate(2, NOW, KEEP_TIME).unwrap_err();
        assert_eq!(early.code().as_str(), "version-not-ready");
        datasets.built(7, Vec::new());
        let group = datasets.group(NamespaceId(3)).unwrap();
        assert_eq!(
            (group.epoch, group.live, group.building),
            (0, NamespaceId(3), Some(NamespaceId(7)))
        );

        let activated = datasets.activate(2, NOW, KEEP_TIME).unwrap().unwrap();
        assert_eq!(
            (activated.before, activated.live, activated.dropped.len()),
            (1, 2, 0)
        );
        assert_eq!(datasets.activate(2, NOW, KEEP_TIME), Ok(None));
        let group = datasets.group(NamespaceId(3)).unwrap();
        assert_eq!(
            (group.epoch, group.live, group.building),
            (1, NamespaceId(7), None)
        );
        assert_eq!(
            (group.kept, group.identity),
            (vec![NamespaceId(3)], NamespaceId(3))
        );

        assert_eq!(datasets.rollback_to(), Ok(1));
        datasets.activate(1, NOW, KEEP_TIME).unwrap();
        assert_eq!((datasets.live(), datasets.epoch()), (NamespaceId(3), 2));

        assert_eq!(ready(&mut datasets, 9, "c"), 3);
        let activated = datasets.activate(3, NOW, KEEP_TIME).unwrap().unwrap();
        let dropped: Vec<_> = activated.dropped.iter().map(|one| one.version).collect();
        assert_eq!(dropped, [2]);
        let gone = datasets.activate(2, NOW, KEEP_TIME).unwrap_err();
        assert_eq!(gone.code().as_str(), "version-superseded");
        let never = datasets.activate(9, NOW, KEEP_TIME).unwrap_err();
        assert_eq!(never.code().as_str(), "version-not-found");
    }

    #[test]
    fn a_load_that_ends_leaves_no_group_and_its_number_is_not_given_again() {
        let mut datasets = Datasets::of_one(NamespaceId(3));
        datasets.begin(7, "a").unwrap();
        assert!(!datasets.end_building(8));
        assert!(datasets.end_building(7));
        assert_eq!(datasets.group(NamespaceId(3)), None);
        assert_eq!(datasets.begin(8, "b"), Ok(3));
    }

    #[test]
    fn a_kept_version_is_dropped_after_a_day_or_by_its_number() {
        let mut datasets = Datasets::of_one(NamespaceId(3));
        ready(&mut datasets, 7, "a");
        datasets.activate(2, NOW, KEEP_TIME).unwrap();
        let later = NOW.saturating_add(KEEP_TIME);
        assert_eq!(datasets.overdue_since(NOW), None);
        assert!(datasets.overdue_since(later).is_some_and(|at| at > NOW));
        let mut other = datasets.clone();
        assert_eq!(datasets.drop_overdue(later)[0].id, NamespaceId(3));
        assert_eq!(datasets.rollback_to(), Err(VersionError::NothingKept));
        // The rows stay where the partitions of the namespace are, under another id than its own.
        assert!(datasets.group(NamespaceId(3)).is_some());
        assert_eq!(other.remove(1).unwrap().id, NamespaceId(3));
        assert_eq!(
            other.remove(2).unwrap_err().code().as_str(),
            "version-in-use"
        );
        assert_eq!(
            other.remove(1).unwrap_err().code().as_str(),
            "version-superseded"
        );
    }
}
