//! A load as Umbo's own records hold it, and the steps between its states.
//!
//! Pure. Each step may be made again: if the load is in that state already, nothing changes. Parts and progress are
//! stored elsewhere (`layout`), so a record changes a handful of times and stays small.

use serde::{Deserialize, Serialize};
use umbo_api::columns::{TableColumns, TableValue};
use umbo_api::loads::{LoadGuards, LoadInfo, LoadMode, LoadShard, LoadSpec, LoadState, PartInfo};
use umbo_api::versions::VersionShard;
use umbo_types::{NamespaceId, Timestamp};

use crate::error::LoadError;
use crate::layout::RunRecord;
use crate::limits::{CONFIRM_TIME_MAX, ENDED_KEPT, REASON_LEN_MAX, UPLOAD_TIME_MAX};

/// Longest name of a column, in bytes.
const COLUMN_LEN_MAX: usize = 256;

/// A load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is stored by itself")]
pub struct LoadRecord {
    /// Name of the namespace.
    pub name: String,
    /// Id of the namespace.
    pub namespace: u32,
    /// Id of the namespace that holds the bytes of its parts.
    pub content: u32,
    /// Id of the namespace of its report.
    pub report: u32,
    /// How it treats the existing rows of the namespace.
    pub mode: LoadMode,
    /// Its state.
    pub state: LoadState,
    /// Instant of the data, in milliseconds since the Unix epoch.
    pub as_of: u64,
    /// When it was created, in milliseconds since the Unix epoch.
    pub created_at: u64,
    /// The caller who pays for it.
    pub created_by: String,
    /// When it ended, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Rows that its parts are to hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_rows: Option<u64>,
    /// Share of the rows that may be rejected, from 0 to 1.
    #[serde(default)]
    pub max_reject_ratio: f64,
    /// The columns of keys and values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<TableColumns>,
    /// Whether its rows replace newer ones too.
    #[serde(default)]
    pub force: bool,
    /// Whether it is the import of a file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub import: bool,
    /// How many parts it has, once it is sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<u32>,
    /// Whether it is paused: no rows are applied.
    #[serde(default)]
    pub paused: bool,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The version that it builds; `None` in mode merge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<LoadTarget>,
    /// The key that its creation was sent with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation: Option<CreationKey>,
    /// Whether its rows keep the versions of their export; false once it has ended. A process of an earlier version
    /// refuses a record with this field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_row_versions: bool,
}

/// The identity of a creation, to recognise its repetition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreationKey {
    /// Digest of the caller and its idempotency key, in base64url.
    pub key: String,
    /// Digest of the request, in base64url.
    pub request: String,
}

/// The version that a load of mode replace builds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadTarget {
    /// Id of the dataset of its rows.
    pub dataset: u32,
    /// Number of the version.
    pub version: u32,
    /// Checks that the version must pass before it is ready.
    #[serde(default)]
    pub guards: LoadGuards,
    /// Whether the version is activated as soon as it is ready.
    #[serde(default)]
    pub activate: bool,
    /// Whether every shard has confirmed that it makes all writes in the dataset too. Before that, the load takes no
    /// parts: the version could lack writes from after its creation.
    #[serde(default)]
    pub confirmed: bool,
}

/// A step from one state to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadStep {
    /// Every shard has confirmed that it makes all writes in the dataset that is to be built.
    Confirm,
    /// A part is being uploaded.
    TakePart,
    /// All parts are there; their number.
    Seal(u32),
    /// Rows of the load are applied from now on; in mode merge its parts have been checked.
    Begin,
    /// All rows of the load are applied.
    Finish,
    /// All rows of the load are in the version that it builds, which is read back now.
    Verify,
    /// The load's version was read back; its rows, bytes and digest in each shard.
    Ready(Vec<VersionShard>),
    /// The load's version is the live one now.
    Activate,
    /// A later version is the live one now.
    Supersede,
    /// An earlier version is the live one again.
    RollBack,
    /// The load cannot be applied.
    Fail(String),
    /// No row of the load is to be applied for now.
    Pause,
    /// Rows of the load are to be applied again, after a pause.
    Resume,
    /// The load is to end.
    Abort,
}

