//! The policies that hold for a shard as a whole, as its node reads them: from the policy file, and
//! from the copy of Umbo's own records that the node keeps.

use std::collections::HashMap;
use std::sync::Arc;

use umbo_quota::{Policy, PolicyScope, PolicySet};
use umbo_store::RecordsCopy;
use umbo_types::NamespaceId;

use super::effective::{EffectivePolicies, StoredPolicies};
use super::file::FilePolicies;
use crate::error::ControlError;
use crate::namespaces::NamespaceMap;
use crate::records::RecordSet;

/// The policies that a node enforces by itself.
#[derive(Debug)]
pub struct ShardPolicies {
    /// The policies whose scope is a shard.
    pub policies: PolicySet,
    /// Names of the namespaces.
    pub namespaces: HashMap<NamespaceId, Arc<str>>,
}

impl ShardPolicies {
    /// Reads the policies from a policy file and from a copy of the records (`None` if the node has no
    /// copy yet). Fails if the copy cannot be read.
    pub fn read(copy: Option<&RecordsCopy>, file: FilePolicies) -> Result<Self, ControlError> {
        let set = copy.map(RecordSet::from_copy).transpose()?;
        let set = set.unwrap_or_default();
        let effective = EffectivePolicies::of_file(file).with_stored(StoredPolicies::read(&set)?);
        let is_of_shard = |policy: &&Arc<Policy>| policy.scope == PolicyScope::Shard;
        let policies = effective.set().iter().filter(is_of_shard).cloned();
        let policies = PolicySet::new(policies.collect::<Vec<_>>());
        Ok(Self {
            policies: policies.map_err(|error| ControlError::Internal(error.to_string()))?,
            namespaces: NamespaceMap::read(&set)?.names(),
        })
    }
}
