//! Changes of loads: one function a change, each with its event.

use std::sync::Arc;

use umbo_api::loads::{LoadSpec, LoadState};
use umbo_api::observe::{Event, EventKind};
use umbo_loads::{CreationKey, LoadError, LoadRecord, LoadStep, new_id};
use umbo_types::{NamespaceId, Timestamp};

use crate::control_plane::ControlPlane;
use crate::error::ControlError;
use crate::events::{ChangeSummary, Origin};
use crate::loads::{created_with, find, forgotten, not_found};
use crate::namespace_entry::NamespaceEntry;
use crate::namespaces;
use crate::records::{Edits, RecordSet};
use crate::versions::{create_load, step_load};

/// Ids this much younger than the records in effect may be of loads that other dispatchers have just made.
const RECENT_MS: u64 = 60_000;

const fn text_of(step: &LoadStep) -> &'static str {
    match step {
        LoadStep::Confirm => "the shards have confirmed a load",
        LoadStep::TakePart => "the first part of a load is being uploaded",
        LoadStep::Seal(_) => "sealed a load",
        LoadStep::Begin => "a load is being applied",
        LoadStep::Verify => "a version is built, and is being read back",
        LoadStep::Ready(_) => "a version is ready",
        LoadStep::Finish | LoadStep::Activate => "a load is live",
        LoadStep::Supersede => "a later version was activated",
        LoadStep::RollBack => "an earlier version was activated again",
        LoadStep::Fail(_) => "a load failed",
        LoadStep::Pause => "paused a load",
        LoadStep::Resume => "resumed a load",
        LoadStep::Abort => "aborted a load",
    }
}

/// Returns the description of the load in the event of a step.
fn told(load: &LoadRecord, state: LoadState) -> String {
    let mut text = state.as_str().to_owned();
    if load.paused {
        text.push_str(", paused");
    }
    if let Some(reason) = load.reason.as_ref().filter(|_| state == load.state) {
        text = format!("{text}: {reason}");
    }
    text
}

/// Plans to fail a load that was never sealed, or to forget a load that ended long ago.
fn end_overdue(set: &RecordSet, id: &str, now: Timestamp) -> Result<Edits, ControlError> {
    let Ok(load) = find(set, id) else {
        return Ok(Edits::none());
    };
    if let Some((due_at, reason)) = load.abandoned(now) {
        let origin = Origin {
            by: load.created_by.clone(),
            reason: None,
        };
        let (edits, event, _) = stepped(set, id, &LoadStep::Fail(reason), &origin, now)?;
        return Ok(edits.because_of(event).due_at(Some(due_at)));
    }
    let over_since = load.over_since(now);
    let forget = |_| forgotten(Edits::none(), id, &load).due_at(over_since);
    Ok(over_since.map_or_else(Edits::none, forget))
}

/// Plans a step of a load, with its event.
fn stepped(
    set: &RecordSet,
    id: &str,
    asked: &LoadStep,
    origin: &Origin,
    now: Timestamp,
) -> Result<(Edits, Event, LoadRecord), ControlError> {
    let (edits, load, before) = step_load(set, id, asked, now)?;
    let subject = format!("{}/{id}", load.name);
    let change = ChangeSummary::new(EventKind::LoadChanged, subject, text_of(asked));
    let (before, after) = (told(&load, before), told(&load, load.state));
    let change = change.between(Some(&before), Some(&after));
    Ok((edits, change.event(origin, now.as_millis()), load))
}