impl LoadStep {
    /// Returns the action, as the words after "cannot be".
    const fn action(&self) -> &'static str {
        match self {
            Self::Confirm => "confirmed",
            Self::TakePart => "given parts",
            Self::Seal(_) => "sealed",
            Self::Begin => "begun",
            Self::Finish => "finished",
            Self::Verify => "read back",
            Self::Ready(_) => "made ready",
            Self::Activate => "activated",
            Self::Supersede => "superseded",
            Self::RollBack => "rolled back",
            Self::Fail(_) => "failed",
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Abort => "aborted",
        }
    }
}

/// Returns a new id. Ids sort by the time of creation, except within the same millisecond.
pub fn new_id(now: Timestamp, random: u32) -> String {
    format!("{:011x}-{random:08x}", now.as_millis())
}

impl LoadRecord {
    /// Makes a load of a namespace, with the ids of its content and its report. `building` has the id and the number of
    /// the version that a load of mode replace builds.
    pub fn create(
        spec: &LoadSpec,
        (name, namespace): (&str, u32),
        (content, report): (u32, u32),
        building: (u32, u32),
        created_by: &str,
        now: Timestamp,
    ) -> Result<Self, LoadError> {
        let created_at = now.as_millis();
        let as_of = spec.as_of.unwrap_or(created_at);
        let target = target(spec, building, created_at)?;
        if as_of > created_at {
            return Err(LoadError::Field {
                field: "as_of",
                expected: "an instant that is not after the creation of the load",
            });
        }
        if !(0.0..=1.0).contains(&spec.max_reject_ratio) {
            return Err(LoadError::Field {
                field: "max_reject_ratio",
                expected: "a number from 0 to 1",
            });
        }
        if spec.import && spec.mode != LoadMode::Merge {
            return Err(LoadError::Field {
                field: "import",
                expected: "false in mode replace",
            });
        }
        if spec.columns.as_ref().is_some_and(has_bad_name) {
            return Err(LoadError::Field {
                field: "columns",
                expected: "names of 1 to 256 bytes",
            });
        }
        Ok(Self {
            name: name.to_owned(),
            namespace,
            content,
            report,
            mode: spec.mode,
            state: LoadState::Created,
            as_of,
            created_at,
            created_by: created_by.to_owned(),
            ended_at: None,
            expected_rows: spec.expected_rows,
            max_reject_ratio: spec.max_reject_ratio,
            columns: spec.columns.clone(),
            force: spec.force,
            import: spec.is_import(),
            parts: None,
            paused: false,
            reason: None,
            target,
            creation: None,
            keep_row_versions: spec.keep_row_versions,
        })
    }

    /// Returns whether the shards have confirmed the version that it builds. True in mode merge.
    pub fn is_confirmed(&self) -> bool {
        self.target.as_ref().is_none_or(|target| target.confirmed)
    }

    /// Returns whether its rows replace only rows that were there at its creation.
    pub fn is_as_of_creation(&self) -> bool {
        self.target.is_none() && !self.force && self.as_of == self.created_at
    }

    /// Returns the dataset id of its rows: in mode merge `live`, the live dataset of the namespace.
    pub fn rows_id(&self, live: NamespaceId) -> NamespaceId {
        let target = self.target.as_ref();
        target.map_or(live, |target| NamespaceId(target.dataset))
    }

    /// Returns the id of the namespace that it is of.
    pub const fn namespace_id(&self) -> NamespaceId {
        NamespaceId(self.namespace)
    }

    /// Returns the id of the namespace that holds the bytes of its parts.
    pub const fn content_id(&self) -> NamespaceId {
        NamespaceId(self.content)
    }

    /// Returns the id of the namespace of its report.
    pub const fn report_id(&self) -> NamespaceId {
        NamespaceId(self.report)
    }

