//! Changes of the versions of a namespace, and of the loads that build them, which are changed together.
//!
//! A version is activated by one change of the records, which changes the namespace and both loads. Shards learn of it
//! with the copies, or from the first write of a dispatcher that knows it. Nothing waits for them: each shard chooses
//! the dataset that a write is decided on, and a read sees the dataset that its dispatcher knows when it begins.

use std::time::Duration;

use tokio::time::sleep;
use umbo_api::loads::{LoadMode, LoadSpec, LoadState};
use umbo_api::observe::EventKind;
use umbo_api::versions::VersionChange;
use umbo_loads::{CreationKey, LoadRecord, LoadStep};
use umbo_types::{NamespaceId, Timestamp};

use crate::control_plane::ControlPlane;
use crate::datasets::{Dropped, KEEP_TIME};
use crate::error::ControlError;
use crate::events::{ACTIVATED, ChangeSummary, DROPPED, Origin, ROLLED_BACK};
use crate::loads;
use crate::namespace_entry::NamespaceEntry;
use crate::namespaces::change_datasets;
use crate::records::{Edits, RecordSet};

/// Time for the shards to confirm that a version is being built, before its load is aborted.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);
/// How often shards are asked again that have not confirmed it.
const CONFIRM_INTERVAL: Duration = Duration::from_millis(100);

/// Name and id of a namespace.
type Own<'a> = (&'a str, NamespaceId);

fn own(namespace: &NamespaceEntry) -> Own<'_> {
    (&namespace.info.name, namespace.id)
}

fn absent((name, _): Own<'_>) -> ControlError {
    ControlError::NamespaceNotFound {
        name: name.to_owned(),
    }
}

/// Plans to create a load; one of mode replace begins to build a version.
pub(crate) fn create_load(
    set: &RecordSet,
    namespace: Own<'_>,
    spec: &LoadSpec,
    created_by: (&str, Option<&CreationKey>),
    id: &str,
    now: Timestamp,
) -> Result<(Edits, LoadRecord), ControlError> {
    if spec.mode == LoadMode::Merge {
        return loads::create(set, namespace, (spec, 0), created_by, id, now);
    }
    let dataset = loads::next_dataset(set)?;
    let begun = change_datasets(set, namespace, |datasets, _| datasets.begin(dataset, id))?;
    let (begun, version) = begun.ok_or_else(|| absent(namespace))?;
    let (edits, load) = loads::create(set, namespace, (spec, version), created_by, id, now)?;
    Ok((edits.and(begun), load))
}

/// Plans a step of a load. Returns the state before it.
pub(crate) fn step_load(
    set: &RecordSet,
    id: &str,
    asked: &LoadStep,
    now: Timestamp,
) -> Result<(Edits, LoadRecord, LoadState), ControlError> {
    let (mut edits, load, before) = loads::step(set, id, asked, now)?;
    let Some(target) = load.target.as_ref().filter(|_| load.state != before) else {
        return Ok((edits, load, before));
    };
    let (own, dataset) = ((load.name.as_str(), load.namespace_id()), target.dataset);
    match asked {
        LoadStep::Ready(shards) => {
            let built = change_datasets(set, own, |datasets, _| {
                datasets.built(dataset, shards.clone());
                Ok(())
            })?;
            let (built, ()) = built.ok_or_else(|| absent(own))?;
            edits = edits.and(built);
        }
        LoadStep::Fail(_) | LoadStep::Abort => {
            let ended =
                change_datasets(set, own, |datasets, _| Ok(datasets.end_building(dataset)))?;
            // Of a namespace that is removed, all datasets are fenced.
            if let Some((ended, true)) = ended {
                edits = edits.and(ended).fence(NamespaceId(dataset));
            }
        }
        _ => {}
    }
    Ok((edits, load, before))
}

/// Plans to activate a version, or the newest kept version if `version` is `None`.
pub(crate) fn activate(
    set: &RecordSet,
    namespace: Own<'_>,
    version: Option<u32>,
    now: Timestamp,
) -> Result<(Edits, VersionChange), ControlError> {
    let activated = change_datasets(set, namespace, |datasets, settings| {
        let version = version.map_or_else(|| datasets.rollback_to(), Ok)?;
        let keep_time = settings.versions_kept_for.map(Duration::from_secs);
        let keep_time = keep_time.unwrap_or(KEEP_TIME);
        Ok((datasets.activate(version, now, keep_time)?, version))
    })?;
    let (mut edits, (activated, version)) = activated.ok_or_else(|| absent(namespace))?;
    let Some(activated) = activated else {
        let change = VersionChange {
            before: version,
            live: version,
            ..VersionChange::default()
        };
        return Ok((Edits::none(), change));
    };
    let is_back = activated.live < activated.before;
    let left = if is_back {
        LoadStep::RollBack
    } else {
        LoadStep::Supersede
    };
    for (load, asked) in [
        (&activated.load_before, left),
        (&activated.load, LoadStep::Activate),
    ] {
        // Loads are forgotten before the versions that they have built.
        if let Some(id) = load.as_ref().filter(|id| loads::find(set, id).is_ok()) {
            let (stepped, ..) = loads::step(set, id, &asked, now)?;
            edits = edits.and(stepped);
        }
    }
    let dropped = activated.dropped.iter().map(|one| one.version).collect();
    let edits = without(edits, set, &activated.dropped, now)?;
    let change = VersionChange {
        before: activated.before,
        live: activated.live,
        dropped,
        dry_run: None,
    };
    Ok((edits, change))
}

