//! The policies that hold for a shard as a whole, as its node reads them: from the policy file, and
//! from the copies of Umbo's own records in its shards.

use std::collections::HashMap;
use std::sync::Arc;

use umbo_quota::{Policy, PolicyScope, PolicySet};
use umbo_store::Store;
use umbo_types::{Clock, NamespaceId};

use super::KIND;
use super::arrangement::Arrangement;
use super::file::FilePolicies;
use crate::failure::Failure;
use crate::namespaces::Namespaces;
use crate::system::SystemRecords;

/// Reads what a node has to know of policies and namespaces.
#[derive(Debug)]
pub struct ShardPolicies {
    records: Arc<SystemRecords>,
    namespaces: Namespaces,
}

/// What a node enforces by itself.
#[derive(Debug)]
pub struct ShardCeilings {
    /// The policies whose scope is a shard.
    pub policies: PolicySet,
    /// Names of the namespaces.
    pub namespaces: HashMap<NamespaceId, Arc<str>>,
}

impl ShardPolicies {
    /// Begins with the shards of a node.
    pub fn new(store: &Arc<dyn Store>, clock: &Arc<dyn Clock>) -> Self {
        let records = SystemRecords::reader(Arc::clone(store), Arc::clone(clock));
        let records = Arc::new(records);
        let namespaces = Namespaces::new(Arc::clone(&records), Arc::clone(clock));
        Self {
            records,
            namespaces,
        }
    }

    /// Reads them, beside those of a policy file. Fails where none of the shards can be read.
    pub async fn load(&self, file: FilePolicies) -> Result<ShardCeilings, Failure> {
        let stored = self.records.load(KIND).await?;
        let arrangement = Arrangement::of_file(file).with_records(stored);
        let is_ceiling = |policy: &&Arc<Policy>| policy.scope == PolicyScope::Shard;
        let policies = arrangement.set().iter().filter(is_ceiling).cloned();
        let policies = PolicySet::new(policies.collect::<Vec<_>>());
        self.namespaces.refresh().await?;
        let namespaces = self.namespaces.all().into_iter();
        Ok(ShardCeilings {
            policies: policies.map_err(|error| Failure::Internal(error.to_string()))?,
            namespaces: namespaces
                .map(|info| (NamespaceId(info.id), info.name.into()))
                .collect(),
        })
    }
}