    /// Makes a step. Returns whether it changed anything.
    pub fn step(&mut self, step: &LoadStep, now: Timestamp) -> Result<bool, LoadError> {
        use LoadState::{
            Aborted, Building, Created, Failed, Live, Ready, RolledBack, Sealed, Superseded,
            Uploading, Verifying,
        };
        let is_replace = self.target.is_some();
        let is_confirmed = self.is_confirmed();
        match (step, self.state) {
            (LoadStep::Confirm, Created) if !is_confirmed => {
                self.target.as_mut().expect("it is not confirmed").confirmed = true;
            }
            (LoadStep::Confirm, _) if is_replace && is_confirmed => return Ok(false),
            (LoadStep::TakePart, Created) if is_confirmed => self.state = Uploading,
            (LoadStep::Seal(parts), Created | Uploading) if is_confirmed => {
                (self.state, self.parts) = (Sealed, Some(*parts));
            }
            (LoadStep::Begin, Sealed) => self.state = Building,
            (LoadStep::Finish, Building) if !is_replace => self.end(Live, None, now),
            (LoadStep::Verify, Building) if is_replace => self.state = Verifying,
            (LoadStep::Ready(_), Verifying) => self.state = Ready,
            (LoadStep::Activate, Ready | Superseded | RolledBack) => self.end(Live, None, now),
            (LoadStep::Supersede, Live | RolledBack) if is_replace => {
                self.end(Superseded, None, now);
            }
            (LoadStep::RollBack, Live) if is_replace => self.end(RolledBack, None, now),
            (LoadStep::Fail(reason), Created | Uploading | Sealed | Building | Verifying) => {
                self.end(Failed, Some(reason), now);
            }
            (LoadStep::Abort, Created | Uploading | Sealed | Building | Verifying | Ready) => {
                self.end(Aborted, None, now);
            }
            (
                LoadStep::Pause | LoadStep::Resume,
                Created | Uploading | Sealed | Building | Verifying,
            ) => {
                let paused = *step == LoadStep::Pause;
                return Ok(std::mem::replace(&mut self.paused, paused) != paused);
            }
            (LoadStep::Seal(parts), _) if self.parts == Some(*parts) && !self.has_failed() => {
                return Ok(false);
            }
            (LoadStep::TakePart, Uploading)
            | (LoadStep::Begin, Building)
            | (LoadStep::Verify, Verifying)
            | (LoadStep::Ready(_), Ready)
            | (LoadStep::Finish, Live)
            | (LoadStep::Supersede, Superseded)
            | (LoadStep::RollBack, RolledBack)
            | (LoadStep::Fail(_), Failed)
            | (LoadStep::Abort, Aborted) => return Ok(false),
            (LoadStep::Activate, Live) if is_replace => return Ok(false),
            _ => {
                return Err(LoadError::State {
                    state: self.state,
                    action: step.action(),
                });
            }
        }
        Ok(true)
    }

    const fn has_failed(&self) -> bool {
        matches!(self.state, LoadState::Failed | LoadState::Aborted)
    }

    fn end(&mut self, state: LoadState, reason: Option<&str>, now: Timestamp) {
        self.state = state;
        self.ended_at = Some(now.as_millis().max(self.created_at));
        self.paused = false;
        self.reason = reason.map(shortened);
        // No row is applied any more, and processes of earlier versions read the record again.
        self.keep_row_versions = false;
    }

    /// Returns whether all its parts are checked before any of its rows is applied: it may fail by its counts, and its
    /// rows are visible one by one.
    pub const fn is_checked_first(&self) -> bool {
        self.target.is_none() && !self.import
    }

    /// Returns whether a runner is to work on it. Rows of a load that is not checked first are applied while parts
    /// arrive.
    pub const fn is_to_run(&self) -> bool {
        use LoadState::{Building, Ready, Sealed, Uploading, Verifying};
        match (self.state, &self.target) {
            (Uploading, _) => !self.is_checked_first() && !self.paused,
            (Sealed | Building | Verifying, _) => !self.paused,
            (Ready, Some(target)) => target.activate,
            _ => false,
        }
    }

    /// Returns the instant from which it is to fail, and the reason: its shards have not confirmed it in time, or it
    /// has not been sealed in time.
    pub fn abandoned(&self, now: Timestamp) -> Option<(Timestamp, String)> {
        if !self.state.takes_parts() {
            return None;
        }
        let created_at = Timestamp::from_millis(self.created_at);
        let unconfirmed_at = created_at.saturating_add(CONFIRM_TIME_MAX);
        if !self.is_confirmed() && unconfirmed_at <= now {
            let reason = "the shards have not confirmed it in time".to_owned();
            return Some((unconfirmed_at, reason));
        }
        let unsealed_at = created_at.saturating_add(UPLOAD_TIME_MAX);
        let days = UPLOAD_TIME_MAX.as_secs() / 86_400;
        (unsealed_at <= now).then(|| {
            let reason = format!("it was not sealed within {days} days");
            (unsealed_at, reason)
        })
    }

