//! Which of the written policies are in effect.
//!
//! By name: a policy of the records replaces the built-in one, and a policy of the file replaces both. A
//! policy that does not fit together with the others is left out with its reason. Policies fit in by the
//! order of their names, so that every dispatcher with the same file leaves out the same ones. Pure: the
//! same file and records give the same result.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use umbo_api::quota::{PolicySource, PolicySpec};
use umbo_quota::{Policy, PolicySet, PolicySetError};
use umbo_types::Version;

use super::error::QuotaError;
use super::file::FilePolicies;
use crate::records::{Kind, RecordSet, Unreadable, unreadable, version_of};

/// Why a stored policy does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Unused {
    /// The policy file has one of its name.
    #[error("a stored quota policy is ignored: the policy file has a policy with its name")]
    OfFile,
    /// The others leave no room for it.
    #[error("{0}")]
    Misfit(PolicySetError),
}

/// A stored policy, and the record that says so.
type StoredPolicy = (Bytes, Arc<Policy>);

/// The stored policies, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoredPolicies(BTreeMap<String, StoredPolicy>);

impl StoredPolicies {
    /// Reads the policies of a set of records.
    pub(crate) fn read(set: &RecordSet) -> Result<Self, Unreadable> {
        let stored = set.of(Kind::Quota).map(|(name, content)| {
            let policy = read(name, content);
            let policy = policy.map_err(|reason| unreadable(Kind::Quota, name, &reason))?;
            Ok((name.to_owned(), (content.clone(), Arc::new(policy))))
        });
        stored.collect::<Result<_, _>>().map(Self)
    }
}

/// The policies in effect, and the file and records that they were chosen from.
#[derive(Debug, Clone)]
pub(super) struct EffectivePolicies {
    file: FilePolicies,
    stored: StoredPolicies,
    set: PolicySet,
    unused: BTreeMap<String, Unused>,
}

impl EffectivePolicies {
    /// Chooses from the policies of the file and the built-in ones.
    pub(super) fn of_file(file: FilePolicies) -> Self {
        Self::choose(file, StoredPolicies::default())
    }

    fn choose(file: FilePolicies, stored: StoredPolicies) -> Self {
        let mut unused = BTreeMap::new();
        let mut used = BTreeMap::new();
        for (name, (_, policy)) in &stored.0 {
            if file.has(name) {
                unused.insert(name.clone(), Unused::OfFile);
            } else {
                used.insert(name, policy);
            }
        }
        let set = file.together(used.values().copied());
        let set = set.unwrap_or_else(|_| {
            let (set, misfits) = one_by_one(&file, &used);
            unused.extend(misfits);
            set
        });
        Self {
            file,
            stored,
            set,
            unused,
        }
    }

    /// Chooses again, with another file.
    pub(super) fn with_file(&self, file: FilePolicies) -> Self {
        Self::choose(file, self.stored.clone())
    }

    /// Chooses again, with other stored policies.
    pub(super) fn with_stored(&self, stored: StoredPolicies) -> Self {
        Self::choose(self.file.clone(), stored)
    }

    /// Chooses again, with another stored policy under a name, or with none.
    pub(super) fn with_policy(&self, name: &str, policy: Option<StoredPolicy>) -> Self {
        let mut stored = self.stored.clone();
        match policy {
            Some(policy) => stored.0.insert(name.to_owned(), policy),
            None => stored.0.remove(name),
        };
        self.with_stored(stored)
    }

    /// Returns whether it was chosen from these stored policies.
    pub(super) fn is_of(&self, stored: &StoredPolicies) -> bool {
        let contents = |stored: &StoredPolicies| -> Vec<(String, Bytes)> {
            let stored = stored.0.iter();
            stored
                .map(|(name, (content, _))| (name.clone(), content.clone()))
                .collect()
        };
        contents(&self.stored) == contents(stored)
    }

    pub(super) const fn set(&self) -> &PolicySet {
        &self.set
    }

    /// Returns the stored policy of a name, even if it is not in effect.
    pub(super) fn content(&self, name: &str) -> Option<&Bytes> {
        self.stored.0.get(name).map(|(content, _)| content)
    }

    /// Returns the version of a stored policy that counts.
    pub(super) fn version(&self, name: &str) -> Option<Version> {
        let is_used = !self.unused.contains_key(name);
        self.content(name).filter(|_| is_used).map(version_of)
    }

    /// Returns an error if this choice leaves out `newcomer`, or a policy that `before` did not leave
    /// out: nothing new may push another policy out.
    pub(super) fn check_room(
        &self,
        before: &Self,
        newcomer: Option<&str>,
    ) -> Result<(), QuotaError> {
        for (name, why) in &self.unused {
            let was_left_out = before.unused.get(name) == Some(why) && newcomer != Some(name);
            if let Unused::Misfit(why) = why
                && !was_left_out
            {
                return Err(QuotaError::Set {
                    name: newcomer.unwrap_or(name).to_owned(),
                    why: why.clone(),
                });
            }
        }
        Ok(())
    }

    /// Returns an error if the policy file has a policy of this name.
    pub(super) fn check_changeable(&self, name: &str) -> Result<(), QuotaError> {
        if self.file.has(name) {
            let name = name.to_owned();
            return Err(QuotaError::OfFile { name });
        }
        Ok(())
    }

    /// Returns an error if no policy is stored under the name.
    pub(super) fn check_stored(&self, name: &str) -> Result<(), QuotaError> {
        let name = || name.to_owned();
        match (self.content(&name()), self.set.get(&name())) {
            (Some(_), _) => Ok(()),
            (None, Some(_)) => Err(QuotaError::BuiltIn { name: name() }),
            (None, None) => Err(QuotaError::NotFound { name: name() }),
        }
    }

    /// Logs the stored policies that are left out now and were not before, or for another reason.
    pub(super) fn complain(&self, before: &Self) {
        for (name, why) in &self.unused {
            if before.unused.get(name) == Some(why) {
                continue;
            }
            match why {
                Unused::OfFile => tracing::warn!(name, "{why}"),
                Unused::Misfit(_) => {
                    tracing::error!(name, %why, "a stored quota policy is ignored");
                }
            }
        }
    }
}

/// Serializes a policy with all its defaults, so that equal policies have equal records.
pub(super) fn content_of(policy: &Policy) -> Bytes {
    let text = serde_json::to_vec(&policy.spec());
    text.expect("a policy is made of texts and numbers").into()
}

fn read(name: &str, content: &Bytes) -> Result<Policy, String> {
    let spec: PolicySpec = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    let policy = Policy::parse(&spec, PolicySource::Stored).map_err(|error| error.to_string())?;
    if *policy.name == *name {
        Ok(policy)
    } else {
        Err(format!("its record has the name '{}'", policy.name))
    }
}

/// Adds stored policies one after the other and leaves out each that does not fit.
fn one_by_one(
    file: &FilePolicies,
    stored: &BTreeMap<&String, &Arc<Policy>>,
) -> (PolicySet, Vec<(String, Unused)>) {
    let base = file.together([]);
    let mut set = base.expect("a file is in hand only where it holds together");
    let (mut fitting, mut misfits) = (Vec::new(), Vec::new());
    for (name, policy) in stored {
        fitting.push(*policy);
        match file.together(fitting.iter().copied()) {
            Ok(larger) => set = larger,
            Err(why) => {
                fitting.pop();
                misfits.push(((*name).clone(), Unused::Misfit(why)));
            }
        }
    }
    (set, misfits)
}
