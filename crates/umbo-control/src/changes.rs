//! The changes of Umbo's own records by the admin API: one function a change.
//!
//! Owns the order of the steps of a change: check, make durable, put into effect. The module that owns a kind of
//! records plans the change of these records.

use umbo_api::Outcome;
use umbo_api::admin::{CreatedToken, NamespaceInfo, NamespaceSpec, NamespaceState};
use umbo_api::admin::{NamespaceRemoving, NewToken as AskedToken, TokenList};
use umbo_api::hot::HotList;
use umbo_api::observe::{Event, EventKind};
use umbo_api::quota::{PolicyChange, PolicySpec};
use umbo_store::{Condition, StoreError};
use umbo_types::{NamespaceId, ShardId, Timestamp};

use crate::auth::{CheckedToken, TokenSource};
use crate::control_plane::ControlPlane;
use crate::error::ControlError;
use crate::events::{ChangeSummary, Origin};
use crate::hot_lists::{HotLists, KeyId, ListChange, ListEntry, PutOutcome};
use crate::records::{Edits, RecordSet};
use crate::{namespaces, tokens};

impl ControlPlane {
    /// Creates a namespace. If the namespace exists and the request has a condition, replaces its settings.
    pub async fn put_namespace(
        &self,
        name: &str,
        spec: &NamespaceSpec,
        condition: &Condition,
        origin: &Origin,
    ) -> Result<NamespaceInfo, ControlError> {
        let now = self.clock.wall();
        let put = self.change_records(|set| {
            let (edits, info) = namespaces::put(set, name, spec, condition, now)?;
            Ok((
                edits.because_of(self.settings_changed(set, &info, origin)?),
                info,
            ))
        });
        put.await
            .map_err(|failure| self.say_what_removal_waits_for(failure))
    }

    /// Changes the settings of a namespace that the request names, if the condition holds.
    pub async fn change_namespace(
        &self,
        name: &str,
        spec: &NamespaceSpec,
        condition: &Condition,
        origin: &Origin,
    ) -> Result<NamespaceInfo, ControlError> {
        let change = self.change_records(|set| {
            let (edits, info) = namespaces::change(set, name, spec, condition)?;
            Ok((
                edits.because_of(self.settings_changed(set, &info, origin)?),
                info,
            ))
        });
        change
            .await
            .map_err(|failure| self.say_what_removal_waits_for(failure))
    }

    /// Returns the event of a namespace that has the settings of `info` after the change of `set`.
    fn settings_changed(
        &self,
        set: &RecordSet,
        info: &NamespaceInfo,
        origin: &Origin,
    ) -> Result<Event, ControlError> {
        let before = namespaces::settings_of(set, &info.name)?;
        let (kind, text) = match before {
            None => (EventKind::NamespaceCreated, "created a namespace"),
            Some(_) => (
                EventKind::NamespaceChanged,
                "changed the settings of a namespace",
            ),
        };
        let change = ChangeSummary::new(kind, info.name.as_str(), text);
        Ok(self.event(
            change.between(before.as_ref(), Some(&info.settings)),
            origin,
        ))
    }

    fn event(&self, change: ChangeSummary, origin: &Origin) -> Event {
        change.event(origin, self.clock.wall().as_millis())
    }

    fn say_what_removal_waits_for(&self, failure: ControlError) -> ControlError {
        match failure {
            ControlError::NamespaceBeingRemoved { name, .. } => {
                ControlError::NamespaceBeingRemoved {
                    waiting_for: self.waiting_for(&name),
                    name,
                }
            }
            other => other,
        }
    }

