//! Policies: each counts some requests by its dimensions in its unit, and limits their buckets.
//!
//! Owns the type of a policy, and which requests it counts. The files under this one read and write its wire form, and
//! own the contradictions that are refused and the set of policies in effect. Deliberately counts nothing itself.
//! Invariant of every parsed policy: its limits are exact and within [`crate::limits`], a bucket has one limit, and
//! `scope` is `shard` exactly if `per` holds the shard.

mod contradiction;
mod error;
mod matcher;
mod parse;
mod refill;
mod set;
mod written;

use std::sync::Arc;
use std::time::Duration;

use umbo_api::quota::PolicySource;

use crate::dimension::{Dimension, Dimensions};
use crate::known_name::{self, UnknownName};
use crate::subject::Subject;
use crate::unit::Unit;

pub use error::{PolicyError, PolicyProblem};
pub use matcher::{Matcher, Operations, Specificity};
pub use set::{DEFAULT_CALLER, PolicySet, PolicySetError};

/// The limit of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Limit {
    /// Atoms a second in the long run, from 1.
    pub rate: u64,
    /// Atoms at once after a rest; at least one refill.
    pub burst: u64,
}

/// Whether a policy decides or only counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The policy rejects requests.
    Enforce,
    /// The policy counts the requests that it would reject, and rejects nothing.
    Shadow,
}

impl Mode {
    /// Both modes, in the order of their declaration.
    pub const ALL: [Self; 2] = [Self::Enforce, Self::Shadow];

    /// Returns the name used in policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::Shadow => "shadow",
        }
    }

    fn parse(text: &str) -> Result<Self, UnknownName> {
        known_name::find("mode", text, Self::ALL, Self::as_str)
    }
}

/// The traffic that a bucket limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PolicyScope {
    /// All requests through a dispatcher.
    Pod,
    /// Requests to one storage shard, however many dispatchers they come through.
    Shard,
    /// All requests, however many dispatchers they come through.
    Fleet,
}

impl PolicyScope {
    /// All scopes, in the order of their declaration.
    pub const ALL: [Self; 3] = [Self::Pod, Self::Shard, Self::Fleet];

    /// Returns the name used in policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Shard => "shard",
            Self::Fleet => "fleet",
        }
    }

    /// Returns whether the dispatchers of a fleet share the bucket.
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Shard | Self::Fleet)
    }

    fn parse(text: &str) -> Result<Self, UnknownName> {
        known_name::find("scope", text, Self::ALL, Self::as_str)
    }
}

/// What decides which buckets a policy uses: after a change of it, the policy has others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BucketKind {
    mode: Mode,
    scope: PolicyScope,
    unit: Unit,
    per: Dimensions,
}

/// Another limit for the buckets that it matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Override {
    /// The buckets. It names only dimensions that the policy counts by, and no operations.
    pub matches: Matcher,
    /// Their limit.
    pub limit: Limit,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Name, unique in its set.
    pub name: Arc<str>,
    /// Which requests are counted.
    pub matches: Matcher,
    /// Dimensions that the requests are counted by.
    pub per: Dimensions,
    /// Unit of the count.
    pub unit: Unit,
    /// Limit of a bucket that no override matches.
    pub limit: Limit,
    /// How often a bucket is refilled, in whole milliseconds.
    pub refill: Duration,
    /// The traffic that a bucket limits.
    pub scope: PolicyScope,
    /// Whether it decides or only counts.
    pub mode: Mode,
    /// HTTP status of a rejection: 429 or 419.
    pub status: u16,
    /// Other limits for some of the buckets, in their written order.
    pub overrides: Vec<Override>,
    /// Origin of the policy. A policy of the file or the store replaces a built-in policy of the same name.
    pub source: PolicySource,
}

impl Policy {
    /// Returns the kind of the buckets that the policy uses.
    pub(crate) const fn bucket_kind(&self) -> BucketKind {
        BucketKind {
            mode: self.mode,
            scope: self.scope,
            unit: self.unit,
            per: self.per,
        }
    }

    /// Returns whether the policy counts a request: the request matches, and has a value for each dimension of `per`
    /// but the shard.
    ///
    /// Allocates nothing.
    pub fn applies_to(&self, subject: &Subject<'_>) -> bool {
        let mut by_name = self.per.iter().filter(|one| *one != Dimension::Shard);
        self.matches.matches(subject) && by_name.all(|one| one.value(subject).is_some())
    }

    /// Returns the limit of the bucket of a request: the limit of the most specific override that matches, or of the
    /// policy if no override matches. The first of equally specific overrides counts.
    ///
    /// Allocates nothing; looks at every override.
    pub fn limit_for(&self, subject: &Subject<'_>) -> Limit {
        let mut best: Option<(Specificity, Limit)> = None;
        for one in &self.overrides {
            let specificity = one.matches.specificity();
            let is_better = best.is_none_or(|(best, _)| specificity > best);
            if is_better && one.matches.matches(subject) {
                best = Some((specificity, one.limit));
            }
        }
        best.map_or(self.limit, |(_, limit)| limit)
    }

    /// Returns whether caller and namespace alone decide which bucket counts a request of a given operation, and with
    /// which limit.
    pub fn is_settled_by_account(&self) -> bool {
        let is_of_account = |one| matches!(one, Dimension::Caller | Dimension::Namespace);
        self.per.iter().all(is_of_account)
            && self.matches.dimensions().iter().all(is_of_account)
            && self
                .overrides
                .iter()
                .all(|one| one.matches.dimensions().iter().all(is_of_account))
    }
}

#[cfg(test)]
mod tests;
