//! Why a policy is refused: the field, its value, and the contradiction.

use umbo_types::limits::NAMESPACE_LEN_MAX;

use crate::dimension::{Dimension, Dimensions};
use crate::known_name::UnknownName;
use crate::limits::{FILL_SECONDS_MAX, OVERRIDES_MAX};
use crate::pattern::PatternError;
use crate::unit::{AmountError, Unit};

/// The field that has a problem, and the problem.
pub(super) type FieldProblem = (String, PolicyProblem);

/// Names the field of a problem.
pub(super) fn at(place: impl Into<String>, problem: impl Into<PolicyProblem>) -> FieldProblem {
    (place.into(), problem.into())
}

/// The policy that is refused, where, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{policy}': {place}: {problem}")]
pub struct PolicyError {
    /// Name of the policy, as written.
    pub policy: String,
    /// The field, like `overrides[2].rate`; counted from 0.
    pub place: String,
    /// The problem of the field.
    pub problem: Box<PolicyProblem>,
}

/// A problem of a policy. Amounts are as written, or exact decimals in the policy's unit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyProblem {
    /// Invalid policy name.
    #[error(
        "a policy is named by 1 to 64 characters of [a-z0-9._-], the first a letter or digit; \
         '{0}' is not"
    )]
    BadName(String),
    /// A name that is not in its list.
    #[error("{0}")]
    Unknown(#[from] UnknownName),
    /// The same name twice in a list.
    #[error("'{0}' is listed twice")]
    Repeated(String),
    /// A text that is not an amount.
    #[error("{0}")]
    Amount(#[from] AmountError),
    /// A rate of 0.
    #[error("a rate of 0 would reject for ever; the lowest is {min}")]
    Zero {
        /// Lowest rate.
        min: String,
    },
    /// An amount above its limit.
    #[error("'{value}' is more than the maximum, {max} {unit}")]
    TooHigh {
        /// As written.
        value: String,
        /// The highest amount.
        max: String,
        /// Unit of the amounts.
        unit: Unit,
    },
    /// A burst of less than one unit.
    #[error("burst {burst} is less than 1 of {unit}, the minimum")]
    BurstBelowOne {
        /// The burst.
        burst: String,
        /// Unit of the burst.
        unit: Unit,
    },
    /// A burst that a single refill exceeds: the rate could never be reached.
    #[error("burst {burst} is less than one refill: rate {rate} adds {brings} in {refill}")]
    BurstBelowRefill {
        /// The burst.
        burst: String,
        /// The rate.
        rate: String,
        /// Interval of the refills.
        refill: String,
        /// Amount that the rate brings in that time.
        brings: String,
    },
    /// A burst that takes too long to gather.
    #[error(
        "burst {burst} takes {seconds} s to refill at rate {rate}, more than the maximum of \
         {FILL_SECONDS_MAX} s"
    )]
    BurstTooSlow {
        /// The burst.
        burst: String,
        /// The rate.
        rate: String,
        /// Time until the rate brings the burst, in seconds, rounded up.
        seconds: u64,
    },
    /// A text that is not a refill.
    #[error("'{0}' is not a time in whole milliseconds like 50ms or 1s")]
    BadRefill(String),
    /// A refill that is too short or too long.
    #[error("'{value}' is not between {min} and {max}")]
    RefillOutOfRange {
        /// As written.
        value: String,
        /// Shortest.
        min: String,
        /// Longest.
        max: String,
    },
    /// A status other than 429 and 419.
    #[error("'{0}' is neither 429 nor 419")]
    BadStatus(u16),
    /// A text that is not a pattern.
    #[error("{0}")]
    Pattern(#[from] PatternError),
    /// A pattern that no namespace can match.
    #[error(
        "'{0}' can match no namespace: a name has at most {NAMESPACE_LEN_MAX} characters of [a-z0-9._-]"
    )]
    NoNamespace(String),
    /// Scope `pod` or `fleet` on a policy that counts by shard.
    #[error("scope '{scope}' counts all shards together, but per {per} counts them apart")]
    ScopeAgainstPer {
        /// The scope.
        scope: &'static str,
        /// The dimensions.
        per: Dimensions,
    },
    /// A unit that counts nothing of the matched operations.
    #[error("unit '{unit}' counts nothing of operations [{}]", .operations.join(", "))]
    CountsNothing {
        /// The unit.
        unit: Unit,
        /// The operations that are matched.
        operations: Vec<&'static str>,
    },
    /// More overrides than a policy may have.
    #[error("a policy has at most {OVERRIDES_MAX} overrides, this one has {0}")]
    TooManyOverrides(usize),
    /// An override that names nothing.
    #[error("an override must match a dimension of the policy; per is {per}")]
    OverrideOfNobody {
        /// Dimensions that the policy counts by.
        per: Dimensions,
    },
    /// An override that names operations.
    #[error("an override cannot match operations; make another policy for them")]
    OverrideOfOperations,
    /// An override by something that the policy does not count by: one bucket would have two limits.
    #[error(
        "an override by {dimension} would give one bucket two limits: the policy counts per {per}, \
         add {dimension} to it"
    )]
    OverrideOutsidePer {
        /// The dimension of the override.
        dimension: Dimension,
        /// Dimensions that the policy counts by.
        per: Dimensions,
    },
    /// An override for names that the policy does not match.
    #[error("'{pattern}' never matches: the policy is only for {dimension} '{policy}'")]
    OverrideOfNone {
        /// Dimension of the two patterns.
        dimension: Dimension,
        /// Pattern of the override.
        pattern: String,
        /// Pattern of the policy.
        policy: String,
    },
    /// An override for all that the policy matches.
    #[error(
        "it matches everything that the policy matches, so the policy's own rate {rate} is never used"
    )]
    OverrideOfAll {
        /// Rate of the policy.
        rate: String,
    },
    /// Two overrides that match the same buckets.
    #[error(
        "it matches the same as overrides[{first}], which has rate {first_rate}; this has {rate}"
    )]
    OverrideTwice {
        /// Index of the override that stands first, from 0.
        first: usize,
        /// Rate of the override that stands first.
        first_rate: String,
        /// Rate of this one.
        rate: String,
    },
}