    /// Removes a namespace: its name stops answering, and its rows are reclaimed. Returns `None` if the name is free,
    /// otherwise the shards that the removal waits for; it goes on by itself. An operator who names a shard as
    /// `abandoned` vouches that it never serves again without the fences of the others.
    pub async fn remove_namespace(
        &self,
        name: &str,
        abandoned: Option<ShardId>,
        origin: &Origin,
    ) -> Result<Option<NamespaceRemoving>, ControlError> {
        let begin = self.change_records(|set| {
            let (edits, id) = namespaces::begin_removal(set, name, abandoned)?;
            let before = namespaces::settings_of(set, name)?;
            let change =
                ChangeSummary::new(EventKind::NamespaceRemoved, name, "removed a namespace");
            let change = change.between(before.as_ref(), None);
            Ok((edits.because_of(self.event(change, origin)), id))
        });
        let id = begin.await?;
        // From here on nothing fails: `follow_records` does later what cannot be done now.
        if let Some(shard) = abandoned {
            tracing::warn!(
                namespace = name,
                shard = shard.0,
                "a removal does without a shard"
            );
        }
        self.settle_removals().await;
        Ok(self.removing(name, id))
    }

    fn removing(&self, name: &str, id: NamespaceId) -> Option<NamespaceRemoving> {
        let info = self.namespaces.describe(name).ok()?;
        let is_it = info.id == id.0 && info.state == NamespaceState::Removing;
        is_it.then(|| NamespaceRemoving {
            name: name.to_owned(),
            state: info.state,
            waiting_for: self.waiting_for(name),
        })
    }

    /// Returns the shards that the removal of a namespace waits for.
    pub fn waiting_for(&self, name: &str) -> Vec<u16> {
        let removals = self.removals().into_iter();
        let mut own = removals.filter(|(removing, _)| removing.name == name);
        own.next().map_or_else(Vec::new, |(_, shards)| shards)
    }

    /// Returns all namespaces, by name. A namespace that is being removed has the shards that its removal waits for.
    pub fn all_namespaces(&self) -> Vec<NamespaceInfo> {
        let mut all = self.namespaces.all();
        for info in &mut all {
            if info.state == NamespaceState::Removing {
                info.waiting_for = self.waiting_for(&info.name);
            }
        }
        all
    }

    /// Returns all tokens without their secrets, including the tokens of the token file.
    pub fn token_list(&self) -> TokenList {
        TokenList {
            tokens: self.tokens.list(),
        }
    }

    /// Makes a token. If it is not known whether the token was made, the error holds it: without it, an unknown
    /// token could lock all callers out.
    pub async fn create_token(
        &self,
        asked: &AskedToken,
        origin: &Origin,
    ) -> Result<CreatedToken, ControlError> {
        let (token, record) = CheckedToken::check(asked)?.create(self.clock.wall())?;
        let info = record.info(TokenSource::Store);
        let created = CreatedToken {
            token: token.to_string(),
            info,
        };
        let info = &created.info;
        let create = self.change_records(|_| {
            let edits = tokens::create(&self.tokens, &record)?;
            let change =
                ChangeSummary::new(EventKind::TokenCreated, info.id.as_str(), "made a token");
            let change = change.between(None, Some(info));
            Ok((edits.because_of(self.event(change, origin)), ()))
        });
        match create.await {
            Ok(()) => Ok(created),
            Err(source) if source.effect() == Outcome::NotApplied => Err(source),
            Err(source) => Err(ControlError::TokenUnknown {
                token: Box::new(created),
                source: Box::new(source),
            }),
        }
    }

    /// Revokes a token of the store. A dry run only checks whether the token could be revoked.
    pub async fn revoke_token(
        &self,
        id: &str,
        dry_run: bool,
        origin: &Origin,
    ) -> Result<(), ControlError> {
        let now = self.clock.wall();
        self.change_records(|_| {
            let edits = tokens::revoke(&self.tokens, id, now)?;
            let revoked = self.tokens.list().into_iter().find(|info| info.id == id);
            let change = ChangeSummary::new(EventKind::TokenRevoked, id, "revoked a token");
            let change = change.between(revoked.as_ref(), None);
            let edits = edits.because_of(self.event(change, origin));
            Ok((if dry_run { Edits::none() } else { edits }, ()))
        })
        .await
    }

    /// Stores a policy if the condition holds for the stored policy of its name. A dry run only returns the change.
    /// The flag is true if no policy was stored under the name before.
    pub async fn put_policy(
        &self,
        spec: &PolicySpec,
        condition: &Condition,
        dry_run: bool,
        origin: &Origin,
    ) -> Result<(PolicyChange, bool), ControlError> {
        let put = self.change_records(|set| {
            let (edits, outcome) = self.policies.put(set, spec, condition)?;
            let edits = edits.because_of(self.policy_event(&outcome.0, origin));
            Ok((if dry_run { Edits::none() } else { edits }, outcome))
        });
        let (change, is_new) = put.await?;
        Ok((concluded(change, dry_run), is_new))
    }