    /// Returns the instant from which it is to be forgotten, if it ended long ago.
    pub fn over_since(&self, now: Timestamp) -> Option<Timestamp> {
        let ended_at = self.ended_at.map(Timestamp::from_millis);
        let over_at = ended_at.map(|ended| ended.saturating_add(ENDED_KEPT));
        over_at.filter(|at| *at <= now)
    }

    /// Returns the description for clients.
    pub fn info(&self, id: &str, run: Option<&RunRecord>, parts: Vec<PartInfo>) -> LoadInfo {
        let run = run.cloned().unwrap_or_default();
        let waits = run.waits.filter(|_| !self.state.is_ended());
        let is_counted = self.parts.is_some_and(|parts| run.checked >= parts);
        let shards = run.shards.into_iter();
        let shards = shards.map(|(shard, rows_applied)| LoadShard {
            shard,
            rows_applied,
        });
        LoadInfo {
            id: id.to_owned(),
            namespace: self.name.clone(),
            mode: self.mode,
            state: self.state,
            as_of: self.as_of,
            created_at: self.created_at,
            created_by: self.created_by.clone(),
            ended_at: self.ended_at,
            parts,
            rows_total: is_counted.then_some(run.rows),
            rows_applied: run.applied,
            rows_skipped: run.skipped,
            rows_rejected: run.rejected,
            shards: shards.collect(),
            reason: self.reason.clone().or(waits),
            expected_rows: self.expected_rows,
            max_reject_ratio: self.max_reject_ratio,
            columns: self.columns.clone(),
            force: self.force,
            import: self.import,
            paused: self.paused,
            version: self.target.as_ref().map(|target| target.version),
            guards: self.target.as_ref().map(|target| target.guards),
            activate: self.target.as_ref().is_some_and(|target| target.activate),
            keep_row_versions: self.keep_row_versions,
            dry_run: None,
        }
    }
}

/// Returns the version that a load of mode replace builds, with the id and the number of `building`.
fn target(
    spec: &LoadSpec,
    building: (u32, u32),
    created_at: u64,
) -> Result<Option<LoadTarget>, LoadError> {
    let refused = |field, expected| Err(LoadError::Field { field, expected });
    if spec.mode == LoadMode::Merge {
        let fields = [
            ("guards", spec.guards.is_some()),
            ("activate", spec.activate),
            ("keep_row_versions", spec.keep_row_versions),
        ];
        if let Some((field, _)) = fields.into_iter().rev().find(|(_, is_there)| *is_there) {
            return refused(
                field,
                "no such field in mode merge; only mode replace has it",
            );
        }
        return Ok(None);
    }
    if spec.as_of.is_some_and(|as_of| as_of < created_at) {
        return refused(
            "as_of",
            "no instant before the creation of the load in mode replace: later writes would be lost",
        );
    }
    if spec.force {
        return refused("force", "false in mode replace: later writes always win");
    }
    let guards = spec.guards.unwrap_or_default();
    let change_max = guards.rows_change_max.unwrap_or(0.0);
    if !(change_max.is_finite() && change_max >= 0.0) {
        return refused("guards", "a rows_change_max that is not negative");
    }
    let (dataset, version) = building;
    Ok(Some(LoadTarget {
        dataset,
        version,
        guards,
        activate: spec.activate,
        confirmed: false,
    }))
}

fn has_bad_name(columns: &TableColumns) -> bool {
    let value = match &columns.value {
        TableValue::Column(name) => std::slice::from_ref(name),
        TableValue::Columns(names) => names,
        TableValue::Rest => &[],
    };
    let keys = [Some(&columns.pk), columns.sk.as_ref()];
    let mut names = keys.into_iter().flatten().chain(value);
    names.any(|name| name.is_empty() || name.len() > COLUMN_LEN_MAX)
}