/// Adds the drop of versions: their datasets are fenced, and their loads are superseded for good.
fn without(
    mut edits: Edits,
    set: &RecordSet,
    dropped: &[Dropped],
    now: Timestamp,
) -> Result<Edits, ControlError> {
    for one in dropped {
        edits = edits.fence(one.id);
        if let Some(id) = one.load.as_ref().filter(|id| loads::find(set, id).is_ok()) {
            let (stepped, ..) = loads::step(set, id, &LoadStep::Supersede, now)?;
            edits = edits.and(stepped);
        }
    }
    Ok(edits)
}

fn remove(
    set: &RecordSet,
    namespace: Own<'_>,
    version: u32,
    now: Timestamp,
) -> Result<(Edits, VersionChange), ControlError> {
    let removed = change_datasets(set, namespace, |datasets, _| {
        Ok((datasets.remove(version)?, datasets.live_version()))
    })?;
    let (edits, (removed, live)) = removed.ok_or_else(|| absent(namespace))?;
    let edits = without(edits, set, &[removed], now)?;
    let change = VersionChange {
        before: live,
        live,
        dropped: vec![version],
        dry_run: None,
    };
    Ok((edits, change))
}

fn told(version: u32) -> String {
    format!("version {version}")
}

impl ControlPlane {
    /// Has every shard confirm that it makes all writes in the dataset that a new load builds, and lets the load take
    /// parts. If shards do not confirm in time, the load is aborted.
    pub(crate) async fn confirm_load(
        &self,
        id: &str,
        origin: &Origin,
    ) -> Result<LoadRecord, ControlError> {
        let revision = self.records.current.load().revision;
        let begun = self.clock.monotonic();
        loop {
            let unconfirmed = self.records.unconfirmed(&*self.store, revision);
            if unconfirmed.is_empty() {
                return self.step_load(id, &LoadStep::Confirm, false, origin).await;
            }
            let waited = self.clock.monotonic().saturating_duration_since(begun);
            if waited >= CONFIRM_TIMEOUT {
                let shards = unconfirmed.iter().map(|shard| shard.0).collect();
                // If this fails, the load fails after a while: it was not confirmed.
                drop(self.step_load(id, &LoadStep::Abort, false, origin).await);
                return Err(ControlError::ShardsUnconfirmed { shards });
            }
            sleep(CONFIRM_INTERVAL).await;
            self.hand_over().await;
        }
    }

    /// Activates a version, or the newest kept version if `version` is `None`. A dry run only returns the change.
    pub async fn activate_version(
        &self,
        namespace: &NamespaceEntry,
        version: Option<u32>,
        dry_run: bool,
        origin: &Origin,
    ) -> Result<VersionChange, ControlError> {
        let now = self.kept_from();
        let text = match version {
            Some(_) => ACTIVATED,
            None => ROLLED_BACK,
        };
        let change = self.change_records(|set| {
            let (edits, change) = activate(set, own(namespace), version, now)?;
            let event = ChangeSummary::new(
                EventKind::NamespaceChanged,
                namespace.info.name.as_str(),
                text,
            );
            let event = event.between(Some(&told(change.before)), Some(&told(change.live)));
            let edits = edits.because_of(event.event(origin, now.as_millis()));
            Ok((if dry_run { Edits::none() } else { edits }, change))
        });
        change.await.map(|change| concluded(change, dry_run))
    }

    /// Drops a kept version. A dry run only returns the change.
    pub async fn remove_version(
        &self,
        namespace: &NamespaceEntry,
        version: u32,
        dry_run: bool,
        origin: &Origin,
    ) -> Result<VersionChange, ControlError> {
        let now = self.kept_from();
        let change = self.change_records(|set| {
            let (edits, change) = remove(set, own(namespace), version, now)?;
            let name = namespace.info.name.as_str();
            let event = ChangeSummary::new(EventKind::NamespaceChanged, name, DROPPED);
            let event = event.between(Some(&told(version)), None);
            let edits = edits.because_of(event.event(origin, now.as_millis()));
            Ok((if dry_run { Edits::none() } else { edits }, change))
        });
        change.await.map(|change| concluded(change, dry_run))
    }

