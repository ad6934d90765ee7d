//! Values that are fine by themselves and contradict each other.
//!
//! Each refusal names both values. The rule for overrides: a bucket has one limit, and every limit
//! of a policy belongs to some bucket.

use std::time::Duration;

use umbo_types::Operation;

use super::error::{FieldProblem, PolicyProblem, at};
use super::refill::{format_refill, refill_brings};
use super::{Limit, Matcher, Override, Policy};
use crate::cost::is_counted;
use crate::dimension::Dimension;
use crate::limits::{FILL_SECONDS_MAX, OVERRIDES_MAX};
use crate::pattern::Pattern;
use crate::unit::{Unit, format_amount};

/// Checks a burst against its rate and the refill.
pub(super) fn check_limit(unit: Unit, limit: Limit, refill: Duration) -> Result<(), PolicyProblem> {
    let text = |atoms| format_amount(unit, atoms);
    let Limit { rate, burst } = limit;
    if burst < unit.atoms_per_unit() {
        let burst = text(burst);
        return Err(PolicyProblem::BurstBelowOne { burst, unit });
    }
    let brings = refill_brings(rate, refill);
    if burst < brings {
        return Err(PolicyProblem::BurstBelowRefill {
            burst: text(burst),
            rate: text(rate),
            refill: format_refill(refill),
            brings: text(brings),
        });
    }
    let seconds = burst.div_ceil(rate);
    if seconds > FILL_SECONDS_MAX {
        return Err(PolicyProblem::BurstTooSlow {
            burst: text(burst),
            rate: text(rate),
            seconds,
        });
    }
    Ok(())
}

/// Checks that the unit counts some of the matched operations.
pub(super) fn check_policy(policy: &Policy) -> Result<(), FieldProblem> {
    let operations = policy.matches.operations;
    let mut chosen = operations.iter();
    if operations.is_empty() || chosen.any(|one| is_counted(policy.unit, one)) {
        return Ok(());
    }
    let problem = PolicyProblem::CountsNothing {
        unit: policy.unit,
        operations: operations.iter().map(Operation::as_str).collect(),
    };
    Err(at("match.operations", problem))
}

pub(super) fn check_override_count(count: usize) -> Result<(), FieldProblem> {
    if count > OVERRIDES_MAX {
        return Err(at("overrides", PolicyProblem::TooManyOverrides(count)));
    }
    Ok(())
}

/// Checks an override against its policy and the overrides before it.
pub(super) fn check_override(
    policy: &Policy,
    one: &Override,
    place: &str,
) -> Result<(), FieldProblem> {
    let matches = &one.matches;
    if !matches.operations.is_empty() {
        let problem = PolicyProblem::OverrideOfOperations;
        return Err(at(format!("{place}.match.operations"), problem));
    }
    for (dimension, pattern) in matches.patterns() {
        let place = || format!("{place}.match.{dimension}");
        if !policy.per.contains(dimension) {
            let per = policy.per;
            let problem = PolicyProblem::OverrideOutsidePer { dimension, per };
            return Err(at(place(), problem));
        }
        if let Some(own) = policy
            .matches
            .pattern(dimension)
            .filter(|own| !own.is_overlap(pattern))
        {
            let problem = PolicyProblem::OverrideOfNone {
                dimension,
                pattern: pattern.to_string(),
                policy: own.to_string(),
            };
            return Err(at(place(), problem));
        }
    }
    check_who(policy, one).map_err(|problem| at(format!("{place}.match"), problem))
}

fn check_who(policy: &Policy, one: &Override) -> Result<(), PolicyProblem> {
    let rate = |limit: Limit| format_amount(policy.unit, limit.rate);
    if one.matches.dimensions().is_empty() {
        return Err(PolicyProblem::OverrideOfNobody { per: policy.per });
    }
    let is_all = |(dimension, pattern)| {
        // Each counted request has a value here, so that a star alone says nothing.
        is_any(&one.matches, dimension) || policy.matches.pattern(dimension) == Some(pattern)
    };
    if one.matches.patterns().all(is_all) {
        let rate = rate(policy.limit);
        return Err(PolicyProblem::OverrideOfAll { rate });
    }
    let first = policy
        .overrides
        .iter()
        .position(|other| is_same(&other.matches, &one.matches));
    match first {
        None => Ok(()),
        Some(first) => Err(PolicyProblem::OverrideTwice {
            first,
            first_rate: rate(policy.overrides[first].limit),
            rate: rate(one.limit),
        }),
    }
}

fn is_same(one: &Matcher, other: &Matcher) -> bool {
    Dimension::ALL.into_iter().all(|dimension| {
        let both_any = is_any(one, dimension) && is_any(other, dimension);
        both_any || one.pattern(dimension) == other.pattern(dimension)
    })
}

fn is_any(matcher: &Matcher, dimension: Dimension) -> bool {
    matcher.pattern(dimension).is_none_or(Pattern::is_any)
}
