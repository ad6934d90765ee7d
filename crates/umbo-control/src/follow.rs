//! Following Umbo's own records: how a dispatcher learns of a revision, puts it into effect, changes it,
//! and hands it to the store.
//!
//! Invariants: everything in effect is of one revision; the revision only grows; a revision that cannot be read is
//! not taken up, and the last good one stays. While the home is away, the dispatcher serves from its current
//! revision, learns of newer revisions from the copies that nodes keep, and refuses changes. Time comes from the
//! dispatcher's clock, so that a loop or a simulation can call [`ControlPlane::follow_records`] step by step.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use umbo_api::observe::Event;
use umbo_store::{IdRange, place_datasets};
use umbo_types::{NamespaceId, Version, buggify};

use crate::auth::{TokenRecord, TokenSource};
use crate::control_plane::ControlPlane;
use crate::error::ControlError;
use crate::events;
use crate::first_records::{behind, empty, secret};
use crate::hot_lists::Lists;
use crate::loads::LoadMap;
use crate::namespace_entry::NamespaceEntry;
use crate::namespaces::NamespaceMap;
use crate::policies::StoredPolicies;
use crate::records::home::ChangeError;
use crate::records::{Edits, RecordSet, Unreadable};
use crate::tokens;

/// Time for a look at the home, if no request waits for it, and if one does.
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for each step of a change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a change is tried again when another dispatcher changed the records first.
const CONFLICT_TRIES: usize = 16;
/// How often the home is asked for names that this dispatcher does not know.
const ANEW_INTERVAL: Duration = Duration::from_secs(1);

impl ControlPlane {
    /// Follows the records by one step: learns of a new revision, puts it into effect, hands it to the
    /// store, and finishes removals of namespaces that every shard has confirmed. To be called every
    /// 500 ms. An error says that the newest revision could not be confirmed; it is logged already.
    pub async fn follow_records(&self) -> Result<(), ControlError> {
        let followed = self.refresh().await;
        self.settle_removals().await;
        followed
    }

    /// Learns of the newest revision: at home, or, while the home is away, from the copies that nodes keep.
    pub async fn refresh(&self) -> Result<(), ControlError> {
        let _looking = self.records.looking.lock().await;
        let outcome = match self.look(LOOK_TIMEOUT).await {
            Ok(_) => Ok(()),
            Err(failure) => {
                let unreadable = self.take_up_kept().await.err();
                Err(unreadable.unwrap_or(failure))
            }
        };
        self.records.note(outcome.as_ref().err());
        outcome
    }

    /// Reads the records at home, and puts them into effect. Returns the set with the version of its head.
    async fn look(&self, timeout: Duration) -> Result<(Arc<RecordSet>, Version), ControlError> {
        let begun = self.clock.monotonic();
        let current = self.records.current.load_full();
        // A revision that was seen before the home is asked was written there before.
        let heard = self.store.records_revision().max(current.revision);
        let found = self.records.home.read(Some(&current), timeout).await?;
        let (set, version) = found.ok_or_else(|| empty(&*self.store, heard))?;
        if set.revision < heard {
            return Err(behind(&*self.store, set.revision, heard).into());
        }
        self.take_up(&set)?;
        self.records.confirm(begun);
        Ok((set, version))
    }

