//! The policy file as it stands on the disk.
//!
//! Invariant: the policies that were read are consistent, also with the built-in ones. A file is
//! refused as a whole if any part of it cannot be used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbo_quota::{Policy, PolicySet, PolicySetError};

use super::error::QuotaError;
use crate::policy_file::{self, read_policies};

/// Why a policy file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    /// The policy file cannot be read.
    #[error("policy file {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A line of it is wrong.
    #[error("policy file {}: {error}", path.display())]
    Line {
        /// Which.
        path: PathBuf,
        /// The line and its problem.
        error: policy_file::PolicyFileError,
    },
    /// The policies of the file and those built in cannot be in effect together.
    #[error("policy file {}: {error}", path.display())]
    Set {
        /// Which.
        path: PathBuf,
        /// Why.
        error: PolicySetError,
    },
    /// The policies of the file are good, but leave no room for a stored policy.
    #[error("the policy file leaves no room for the stored {0}")]
    NoRoom(QuotaError),
}

/// The policies of a policy file, or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilePolicies(Vec<Arc<Policy>>);

impl FilePolicies {
    /// Reads a policy file.
    pub fn read(path: &Path) -> Result<Self, PolicyFileError> {
        let path = || path.to_owned();
        let text = fs::read_to_string(path());
        let text = text.map_err(|source| PolicyFileError::Read {
            path: path(),
            source,
        })?;
        let policies = read_policies(&text);
        let policies = policies.map_err(|error| PolicyFileError::Line {
            path: path(),
            error,
        })?;
        let read = Self(policies.into_iter().map(Arc::new).collect());
        match read.together([]) {
            Ok(_) => Ok(read),
            Err(error) => Err(PolicyFileError::Set {
                path: path(),
                error,
            }),
        }
    }

    /// Returns whether one of the policies has this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|policy| *policy.name == *name)
    }

    /// Returns how many policies there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no policies.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Combines these policies with the built-in ones and `stored`. No policy of `stored` may have
    /// the name of one of these.
    pub(super) fn together<'a>(
        &self,
        stored: impl IntoIterator<Item = &'a Arc<Policy>>,
    ) -> Result<PolicySet, PolicySetError> {
        let built_in = PolicySet::built_in();
        let own = self.0.iter().chain(built_in.iter()).cloned();
        PolicySet::new(own.chain(stored.into_iter().cloned()).collect())
    }
}
