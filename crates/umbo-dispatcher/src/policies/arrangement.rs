//! Which policies count, of all that are written somewhere.
//!
//! By name: one of the store counts instead of the one built in, one of the file instead of both.
//! What cannot be read, or does not fit in beside the others, is left out with its reason; those
//! that come first by name fit in first, so that every pod with the same file leaves out the same.
//! Pure: the same file and records give the same arrangement.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use umbo_api::quota::PolicySpec;
use umbo_quota::{Policy, PolicySet, PolicySetError, Source};
use umbo_types::Version;

use super::error::QuotaError;
use super::file::FilePolicies;
use crate::quota_spec::{policy_of, spec_of};

/// Bits of a version: as many as every reader of JSON keeps.
const VERSION_BITS: u32 = 53;

/// Why a stored policy does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Unused {
    /// Its record says nothing that can be used.
    #[error("its record cannot be used: {0}")]
    Unreadable(String),
    /// The policy file has one of its name.
    #[error("a stored quota policy does not count: the policy file has one of its name")]
    OfFile,
    /// The others leave no room for it.
    #[error("{0}")]
    Misfit(PolicySetError),
}

/// What is stored under a name.
#[derive(Debug, Clone)]
struct Record {
    content: Bytes,
    policy: Result<Arc<Policy>, String>,
}

/// The policies that count, and what they were chosen from.
#[derive(Debug, Clone)]
pub(super) struct Arrangement {
    file: FilePolicies,
    records: BTreeMap<String, Record>,
    set: PolicySet,
    unused: BTreeMap<String, Unused>,
}

impl Arrangement {
    /// Chooses from the policies of the file and what is built in.
    pub(super) fn of_file(file: FilePolicies) -> Self {
        Self::choose(file, BTreeMap::new())
    }

    fn choose(file: FilePolicies, records: BTreeMap<String, Record>) -> Self {
        let mut unused = BTreeMap::new();
        let mut stored = BTreeMap::new();
        for (name, record) in &records {
            let why = match &record.policy {
                _ if file.has(name) => Unused::OfFile,
                Err(reason) => Unused::Unreadable(reason.clone()),
                Ok(policy) => {
                    stored.insert(name, policy);
                    continue;
                }
            };
            unused.insert(name.clone(), why);
        }
        let set = file.together(stored.values().copied());
        let set = set.unwrap_or_else(|_| {
            let (set, misfits) = one_by_one(&file, &stored);
            unused.extend(misfits);
            set
        });
        Self {
            file,
            records,
            set,
            unused,
        }
    }

    /// Chooses again, with another file.
    pub(super) fn with_file(&self, file: FilePolicies) -> Self {
        Self::choose(file, self.records.clone())
    }

    /// Chooses again, with other contents of the store. Reads only those that are new.
    pub(super) fn with_records(&self, contents: BTreeMap<String, Bytes>) -> Self {
        let record = |(name, content): (String, Bytes)| {
            let known = self.records.get(&name);
            let known = known.filter(|known| known.content == content).cloned();
            let record = known.unwrap_or_else(|| Record::read(&name, content));
            (name, record)
        };
        let records = contents.into_iter().map(record).collect();
        Self::choose(self.file.clone(), records)
    }

    /// Chooses again, with another record under a name, or with none.
    pub(super) fn with_record(&self, name: &str, content: Option<Bytes>) -> Self {
        let mut records = self.records.clone();
        match content {
            Some(content) => records.insert(name.to_owned(), Record::read(name, content)),
            None => records.remove(name),
        };
        Self::choose(self.file.clone(), records)
    }

    /// Says whether these are the contents of the store that it was chosen from.
    pub(super) fn is_of(&self, contents: &BTreeMap<String, Bytes>) -> bool {
        let known = self.records.iter();
        known
            .map(|(name, record)| (name, &record.content))
            .eq(contents)
    }

    pub(super) const fn set(&self) -> &PolicySet {
        &self.set
    }

    /// Returns what is stored under a name, whether it counts or not.
    pub(super) fn record(&self, name: &str) -> Option<&Bytes> {
        self.records.get(name).map(|record| &record.content)
    }

    /// Returns the version of a stored policy that counts.
    pub(super) fn version(&self, name: &str) -> Option<Version> {
        let is_used = !self.unused.contains_key(name);
        self.record(name).filter(|_| is_used).map(version_of)
    }

    /// Refuses where a policy would be left out for want of room that was not before, or the one
    /// that is to come: nothing that is new may push another one out.
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

    /// Refuses to change what the policy file says.
    pub(super) fn check_changeable(&self, name: &str) -> Result<(), QuotaError> {
        if self.file.has(name) {
            let name = name.to_owned();
            return Err(QuotaError::OfFile { name });
        }
        Ok(())
    }

    /// Refuses to remove what is not stored.
    pub(super) fn check_stored(&self, name: &str) -> Result<(), QuotaError> {
        let name = || name.to_owned();
        match (self.record(&name()), self.set.get(&name())) {
            (Some(_), _) => Ok(()),
            (None, Some(_)) => Err(QuotaError::BuiltIn { name: name() }),
            (None, None) => Err(QuotaError::NotFound { name: name() }),
        }
    }

    /// Logs what does not count and did before, or was not there.
    pub(super) fn complain(&self, before: &Self) {
        for (name, why) in &self.unused {
            if before.unused.get(name) == Some(why) {
                continue;
            }
            match why {
                Unused::OfFile => tracing::warn!(name, "{why}"),
                Unused::Unreadable(_) | Unused::Misfit(_) => {
                    tracing::error!(name, %why, "a stored quota policy does not count");
                }
            }
        }
    }
}

/// Returns the version of a record: the same for the same content, on every pod.
pub(super) fn version_of(content: &Bytes) -> Version {
    let hash = blake3::hash(content);
    let first = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
    Version(u64::from_be_bytes(*first) >> (u64::BITS - VERSION_BITS))
}

/// Writes a policy down, everything written out, so that one that says the same is the same record.
pub(super) fn record_of(policy: &Policy) -> Bytes {
    let text = serde_json::to_vec(&spec_of(policy));
    text.expect("a policy is made of texts and numbers").into()
}

impl Record {
    fn read(name: &str, content: Bytes) -> Self {
        let policy = read(name, &content).map(Arc::new);
        Self { content, policy }
    }
}

fn read(name: &str, content: &Bytes) -> Result<Policy, String> {
    let spec: PolicySpec = serde_json::from_slice(content).map_err(|error| error.to_string())?;
    let policy = policy_of(&spec, Source::Stored).map_err(|error| error.to_string())?;
    if *policy.name == *name {
        Ok(policy)
    } else {
        Err(format!("it names itself '{}'", policy.name))
    }
}

/// Lets stored policies in one after the other, as long as they fit.
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