impl ControlPlane {
    /// Creates a load of a namespace; `created_by` pays for it. If a load was created with the same key, returns that
    /// load. In mode replace the load takes effect once every shard has confirmed it.
    pub async fn create_load(
        &self,
        namespace: &NamespaceEntry,
        spec: &LoadSpec,
        created_by: &str,
        creation: Option<&CreationKey>,
        id_bits: u32,
        origin: &Origin,
    ) -> Result<(String, LoadRecord), ControlError> {
        let now = self.kept_from();
        let id = new_id(now, id_bits);
        let created = self.change_records(|set| {
            if let Some(creation) = creation
                && let Some(known) = created_with(set, namespace.id, creation)?
            {
                return Ok((Edits::none(), known));
            }
            let name = &namespace.info.name;
            if !namespaces::live_ids(set)?.contains(&namespace.id) {
                let name = name.clone();
                return Err(ControlError::NamespaceNotFound { name });
            }
            if namespace.id.has_fast_writes() {
                return Err(LoadError::NeedsExactWrites.into());
            }
            let own = (name.as_str(), namespace.id);
            let created_by = (created_by, creation);
            let (edits, load) = create_load(set, own, spec, created_by, &id, now)?;
            let subject = format!("{}/{id}", namespace.info.name);
            let change = ChangeSummary::new(EventKind::LoadChanged, subject, "created a load");
            let change = change.between(None, Some(&told(&load, load.state)));
            let event = change.event(origin, now.as_millis());
            Ok((edits.because_of(event), (id.clone(), load)))
        });
        let (id, mut load) = created.await?;
        if !load.is_confirmed() {
            load = self.confirm_load(&id, origin).await?;
        }
        Ok((id, load))
    }

    /// Makes a step of a load, and returns the resulting load. A dry run changes nothing.
    pub async fn step_load(
        &self,
        id: &str,
        asked: &LoadStep,
        dry_run: bool,
        origin: &Origin,
    ) -> Result<LoadRecord, ControlError> {
        let now = self.kept_from();
        self.change_records(|set| {
            let (edits, event, load) = stepped(set, id, asked, origin, now)?;
            let edits = edits.because_of(event);
            Ok((if dry_run { Edits::none() } else { edits }, load))
        })
        .await
    }

    /// Finds a load of a namespace. Asks the home if another dispatcher may have made the load a moment ago.
    pub async fn find_load(
        &self,
        namespace: NamespaceId,
        id: &str,
    ) -> Result<Arc<LoadRecord>, ControlError> {
        let own = || {
            let found = self.loads.get(id);
            found.filter(|load| load.namespace_id() == namespace)
        };
        if let Some(load) = own() {
            return Ok(load);
        }
        let made_at = id.split('-').next();
        let made_at = made_at.and_then(|ms| u64::from_str_radix(ms, 16).ok());
        let now = self.clock.wall().as_millis();
        // The clock of its dispatcher may be ahead.
        if made_at.is_some_and(|at| at.saturating_add(RECENT_MS) > now) {
            // While the home is away, the copy here counts.
            drop(self.refresh().await);
        }
        own().ok_or_else(|| not_found(id))
    }

    /// Fails loads that were never sealed, forgets loads that ended long ago, and drops versions that were kept for
    /// long enough: all by the believed time of day, of this dispatcher and of the home.
    pub async fn forget_loads(&self) -> Result<(), ControlError> {
        let now = self.believed_time();
        let mut outcome = Ok(());
        for (id, load) in self.loads.all() {
            if load.abandoned(now).is_some() || load.over_since(now).is_some() {
                let end = |set: &RecordSet| Ok((end_overdue(set, &id, now)?, ()));
                // A load that is not due yet at home does not stop the others.
                outcome = outcome.and(self.change_records(end).await);
            }
        }
        outcome.and(self.drop_overdue_versions().await)
    }
}

#[cfg(test)]
mod tests {
    use umbo_loads::limits::{ENDED_LOADS_MAX, OPEN_IMPORTS_MAX, OPEN_LOADS_MAX};

    use std::collections::BTreeSet;

