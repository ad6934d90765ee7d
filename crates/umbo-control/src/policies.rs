//! The quota policies in effect: built in, from the policy file, and from the records.
//!
//! Deliberately decides nothing about a request: the limiter does. Invariant: the limiter is only ever given a
//! consistent set. If there is no room for a stored policy, it is left out with a report, and the rest stays.

mod effective;
pub(crate) mod error;
mod file;
mod report;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use umbo_api::quota::{
    PolicyChange, PolicyInfo, PolicyList, PolicySource, PolicySpec, QuotaUsers, SimulateAnswer,
    SimulateBody,
};
use umbo_quota::{Limiter, Policy, PolicyReport, UsageReplay};
use umbo_store::Condition;
use umbo_types::Clock;

use self::effective::EffectivePolicies;
pub(crate) use self::effective::StoredPolicies;
pub use self::error::QuotaError;
pub use self::file::{FilePolicies, PolicyFileError};
pub use self::report::simulated;
use crate::error::ControlError;
use crate::records::{Edits, Kind, RecordSet, version_of};

/// The policies of a dispatcher.
#[derive(Debug)]
pub struct Policies {
    limiter: Arc<Limiter>,
    clock: Arc<dyn Clock>,
    in_effect: ArcSwap<EffectivePolicies>,
    /// Held while other policies take effect, so that file and records never undo each other.
    changing: Mutex<()>,
}

impl Policies {
    /// Begins with the policies of the file.
    pub(crate) fn new(limiter: Arc<Limiter>, clock: Arc<dyn Clock>, file: FilePolicies) -> Self {
        let effective = EffectivePolicies::of_file(file);
        limiter.replace(effective.set().clone());
        Self {
            limiter,
            clock,
            in_effect: ArcSwap::from_pointee(effective),
            changing: Mutex::default(),
        }
    }

    /// Puts the policies of another revision of the records into effect.
    pub(crate) fn take_up(&self, stored: StoredPolicies) {
        let _changing = self.changing();
        let before = self.in_effect.load();
        if !before.is_of(&stored) {
            self.take_effect(before.with_stored(stored));
        }
    }

    /// Puts other policies of the file into effect. If they leave no room for a stored policy that is in effect,
    /// they are refused and nothing changes.
    pub fn replace_file(&self, file: FilePolicies) -> Result<(), PolicyFileError> {
        let _changing = self.changing();
        let before = self.in_effect.load();
        let after = before.with_file(file);
        after
            .check_room(&before, None)
            .map_err(PolicyFileError::NoRoom)?;
        self.take_effect(after);
        Ok(())
    }

    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all policies in effect, by name, with their counters on this dispatcher.
    pub fn list(&self) -> PolicyList {
        let in_effect = self.in_effect.load();
        let reports = self.limiter.policy_report(self.clock.monotonic());
        let policies = in_effect.set().iter();
        PolicyList {
            policies: policies
                .map(|policy| info(&in_effect, policy, &reports))
                .collect(),
        }
    }

    /// Returns one policy.
    pub fn describe(&self, name: &str) -> Result<PolicyInfo, QuotaError> {
        let in_effect = self.in_effect.load();
        let policy = in_effect.set().get(name).ok_or_else(|| not_found(name))?;
        let reports = self.limiter.policy_report(self.clock.monotonic());
        Ok(info(&in_effect, policy, &reports))
    }

    fn report(&self, name: &str) -> Result<PolicyReport, QuotaError> {
        let reports = self.limiter.policy_report(self.clock.monotonic());
        let is_it = |report: &PolicyReport| *report.policy.name == *name;
        let found = reports.into_iter().find(is_it);
        found.ok_or_else(|| not_found(name))
    }

    /// Plans to store a policy if the condition holds for the stored policy of its name. Without a condition, a
    /// stored policy stays and must be the same. The flag is true if no policy was stored under the name before.
    pub(crate) fn put(
        &self,
        set: &RecordSet,
        spec: &PolicySpec,
        condition: &Condition,
    ) -> Result<(Edits, (PolicyChange, bool)), ControlError> {
        let policy = Policy::parse(spec, PolicySource::Stored).map_err(QuotaError::from)?;
        let name = policy.name.to_string();
        let content = effective::content_of(&policy);
        let before = self.of(set)?;
        before.check_changeable(&name)?;
        let stored = before.content(&name);
        check(condition, stored)?;
        let is_same = stored.is_some_and(|stored| *stored == content);
        if stored.is_some() && !is_same && matches!(condition, Condition::Always) {
            return Err(QuotaError::Exists { name }.into());
        }
        let is_new = stored.is_none();
        let after = before.with_policy(&name, Some((content.clone(), Arc::new(policy))));
        after.check_room(&before, Some(&name))?;
        let edits = if is_same {
            Edits::none()
        } else {
            Edits::none().put(Kind::Quota, &name, content)
        };
        Ok((edits, (change(&name, &before, &after), is_new)))
    }

