//! The quota policies in effect: those built in, those of the policy file, those of the store.
//!
//! The truth of the stored ones is in the system records; a change is in effect here at once, and
//! on other pods at their next refresh. Deliberately decides nothing about a request: that is the
//! limiter's. Invariant: the limiter is only ever given a set that holds together as a whole; what
//! cannot be used is left out and said, and the rest stays.

mod arrangement;
mod error;
mod file;
mod of_shards;
mod report;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::Mutex;
use umbo_api::quota::{
    PolicyChange, PolicyInfo, PolicyList, PolicySpec, QuotaUsers, SimulateAnswer, SimulateBody,
};
use umbo_quota::{Limiter, PolicyReport, Source};
use umbo_store::Condition;
use umbo_types::Clock;

use crate::failure::Failure;
use crate::quota_spec::{policy_of, spec_of};
use crate::system::SystemRecords;

use self::arrangement::Arrangement;
pub use self::error::QuotaError;
pub use self::file::{FilePolicies, PolicyFileError};
pub use self::of_shards::{ShardCeilings, ShardPolicies};

const KIND: &str = "quota";

/// The policies of a pod.
#[derive(Debug)]
pub(crate) struct Policies {
    system: Arc<SystemRecords>,
    limiter: Arc<Limiter>,
    clock: Arc<dyn Clock>,
    in_effect: ArcSwap<Arrangement>,
    /// Held while any policy is changed, so that what was found stays true until it is done.
    changing: Mutex<()>,
}

impl Policies {
    /// Begins with those of the file; [`Self::refresh`] loads those of the store.
    pub(crate) fn new(
        system: Arc<SystemRecords>,
        limiter: Arc<Limiter>,
        clock: Arc<dyn Clock>,
        file: FilePolicies,
    ) -> Self {
        let arrangement = Arrangement::of_file(file);
        limiter.replace(arrangement.set().clone());
        Self {
            system,
            limiter,
            clock,
            in_effect: ArcSwap::from_pointee(arrangement),
            changing: Mutex::default(),
        }
    }

    /// Loads the policies of the store.
    pub(crate) async fn refresh(&self) -> Result<(), Failure> {
        let _changing = self.changing.lock().await;
        let records = self.system.load(KIND).await?;
        let before = self.in_effect.load();
        if !before.is_of(&records) {
            self.take_effect(before.with_records(records));
        }
        Ok(())
    }

    /// Puts other policies of the file into effect. They are refused, and all stays as it was, where
    /// a stored policy that is in effect would have to give way to them for want of room.
    pub(crate) async fn replace_file(&self, file: FilePolicies) -> Result<(), PolicyFileError> {
        let _changing = self.changing.lock().await;
        let before = self.in_effect.load();
        let after = before.with_file(file);
        after
            .check_room(&before, None)
            .map_err(PolicyFileError::NoRoom)?;
        self.take_effect(after);
        Ok(())
    }

    /// Returns all policies in effect, by name, and what they did on this pod.
    pub(crate) fn list(&self) -> PolicyList {
        let in_effect = self.in_effect.load();
        let reports = self.limiter.policy_report(self.clock.monotonic());
        let mut policies: Vec<PolicyInfo> = reports
            .iter()
            .map(|report| {
                let version = in_effect.version(&report.policy.name);
                report::info(report, version)
            })
            .collect();
        policies.sort_by(|one, other| one.policy.name.cmp(&other.policy.name));
        PolicyList { policies }
    }

    /// Returns one policy.
    pub(crate) fn describe(&self, name: &str) -> Result<PolicyInfo, QuotaError> {
        let report = self.report(name)?;
        let version = self.in_effect.load().version(name);
        Ok(report::info(&report, version))
    }

    fn report(&self, name: &str) -> Result<PolicyReport, QuotaError> {
        let reports = self.limiter.policy_report(self.clock.monotonic());
        let is_it = |report: &PolicyReport| *report.policy.name == *name;
        let found = reports.into_iter().find(is_it);
        found.ok_or_else(|| QuotaError::NotFound {
            name: name.to_owned(),
        })
    }