    use super::*;
    use crate::follow::with_folded_fences;
    use crate::loads::LoadMap;
    use umbo_api::admin::NamespaceSpec;
    use umbo_api::loads::LoadMode;
    use umbo_store::IdRange;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn set_with_namespace() -> (RecordSet, NamespaceEntry) {
        let set = RecordSet::default();
        let always = umbo_store::Condition::Always;
        let (edits, info) =
            namespaces::put(&set, "cities", &NamespaceSpec::default(), &always, NOW).unwrap();
        (set.changed(&edits), NamespaceEntry::new(info, None))
    }

    fn own(namespace: &NamespaceEntry) -> (&str, NamespaceId) {
        (&namespace.info.name, namespace.id)
    }

    fn created(set: &RecordSet, namespace: &NamespaceEntry, id: &str) -> RecordSet {
        let spec = LoadSpec::default();
        let (edits, _) =
            create_load(set, own(namespace), &spec, ("loader", None), id, NOW).unwrap();
        set.changed(&edits)
    }

    fn after(set: &RecordSet, id: &str, asked: &LoadStep) -> RecordSet {
        let (edits, ..) = step_load(set, id, asked, NOW).unwrap();
        set.changed(&edits)
    }

    #[test]
    fn what_is_stored_of_a_load_is_fenced_when_it_ends_and_is_forgotten() {
        let (set, namespace) = set_with_namespace();
        let set = created(&set, &namespace, "a");
        let load = find(&set, "a").unwrap();
        assert_eq!(
            (load.content, load.report),
            (namespace.id.0 + 1, namespace.id.0 + 2)
        );
        assert_eq!(set.last_namespace, load.report);
        assert_eq!(set.fenced(), Ok(Vec::new()));
        let set = after(&set, "a", &LoadStep::Abort);
        assert_eq!(set.fenced(), Ok(vec![load.content_id().into()]));
        let (edits, _) = namespaces::begin_removal(&set, "cities", None).unwrap();
        let set = set.changed(&edits);
        let all = [namespace.id, load.content_id(), load.report_id()].map(IdRange::from);
        assert_eq!(set.fenced().unwrap(), all);
        assert!(LoadMap::read(&set).unwrap().is_empty());
    }

    #[test]
    fn loads_that_are_forgotten_take_no_space_in_the_records() {
        let (mut set, namespace) = set_with_namespace();
        let change = |set: &mut RecordSet, edits: Edits| {
            // Every shard has confirmed the set before.
            let confirmed = set.fenced().unwrap();
            let edits = with_folded_fences(edits, set, &confirmed).unwrap();
            *set = set.changed(&edits);
        };
        let mut len_at_first = 0;
        for number in 0..10_000 {
            let id = format!("{number:05}");
            let mode = match number % 3 {
                0 => LoadMode::Merge,
                _ => LoadMode::Replace,
            };
            let spec = LoadSpec {
                mode,
                ..LoadSpec::default()
            };
            let created = create_load(&set, own(&namespace), &spec, ("x", None), &id, NOW);
            change(&mut set, created.unwrap().0);
            let (edits, ..) = step_load(&set, &id, &LoadStep::Abort, NOW).unwrap();
            change(&mut set, edits);
            if number % 100 != 0 {
                continue;
            }
            let live: BTreeSet<_> = LoadMap::read(&set)
                .unwrap()
                .into_records()
                .iter()
                .map(|load| load.report_id())
                .chain([namespace.id])
                .collect();
            let all = (1..=set.last_namespace).map(NamespaceId);
            let ended = all.filter(|id| !live.contains(id));
            let fenced = set.fenced().unwrap().into_iter();
            assert!(fenced.flat_map(IdRange::ids).eq(ended));
            let copy = set.to_copy().unwrap();
            let len = copy.content.len() + copy.fenced.len() * size_of::<IdRange>();
            if number == 100 {
                len_at_first = len;
            }
            // Numbers have more digits later.
            assert!(number < 100 || len < len_at_first * 11 / 10, "{len} bytes");
        }
    }