/// Returns a reason, cut to [`REASON_LEN_MAX`] bytes.
pub fn shortened(reason: &str) -> String {
    if reason.len() <= REASON_LEN_MAX {
        return reason.to_owned();
    }
    let end = reason.floor_char_boundary(REASON_LEN_MAX - '…'.len_utf8());
    format!("{}…", &reason[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn load() -> LoadRecord {
        created(&LoadSpec::default()).unwrap()
    }

    fn created(spec: &LoadSpec) -> Result<LoadRecord, LoadError> {
        LoadRecord::create(spec, ("cities", 3), (4, 5), (6, 2), "loader", NOW)
    }

    fn replace() -> LoadRecord {
        let spec = LoadSpec {
            mode: LoadMode::Replace,
            ..LoadSpec::default()
        };
        let mut load = created(&spec).unwrap();
        assert!(load.step(&LoadStep::TakePart, NOW).is_err());
        assert!(load.step(&LoadStep::Seal(0), NOW).is_err());
        assert_eq!(load.step(&LoadStep::Confirm, NOW), Ok(true));
        load
    }

    fn steps() -> [LoadStep; 10] {
        [
            LoadStep::TakePart,
            LoadStep::Seal(2),
            LoadStep::Begin,
            LoadStep::Finish,
            LoadStep::Verify,
            LoadStep::Ready(Vec::new()),
            LoadStep::Fail("why".to_owned()),
            LoadStep::Pause,
            LoadStep::Resume,
            LoadStep::Abort,
        ]
    }

    #[test]
    fn a_merge_comes_through_its_states() {
        let mut load = load();
        let states = [
            LoadStep::TakePart,
            LoadStep::Seal(2),
            LoadStep::Begin,
            LoadStep::Finish,
        ]
        .map(|step| {
            assert_eq!(load.step(&step, NOW), Ok(true), "{step:?}");
            assert_eq!(load.step(&step, NOW), Ok(false), "{step:?} again");
            load.state
        });
        let names = states.map(LoadState::as_str);
        assert_eq!(names, ["uploading", "sealed", "building", "live"]);
        assert_eq!(load.ended_at, Some(NOW.as_millis()));
    }

    #[test]
    fn a_version_is_ready_before_it_is_live_and_can_come_back() {
        let mut load = replace();
        let states = [
            LoadStep::Seal(2),
            LoadStep::Begin,
            LoadStep::Verify,
            LoadStep::Ready(Vec::new()),
            LoadStep::Activate,
            LoadStep::RollBack,
            LoadStep::Activate,
            LoadStep::Supersede,
        ]
        .map(|step| {
            assert_eq!(load.step(&step, NOW), Ok(true), "{step:?}");
            assert_eq!(load.step(&step, NOW), Ok(false), "{step:?} again");
            load.state
        });
        let names = states.map(LoadState::as_str);
        let expected = [
            "sealed",
            "building",
            "verifying",
            "ready",
            "live",
            "rolled-back",
            "live",
            "superseded",
        ];
        assert_eq!(names, expected);
        assert!(load.step(&LoadStep::Finish, NOW).is_err());
    }

    #[test]
    fn each_mode_has_its_own_end() {
        for (mut load, other) in [(replace(), LoadStep::Finish), (load(), LoadStep::Verify)] {
            load.step(&LoadStep::Seal(0), NOW).unwrap();
            load.step(&LoadStep::Begin, NOW).unwrap();
            assert!(load.step(&other, NOW).is_err());
        }
        let mut merged = load();
        for step in [LoadStep::Seal(0), LoadStep::Begin, LoadStep::Finish] {
            merged.step(&step, NOW).unwrap();
        }
        for step in [LoadStep::Activate, LoadStep::Supersede, LoadStep::RollBack] {
            assert!(merged.step(&step, NOW).is_err(), "{step:?}");
        }
    }

    #[test]
    fn every_step_twice_changes_nothing_the_second_time_and_no_ended_load_changes() {
        for path in steps() {
            for last in steps() {
                for step in steps() {
                    let mut load = load();
                    if last == LoadStep::Verify {
                        load = replace();
                    }
                    for before in [&path, &last] {
                        let _ = load.step(before, NOW);
                    }
                    let (before, was_ended) = (load.clone(), load.state.is_ended());
                    match load.step(&step, NOW) {
                        Ok(changed) => {
                            assert_eq!(changed, load != before);
                            assert!(!changed || !was_ended);
                            assert_eq!(load.step(&step, NOW), Ok(false), "{step:?}");
                        }
                        Err(LoadError::State { state, .. }) => {
                            assert_eq!((state, &load), (before.state, &before));
                        }
                        Err(other) => panic!("{other}"),
                    }
                    assert_eq!(load.ended_at.is_some(), load.state.is_ended());
                }
            }
        }
    }

    #[test]
    fn a_load_that_has_ended_is_read_by_earlier_versions() {
        let spec = LoadSpec {
            mode: LoadMode::Replace,
            keep_row_versions: true,
            ..LoadSpec::default()
        };
        let mut load = created(&spec).unwrap();
        assert!(load.keep_row_versions);
        load.step(&LoadStep::Abort, NOW).unwrap();
        assert!(!load.keep_row_versions, "the field is left out");
    }

    #[test]
    fn a_sealed_load_cannot_be_sealed_with_other_parts_or_given_more() {
        let mut load = load();
        load.step(&LoadStep::Seal(2), NOW).unwrap();
        for step in [LoadStep::Seal(3), LoadStep::TakePart] {
            let refused = load.step(&step, NOW).unwrap_err();
            assert_eq!(refused.code().as_str(), "load-state", "{refused}");
        }
    }

    #[test]
    fn a_spec_that_cannot_be_kept_is_refused() {
        let create = |spec: LoadSpec| created(&spec);
        let replace = LoadSpec {
            mode: LoadMode::Replace,
            ..LoadSpec::default()
        };
        let refused = [
            LoadSpec {
                as_of: Some(NOW.as_millis() - 1),
                ..replace.clone()
            },
            LoadSpec {
                force: true,
                ..replace.clone()
            },
            LoadSpec {
                guards: Some(LoadGuards {
                    rows_change_max: Some(-0.1),
                    rows_min: None,
                }),
                ..replace
            },
            LoadSpec {
                activate: true,
                ..LoadSpec::default()
            },
            LoadSpec {
                keep_row_versions: true,
                ..LoadSpec::default()
            },
            LoadSpec {
                mode: LoadMode::Replace,
                import: true,
                ..LoadSpec::default()
            },
        ];
        for spec in refused {
            assert!(create(spec.clone()).is_err(), "{spec:?}");
        }
        let counted = LoadSpec {
            expected_rows: Some(1),
            import: true,
            ..LoadSpec::default()
        };
        assert!(!create(counted).unwrap().import);
        let later = LoadSpec {
            as_of: Some(NOW.as_millis() + 1),
            ..LoadSpec::default()
        };
        assert!(create(later).is_err());
        for max_reject_ratio in [-0.1, 1.1, f64::NAN] {
            let spec = LoadSpec {
                max_reject_ratio,
                ..LoadSpec::default()
            };
            assert!(create(spec).is_err());
        }
    }

    #[test]
    fn loads_that_are_left_alone_end_and_ended_ones_are_forgotten() {
        let mut load = load();
        let later = |time: Duration| NOW.saturating_add(time + Duration::from_millis(1));
        assert_eq!(load.abandoned(NOW), None);
        assert!(load.abandoned(later(UPLOAD_TIME_MAX)).is_some());
        load.step(&LoadStep::Abort, NOW).unwrap();
        assert_eq!(load.abandoned(later(UPLOAD_TIME_MAX)), None);
        let unconfirmed = created(&LoadSpec {
            mode: LoadMode::Replace,
            ..LoadSpec::default()
        });
        let unconfirmed = unconfirmed.unwrap();
        assert!(unconfirmed.abandoned(later(CONFIRM_TIME_MAX)).is_some());
        assert_eq!(replace().abandoned(later(CONFIRM_TIME_MAX)), None);
        let ended = Timestamp::from_millis(NOW.as_millis());
        assert_eq!(load.over_since(NOW), None);
        assert_eq!(
            load.over_since(later(ENDED_KEPT)),
            Some(ended.saturating_add(ENDED_KEPT))
        );
    }

    #[test]
    fn ids_sort_by_time() {
        let ids = [(0, 9), (1, 5), (2, 1)]
            .map(|(ms, random)| new_id(Timestamp::from_millis(1_700_000_000_000 + ms), random));
        assert!(ids.is_sorted(), "{ids:?}");
    }
}
