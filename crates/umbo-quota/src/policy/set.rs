//! The policies in effect together, by name.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use umbo_api::quota::{PolicySource, PolicySpec};

use super::Policy;
use crate::limits::POLICIES_MAX;

/// Name of the built-in policy, which limits every caller separately.
pub const DEFAULT_CALLER: &str = "default-caller";
/// Rate of that policy, in request units a second: far above the capacity of one dispatcher, so that it stops nothing
/// but a runaway.
const DEFAULT_CALLER_RATE: &str = "1000000";

/// Why policies cannot be in effect together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicySetError {
    /// Two policies have one name.
    #[error(
        "two policies are named '{name}': policies[{first}] ({}) and policies[{second}] ({})",
        .first_source.as_str(),
        .second_source.as_str()
    )]
    Twice {
        /// The name.
        name: Arc<str>,
        /// Index of the first policy, from 0.
        first: usize,
        /// Origin of the first policy.
        first_source: PolicySource,
        /// Index of the second policy, from 0.
        second: usize,
        /// Origin of the second policy.
        second_source: PolicySource,
    },
    /// More policies than there may be.
    #[error("there are {0} policies, more than the maximum of {POLICIES_MAX}")]
    TooMany(usize),
}

/// Policies in effect together: each name once, at most 256 of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicySet(Vec<Arc<Policy>>);

impl PolicySet {
    /// Puts policies together, owned or shared, in any order. A policy replaces the built-in policy of the same name.
    pub fn new<P: Into<Arc<Policy>>>(policies: Vec<P>) -> Result<Self, PolicySetError> {
        let mut by_name: BTreeMap<Arc<str>, (usize, Arc<Policy>)> = BTreeMap::new();
        for (second, policy) in policies.into_iter().enumerate() {
            let policy = policy.into();
            match by_name.entry(policy.name.clone()) {
                Entry::Vacant(place) => {
                    place.insert((second, policy));
                }
                Entry::Occupied(mut place) => {
                    let (first, other) = place.get();
                    match (other.source, policy.source) {
                        (PolicySource::BuiltIn, PolicySource::File | PolicySource::Stored) => {
                            place.insert((second, policy));
                        }
                        (PolicySource::File | PolicySource::Stored, PolicySource::BuiltIn) => {}
                        (first_source, second_source) => {
                            return Err(PolicySetError::Twice {
                                name: policy.name.clone(),
                                first: *first,
                                first_source,
                                second,
                                second_source,
                            });
                        }
                    }
                }
            }
        }
        if by_name.len() > POLICIES_MAX {
            return Err(PolicySetError::TooMany(by_name.len()));
        }
        let in_order = by_name.into_values();
        Ok(Self(in_order.map(|(_, policy)| policy).collect()))
    }

    /// Returns the built-in policies: a limit for every caller.
    pub fn built_in() -> Self {
        let spec = PolicySpec {
            per: vec!["caller".to_owned()],
            ..PolicySpec::new(DEFAULT_CALLER, "ru", DEFAULT_CALLER_RATE)
        };
        let policy = Policy::parse(&spec, PolicySource::BuiltIn).expect("a test reads this policy");
        Self(vec![Arc::new(policy)])
    }

    /// Returns the policies, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Policy>> {
        self.0.iter()
    }

    /// Returns the policy of a name.
    pub fn get(&self, name: &str) -> Option<&Arc<Policy>> {
        let found = self.0.binary_search_by(|policy| (*policy.name).cmp(name));
        found.ok().map(|at| &self.0[at])
    }

    /// Returns the policies that can count requests of a caller to a namespace, by name. Other values of a request may
    /// still exclude some of them.
    pub fn bind(&self, caller: &str, namespace: &str) -> impl Iterator<Item = &Arc<Policy>> {
        let all = self.0.iter();
        all.filter(move |policy| policy.matches.is_possible_for(caller, namespace))
    }

    /// Returns the number of policies.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