    /// Puts the newest copy of any node into effect if it is newer than the current set.
    async fn take_up_kept(&self) -> Result<(), ControlError> {
        if self.store.records_revision() <= self.records.current.load().revision {
            return Ok(());
        }
        match self.store.kept_records().await {
            Ok(Some(copy)) => self.take_up(&Arc::new(RecordSet::from_copy(&copy)?)),
            // The nodes are asked again with the next step, if the home is still away then.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Puts a set into effect, all of it at once, unless a newer one is in effect. If a part of it cannot be read,
    /// nothing changes.
    pub(crate) fn take_up(&self, set: &Arc<RecordSet>) -> Result<(), ControlError> {
        let records = &self.records;
        let taking_up = records.taking_up.lock();
        let _taking_up = taking_up.unwrap_or_else(PoisonError::into_inner);
        let current = records.current.load();
        if set.revision <= current.revision {
            return Ok(());
        }
        let InEffect {
            namespaces,
            tokens,
            policies,
            lists,
            loads,
            events,
        } = InEffect::read(set)?;
        // Before a request can name a dataset.
        place_datasets(&self.store.shard_map(), set.revision, &set.datasets()?);
        self.namespaces.take_up(namespaces);
        self.tokens.replace(TokenSource::Store, tokens);
        self.policies.take_up(policies);
        self.hot_lists.take_up(lists);
        self.loads.take_up(loads);
        self.events.take_up(events);
        records.current.store(Arc::clone(set));
        Ok(())
    }

    /// Changes the records: `plan` makes edits of the newest set, or refuses. It is called again if another
    /// dispatcher was first. Returns once the change is durable at home and in effect here. An error tells whether
    /// the change took effect.
    pub(crate) async fn change_records<T>(
        &self,
        mut plan: impl FnMut(&RecordSet) -> Result<(Edits, T), ControlError> + Send,
    ) -> Result<T, ControlError> {
        let _changing = self.records.changing.lock().await;
        for _ in 0..CONFLICT_TRIES {
            let (set, version) = self.look(CHANGE_TIMEOUT).await?;
            let (edits, outcome) = plan(&set)?;
            let Some(mut edits) = edits.beyond(&set) else {
                return Ok(outcome);
            };
            let event = edits.event.take();
            if let Some(event) = &event {
                edits = events::with_event(edits, &set, event)?;
            }
            edits = with_folded_fences(edits, &set, &self.records.confirmed_fences())?;
            let next = Arc::new(set.changed(&edits));
            // A set that no dispatcher could read must not get there.
            if let Err(error) = InEffect::read(&next) {
                tracing::error!(%error, "refused a change that no dispatcher could read");
                return Err(error.into());
            }
            let begun = self.clock.monotonic();
            let home = &self.records.home;
            match home
                .write(&next, &edits, Some(version), CHANGE_TIMEOUT)
                .await
            {
                Ok(()) => {
                    if let Some(event) = &event {
                        events::log(event);
                    }
                    self.take_up(&next)?;
                    self.records.confirm(begun);
                    if !buggify!("records-hand-over-late") {
                        self.hand_over().await;
                    }
                    return Ok(outcome);
                }
                Err(ChangeError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let shard = self.store.home().shard;
        let reason = format!("others changed the records {CONFLICT_TRIES} times meanwhile");
        Err(ControlError::RecordsAway { shard, reason })
    }

    /// Finds a namespace that another dispatcher may have made a moment ago. If this dispatcher does not know the
    /// name, it asks the home, at most once a second for all requests.
    pub async fn find_anew(&self, name: &str) -> Result<Arc<NamespaceEntry>, ControlError> {
        let mut asked = self.records.asked_anew.lock().await;
        let now = self.clock.monotonic();
        let is_due = asked.is_none_or(|at| now.saturating_duration_since(at) >= ANEW_INTERVAL);
        if self.namespaces.find(name).is_err() && is_due {
            *asked = Some(now);
            // While the home is away, the copy here counts.
            drop(self.refresh().await);
        }
        self.namespaces.find(name)
    }

    /// Learns of the removal of a namespace that a shard has reported, and finds the namespace that has its name now.
    /// Concurrent requests share one look at the home.
    pub async fn find_after_removal(
        &self,
        removed: NamespaceId,
        name: &str,
    ) -> Result<Arc<NamespaceEntry>, ControlError> {
        let knows_it = || self.records.current.load().is_fenced(removed);
        if !knows_it() {
            let asked = self.records.asked_anew.lock().await;
            if !knows_it() {
                let refreshed = self.refresh().await;
                if !knows_it() {
                    refreshed?;
                }
            }
            drop(asked);
        }
        self.namespaces.find(name)
    }

    /// Finds a namespace again after a shard has refused one of its datasets as removed. Returns `None` if the
    /// namespace itself was removed.
    pub async fn find_after_drop(
        &self,
        dropped: NamespaceId,
        namespace: &NamespaceEntry,
    ) -> Result<Option<Arc<NamespaceEntry>>, ControlError> {
        match self.find_after_removal(dropped, &namespace.info.name).await {
            Ok(found) => {
                let is_it = found.id == namespace.id && found.dataset != dropped;
                Ok(is_it.then_some(found))
            }
            Err(ControlError::NamespaceNotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Has edits that fence an id fold the fences of the set that every shard has `confirmed`.
pub(crate) fn with_folded_fences(
    edits: Edits,
    set: &RecordSet,
    confirmed: &[IdRange],
) -> Result<Edits, Unreadable> {
    if !edits.has_fences() {
        return Ok(edits);
    }
    let mut named: HashSet<NamespaceId> = LoadMap::read(set)?.own_ids().collect();
    named.extend(NamespaceMap::read(set)?.names().into_keys());
    let folded = set.fold_fences(confirmed, |id| named.contains(&id) || edits.fences(id))?;
    Ok(edits.and(folded))
}

/// The records as each of their owners reads them.
struct InEffect {
    namespaces: NamespaceMap,
    tokens: Vec<TokenRecord>,
    policies: StoredPolicies,
    lists: Lists,
    loads: LoadMap,
    events: Vec<(u64, Event)>,
}

impl InEffect {
    fn read(set: &RecordSet) -> Result<Self, Unreadable> {
        secret(set)?;
        set.fenced()?;
        Ok(Self {
            namespaces: NamespaceMap::read(set)?,
            tokens: tokens::read(set)?,
            policies: StoredPolicies::read(set)?,
            lists: Lists::read(set)?,
            loads: LoadMap::read(set)?,
            events: events::read(set)?,
        })
    }
}