    /// Plans to remove a stored policy if the condition holds for it.
    pub(crate) fn remove(
        &self,
        set: &RecordSet,
        name: &str,
        condition: &Condition,
    ) -> Result<(Edits, PolicyChange), ControlError> {
        let before = self.of(set)?;
        before.check_changeable(name)?;
        before.check_stored(name)?;
        check(condition, before.content(name))?;
        let after = before.with_policy(name, None);
        let edits = Edits::none().remove(Kind::Quota, name);
        Ok((edits, change(name, &before, &after)))
    }

    /// Returns the busiest users of a policy, `max` at most.
    pub fn users(&self, name: &str, max: usize) -> Result<QuotaUsers, QuotaError> {
        let report = self.report(name)?;
        let unit = report.policy.unit;
        let buckets = self.limiter.buckets(name, self.clock.monotonic(), max);
        let buckets = buckets.into_iter();
        Ok(QuotaUsers {
            policy: name.to_owned(),
            users: buckets.map(|bucket| report::user(unit, bucket)).collect(),
            total: report.buckets,
        })
    }

    /// Simulates a policy on the recent requests. Takes a while.
    pub fn simulate(&self, asked: &SimulateBody) -> Result<SimulateAnswer, QuotaError> {
        let policy = Policy::parse(&asked.policy, PolicySource::Stored)?;
        let last = asked
            .last_seconds
            .map_or(Duration::MAX, Duration::from_secs);
        let replay = self.limiter.replay(&policy, last);
        Ok(simulated(&policy, replay, 0))
    }

    /// Chooses from the file in effect and the policies of a set of records.
    fn of(&self, set: &RecordSet) -> Result<EffectivePolicies, ControlError> {
        let stored = StoredPolicies::read(set)?;
        Ok(self.in_effect.load().with_stored(stored))
    }

    /// Puts a set of policies into effect if it differs from the current one.
    fn take_effect(&self, effective: EffectivePolicies) {
        let before = self.in_effect.load();
        effective.complain(&before);
        if effective.set() != before.set() {
            self.limiter.replace(effective.set().clone());
        }
        self.in_effect.store(Arc::new(effective));
    }
}

/// Begins the replay of a policy on kept usage.
pub fn on_usage(asked: &SimulateBody) -> Result<(Policy, UsageReplay), QuotaError> {
    let policy = Policy::parse(&asked.policy, PolicySource::Stored)?;
    let replay = UsageReplay::new(policy.clone());
    let replay = replay.map_err(|dimension| QuotaError::NotKept {
        dimension: dimension.as_str(),
    })?;
    Ok((policy, replay))
}

/// Returns the description of a policy. All of it but the counters is of one revision, so a conditional change
/// with its version changes exactly the policy that was shown.
fn info(in_effect: &EffectivePolicies, policy: &Policy, reports: &[PolicyReport]) -> PolicyInfo {
    let report = reports
        .iter()
        .find(|report| report.policy.name == policy.name);
    report::info(policy, in_effect.version(&policy.name), report)
}

fn not_found(name: &str) -> QuotaError {
    QuotaError::NotFound {
        name: name.to_owned(),
    }
}

/// Returns the change of the effective policy of a name.
fn change(name: &str, before: &EffectivePolicies, after: &EffectivePolicies) -> PolicyChange {
    let spec_of = |effective: &EffectivePolicies| effective.set().get(name).map(|it| it.spec());
    PolicyChange {
        name: name.to_owned(),
        before: spec_of(before),
        after: spec_of(after),
        version: after.version(name).map(|version| version.0),
        dry_run: false,
    }
}

/// Returns an error if the condition is false for the stored policy.
fn check(condition: &Condition, current: Option<&Bytes>) -> Result<(), ControlError> {
    let current = current.map(version_of);
    if condition.holds(current) {
        return Ok(());
    }
    Err(ControlError::ConditionFailed { current })
}

#[cfg(test)]
mod tests;
