//! A policy as a person writes it: texts that are not parsed yet.

use crate::dimension::Dimension;
use crate::pattern::Pattern;
use crate::policy::refill::format_refill;
use crate::policy::{Limit, Matcher, Policy, PolicyScope};
use crate::unit::{Unit, format_amount};
use umbo_types::Attributes;

/// A policy as written. An absent field takes its default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyDraft {
    /// Name.
    pub name: String,
    /// Which requests are counted.
    pub matches: MatchDraft,
    /// Names of the dimensions to count by.
    pub per: Vec<String>,
    /// Name of the unit.
    pub unit: String,
    /// Units a second.
    pub rate: String,
    /// Units at once. Default: one second of the rate, at least one unit and one refill.
    pub burst: Option<String>,
    /// Like `50ms` or `1s`.
    pub refill: Option<String>,
    /// `pod` or `shard`. Default: `shard` if `per` names the shard, else `pod`.
    pub scope: Option<String>,
    /// `enforce` or `shadow`.
    pub mode: Option<String>,
    /// `429` or `419`.
    pub status: Option<String>,
    /// Other limits for some of the buckets.
    pub overrides: Vec<OverrideDraft>,
}

/// Patterns and operations as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MatchDraft {
    /// Pattern over the payer.
    pub caller: Option<String>,
    /// Pattern over the namespace.
    pub namespace: Option<String>,
    /// Patterns over the attributes.
    pub attributes: Attributes<Option<String>>,
    /// Names of operations.
    pub operations: Vec<String>,
}

/// An override as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OverrideDraft {
    /// Which buckets.
    pub matches: MatchDraft,
    /// Units a second.
    pub rate: String,
    /// Units at once. The default follows from the rate as in the policy.
    pub burst: Option<String>,
}

impl MatchDraft {
    /// Returns the text of the pattern over a dimension; the shard has no pattern.
    pub(super) fn pattern(&self, dimension: Dimension) -> Option<&str> {
        match dimension {
            Dimension::Caller => self.caller.as_deref(),
            Dimension::Namespace => self.namespace.as_deref(),
            Dimension::Attribute(attribute) => self.attributes[attribute].as_deref(),
            Dimension::Shard => None,
        }
    }

    fn of(matcher: &Matcher) -> Self {
        let text = |pattern: &Option<Pattern>| pattern.as_ref().map(ToString::to_string);
        let operations = matcher.operations.iter();
        Self {
            caller: text(&matcher.caller),
            namespace: text(&matcher.namespace),
            attributes: Attributes::from_fn(|one| text(&matcher.attributes[one])),
            operations: operations.map(|one| one.as_str().to_owned()).collect(),
        }
    }
}

impl PolicyDraft {
    /// Writes a policy with all its defaults. Parsing the draft gives the same policy.
    pub fn of(policy: &Policy) -> Self {
        let amounts = |unit: Unit, limit: Limit| {
            let burst = format_amount(unit, limit.burst);
            (format_amount(unit, limit.rate), Some(burst))
        };
        let (rate, burst) = amounts(policy.unit, policy.limit);
        let by_name = policy.per.iter().filter(|one| {
            // The scope says it already.
            policy.scope != PolicyScope::Shard || *one != Dimension::Shard
        });
        let overrides = policy.overrides.iter().map(|one| {
            let (rate, burst) = amounts(policy.unit, one.limit);
            OverrideDraft {
                matches: MatchDraft::of(&one.matches),
                rate,
                burst,
            }
        });
        Self {
            name: policy.name.to_string(),
            matches: MatchDraft::of(&policy.matches),
            per: by_name.map(|one| one.as_str().to_owned()).collect(),
            unit: policy.unit.as_str().to_owned(),
            rate,
            burst,
            refill: Some(format_refill(policy.refill)),
            scope: Some(policy.scope.as_str().to_owned()),
            mode: Some(policy.mode.as_str().to_owned()),
            status: Some(policy.status.to_string()),
            overrides: overrides.collect(),
        }
    }
}