    /// Stores a policy where the condition holds of the stored one of its name; in a dry run says
    /// what that would change. The flag says whether none was stored under the name before.
    pub(crate) async fn put(
        &self,
        spec: &PolicySpec,
        condition: &Condition,
        dry_run: bool,
    ) -> Result<(PolicyChange, bool), Failure> {
        let policy = policy_of(spec, Source::Stored).map_err(QuotaError::from)?;
        let name = policy.name.to_string();
        let content = arrangement::record_of(&policy);
        let _changing = self.changing.lock().await;
        // What other pods have changed counts too: all of it has to hold together.
        let before = self.load().await?;
        before.check_changeable(&name)?;
        check(condition, before.record(&name))?;
        let after = before.with_record(&name, Some(content.clone()));
        after.check_room(&before, Some(&name))?;
        let mut is_new = before.record(&name).is_none();
        if !dry_run {
            self.system
                .update(KIND, &name, |current| {
                    is_new = current.is_none();
                    check(condition, current)?;
                    Ok(Some(content.clone()))
                })
                .await?;
        }
        let change = self.conclude(&name, &before, after, dry_run);
        Ok((change, is_new))
    }

    /// Removes a stored policy where the condition holds of it; in a dry run says what that would
    /// change.
    pub(crate) async fn remove(
        &self,
        name: &str,
        condition: &Condition,
        dry_run: bool,
    ) -> Result<PolicyChange, Failure> {
        let _changing = self.changing.lock().await;
        let before = self.load().await?;
        before.check_changeable(name)?;
        // Before any name goes to the store: there, those of records are short.
        before.check_stored(name)?;
        check(condition, before.record(name))?;
        if !dry_run {
            self.system
                .update(KIND, name, |current| {
                    if current.is_none() {
                        let name = name.to_owned();
                        return Err(QuotaError::NotFound { name }.into());
                    }
                    check(condition, current)?;
                    Ok(None)
                })
                .await?;
        }
        let after = before.with_record(name, None);
        Ok(self.conclude(name, &before, after, dry_run))
    }

    /// Returns the busiest users of a policy, `max` at most.
    pub(crate) fn users(&self, name: &str, max: usize) -> Result<QuotaUsers, QuotaError> {
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

    /// Says what a policy would have done to the requests of late. Takes a while.
    pub(crate) fn simulate(&self, asked: &SimulateBody) -> Result<SimulateAnswer, QuotaError> {
        let policy = policy_of(&asked.policy, Source::Stored)?;
        let last = asked
            .last_seconds
            .map_or(Duration::MAX, Duration::from_secs);
        let replay = self.limiter.replay(&policy, last);
        Ok(report::simulated(&policy, replay))
    }

    /// Chooses from what is stored now.
    async fn load(&self) -> Result<Arrangement, Failure> {
        let records = self.system.load(KIND).await?;
        Ok(self.in_effect.load().with_records(records))
    }

    /// Says what a change did or would do, and lets it take effect unless it is a dry run.
    fn conclude(
        &self,
        name: &str,
        before: &Arrangement,
        after: Arrangement,
        dry_run: bool,
    ) -> PolicyChange {
        let spec_of = |arrangement: &Arrangement| {
            let policy = arrangement.set().get(name)?;
            Some(spec_of(policy))
        };
        let change = PolicyChange {
            name: name.to_owned(),
            before: spec_of(before),
            after: spec_of(&after),
            version: after
                .version(name)
                .filter(|_| !dry_run)
                .map(|version| version.0),
            dry_run,
        };
        if !dry_run {
            if change.before != change.after {
                tracing::info!(name, "changed a quota policy");
            }
            self.take_effect(after);
        }
        change
    }

    /// Puts an arrangement into effect, where it is another one.
    fn take_effect(&self, arrangement: Arrangement) {
        let before = self.in_effect.load();
        arrangement.complain(&before);
        if arrangement.set() != before.set() {
            self.limiter.replace(arrangement.set().clone());
        }
        self.in_effect.store(Arc::new(arrangement));
    }
}

/// Refuses where the condition is false of what is stored.
fn check(condition: &Condition, current: Option<&Bytes>) -> Result<(), Failure> {
    let current = current.map(arrangement::version_of);
    if condition.holds(current) {
        return Ok(());
    }
    Err(Failure::PreconditionFailed { current })
}