    /// Drops the versions that were kept for long enough by the believed time of day.
    pub(crate) async fn drop_overdue_versions(&self) -> Result<(), ControlError> {
        let now = self.believed_time();
        for namespace in self.namespaces.with_overdue_versions(now) {
            self.change_records(|set| {
                let dropped = change_datasets(set, own(&namespace), |datasets, _| {
                    Ok((datasets.overdue_since(now), datasets.drop_overdue(now)))
                })?;
                Ok(match dropped {
                    Some((edits, (due_at, dropped))) => {
                        let edits = without(edits, set, &dropped, now)?;
                        (edits.due_at(due_at), ())
                    }
                    None => (Edits::none(), ()),
                })
            })
            .await?;
        }
        Ok(())
    }
}

fn concluded(mut change: VersionChange, dry_run: bool) -> VersionChange {
    change.dry_run = dry_run.then_some(true);
    change
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespaces::{self, NamespaceMap};
    use umbo_api::admin::NamespaceSpec;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    struct Site {
        set: RecordSet,
        id: NamespaceId,
    }

    impl Site {
        fn new() -> Self {
            let set = RecordSet::default();
            let always = umbo_store::Condition::Always;
            let spec = NamespaceSpec::default();
            let (edits, info) = namespaces::put(&set, "cities", &spec, &always, NOW).unwrap();
            Self {
                set: set.changed(&edits),
                id: NamespaceId(info.id),
            }
        }

        fn own(&self) -> Own<'static> {
            ("cities", self.id)
        }

        fn change(&mut self, edits: &Edits) {
            self.set = self.set.changed(edits);
            NamespaceMap::read(&self.set).unwrap();
            let copy = self.set.to_copy().unwrap();
            assert_eq!(RecordSet::from_copy(&copy).as_ref(), Ok(&self.set));
        }

        fn create(&mut self, id: &str) -> LoadRecord {
            let spec = LoadSpec {
                mode: LoadMode::Replace,
                ..LoadSpec::default()
            };
            let created = create_load(&self.set, self.own(), &spec, ("loader", None), id, NOW);
            let (edits, load) = created.unwrap();
            self.change(&edits);
            load
        }

        fn step(&mut self, id: &str, asked: &LoadStep) {
            let (edits, ..) = step_load(&self.set, id, asked, NOW).unwrap();
            self.change(&edits);
        }

        fn build(&mut self, id: &str) -> LoadRecord {
            let load = self.create(id);
            for step in [
                LoadStep::Confirm,
                LoadStep::Seal(0),
                LoadStep::Begin,
                LoadStep::Verify,
                LoadStep::Ready(Vec::new()),
            ] {
                self.step(id, &step);
            }
            load
        }

        fn activate(&mut self, version: Option<u32>) -> VersionChange {
            let (edits, change) = activate(&self.set, self.own(), version, NOW).unwrap();
            self.change(&edits);
            change
        }

        fn state(&self, id: &str) -> &'static str {
            loads::find(&self.set, id).unwrap().state.as_str()
        }

        fn is_fenced(&self, id: u32) -> bool {
            self.set.is_fenced(NamespaceId(id))
        }
    }

    #[test]
    fn loads_and_versions_change_together() {
        let mut site = Site::new();
        let first = site.build("a");
        let dataset = first.target.as_ref().unwrap().dataset;
        assert_eq!(site.set.last_namespace, dataset);
        // The parts are needed no more.
        assert!(site.is_fenced(first.content) && !site.is_fenced(dataset));
        let change = site.activate(Some(2));
        assert_eq!((change.before, change.live), (1, 2));
        assert_eq!(site.state("a"), "live");
        let change = site.activate(None);
        assert_eq!((change.before, change.live), (2, 1));
        assert_eq!(site.state("a"), "rolled-back");

        site.build("b");
        let change = site.activate(Some(3));
        assert_eq!(change.dropped, [2]);
        assert_eq!((site.state("a"), site.state("b")), ("superseded", "live"));
        assert!(site.is_fenced(dataset));
        let gone = activate(&site.set, site.own(), Some(2), NOW).unwrap_err();
        assert!(gone.to_string().contains("dropped"), "{gone}");
    }

    #[test]
    fn a_load_that_fails_leaves_nothing() {
        let mut site = Site::new();
        for (id, end) in [
            ("a", LoadStep::Abort),
            ("b", LoadStep::Fail("why".to_owned())),
        ] {
            let load = site.create(id);
            let dataset = load.target.as_ref().unwrap().dataset;
            assert_eq!(site.set.datasets().unwrap().len(), 1);
            site.step(id, &end);
            assert!(site.is_fenced(dataset) && site.is_fenced(load.content));
            assert_eq!(site.set.datasets(), Ok(Vec::new()));
        }
    }

    #[test]
    fn all_datasets_of_a_removed_namespace_are_fenced() {
        let mut site = Site::new();
        site.build("a");
        site.activate(Some(2));
        let building = site.create("b");
        let (edits, _) = namespaces::begin_removal(&site.set, "cities", None).unwrap();
        let ids = site.set.datasets().unwrap().remove(0);
        site.change(&edits);
        for id in ids.kept.iter().chain([&ids.live, &ids.identity]) {
            assert!(site.set.is_fenced(*id), "{id}");
        }
        assert!(site.is_fenced(building.target.unwrap().dataset));
    }
}