    /// Removes a stored policy if the condition holds for it. A dry run only returns the change.
    pub async fn remove_policy(
        &self,
        name: &str,
        condition: &Condition,
        dry_run: bool,
        origin: &Origin,
    ) -> Result<PolicyChange, ControlError> {
        let remove = self.change_records(|set| {
            let (edits, outcome) = self.policies.remove(set, name, condition)?;
            let edits = edits.because_of(self.policy_event(&outcome, origin));
            Ok((if dry_run { Edits::none() } else { edits }, outcome))
        });
        Ok(concluded(remove.await?, dry_run))
    }

    fn policy_event(&self, change: &PolicyChange, origin: &Origin) -> Event {
        let (kind, text) = match &change.after {
            Some(_) => (EventKind::PolicyChanged, "changed a quota policy"),
            None => (EventKind::PolicyRemoved, "removed a quota policy"),
        };
        let told = ChangeSummary::new(kind, change.name.as_str(), text);
        self.event(
            told.between(change.before.as_ref(), change.after.as_ref()),
            origin,
        )
    }

    /// Puts a key on a list if the condition holds for its entry there. A dry run changes nothing. Returns the
    /// resulting entry.
    pub async fn list_key(
        &self,
        list: HotList,
        entry: &ListEntry,
        condition: &Condition,
        dry_run: bool,
        origin: &Origin,
    ) -> Result<PutOutcome, ControlError> {
        let hash = self.key_hasher.hash(&entry.id);
        let text = match list {
            HotList::Pinned => "pinned a key",
            HotList::Blocked => "blocked a key",
        };
        self.change_list(|set, believed| {
            let (edits, outcome) = HotLists::put((set, believed), list, entry, condition)?;
            if dry_run || outcome.change == ListChange::Unchanged {
                return Ok((Edits::none(), outcome));
            }
            let before = self.hot_lists.listing(list, &entry.id);
            let change = ChangeSummary::new(EventKind::HotKeyListed, hash.as_str(), text);
            let change = change.between(before.as_ref(), Some(&outcome.listing));
            Ok((edits.because_of(self.event(change, origin)), outcome))
        })
        .await
    }

    /// Changes a list as of the believed time of day. If that time is too early for the home, no entry leaves the
    /// list because it has run out.
    async fn change_list<T>(
        &self,
        plan: impl Fn(&RecordSet, Timestamp) -> Result<(Edits, T), ControlError> + Send + Sync,
    ) -> Result<T, ControlError> {
        let believed = self.believed_time();
        match self.change_records(|set| plan(set, believed)).await {
            Err(ControlError::Store(StoreError::TooEarly { .. })) => {
                self.change_records(|set| plan(set, Timestamp::default()))
                    .await
            }
            changed => changed,
        }
    }

    /// Takes a key off a list.
    pub async fn unlist_key(
        &self,
        list: HotList,
        id: &KeyId,
        origin: &Origin,
    ) -> Result<(), ControlError> {
        let hash = self.key_hasher.hash(id);
        let text = match list {
            HotList::Pinned => "unpinned a key",
            HotList::Blocked => "unblocked a key",
        };
        self.change_list(|set, believed| {
            let (edits, ()) = HotLists::remove((set, believed), list, id)?;
            let before = self.hot_lists.listing(list, id);
            let change = ChangeSummary::new(EventKind::HotKeyUnlisted, hash.as_str(), text);
            let change = change.between(before.as_ref(), None);
            Ok((edits.because_of(self.event(change, origin)), ()))
        })
        .await
    }
}

/// Marks a change of a policy as the result of a dry run, if it is one.
fn concluded(mut change: PolicyChange, dry_run: bool) -> PolicyChange {
    if dry_run {
        (change.dry_run, change.version) = (true, None);
    }
    change
}