    #[test]
    fn the_loads_of_a_namespace_are_bounded() {
        let (mut set, namespace) = set_with_namespace();
        for number in 0..OPEN_LOADS_MAX {
            set = created(&set, &namespace, &format!("a{number:02}"));
        }
        let spec = LoadSpec::default();
        let refused =
            create_load(&set, own(&namespace), &spec, ("loader", None), "b", NOW).unwrap_err();
        assert!(refused.to_string().contains("8 loads"), "{refused}");
        for number in 0..30 {
            let id = if number < OPEN_LOADS_MAX {
                format!("a{number:02}")
            } else {
                format!("b{number:02}")
            };
            set = after(&set, &id, &LoadStep::Abort);
            set = created(
                &set,
                &namespace,
                &format!("b{:02}", number + OPEN_LOADS_MAX),
            );
        }
        let loads = LoadMap::read(&set).unwrap().into_records();
        assert_eq!(loads.len(), OPEN_LOADS_MAX + ENDED_LOADS_MAX);
        let newest = loads.into_iter().filter(|load| load.state.is_ended());
        assert_eq!(newest.count(), ENDED_LOADS_MAX);
    }

    #[test]
    fn imports_and_other_loads_are_bounded_and_remembered_apart() {
        let (mut set, namespace) = set_with_namespace();
        let spec = |import| LoadSpec {
            import,
            ..LoadSpec::default()
        };
        let create = |set: &RecordSet, import: bool, id: &str| {
            create_load(set, own(&namespace), &spec(import), ("x", None), id, NOW)
        };
        for number in 0..OPEN_IMPORTS_MAX {
            set = set.changed(&create(&set, true, &format!("i{number:02}")).unwrap().0);
        }
        assert!(create(&set, true, "j").is_err());
        // Eight more loads than are remembered, each of which has ended.
        for number in 0..ENDED_LOADS_MAX + 8 {
            let id = format!("l{number:02}");
            set = set.changed(&create(&set, false, &id).unwrap().0);
            set = after(&set, &id, &LoadStep::Abort);
        }
        set = after(&set, "i00", &LoadStep::Abort);
        set = set.changed(&create(&set, true, "j").unwrap().0);
        assert!(find(&set, "i00").is_ok(), "no load has it forgotten");
        let loads = LoadMap::read(&set).unwrap().into_records();
        let imports = loads.iter().filter(|load| load.import).count();
        assert_eq!(imports, OPEN_IMPORTS_MAX + 1);
        assert_eq!(loads.len() - imports, ENDED_LOADS_MAX + 1);
    }

    #[test]
    fn a_creation_that_is_repeated_finds_its_load() {
        let (set, namespace) = set_with_namespace();
        let creation = |key: &str, request: &str| CreationKey {
            key: key.to_owned(),
            request: request.to_owned(),
        };
        let first = creation("a", "1");
        let spec = LoadSpec {
            mode: LoadMode::Replace,
            ..LoadSpec::default()
        };
        let by = ("loader", Some(&first));
        let (edits, _) = create_load(&set, own(&namespace), &spec, by, "x", NOW).unwrap();
        let set = set.changed(&edits);
        let found = |set: &RecordSet, creation: &CreationKey| {
            let found = created_with(set, namespace.id, creation);
            found.map(|found| found.map(|(id, _)| id))
        };
        assert_eq!(found(&set, &first).unwrap().as_deref(), Some("x"));
        assert_eq!(found(&set, &creation("b", "1")).unwrap(), None);
        let reused = found(&set, &creation("a", "2")).unwrap_err().to_string();
        assert!(reused.contains("load x"), "{reused}");
        // One that the shards never confirmed was not created, and is made anew.
        assert_eq!(
            found(&after(&set, "x", &LoadStep::Abort), &first).unwrap(),
            None
        );
        let confirmed = after(&set, "x", &LoadStep::Confirm);
        let aborted = after(&confirmed, "x", &LoadStep::Abort);
        assert_eq!(found(&aborted, &first).unwrap().as_deref(), Some("x"));
    }
}
